"""Pace: the processor's time that a user waits for, beside that of OnnxSlim and onnxsim.

    python -m benchmarks.pace [MODEL ...] [--only PART ...] [--huge] [--quick] [--json FILE]

Everything is a command of its own, from its start to its end, imports included, in seconds of the processor; what is
compared runs by turns.

- ``nodes``: a transformer as TorchScript exports it (``graphs.transformer``), of 1,000 to 10,000 nodes, with ``--huge``
  to 100,000; ``apply --check off --lower fused``.  Goals for the one of 10,000: 1 ms a node, and 0.4 times OnnxSlim's
  time.  The time per node of the largest is at most 1.5 times that of the smallest.
- ``models``: up to 40 models below ``../shared/models``, evenly chosen, or else the golden models; ``apply --threads
  1``, cold, which is with an empty cache, and warm, which is the same again.  Goals: cold 6 s in the median and 30 s at
  most, warm 3 s in the median; 4 times OnnxSlim's time cold, and 2 times warm, in the median.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from benchmarks import graphs, report
from benchmarks.checking import CORPUS
from benchmarks.digests import ROOT
from benchmarks.scale import used

OURS = "onnxrewrite"
PEERS: Mapping[str, str] = {
    "onnxslim": "import sys, onnx, onnxslim; onnx.save(onnxslim.slim(onnx.load(sys.argv[1])), sys.argv[2])",
    "onnxsim": "import sys, onnx, onnxsim; onnx.save(onnxsim.simplify(onnx.load(sys.argv[1]))[0], sys.argv[2])",
}
"""Optimizers to programs that read one file and write another."""

SIZES, HUGE = (1_000, 4_000, 10_000), 100_000
TOLD = 10_000
"""Nodes of the graph that the goals are for."""

MOST = 40


class Failed(Exception):
    """A command that came to nothing."""


def ours(source: Path, cache: Path, *options: str) -> float:
    """The processor's seconds of one ``apply``; raises ``Failed`` where it writes nothing."""
    command = ["-m", "onnxrewrite", "apply", str(source), "-o", str(cache / "result.onnx"), *options]
    return _seconds(command, {"XDG_CACHE_HOME": str(cache)})


def peer(name: str, source: Path, folder: Path) -> float:
    """The processor's seconds of another optimizer; raises ``Failed`` where it writes nothing."""
    return _seconds(["-c", PEERS[name], str(source), str(folder / f"{name}.onnx")], {})


def _seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    # All of it is compiled, as pip leaves it: what is installed in place is compiled by the first round.
    usage = used([sys.executable, *command], {"PYTHONDONTWRITEBYTECODE": "", **environment})
    if usage.code:
        raise Failed(f"exit code {usage.code}: {usage.said.strip()[-200:]}")
    return usage.cpu


def installed() -> list[str]:
    """The optimizers that are installed."""
    return [name for name in PEERS if importlib.util.find_spec(name) is not None]


# -- nodes -----------------------------------------------------------------------------------------------------------


def of_nodes(tell: report.Report, sizes: Sequence[int], rounds: int, seed: int) -> None:
    """Without checks, at several sizes."""
    slim = [name for name in installed() if name == "onnxslim"]
    rows: list[report.Row] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for size in sizes:
            path = folder / f"{size}.onnx"
            model = graphs.transformer(size, seed)
            ir.save(model, path)
            found = report.interleaved(_tasks(path, folder, slim), rounds)
            rows.append(_of_size(len(model.graph), found))
    tell.table("apply --check off --lower fused, on transformers", rows, "seconds of the processor")
    per_node = {size: float(row["per node (s)"] or 0) for size, row in zip(sizes, rows, strict=True)}
    told = TOLD if TOLD in sizes else max(sizes)
    tell.goal(f"time per node at {told:,} nodes", per_node[told] * 1e3, 1, unit="ms")
    ratio = rows[sizes.index(told)]["to onnxslim"]
    if ratio is not None:
        tell.goal(f"to OnnxSlim's time at {told:,} nodes", float(ratio), 0.4)
    growth = per_node[max(sizes)] / per_node[min(sizes)]
    tell.goal(f"time per node at {max(sizes):,} against {min(sizes):,}", growth, 1.5)


