"""A place as a graph in text: small sizes that fit together, weights left out, and it runs."""

from __future__ import annotations

import onnxrewrite as rw
from onnxrewrite.authoring.example import Cut, _small_sizes
from onnxrewrite.ir import text
from onnxrewrite.rules import Stage


def cut(graph: str, starts: str, ends: str, opset: int = 17) -> Cut:
    model = text.parse(graph, opset=opset)
    found = rw.capture(model, starts.split(), ends.split(), stage=Stage.CANONICALIZE)
    return found.source.cuts[0]


def test_products_stay_products() -> None:
    small = _small_sizes({12, 64, 768, 3072, 4})
    assert small[768] == small[12] * small[64]
    assert small[3072] == 4 * small[768]
    assert len(set(small.values())) == 4


def test_what_a_small_size_divides_it_still_divides() -> None:
    assert _small_sizes({128, 8})[128] % 8 == 0
    assert _small_sizes({192, 6, 3})[192] % 6 == 0


def test_heads_are_split_at_small_sizes() -> None:
    graph = (
        "float[b,s,768] x; m = MatMul(x, float[768,768] ~)  r = Reshape(m, {0, 0, 12, 64})"
        "t = Transpose<perm=[0,2,1,3]>(r)  y = Tanh(t)"
    )
    found = cut(graph, "x", "t")
    assert found.runs
    assert found.text.splitlines() == [
        "float[b,s,32] x;",
        "weight = float[32,32] ~",
        "matmul = MatMul(x, weight)",
        "reshape = Reshape(matmul, {0, 0, 4, 8})",
        "y = Transpose <perm = [0, 2, 1, 3]> (reshape)",
    ]


def test_a_shape_that_is_computed_is_told_where_it_can_be() -> None:
    graph = (
        "float[b,s,16] x; z = Shape(x)  g = Slice(z, {0}, {2})  c = Concat<axis=0>(g, {4, 4})  e = Exp(x)"
        "r = Reshape(e, c)  y = Tanh(r)"
    )
    found = cut(graph, "x", "r")
    assert found.runs
    assert "y = Reshape(exp, {0, 0, 4, 4})" in found.text


def test_a_shape_of_something_is_asked_of_that() -> None:
    graph = "float[b,s,t,16] x; z = Shape(x)  f = Reshape(x, {0, -1})  e = Exp(f)  r = Reshape(e, z)  y = Tanh(r)"
    found = cut(graph, "x", "r")
    assert found.runs
    assert "shape_2 = Shape(x)" in found.text


def test_sizes_that_do_not_fit_stay() -> None:
    graph = "float[1,3,224,224] x; c = Conv<strides=[4,4]>(x, float[96,3,11,11] ~)  p = MaxPool<kernel_shape=[54,54]>(c)  y = Tanh(p)"
    found = cut(graph, "x", "p")
    assert found.runs
    assert "float[1,3,224,224] x;" in found.text


def test_a_product_of_sizes_that_stay_stays_where_a_view_parts_it() -> None:
    graph = (
        "float[1,49,384] x; a = Relu(x)  r = Reshape(a, {1, 7, 7, 384})"
        "t = Transpose<perm=[0,2,1,3]>(r)  e = MatMul(t, float[384,384] ~)  y = Tanh(e)"
    )
    assert cut(graph, "x", "e").text.splitlines()[:3] == [
        "float[1,49,4] x;",
        "weight = float[4,4] ~",
        "relu = Relu(x)",
    ]


def test_a_zero_point_is_no_size() -> None:
    graph = (
        "float[b,96,28,28] x; q = QuantizeLinear(x, 0.02, uint8 12)  d = DequantizeLinear(q, 0.02, uint8 12)"
        "v = Div(d, 6.0)  r = QuantizeLinear(v, 0.03, uint8 12)  y = DequantizeLinear(r, 0.03, uint8 12)"
    )
    found = cut(graph, "x", "r")
    assert found.text.startswith("float[b,6,4,4] x;")
    assert found.text.count("uint8 12") == 3


def test_vectors_are_written_out_in_two_digits() -> None:
    graph = "float[b,4] x; m = Mul(x, {0.98765, 1.0, -0.000012345, 3.0})  y = Tanh(m)"
    assert "Mul(x, {0.99, 1.0, -1.2e-5, 3.0})" in cut(graph, "x", "m").text
