"""Translation validation: what is true is proved, what is false never is, and a counterexample is run."""

from __future__ import annotations

import pytest
from proof import pairs

from onnxrewrite.ir import text
from onnxrewrite.ruletest.fuzz.judge import differs_at

z3 = pytest.importorskip("z3")

from onnxrewrite.proof.validation import Proof, Refutation, Unknown, prove  # noqa: E402

OPSET = 21


@pytest.mark.parametrize("name", pairs.TRUE)
def test_what_is_true_is_proved(name: str) -> None:
    before, after = (text.parse(g, opset=OPSET) for g in pairs.TRUE[name])
    found = prove(before, after, refute=False)
    assert isinstance(found, Proof), found


@pytest.mark.parametrize("name", pairs.FALSE)
def test_what_is_false_is_not_proved(name: str) -> None:
    before, after = (text.parse(g, opset=OPSET) for g in pairs.FALSE[name])
    found = prove(before, after)
    assert not isinstance(found, Proof)
    if isinstance(found, Refutation):
        assert differs_at(before, after, found.feeds)


REFUTED = [
    n for n in pairs.FALSE if n not in ("a sum that cancels", "a sum in half precision", "a factor in half precision")
]


@pytest.mark.parametrize("name", REFUTED)
def test_a_counterexample_is_run(name: str) -> None:
    before, after = (text.parse(g, opset=OPSET) for g in pairs.FALSE[name])
    assert isinstance(prove(before, after), Refutation)


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
