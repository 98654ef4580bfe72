"""Functions of ONNX as patterns, and the rules that make operators of them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from onnxscript import FLOAT, opset17, script

import onnxrewrite as rw
from onnxrewrite.errors import RuleError, UsageError
from onnxrewrite.ir import text
from onnxrewrite.rules import RAISE, CustomOp, Operators, rule
from onnxrewrite.testing import assert_rewrites

GATE = """<domain: "mine", opset_import: ["" : 17]> gate <alpha: float = 1.0> (x, w) => (y) {
    p = MatMul(x, w)
    a = Constant<value_float: float = @alpha>()
    s = Mul(p, a)
    g = Sigmoid(s)
    y = Mul(p, g)
}"""
CustomOp(
    "of.others",
    "Gate",
    """<domain: "mine", opset_import: ["" : 17]> Gate (w, x) => (y) {
    p = MatMul(x, w)
    g = Sigmoid(p)
    y = Mul(p, g)
}""",
)
X = np.ones((2, 4), np.float32)
W = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")


def test_a_function_in_text_is_a_pattern_in_the_form_of_the_library():
    (form,) = rw.trace(GATE, {"x": X, "w": W}).forms
    assert repr(form) == "Swish(MatMul(x, w))"
    assert list(form.captures) == ["x", "w"]


@script(default_opset=opset17)
def scripted(x: FLOAT, w: FLOAT) -> FLOAT:
    p = opset17.MatMul(x, w)
    return opset17.Mul(p, opset17.Sigmoid(p))


@pytest.mark.parametrize("function", [scripted, scripted.to_function_proto()], ids=["onnxscript", "FunctionProto"])
def test_so_is_one_of_onnxscript_or_onnx(function: object):
    traced = rw.trace(function, {"x": X, "w": W})
    assert [repr(form) for form in traced.forms] == ["Swish(MatMul(x, w))"]
    rules = traced.becomes("of.tests", "ScriptedGate", name="to-scripted-gate")
    model = text.parse("float[n,4] x; p = MatMul(x, float[4,1] {1, 2, 3, 4})  y = Swish(p)", opset=24)
    assert [node.op_type for node in rw.apply(model, rules=rules, lower="fused").model.graph] == ["ScriptedGate"]


def test_an_attribute_that_differs_among_examples_is_captured():
    traced = rw.trace(GATE, {"x": X, "w": W, "alpha": 2.0}, {"x": X, "w": W, "alpha": 3.0})
    assert repr(traced.pattern) == "Swish(MatMul(x, w), alpha=alpha)"


def test_a_function_becomes_an_operator_that_computes_it():
    rules = rw.trace(GATE, {"x": X, "w": W}).becomes("of.tests", "Gate", name="to-gate")
    model = text.parse(
        "float[n,4] x; p = MatMul(x, float[4,2] {1, 2, 3, 4, 5, 6, 7, 8})  g = Sigmoid(p)  y = Mul(p, g)"
    )
    result = rw.apply(model, rules=rules, lower="fused")
    assert [node.op_type for node in result.model.graph] == ["Gate"]
    assert result.checks.model.ok
    assert [function.name for function in result.to_proto().functions] == ["Gate"]


def test_a_captured_attribute_is_one_of_the_operator():
    traced = rw.trace(GATE, {"x": X, "w": W, "alpha": 2.0}, {"x": X, "w": W, "alpha": 3.0})
    rules = traced.becomes("of.tests", "SlopedGate", name="to-sloped-gate")
    model = text.parse(
        "float[n,4] x; p = MatMul(x, float[4,2] {1, 2, 3, 4, 5, 6, 7, 8})  s = Mul(p, 1.7)  g = Sigmoid(s)  y = Mul(p, g)"
    )
    result = rw.apply(model, rules=rules, lower="fused")
    (node,) = result.model.graph
    assert node.attributes["alpha"].as_float() == pytest.approx(1.7)
    assert result.checks.model.ok


def test_a_traced_pattern_is_the_left_side_of_any_rule():
    traced = rw.trace(GATE, {"x": X, "w": X.T})
    x, w = traced.captures["x"], traced.captures["w"]
    swapped = rule("gate-swapped", RAISE, traced.pattern, Operators("of.others").Gate(w, x))
    assert_rewrites(
        swapped,
        "float[2,4] x; float[4,2] w; p = MatMul(x, w)  y = Swish(p)",
        to="float[2,4] x; float[4,2] w; y = of.others.Gate(w, x)",
    )


def test_what_cannot_be_traced():
    with pytest.raises(UsageError, match="give an example"):
        rw.trace(GATE)
    with pytest.raises(UsageError, match="gate has no argument v"):
        rw.trace(GATE, {"x": X, "v": X})
    with pytest.raises(UsageError, match="gate needs w; give it None to leave it out"):
        rw.trace(GATE, {"x": X})
    with pytest.raises(UsageError, match="an example maps names to arguments, and is no str"):
        rw.trace(GATE, "x")
    with pytest.raises(RuleError, match="trace:"):
        rw.trace("no function", {"x": X})
