"""Translation validation: what is true is proved, what is false never is, and a counterexample is run."""

from __future__ import annotations

import pytest
from proof import pairs

from onnxrewrite.ir import text
from onnxrewrite.ruletest.fuzz.judge import differs_at

z3 = pytest.importorskip("z3")

from onnxrewrite.proof import refutation  # noqa: E402
from onnxrewrite.proof.validation import WITHIN_BOUND, Proof, Refutation, Unknown, prove  # noqa: E402

OPSET = 21


@pytest.mark.parametrize("name", pairs.TRUE)
def test_what_is_true_is_proved(name: str) -> None:
    before, after = (text.parse(g, opset=OPSET) for g in pairs.TRUE[name])
    found = prove(before, after, refute=False)
    assert isinstance(found, Proof), found


@pytest.mark.slow
@pytest.mark.parametrize("name", pairs.FALSE)
def test_what_is_false_is_not_proved(name: str) -> None:
    before, after = (text.parse(g, opset=OPSET) for g in pairs.FALSE[name])
    found = prove(before, after)
    assert not isinstance(found, Proof)
    if isinstance(found, Refutation):
        assert differs_at(before, after, found.feeds)


@pytest.mark.slow
@pytest.mark.parametrize("name", pairs.SUBTLE)
def test_what_differs_at_a_corner_is_not_proved_in_bits(name: str) -> None:
    before, after = (text.parse(g, opset=OPSET) for g in pairs.SUBTLE[name])
    found = prove(before, after, refute=False, seconds=5)
    if isinstance(found, Proof):  # the order of a sum is a matter of rounding, and NaN in a maximum of floats as well
        assert name in ("the sum of three floats in another order", "a reduction along another axis in memory")
        assert found.strength == WITHIN_BOUND


def test_a_default_bound_of_clip_cuts_infinities_off() -> None:
    before, after = (text.parse(g, opset=10) for g in ("float[n] x; y = Clip(x)", "float[n] x; y = Identity(x)"))
    assert not isinstance(prove(before, after, refute=False), Proof)


def test_a_node_without_use_says_nothing_of_sizes() -> None:
    before = text.parse("float[n] x; d = Reshape(x, {3, 2})  y = Identity(x)", opset=OPSET)
    used = text.parse("float[n] x; y = Slice(x, {0}, {6}, {0})", opset=OPSET)
    del before.graph.outputs[0]
    assert [v.name for v in before.graph.outputs] == ["y"]
    assert not isinstance(prove(before, used, refute=False), Proof)


@pytest.mark.parametrize(
    "graph",
    [
        'int32[n,m] x; int32[m,k] w; y = Einsum<equation="ij,jk->ik">(x, w)',
        'float[n,m] x; y = Einsum<equation="ij->ik">(x)',
        "float[n,m] x; float[m,k] w; float[1,1,1] c; y = Gemm<beta=2.0>(x, w, c)",
    ],
)
def test_what_has_no_sense_is_no_error(graph: str) -> None:
    other = text.parse(f"{graph}  z = Neg(y)", opset=OPSET)
    assert not isinstance(prove(text.parse(graph, opset=OPSET), other, refute=False), Proof)


ROUNDED = (
    "a sum that cancels",
    "a sum in half precision",
    "a factor in half precision",
    "each addend cast before the sum",
)
"""Sides that differ by rounding alone: they are not proved, and the inputs that tell them apart are not looked for."""

REFUTED = [name for name in pairs.FALSE if name not in ROUNDED]


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUTED)
def test_a_counterexample_is_run(name: str) -> None:
    before, after = (text.parse(g, opset=OPSET) for g in pairs.FALSE[name])
    assert isinstance(prove(before, after), Refutation)


@pytest.mark.parametrize(
    ("graph", "other"),
    [
        ("float[2] x; n = Sub(0.0, x)  y = Pow(n, -1.0)", "float[2] x; n = Neg(x)  y = Reciprocal(n)"),
        ("float x; a = Add(x, 0.0)  y = Pow(a, -1.0)", "float x; y = Reciprocal(x)"),
        ("float x; y = Pow(x, 1.0)", "float x; m = Max(x, -3.1e38)  y = Pow(m, 1.0)"),
    ],
)
def test_one_special_value_is_enough(graph: str, other: str) -> None:
    assert isinstance(prove(text.parse(graph, opset=OPSET), text.parse(other, opset=OPSET)), Refutation)


@pytest.mark.parametrize(
    "declared",
    ["float x; float z", "float[2] x; float[2] z", "float16[n] x; float16[n] z", "float[2] x; float w; float[2] z"],
)
@pytest.mark.parametrize(
    ("graph", "other"),
    [
        ("n = Neg(x)  o = Neg(z)  a = Add(n, o)  y = Reciprocal(a)", "a = Add(x, z)  n = Neg(a)  y = Reciprocal(n)"),
        ("a = Add(x, z)  y = Sign(a)", "a = Add(x, z)  m = Abs(a)  y = Div(a, m)"),
    ],
)
def test_sums_that_cancel_are_tried_without_the_solver(declared: str, graph: str, other: str) -> None:
    before, after = (text.parse(f"{declared}; {g}", opset=OPSET) for g in (graph, other))
    assert isinstance(refutation.search(before, after, []), Refutation)


def test_a_proof_is_the_same_each_time() -> None:
    before, after = (text.parse(g, opset=OPSET) for g in pairs.TRUE["slices compose"])
    first, second = prove(before, after), prove(before, after)
    assert isinstance(first, Proof)
    assert isinstance(second, Proof)
    assert first.digest == second.digest
    assert first.goals


def test_a_goal_has_no_model() -> None:
    before, after = (text.parse(g, opset=OPSET) for g in pairs.TRUE["slices compose"])
    found = prove(before, after)
    assert isinstance(found, Proof)
    for goal in found.goals:
        solver = z3.Solver()
        solver.from_string(goal)
        assert solver.check() == z3.unsat


def test_what_has_no_meaning_is_unknown() -> None:
    graph = "float[n] x; y = RandomUniformLike(x)"
    found = prove(text.parse(graph, opset=OPSET), text.parse(graph, opset=OPSET))
    assert isinstance(found, Unknown)
    assert "no meaning" in found.reason
