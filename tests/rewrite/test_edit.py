"""Fresh names, redirected values, nodes taken out whole."""

from __future__ import annotations

import time

import onnx_ir as ir
from hypothesis import given
from hypothesis import strategies as st

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import scopes
from onnxrewrite.rewrite.edit import Names, detach, drop_unused_initializers, is_dead, redirect, share_constants, sweep

BRANCHES = (
    "float[2] x; bool c; a = Relu(x)  k = Neg(x)"
    "  y = If<then_branch = () => (b) <float[2] w = {1.0, 2.0}> { b = Add(a, w) }, else_branch = () => (d) { d = Abs(k) }>(c)"
)


def by_output(model: ir.Model) -> dict[str, ir.Node]:
    return {o.name or "": n for n in model.graph.all_nodes() for o in n.outputs}


def value(model: ir.Model, name: str) -> ir.Value:
    return next(o for n in model.graph.all_nodes() for o in n.outputs if o.name == name)


def test_names_are_fresh_in_every_scope() -> None:
    model = text.parse(BRANCHES)
    names = Names(model)
    for taken in ("x", "c", "a", "y", "b", "d", "w", "If"):
        node_names = {n.name for n in model.graph.all_nodes()}
        assert names.fresh(taken) == (f"{taken}_1" if taken != "If" or "If" in node_names else taken)


def test_names_of_functions_are_taken_too() -> None:
    model = text.parse('(float[2] x) => (y) { y = own.F(x) } <domain: "own"> F (p) => (q) { r = Neg(p)  q = Relu(r) }')
    names = Names(model)
    assert [names.fresh(n) for n in ("p", "q", "r")] == ["p_1", "q_1", "r_1"]


@given(st.lists(st.sampled_from(["a", "b", "a_1", "a_2", "x"]), max_size=30))
def test_names_are_never_given_twice(asked: list[str]) -> None:
    names = Names(text.parse("float x; a = Relu(x)"))
    made = [names.fresh(each) for each in asked]
    assert len(set(made) | {"a", "x"}) == len(made) + 2
    assert all(name.startswith(base) for base, name in zip(asked, made, strict=True))


def test_many_names_of_one_base_are_not_quadratic() -> None:
    names = Names(text.parse("float x; a = Relu(x)"))
    start = time.perf_counter()
    made = {names.fresh("a") for _ in range(50_000)}
    assert len(made) == 50_000
    assert time.perf_counter() - start < 5


def test_redirect_moves_every_use() -> None:
    model = text.parse("(float x) => (y, b, b) { a = Relu(x)  b = Neg(a)  c = Add(b, b)  y = Mul(c, b) }")
    b, a = value(model, "b"), value(model, "a")
    users = redirect(b, a)
    assert {u.outputs[0].name for u in users} == {"c", "y"}
    assert not b.uses()
    assert not b.is_graph_output()
    assert [o.name for o in model.graph.outputs] == ["y", "a", "a"]


def test_redirect_moves_uses_in_subgraphs() -> None:
    model = text.parse(BRANCHES)
    redirect(value(model, "a"), value(model, "k"))
    assert [u.op_type for u in value(model, "k").consumers()] == ["Abs", "Add"]


def test_sweep_takes_what_only_the_dead_needed() -> None:
    model = text.parse("(float x) => (y) { a = Relu(x)  b = Neg(a)  c = Exp(b)  y = Abs(a) }")
    found = by_output(model)
    removed, alive = sweep([found["c"]])
    assert removed == [found["c"], found["b"]]
    assert [v.name for v in alive] == ["a"]
    assert [n.op_type for n in model.graph] == ["Relu", "Abs"]
    assert value(model, "a").consumers() == (found["y"],)


def test_sweep_leaves_what_is_used_or_exported() -> None:
    model = text.parse("(float x) => (y, a) { a = Relu(x)  y, z = Split<axis=0, num_outputs=2>(x) }", opset=18)
    assert sweep(list(model.graph)) == ([], [])
    assert not any(is_dead(n) for n in model.graph)


def test_sweep_takes_a_node_with_its_subgraphs() -> None:
    model = text.parse(BRANCHES.replace("float[2] x; bool c;", "(float[2] x, bool c) => (a) {") + "}")
    found = by_output(model)
    removed, alive = sweep([found["y"]])
    assert removed == [found["y"], found["k"]]
    assert {v.name for v in alive} == {"a", "c", "x", "w"}
    assert [n.op_type for n in model.graph] == ["Relu"]
    assert not value(model, "a").uses()


def test_sweep_is_linear_in_a_dead_chain() -> None:
    chain = "  ".join(f"v{i} = Neg(v{i - 1})" for i in range(1, 1000))
    model = text.parse(f"(float x) => (y) {{ y = Relu(x)  v0 = Neg(x)  {chain} }}")
    assert len(sweep(list(model.graph))[0]) == 1000
    assert len(model.graph) == 1


def test_detach_forgets_inner_uses() -> None:
    model = text.parse(BRANCHES)
    node = by_output(model)["y"]
    assert {v.name for v in detach(node)} == {"c", "a", "w", "k"}
    assert not value(model, "a").uses()


def test_unused_initializers() -> None:
    model = text.parse(
        "(float x, float o = 1.0) => (y, e) <float u = {1.0}, float e = {2.0}, float v = {3.0}> { y = Add(x, v) }"
    )
    drop_unused_initializers(model.graph)
    assert sorted(model.graph.initializers) == ["e", "o", "v"]


def test_equal_constants_become_one() -> None:
    model = text.parse(
        "(float[2] x, float[2] o = {1.0, 2.0}) => (y, e) "
        "<float[2] u = {1.0, 2.0}, float[2] v = {1.0, 2.0}, float[2] e = {1.0, 2.0}, float[2] z = {1.0, -2.0}>"
        "{ k = Constant<value_floats=[1.0, 2.0]>()  a = Add(x, u)  b = Add(a, v)  c = Add(b, k)  d = Add(c, o)"
        "  y = Add(d, z) }"
    )
    Facts(model.graph, model.opset_imports)
    share_constants(model.graph)
    assert sorted(model.graph.initializers) == ["e", "o", "u", "z"], "what can be overridden, or is asked for, stays"
    assert [n.op_type for n in model.graph] == ["Add"] * 5
    assert [n.inputs[1].name for n in model.graph if n.inputs[1] is not None] == ["u", "u", "u", "o", "z"]


def test_equal_constants_of_branches_stay_in_their_branch() -> None:
    model = text.parse(
        "float[2] x; bool c; y = If<then_branch = () => (b) <float[2] w = {1.0, 2.0}> { b = Add(x, w) },"
        "else_branch = () => (d) <float[2] v = {1.0, 2.0}> { d = Sub(x, v) }>(c)"
    )
    for graph in scopes(model):
        share_constants(graph)
    assert len(list(model.graph.all_nodes())) == 3
    ir.to_proto(model)
