"""Scaling: what a node costs in a graph of 1,000 and of 100,000, what a rewrite costs, and how much memory is held.

    python -m benchmarks.scaling [--quick] [--sizes N ...] [--only PART ...] [--json FILE]

- ``apply``: a file to a file, ``apply(path, check="off")`` and ``save``, with the built-in rules.  Goal: the time per
  node of the largest graph is at most 1.5 times that of the smallest.
- ``sites``: a graph of which every tenth node begins a site of one of two simple rules, against the same graph with
  every site spoilt.  The difference, divided by the number of sites, is what a rewrite costs.  Goals: the same at
  every size, to a factor of 1.5, and under a millisecond.
- ``memory``: what a driver holds beside the model as loaded, at its peak: facts, indexes, worklist.  Goal: 2 KB a node.
- ``external``: 3 GB of weights in a sparse file beside the model, rewritten and saved in a process of its own.  Goal:
  never more than 300 MB of anonymous memory (RssAnon), which leaves out pages of mapped files.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx_ir as ir

from benchmarks import graphs, report, rules
from onnxrewrite import apply, io
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rules import Builder, Match, Rule, Stage, Value, Var, op

TARGET = "onnxruntime-cpu"
GROWTH = 1.5
PER_SITE = 10
"""Nodes for one site."""

HELD = 100
"""Rules of the driver whose memory is measured."""


# -- apply -----------------------------------------------------------------------------------------------------------


def whole_runs(tell: report.Report, sizes: Sequence[int], rounds: int, seed: int, cap: float) -> None:
    """From file to file, at every size."""
    rows: list[dict[str, report.Cell]] = []
    growths: dict[str, tuple[float, bool]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, make in graphs.KINDS.items():
            runs = {str(size): _WholeRun(make(size, seed), Path(folder, f"{kind}-{size}.onnx"), cap) for size in sizes}
            medians = report.interleaved({name: run.seconds for name, run in runs.items()}, rounds, {str(min(sizes))})
            per_node = {name: medians[name] / run.nodes for name, run in runs.items()}
            rows += [
                {
                    "graph": kind,
                    "nodes": run.nodes,
                    "rewrites": None if run.stopped else run.rewrites,
                    "nodes after": None if run.stopped else run.left,
                    "total": f"{'> ' if run.stopped else ''}{report.duration(medians[name])}",
                    "rewriting (s)": run.parts.get("rewrite"),
                    "checking (s)": run.parts.get("check structure"),
                    "saving (s)": run.parts.get("save"),
                    "per node (s)": per_node[name],
                }
                for name, run in runs.items()
            ]
            growth = per_node[str(max(sizes))] / per_node[str(min(sizes))]
            growths[kind] = growth, runs[str(max(sizes))].stopped
    tell.table(
        'apply(path, check="off") and save',
        rows,
        "the total is CPU time; parts are those of the last round, on the wall clock",
    )
    for kind, (growth, stopped) in growths.items():
        what = f"{kind}: time per node at {max(sizes):,} against {min(sizes):,}"
        tell.goal(what, growth, GROWTH, stopped=stopped)


class _WholeRun:
    """One model on disk, applied and saved again and again."""

    def __init__(self, model: ir.Model, path: Path, cap: float):
        self.path = path
        self.cap = cap
        self.stopped = False
        self.nodes = len(model.graph)
        self.rewrites = self.left = 0
        self.parts: dict[str, float] = {}
        ir.save(model, path)

    def seconds(self) -> float:
        """Seconds for everything: load, facts, all stages, check of the structure, save."""
        if self.stopped:
            return self.cap
        timing = report.timed(self._run, self.cap)
        self.stopped = timing.at_least
        return timing.seconds

    def _run(self) -> None:
        result = apply(self.path, check="off")
        saving = time.perf_counter()
        result.save(self.path.with_suffix(".out.onnx"))
        self.parts = {**result.seconds, "save": time.perf_counter() - saving}
        self.rewrites, self.left = len(result.trace.applied), len(result.model.graph)


# -- sites -----------------------------------------------------------------------------------------------------------


def rewrites(tell: report.Report, sizes: Sequence[int], rounds: int, seed: int) -> None:
    """Measure the cost of a rewrite, at every size."""
    rows: list[dict[str, report.Cell]] = []
    tasks: dict[str, Callable[[], float]] = {}
    runs: dict[int, tuple[_Run, _Run]] = {}
    for size in sizes:
        count = size // PER_SITE
        runs[size] = (_Run(graphs.sites(count, size, seed)), _Run(graphs.sites(count, size, seed, spoilt=True)))
        for name, run in zip(("sites", "spoilt"), runs[size], strict=True):
            tasks[f"{name} {size}"] = run.seconds
    medians = report.interleaved(tasks, rounds, {name for name in tasks if name.endswith(f" {min(sizes)}")})
    costs: dict[int, float] = {}
    for size, (run, inert) in runs.items():
        if inert.applied or not run.applied:
            raise RuntimeError(f"{run.applied} sites and {inert.applied} spoilt ones were rewritten")
        total, idle = medians[f"sites {size}"], medians[f"spoilt {size}"]
        costs[size] = (total - idle) / run.applied
        rows.append(
            {
                "nodes": size,
                "rewrites": run.applied,
                "with sites (s)": total,
                "spoilt (s)": idle,
                "per rewrite (s)": costs[size],
                "all in all, per rewrite (s)": total / run.applied,
            }
        )
    tell.table("run() of two simple rules, a site for every ten nodes", rows)
    smallest, largest = min(sizes), max(sizes)
    lost = min(costs.values()) <= 0  # in the noise: the machine is too busy
    growth = costs[largest] / costs[smallest]
    tell.goal(f"cost of a rewrite at {largest:,} nodes against {smallest:,}", growth, GROWTH, stopped=lost)
    tell.goal(f"cost of a rewrite at {largest:,} nodes", costs[largest] * 1e3, 1, unit="ms", stopped=lost)


class _Run:
    """One model, rewritten again and again from a copy."""

    def __init__(self, model: ir.Model):
        self.model = model
        self.applied = 0

    def seconds(self) -> float:
        """Seconds of ``run()``; facts are there already."""
        driver = Driver(io.load(self.model), _RULES, target(TARGET))
        seconds = report.timed(driver.run).seconds
        self.applied = len(driver.trace.applied)
        return seconds


_x = Var("x")


def _log_softmax(m: Match, build: Builder) -> Value:
    """log(softmax(x)) ⟶ LogSoftmax(x)."""
    return build.LogSoftmax(m[_x], axis=1)


def _softsign(m: Match, build: Builder) -> Value:
    """x/(1 + |x|) ⟶ Softsign(x)."""
    return build.Softsign(m[_x])


_RULES = (
    Rule("log-softmax", Stage.CANONICALIZE, op.Log(op.Softmax(_x, axis=1)), _log_softmax),
    Rule("softsign", Stage.CANONICALIZE, _x / (1 + op.Abs(_x)), _softsign),
)


# -- memory ----------------------------------------------------------------------------------------------------------


def held(tell: report.Report, nodes: int, seed: int) -> None:
    """Measure the memory that facts and indexes take."""
    rows: list[dict[str, report.Cell]] = []
    chosen = rules.synthetic_rules(HELD, seed)
    for kind, make in graphs.KINDS.items():
        Driver(io.load(make(100, seed)), chosen, target(TARGET)).run()  # caches of schemas and kernels fill once
        model = io.load(make(nodes, seed))
        before, _ = _traced()
        driver = Driver(model, chosen, target(TARGET))
        built, _ = _traced()
        driver.run()
        size = len(model.graph)
        after, peak = _traced()
        tracemalloc.stop()
        rows.append(
            {
                "graph": kind,
                "nodes": size,
                "after construction, bytes a node": (built - before) / size,
                "after run()": (after - before) / size,
                "at most, in run()": (peak - before) / size,
            }
        )
        del driver
    tell.table("Memory held by a driver beside the loaded model (tracemalloc)", rows)
    for row in rows:
        value = row["at most, in run()"]
        assert isinstance(value, float)
        tell.goal(f"{row['graph']}: facts and indexes of a node", value / 1000, 2, unit="KB")


def _traced() -> tuple[int, int]:
    """Bytes that Python and numpy hold now, and the most that they held since the last call."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    _, peak = tracemalloc.get_traced_memory()
    gc.collect()
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    return now, peak


