"""Never slower: real models as we leave them, against ONNX Runtime's own optimization and against other optimizers.

    python -m benchmarks.models [MODEL ...] [--threads N ...] [--seconds N] [--no-peers] [--json FILE]

Without a MODEL: every one below ``../shared/models``.  Each is run at the sizes that its index tells, all variants by
turns, with all of ONNX Runtime's optimizations.  *against ORT* is our time to that of the original, *best peer* ours to
that of the fastest among the other optimizers that are installed, *creation* the time to create a session to that of
the original.  *greedy* is our time to that of a model whose rewrites of the lower stage are each taken where they pay
by themselves, in one race within ``apply``.  *floor* is the time of our kernels to that of the matrix products,
convolutions, recurrences and attentions among them, by ONNX Runtime's profile.  Goals, per number of threads:

- against ORT: no model above 1.02; geometric mean at most 0.78 over the models with attention, 0.95 over the others;
- best peer: no model above 1.03; geometric mean at most 0.85 and 0.98;
- creation: no model above 1.02;
- greedy: no model above 1.01; geometric mean at most 0.97 over the models with attention.

A goal for each model counts what is beyond doubt: the lower end of the interval of 95 %.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import onnx

import onnxrewrite as rw
from benchmarks import report
from benchmarks.checking import CORPUS, models
from onnxrewrite.inputs.workload import workload
from onnxrewrite.measure.decision import Raced
from onnxrewrite.measure.kernel_times import Run, run_profiled
from onnxrewrite.measure.timing import Interval, ratio
from onnxrewrite.runtime.settings import Setting
from onnxrewrite.suite.bench.benchmark import Bench, Variant, bench
from onnxrewrite.suite.bench.peers import PEERS

ATTENTION, OTHERS = "attention", "others"
PRODUCTS = ("MatMul", "Gemm", "Conv", "Attention", "GRU", "LSTM", "RNN")
"""What the names of the kernels contain that do the arithmetic of a model."""

MOST = {"against ORT": 1.02, "best peer": 1.03, "creation": 1.02, "greedy": 1.01}
MEANS = {
    "against ORT": {ATTENTION: 0.78, OTHERS: 0.95},
    "best peer": {ATTENTION: 0.85, OTHERS: 0.98},
    "greedy": {ATTENTION: 0.97},
}


class Chosen(NamedTuple):
    """Our time to that of the greedy choice of kernels, and to that of our products alone."""

    greedy: float
    floor: float


def corpus_inputs() -> ModuleType | None:
    """The module that makes inputs for the shared models; None where these are not there."""
    path = CORPUS / "inputs.py"
    spec = importlib.util.spec_from_file_location("corpus_inputs", path) if path.is_file() else None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def has_attention(path: Path) -> bool:
    """True if at least two Softmax nodes have a matrix product within eight nodes above them."""
    graph = onnx.load(path, load_external_data=False).graph
    makers = {o: n for n in graph.node for o in n.output}
    products = {"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul"}

    def below_product(name: str, steps: int) -> bool:
        node = makers.get(name)
        if node is None or steps == 0:
            return False
        return node.op_type in products or any(below_product(i, steps - 1) for i in node.input)

    return sum(below_product(n.input[0], 8) for n in graph.node if n.op_type == "Softmax") > 1


def measured(path: Path, threads: int, seconds: float, peers: bool, make: ModuleType | None) -> tuple[Bench, Chosen]:
    """The original, ours, and the peers'; and how good our choice of kernels is."""
    known = make.load_index() if make is not None else {}
    path = path.resolve()  # the index knows it by its place below the corpus, however it was written
    name = path.relative_to(CORPUS).as_posix() if path.is_relative_to(CORPUS) else ""
    dims: Mapping[str, int] = known[name].get("dims", {}) if name in known else {}
    inputs: Mapping[str, Any] = make.make_inputs(str(path)) if make is not None and name in known else {}
    dims, setting = _own_dims(path, dims), Setting(threads=threads)
    found = rw.apply(path, lower="fastest", threads=threads, dims=dims, inputs=inputs)
    timed = bench(
        path,
        ours=lambda: found.model,
        levels=["all"],
        peers=PEERS if peers else (),
        setting=setting,
        dims=dims,
        inputs=inputs,
        seconds=seconds,
        memory=False,
    )
    feeds = workload(str(path), dims=dims, inputs=inputs).feeds
    floor = above_floor(run_profiled({"ours": found.model}, feeds, setting)["ours"])
    return timed, Chosen(to_greedy(found.speed.raced), floor)


