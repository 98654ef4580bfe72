"""The gain of rules: the time of the kernels that they had a part in, before and after, on real models.

    python -m benchmarks.effects [MODEL ...] [--seconds S] [--write] [--json FILE]

Without a MODEL: every one below ``../shared/models``.  Each is run as ONNX Runtime optimizes it, by turns with the most
fused form that the rules make of it, so a factor is what a rule adds to ONNX Runtime's own optimizations.  Where rules
worked on the same nodes, the factor is of all of them together.  ``--write`` keeps the factors in
``docs/effects.json``, from where the list of rules (``docs/rules.md``) has them.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import onnxrewrite as rw
from benchmarks import report
from benchmarks.checking import CORPUS, models
from onnxrewrite import io
from onnxrewrite.measure.opportunities import Opportunity
from onnxrewrite.measure.profiling import Rewritten, profile

KEPT = Path(__file__).resolve().parents[1] / "docs" / "effects.json"


class Effect(NamedTuple):
    """Of one rule in one model: what its places took, and what they take."""

    model: str
    before: float
    after: float


def effects(path: Path, seconds: float) -> dict[str, Effect]:
    """Rule to its effect in one model."""
    loaded = io.load(path)
    made = rw.apply(loaded, check="off", lower="fused")
    found = profile(loaded, rewritten=Rewritten(made.model, made.trace, tuple(made.rules)), seconds=seconds)
    return _by_rule(path.stem, (o for o in found.opportunities if o.kind == "rewrite"))


def _by_rule(model: str, places: Iterable[Opportunity]) -> dict[str, Effect]:
    before, after = defaultdict[str, float](float), defaultdict[str, float](float)
    for place in places:
        for rule in place.rules:
            before[rule] += place.seconds
            after[rule] += place.seconds - place.gain
    return {rule: Effect(model, seconds, after[rule]) for rule, seconds in before.items() if seconds > 0}


def rows(found: Iterable[dict[str, Effect]]) -> list[report.Row]:
    """One for each rule: in how many models, and the geometric mean of its factors with the lowest and the highest."""
    by_rule = defaultdict[str, list[Effect]](list)
    for each in found:
        for rule, effect in each.items():
            by_rule[rule].append(effect)
    return [_row(rule, by_rule[rule]) for rule in sorted(by_rule)]


def _row(rule: str, found: Sequence[Effect]) -> report.Row:
    factors = [max(e.after, 0.0) / e.before for e in found]
    mean = math.exp(sum(math.log(max(f, 1e-3)) for f in factors) / len(factors))
    return {
        "rule": rule,
        "models": len(found),
        "factor": round(mean, 2),
        "lowest": round(min(factors), 2),
        "highest": round(max(factors), 2),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="default: all shared models")
    options.add_argument("--seconds", type=float, default=3.0, help="of measuring, for each model (default: 3)")
    options.add_argument("--write", action="store_true", help=f"keep the factors in {KEPT.name}")
    given = options.parse_args(argv)
    paths = given.models or (models()[:3] if given.quick else models())
    if not paths:
        options.error(f"there are no models below {CORPUS}; give some")
    made = rows(effects(path, given.seconds) for path in paths)
    out = report.Report("effects")
    out.table("What rules gain", made, "factor: time after / time before, of the kernels that the rule had a part in")
    if given.write:
        kept = {str(row["rule"]): {key: row[key] for key in ("models", "factor", "lowest", "highest")} for row in made}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return out.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
