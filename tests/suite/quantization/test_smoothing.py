"""Smoothing: the same results, and fewer of them lost to one large channel; products in blocks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from suite.deploy.models import WIDTH, chain
from suite.quantization.models import conv, lookup, operators

from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.runtime.session import open_session
from onnxrewrite.suite.quality.data import Data, Sample
from onnxrewrite.suite.quality.gate import Gate
from onnxrewrite.suite.quantization.prepare import named
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.quantizer import quantize
from onnxrewrite.suite.quantization.smoothing import smooth
from onnxrewrite.system.arrays import Array


def samples(large: float = 100.0) -> Data:
    """One channel is so many times as large as the others, and another one zero throughout."""
    factors = np.ones(WIDTH, np.float32)
    factors[3], factors[5] = large, 0
    made = [np.random.default_rng(n).standard_normal((4, WIDTH)).astype(np.float32) * factors for n in range(12)]
    return Data([Sample({"x": x}) for x in made], "made up")


def outputs(model: ir.Model) -> Array:
    session = open_session(model)
    assert not isinstance(session, str), session
    found = session.run(samples()[0].inputs)
    assert not isinstance(found, str), found
    return np.asarray(found["y"])


def products(model: ir.Model) -> list[str]:
    return [node.name or "" for node in model.graph if node.op_type == "MatMul"]


def test_it_changes_nothing_but_rounding() -> None:
    model = named(io.load(chain(3)))
    before = outputs(model)
    assert smooth(model, products(model), samples()) == products(model)
    assert [node.op_type for node in model.graph].count("Mul") == 3
    np.testing.assert_allclose(outputs(model), before, rtol=1e-4, atol=1e-4 * np.abs(before).max())


def test_channels_come_closer() -> None:
    model = named(io.load(chain(1)))
    smooth(model, products(model), samples())
    (scales,) = (value.const_value for name, value in model.graph.initializers.items() if name.endswith("/smoothing"))
    assert scales is not None
    x = samples()[0].inputs["x"]
    sizes = np.abs(np.asarray(x)).max(axis=0)
    after = np.abs(np.asarray(x) * scales.numpy()).max(axis=0)
    assert after[3] / np.median(after) < 0.1 * sizes[3] / np.median(sizes)
    assert scales.numpy()[5] == 1, "a channel without values has no scale"


def test_values_that_two_read_are_divided_once() -> None:
    model = named(io.load(chain(1)))
    (node,) = [n for n in model.graph if n.op_type == "MatMul"]
    other = ir.node("MatMul", list(node.inputs), name="other")
    model.graph.insert_after(node, other)
    assert smooth(model, [node.name or "", "other"], samples()) == [node.name, "other"]
    assert node.inputs[0] is other.inputs[0]
    assert [n.op_type for n in model.graph].count("Mul") == 1


def test_what_is_no_product_is_left() -> None:
    model = named(io.load(conv()))
    before = [node.op_type for node in model.graph]
    assert smooth(model, [node.name or "" for node in model.graph], Data([], "none")) == []
    assert [node.op_type for node in model.graph] == before


def test_without_samples_nothing_is_smoothed() -> None:
    model = named(io.load(chain(2)))
    assert products(model)
    assert smooth(model, products(model), Data([], "none")) == []


def test_a_large_channel_costs_less() -> None:
    rough, even = (
        quantize(chain(2), QuantizeSettings(smooth=even), data=samples(), gate=Gate(max_drop=1)).quality
        for even in (False, True)
    )
    assert rough is not None
    assert even is not None
    assert even.drop < rough.drop / 4


def test_products_in_blocks() -> None:
    names = products(named(io.load(chain(3))))
    made = quantize(chain(3), QuantizeSettings(in_blocks=(names[1],)), data=samples(1.0), prepare=False)
    found = operators(made.model)
    assert (found.count("MatMulNBits"), found.count("MatMulInteger")) == (1, 2)
    assert made.quality is not None
    whole = quantize(chain(3), data=samples(1.0), prepare=False).quality
    assert whole is not None
    assert made.quality.drop < whole.drop


def test_weights_without_blocks_are_told() -> None:
    with pytest.raises(UsageError, match=r"in_blocks: Gather .*: its weights have no form in blocks"):
        quantize(lookup(), QuantizeSettings(in_blocks=("op:Gather",), per_channel=False), prepare=False)


@pytest.mark.parametrize("more", [{"smooth": True}, {"in_blocks": ("a",)}])
@pytest.mark.parametrize("mode", ["static", "weights"])
def test_of_dynamic_only(mode: str, more: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(more))} is for dynamic quantization"):
        QuantizeSettings.from_json({"mode": mode, **more})
