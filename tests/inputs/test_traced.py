"""Sizes that a tracer has fixed, though they are said to be dynamic."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxrewrite.inputs.bindings import input_specs
from onnxrewrite.inputs.sample import bindings
from onnxrewrite.inputs.traced import traced_sizes
from onnxrewrite.ir import text


@pytest.mark.parametrize(
    ("graph", "sizes"),
    [
        ("float[s,n,32] x; y = Reshape(x, {11, -1, 8})", {}),  # -1 takes what is left
        ("float[s,32] x; y = Reshape(x, {44, 8})", {"s": 11}),
        ("float[s,32] x; y = Reshape(x, {45, 8})", {}),  # no number of rows
        (
            "float[s,n,32] x; h = Shape(x)  n1 = Gather(h, {1})  b = Mul(n1, {4})  t = Concat<axis=0>({11}, b, {8})"
            "  y = Reshape(x, t)",
            {"s": 11},
        ),
        ("float[n,s] x; y = Add(x, float[1,3] {1, 2, 3})", {"s": 3}),
        ("float[n,s] x; y = Add(x, float[1,1] {1})", {}),
        ("float[n,s] x; y = MatMul(x, float[3,1] {1, 2, 3})", {"s": 3}),
        ("float[n,s] x; y = Expand(x, {1, 5})", {"s": 5}),
        ("float[n,s] x; a = Add(x, float[1,3] {1, 2, 3})  y = Reshape(a, {6})", {"s": 3, "n": 2}),
        ("float[n,s] x; y = Add(x, x)", {}),
        (
            "float[n,s,32] x; float[m,t,32] z; h = Shape(x)  b = Gather(h, {0})  c = Mul(b, {4})"
            "  k = Concat<axis=0>({13}, c, {8})  y = Reshape(z, k)",
            {"t": 13},
        ),
    ],
)
def test_sizes_that_the_models_numbers_fix(graph: str, sizes: dict[str, int]) -> None:
    model = ir.to_proto(text.parse(graph, opset=17))
    assert traced_sizes(model, input_specs(model)) == sizes


def test_a_model_runs_at_sizes_that_were_traced() -> None:
    model = text.parse(
        "float[s,n,32] x; h = Shape(x)  m = Gather(h, {1})  b = Mul(m, {4})  t = Concat<axis=0>({11}, b, {8})"
        "  y = Reshape(x, t)",
        opset=17,
    )
    found = bindings(ir.to_proto(model))
    assert {b["s"] for b in found} == {11}
    assert len({b["n"] for b in found}) > 1


def test_a_model_runs_at_traced_sizes_without_names() -> None:
    model = text.parse("float[s,32] x; y = Reshape(x, {44, 8})", opset=17)
    proto = ir.to_proto(model)
    proto.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    assert bindings(proto) == [{"x.0": 11}]
