"""Which rules can match at a node, and in which order they are tried."""

from __future__ import annotations

from typing import Any

from driving import rule, x

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.rewrite.index import RuleIndex, index
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rules import AnyNode, op


def keep(m: Any, build: Any) -> Any:
    return m[x]


def rules_at(rules: list[Rule], source: str, value: str) -> list[tuple[str, str | None]]:
    """The names of the rules that can match where ``value`` is computed, and their anchors."""
    model = text.parse(source)
    facts = Facts(model.graph, dict(model.opset_imports))
    node = next(n for n in model.graph if value in [o.name for o in n.outputs])
    found = RuleIndex(rules)
    return [(r.name, v.name) for r, v in found.at(found.view(facts, model.graph), node)]


def test_rules_by_operator() -> None:
    relu = rule("b-relu", op.Relu(x), keep)
    strong = rule("z-relu", op.Relu(x), keep, benefit=5)
    both = rule("a-both", op["Relu", "Neg"](x), keep)
    anywhere = rule("c-any", AnyNode(), keep)
    rules = [relu, strong, both, anywhere]
    graph = "float x; a = Relu(x)  b = Neg(a)  c = Abs(b)"
    assert [n for n, _ in rules_at(rules, graph, "a")] == ["z-relu", "a-both", "b-relu", "c-any"]
    assert [n for n, _ in rules_at(rules, graph, "b")] == ["a-both", "c-any"]
    assert [n for n, _ in rules_at(rules, graph, "c")] == ["c-any"]


def test_the_order_does_not_depend_on_that_of_the_rules() -> None:
    rules = [rule(f"r{i}", op.Relu(x), keep, benefit=i % 3) for i in range(9)]
    graph = "float x; a = Relu(x)"
    assert rules_at(rules, graph, "a") == rules_at(rules[::-1], graph, "a")


def test_rules_of_several_outputs_are_tried_by_benefit_first() -> None:
    split = op.Split(x)
    rules = [rule("first", split, keep), rule("second", split[1], keep, benefit=1)]
    found = rules_at(rules, "float[4] x; a, b = Split(x)  y = Add(a, b)", "a")
    assert found == [("second", "b"), ("first", "a")]


def test_no_rules() -> None:
    assert rules_at([], "float x; a = Relu(x)", "a") == []


def test_the_index_of_the_same_rules_is_made_once() -> None:
    rules = (rule("relu", op.Relu(x), keep),)
    assert index(rules) is index(rules)