def _tasks(path: Path, folder: Path, slim: Sequence[str]) -> dict[str, Callable[[], float]]:
    tasks: dict[str, Callable[[], float]] = {OURS: lambda: ours(path, folder, "--check", "off", "--lower", "fused")}
    return tasks | {name: lambda name=name: peer(name, path, folder) for name in slim}


def _of_size(nodes: int, found: Mapping[str, float]) -> report.Row:
    slim = found.get("onnxslim")
    return {
        "nodes": nodes,
        "ours (s)": found[OURS],
        "onnxslim (s)": slim,
        "per node (s)": found[OURS] / nodes,
        "to onnxslim": None if slim is None else found[OURS] / slim,
    }


# -- models ----------------------------------------------------------------------------------------------------------


def chosen(most: int) -> list[Path]:
    """At most so many models, evenly over all that there are."""
    found = sorted(CORPUS.rglob("*.onnx")) or sorted((ROOT / "golden_models").rglob("*.onnx"))
    count = min(most, len(found))
    return [found[number * len(found) // count] for number in range(count)]


def of_models(tell: report.Report, paths: Sequence[Path]) -> None:
    """With all checks, cold and warm."""
    rows = [_of_model(path) for path in paths]
    tell.table("apply --threads 1, with all checks", rows, "seconds of the processor; empty where it failed")
    cold, warm = _column(rows, "cold (s)"), _column(rows, "warm (s)")
    tell.goal("models that failed", len(rows) - len(warm), 0, unit="")
    if not warm:
        return
    tell.goal("cold, median", statistics.median(cold), 6, unit="s")
    tell.goal("cold, at most", max(cold), 30, unit="s")
    tell.goal("warm, median", statistics.median(warm), 3, unit="s")
    for name, times, limit in (("cold", "cold (s)", 4.0), ("warm", "warm (s)", 2.0)):
        for other in installed():
            ratios = [
                float(row[times] or 0) / float(row[f"{other} (s)"] or 0)
                for row in rows
                if row[times] is not None and row[f"{other} (s)"] is not None
            ]
            if ratios and other == "onnxslim":
                tell.goal(f"{name} to {other}'s time, median", statistics.median(ratios), limit)
            elif ratios:
                tell.console.print(f"  {name} to {other}'s time, median: {statistics.median(ratios):.3g} ×")


def _of_model(path: Path) -> report.Row:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tasks = {f"{name} (s)": lambda name=name: peer(name, path, folder) for name in installed()}
        cold = _attempted(lambda: ours(path, folder, "--threads", "1"))
        warm = _attempted(lambda: ours(path, folder, "--threads", "1")) if cold is not None else None
        others = {name: _attempted(task) for name, task in tasks.items()}
        return {"model": path.relative_to(path.parents[1]).as_posix(), "cold (s)": cold, "warm (s)": warm, **others}


def _attempted(task: Callable[[], float]) -> float | None:
    try:
        return task()
    except Failed:
        return None


def _column(rows: Sequence[report.Row], name: str) -> list[float]:
    return [float(row[name] or 0) for row in rows if row[name] is not None]


# -- command line ----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    parts = ("nodes", "models")
    options = report.parser(__doc__)
    options.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="instead of the shared models")
    options.add_argument("--only", nargs="+", choices=parts, default=parts, help="parts to run (default all)")
    options.add_argument("--huge", action="store_true", help=f"a transformer of {HUGE:,} nodes, too")
    given = options.parse_args(argv)
    tell = report.Report("pace")
    if "nodes" in given.only:
        sizes = (*(SIZES[:2] if given.quick else SIZES), *((HUGE,) if given.huge else ()))
        of_nodes(tell, sizes, given.rounds or 0, given.seed)
    if "models" in given.only:
        of_models(tell, given.models or chosen(3 if given.quick else MOST))
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
