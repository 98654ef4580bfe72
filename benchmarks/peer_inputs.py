"""Anything in, the best out: what other optimizers have written, as input.

    python -m benchmarks.peer_inputs [MODEL ...] [--nodes] [--seconds N] [--json FILE]

Without a MODEL: every one below ``../shared/models``.  Each other optimizer that is installed rewrites it, and what it
wrote is given to ``apply`` as the original is.  *nodes* are those of our result from that to those of our result from
the original, both with ``--lower fused``.  *time* is the same of the default mode: both results are opened anew and
run by turns, with one thread, in the processor's seconds, for about ``--seconds``; with ``--nodes`` nothing is timed.
Goals:

- no result that is not equal to its input;
- time: geometric mean at most 1.00, none above 1.02 beyond doubt.

A peer may make weights inputs that a caller may override (onnxoptimizer, of files of IR version 3).  That is another
function, into which nothing is folded, and is neither counted nor timed.

``--nodes`` has a goal of its own: a geometric mean of nodes of at most 1.02.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import onnx_ir as ir

import onnxrewrite as rw
from benchmarks import report
from benchmarks.checking import models
from onnxrewrite.compiler.request import Lowering
from onnxrewrite.inputs.workload import workload
from onnxrewrite.io import statistics as counts
from onnxrewrite.io.preserved import default_of
from onnxrewrite.measure.timing import Interval, ratio, runs_anew
from onnxrewrite.runtime.references import by_reference
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.bench.peers import ORT_FUSIONS, PEERS, attempts

ONE = Setting(threads=1)


def measured(path: Path, seconds: float) -> Iterator[report.Row]:
    """A row for each other optimizer that has an output for a model; nothing is timed in no ``seconds``."""
    lower: Lowering = "fastest" if seconds else "fused"
    with tempfile.TemporaryDirectory() as folder:
        own = rw.apply(path, lower=lower, threads=1)
        for each in attempts([*PEERS, ORT_FUSIONS], path, Path(folder)):
            if each.path is None:
                continue
            try:
                made = rw.apply(each.path, lower=lower, threads=1)
            except rw.OnnxRewriteError as error:
                yield _row(path, each.peer, f"failed: {error}")
                continue
            found = made.checks.model
            is_equal = found is not None and found.ok
            row = _row(path, each.peer, "equal" if is_equal else "not equal")
            if _overridable(made.original) > _overridable(own.original):
                yield row | {"result": f"{row['result']}, weights are inputs"}
                continue
            row["nodes"] = counts.node_count(made.model) / max(counts.node_count(own.model), 1)
            if seconds:
                seen = against(made.model, own.model, seconds)
                row |= {"time": seen.median, "low": seen.low, "high": seen.high}
            yield row


def _row(path: Path, peer: str, outcome: str) -> report.Row:
    return {
        "model": path.stem,
        "from": peer,
        "result": outcome[:40],
        "nodes": None,
        "time": None,
        "low": None,
        "high": None,
    }


def against(model: ir.Model, other: ir.Model, seconds: float) -> Interval:
    """Time of one model to that of another one, run by turns on the same inputs."""
    with by_reference(model) as first, by_reference(other) as second:
        feeds = workload(first if _named(model) < _named(other) else second).feeds  # OnnxSlim may fix a size
        openers = {name: partial(open_runner, each, feeds, ONE) for name, each in (("of", first), ("to", second))}
        timings = runs_anew(openers, seconds=seconds)
    return ratio(timings["of"], timings["to"], of_processor=True)


def _overridable(model: ir.Model) -> int:
    """The number of weights that a caller may override."""
    return sum(default_of(value) is not None for value in model.graph.inputs)


def _named(model: ir.Model) -> int:
    """The number of sizes of inputs that are not fixed."""
    return sum(not isinstance(size, int) for value in model.graph.inputs for size in value.shape or ())


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="instead of the shared models")
    options.add_argument("--nodes", action="store_true", help="count nodes only, with --lower fused")
    options.add_argument("--seconds", type=float, default=1.0, help="to time each pair (default 1)")
    given = options.parse_args(argv)
    tell = report.Report("peer_inputs")
    paths = given.models or (models()[:3] if given.quick else models())
    rows = [row for path in paths for row in measured(path, 0.0 if given.nodes else given.seconds)]
    if not rows:
        print("no other optimizer is installed, or there are no models")
        return tell.finish(given.json)
    tell.table("our results from other optimizers' outputs, to those from the originals", rows)
    tell.goal("results that are not equal", sum(not str(row["result"]).startswith("equal") for row in rows), 0, unit="")
    if given.nodes:
        tell.goal("nodes, geometric mean", statistics.geometric_mean(_column(rows, "nodes")), 1.02)
    else:
        tell.goal("time, geometric mean", statistics.geometric_mean(_column(rows, "time")), 1.0)
        tell.goal("time, at most, beyond doubt", max(_column(rows, "low")), 1.02)
    return tell.finish(given.json)


def _column(rows: Sequence[report.Row], name: str) -> list[float]:
    return [float(row[name] or 0) for row in rows if row[name] is not None]


if __name__ == "__main__":
    sys.exit(main())
