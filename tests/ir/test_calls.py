"""What the callers of a function say about its inputs."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxrewrite.ir import text
from onnxrewrite.ir.calls import forget_types, give_types, in_order

FUNCTIONS = (
    ' <domain: "own", opset_import: ["": 17, "own": 1]> A (p) => (q) { r = own.B(p)  q = own.C(r) }'
    ' <domain: "own", opset_import: ["": 17, "own": 1]> B (p) => (q) { q = own.C(p) }'
    ' <domain: "own", opset_import: ["": 17]> C (p) => (q) { q = Neg(p) }'
)
BODY = ' <domain: "own", opset_import: ["": 17]> F (p, k) => (q) { q = Add(p, k) }'


def bodies(model: ir.Model) -> dict[str, ir.Graph]:
    return {f.name: f.graph for f in model.functions.values()}


def typed(source: str) -> list[str]:
    """What is known of the inputs of ``F``."""
    model = text.parse(source + BODY)
    body = bodies(model)["F"]
    give_types(body, model)
    return [
        f"{v.dtype.name.lower() if v.dtype is not None else '?'}{v.shape if v.shape is not None else ''}"
        for v in body.inputs
    ]


def test_callers_come_before_what_they_call() -> None:
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        parts = FUNCTIONS.split(" <")[1:]
        source = "(float x) => (y) { y = own.A(x) }" + "".join(f" <{parts[i]}" for i in order)
        model = text.parse(source)
        found = bodies(model)
        assert in_order(model) == [found["A"], found["B"], found["C"]]


def test_calls_from_subgraphs_count() -> None:
    source = "(float x, bool c) => (y) { y = If<then_branch = () => (p) { p = own.A(x) }, else_branch = () => (q) { q = own.C(x) }>(c) }"
    model = text.parse(source + FUNCTIONS)
    assert in_order(model)[0] is bodies(model)["A"]


def test_functions_that_call_themselves_are_not_followed_for_ever() -> None:
    model = text.parse(
        '(float x) => (y) { y = own.F(x) } <domain: "own", opset_import: ["": 17, "own": 1]> F (p) => (q) { r = own.F(p)  q = Neg(r) }'
    )
    assert in_order(model) == [bodies(model)["F"]]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("(float[2,n] x, float w) => (y) { y = own.F(x, w) }", ["float[2,n]", "float[]"]),
        ("(float[2,n] x, float w) => (y, z) { y = own.F(x, w)  z = own.F(x, w) }", ["float[2,n]", "float[]"]),
        ("(float[2,n] x, float[3,n] w) => (y, z) { y = own.F(x, w)  z = own.F(w, x) }", ["float[?,n]", "float[?,n]"]),
        ("(float[2,n] x, float[2,m] w) => (y, z) { y = own.F(x, w)  z = own.F(w, w) }", ["float[2,?]", "float[2,m]"]),
        ("(float[2] x, float[2,2] w) => (y, z) { y = own.F(x, w)  z = own.F(w, w) }", ["float", "float[2,2]"]),
        ("(float[2] x, double[2] w) => (y, z) { y = own.F(x, w)  z = own.F(w, w) }", ["?[2]", "double[2]"]),
        ("(float[2] x) => (y, z) { y = own.F(x, x)  z = own.F(x) }", ["float[2]", "?"]),
        ("(float[2] x) => (y) { y = Neg(x) }", ["?", "?"]),
        (
            "(float[2] x, bool c) => (y) { y = If<then_branch = () => (p) { p = own.F(x, x) }, else_branch = () => (q) { q = Neg(x) }>(c) }",
            ["float[2]", "float[2]"],
        ),
    ],
)  # fmt: skip
def test_types_are_what_all_calls_agree_on(source: str, expected: list[str]) -> None:
    found = [t.replace("None", "?").replace("Shape(", "").replace(")", "") for t in typed(source)]
    assert found == expected


def test_the_main_graph_is_left_alone() -> None:
    model = text.parse("(float[2] x, float w) => (y) { y = own.F(x, w) }" + BODY)
    give_types(model.graph, model)
    assert [str(v.shape) for v in model.graph.inputs] == ["[2]", "[]"]


def test_types_are_forgotten_again() -> None:
    model = text.parse("(float[2] x, float w) => (y) { y = own.F(x, w) }" + BODY)
    body = bodies(model)["F"]
    give_types(body, model)
    forget_types(model)
    assert [(v.type, v.shape) for v in body.inputs] == [(None, None)] * 2
