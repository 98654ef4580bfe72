"""Views of a graph, against what they must say of graphs that one can survey."""

from __future__ import annotations

import re
from collections.abc import Iterable

import networkx as nx
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import (
    constant_tensor,
    digraph,
    extract,
    is_circular,
    is_convex,
    isomorphic,
    outer_values,
    scopes,
    subgraphs,
    topological,
)

NESTED = (
    "(float[2] x, bool c) => (float[2] y) <float[2] w = {1.0, 2.0}> { a = Relu(x)  k = Neg(x)  y = If<"
    "then_branch = () => (float[2] p) { p = If<then_branch = () => (float[2] r) { r = Add(a, w) },"
    " else_branch = () => (float[2] s) { s = Exp(x) }>(c) },"
    " else_branch = () => (float[2] q) <float[2] v = {3.0, 4.0}> { t = Abs(k)  q = Add(t, v) }>(c) }"
    ' <domain: "own", opset_import: ["": 17]> F (f) => (g) { g = Neg(f) }'
)


def values(model: ir.Model) -> dict[str, ir.Value]:
    found = {v.name or "": v for v in (*model.graph.inputs, *model.graph.initializers.values())}
    return found | {o.name or "": o for n in model.graph.all_nodes() for o in n.outputs}


def nodes(model: ir.Model) -> dict[str, ir.Node]:
    return {o.name or "": n for n in model.graph.all_nodes() for o in n.outputs}


def names(found: Iterable[ir.Value]) -> list[str]:
    return [v.name or "" for v in found]


# -- scopes -------------------------------------------------------------------------------------------------------


def test_subgraphs_are_those_directly_inside() -> None:
    found = nodes(text.parse(NESTED))
    assert {g.name for g in subgraphs(found["y"])} == {"then_branch", "else_branch"}
    assert len(subgraphs(found["p"])) == 2
    assert subgraphs(found["a"]) == []


def test_subgraphs_of_lists_and_references() -> None:
    inner = [ir.Graph([], [], nodes=[], name=n) for n in "ab"]
    node = ir.Node(
        "own", "Switch", [], [ir.AttrGraphs("cases", inner), ir.RefAttr("body", "b", ir.AttributeType.GRAPH)]
    )
    assert subgraphs(node) == inner


def test_scopes_are_all_graphs_outer_before_inner() -> None:
    model = text.parse(NESTED)
    found = scopes(model)
    assert len(found) == len(set(found)) == 6
    assert found[0] is model.graph
    assert found[-1] is next(iter(model.functions.values())).graph
    inside = {g: [i for n in g for i in subgraphs(n)] for g in found}
    for outer, inner in inside.items():
        assert all(found.index(outer) < found.index(i) for i in inner)


def test_outer_values() -> None:
    found = nodes(text.parse(NESTED))
    assert set(names(outer_values(found["y"]))) == {"a", "w", "x", "c", "k"}
    assert set(names(outer_values(found["p"]))) == {"a", "w", "x"}
    assert outer_values(found["q"]) == []


def test_outer_values_that_a_branch_hands_through() -> None:
    model = text.parse(
        "float[2] x; bool c; a = Relu(x)  y = If<then_branch = () => (a) {}, else_branch = () => (q) { q = Neg(x) }>(c)"
    )
    assert names(outer_values(nodes(model)["y"])) in (["a", "x"], ["x", "a"])


# -- order and dependence -----------------------------------------------------------------------------------------


def test_digraph() -> None:
    model = text.parse("float x; a = Relu(x)  b = Neg(a)  c = Add(a, a)  y = Mul(b, c)")
    found = nodes(model)
    edges = {(s.outputs[0].name, t.outputs[0].name) for s, t in digraph(model.graph).edges}
    assert edges == {("a", "b"), ("a", "c"), ("b", "y"), ("c", "y")}
    part = digraph([found["b"], found["y"]])
    assert set(part.nodes) == {found["b"], found["y"]}
    assert list(part.edges) == [(found["b"], found["y"])]


