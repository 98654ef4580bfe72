"""A thousand small models through ``sweep`` on a cluster, in spite of all that happens to a long run.

    python -m benchmarks.fleet [--count N] [--seed N] [--quick] [--json FILE]

Random graphs, one in fifty of them a broken file, on two workers of dask.distributed.  The command is killed after a
quarter and after three quarters of the models, a worker after half of them; then the same command goes on.  Asked is
whether every model has its one outcome, whether anything that was done was done again or lost, whether there is a page,
and what the sweep itself takes: seconds of the processor of all processes, those of the rewriting taken off.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks import report
from benchmarks.random_graphs import random_model

COUNT, QUICK = 1000, 60
BROKEN = 50
"""One model in so many is a broken file."""

WORKERS = 2

_PAUSE = 0.1
"""Seconds between two looks at the processes and at the record."""

_HOURS = 2
"""After which something hangs."""


def main(arguments: list[str] | None = None) -> int:
    """Run the fleet; 1 where a goal is missed."""
    parser = report.parser(__doc__)
    parser.add_argument("--count", type=int, help="models")
    asked = parser.parse_args(arguments)
    count = asked.count or (QUICK if asked.quick else COUNT)
    with tempfile.TemporaryDirectory() as folder:
        told = fleet(Path(folder), count, asked.seed)
    return told.finish(asked.json)


def fleet(folder: Path, count: int, seed: int) -> report.Report:
    """Models in ``folder``, a cluster, and what becomes of both."""
    broken = make_zoo(folder / "zoo", count, seed)
    events: list[report.Row] = []
    early: dict[str, float] = {}
    with Cluster(folder) as cluster:

        def reach(share: float, victim: str) -> None:
            """Wait until so many models are finished, and note what is killed then."""
            _until(lambda: len(finished(folder)) >= share * count or command.poll() is not None)
            early.update(finished(folder))
            events.append({"killed": victim, "models done by then": len(finished(folder))})

        command = cluster.sweep()
        reach(0.25, "the command")
        _kill(command)
        command = cluster.sweep()
        reach(0.5, "a worker")
        _kill(cluster.workers.pop())
        reach(0.75, "the command again")
        _kill(command)
        command = cluster.sweep()
        out, err = command.communicate(timeout=_HOURS * 3600)

    return _told(folder, count, broken, events, early, cluster, Ended(command.returncode, out, err))


@dataclass(frozen=True)
class Ended:
    """The last command: its exit status, and what it printed."""

    code: int
    out: str
    err: str


def make_zoo(folder: Path, count: int, seed: int) -> set[str]:
    """Write ``count`` files in ten folders; the names of those that are no models."""
    broken = set()
    for number in range(count):
        path = folder / f"{number % 10}" / f"m{number:05}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        dice = random.Random(f"{seed}:{number}")
        data = bytes(random_model(dice, dice.randint(1, 8)).SerializeToString())
        if number % BROKEN == BROKEN - 1:
            broken.add(path.relative_to(folder).as_posix())
            data = (data[: len(data) // 2], b"", b"no model\n" * 40, data[::-1])[number // BROKEN % 4]
        path.write_bytes(data)
    return broken


@dataclass
class Cluster:
    """A scheduler, workers, and a thread that adds up what all processes take.

    Attributes:
        folder: The folder of the models and of the output.
        workers: The processes of the workers.
        seconds: Seconds of the processor by process; of one that was killed what it had at the last look.
    """

    folder: Path
    workers: list[subprocess.Popen[str]] = field(default_factory=list)
    seconds: dict[tuple[int, float], float] = field(default_factory=dict)

    def __enter__(self) -> Cluster:
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        file = self.folder / "scheduler.json"
        self._scheduler = self._started("distributed.cli.dask_scheduler", "--port", "0", "--scheduler-file", str(file))
        _until(file.exists)
        self._address = json.loads(file.read_text())["address"].removeprefix("tcp://")
        for _ in range(WORKERS):
            words = ("--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", "--memory-limit", "0")
            self.workers.append(self._started("distributed.cli.dask_worker", *words))
        return self

    def __exit__(self, *_: object) -> None:
        self._count()
        self._over.set()
        self._watch.join()
        for process in (*self.workers, self._scheduler):
            _kill(process)

    def _started(self, module: str, *words: str) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", module, "--no-dashboard", *words]
        return subprocess.Popen(
            line, cwd=self.folder, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment()
        )

    def sweep(self) -> subprocess.Popen[str]:
        """The command, begun."""
        line = [
            sys.executable,
            "-m",
            "onnxrewrite",
            "sweep",
            "zoo",
            "-o",
            "out",
            "--executor",
            f"dask://{self._address}",
        ]
        return subprocess.Popen(
            line, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment()
        )

    def total(self) -> float:
        """Seconds of the processor of all processes but this."""
        return sum(self.seconds.values())

    def _look(self) -> None:
        while not self._over.wait(_PAUSE):
            self._count()

    def _count(self) -> None:
        for process in psutil.Process().children(recursive=True):
            try:
                self.seconds[process.pid, process.create_time()] = _cpu(process)
            except psutil.Error:  # it is gone
                continue


def _environment() -> dict[str, str]:
    """Threads of numerical libraries as a sweep sets them, which the workers do not know."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ONNXREWRITE_LOWER": "fused"}


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and all that it started, without a word."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        children = []
    for each in (psutil.Process(p.pid) for p in children):
        each.kill()
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _HOURS * 3600
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("the fleet does not go on")
        time.sleep(_PAUSE)


