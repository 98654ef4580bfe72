"""The merit of the sensitivity ranking: quality against latency as nodes are given back, in its order and others.

    python -m benchmarks.sensitivity [MODEL ...] [--mode MODE] [--method METHOD ...] [--json FILE]

Without a MODEL: four of the golden models.  The ranking is found on half of the data (made up), and judged on the other
half.  Of each model, nodes are given back to float one after another, in the order of
``sensitivity``, at random (several seeds), and from both ends of the graph, first, last, second, last but one, ...  At
several points each model is judged, and timed by turns with all others of that number of nodes and with the model with
all nodes quantized, with one thread; run it pinned: ``taskset -c 1``.  Recovered is the gain in the signal-to-noise
ratio of the worst output, in decibels, the mean over the points but the first and the last, which are the same for all.

Goals, for each model: the ranking recovers at least as much as each of the others, on the mean of the random ones, for
the same number of nodes given back; for the same latency, by interpolation, more than random on most models.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks import report
from onnxrewrite.measure.timing import interleave, ratio
from onnxrewrite.runtime.session import as_proto
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.precision.candidates import Candidates, candidates
from onnxrewrite.suite.precision.node_sensitivity import Method, sensitivity
from onnxrewrite.suite.quality.data import load_data
from onnxrewrite.suite.quality.gate import Judge
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings

ROOT = Path(__file__).resolve().parents[1] / "golden_models"
MODELS = ("vit", "bert", "mobilenet_hardswish", "yolo")
OPERATORS = ("MatMul", "Gemm", "Conv")
"""The operators that are quantized: those that multiply by weights."""

SAMPLES = 8
"""The ranking is found on so many, and judged on as many others."""

ENDS, RANDOM, ALL = "first and last", "random", "all quantized"

Curve = list[tuple[float, float]]
"""Latency ratio to the model with all nodes quantized, and decibels, point by point."""


def from_both_ends(nodes: Sequence[str]) -> list[str]:
    """First, last, second, last but one, ..."""
    order = [n for pair in zip(nodes, reversed(nodes), strict=True) for n in pair]
    return list(dict.fromkeys(order))


def orders(found: Candidates, methods: Sequence[Method], seeds: int, first: int) -> dict[str, list[str]]:
    """All orders in which nodes are given back."""
    made: dict[str, list[str]] = {method: sensitivity(found, method=method).names for method in methods}
    made[ENDS] = from_both_ends(list(found.nodes))
    for seed in range(seeds):
        made[f"{RANDOM} {seed}"] = random.Random(first + seed).sample(list(found.nodes), len(found.nodes))
    return made


def curves(
    found: Candidates, judge: Judge, made: Mapping[str, Sequence[str]], counts: Sequence[int], seconds: float
) -> dict[str, Curve]:
    """A curve for each order; models of one number of nodes are timed by turns."""
    feeds, setting = found.data[0].inputs, Setting(threads=1)
    drawn: dict[str, Curve] = {name: [] for name in made}
    for count in counts:
        tasks = {n: open_runner(found.model(order[:count]), feeds, setting) for n, order in made.items()}
        tasks[ALL] = open_runner(found.model(), feeds, setting)
        timings = interleave(tasks, seconds=seconds)
        for name, order in made.items():
            latency = ratio(timings[name], timings[ALL]).median
            drawn[name].append((latency, judge.quality(found.model(order[:count])).worst.snr))
    return drawn


def recovered(curve: Curve, base: float) -> float:
    """Mean decibels won, over the points."""
    return statistics.mean(snr - base for _, snr in curve)


def at_latencies(curve: Curve, base: float, latencies: Sequence[float]) -> float:
    """Mean decibels at these latencies, by interpolation between the best points that take no longer."""
    points = sorted([(1.0, base), *curve])
    best = np.maximum.accumulate([snr for _, snr in points])
    return float(np.mean(np.interp(latencies, [x for x, _ in points], best)))


def measured(path: Path, given: Any) -> tuple[list[report.Row], list[report.Row], report.Row]:
    """The curves of a model, a row each point; what was recovered, a row each order; and the row that goals look at."""
    data = load_data(None, path, most=2 * SAMPLES, seed=given.seed)
    found = candidates(
        path, QuantizeSettings(mode=given.mode, operators=OPERATORS), data=data[:SAMPLES], seed=given.seed
    )
    judge = Judge(as_proto(found.float_model), data[SAMPLES:])
    points = min(given.points, len(found.nodes) - 1)
    counts = sorted({round(len(found.nodes) * k / (points + 1)) for k in range(1, points + 1)} - {0})
    drawn = curves(found, judge, orders(found, given.method, given.seeds, given.seed), counts, given.seconds)
    name = path.stem if path.stem != "model" else path.parent.name
    base = judge.quality(found.model()).worst.snr
    spots: list[report.Row] = [
        {"model": name, "order": order, "nodes": count, "latency": latency, "dB": snr}
        for order, curve in drawn.items()
        for count, (latency, snr) in zip(counts, curve, strict=True)
    ]
    seen = [x for curve in drawn.values() for x, _ in curve]
    low, high = (float(np.quantile(seen, q)) for q in (0.1, 0.9))
    span = [float(x) for x in np.linspace(low, high, 9)]
    rows: list[report.Row] = [
        {
            "model": name,
            "order": order,
            "recovered (dB)": recovered(curve, base),
            "at the same latency (dB)": at_latencies(curve, base, span) - base,
        }
        for order, curve in drawn.items()
    ]
    return spots, rows, _compared(name, len(found.nodes), base, rows, given.method[0])


def number(cell: report.Cell) -> float:
    """A cell that holds one."""
    assert isinstance(cell, (int, float))
    return float(cell)


def _compared(name: str, nodes: int, base: float, rows: Sequence[report.Row], method: str) -> report.Row:
    made: report.Row = {"model": name, "nodes": nodes, "all quantized (dB)": base}
    for column, short in (("recovered (dB)", "nodes"), ("at the same latency (dB)", "latency")):
        values = {str(r["order"]): number(r[column]) for r in rows}
        chance = statistics.mean(v for order, v in values.items() if order.startswith(RANDOM))
        made[f"over random, same {short}"] = values[method] - chance
        made[f"over ends, same {short}"] = values[method] - values[ENDS]
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("models", nargs="*", type=Path, metavar="MODEL", help=f"default: {', '.join(MODELS)}")
    options.add_argument("--mode", default="static", choices=("dynamic", "static"))
    options.add_argument("--method", nargs="+", default=["alone"], choices=get_args(Method), help="goals: the first")
    options.add_argument("--points", type=int, default=7, help="of each curve (default 7)")
    options.add_argument("--seeds", type=int, default=5, help="random orders (default 5)")
    options.add_argument("--seconds", type=float, default=2.0, help="to time the models of a point (default 2)")
    given = options.parse_args(argv)
    if given.quick:
        given.points, given.seeds, given.seconds = 3, 2, 0.2
    tell = report.Report("sensitivity")
    spots: list[report.Row] = []
    rows: list[report.Row] = []
    compared: list[report.Row] = []
    for path in given.models or [ROOT / name / "model.onnx" for name in MODELS]:
        points, found, row = measured(path, given)
        spots, rows, compared = [*spots, *points], [*rows, *found], [*compared, row]
        print(*(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), file=sys.stderr)
    tell.table("Curves", spots, "latency: to the model with all nodes quantized")
    tell.table("Recovered by each order", rows)
    tell.table(f"{given.method[0]} against other orders, {given.mode}", compared, "dB more, mean over the curve")
    for row in compared:
        for other in ("random", "ends"):
            won = number(row[f"over {other}, same nodes"])
            tell.goal(f"{row['model']}: over {other}, same nodes", won, 0, unit="dB", least=True)
    share = statistics.mean(number(r["over random, same latency"]) > 0 for r in compared)
    tell.goal("models with more for the same latency than random", share, 0.5, unit="of all", least=True)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
