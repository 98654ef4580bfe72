"""The command line in this process, and small models to give to it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_models import GELU, RELU, WRONG_RULE, write

from onnxrewrite.cli import main


@dataclass
class Done:
    """What a run of the command line left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Done]]:
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: object) -> Done:
        capfd.readouterr()
        code = main([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return Done(code, out, err)

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def refused(cli: Callable[..., Done]) -> Callable[..., str]:
    """Runs what must fail with status 2 and one line on stderr; the line."""

    def run(*arguments: object, code: int = 2) -> str:
        done = cli(*arguments)
        assert done.code == code, done
        assert done.out == ""
        assert done.err.startswith("onnxrewrite: ")
        assert done.err.count("\n") == 1, done.err
        return done.err

    return run


@pytest.fixture
def gelu(tmp_path: Path) -> Path:
    return write(tmp_path / "gelu.onnx", GELU)


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    return write(tmp_path / "relu.onnx", RELU)


@pytest.fixture
def wrong_rule(tmp_path: Path) -> Path:
    path = tmp_path / "wrong_rule.py"
    path.write_text(WRONG_RULE, encoding="utf-8")
    return path


@pytest.fixture
def model_of(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a model in ONNX text syntax."""
    return lambda text: write(tmp_path / "model.onnx", text)