def records(folder: Path) -> list[dict[str, Any]]:
    """The lines of the record that are whole."""
    try:
        lines = (folder / "out" / "sweep.jsonl").read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:  # it is being written
            continue
    return found


def finished(folder: Path) -> dict[str, float]:
    """The moments at which models were finished, by the path of the output."""
    return {row["output"]: row["finished"] for row in records(folder) if row["status"] != "waiting"}


def _told(
    folder: Path,
    count: int,
    broken: set[str],
    events: list[report.Row],
    early: Mapping[str, float],
    cluster: Cluster,
    last: Ended,
) -> report.Report:
    """The goals."""
    rows = {row["output"]: row for row in records(folder)}
    statuses = Counter(row["status"] for row in rows.values())
    written = {p.relative_to(folder / "out").as_posix() for p in (folder / "out").rglob("*") if p.is_file()}
    owned = {name for row in rows.values() for name in row["files"]}
    right = [n for n, row in rows.items() if row["status"] == ("unusable" if n in broken else "done")]
    page = (folder / "out" / "sweep.html").read_text(encoding="utf-8")
    rewriting = sum(row["cpu"] for row in rows.values())
    told = report.Report("fleet")
    told.table("What was killed, and when", events)
    told.table("Models by outcome", [{"outcome": s, "models": n} for s, n in sorted(statuses.items())])
    seconds: list[report.Row] = [
        {"of the processor": "all processes", "time (s)": cluster.total()},
        {"of the processor": "the rewriting in them", "time (s)": rewriting},
    ]
    told.table("Time", seconds)
    print(f"the last command: exit status {last.code}: {last.out.strip().splitlines()[-1:]} {last.err.strip()[-300:]}")
    redone = [name for name, moment in early.items() if rows[name]["finished"] != moment]
    lost = (owned - written) | {n for n in rows if n not in broken and n not in written}
    extra = written - owned - {"sweep.jsonl", "sweep.html"}
    unseen = [row["model"] for row in rows.values() if row["model"] not in page]
    told.goal("models without their one outcome", float(count - len(right)), 0, unit="")
    told.goal("models that were finished before a kill and done again", float(len(redone)), 0, unit="")
    told.goal("files that are lost, or left over", float(len(lost) + len(extra)), 0, unit="")
    told.goal("models that the page lacks", float(len(unseen)), 0, unit="")
    told.goal("exit status other than that of unusable models", float(last.code != (2 if broken else 0)), 0, unit="")
    told.goal("overhead for a model, of the processor", (cluster.total() - rewriting) / count, 0.3, unit=" s")
    return told


if __name__ == "__main__":
    sys.exit(main())
