"""Cheapest cuts, circles, and news that reaches a node by two paths."""

from __future__ import annotations

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import cheapest_cut, is_circular


def test_cheapest_cut_is_the_cheapest_and_then_the_larger() -> None:
    costs = [("s", "a", 3), ("a", "b", 1), ("b", "t", 1), ("a", "t", 0)]
    assert cheapest_cut(costs, "s", "t") == {"s", "a", "b"}
    assert cheapest_cut([*costs, ("b", "t", 2)], "s", "t") == {"s", "a"}
    assert cheapest_cut([*costs, ("b", "a", None), ("b", "t", 2)], "s", "t") == {"s", "a"}


def test_forbidden_division_is_never_chosen() -> None:
    assert cheapest_cut([("s", "a", None), ("a", "t", 9), ("s", "t", 1)], "s", "t") == {"s", "a"}


def test_replacing_a_value_by_one_below_it_is_circular() -> None:
    graph = text.parse("a = Relu(x)  b = Neg(a)  c = Abs(b)").graph
    a, b, c = (n.outputs[0] for n in graph)
    assert is_circular([c], {a: c})
    assert not is_circular([c], {c: b})
    assert not is_circular([c, b], {})


def test_news_by_two_paths_reaches_what_lies_below() -> None:
    model = text.parse("float[n] x; float[m] z; a = Relu(x)  b = Abs(z)  c = Add(a, b)  y = Neg(c)")
    facts = Facts(model.graph, dict(model.opset_imports))
    x, z = model.graph.inputs
    known = text.parse("float[k] w; y = Relu(w)").graph.inputs[0].shape
    for value in (x, z):
        value.shape = known
    nodes = list(model.graph)
    for node in nodes[:2]:
        node.outputs[0].shape = None
    facts.refresh([n for n in nodes if n.op_type in ("Relu", "Abs")])
    assert [str(d) for d in model.graph.outputs[0].shape or ()] == ["k"]
