"""Rules as they are declared: over a function, or by terms; and what a replacement of terms builds."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from onnxrewrite.errors import RuleError
from onnxrewrite.pattern.mathematics import formula
from onnxrewrite.rewrite.fingerprint import fingerprint
from onnxrewrite.rewrite.rule import RENAMED, Settings
from onnxrewrite.rules import (
    CANONICALIZE,
    FLOATS,
    LOWER,
    RAISE,
    AnyNode,
    Attr,
    Builder,
    Const,
    Each,
    Match,
    Rewrites,
    Rule,
    Scalar,
    Stage,
    Term,
    Value,
    Var,
    any_of,
    microsoft,
    op,
    rule,
)  # fmt: skip
from onnxrewrite.ruletest.fuzz.hints import hints
from onnxrewrite.testing import assert_rejects, assert_rewrites

x, y, z = Var("x", dtype=FLOATS), Var("y", dtype=FLOATS), Var("z", default=None)
w, scale, shift = Const("w"), Scalar("scale"), Scalar("shift", default=1.0)
axis, rest = Attr[int]("axis"), Each[Any]("rest")
softmax = op.Softmax(x, axis=axis)


def by(pattern: Term | tuple[Term, ...], replacement: Term | tuple[Term, ...], **settings: Any) -> Rule:
    return rule("tried", CANONICALIZE, pattern, replacement, **settings)


# -- declarations -------------------------------------------------------------------------------------------------


@rule("decorated", LOWER, op.Tanh(x), benefit=3, examples=(Rewrites("y = Tanh(x)", to="y = Relu(x)"),))
def decorated(m: Match, build: Builder) -> Value:
    """tanh(x) ⟶ Relu(x)."""
    return build.Relu(m[x])


def test_a_function_becomes_the_rule() -> None:
    assert isinstance(decorated, Rule)
    assert (decorated.name, decorated.stage, decorated.benefit) == ("decorated", Stage.LOWER, 3)
    assert decorated.summary == "tanh(x) ⟶ Relu(x)."
    assert decorated.source == __file__
    assert_rewrites(decorated, "y = Tanh(x)", to="y = Relu(x)")


def test_a_function_that_several_rules_have() -> None:
    first = rule("first", RAISE, op.Tanh(x), decorated.rewrite)
    second = rule("second", RAISE, op.Erf(x), decorated.rewrite, needs_speedup=True)
    assert first.rewrite is second.rewrite
    assert second.needs_speedup
    assert_rewrites(second, "y = Erf(x)", to="y = Relu(x)")


def test_a_rule_of_terms_knows_its_module() -> None:
    made = by(x * op.Sigmoid(x), op.Swish(x))
    assert made.source == __file__
    assert made.place.module == __name__
    assert fingerprint(made).modules
    assert made.summary == "x·Sigmoid(x) ⟶ Swish(x)."
    assert by(x * op.Sigmoid(x), op.Swish(x), doc="the same ⟶ said shortly.").summary == "the same ⟶ said shortly."
    assert fingerprint(by(op.Erf(x), op.Swish(x))).sha256 != fingerprint(by(op.Erf(x), op.Mish(x))).sha256


def test_constants_of_a_replacement_are_hints() -> None:
    found = hints(by(op.Erf(x), op.Gelu(x, approximate="tanh") * 17))
    assert 17.0 in found.numbers
    assert "tanh" in found.words


def test_a_declaration_takes_every_setting() -> None:
    positional = {"name", "stage", "pattern", "rewrite"}
    assert Settings.__annotations__.keys() == {f.name for f in fields(Rule) if f.init} - positional


@pytest.mark.parametrize("old", RENAMED)
def test_old_names_of_settings(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} of a rule is") as told:
        made = Rule("old", Stage.RAISE, op.Relu(x), decorated.rewrite, **{old: True})  # type: ignore[arg-type]
    assert told[0].filename == __file__
    assert not RENAMED[old] or getattr(made, RENAMED[old]) is True


# -- what is built ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "replacement", "graph", "to"),
    [
        (op.Log(softmax), op.LogSoftmax(x, axis=axis), "s = Softmax(x)  y = Log(s)", "y = LogSoftmax<axis=-1>(x)"),
        (scale * op.Elu(x), op.Selu(x, gamma=scale, alpha=1.0), "e = Elu(x)  y = Mul(e, 2.0)",
         "y = Selu<alpha=1.0, gamma=2.0>(x)"),
        (scale * op.Elu(x), op.Selu(x, gamma=scale / 4), "e = Elu(x)  y = Mul(e, 2.0)", "y = Selu<gamma=0.5>(x)"),
        (shift * op.Elu(x), op.Selu(x, gamma=shift), "y = Elu(x)", "y = Selu<gamma=1.0>(x)"),
        (op.Erf(x), microsoft.QuickGelu(x, alpha=2.0), "y = Erf(x)", "y = com.microsoft.QuickGelu<alpha=2.0>(x)"),
        (op.Max(x, y), x + y, "y = Max(a, b)", "y = Add(a, b)"),
        (op.Max(x, y), x - 2 * y, "y = Max(a, b)", "m = Mul(2.0, b)  y = Sub(a, m)"),
        (op.Max(x, y), x / y, "y = Max(a, b)", "y = Div(a, b)"),
        (op.Erf(x), 1 / x, "y = Erf(x)", "y = Div(1.0, x)"),
        (op.Erf(x), -x, "y = Erf(x)", "y = Neg(x)"),
        (op.Erf(x), x**-2, "y = Erf(x)", "d = Div(1.0, x)  y = Div(d, x)"),
        (op.Erf(x), op.Sqrt(x) + x**2.5, "y = Erf(x)", "r = Sqrt(x)  p = Pow(x, 2.5)  y = Add(r, p)"),
        (op.Erf(x), op.Relu(2.0), "y = Erf(x)", "y = Relu(2.0)"),
        (op.Tile(op.Tile(x, w), Const("v")), op.Tile(x, w), "t = Tile(x, {2})  y = Tile(t, {3})", "y = Tile(x, {2})"),
        (op.Max(x, w) * scale, op.Max(x, scale * w), "m = Max(x, {1.0, 2.0})  y = Mul(m, 0.5)",
         "y = Max(x, {0.5, 1.0})"),
        (op.Max(x, w) + scale, op.Max(x, op.Sqrt(w - scale)), "m = Max(x, {2.0, 5.0})  y = Add(m, 1.0)",
         "y = Max(x, {1.0, 2.0})"),
        (op.Max(x, rest), op.Min(rest, x), "y = Max(a, b, c)", "y = Min(b, c, a)"),
        (op.Clip(x, min=0.0, max=z), op.Clip(x, None, z), "y = Clip(x, 0.0)", "y = Clip(x)"),
        (op.Relu(inner := op.Abs(x)), inner, "a = Abs(x)  y = Relu(a)", "y = Abs(x)"),
        (op.Exp(either := any_of(op.Relu(x), op.Abs(x))), op.Log(either), "a = Abs(x)  y = Exp(a)",
         "a = Abs(x)  y = Log(a)"),
        (op.Exp(total := x * y), op.Log(total), "p = Mul(a, b)  y = Exp(p)", "p = Mul(a, b)  y = Log(p)"),
        (op.Erf(x), (half := op.Relu(x)) * half, "y = Erf(x)", "r = Relu(x)  y = Mul(r, r)"),
    ],
)  # fmt: skip
def test_terms_build(pattern: Term, replacement: Term, graph: str, to: str) -> None:
    assert_rewrites(by(pattern, replacement), graph, to=to)


def test_several_values() -> None:
    d = op.Sub(x, y)
    both = by((d, op.Sub(y, x)), (d, op.Neg(d)))
    graph = "float[n] a; float[n] b; p = Sub(a, b)  q = Sub(b, a)  y = Mul(p, q)"
    assert_rewrites(both, graph, to="float[n] a; float[n] b; p = Sub(a, b)  q = Neg(p)  y = Mul(p, q)")


def test_outputs_of_nodes() -> None:
    halves = op.Split(x, axis=0, num_outputs=2)
    made = by(op.Erf(x), op.Concat(halves[1], halves[0], axis=0))
    to = "a, b = Split<axis=0, num_outputs=2>(x)  y = Concat<axis=0>(b, a)"
    assert_rewrites(made, "float[4] x; y = Erf(x)", to=f"float[4] x; {to}", opset=18)
    swapped = by((op.Exp(halves[0]), op.Exp(halves[1])), (op.Relu(halves[1]), op.Relu(halves[0])))
    split = "float[4] x; a, b = Split<axis=0, num_outputs=2>(x) "
    assert_rewrites(
        swapped,
        f"{split} p = Exp(a)  q = Exp(b)  y = Sub(p, q)",
        to=f"{split} p = Relu(b)  q = Relu(a)  y = Sub(p, q)",
        opset=18,
    )


def test_a_term_considers_no_attributes() -> None:
    """As a function does that reads none: an attribute that the pattern does not mention must be at its default."""
    strict = by(op.Exp(op.Elu(x)), op.Relu(x))
    assert_rewrites(strict, "e = Elu(x)  y = Exp(e)", to="y = Relu(x)")
    because = "the rule does not consider alpha=0.5 of Elu"
    assert_rejects(strict, "e = Elu<alpha=0.5>(x)  y = Exp(e)", because=because)
    kept = by(op.Relu(elu := op.Elu(x)), elu)
    assert_rejects(kept, "e = Elu<alpha=0.5>(x)  y = Relu(e)", because=because)


def test_a_term_is_refused_where_a_function_is() -> None:
    because = "HardSwish needs opset 14"
    assert_rejects(by(op.Erf(x), op.HardSwish(x)), "y = Erf(x)", because=because, opset=13)


# -- what has no meaning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replacement", "told"),
    [
        (lambda: op.Relu(any_of(x, op.Abs(x))), r"the replacement has alternatives: any_of\(x, Abs\(x\)\)"),
        (lambda: op["Relu", "Abs"](x), r"the replacement has alternatives: Relu\|Abs\(x\)"),
        (lambda: op.Relu(y), "the replacement has y, which not every match of the pattern binds"),
        (lambda: op.Elu(x, alpha=Attr[float]("alpha")), "the replacement has alpha, which not every match"),
        (lambda: op.Elu(x, alpha=1 + scale), "the replacement has scale, which not every match"),
        (lambda: op.Max(x, rest), r"the replacement has \*rest, which not every match"),
        (lambda: AnyNode("n"), "the replacement has n, which not every match"),
        (
            lambda: op.HardSwich(x),
            "the replacement has HardSwich, and no operator is called so; did you mean HardSwish",
        ),
        (lambda: op.Relu(x, alpha=1.0), "Relu has no attribute or input 'alpha' in any opset"),
        (lambda: (1.0,), "the replacement must be a function, a term or a tuple of terms"),
        (lambda: (x, x), "the pattern has 1 values, the replacement 2"),
    ],
)
def test_terms_that_are_refused(replacement: Any, told: str) -> None:
    with pytest.raises(RuleError, match=rf"^rule tried: .*{told}.* \(test_replacement.py, line \d+\)$"):
        by(op.Tanh(x), replacement())


def test_only_what_every_alternative_binds_is_bound() -> None:
    pattern = any_of(op.Exp(op.Max(x, y)), op.Exp(x))
    with pytest.raises(RuleError, match="the replacement has y, which not every match of the pattern binds"):
        by(pattern, op.Relu(y))
    assert_rewrites(by(pattern, op.Relu(x)), "m = Max(a, b)  y = Exp(m)", to="y = Relu(a)")


def test_a_function_says_itself_what_it_does() -> None:
    for given in ((), (decorated.rewrite,)):
        with pytest.raises(
            RuleError, match=r"^rule tried: doc is for a replacement of terms.* \(test_replacement.py, "
        ):
            rule("tried", RAISE, op.Tanh(x), *given, doc="tanh(x) ⟶ x.")  # type: ignore[call-overload]


def test_matches_of_the_rest_are_no_values() -> None:
    each = Each[Any]("each", of=op.Relu(x))
    with pytest.raises(RuleError, match="stands for matches and not for values"):
        by(op.Max(each), op.Min(each))


# -- formulas -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (x * op.Sigmoid(shift * x), "x·Sigmoid(shift·x)"),
        (x / (1 + op.Abs(x)), "x/(1 + Abs(x))"),
        (0.5 * x * (1 + op.Tanh(x + 0.044715 * x**3)), "0.5·x·(1 + Tanh(x + 0.044715·x³))"),
        (x - (y - 1.5), "x - y + 1.5"),
        (-x * y, "-x·y"),
        (1 / (x * y), "1/(x·y)"),
        (1 / x**2, "1/x²"),
        (op.Sqrt(x + 1), "√(x + 1)"),
        ((x + y) ** 2.5, "(x + y)^2.5"),
        (any_of(op.Relu(x), op.Max(x, 0.0)), "Relu(x)"),
        (microsoft.QuickGelu(x, alpha=1 / 3), "com.microsoft.QuickGelu(x, alpha=0.333333)"),
        (op.Elu(x, alpha=Attr[float]("alpha")) * Scalar("beta"), "Elu(x, alpha=α)·β"),
        (op.Gelu(x, approximate="tanh"), "Gelu(x, approximate='tanh')"),
        (op.Clip(x, None, y), "Clip(x, , y)"),
        (op.Split(x, axis=0)[1], "Split(x, axis=0)[1]"),
        (op.Concat(rest, axis=axis), "Concat(*rest, axis=axis)"),
        (x * math.sqrt(2), "x·1.41421"),
    ],
)
def test_formula(term: Term, expected: str) -> None:
    assert formula(term) == expected