def test_digraph_sees_what_subgraphs_read() -> None:
    model = text.parse(NESTED)
    found = nodes(model)
    graph = digraph(model.graph)
    assert graph.has_edge(found["a"], found["y"])
    assert graph.has_edge(found["k"], found["y"])


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("ab", True),
        ("abd", False),
        ("acd", False),
        ("abcd", True),
        ("bc", True),
        ("ad", False),
        ("", True),
        ("e", True),
        ("ae", True),
        ("de", True),
    ],
)
def test_is_convex(part: str, expected: bool) -> None:
    """A diamond a → b, c → d with a tail e."""
    model = text.parse("float x; a = Relu(x)  b = Neg(a)  c = Exp(a)  d = Add(b, c)  e = Abs(x)  y = Mul(d, e)")
    found = nodes(model)
    assert is_convex([found[p] for p in part], model.graph) == expected


def test_a_path_through_a_subgraph_breaks_convexity() -> None:
    model = text.parse(NESTED.replace("k = Neg(x)", "k = Neg(a)"))
    found = nodes(model)
    assert not is_convex([found["a"], found["y"]], model.graph)
    assert is_convex([found["a"], found["k"], found["y"]], model.graph)


@st.composite
def random_graphs(draw: st.DrawFn) -> ir.Model:
    statements, known = [], ["x"]
    for i in range(draw(st.integers(2, 9))):
        a, b = (draw(st.sampled_from(known)) for _ in range(2))
        statements.append(f"v{i} = Add({a}, {b})")
        known.append(f"v{i}")
    return text.parse("float x; " + "  ".join(statements))


@given(random_graphs(), st.data())
@settings(max_examples=60, deadline=None)
def test_convexity_against_its_definition(model: ir.Model, data: st.DataObject) -> None:
    members = list(model.graph)
    part = data.draw(st.lists(st.sampled_from(members), unique=True))
    graph = digraph(members)
    reach = dict(nx.all_pairs_shortest_path_length(graph))
    between = [
        m for m in members if m not in part and any(m in reach[a] for a in part) and any(b in reach[m] for b in part)
    ]
    assert is_convex(part, members) == (not between)


@given(random_graphs(), st.data())
@settings(max_examples=40, deadline=None)
def test_topological_order_of_a_part(model: ir.Model, data: st.DataObject) -> None:
    members = list(model.graph)
    part = data.draw(st.lists(st.sampled_from(members), unique=True))
    made = topological(part)
    assert sorted(map(id, made)) == sorted(map(id, part))
    graph = digraph(part)
    assert all(made.index(a) < made.index(b) for a, b in graph.edges)
    in_order = [m for m in members if m in part]
    assert list(topological(in_order)) == in_order, "what is in order stays so"


def test_is_circular_in_a_deep_graph() -> None:
    chain = "  ".join(f"v{i} = Neg(v{i - 1})" for i in range(1, 1500))
    found = values(text.parse(f"float x; v0 = Relu(x)  {chain}"))
    assert not is_circular([found["v1499"]], {})
    assert is_circular([found["v1499"]], {found["v0"]: found["v1498"]})


def test_is_circular() -> None:
    found = values(text.parse("float x; a = Relu(x)  b = Neg(x)  c = Exp(a)  d = Log(b)  y = Add(c, d)"))
    a, b, c, d = (found[n] for n in "abcd")
    assert not is_circular([c, d], {})
    assert not is_circular([d, c], {a: d})
    assert is_circular([d, c], {a: d, b: c})
    assert is_circular([c], {a: c})
    assert not is_circular([a, b], {a: b})
    assert is_circular([a, b], {a: b, b: a})


