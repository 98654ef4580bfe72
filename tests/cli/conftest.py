"""The command line in this process, and small models to give to it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from onnxrewrite.cli import main

GELU = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 8] x) => (float[batch, 8] y) <float half = {0.5}, float one = {1.0}, float root = {1.41421356}> {
  d = Div(x, root)
  e = Erf(d)
  a = Add(e, one)
  m = Mul(x, a)
  y = Mul(m, half)
}"""

RELU = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 8] x) => (float[batch, 8] y) { y = Relu(x) }"""

WRONG_RULE = '''"""A rule that is wrong: Relu is not Abs."""

from onnxrewrite import Rule, Stage, Var, op

x = Var("x")


def to_abs(m, build):
    """Relu(x) ⟶ Abs(x)."""
    return build.Abs(m[x])


WRONG = Rule(name="relu-is-abs", stage=Stage.CANONICALIZE, pattern=op.Relu(x), rewrite=to_abs)
'''


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


def write(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), str(path))
    return path


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
