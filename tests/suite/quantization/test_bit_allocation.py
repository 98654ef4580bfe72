"""``--weights mixed``: what is chosen under a limit, and what comes of it."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from onnxrewrite.errors import UsageError
from onnxrewrite.suite.quantization.bit_allocation import Option, allocate
from onnxrewrite.suite.quantization.quantize_settings import BLOCKS, QuantizeSettings
from onnxrewrite.suite.quantization.quantizer import quantize
from onnxrewrite.suite.quantization.weight_format import EXACT, FAST, WeightFormat, candidates

FORM = WeightFormat(4, 32)
options = st.lists(
    st.lists(st.builds(lambda a, b: Option(FORM, a, b), st.floats(0, 1), st.floats(0.01, 1)), max_size=3),
    min_size=1,
    max_size=4,
).map(lambda rest: {str(i): [Option(None, 0.0, 1.0), *each] for i, each in enumerate(rest)})


@given(options, st.floats(0, 2))
@settings(deadline=None)
def test_the_fastest_that_keeps_the_limit_is_found(given: dict[str, list[Option]], most: float) -> None:
    found = allocate(given, most)
    best = min(
        sum(o.seconds for o in way) for way in itertools.product(*given.values()) if sum(o.loss for o in way) <= most
    )
    assert found.keys() == given.keys()
    assert sum(o.loss for o in found.values()) <= most * (1 + 1e-5) + 1e-9  # the solver's own tolerance
    assert sum(o.seconds for o in found.values()) <= best * (1 + 1e-5)


def test_forms_fit_or_not() -> None:
    assert {f.block for f in candidates()} == set(BLOCKS)
    assert {f.level for f in candidates()} == {EXACT, FAST}
    assert {f.block for f in candidates() if f.fits("MatMul", (64, 1000))} == {16, 32, 64}
    assert not WeightFormat(4, 16, algorithm="k-quant", symmetric=False).fits("MatMul", (48, 8))  # three blocks
    assert WeightFormat(4, 16).fits("Gather", (1000, 16))
    assert not WeightFormat(8, 16).fits("Gather", (1000, 16))


def scores(width: int = 256, seed: int = 0) -> onnx.ModelProto:
    """Tokens to logits, [batch, 4] to [batch, 4, 64]: a table, and three products that are large enough to be faster in
    few bits, the last of them 100 times larger in its effect."""
    rng = np.random.default_rng(seed)
    weights = {
        "t": rng.normal(size=(64, width)),
        "a": rng.normal(size=(width, 4 * width)) / 16,
        "b": rng.normal(size=(4 * width, width)) / 32,
        "c": rng.normal(size=(width, 64)) / 4,
    }
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (int64[batch,4] ids) => (float[batch,4,64] logits) {
            x = Gather(t, ids)  h = MatMul(x, a)  r = Relu(h)  y = MatMul(r, b)  s = Add(x, y)  logits = MatMul(s, c)
        }"""
    )
    model.graph.initializer.extend(numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items())
    return model


def data(count: int = 8) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"ids": rng.integers(0, 64, (2, 4))} for _ in range(count)]


def mixed(**given: object) -> QuantizeSettings:
    return QuantizeSettings(mode="weights", weights="mixed", rows=1, **given)


@pytest.mark.slow
def test_the_whole_keeps_its_limits() -> None:
    found = quantize(scores(), mixed(max_divergence=0.003), data=data(), gate=None, threads=1)
    assert isinstance(found.model, onnx.ModelProto)
    judged = quantize(scores(), mixed(max_divergence=0.003), data=data(), threads=1).quality
    assert judged is not None
    assert judged.worst.divergence is not None
    assert 0 < judged.worst.divergence <= 0.003
    assert judged.worst.top1 is not None
    assert judged.worst.top1 >= 0.98
    quantized = [n.op_type for n in found.model.graph.node if n.op_type in ("MatMulNBits", "GatherBlockQuantized")]
    assert len(quantized) == len(found.forms) == len(found.nodes) > 0
    assert any("of the products' time" in note for note in found.notes)


@pytest.mark.slow
def test_where_nothing_may_be_lost_all_stays_in_float() -> None:
    found = quantize(scores(), mixed(max_divergence=0), data=data(2), threads=1)
    assert not found.nodes
    assert {left.operator for left in found.left} == {"MatMul", "Gather"}
    assert isinstance(found.model, onnx.ModelProto)
    assert "MatMulNBits" not in {n.op_type for n in found.model.graph.node}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"mode": "static"}, "weights mixed: bits are chosen for weights alone"),
        ({"mode": "weights", "max_divergence": math.nan}, "max_divergence must be 0 at least"),
        ({"mode": "weights", "min_agreement": 2}, "min_agreement must be 0 to 1"),
        ({"mode": "weights", "rows": 0}, "rows must be 1 at least"),
    ],
)
def test_bad_settings(given: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        QuantizeSettings(weights="mixed", **given)


@pytest.mark.slow
def test_command(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from onnxrewrite.cli import app

    onnx.save(scores(), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", ids=np.stack([d["ids"] for d in data()]))
    asked = ["--mode", "weights", "--weights", "mixed", "--rows", "1", "--threads", "1", "--max-divergence", "0.003"]
    done = CliRunner().invoke(
        app,
        [
            "quantize",
            str(tmp_path / "m.onnx"),
            "--data",
            str(tmp_path / "d.npz"),
            *asked,
            "-o",
            str(tmp_path / "q.onnx"),
        ],
    )
    assert done.exit_code == 0, done.output
    assert "bits blocks of" in done.output
