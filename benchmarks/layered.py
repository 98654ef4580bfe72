"""Patterns with repetition and bodies on models that repeat themselves: what they match, and whether that is faster.

    python -m benchmarks.layered [--seconds N] [--quick] [--json FILE]

Mamba mixers, unrolled by both of PyTorch's exporters and as a Scan, and mixtures of experts, spelled out or gathered.
Each is rewritten by all rules as ``apply`` chooses them, with one thread; then the original, the result, and the result
without the rules in question run by turns.  ``applied`` counts their rewrites; ``apply`` declines them where they do
not pay.  Needs torch.

Goals: wherever a rule in question is applied, its result is faster than the one without it; the recurrence of each
Mamba, the experts of one token and those that are gathered are rewritten.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxrewrite as rw
from benchmarks import layered_models as models
from benchmarks import report
from onnxrewrite.inputs.workload import workload
from onnxrewrite.measure.timing import Interval, interleave, ratio
from onnxrewrite.runtime.settings import Setting, open_runner

RULES = ("unrolled-recurrence", "scan-operands", "experts", "gathered-experts")
SETTING = Setting(threads=1)
BUDGET = 60.0
MARGIN = 0.02
"""A ratio that is this much above 1 is slower."""


@dataclass(frozen=True)
class Case:
    """A model.

    Attributes:
        name: Its name.
        make: Writes it to a path.
        sizes: Of its named dimensions.
        must: True if a rule in question has to be applied.
    """

    name: str
    make: Callable[[Path], Path]
    sizes: dict[str, int]
    must: bool = True


def cases(quick: bool) -> Iterator[Case]:
    """The models."""
    hidden, inner, lengths = (32, 48, (8,)) if quick else (384, 512, (16, 64, 256))
    for steps in lengths:
        for exporter in ("dynamo", "torchscript"):
            make = _bound(models.mamba, exporter, hidden, steps)
            yield Case(f"Mamba unrolled, {exporter}, {steps} steps", make, {"batch": 1}, must=not quick)
        yield Case(f"Mamba as Scan, {steps} steps", _bound(models.scanned_mamba, hidden, steps), {}, must=not quick)
    for exporter in ("dynamo", "torchscript"):
        for tokens in (1, 16, 128):
            make = _bound(models.experts, exporter, hidden, inner, tokens)
            yield Case(f"experts, {exporter}, {tokens} tokens", make, {"batch": 1}, must=tokens == 1 and not quick)
            make = _bound(models.gathered_experts, exporter, hidden, inner, tokens)
            yield Case(f"experts gathered, {exporter}, {tokens} tokens", make, {"batch": 1}, must=not quick)


def _bound(make: Callable[..., Path], *given: object) -> Callable[[Path], Path]:
    return lambda path: make(path, *given)


def row(case: Case, folder: Path, seconds: float) -> tuple[report.Row, Interval | None, bool]:
    """A line, the ratio of the result to that without the rules in question, and whether one was applied."""
    source = case.make(folder / "model.onnx")
    results = {}
    for name, without in (("with", ()), ("without", RULES)):
        results[name] = rw.apply(source, dims=case.sizes, threads=1, budget=BUDGET, lower="fastest", without=without)
        results[name].save(folder / f"{name}.onnx")
    applied = sum(results["with"].trace.counts()[rule] for rule in RULES)
    found = workload(str(source), dims=case.sizes)
    paths = {"original": source, **{name: folder / f"{name}.onnx" for name in results}}
    runners = {name: open_runner(str(path), found.feeds, SETTING) for name, path in paths.items()}
    timings = interleave(runners, seconds=seconds, most=2000)
    gain = ratio(timings["with"], timings["without"], of_processor=True) if applied else None
    shown: report.Row = {
        "model": case.name,
        "nodes": len(results["with"].original.graph),
        "nodes after": len(results["with"].model.graph),
        "applied": applied,
        "original, ms": round(1e3 * timings["original"].cpu_seconds, 3),
        "result to original": round(ratio(timings["with"], timings["original"], of_processor=True).median, 2),
        "to result without": round(gain.median, 2) if gain is not None else None,
    }
    return shown, gain, applied > 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--seconds", type=float, default=3.0, help="for each model (default 3)")
    given = options.parse_args(argv)
    rows, lost, missed = list[report.Row](), 0, 0
    with tempfile.TemporaryDirectory(prefix="onnxrewrite-") as folder:
        for number, case in enumerate(cases(given.quick)):
            place = Path(folder) / str(number)
            place.mkdir()
            shown, gain, is_applied = row(case, place, 0.2 if given.quick else given.seconds)
            rows.append(shown)
            lost += gain is not None and gain.low > 1 and gain.median > 1 + MARGIN and not given.quick
            missed += case.must and not is_applied
    tell = report.Report("layered")
    tell.table("Models that repeat themselves", rows, "one thread, seconds of the processor, by turns")
    tell.goal("results that are slower with the rules than without", lost, 0)
    tell.goal("models that must be rewritten and are not", missed, 0)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