def external(tell: report.Report, megabytes: int) -> None:
    """A model with external data, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = graphs.large(folder, megabytes)
        command = [sys.executable, "-c", "from benchmarks.scaling import rewrite_external; rewrite_external()", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the process that rewrites a large model failed:\n{done.stderr}")
        row: dict[str, report.Cell] = json.loads(done.stdout)
    tell.table(f"{megabytes:,} MB of external data: largest RssAnon, sampled every few ms", [row])
    most = max(v for name, v in row.items() if name.endswith("(MB)") and isinstance(v, float))
    tell.goal(f"anonymous memory for {megabytes:,} MB of weights", most, 300, unit="MB")


def rewrite_external() -> None:
    """The work of the process of ``external``: print a row of JSON."""
    path = Path(sys.argv[1])
    with _Watch() as watch:
        start = watch.most()
        result = apply(path, check="off")
        applied = watch.most()
        result.save(path.with_suffix(".out.onnx"))
        saved = watch.most()
    row = {
        "rewrites": len(result.trace.applied),
        "after imports (MB)": start,
        "while applying (MB)": applied,
        "while saving (MB)": saved,
    }
    print(json.dumps(row))


class _Watch:
    """Samples the anonymous memory of this process, which the system has no high-water mark of."""

    def __init__(self) -> None:
        self._most = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def most(self) -> float:
        """The largest sample since the last call, in MB."""
        most, self._most = max(self._most, _anonymous()), 0.0
        return most

    def _sample(self) -> None:
        while not self._done.wait(0.003):
            self._most = max(self._most, _anonymous())


def _anonymous() -> float:
    """RssAnon of this process, in MB."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(each for each in status if each.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024 / 1e6


# -- command line ----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    parts = ("apply", "sites", "memory", "external")
    options = report.parser(__doc__)
    options.add_argument(
        "--sizes", type=int, nargs="+", help="nodes (default 1,000 10,000 100,000; --quick: without the last)"
    )
    options.add_argument("--only", nargs="+", choices=parts, default=parts, help="parts to run (default all)")
    options.add_argument("--megabytes", type=int, help="of external data (default 3,072; 64 with --quick)")
    options.add_argument("--cap", type=float, default=600, help="seconds that one apply may take (default 600)")
    given = options.parse_args(argv)
    sizes = given.sizes or ([1_000, 10_000] if given.quick else [1_000, 10_000, 100_000])
    rounds = given.rounds if given.rounds is not None else (1 if given.quick else 3)
    tell = report.Report("scaling")
    if "apply" in given.only:
        whole_runs(tell, sizes, rounds, given.seed, given.cap)
    if "sites" in given.only:
        rewrites(tell, sizes, rounds, given.seed)
    if "memory" in given.only:
        held(tell, min(10_000, max(sizes)), given.seed)
    if "external" in given.only:
        external(tell, given.megabytes or (64 if given.quick else 3_072))
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
