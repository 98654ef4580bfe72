"""A constant of shape [1] is read as a number wherever an operator takes one."""

from __future__ import annotations

import pytest

import onnxrewrite as rw
from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.numbers import scalar


@pytest.mark.parametrize(
    ("low", "high"), [("0.0", "6.0"), ("float[1] {0.0}", "float[1] {6.0}"), ("float[1] {0.0}", "6.0")]
)
def test_bounds_of_a_fused_convolution(low: str, high: str) -> None:
    weight = "float[2,3,1,1] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}"
    model = text.parse(f"float[1,3,5,5] x; c = Conv(x, {weight})  y = Clip(c, {low}, {high})", opset=17)
    done = rw.apply(model, lower="fused", only=["conv-activation"])
    assert done.trace.counts()["conv-activation"] == 1, done.trace.refused
    assert done.checks.model is not None
    assert done.checks.model.ok
    assert not [note for note in done.notes if "raised" in note]
    (node,) = done.model.graph
    assert list(node.attributes["activation_params"].value) == [0.0, 6.0]


def test_a_complex_number_is_none() -> None:
    model = text.parse("double[4] x; c = Add(x, complex64 {1.0, 2.0})  y = Sqrt(c)  ", opset=17)
    constant = next(v for n in model.graph for v in n.inputs if v is not None and v.const_value is not None)
    assert scalar(Facts(model.graph, model.opset_imports), constant) is None
    assert rw.apply(model, check="off").trace.applied == []


def test_lists_stay_lists() -> None:
    x = rw.rules.Var("x")
    axes = rw.rules.Attr[tuple[int, ...]]("axes")

    def keep(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
        """ReduceSum(x, axes) ⟶ x."""
        m.refuse(f"axes {m[axes]!r}")

    rule = rw.rules.Rule("axes", rw.rules.Stage.RAISE, rw.rules.op.ReduceSum(x, axes=axes), keep)
    found = rw.explain(text.parse("float[2,3] x; y = ReduceSum(x, {1})", opset=17), rule, check=False)
    assert found.groups[0].first.reason.startswith("axes (1,)")
