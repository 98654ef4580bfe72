"""Pad before convolutions and poolings: equal to the bit, or kept."""

from __future__ import annotations

import numpy as np
import pytest
from onnxrewrite_patterns import constants, explicit_padding
from sides import Array, rewrite, run

from onnxrewrite.rewrite.registry import rules_of

RULES = (*rules_of(constants), *rules_of(explicit_padding))


def feed(*shape: int) -> Array:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def check(graph: str, x: Array, left: list[str], *, opset: int = 17) -> None:
    sides = rewrite(graph, RULES, opset=opset)
    assert sides.operators == left, sides.driver.trace.refused
    (old,), (new,) = run(sides.before, {"x": x}), run(sides.after, {"x": x})
    assert old.shape == new.shape
    np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-6)


PADS = {
    7: "p = Pad<pads = [0, 0, 1, 0, 0, 0, 0, 2]>(x)",
    10: 'p = Pad<pads = [0, 0, 1, 0, 0, 0, 0, 2], mode = "constant", value = 0.0>(x)',
    11: "p = Pad(x, {0, 0, 1, 0, 0, 0, 0, 2})",
    13: "p = Pad(x, {0, 0, 1, 0, 0, 0, 0, 2}, float[1] {0})",
    18: "p = Pad(x, {1, 0, 0, 2}, 0.0, {2, 3})",
    21: "p = Pad(x, {0, 1, 2, 0}, , {-1, -2})",
}


@pytest.mark.parametrize("opset", PADS)
@pytest.mark.parametrize("conv", ["pads = [0, 1, 1, 0]", 'auto_pad = "VALID"', "strides = [2, 2]", "group = 2"])
def test_convolution(conv: str, opset: int) -> None:
    channels = 2 if "group" in conv else 4
    graph = f"float[n,4,h,w] x; {PADS[opset]}  y = Conv<{conv}>(p, float[6,{channels},3,3] ~, float[6] ~)"
    check(graph, feed(2, 4, 7, 6), ["Conv"], opset=opset)
    check(graph, feed(0, 4, 7, 6), ["Conv"], opset=opset)


@pytest.mark.parametrize("opset", PADS)
@pytest.mark.parametrize("pool", ["", ", strides = [2, 2]", ", count_include_pad = 1, pads = [0, 1, 1, 0]"])
def test_average_counts_the_zeros(pool: str, opset: int) -> None:
    graph = f"float[n,4,h,w] x; {PADS[opset]}  y = AveragePool<kernel_shape = [3, 4]{pool}>(p)"
    check(graph, feed(2, 4, 7, 6), ["AveragePool"], opset=opset)


@pytest.mark.parametrize("opset", PADS)
@pytest.mark.parametrize("positive", ["Relu(x)", "Sigmoid(x)", "Abs(x)", "HardSigmoid<alpha = 0.1>(x)"])
def test_maximum_of_what_is_not_negative(positive: str, opset: int) -> None:
    pad = PADS[opset].replace("(x", "(r")
    graph = f"float[n,4,h,w] x; r = {positive}  {pad}  y = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(p)"
    check(graph, feed(2, 4, 7, 6), sorted(["MaxPool", positive.split("<")[0].split("(")[0]]), opset=opset)


def test_maximum_padded_with_infinity() -> None:
    lowest = "p = Pad(x, {0, 0, 1, 0, 0, 2}, v)  y = MaxPool<kernel_shape = [3]>(p)"
    infinite = "i = Constant<value = float[1] {-1e38}>()  v = Mul(i, 1e38)"
    check(f"float[n,4,w] x; {infinite}  {lowest}", feed(2, 4, 7), ["MaxPool"])
    assert "Pad" in rewrite(f"float[n,4,w] x; v = Identity(-3.4e38)  {lowest}", RULES).operators


@pytest.mark.parametrize(
    "graph",
    [
        "p = Pad(x, {0, 0, 1, 0, 0, 1}, 0.5)  y = Conv(p, float[2,4,3] ~)",
        'p = Pad<mode = "reflect">(x, {0, 0, 1, 0, 0, 1})  y = Conv(p, float[2,4,3] ~)',
        'p = Pad<mode = "edge">(x, {0, 0, 1, 0, 0, 1})  y = Conv(p, float[2,4,3] ~)',
        "p = Pad(x, {0, 0, -1, 0, 0, 1})  y = Conv(p, float[2,4,3] ~)",
        "p = Pad(x, {0, 1, 0, 0, 1, 0})  y = Conv(p, float[2,6,3] ~)",
        "p = Pad(x, {1, 0, 0, 1, 0, 0})  y = Conv(p, float[2,4,3] ~)",
        'p = Pad(x, {0, 0, 1, 0, 0, 1})  y = Conv<auto_pad = "SAME_UPPER">(p, float[2,4,3] ~)',
        "p = Pad(x, {0, 0, 1, 0, 0, 1})  y = Conv(p, float[2,4,3] ~)  z = Relu(p)",
        "int64[6] q; p = Pad(x, q)  y = Conv(p, float[2,4,3] ~)",
        "input v = float 0.0  p = Pad(x, {0, 0, 1, 0, 0, 1}, v)  y = Conv(p, float[2,4,3] ~)",
        "p = Pad(x, {0, 0, 1, 0, 0, 1})  y = ConvTranspose(p, float[4,2,3] ~)",
        "p = Pad(x, {0, 0, 1, 0, 0, 1}, 1.0)  y = AveragePool<kernel_shape = [3]>(p)",
        "p = Pad(x, {0, 0, 3, 0, 0, 0})  y = AveragePool<kernel_shape = [3]>(p)",
        "p = Pad(x, {0, 0, 1, 0, 0, 1})  y = AveragePool<kernel_shape = [3], ceil_mode = 1, strides = [2]>(p)",
        "p = Pad(x, {0, 0, 1, 0, 0, 1})  y = AveragePool<kernel_shape = [3], pads = [1, 1]>(p)",
        "p = Pad(x, {0, 0, 1, 0, 0, 1})  y = MaxPool<kernel_shape = [3]>(p)",
        "r = Tanh(x)  p = Pad(r, {0, 0, 1, 0, 0, 1})  y = MaxPool<kernel_shape = [3]>(p)",
        "r = Relu(x)  p = Pad(r, {0, 0, 1, 0, 0, 1}, 0.5)  y = MaxPool<kernel_shape = [3]>(p)",
        "r = Relu(x)  p = Pad(r, {0, 0, 1, 0, 0, 1})  y = MaxPool<kernel_shape = [3], dilations = [2]>(p)",
        "r = Relu(x)  p = Pad(r, {0, 0, 1, 0, 0, 1})  y = MaxPool<kernel_shape = [3], ceil_mode = 1>(p)",
        "r = Relu(x)  p = Pad(r, {0, 0, 1, 0, 0, 1})  y, i = MaxPool<kernel_shape = [3]>(p)",
    ],
)
def test_trap_kept(graph: str) -> None:
    sides = rewrite(f"float[n,4,w] x; {graph}", RULES)
    assert not sides.driver.trace.applied
