"""Proofs of rules: which are proved, for which sizes, and that a wrong one is refuted by running it."""

from __future__ import annotations

import pytest
from library import LIBRARY

from benchmarks import wrong_rules
from benchmarks.handwritten import Wrong, collected, wrong
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rules import FLOATS, Attr, Var, op
from onnxrewrite.ruletest.fuzz.judge import differs_at

pytest.importorskip("z3")

from onnxrewrite.proof.replaying import failing
from onnxrewrite.proof.validation import BITWISE, IN_VALUE, WITHIN_BOUND, Proof
from onnxrewrite.ruletest.proving import prove_rule

FEW = 12


def named(name: str) -> Rule:
    return next(r for r in LIBRARY if r.name == name)


@pytest.mark.parametrize("name", ["transpose-identity", "pad-of-pad", "expand-of-expand", "piece-of-concat"])
def test_index_rules_are_proved_to_the_bit(name: str) -> None:
    found = prove_rule(named(name), LIBRARY, count=FEW)
    assert found.is_proved, found.reason
    assert found.strength == BITWISE
    assert any(f.form.named for f in found.forms)


def test_a_choice_turned_round_is_proved_but_for_signs_of_zeros() -> None:
    """ONNX Runtime's Where makes +0 of either zero, where its condition holds alone."""
    found = prove_rule(named("where-not"), LIBRARY, count=FEW)
    assert found.is_proved, found.reason
    assert found.strength == IN_VALUE


@pytest.mark.parametrize("name", ["matmul-add", "gemm-of-zero-bias", "plus-opposite"])
def test_sums_are_proved_over_the_reals(name: str) -> None:
    found = prove_rule(named(name), LIBRARY, count=FEW)
    assert found.is_proved, found.reason
    assert found.strength == WITHIN_BOUND


def test_a_proof_is_a_script_that_replays() -> None:
    found = prove_rule(named("where-not"), LIBRARY, count=FEW)
    assert failing(found.text) == ""
    first = next(f.outcome for f in found.forms if isinstance(f.outcome, Proof))
    assert failing(first.text, first.digest) == ""
    assert "digest" in failing(first.text + " ", first.digest)
    assert "goal 1" in failing("(declare-fun x () Int)(assert (> x 0))(check-sat)")


x, z = Var("x", dtype=FLOATS), Var("z", dtype=FLOATS)
perm, perm2 = Attr[tuple[int, ...]]("perm"), Attr[tuple[int, ...]]("perm2")


def test_a_wrong_rule_is_refuted_by_a_run() -> None:
    given: Wrong = wrong(
        "transpose-twice-is-none", op.Transpose(op.Transpose(x, perm=perm), perm=perm2), lambda m, b: m[x],
        on="float[2,2,2] x; t = Transpose(x, perm=[1, 2, 0])  y = Transpose(t, perm=[1, 2, 0])", at={}, why="",
        when=lambda m: m[perm] == m[perm2],
    )  # fmt: skip
    found = prove_rule(given.rule, [*LIBRARY, given.rule], count=40)
    assert not found.is_proved
    assert found.refutation is not None
    form, refuted = found.refutation
    assert differs_at(form.before, form.after, refuted.feeds)


@pytest.mark.parametrize("name", ["attention", "attention-lower", "embed-norm", "quantized-gemm", "index-from-the-end"])
def test_a_right_rule_is_not_refuted(name: str) -> None:
    """It assumes something of the data, is lowered, or rounds: a difference in a run is judged as a rewrite's is."""
    assert prove_rule(named(name), LIBRARY).refutation is None


KINDS = collected(wrong_rules)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_wrong_rule_is_proved(kind: str) -> None:
    for each in KINDS[kind]:
        found = prove_rule(each.rule, [*LIBRARY, each.rule], refute=False)
        assert not found.is_proved, each.rule.name