def to_greedy(raced: Sequence[Raced]) -> float:
    """The time of the way that was taken to that of the greedy one; 1 where there was no other."""
    taken = next((r.ratio.median for r in raced if r.taken), 1.0)
    return taken / next((r.ratio.median for r in raced if r.greedy), taken)


def above_floor(run: Run) -> float:
    """The time of all kernels of a model to that of its products alone, in the same runs; NaN where it has none."""
    floor = sum(k.seconds for k in run.kernels if any(product in k.op_type for product in PRODUCTS))
    return sum(k.seconds for k in run.kernels) / floor if floor else float("nan")


def _own_dims(path: Path, dims: Mapping[str, int]) -> dict[str, int]:
    """Those that the model names itself."""
    inputs = onnx.load(path, load_external_data=False).graph.input
    named = {d.dim_param for i in inputs for d in i.type.tensor_type.shape.dim}
    return {name: size for name, size in dims.items() if name in named}


def row(path: Path, threads: int, found: Bench, chosen: Chosen) -> report.Row:
    """One line of the table; ``low`` columns are the lower ends of the intervals."""
    original, ours = found["original, all"], found["ours"]
    others = [v for v in found.timed if v.kind == "peer"]
    if ours.ratio is None or ours.timing is None:
        raise RuntimeError(f"{path}: {ours.failure}")
    best = min(others, key=_time, default=None)
    created = _creation(ours) / _creation(original)
    made: report.Row = {
        "model": path.stem,
        "group": ATTENTION if has_attention(path) else OTHERS,
        "threads": threads,
        "against ORT": ours.ratio.median,
        "low": ours.ratio.low,
        "best peer": None,
        "peer": "",
        "peer low": None,
        "creation": created,
        "greedy": chosen.greedy,
        "floor": chosen.floor,
    }
    if best is not None and best.timing is not None:
        against = _against(ours, best)
        made |= {"best peer": against.median, "peer": best.name, "peer low": against.low}
    return made


def _against(one: Variant, other: Variant) -> Interval:
    """Time of one variant to that of another, round by round."""
    assert one.timing is not None
    assert other.timing is not None
    return ratio(one.timing, other.timing)


def _time(variant: Variant) -> float:
    assert variant.timing is not None
    return variant.timing.latency.median


def _creation(variant: Variant) -> float:
    return variant.creation.median if variant.creation is not None else float("nan")


def state(tell: report.Report, found: Sequence[report.Row], threads: int) -> None:
    """The goals for one number of threads."""
    for column, low in (
        ("against ORT", "low"),
        ("best peer", "peer low"),
        ("creation", "creation"),
        ("greedy", "greedy"),
    ):
        values = [float(r[low]) for r in found if r[low] is not None]  # type: ignore[arg-type]
        if not values:
            continue
        above = sum(v > MOST[column] for v in values)
        tell.goal(f"{column}, {threads} threads: models above {MOST[column]}", above, 0, unit="models")
        for group, limit in MEANS.get(column, {}).items():
            chosen = [float(r[column]) for r in found if r["group"] == group and r[column] is not None]  # type: ignore[arg-type]
            if chosen:
                mean = statistics.geometric_mean(chosen)
                tell.goal(f"{column}, {threads} threads: geometric mean, {group}", mean, limit)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="default: all shared models")
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="within an operator (default 1 2)")
    options.add_argument("--seconds", type=float, default=5.0, help="for the variants of a model (default 5)")
    options.add_argument("--no-peers", action="store_true", help="without other optimizers")
    given = options.parse_args(argv)
    paths = given.models or (models()[:3] if given.quick else models())
    if not paths:
        options.error(f"there are no models below {CORPUS}; give some")
    tell, make = report.Report("models"), corpus_inputs()
    rows: list[report.Row] = []
    for path in paths:
        for threads in given.threads:
            rows.append(row(path, threads, *measured(path, threads, given.seconds, not given.no_peers, make)))
        print(*(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in rows[-1].items()), file=sys.stderr)
    for threads in given.threads:
        of = [r for r in rows if r["threads"] == threads]
        tell.table(f"Our time to that of others, {threads} threads", of, "below 1: ours is faster")
        state(tell, of, threads)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
