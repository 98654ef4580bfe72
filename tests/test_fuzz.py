"""No input makes the tool crash, hang or lie: damaged files through the command line, random valid graphs through apply.

``benchmarks.hostile.damage`` and ``benchmarks.random_graphs`` make the examples, each from a number, so that one is repeated by its
number.  ONNX Runtime itself aborts the process on a few models that are not valid (a Conv with a scalar for its weights);
no Python program can catch that, and such an example would be seen as a crash of this suite.
"""

from __future__ import annotations

import contextlib
import io
import random
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from corpus import GOLDEN_FILES
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from traps.helpers import assert_same_interface, run

import onnxrewrite as rw
from benchmarks.hostile.damage import damaged
from benchmarks.random_graphs import random_model
from onnxrewrite.cli import main
from onnxrewrite.inputs.sample import Sampler
from onnxrewrite.ir import text
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Rewrites

SECONDS = 180
"""Beyond this, something hangs: a golden model that a mutation has doubled takes a tenth of it."""
LEVELS = ("full", "full", "fast", "off")
ROUNDING = {onnx.TensorProto.FLOAT: 1e-3, onnx.TensorProto.DOUBLE: 1e-9, onnx.TensorProto.FLOAT16: 5e-2}
"""Of the largest element, after dozens of operators: this is here to see what is wrong, not what is rounded."""

numbers = st.integers(0, 2**32 - 1)


def examples(count: int) -> settings:
    return settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None)


class TooLong(BaseException):
    """No Exception, for the tool may catch those."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Nothing takes minutes; the command line's own handlers are taken away again."""

    def stop(*_: object) -> None:
        raise TooLong

    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


@cache
def small_models() -> list[bytes]:
    """What the rules' examples show."""
    rules = registry.load(plugins=False).select()
    graphs = [(e.graph, e.opset) for r in rules for e in r.examples if isinstance(e, Rewrites)]
    return [ir.to_proto(text.parse(g, opset=o)).SerializeToString() for g, o in graphs]


@cache
def golden_models() -> list[bytes]:
    return [path.read_bytes() for path in GOLDEN_FILES]


def assert_survives(number: int, models: list[bytes]) -> None:
    """Apply a damaged model by the command line: it is done or refused in one line, and what is written is right."""
    dice = random.Random(number)
    data, level = damaged(dice, models), dice.choice(LEVELS)
    with tempfile.TemporaryDirectory() as folder, limited():
        path, output = Path(folder, "model.onnx"), Path(folder, "out.onnx")
        path.write_bytes(data)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["apply", str(path), "-o", str(output), "--check", level, "--quiet"])
        left = {p.name for p in Path(folder).iterdir()}
        assert code in (0, 1, 2), err.getvalue()
        if code:
            assert err.getvalue().startswith("onnxrewrite: ")
            assert err.getvalue().count("\n") == 1, err.getvalue()
            assert left == {"model.onnx"}
            return
        assert err.getvalue() == ""
        assert left == {"model.onnx", "out.onnx", "out.onnx.certificate.json"}
        compared = rw.check(path, output, seed=number % 1000 + 1)
        assert compared.ok or rw.check(path, path).skipped, compared.failures  # or the original runs at no size


def assert_kept(number: int, moves: int) -> None:
    """Apply all rules to a random graph: no rewrite has to be undone, and the outputs and the interface stay."""
    dice = random.Random(number)
    model = random_model(dice, dice.randint(1, moves))
    onnx.checker.check_model(model, full_check=True)
    sampler = Sampler(model, seed=number % 1000)
    feeds = [sampler.feeds({"n": n, "m": m}) for n, m in ((2, 3), (1, 1), (3, 4))]
    try:
        expected = run(model, feeds)
    except Exception:  # ONNX Runtime fails at a branch that reads an input of the graph in some places
        reject()
    with limited():
        result = rw.apply(model)
        made = result.to_proto()
        assert result.checks.undone == {}
        assert_same_interface(model, made)
        tolerance = ROUNDING[model.graph.input[-1].type.tensor_type.elem_type]
        for before, after in zip(expected, run(made, feeds), strict=True):
            for old, new in zip(before, after, strict=True):
                assert (old.dtype, old.shape) == (new.dtype, new.shape)
                old, new = old.astype(np.float64), new.astype(np.float64)
                largest = np.abs(old[np.isfinite(old)]).max(initial=1)
                np.testing.assert_allclose(new, old, rtol=0, atol=tolerance * largest)


@pytest.mark.slow
@given(numbers)
@examples(60)
def test_damaged_models(number: int) -> None:
    assert_survives(number, small_models())


@given(numbers)
@examples(12)
def test_random_graphs(number: int) -> None:
    assert_kept(number, 20)


@pytest.mark.slow
@given(numbers)
@examples(1000)
def test_many_damaged_models(number: int) -> None:
    assert_survives(number, small_models())


@pytest.mark.slow
@given(numbers)
@examples(30)
def test_damaged_golden_models(number: int) -> None:
    assert_survives(number, golden_models())


@pytest.mark.slow
@given(numbers)
@examples(120)
def test_many_random_graphs(number: int) -> None:
    assert_kept(number, 40)
