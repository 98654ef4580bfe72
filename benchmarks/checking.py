"""The cost of checking: ``apply`` with all checks against ``apply`` without, on real models.

    python -m benchmarks.checking [MODEL ...] [--rounds N] [--json FILE]

Without a MODEL: every one below ``../shared/models``.  The goal, for each: the time with checks is at most 2.5 times
the time without, plus what the model itself takes for the runs that the checks make.  Seconds are of CPU time, over all
threads; what was checked before is forgotten each time.

- ``runs``: how often the checks ran the whole model, original, result or perturbed, and ``own``: what that took;
- ``in double``: how often they ran its float64 reference, and ``double``: what that took, on top.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import onnxrewrite as rw
from benchmarks import report
from onnxrewrite.checks import site
from onnxrewrite.checks.model import Baseline
from onnxrewrite.reference.evaluation import Reference
from onnxrewrite.runtime.session import Session

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "models"
FACTOR = 2.5
"""Times the time without checks."""


def models() -> list[Path]:
    """The models that are measured."""
    return sorted(CORPUS.glob("*/*.onnx"))


def row(path: Path, rounds: int = 1) -> report.Row:
    """Measure one model.

    Returns:
        CPU seconds, of ``allowed`` 2.5 · without + own; ``factor``: (with checks - own) / without; counts; ``met``.
    """
    seen = Counter[str]()

    def without() -> float:
        return report.timed(lambda: rw.apply(path, check="off")).seconds

    def checked() -> float:
        site.clear_cache()
        seen.clear()
        with _watched(seen):
            return report.timed(lambda: rw.apply(path, lower="fused")).seconds

    took = report.interleaved({"without": without, "with checks": checked}, rounds, {"without"})
    own = float(seen["model seconds"])
    allowed = FACTOR * took["without"] + own
    return {
        "model": path.stem,
        "without (s)": took["without"],
        "with checks (s)": took["with checks"],
        "own (s)": own,
        "runs": seen["model"],
        "double (s)": float(seen["double seconds"]),
        "in double": seen["double"],
        "factor": (took["with checks"] - own) / took["without"],
        "allowed (s)": allowed,
        "met": took["with checks"] <= allowed,
    }


@contextmanager
def _watched(seen: Counter[str]) -> Iterator[None]:
    """Count the runs of whole models, and the seconds that they take."""
    check, reference, run = Baseline.check, Reference.run, Session.run
    trials = vars(Baseline)["trials"]  # cached: the first runs of the original, which the check uses
    inside: list[str] = []

    def named(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            inside.append(name)
            try:
                return method(*arguments, **options)
            finally:
                inside.pop()

        return watched

    def watched_run(*arguments: Any, **options: Any) -> Any:
        start = report.clock()
        made = run(*arguments, **options)
        if inside[:1] == ["model"]:
            seen[inside[-1]] += 1
            seen[f"{inside[-1]} seconds"] += report.clock() - start  # type: ignore[assignment]
        return made

    with (
        mock.patch.object(Baseline, "check", named("model", check)),
        mock.patch.object(trials, "func", named("model", trials.func)),
        mock.patch.object(Reference, "run", named("double", reference)),
        mock.patch.object(Session, "run", watched_run),
    ):
        yield


def rows(paths: Sequence[Path] | None = None, rounds: int = 1) -> list[report.Row]:
    """Every model measured; see ``row``."""
    return [row(path, rounds) for path in (models() if paths is None else paths)]


def passes(found: Sequence[report.Row]) -> bool:
    """True if the goal is met on every model."""
    return bool(found) and all(each["met"] for each in found)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="default: all shared models")
    given = options.parse_args(argv)
    paths = given.models or (models()[:3] if given.quick else models())
    if not paths:
        options.error(f"there are no models below {CORPUS}; give some")
    tell = report.Report("checking")
    found = rows(paths, given.rounds if given.rounds is not None else 1)
    shown = [{n: c for n, c in each.items() if n != "met"} for each in found]
    tell.table("apply with all checks, and without", shown, "allowed: 2.5 times without, and own; factor: without own")
    for each in found:
        tell.goal(
            f"{each['model']}: with checks, own runs taken off, against without", float(each["factor"] or 0), FACTOR
        )
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