# -- isomorphism --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("float x; a = Relu(x)  y = Neg(a)", "float x; b = Relu(x)  z = Neg(b)", True),
        ("float x; a = Relu(x)  b = Neg(x)  y = Add(a, b)", "float x; b = Neg(x)  a = Relu(x)  y = Add(a, b)", True),
        ("float x; a = Relu(x)  b = Neg(x)  y = Sub(a, b)", "float x; a = Relu(x)  b = Neg(x)  y = Sub(b, a)", False),
        ("float x; y = Relu(x)", "float x; y = Neg(x)", False),
        ("float x; y = Relu(x)", "float w; y = Relu(w)", False),
        ("float x; y = Add(x, 1.0)", "float x; y = Add(x, 1.0)", True),
        ("float x; y = Add(x, 1.0)", "float x; y = Add(x, {1.0})", False),
        ("float x; y = Add(x, 1.0)", "float x; y = Add(x, 2.0)", False),
        ("float x; y = Add(x, x)", "float x; float w; y = Add(x, w)", False),
        ("float x; y = LeakyRelu<alpha=0.1>(x)", "float x; y = LeakyRelu<alpha=0.10000000001>(x)", True),
        ("float x; y = LeakyRelu<alpha=0.1>(x)", "float x; y = LeakyRelu<alpha=0.2>(x)", False),
        ("float x; y = LeakyRelu<alpha=0.01>(x)", "float x; y = LeakyRelu(x)", False),
        ("float x; y = Gelu(x)", "float x; y = com.microsoft.Gelu(x)", False),
        ("float x; y = Clip(x, 1.0)", "float x; y = Clip(x, , 1.0)", False),
        ("float[4] x; a, b = Split(x)  y = Sub(a, b)", "float[4] x; a, b = Split(x)  y = Sub(b, a)", False),
        ("(float x) => (a, b) { a = Relu(x)  b = Neg(x) }", "(float x) => (b, a) { a = Relu(x)  b = Neg(x) }", False),
        ("(float x) => (a, a) { a = Relu(x) }", "(float x) => (a, b) { a = Relu(x)  b = Relu(x) }", False),
        ("(float x) => (x) { }", "(float x) => (x) { }", True),
        ('y = Equal(string[2] {"a", "b"}, s)', 'y = Equal(string[2] {"a", "b"}, s)', True),
        ('y = Equal(string[2] {"a", "b"}, s)', 'y = Equal(string[2] {"a", "c"}, s)', False),
        ("y = Constant<value = float[2] {1.0, 2.0}>()", "y = Constant<value = float[2] {1.0, 2.0}>()", True),
        ("y = Constant<value = float[2] {1.0, 2.0}>()", "y = Constant<value = float[2] {1.0, 3.0}>()", False),
    ],
)  # fmt: skip
def test_isomorphic(a: str, b: str, equal: bool) -> None:
    assert isomorphic(text.parse(a).graph, text.parse(b).graph) == equal
    assert isomorphic(text.parse(b).graph, text.parse(a).graph) == equal


def test_references_to_attributes_are_compared_by_name() -> None:
    def body(reference: str) -> ir.Graph:
        x = ir.Value(name="x")
        node = ir.Node("", "LeakyRelu", [x], [ir.RefAttr("alpha", reference, ir.AttributeType.FLOAT)])
        return ir.Graph([x], node.outputs, nodes=[node])

    assert isomorphic(body("a"), body("a"))
    assert not isomorphic(body("a"), body("b"))


# -- cutting out --------------------------------------------------------------------------------------------------


def cut(source: str, part: str, inputs: str, outputs: str, **options: bool) -> ir.Model:
    model = text.parse(source)
    Facts(model.graph, dict(model.opset_imports))
    found, given_values = nodes(model), values(model)
    made = extract(
        [found[p] for p in part.split()],
        [given_values[i] for i in inputs.split()],
        [given_values[o] for o in outputs.split()],
        dict(model.opset_imports),
        **options,
    )
    onnx.checker.check_model(ir.to_proto(made))
    return made


def statements(model: ir.Model) -> list[str]:
    return [re.sub(r"^\s*(\[\w*\] )?", "", line) for line in text.print_graph(model.graph).splitlines()[1:-1]]


