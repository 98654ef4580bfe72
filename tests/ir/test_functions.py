"""Functions of a model's own: never taken for an operator, never without measure."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from onnxrewrite import apply, io
from onnxrewrite.errors import ModelError

GELU = "h = Constant<value_float=0.5>() s = Constant<value_float=1.41421356>() o = Constant<value_float=1.0>() "
GELU += "a = Div(x, s) b = Erf(a) c = Add(b, o) d = Mul(x, c) z = Mul(d, h)"


def model(domain: str, call: str, body: str, nodes: str = GELU) -> onnx.ModelProto:
    """A function of ``domain`` beside a GELU in parts."""
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1, "own": 1]>'
        f"g (float[4] x) => (float[4] y, float[4] z) {{ y = {call}(x) {nodes} }}"
        f'<domain: "{domain}", opset_import: ["": 17]> {body}'
    )


@pytest.mark.parametrize(
    ("domain", "call", "name"),
    [
        ("com.microsoft", "com.microsoft.Gelu", "Gelu"),
        ("com.microsoft", "com.microsoft.FastGelu", "FastGelu"),
        ("", "Gelu", "Gelu"),
    ],
)
def test_a_function_that_is_called_like_an_operator_is_none(domain, call, name):
    """Neither merged with what a fusion emits, nor taken for the operator, nor called by what is emitted."""
    made = apply(model(domain, call, f"{name} (x) => (y) {{ y = Neg(x) }}"), lower="fused").to_proto()
    assert [(f.domain, f.name, len(f.node)) for f in made.functions] == [(domain, name, 1)]
    called = [n.output[0] for n in made.graph.node if (n.domain, n.op_type) == (domain, name)]
    assert called == ["y"]


def test_what_the_standard_makes_of_it():
    """Of two values that are equal to whoever takes the function for the operator, each stays what it was."""
    proto = model("com.microsoft", "com.microsoft.Gelu", "Gelu (x) => (y) { y = Neg(x) }")
    x = {"x": np.array([-1, 0, 1, 2], np.float32)}
    before, after = (ReferenceEvaluator(m).run(None, x) for m in (proto, apply(proto, lower="fused").to_proto()))
    np.testing.assert_array_equal(before, after)


def test_calls_of_a_function_are_no_part_of_a_pattern():
    """Its Erf is no Erf, so this is no GELU."""
    made = apply(model("", "Erf", "Erf (x) => (y) { y = Neg(x) }"), lower="fused").to_proto()
    assert sum(n.op_type == "Erf" for n in made.graph.node) == 2


def test_its_file_is_the_same():
    proto = model("com.microsoft", "com.microsoft.Gelu", "Gelu (x) => (y) { y = Neg(x) }")
    again = io.to_proto(io.load(proto))
    assert [(n.domain, n.op_type) for n in again.graph.node] == [(n.domain, n.op_type) for n in proto.graph.node]
    assert [(o.domain, o.version) for o in again.opset_import if not o.domain.startswith("own")] == [
        ("", 17),
        ("com.microsoft", 1),
    ]
    assert again.functions[0].domain == "com.microsoft"


def test_a_call_of_constants_is_not_computed_as_the_operator():
    nodes = "w = Constant<value_floats=[1.0, 2.0, 3.0, 4.0]>() v = com.microsoft.Gelu(w) z = Add(x, v)"
    proto = model("com.microsoft", "com.microsoft.Gelu", "Gelu (x) => (y) { y = Neg(x) }", nodes)
    made = apply(proto, lower="fused", check="off").to_proto()
    assert sum(n.op_type == "Gelu" for n in made.graph.node) == 2


@pytest.mark.parametrize("nested", [False, True], ids=["calls", "calls in a branch"])
def test_functions_that_call_one_another_without_measure(nested):
    """Thirty functions of two calls each are a thousand million nodes for whoever writes them out."""
    functions = ['<domain: "f", opset_import: ["": 17, "f": 1]> f0 (x) => (y) { y = Neg(x) }']
    for i in range(1, 31):
        calls = f"a = f.f{i - 1}(x) y = f.f{i - 1}(a)"
        if nested and i == 30:
            calls = (
                "c = Constant<value = bool {1}>() "
                f"y = If(c)<then_branch = t () => (float[1] p) {{ p = f.f{i - 1}(x) }}, "
                f"else_branch = e () => (float[1] q) {{ q = f.f{i - 1}(x) }}>"
            )
        functions.append(f'<domain: "f", opset_import: ["": 17, "f": 1]> f{i} (x) => (y) {{ {calls} }}')
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "f": 1]> g (float[1] x) => (float[1] y) { y = f.f30(x) }'
        + "".join(functions)
    )
    with pytest.raises(ModelError, match=r"call one another so often that it has .* nodes in all"):
        io.load(proto)


def test_functions_that_call_themselves():
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "f": 1]> g (float[1] x) => (float[1] y) { y = f.a(x) }'
        '<domain: "f", opset_import: ["": 17, "f": 1]> a (x) => (y) { y = f.b(x) }'
        '<domain: "f", opset_import: ["": 17, "f": 1]> b (x) => (y) { y = f.a(x) }'
    )
    with pytest.raises(ModelError, match="calls itself"):
        io.load(proto)
