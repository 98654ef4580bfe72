"""Rules around quantization, together: what a whole graph becomes."""

from __future__ import annotations

from collections import Counter

import pytest

import onnxrewrite as rw
from onnxrewrite.ir import text


def operators(graph: str, opset: int = 17) -> Counter[str]:
    """What is left of a graph, by operator, with every check passed."""
    result = rw.apply(text.parse(graph, opset=opset), lower="fused")
    return Counter(node.op_type for node in result.model.graph)


@pytest.mark.parametrize("after", ["Relu(p)", "Clip(p, 0.0, 6.375)"])
def test_a_layer_and_its_limits_become_one_kernel(after: str) -> None:
    seven_bits = ", ".join(str(11 * n - 60) for n in range(12))  # whose sums fit on every processor
    graph = (
        "uint8[n,3,8,8] q; d = DequantizeLinear(q, 0.0625, uint8 100)"
        f"w = DequantizeLinear(int8[4,3,1,1] {{{seven_bits}}}, 0.0625)"
        f"p = Conv(d, w)  r = {after}  y = QuantizeLinear(r, 0.025, uint8 0)"
    )
    assert operators(graph) == {"QLinearConv": 1}


def test_integers_are_moved_and_meet() -> None:
    """Quantizers on both sides of a chain of views cancel, whichever of them moves."""
    graph = (
        "uint8[2,3,4] q; d = DequantizeLinear(q, 0.5, uint8 3)  t = Transpose<perm=[0,2,1]>(d)  r = Reshape(t, {8, 3})"
        "y = QuantizeLinear(r, 0.5, uint8 3)"
    )
    assert operators(graph, opset=21) == {"Transpose": 1, "Reshape": 1}


def test_a_quantized_weight_that_is_moved_stays_quantized() -> None:
    graph = (
        "float[n,2] x; w = DequantizeLinear(int8[3,2] {1, 2, 3, 4, 5, 6}, 0.5)  t = Transpose<perm=[1,0]>(w)"
        "y = MatMul(x, t)"
    )
    assert operators(graph) == {"DequantizeLinear": 1, "MatMul": 1}


def test_three_products_share_what_quantizes_their_input() -> None:
    layers = "".join(
        f"i{n} = MatMulInteger(q, w{n}, z)  f{n} = Cast<to=1>(i{n})  t{n} = Mul(s, 0.{n + 1})  p{n} = Mul(f{n}, t{n})"
        for n in range(3)
    )
    weights = " ".join(f"int8[4,4] w{n};" for n in range(3))
    graph = f"float[m,4] x; {weights} q, s, z = DynamicQuantizeLinear(x)  {layers}  a = Add(p0, p1)  y = Add(a, p2)"
    found = operators(graph)
    assert found["DynamicQuantizeLinear"] == 1
    assert found["MatMulIntegerToFloat"] == 3
