"""Cheapest cuts, circles, and news that reaches a node by two paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import is_circular
from onnxrewrite.ir.min_cut import Cut

Costs = list[tuple[str, str, int | None]]


class Network:
    """Tells the costs that concern a vertex, and remembers who was asked for."""

    def __init__(self, costs: Costs):
        self.untold = dict(enumerate(costs))
        self.asked: Counter[Hashable] = Counter()

    def __call__(self, vertex: Hashable) -> Costs:
        self.asked[vertex] += 1
        return [self.untold.pop(i) for i, cost in list(self.untold.items()) if vertex in cost]


def far_side(costs: Costs, start: str = "a") -> set[Hashable]:
    return Cut("s", "t", Network(costs)).far_side(start)


def paid(costs: Costs, far: Iterable[Hashable]) -> int:
    """What a division costs; to leave all with the source costs what lies before the sink."""
    side = {"t", *far}
    return sum(1000 if c is None else c for tail, head, c in costs if tail not in side and head in side)


def test_far_side_is_the_cheaper_and_then_the_larger() -> None:
    assert far_side([("s", "a", 1), ("a", "t", 1)]) == set()
    assert far_side([("s", "a", 1), ("a", "t", 2)]) == {"a"}
    assert far_side([("s", "a", 1), ("s", "a", 1), ("a", "t", 2)]) == set()
    assert far_side([("a", "t", 2), ("a", "b", 3), ("s", "b", 0), ("b", "c", 1), ("s", "c", 1)]) == {"a", "b"}
    assert far_side([("s", "a", 1), ("s", "b", 1), ("a", "b", 3), ("a", "t", 2)]) == {"a"}
    assert far_side([("s", "a", 1), ("a", "b", 3), ("a", "t", 2)]) == {"a", "b"}


def test_forbidden_division_is_never_chosen() -> None:
    assert far_side([("s", "a", None), ("a", "t", 9)]) == set()
    assert far_side([("b", "a", None), ("s", "b", 5), ("a", "t", 9)]) == {"a", "b"}


def test_two_that_share_a_cost_are_weighed_together() -> None:
    costs: Costs = [("s", "c", 1), ("c", "a", None), ("c", "b", None), ("a", "t", 1), ("b", "t", 1)]
    assert far_side(costs) == {"a", "b", "c"}


def test_what_is_refused_nearby_is_not_looked_for_far_away() -> None:
    chain: Costs = [(f"v{i + 1}", f"v{i}", 1) for i in range(1000)]
    network = Network([*chain, ("v0", "t", 1), ("s", "v2", 1)])
    assert Cut("s", "t", network).far_side("v0") == set()
    assert len(network.asked) < 60


vertices = st.sampled_from("abcdef")
costs = st.lists(
    st.one_of(
        st.tuples(st.just("s"), vertices, st.integers(0, 4)),
        st.tuples(vertices, st.just("t"), st.integers(0, 4)),
        st.tuples(vertices, vertices, st.one_of(st.none(), st.integers(0, 4))).filter(lambda c: c[0] != c[1]),
    ),
    max_size=24,
)


@given(costs)
def test_network_told_at_once_is_divided_as_networkx_does(costs: Costs) -> None:
    told = iter([costs])
    far = Cut("s", "t", lambda _: next(told, [])).far_side("a")
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from("st")
    for tail, head, cost in costs:
        before = graph.get_edge_data(tail, head, {"capacity": 0})["capacity"]
        graph.add_edge(tail, head, capacity=before + (1000 if cost is None else cost))
    least = nx.minimum_cut_value(graph, "s", "t")
    assert paid(costs, far) == least
    assert (far == set()) == (paid(costs, ()) == least)


@given(costs)
def test_network_told_bit_by_bit_is_divided_only_where_that_saves(costs: Costs) -> None:
    network = Network(costs)
    far = Cut("s", "t", network).far_side("a")
    assert not far or paid(costs, far) < paid(costs, ())
    assert set(network.asked.values()) <= {1}


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
