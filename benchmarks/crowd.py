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
import sys
import tempfile
from collections import Counter
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
            for number, code, said in outcome.result or [(outcome.task.first, "lost", outcome.failure)]:
                found[str(code)] += 1
                if code not in (0, 1, 2):
                    lost[said] += 1
                    print(f"{number}: exit status {code}: {said}", flush=True)
    rows: list[report.Row] = [{"exit status": code, "models": n} for code, n in sorted(found.items())]
    told = report.Report("crowd")
    told.table("Models by exit status", rows)
    told.goal("models that end with a bug", float(sum(lost.values())), 0, unit="")
    return told.finish(asked.json)


def _warm_up() -> None:
    """Import what each batch would import, before it is forked off; no session is opened."""
    from onnxrewrite import certify, cli, pipeline
    from onnxrewrite.measure import choice, race
    from onnxrewrite.rewrite import registry
    from onnxrewrite.verify import model, structure

    assert all((certify, cli, pipeline, choice, race, model, structure))
    registry.load()


def applied(batch: Batch) -> list[tuple[int, int | str, str]]:
    """Number, exit status and complaint of each model of a batch; in a process of its own."""
    from onnxrewrite.cli import main as command
    from onnxrewrite.measure import race

    race.SECONDS = _SHORT
    os.environ["XDG_CACHE_HOME"] = str(batch.cache)
    examples = _examples()
    made: list[tuple[int, int | str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder, "model.onnx"), Path(folder, "out.onnx")
        for number in range(batch.first, batch.first + BATCH):
            path.write_bytes(_model(random.Random(f"{batch.seed}:{number}"), number, examples))
            lines = [
                ["apply", str(path), "-o", str(output), "--threads", "1"],
                ["replay", f"{output}.certificate.json"],
            ]
            for line in lines:
                err = io.StringIO()
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
                    code = command(line)
                if code or line[0] == "apply":
                    made.append((number, code, err.getvalue().strip()))
                if code:
                    break
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
