"""Which nodes are visited again after a change."""

from __future__ import annotations

from typing import Any

import pytest
from driving import drive, printed, rule, x

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.terms import Term
from onnxrewrite.rewrite.reach import Reach, anchors, depth
from onnxrewrite.rules import AnyNode, Const, Each, Scalar, Var, any_of, op

z = Var("z")


def keep(m: Any, build: Any) -> Any:
    return m[x]


def reached(pattern: Term | tuple[Term, ...], source: str, *changed: str, **options: Any) -> str:
    """What is visited after ``changed``, by the first letters of the values' names."""
    model = text.parse(source)
    Facts(model.graph, dict(model.opset_imports))
    nodes = {n.outputs[0].name or "": n for n in model.graph.all_nodes()}
    found = Reach([rule("r", pattern, keep, **options)]).after(nodes[name] for name in changed)
    return " ".join(sorted(n.outputs[0].name or "" for n in found))


LADDER = "float[2] x; a = Relu(x)  b = Tan(a)  c = Abs(b)  d = Exp(c)  e = Max(x, c)  f = Sin(x)"


def test_what_changed_is_visited_and_what_a_pattern_has_below_it() -> None:
    assert reached(op.Tan(op.Relu(x)), LADDER, "a") == "a b"
    assert reached(op.Tan(op.Relu(x)), LADDER, "b") == "b"
    assert reached(op.Abs(op.Tan(op.Relu(x))), LADDER, "a") == "a b c"
    assert reached(op.Abs(op.Tan(op.Relu(x))), LADDER, "c", "f") == "c f"
    assert reached(op.Abs(op.Tan(op.Relu(x))), LADDER) == ""


def test_alternatives_lead_on() -> None:
    assert reached(op.Abs(any_of(op.Tan(any_of(x, op.Relu(x))), op.Sin(x))), LADDER, "a") == "a b c"
    assert (
        reached(op.Concat(Each("xs", of=op.Relu(x))), "float[2] x; a = Relu(x)  b = Concat<axis=0>(a, x)", "a") == "a b"
    )
    assert reached(op.Abs(AnyNode()), LADDER, "b") == "b c"


def test_identities_are_passed() -> None:
    graph = "float[2] x; a = Relu(x)  i = Identity(a)  j = Cast<to=1>(i)  b = Tan(j)"
    assert reached(op.Tan(op.Relu(x)), graph, "a") == "a b i j"


CHAIN = "  ".join(f"m{i} = {('Add', 'Sub')[i % 2]}(m{i - 1}, x)" for i in range(1, 9))


def test_a_chain_counts_as_one_step() -> None:
    graph = f"float[2] x; m0 = Exp(x)  {CHAIN}  n = Abs(m8)"
    everything = " ".join(f"m{i}" for i in range(9))
    assert reached(op.Exp(x) + Const("c"), graph, "m0") == everything
    assert reached(op.Abs(op.Exp(x) + Const("c")), graph, "m0") == f"{everything} n"
    assert reached(op.Exp(x) * Const("c"), graph, "m0") == "m0"


def test_no_further_than_a_chain_can_be() -> None:
    long = "  ".join(f"m{i:02} = Add(m{i - 1:02}, x)" for i in range(1, 60))
    found = reached(op.Exp(x) + z, f"float[2] x; m00 = Exp(x)  {long}", "m00").split()
    assert 24 <= len(found) <= 26


def test_what_others_need_too_is_no_inner_value() -> None:
    graph = "float[2] x; a = Relu(x)  b = Tan(a)  c = Exp(a)  d = Sin(a)"
    assert reached(op.Tan(op.Relu(x)), graph, "a") == "a"
    assert reached(op.Tan(op.Relu(x)), graph, "a", allow_shared=True) == "a b"
    inner = op.Relu(x)
    thrice = op.Add(op.Tan(inner), op.Add(op.Exp(inner), op.Sin(inner)))
    assert reached(thrice, graph, "a") == "a b c d"


def test_values_that_lose_a_reader() -> None:
    model = text.parse("float[2] x; a = Relu(x)  b = Tan(a)  c = Exp(a)")
    a, b, c = model.graph
    reach = Reach([rule("r", op.Tan(op.Relu(x)), keep)])
    assert reach.after([], a.outputs) == []
    c.replace_input_with(0, model.graph.inputs[0])
    assert reach.after([], a.outputs) == [a, b]


def test_partners_of_several_outputs() -> None:
    graph = "float[2] x; a = Relu(x)  b = Tan(a)  c = Exp(a)"
    assert reached((op.Tan(z), op.Exp(z)), graph, "c") == "b c"


def test_into_subgraphs_and_not_out() -> None:
    graph = (
        "float[2] x; bool c; a = Relu(x)  y = If<then_branch = () => (b) { b = Neg(a) }, "
        "else_branch = () => (d) { d = Abs(x) }>(c)  z = Exp(y)"
    )
    assert reached(op.Neg(op.Relu(x)), graph, "a") == "a b"
    assert reached(op.Exp(op.Relu(x)), graph, "b") == "b"


def test_a_match_that_needs_two_rewrites_below_it() -> None:
    """The anchor is visited again although it is three nodes below what changed last."""
    deep = rule("deep", op.Exp(op.Abs(op.Tan(op.Relu(x)))), lambda m, build: build.Sin(m[x]))
    first = rule("first", op.Neg(op.Neg(x)), lambda m, build: build.Relu(m[x]))
    driver = drive("float[2] x; a = Neg(x)  b = Neg(a)  c = Tan(b)  d = Abs(c)  y = Exp(d)", [deep, first])
    assert printed(driver) == "[Exp] y = Sin(x)"


@pytest.mark.parametrize(
    ("pattern", "expected"),
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
def test_anchors(pattern: Term, expected: set[str] | None) -> None:
    assert anchors(pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
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
def test_depth(pattern: Term, expected: int) -> None:
    assert depth(pattern) == expected
