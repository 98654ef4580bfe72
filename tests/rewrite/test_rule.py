"""Rules as values: what is refused when one is made, where it can match, how far it looks."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from driving import rule, x

from onnxrewrite.errors import RuleError
from onnxrewrite.rules import Rule, Stage, Var, op

z = Var("z")


def keep(m: Any, build: Any) -> Any:
    """F(x) ⟶ x.

    Why: it is shorter.
    """
    return m[x]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "a rule needs a name"),
        ({"name": 3}, "a rule needs a name"),
        ({"name": "My Rule"}, "lower case, with hyphens"),
        ({"name": "a,b"}, "lower case, with hyphens"),
        ({"name": "-a"}, "lower case, with hyphens"),
        ({"stage": 1}, "stage must be a Stage"),
        ({"pattern": ()}, "a term or a tuple of terms"),
        ({"pattern": 0.5}, "a term or a tuple of terms"),
        ({"pattern": [op.Relu(x)]}, "a term or a tuple of terms"),
        ({"pattern": (op.Relu(x), None)}, "a term or a tuple of terms"),
        ({"rewrite": "keep"}, "must be a function"),
    ],
)
def test_what_is_no_rule(changes: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"name": "r", "stage": Stage.RAISE, "pattern": op.Relu(x), "rewrite": keep}
    with pytest.raises(RuleError, match=message):
        Rule(**{**fields, **changes})


def test_rules_are_compared_by_identity() -> None:
    a, b = rule("r", op.Relu(x), keep), rule("r", op.Relu(x), keep)
    assert a != b
    assert len({a, b}) == 2


def test_mentioned_parameters() -> None:
    inner = op.Softmax(x, axis=-1)
    outer = op.Gemm(inner, z, alpha=1.0, transB=0)
    assert rule("r", outer, keep).mentioned == {outer: {"alpha", "transB"}, inner: {"axis"}}


def test_documentation() -> None:
    made = rule("r", op.Relu(x), keep)
    assert made.summary == "F(x) ⟶ x."
    assert made.doc == "F(x) ⟶ x.\n\nWhy: it is shorter."
    assert made.source == __file__


def test_rewrites_that_are_no_plain_functions() -> None:
    class Keep:
        """G(x) ⟶ x."""

        def __call__(self, m: Any, build: Any) -> Any:
            return m[x]

    def general(kind: str, m: Any, build: Any) -> Any:
        """H(x) ⟶ x."""
        return m[x]

    @functools.wraps(keep)
    def decorated(m: Any, build: Any) -> Any:
        return keep(m, build)

    for rewrite, summary in (
        (Keep(), "G(x) ⟶ x."),
        (functools.partial(general, "kind"), "H(x) ⟶ x."),
        (decorated, "F(x) ⟶ x."),
        (functools.partial(decorated), "F(x) ⟶ x."),
        (lambda m, build: m[x], ""),
    ):
        made = rule("r", op.Relu(x), rewrite)
        assert made.summary == summary
        assert made.source == __file__
    assert rule("r", op.Relu(x), max).source == "?"
