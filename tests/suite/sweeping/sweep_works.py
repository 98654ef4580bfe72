"""Work for sweeps in tests: importable, for it is done in other processes."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from onnxrewrite.errors import CheckError, UsageError
from onnxrewrite.suite.sweeping.tasks import Made, Work

RELU = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 8] x) => (float[n, 8] y) { y = Relu(x) }"""


def write(path: Path, text: str = RELU) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(text), str(path))
    return path


@dataclass(frozen=True, kw_only=True)
class Copy(Work):
    """Copies a model, or does what the model's name says; ``log`` gets a line each time."""

    log: Path
    setting: int = 0

    def state(self) -> Any:
        return ["copy", self.setting]

    def run(self, model: Path, target: Path, *, fresh: bool = False) -> Made:
        with self.log.open("a") as file:
            file.write(f"{model.stem} {os.environ.get('OMP_NUM_THREADS')}\n")
        act(model.stem, target)
        shutil.copy(model, target)
        return Made((target,), {"before": 1, "after": 1})


def act(name: str, target: Path) -> None:
    if name == "crash":
        target.with_name(f".{target.name}.1-0.onnxrewrite-tmp").write_text("half")
        os._exit(3)
    if name == "abort":
        os.abort()
    if name == "slow":
        time.sleep(600)
    if name == "flaky" and not target.with_name("tried").exists():
        target.with_name("tried").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "wrong":
        raise CheckError("the result is not equal")
    if name == "odd":
        raise UsageError("--opset 3: too old for this one")
    if name == "bug":
        raise ZeroDivisionError("division by zero")


class Measuring(Copy):
    @property
    def measures(self) -> bool:
        return True


class Exclusive(Measuring):
    """Notes when it begins and ends."""

    def run(self, model: Path, target: Path, *, fresh: bool = False) -> Made:
        times = self.log.with_name("log.times")
        with times.open("a") as file:
            file.write("begin\n")
        time.sleep(0.3)
        made = super().run(model, target, fresh=fresh)
        with times.open("a") as file:
            file.write("end\n")
        return made
