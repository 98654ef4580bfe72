"""Thousands of models through ``apply`` in its default mode: the exit status of none is that of a bug.

    python -m benchmarks.crowd [--count N] [--seed N] [--quick] [--json FILE]

Random graphs, rules' examples and damaged models, each applied by the command line with all checks, measured, and its
certificate replayed; in batches that share a cache of measurements, for what is remembered takes other ways.  Each
figure is measured for a hundredth of the usual time: whether a rewrite pays is not what is asked here.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from benchmarks import report
from benchmarks.forks import forked
from benchmarks.hostile.damage import damaged
from benchmarks.random_graphs import random_model

COUNT, QUICK = 10_000, 200
BATCH = 25
CACHES = 6
"""So many caches are shared by all batches."""

_SHORT = 0.015
"""Seconds for a race of whole models."""

_DAMAGED = 4
"""One model in so many is damaged."""


@dataclass(frozen=True)
class Batch:
    """Models of consecutive numbers, and the folder of the cache that they share with others."""

    first: int
    seed: int
    cache: Path


def main(arguments: list[str] | None = None) -> int:
    """Apply to all; 1 where one of them ends with what a bug ends with."""
    parser = report.parser(__doc__)
    parser.add_argument("--count", type=int, help="models")
    asked = parser.parse_args(arguments)
    count = asked.count or (QUICK if asked.quick else COUNT)
    found, lost = Counter[str](), Counter[str]()
    _warm_up()
    with tempfile.TemporaryDirectory() as folder:
        caches = [Path(folder, f"cache{i}") for i in range(CACHES)]
        batches = [Batch(n, asked.seed, caches[n // BATCH % CACHES]) for n in range(0, count, BATCH)]
        for outcome in forked(batches, applied, limit=1800):
            for number, code, said in outcome.result or applied_apart(outcome.task):
                found[str(code)] += 1
                if code not in (0, 1, 2):
                    lost[said] += 1
                if code not in (0, 2):  # 1: a rule that is wrong there, perhaps, though nothing was written
                    print(f"{number}: exit status {code}: {said}", flush=True)
    rows: list[report.Row] = [{"exit status": code, "models": n} for code, n in sorted(found.items())]
    told = report.Report("crowd")
    told.table("Models by exit status", rows)
    told.goal("models that end with a bug", float(sum(lost.values())), 0, unit="")
    return told.finish(asked.json)


def _warm_up() -> None:
    """Import what each batch would import, before it is forked off; no session is opened."""
    from onnxrewrite import cli
    from onnxrewrite.certificate import writing
    from onnxrewrite.checks import model, structure
    from onnxrewrite.compiler import run
    from onnxrewrite.measure import ab_timing, choice
    from onnxrewrite.rewrite import registry

    assert all((writing, cli, run, choice, ab_timing, model, structure))
    registry.load()


def applied(batch: Batch) -> list[tuple[int, int, str]]:
    """Number, exit status and complaint of each model of a batch; in a process of its own."""
    from onnxrewrite.cli import main as command
    from onnxrewrite.measure import ab_timing

    ab_timing.SECONDS = _SHORT
    os.environ["XDG_CACHE_HOME"] = str(batch.cache)

    def run(*line: str) -> tuple[int, str]:
        err = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            return command(list(line)), err.getvalue().strip()

    return _each(batch, run)


def applied_apart(batch: Batch) -> list[tuple[int, int, str]]:
    """The same of a batch on which native code died: by the command itself, whose supervisor outlives that."""
    environment = os.environ | {"XDG_CACHE_HOME": str(batch.cache)}

    def run(*line: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "onnxrewrite", *line], env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr.strip()

    return _each(batch, run)


def _each(batch: Batch, run: Callable[..., tuple[int, str]]) -> list[tuple[int, int, str]]:
    """Apply and replay each model of a batch by ``run``, which gives exit status and complaint of a line."""
    examples = _examples()
    made: list[tuple[int, int, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder, "model.onnx"), Path(folder, "out.onnx")
        for number in range(batch.first, batch.first + BATCH):
            path.write_bytes(_model(random.Random(f"{batch.seed}:{number}"), number, examples))
            code, said = run("apply", str(path), "-o", str(output), "--threads", "1")
            if not code:
                code, said = run("replay", f"{output}.certificate.json")
            made.append((number, code, said))
            for each in Path(folder).glob("out*"):
                each.unlink()
    return made


def _model(dice: random.Random, number: int, examples: list[bytes]) -> bytes:
    if number % _DAMAGED == 0:
        return damaged(dice, examples)
    if number % _DAMAGED == 1:
        return dice.choice(examples)
    return bytes(random_model(dice, dice.randint(1, 30)).SerializeToString())


def _examples() -> list[bytes]:
    """The graphs that the rules' examples show."""
    from onnxrewrite.ir import text
    from onnxrewrite.rewrite import registry

    rules = registry.load(plugins=False).select()
    graphs = [(e.graph, e.opset) for r in rules for e in r.examples]
    return [bytes(ir.to_proto(text.parse(g, opset=o)).SerializeToString()) for g, o in graphs]


if __name__ == "__main__":
    sys.exit(main())