def test_extract() -> None:
    source = "float[2] x; a = Relu(x)  b = Add(a, {1.0, 2.0})  y = Neg(b)"
    model = cut(source, "b y", "a", "y")
    assert statements(model) == ["v2 = Add(v0, {1.0, 2.0})", "v3 = Neg(v2)", "y0 = Identity(v3)"]
    assert names(model.graph.inputs) == ["v0"]
    assert str(model.graph.inputs[0].shape) == "[2]"
    assert model.opset_imports == {"": 17}


def test_extract_does_not_touch_the_original() -> None:
    model = text.parse("float[2] x; a = Relu(x)  y = Add(a, {1.0, 2.0})")
    before = text.print_model(model)
    found = nodes(model)
    made = extract([found["y"]], [found["a"].outputs[0]], [found["y"].outputs[0]], {"": 17})
    assert text.print_model(model) == before
    assert found["a"].outputs[0].consumers() == (found["y"],)
    (constant,) = model.graph.initializers.values()
    (copied,) = made.graph.initializers.values()
    assert copied is not constant
    assert copied.const_value is constant.const_value


def test_outputs_of_every_kind_have_names_of_their_own() -> None:
    source = "(float[2] x) => (y) <float[2] w = {1.0, 2.0}> { a = Relu(x)  y = Add(a, w) }"
    model = cut(source, "a", "x", "a x w a")
    assert names(model.graph.outputs) == ["y0", "y1", "y2", "y3"]
    assert len(set(model.graph.outputs)) == 4


def test_constant_nodes_become_initializers() -> None:
    source = "float[2] x; k = Constant<value = float[2] {1.0, 2.0}>()  y = Add(x, k)"
    assert statements(cut(source, "k y", "x", "y")) == ["v2 = Add(v0, {1.0, 2.0})", "y0 = Identity(v2)"]
    assert statements(cut(source, "y", "x", "y")) == ["v2 = Add(v0, {1.0, 2.0})", "y0 = Identity(v2)"]


def test_a_constant_that_is_an_input_is_no_constant() -> None:
    source = "(float[2] x) => (y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }"
    model = cut(source, "y", "x w", "y")
    assert names(model.graph.inputs) == ["v0", "v1"]
    assert not model.graph.initializers


def test_absent_inputs_stay_absent() -> None:
    assert statements(cut("float[2] x; y = Clip(x, , 1.0)", "y", "x", "y"))[0] == 'v2 = Clip(v0, "", 1.0)'


def test_newer_nodes_raise_the_opset_or_keep_their_version() -> None:
    model = text.parse("float[2] x; y = Foo(x)")
    (node,) = model.graph
    node.version = 20
    modern = extract([node], list(model.graph.inputs), node.outputs, {"": 17})
    assert modern.opset_imports == {"": 20}
    assert next(n.version for n in modern.graph) is None
    kept = extract([node], list(model.graph.inputs), node.outputs, {"": 17}, modernize=False)
    assert kept.opset_imports == {"": 17}
    assert next(n.version for n in kept.graph) == 20


def test_a_subgraph_that_reads_from_outside_cannot_be_cut_out() -> None:
    model = text.parse(NESTED)
    found = nodes(model)
    with pytest.raises(ValueError, match=r"If `.*` has a subgraph that reads from outside"):
        extract([found["y"]], [values(model)["c"]], found["y"].outputs, {"": 17})


def test_constant_tensor() -> None:
    model = text.parse(
        "(float[2] x) => (y) <float[2] w = {1.0, 2.0}> { k = Constant<value_float = 2.0>()  a = Add(x, w)  y = Mul(a, k) }"
    )
    found = values(model)
    assert constant_tensor(found["x"]) is None
    assert constant_tensor(found["a"]) is None
    assert np.array_equal(constant_tensor(found["w"]).numpy(), [1, 2])  # type: ignore[union-attr]
    assert constant_tensor(found["k"]).numpy() == 2  # type: ignore[union-attr]


def test_an_operator_of_another_domain_is_no_constant() -> None:
    own = ir.node("Constant", [], {"value": ir.tensor([1.0, 2.0])}, domain="own")
    assert constant_tensor(own.outputs[0]) is None
