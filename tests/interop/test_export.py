"""Our patterns as onnxscript's: what is exported matches the graphs of the rule's own examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from onnxscript.rewriter import RewriteRule

from onnxrewrite.interop.onnxscript import NotExpressible, export
from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.rewrite import registry
from onnxrewrite.rules import (
    FLOATS,
    AnyNode,
    Attr,
    Call,
    Const,
    Each,
    Rewrites,
    Rule,
    Scalar,
    Stage,
    Term,
    Var,
    any_of,
    op,
)

LIBRARY = list(registry.load(plugins=False))
x, y, z = Var("x"), Var("y"), Var("z")


def a_rule(pattern: Term | tuple[Term, ...], name: str = "a-rule") -> Rule:
    return Rule(name, Stage.RAISE, pattern, lambda m, build: m[x])


def compiled(source: str) -> Iterator[RewriteRule]:
    """The rules that an exported text makes, in every order of operands."""
    space: dict[str, Any] = {}
    exec(compile(source, "exported.py", "exec"), space)
    for name in [n for n in space if f"def {n}(" in source and not n.endswith("_condition")]:
        made = RewriteRule(space[name], lambda op, **_: None, space.get(f"{name}_condition"), name=name)
        several = sum(str(n.op_type) in ("Add", "Mul", "Min", "Max") for n in made._target_pattern)
        yield from made.commute() if several <= 6 else [made]  # each of them doubles their number


def matches(source: str, graph: str, opset: int = 17) -> bool:
    model = text.parse(graph, opset=opset)
    Facts(model.graph, dict(model.opset_imports))
    rules = list(compiled(source))
    return any(rule.match(model, model.graph, node) for rule in rules for node in model.graph)


def expressible(rule: Rule, opset: int) -> str | None:
    try:
        return export(rule, opset=opset)
    except NotExpressible:
        return None


# ------------------------------------------------------------------------------------------------------ the library


@pytest.mark.parametrize(
    "name",
    ["gelu-erf", "swish", "hard-swish", "mish", "layer-norm", "transpose-transpose", "swish-lower"],
)
def test_the_library_round_trips(name: str) -> None:
    (rule,) = (r for r in LIBRARY if r.name == name)
    examples = [e for e in rule.examples if isinstance(e, Rewrites)]
    found = [e for e in examples if matches(export(rule, opset=e.opset), e.graph, e.opset)]
    assert found, export(rule)


def test_most_of_what_can_be_said_matches_some_example() -> None:
    """Spellings that onnxscript does not know to be equal are what is missing."""
    told, matched = 0, 0
    for rule in LIBRARY:
        examples = [e for e in rule.examples if isinstance(e, Rewrites)]
        sources = [(e, s) for e in examples if (s := expressible(rule, e.opset)) is not None]
        told += bool(sources)
        matched += any(matches(source, e.graph, e.opset) for e, source in sources)
    assert told >= 60
    assert matched >= 0.6 * told


# ---------------------------------------------------------------------------------------------------- what it says


CASES: dict[str, tuple[Term | tuple[Term, ...], str, str]] = {
    "a formula": (
        0.5 * x * (1 + op.Erf(x / 1.5)),
        "h = Mul(0.5, x)  d = Div(x, 1.5)  e = Erf(d)  a = Add(1.0, e)  y = Mul(h, a)",
        "h = Mul(0.5, x)  d = Div(x, 1.6)  e = Erf(d)  a = Add(1.0, e)  y = Mul(h, a)",
    ),
    "an attribute": (op.Softmax(x, axis=1), "y = Softmax(x, axis=1)", "y = Softmax(x, axis=0)"),
    "a default that is not written": (op.Softmax(x, axis=-1), "y = Softmax(x)", "y = Softmax(x, axis=1)"),
    "an attribute that nobody asked for": (op.LeakyRelu(x), "y = LeakyRelu(x)", "y = LeakyRelu(x, alpha=0.5)"),
    "a captured attribute": (op.Softmax(x, axis=Attr[int]("axis")), "y = Softmax(x, axis=1)", "y = Softmax(x)"),
    "a parameter that is an input": (
        op.ReduceSum(x, axes=(-1,), keepdims=1),
        "y = ReduceSum(x, {-1}, keepdims=1)",
        "y = ReduceSum(x, {0}, keepdims=1)",
    ),
    "a constant": (op.Add(op.Relu(x), Const("c")), "r = Relu(x)  y = Add(r, {1.0, 2.0})", "r = Relu(x)  y = Add(r, z)"),
    "a number": (
        op.Add(op.Relu(x), Scalar("c")),
        "r = Relu(x)  y = Add(r, {2.0})",
        "r = Relu(x)  y = Add(r, {1.0, 2.0})",
    ),
    "an operand that may be absent": (
        op.Conv(x, y, Var("b", default=None)),
        "float[1,2,5,5] x; y = Conv(x, float[2,2,3,3] ~)",
        "float[1,2,5,5] x; r = Relu(x)",
    ),
    "an input that must be absent": (op.Clip(x, None, 6.0), "y = Clip(x, , 6.0)", "y = Clip(x, 0.0, 6.0)"),
    "alternatives": (op.Neg(any_of(op.Relu(x), op.Abs(x))), "a = Abs(x)  y = Neg(a)", "a = Exp(x)  y = Neg(a)"),
    "alternatives at the end": (any_of(op.Neg(op.Relu(x)), op.Exp(op.Abs(x))), "a = Abs(x)  y = Exp(a)", "y = Exp(x)"),
    "several operators": (op.Neg(op["Relu", "Abs"](op.Exp(x))), "e = Exp(x)  a = Abs(e)  y = Neg(a)", "y = Neg(x)"),
    "a shared value": (
        op.Mul(op.Tanh(x), op.Sigmoid(op.Tanh(x))),
        "t = Tanh(x)  u = Tanh(x)  s = Sigmoid(u)  y = Mul(t, s)",
        "t = Tanh(x)  u = Tanh(z)  s = Sigmoid(u)  y = Mul(t, s)",
    ),
    "a square": (op.Neg(op.Relu(x) ** 2), "r = Relu(x)  p = Pow(r, 2.0)  y = Neg(p)", "r = Relu(x)  y = Neg(r)"),
    "a root": (op.Neg(op.Sqrt(x)), "s = Pow(x, 0.5)  y = Neg(s)", "s = Pow(x, 0.25)  y = Neg(s)"),
    "a reciprocal": (1 / op.Exp(x), "e = Exp(x)  y = Div(1.0, e)", "e = Exp(x)  y = Div(2.0, e)"),
    "a difference": (
        op.Exp(x) - op.Abs(y),
        "e = Exp(x)  a = Abs(y)  d = Sub(e, a)",
        "e = Exp(x)  a = Abs(y)  d = Sub(a, e)",
    ),
    "a negative first": (op.Exp(x) - op.Abs(x), "e = Exp(x)  a = Abs(x)  d = Sub(e, a)", "e = Exp(x)  d = Sub(e, x)"),
    "a dtype": (op.Neg(Var("x", dtype=FLOATS)), "double[2] x; y = Neg(x)", "int64[2] x; y = Neg(x)"),
    "a rank": (op.Neg(Var("x", rank=2)), "float[2,3] x; y = Neg(x)", "float[2] x; y = Neg(x)"),
    "another domain": (
        Call("Gelu", [x], domain="com.microsoft"),
        "y = com.microsoft.Gelu(x)",
        "y = com.microsoft.FastGelu(x)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_matches_what_the_pattern_means(case: str) -> None:
    pattern, right, wrong = CASES[case]
    source = export(a_rule(pattern))
    assert matches(source, right), source
    assert not matches(source, wrong), source


def test_several_outputs() -> None:
    split = op.Split(x, axis=0, num_outputs=2)
    source = export(a_rule((op.Neg(split[0]), op.Exp(split[1]))), opset=18)
    assert matches(source, "float[4] x; a, b = Split(x, axis=0, num_outputs=2)  c = Neg(a)  d = Exp(b)", 18), source
    assert not matches(source, "float[4] x; a, b = Split(x, axis=0, num_outputs=2)  c = Neg(b)  d = Exp(a)", 18)


def test_names_that_python_does_not_take() -> None:
    pattern = op.Add(Var("lambda"), op.Mul(Var("op"), Var("x y")))
    source = export(a_rule(pattern, "2-names"))
    assert matches(source, "m = Mul(a, b)  y = Add(c, m)"), source


def test_two_captures_of_one_name() -> None:
    source = export(a_rule(op.Sub(Var("x"), Var("x"))))
    assert matches(source, "y = Sub(a, b)"), source


def test_the_text_is_readable() -> None:
    rule = a_rule(0.5 * x * (1 + op.Erf(x / 1.5)), "half-erf")
    assert export(rule) == (
        "from onnxscript.rewriter import pattern\n\n\n"
        "def half_erf(op, x):\n    return (0.5 * x * (1 + op.Erf((x / 1.5))))\n"
    )


def test_alternatives_at_the_end_are_functions_of_their_own() -> None:
    source = export(a_rule(any_of(op.Neg(x), op.Exp(x))))
    assert [line for line in source.splitlines() if line.startswith("def ")] == [
        "def a_rule_1(op, x):",
        "def a_rule_2(op, x):",
    ]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (AnyNode("anything"), "anything: onnxscript has no pattern for any node that a function picks"),
        (op.Neg(AnyNode("anything")), "no pattern for any node"),
        (op.Concat(Each("xs")), "Concat takes any number of inputs"),
        ((op.Neg(x), any_of(op.Exp(x), op.Abs(x))), "one of several outputs is one of alternatives"),
    ],
)
def test_what_cannot_be_said(pattern: Any, reason: str) -> None:
    with pytest.raises(NotExpressible) as raised:
        export(a_rule(pattern))
    assert str(raised.value).startswith("a-rule cannot be written for onnxscript: ")
    assert reason in str(raised.value)
