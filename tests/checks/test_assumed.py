"""What a rule assumes of the data: whether inputs are so, and what is fed."""

from __future__ import annotations

import numpy as np
import pytest

from onnxrewrite.checks.assumed import classes, hold
from onnxrewrite.inputs.classes import CLASSES, EDGES, HUGE, NOT_FINITE, class_of
from onnxrewrite.ir import text
from onnxrewrite.rewrite.rule import Assumption
from onnxrewrite.ruletest.fuzz.judge import differs_at
from onnxrewrite.system.arrays import Array


@pytest.mark.parametrize(
    ("assumption", "right", "wrong"),
    [
        (Assumption.FINITE, np.float32([1, -2]), np.float32([1, np.inf])),
        (Assumption.FINITE, np.float64([]), np.float64([np.nan])),
        (Assumption.FINITE, np.array(["a"]), np.float16([np.inf])),
        (Assumption.NOT_EMPTY, np.zeros((1, 2)), np.zeros((2, 0))),
        (Assumption.NOT_NEGATIVE, np.int64([0, 3]), np.int64([2, -1])),
        (Assumption.NOT_NEGATIVE, np.uint8([255]), np.int32([-(2**31)])),
        (Assumption.NOT_NEGATIVE, np.float32([-1.0]), np.int8([-1])),
        (Assumption.SCORES_ABOVE_10000, np.float32([-7, 12]), np.float32([-1e4])),
        (Assumption.SCORES_ABOVE_10000, np.array([True, True, False]), np.array([False, False])),
    ],
)
def test_inputs_are_as_assumed_or_not(assumption: Assumption, right: Array, wrong: Array) -> None:
    assert hold((assumption,), {"x": right})
    assert not hold((assumption,), {"x": right, "y": wrong})
    assert hold((), {"x": wrong})


def test_what_inputs_cannot_tell_holds() -> None:
    assert hold((Assumption.IN_RANGE, Assumption.NO_SATURATION), {"x": np.float32([np.inf])})


def test_classes_in_which_an_assumption_does_not_hold_are_left_out() -> None:
    assert classes(()) == EDGES
    assert NOT_FINITE not in classes((Assumption.FINITE,))


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (np.float32([1, 2]), CLASSES[0]),
        (np.int64([2**62]), CLASSES[0]),
        (np.float32([1e10, 0]), HUGE),
        (np.float32([-700, 0]), "large"),
        (np.float32([1e10, np.nan]), NOT_FINITE),
        (np.float32([]), CLASSES[0]),
    ],
)
def test_inputs_belong_to_a_class(array: Array, values: str) -> None:
    assert class_of({"x": array}) == values


ROOT = "float[n] x; s = Mul(x, x)  y = Sqrt(s)"
"""Overflows where its replacement does not."""


def test_a_difference_is_judged_as_that_of_a_rewrite_is() -> None:
    before, right, wrong = map(text.parse, (ROOT, "float[n] x; y = Abs(x)", "float[n] x; y = Identity(x)"))
    assert differs_at(before, right, {"x": np.float32([1e30, 2])}) is None
    assert differs_at(before, wrong, {"x": np.float32([1e30, 2])}) is None
    assert "output y" in str(differs_at(before, wrong, {"x": np.float32([1e30, -2])}))
    assert differs_at(before, wrong, {"x": np.float32([np.inf, -2])}, [Assumption.FINITE]) is None


def test_a_double_may_overflow_where_its_replacement_does_not_or_does_as_well() -> None:
    graph = "double[n] x; a = Exp(x)  b = Exp(a)  y = Log(b)"
    before, after, other = map(text.parse, (graph, "double[n] x; y = Exp(x)", "double[n] x; y = Neg(x)"))
    feeds = {"x": np.float64([500, 2002, 1])}
    assert differs_at(before, after, feeds) is None
    assert differs_at(before, other, feeds) is not None
    assert differs_at(after, before, feeds) is not None


def test_a_replacement_may_overflow_where_its_rule_assumes_that_nothing_does() -> None:
    parts = "float[4,1] {0.25, 0.25, 0.25, 0.25}"
    before, after, wrong = (
        text.parse(f"float[n,4] x; y = {made}", opset=17)
        for made in (f"MatMul(x, {parts})", "ReduceMean<axes=[1]>(x)", "ReduceMax<axes=[1]>(x)")
    )
    far, near = {"x": np.full((1, 4), 2e38, np.float32)}, {"x": np.float32([[1, 2, 3, 4]])}
    assert differs_at(before, after, far) is not None
    assert differs_at(before, after, far, [Assumption.IN_RANGE]) is None
    assert differs_at(before, wrong, near, [Assumption.IN_RANGE]) is not None


def test_what_is_computed_before_a_rewrite_is_as_its_rule_assumes_or_judges_nothing() -> None:
    softmax = "e = Exp(s)  t = ReduceSum(e, {-1})  y = Div(e, t)"
    before = text.parse(f"float[1,2] x; s = Div(1.0, x)  {softmax}", opset=17)
    right = text.parse("float[1,2] x; s = Div(1.0, x)  y = Softmax(s)", opset=17)
    wrong = text.parse("float[1,2] x; s = Div(1.0, x)  y = Sigmoid(s)", opset=17)
    by_zero, apart = {"x": np.float32([[0, 2]])}, {"x": np.float32([[1, 2]])}
    assert differs_at(before, right, by_zero) is not None
    assert differs_at(before, right, by_zero, [Assumption.FINITE]) is None
    assert differs_at(before, wrong, apart, [Assumption.FINITE]) is not None
    within = text.parse("float[1,2] x; r = Neg(x)  y = Softmax(r)", opset=17)  # makes the infinity, too, by itself
    assert differs_at(before, within, apart, [Assumption.FINITE]) is not None
