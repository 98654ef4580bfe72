"""Ranks tell what depends on what, and still do after the graph has changed."""

from __future__ import annotations

import networkx as nx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxrewrite.ir import text
from onnxrewrite.ir.graph import digraph, scopes, subgraphs
from onnxrewrite.ir.topological_rank import Order

NESTED = (
    "float[2] x; bool c; a = Relu(x)  y = If<then_branch = () => (p) { p = Neg(a) }, "
    "else_branch = () => (q) { q = Abs(x) }>(c)  z = Exp(y)"
)


def values(model: ir.Model) -> dict[str, ir.Value]:
    found = {v.name or "": v for v in model.graph.inputs}
    found.update({o.name or "": o for n in model.graph.all_nodes() for o in n.outputs})
    return found


def order(model: ir.Model) -> Order:
    owners = {g: n for scope in scopes(model) for n in scope for g in subgraphs(n)}
    return Order([model.graph], owners)


def test_depends_on() -> None:
    model = text.parse("float x; a = Relu(x)  b = Neg(a)  y = Exp(b)  z = Abs(x)")
    found, ranks = values(model), order(model)
    assert ranks.depends_on([found["y"]], [found["a"]])
    assert ranks.depends_on([found["a"]], [found["a"]])
    assert ranks.depends_on([found["z"], found["b"]], [found["a"]])
    assert not ranks.depends_on([found["a"]], [found["y"]])
    assert not ranks.depends_on([found["z"]], [found["a"]])
    assert not ranks.depends_on([found["y"]], [found["x"]]), "an input is computed from nothing"
    assert not ranks.depends_on([], [found["a"]])


def test_what_subgraphs_read() -> None:
    model = text.parse(NESTED)
    found, ranks = values(model), order(model)
    assert ranks.depends_on([found["y"]], [found["a"]])
    assert ranks.depends_on([found["p"]], [found["a"]])
    assert not ranks.depends_on([found["q"]], [found["a"]])


def test_a_deep_graph() -> None:
    chain = "  ".join(f"v{i} = Neg(v{i - 1})" for i in range(1, 1500))
    model = text.parse(f"float x; v0 = Relu(x)  {chain}")
    found = values(model)
    assert order(model).depends_on([found["v1499"]], [found["v0"]])


def test_a_reader_inside_a_subgraph_lifts_the_node_around_it() -> None:
    model = text.parse(NESTED.replace("z = Exp(y)", "z = Exp(y)  late = Tan(x)"))
    found, ranks = values(model), order(model)
    inner, late = found["p"].producer(), found["late"]
    assert inner is not None
    inner.replace_input_with(0, late)
    ranks.redirect(late, [inner])
    assert not ranks.is_sorted
    assert ranks.depends_on([found["z"]], [late])
    assert not ranks.depends_on([found["z"]], [found["a"]])


@st.composite
def random_graphs(draw: st.DrawFn) -> ir.Model:
    statements, known = [], ["x"]
    for i in range(draw(st.integers(2, 12))):
        a, b = (draw(st.sampled_from(known)) for _ in range(2))
        statements.append(f"v{i} = Add({a}, {b})")
        known.append(f"v{i}")
    return text.parse("float x; " + "  ".join(statements))


@pytest.mark.slow
@settings(max_examples=300)
@given(random_graphs(), st.data())
def test_after_random_changes(model: ir.Model, data: st.DataObject) -> None:
    """Nodes come in and readers are redirected, never into a circle; the ranks stay right all the time."""
    ranks = order(model)
    for _ in range(data.draw(st.integers(0, 6))):
        members = list(model.graph)
        reach = dict(nx.all_pairs_shortest_path_length(digraph(members)))
        anchor, source = data.draw(st.sampled_from(members)), data.draw(st.sampled_from(members))
        if source in reach[anchor]:
            continue
        new = ir.Node("", "Neg", [source.outputs[0]]) if data.draw(st.booleans()) else source
        if new is not source:
            model.graph.insert_before(anchor, new)
            ranks.insert([new], anchor)
        readers = [r for r in anchor.outputs[0].consumers() if r is not new]
        for reader in readers:
            for index, value in enumerate(reader.inputs):
                if value is anchor.outputs[0]:
                    reader.replace_input_with(index, new.outputs[0])
        ranks.redirect(new.outputs[0], readers)
    members = list(model.graph)
    reach = dict(nx.all_pairs_shortest_path_length(digraph(members)))
    for a in members:
        for b in members:
            assert ranks.depends_on(a.outputs, b.outputs) == (a in reach[b])
            assert a not in reach[b] or ranks.rank(a) >= ranks.rank(b)
    if ranks.is_sorted:
        places = {node: place for place, node in enumerate(members)}
        assert all(places[a] <= places[b] for a in members for b in reach[a])
