"""Rules as values: what is refused when one is made, where it can match, how far it looks."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from driving import rule, x

from onnxrewrite import AnyNode, Const, Rule, Scalar, Stage, Var, any_of, op
from onnxrewrite.errors import RuleError
from onnxrewrite.pattern.terms import Term

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


@pytest.mark.parametrize(
    ("pattern", "anchors"),
    [
        (op.Relu(x), {"Relu"}),
        (op["Relu", "Clip"](x), {"Relu", "Clip"}),
        (op.Split(x)[1], {"Split"}),
        (op.Sqrt(x), {"Sqrt", "Pow"}),
        (x + z, {"Add", "Sub", "Sum", "Neg"}),
        (x * z, {"Mul", "Div", "Neg", "Reciprocal", "Pow"}),
        (any_of(op.Relu(x), op.Neg(x) + z), {"Relu", "Add", "Sub", "Sum", "Neg"}),
        (any_of(op.Relu(x), x), None),
        (op.Relu(x) + Const("b", default=0.0), {"Add", "Sub", "Sum", "Neg", "Relu"}),
        (op.Relu(x) * Scalar("s", default=1.0), {"Mul", "Div", "Neg", "Reciprocal", "Pow", "Relu"}),
        (x * Scalar("s", default=1.0), None),
        (AnyNode(), None),
        (AnyNode(op_types=("Relu",)), {"Relu"}),
        (x, None),
    ],
)
def test_anchors(pattern: Term, anchors: set[str] | None) -> None:
    assert rule("r", pattern, keep).anchors == anchors


def test_the_first_output_is_the_anchor() -> None:
    assert rule("r", (op.Relu(x), op.Neg(x)), keep).anchors == {"Relu"}


@pytest.mark.parametrize(
    ("pattern", "depth"),
    [
        (x, 0),
        (op.Relu(x), 1),
        (op.Relu(op.Neg(x)), 2),
        (op.Split(op.Relu(x))[1], 2),
        (x + z, 2),
        (op.Relu(x + z), 3),
        (op.Sqrt(op.Neg(x)), 2),
        (any_of(x, op.Relu(op.Neg(op.Abs(x)))), 3),
        (op.Clip(x, min=op.Neg(z)), 2),
        (0.5 * x * (1 + op.Erf(x / 2.0)), 8),
    ],
)
def test_depth(pattern: Term, depth: int) -> None:
    assert rule("r", pattern, keep).depth == depth


def test_the_depth_of_several_outputs_is_the_largest() -> None:
    assert rule("r", (op.Relu(x), op.Neg(op.Abs(op.Exp(x)))), keep).depth == 3


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
