"""Rule sets: order, composition, and what cannot be in one."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from driving import rule, x

from onnxrewrite.errors import RuleError, UsageError
from onnxrewrite.rules import Rule, RuleSet, Stage, op


def named(name: str, stage: Stage = Stage.RAISE) -> Rule:
    return rule(name, op.Relu(x), lambda m, build: m[x], stage)


ERF, TANH, SWISH, MISH = map(named, ("erf", "tanh", "swish", "mish"))
TIDY, LOWER = named("tidy", Stage.CANONICALIZE), named("lower", Stage.LOWER)
GELU = RuleSet("gelu", [LOWER, TANH, ERF], doc="GELU.\n\nIn full.")
SWISHES = RuleSet("swishes", [SWISH, MISH, TIDY])


def names(rules: Iterable[Rule]) -> list[str]:
    return [r.name for r in rules]


def test_by_stage_and_then_as_given() -> None:
    assert names(GELU) == ["tanh", "erf", "lower"]
    assert names(GELU | SWISHES) == ["tidy", "tanh", "erf", "swish", "mish", "lower"]
    assert names(SWISHES | GELU) == ["tidy", "swish", "mish", "tanh", "erf", "lower"]
    assert names(RuleSet("all", [MISH, GELU, SWISHES])) == ["tidy", "mish", "tanh", "erf", "swish", "lower"]


def test_a_collection() -> None:
    assert isinstance(GELU, Collection)
    assert len(GELU) == 3
    assert not RuleSet("empty", ())
    assert ERF in GELU
    assert "erf" in GELU
    assert SWISH not in GELU
    assert named("erf") not in GELU  # another rule of that name
    assert "gelu" not in GELU
    assert GELU["tanh"] is TANH
    with pytest.raises(UsageError, match="no rule is called 'erff'; did you mean erf"):
        GELU["erff"]


def test_composed() -> None:
    both = GELU | SWISHES
    assert both == RuleSet("", [GELU, SWISHES])
    assert names(GELU | MISH) == ["tanh", "erf", "mish", "lower"]
    assert names(both - GELU) == names(SWISHES)
    assert names(GELU - ERF) == names(GELU - "erf") == ["tanh", "lower"]
    assert names(GELU - SWISH - SWISHES) == names(GELU)
    assert names(GELU | SWISHES - "mish") == ["tidy", "tanh", "erf", "swish", "lower"]
    assert [names(both.stage(s)) for s in Stage] == [["tidy"], ["tanh", "erf", "swish", "mish"], ["lower"]]
    with pytest.raises(UsageError, match="no rule is called 'mish'"):
        GELU - "mish"
    for wrong in (3, None, "erf", [ERF]):
        with pytest.raises(TypeError):
            GELU | wrong  # type: ignore[operator]
    for wrong in (3, None, [ERF]):
        with pytest.raises(TypeError):
            GELU - wrong  # type: ignore[operator]


def test_what_is_put_together_has_no_name() -> None:
    for made in (GELU | SWISHES, GELU | ERF, GELU - ERF, GELU.stage(Stage.RAISE)):
        assert (made.name, made.doc) == ("", "")


def test_a_value() -> None:
    assert RuleSet("gelu", [TANH, ERF, LOWER]) == GELU
    assert hash(GELU) == hash(RuleSet("gelu", [TANH, ERF, LOWER]))
    assert RuleSet("gelu", [ERF, TANH, LOWER]) != GELU
    assert RuleSet("other", [TANH, ERF, LOWER]) != GELU
    assert repr(GELU) == "RuleSet('gelu': tanh, erf, lower)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        GELU.name = "other"  # type: ignore[misc]
    before = names(GELU)
    assert GELU | SWISHES
    assert names(GELU) == before


def test_two_rules_of_one_name() -> None:
    message = rf"two rules are called 'erf': one in {__file__}, one in {__file__}"
    with pytest.raises(RuleError, match=message):
        RuleSet("twice", [ERF, named("erf")])
    with pytest.raises(RuleError, match=message):
        GELU | named("erf")
    assert names(RuleSet("once", [ERF, ERF, GELU])) == ["erf", "tanh", "lower"]


@pytest.mark.parametrize("name", ["My set", "-", "a--b", None, 3, [ERF]])
def test_bad_names(name: Any) -> None:
    with pytest.raises(RuleError, match="a name is lower case, with hyphens"):
        RuleSet(name, [])


def test_what_is_no_rule() -> None:
    with pytest.raises(RuleError, match=r"rule set 'mine' holds 'erf', which is no Rule"):
        RuleSet("mine", ["erf"])  # type: ignore[list-item]
