"""Scale: the memory and the time that certainty costs on models of real sizes.

    python -m benchmarks.scale [--only NAME ...] [--json FILE]

Each model is made by ``language_models``, with random weights, and given to ``onnxrewrite apply`` as a user would: the
default mode, all checks, nothing remembered.  Anonymous memory (RssAnon of the largest process) and mapped files
(RssFile) are told apart; pages of mapped files are the system's to take back.

- ``encoder``: BERT base, 0.4 GB.  Goal: at most 1.5 times the file and 500 MB.
- ``gpt2``: GPT-2 small with past, 0.7 GB.  The same goal.
- ``decoder``: 155 million parameters with past, 0.6 GB.  The same goal.
- ``large``: 1.5 billion parameters in float32, 6 GB.  Goals: 5 GB and ten minutes.
- ``huge``: 7 billion parameters stored in float16, 14 GB.  Goals: 6 GB and fifteen minutes.
- ``fault``: the same as ``large`` and with a wrong rule, which takes the residual of an earlier layer in layer 23, and
  cannot be checked by itself.  Goals: it is found, named and undone, in 5 GB.
- ``huge-fault``: the same rule for the model of ``huge``, in 6 GB.
- ``int4``, ``mixed``: ``decoder`` given to ``onnxrewrite quantize --mode weights`` in place of ``apply``, with 4 bits
  for all products, and with those that pay.  Goal: as ``decoder``.
- ``genai``: ``decoder`` given to ``onnxrewrite genai``.  The same goal.
- ``large-int4``, ``large-genai``: the same of ``large``.  Goal: 1.2 times the file.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks import language_models, report


@dataclass(frozen=True)
class Case:
    """A model, and what it may take.

    Attributes:
        make: Writes it to a path.
        memory: Anonymous megabytes, given the megabytes of the model.
        seconds: On the wall; None for any.
        rule: A file with a wrong rule; empty for none.
        said: A pattern of what must be said of it.
        command: The command, and its arguments beside the model and the output.
    """

    make: Callable[[Path], None]
    memory: Callable[[float], float]
    seconds: float | None = None
    rule: str = ""
    said: str = "the whole model: .* segments"
    command: tuple[str, ...] = ("apply", "--threads", "1", "-v")


def _share(megabytes: float) -> float:
    return 1.5 * megabytes + 500


def _file(megabytes: float) -> float:
    return 1.2 * megabytes


WRONG = '''
from onnxrewrite.rules import *

add = AnyNode(op_types=("Add",))


def rewrite(m, b):
    """The residual of the layer before, in the middle of layer 23."""
    x, y = m.node(add).inputs
    m.require(x.name.startswith("/layer.22/Add") and y.name.startswith("/layer.23/MatMul"), "elsewhere")
    for _ in range(2):  # the residual before the products, and the one of the layer before
        x = x.producer().inputs[0]
    return b.Add(x, y)


RULES = [Rule("stale-residual", Stage.RAISE, add, rewrite)]
'''
NAMED = "stale-residual .*segment "


def _decoder(path: Path) -> None:
    language_models.decoder(path, layers=10, size=896, inner=2432, words=32000, counted=True)


def _large(path: Path) -> None:
    language_models.decoder(path, layers=27, size=2048, inner=5504)


def _large_decoder(path: Path) -> None:
    language_models.decoder(path, layers=27, size=2048, inner=5504, counted=True)


def _huge(path: Path) -> None:
    language_models.decoder(path, layers=32, size=4096, inner=11008, dtype=np.float16)


_BITS = ("quantize", "--threads", "1", "--no-gate", "--mode", "weights", "--weights")
_GENAI = ("genai", "--context", "256", "--eos", "2")


CASES: Mapping[str, Case] = {
    "encoder": Case(language_models.encoder, _share, said="the whole model: "),
    "gpt2": Case(language_models.gpt2, _share, said="the whole model: "),
    "decoder": Case(
        lambda p: language_models.decoder(p, layers=10, size=896, inner=2432, words=32000),
        _share,
        said="the whole model: ",
    ),
    "large": Case(_large, lambda _: 5000, 600),
    "fault": Case(_large, lambda _: 5000, rule=WRONG, said=NAMED),
    "huge": Case(_huge, lambda _: 6000, 900),
    "huge-fault": Case(_huge, lambda _: 6000, rule=WRONG, said=NAMED),
    "int4": Case(_decoder, _share, said="MatMul  *71", command=(*_BITS, "int4")),
    "mixed": Case(_decoder, _share, said="of the products' time", command=(*_BITS, "mixed", "--samples", "8")),
    "genai": Case(_decoder, _share, said="10 × GroupQueryAttention", command=_GENAI),
    "large-int4": Case(_large_decoder, _file, said="MatMul  *190", command=(*_BITS, "int4")),
    "large-genai": Case(_large_decoder, _file, said="27 × GroupQueryAttention", command=_GENAI),
}


@dataclass
class Usage:
    """The work of a command: seconds on the wall and of the processor, and megabytes at their peak."""

    wall: float
    cpu: float
    anonymous: float
    mapped: float
    code: int
    said: str


def used(command: Sequence[str], environment: Mapping[str, str]) -> Usage:
    """Run a command, and look at its processes every 20 ms."""
    start, before = time.perf_counter(), os.times()
    with tempfile.TemporaryFile("w+") as said:
        process = psutil.Popen(command, env={**os.environ, **environment}, stdout=said, stderr=subprocess.STDOUT)
        anonymous = mapped = 0.0
        while process.poll() is None:
            for each in _processes(process):
                with contextlib.suppress(psutil.Error, OSError):
                    status = Path(f"/proc/{each.pid}/status").read_text(encoding="ascii").splitlines()
                    found = {line.split(":")[0]: line.split()[1] for line in status if line.startswith("Rss")}
                    anonymous = max(anonymous, int(found.get("RssAnon", 0)) * 1024 / 1e6)
                    mapped = max(mapped, int(found.get("RssFile", 0)) * 1024 / 1e6)
            time.sleep(0.02)
        wall, after = time.perf_counter() - start, os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        said.seek(0)
        return Usage(wall, cpu, anonymous, mapped, process.returncode, said.read())


def _processes(process: psutil.Popen) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return []


def measured(tell: report.Report, names: Sequence[str]) -> None:
    """Make each model, apply, and tell what that took."""
    rows: list[report.Row] = []
    found: dict[str, tuple[float, Usage]] = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            CASES[name].make(path)
            size = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6
            first, *arguments = CASES[name].command
            command = [sys.executable, "-m", "onnxrewrite", first, str(path), "-o", str(Path(folder, "out.onnx"))]
            Path(folder, "wrong.py").write_text(CASES[name].rule, encoding="utf-8")
            extra = ["--rules", str(Path(folder, "wrong.py"))] if CASES[name].rule else []
            environment = {"XDG_CACHE_HOME": str(Path(folder, "cache")), "COLUMNS": "500"}
            usage = used([*command, *arguments, *extra], environment)
            if usage.code:
                print(usage.said)
            checked = next((line.strip() for line in usage.said.splitlines() if "whole model" in line), "")
            rows.append(
                {
                    "model": name,
                    "file (MB)": size,
                    "anonymous (MB)": usage.anonymous,
                    "mapped (MB)": usage.mapped,
                    "wall": report.duration(usage.wall),
                    "cpu": report.duration(usage.cpu),
                    "exit": usage.code,
                    "checked": checked.removeprefix("Checked").strip(),
                }
            )
            found[name] = size, usage
    tell.table("onnxrewrite, cold, one thread for what is timed", rows)
    for name, (size, usage) in found.items():
        tell.goal(f"{name}: anonymous memory", usage.anonymous, CASES[name].memory(size), unit="MB")
        tell.goal(f"{name}: exit code", usage.code, 0)
        tell.goal(f"{name}: not said: {CASES[name].said}", int(not re.search(CASES[name].said, usage.said)), 0)
        limit = CASES[name].seconds
        if limit is not None:
            tell.goal(f"{name}: time", usage.wall, limit, unit="s")


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="models (default all)")
    given = options.parse_args(argv)
    tell = report.Report("scale")
    measured(tell, given.only)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
