"""Functions of a model's own, inlined."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import parser

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.io.inlining import inlined


def loaded(graph: str, *functions: str, opset: int = 18) -> ir.Model:
    imports = f'<ir_version: 10, opset_import: ["": {opset}, "f": 1, "com.microsoft": 1]>'
    bodies = (
        f'<domain: "f", opset_import: ["": {opset}, "f": 1]> {body}' if body[0] != "<" else body for body in functions
    )
    return io.load(parser.parse_model(f"{imports} g {graph} {' '.join(bodies)}"))


SCALED = "S <alpha> (a) => (b) { c = Constant<value_float: float = @alpha>()  m = Mul(a, c)  b = f.R(m) }"
BY_DEFAULT = (
    "D <k: int = 1, alpha: float = 2.0> (a) => (b) { c = f.E<beta: float = @alpha>(a)  b = Softmax<axis: int = @k>(c) }"
)
INNER = "E <beta: float = 3.0, gamma: float = 4.0> (a) => (b) { b = LeakyRelu<alpha: float = @gamma>(a) }"
ROOT = "R (a) => (b) { s = ReduceSum<keepdims=1>(a)  b = Add(s, a) }"


@pytest.mark.parametrize(
    ("graph", "functions"),
    [
        ("(float[2,3] x, float[4] z) => (float[2,3] y, float[4] w) { y = f.S<alpha=2.0>(x)  w = f.S<alpha=3.0>(z) }", (SCALED, ROOT)),
        ("(float[2] x) => (float[2] y, float[2] z) { y, z = f.P(x) }", ("P (a) => (a, b) { b = Neg(a) }",)),
        (
            "(float[2] x, bool c) => (float[2] y) { y = If(c) <then_branch = t () => (float[2] p) { p = f.R(x) },"
            " else_branch = e () => (float[2] q) { n = Neg(x)  q = f.R(n) }> }",
            (ROOT,),
        ),
        ("(float[2] x) => (float[2] y) { y = f.R(x) }", (f'<domain: "f", opset_import: ["": 11]> {ROOT}',)),
        ("(float[2] x) => (float[2] y) { y = f.T(x, x) }", ("T (a, b, c) => (d) { d = Add(a, b) }",)),
        ("(float[2,3] x) => (float[2,3] y) { y = f.D<alpha=-1.0>(x) }", (BY_DEFAULT, INNER)),
    ],
    ids=["nested-and-of-two-ranks", "an-operand-is-a-result", "in-branches", "older-opset", "without-an-operand", "attributes-by-default"],
)  # fmt: skip
def test_nothing_is_left_of_functions_but_what_they_compute(graph: str, functions: tuple[str, ...]) -> None:
    model = loaded(graph, *functions)
    found = inlined(model)
    if "11" not in functions[0]:  # which ONNX Runtime does not convert
        assert rw.check(model, found.model).ok
    assert not found.model.functions
    assert len(found.functions) == len(functions)
    onnx.checker.check_model(io.to_proto(found.model), full_check=True)
    assert [v.name for v in found.model.graph.outputs] == [v.name for v in model.graph.outputs]


def test_a_function_that_is_kept_keeps_what_it_calls() -> None:
    model = loaded("(float[2] x) => (float[2] y) { z = f.R(x)  y = f.S<alpha=2.0>(z) }", SCALED, ROOT)
    found = inlined(model, lambda domain, name: (domain, name) == ("f", "S"))
    assert found.functions == ("f.R",)
    assert {f.name for f in found.model.functions.values()} == {"S", "R"}
    assert [n.op_type for n in found.model.graph] == ["ReduceSum", "Add", "S"]
    assert rw.check(model, found.model).ok


def test_a_body_that_the_opset_cannot_say_stays_a_function() -> None:
    body = '<domain: "f", opset_import: ["": 8]> U (a) => (b) { b = Upsample<mode="nearest">(a) }'
    model = loaded("(float[2,2] x) => (float[2,2] y) { y = f.U(x) }", body)
    assert inlined(model).model is model


def test_a_function_called_like_a_known_operator_stays_for_onnx_runtime_runs_its_own() -> None:
    body = '<domain: "com.microsoft", opset_import: ["": 18]> Gelu (a) => (b) { b = Add(a, a) }'
    model = loaded("(float[2] x) => (float[2] y) { y = com.microsoft.Gelu(x) }", body)
    assert inlined(model).model is model


def test_a_model_without_functions_is_left_alone() -> None:
    model = loaded("(float[2] x) => (float[2] y) { y = Neg(x) }")
    assert inlined(model).model is model
