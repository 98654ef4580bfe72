"""The share of possible fusions that are made: ONNX Runtime's own tests, and real models, beside other optimizers.

    python -m benchmarks.coverage [MODEL ...] [--only PART ...] [--case PATTERN] [--fastest] [--no-peers] [--json FILE]

Without a MODEL: every one below ``../shared/models``.  Parts, each with its goals:

- ``ort-suite``: ONNX Runtime's optimizer tests (``ort_suite.py``), below ``../shared/ort_suite``: at least 95 % of the
  positive cases that run reached, and more than by ONNX Runtime and its transformers optimizer together; negative
  cases and traps safe, all results equal;
- ``raised``: attentions, normalizations, activations and rotary embeddings of each model, counted by their structure
  (``motifs.py``), and how many of them are one operator in the result: all;
- ``nodes``: nodes that are left, constants not counted: on no model more than the best of the other optimizers leaves;
  with ``--fastest``, where what does not pay is not fused, on no model over 5 % more;
- ``equal``: the error of the result against float64 beside that of the original: equal on every model.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnxrewrite as rw
from benchmarks import motifs, ort_suite, report
from benchmarks.checking import CORPUS, models
from onnxrewrite import io
from onnxrewrite.checks.findings import ModelCheck
from onnxrewrite.runtime.session import one_line
from onnxrewrite.suite.bench.peers import ORT_FUSIONS, PEERS, attempts

PARTS = ("ort-suite", "raised", "nodes", "equal")
RAISERS = ("ort-transformers", ORT_FUSIONS.name, "onnxslim")
SIMPLIFIERS = ("onnxslim", "onnxsim", "onnxscript", "onnxoptimizer")
MORE = 1.05
"""So many times the nodes of the best other optimizer may be left where only what pays is fused."""


@dataclass
class Measured:
    """One model, as we and others leave it.

    Attributes:
        path: The model.
        nodes: Optimizer to the number of nodes: ``original``, ``ours``, ``fastest``, and the other optimizers.
        found: Optimizer to the number of each motif that is one operator.
        total: The number of each motif.
        check: Our result against the original; None where there is no result.
        failure: The reason why there is none.
    """

    path: Path
    nodes: dict[str, int] = field(default_factory=dict)
    found: dict[str, Counter[str]] = field(default_factory=dict)
    total: Counter[str] = field(default_factory=Counter)
    check: ModelCheck | None = None
    failure: str = ""


def measured(path: Path, *, fastest: bool = False, peers: bool = True) -> Measured:
    """A model rewritten by us, with all checks, and by others."""
    made = Measured(path)
    original = motifs.opened(path)
    made.total = motifs.total(original)
    made.nodes["original"] = motifs.node_count(path)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("fused", "fastest") if fastest else ("fused",):
            _ours(made, name, Path(folder) / f"{name}.onnx")
        for each in attempts([*PEERS, ORT_FUSIONS] if peers else [], path, Path(folder)):
            if each.path is not None:
                _note(made, each.peer, each.path)
    return made


def _ours(made: Measured, lower: str, result: Path) -> None:
    try:
        found = rw.apply(made.path, lower="fused" if lower == "fused" else "fastest")
    except rw.OnnxRewriteError as error:
        made.failure = one_line(error)
        return
    io.save(found.model, result)
    _note(made, "ours" if lower == "fused" else lower, result)
    if lower == "fused":
        made.check = found.checks.model


def _note(made: Measured, who: str, result: Path) -> None:
    model = motifs.opened(result)
    made.nodes[who], made.found[who] = motifs.node_count(result), motifs.found(model)


# -- what is shown -------------------------------------------------------------------------------------------


def raised(found: Sequence[Measured], out: report.Report) -> None:
    """Report the number of each motif that is one operator, model by model."""
    rows, missing = list[report.Row](), Counter[str]()
    for each in found:
        for motif, total in each.total.items():
            ours = each.found.get("ours", Counter())[motif]
            missing[motif] += max(0, total - ours)
            if total:
                peers = {p: each.found[p][motif] if p in each.found else None for p in RAISERS}
                rows.append({"model": each.path.stem, "motif": motif, "there": total, "ours": ours, **peers})
    if rows:
        out.table("Motifs that are one operator", rows, "there: in the original, spelled out or one operator already")
    for motif, number in missing.items():
        out.goal(f"{motif}: spelled out in the result", number, 0, unit="motifs")


def nodes(found: Sequence[Measured], out: report.Report, fastest: bool) -> None:
    """Report the number of nodes that are left, model by model."""
    rows = list[report.Row]()
    for each in found:
        peers = {p: each.nodes.get(p) for p in SIMPLIFIERS}
        best = min((n for n in peers.values() if n is not None), default=None)
        row: report.Row = {"model": each.path.stem, "original": each.nodes["original"], "ours": each.nodes.get("ours")}
        rows.append(row | ({"fastest": each.nodes.get("fastest")} if fastest else {}) | {"best": best, **peers})
    out.table("Nodes that are left", rows, "best: the fewest that another optimizer leaves; constants are not counted")
    out.goal("nodes: models on which more are left than by the best other", _above(rows, "ours", 1), 0, unit="models")
    if fastest:
        above = _above(rows, "fastest", MORE)
        out.goal(f"nodes, fastest: models on which over {MORE} times as many are left", above, 0, unit="models")


def _above(rows: Sequence[report.Row], column: str, times: float) -> int:
    """Models on which we leave more nodes than so many times the best, or nothing at all."""
    compared = [(r[column], r["best"]) for r in rows if r["best"] is not None]
    return sum(ours is None or int(ours) > times * int(best) for ours, best in compared)


def equal(found: Sequence[Measured], out: report.Report) -> None:
    """The largest errors of original and result, model by model."""
    rows, different = list[report.Row](), 0
    for each in found:
        check = each.check
        if check is None or check.skipped or not check.outputs:
            reason = each.failure or (check.skipped if check is not None else None) or "not compared"
            different += bool(each.failure)
            rows.append(_errors(each.path.stem, reason))
            continue
        different += not check.ok
        worst = max(check.outputs, key=lambda o: o.comparison.error_rewritten)
        how = "bitwise equal" if check.identical else worst.reference
        comparison = worst.comparison
        rows.append(
            _errors(each.path.stem, how, comparison.error_original, comparison.error_rewritten, comparison.bound)
        )
    out.table("Errors against float64", rows, "relative; against: what it was measured against")
    out.goal("models that differ from their original", different, 0, unit="models")


def _errors(model: str, how: str, *errors: float) -> report.Row:
    own, ours, bound = errors or (None, None, None)
    return {"model": model, "against": how, "original": own, "ours": ours, "allowed": bound}


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="default: all shared models")
    options.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    options.add_argument("--case", default="*", metavar="PATTERN", help="of names of the suite's cases (default: all)")
    options.add_argument("--fastest", action="store_true", help="what is measured to pay, too, which takes long")
    options.add_argument("--no-peers", action="store_true", help="without other optimizers")
    given = options.parse_args(argv)
    paths = given.models or (models()[:3] if given.quick else models())
    cases = ort_suite.cases(given.case)[: 20 if given.quick else None]
    if "ort-suite" in given.only and not cases:
        options.error(f"there are no such cases below {ort_suite.SUITE}")
    if set(given.only) - {"ort-suite"} and not paths:
        options.error(f"there are no models below {CORPUS}; give some")
    out = report.Report("coverage")
    if "ort-suite" in given.only:
        ort_suite.tell(list(ort_suite.rows(cases)), out)
    if set(given.only) - {"ort-suite"}:
        found = [_told(measured(path, fastest=given.fastest, peers=not given.no_peers)) for path in paths]
        if "raised" in given.only:
            raised(found, out)
        if "nodes" in given.only:
            nodes(found, out, given.fastest)
        if "equal" in given.only:
            equal(found, out)
    return out.finish(given.json)


def _told(each: Measured) -> Measured:
    counts = " ".join(f"{who}={number}" for who, number in each.nodes.items())
    print(each.path.stem, counts, each.failure, file=sys.stderr, flush=True)
    return each


if __name__ == "__main__":
    sys.exit(main())
