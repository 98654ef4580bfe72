"""The regions of a graph: connected, convex, of few outputs, each kind once."""

from __future__ import annotations

import networkx as nx
from discovery_models import ATTENTION, driver_of

from onnxrewrite.ir.graph import digraph, is_convex
from onnxrewrite.suite.discovery.enumeration import enumerate_regions, operands

DIAMOND = "float[b,4] x; a = Relu(x)  l = Sigmoid(a)  r = Tanh(a)  m = Mul(l, r)  y = Exp(m)"


def found(graph: str, **limits: int) -> list[str]:
    regions = enumerate_regions(driver_of(graph), **limits).regions.values()
    return [" ".join(n.op_type for n in region.nodes) for region in regions]


def test_all_of_a_chain():
    assert sorted(found("float[b,4] x; a = Relu(x)  c = Exp(a)  y = Neg(c)")) == sorted(
        ["Relu", "Exp", "Neg", "Relu Exp", "Exp Neg", "Relu Exp Neg"]
    )


def test_they_are_those_that_a_search_of_all_subsets_finds():
    driver = driver_of(DIAMOND)
    nodes = list(driver.model.graph)
    wanted = set()
    for mask in range(1, 2 ** len(nodes)):
        part = [n for i, n in enumerate(nodes) if mask >> i & 1]
        ends = [n for n in part if n is nodes[-1] or any(r not in part for r in n.outputs[0].consumers())]
        is_connected = nx.is_connected(digraph(part).to_undirected())
        if is_connected and len(ends) <= 2 and is_convex(part, nodes):
            wanted.add(" ".join(n.op_type for n in part))
    assert set(found(DIAMOND)) == wanted
    assert "Relu Sigmoid Mul" not in wanted  # what leaves by Tanh comes back


def test_equal_layers_are_one():
    layer = "a# = Relu(x#)  x@ = MatMul(a#, w#)"
    layers = "  ".join(layer.replace("#", str(n)).replace("@", str(n + 1)) for n in range(5))
    weights = " ".join(f"w{n} = float[32,32] ~;" for n in range(5))
    assert found(f"float[b,32] x0; {weights} {layers}", nodes=2) == ["Relu", "MatMul", "Relu MatMul", "MatMul Relu"]


def test_small_constants_tell_regions_apart_and_weights_do_not():
    two = "float[b,4] x; a = Mul(x, 2.0)  c = Relu(a)  y = Mul(c, 3.0)"
    assert found(two, nodes=1) == ["Mul", "Relu", "Mul"]


def test_of_regions_that_differ_in_numbers_alone_there_are_a_few():
    chain = "  ".join(f"x{n + 1} = Mul(x{n}, {n}.5)" for n in range(9))
    assert found(f"float[b,4] x0; {chain}  y = Relu(x9)", nodes=2) == [
        *["Mul"] * 4,
        "Relu",
        *["Mul Mul"] * 4,
        "Mul Relu",
    ]


def test_what_is_left_is_counted():
    all_of_them = enumerate_regions(driver_of(DIAMOND))
    few = enumerate_regions(driver_of(DIAMOND), most=4)
    assert len(few.regions) == 4
    assert few.left > 0
    assert [len(r.nodes) for r in few.regions.values()] == [1] * 4
    assert all_of_them.left == 0


def test_shape_arithmetic_is_no_part_of_a_region():
    graph = "float[b,4] x; s = Shape(x)  r = Relu(x)  f = Reshape(r, {-1})  y = Reshape(f, s)"
    assert "Shape" not in " ".join(found(graph))
    whole = [r for r in enumerate_regions(driver_of(graph)).regions.values() if len(r.nodes) == 3]
    assert [v.name for v in whole[0].sizes] == ["s"]
    assert [v.name for v in operands(whole[0]) if v.const_value is None] == ["x", "s"]


def test_what_is_random_is_no_part_of_a_region():
    assert found("float[b,4] x; n = RandomUniformLike(x)  y = Mul(x, n)") == ["Mul"]


def test_a_whole_attention_is_a_region_though_regions_have_two_nodes():
    (whole,) = [of for of in found(ATTENTION, nodes=2, cone=24) if "Softmax" in of and of.endswith("Reshape")]
    assert sorted(whole.split()) == sorted([*["Reshape", "Transpose"] * 4, "Mul", "MatMul", "Softmax", "MatMul"])


def test_what_others_need_too_is_not_computed_for_one_node_alone():
    graph = "(float[b,4] x) => (y, z) { m = Exp(x)  a = Add(x, m)  c = Neg(a)  y = Mul(c, m)  z = Relu(m) }"
    assert found(graph, nodes=1, cone=24) == ["Exp", "Add", "Neg", "Mul", "Relu", "Add Neg", "Add Neg Mul"]
    assert found(graph, nodes=1, cone=2) == ["Exp", "Add", "Neg", "Mul", "Relu", "Add Neg"]
