"""Paths and readers: which nodes a question meets, on small graphs."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern import paths


class Graph:
    """A graph written as text, whose values are looked up by name."""

    def __init__(self, written: str):
        model = text.parse(written)
        Facts(model.graph, dict(model.opset_imports))  # an Identity is seen through where its type is known
        nodes = [*model.graph]
        self._values = {v.name: v for n in nodes for v in (*n.inputs, *n.outputs) if v is not None}

    def __getitem__(self, name: str) -> ir.Value:
        return self._values[name]

    def node(self, name: str) -> ir.Node:
        found = self[name].producer()
        assert found is not None
        return found


def kinds(nodes: object) -> list[str]:
    return [n.op_type for n in nodes]  # type: ignore[attr-defined]


CHAIN = Graph("float[2,3] x; a = Relu(x)  i = Identity(a)  b = Transpose(i)  j = Identity(b)  y = Reshape(j, {6})")


@pytest.mark.parametrize(
    ("asked", "found"), [(("Reshape",), "Reshape"), (("Relu", "Reshape"), "Reshape"), (("Relu",), None)]
)
def test_the_maker_of_a_value(asked: tuple[str, ...], found: str | None) -> None:
    made = paths.made_by(CHAIN["y"], *asked)
    assert (made and made.op_type) == found


def test_the_maker_is_found_behind_identities_and_is_absent_above_inputs() -> None:
    made = paths.made_by(CHAIN["j"], "Transpose")
    assert made is CHAIN.node("b")
    assert paths.made_by(CHAIN["x"], "Relu") is None
    assert paths.made_by(None, "Relu") is None
    assert paths.made_by(CHAIN["b"], "Transpose", domain="com.microsoft") is None


def test_a_path_of_operators() -> None:
    found = paths.path(CHAIN["y"], "Reshape", ("Transpose", "Squeeze"))
    assert found is not None
    assert kinds(found.nodes) == ["Reshape", "Transpose"]
    assert found.source is CHAIN["a"]
    assert kinds(found.idle) == ["Identity", "Identity"]
    assert [v.name for v in found.values] == ["y", "j", "i"]


@pytest.mark.parametrize("operators", [("Transpose",), ("Reshape", "Relu"), ("Reshape", "Transpose", "Relu", "Abs")])
def test_no_path_of_other_operators(operators: tuple[str, ...]) -> None:
    assert paths.path(CHAIN["y"], *operators) is None


def test_climbing_goes_along_the_operand_that_is_named() -> None:
    graph = Graph("float[2] x; float[2] z; a = Neg(z)  b = Add(x, a)  y = Relu(b)")
    found = paths.path_through(
        graph["y"], lambda node: node.inputs[1] if node.op_type == "Add" else node.op_type == "Relu"
    )
    assert kinds(found.nodes) == ["Relu", "Add"]
    assert found.source is graph["a"]
    assert paths.path_through(graph["y"], lambda node: True).source is graph["x"]
    assert paths.path_through(graph["y"], lambda node: False).source is graph["y"]
    assert paths.path_through(graph["y"], lambda node: None).nodes == ()


def test_climbing_ends_above_constants_and_after_so_many_nodes() -> None:
    graph = Graph("c = Constant<value=float[1] {1.0}>()  a = Neg(c)  y = Abs(a)")
    assert kinds(paths.path_through(graph["y"], lambda node: True).nodes) == ["Abs", "Neg"]
    assert kinds(paths.path_through(graph["y"], lambda node: True, most=1).nodes) == ["Abs"]


DIAMOND = Graph("float[2] x; a = Relu(x)  b = Neg(a)  c = Abs(a)  d = Add(b, c)  y = Mul(d, x)  z = Exp(c)")


def test_the_nodes_upstream() -> None:
    assert kinds(paths.upstream(DIAMOND.node("d"), lambda n: n.inputs)) == ["Add", "Neg", "Abs", "Relu"]
    assert kinds(paths.upstream(DIAMOND.node("d"), lambda n: n.inputs[:1])) == ["Add", "Neg", "Relu"]
    assert kinds(paths.upstream(DIAMOND.node("d"), lambda n: ())) == ["Add"]


def test_the_nodes_that_are_needed_for_one_alone() -> None:
    assert kinds(paths.needed_for(DIAMOND.node("y"))) == ["Mul", "Add", "Neg"]
    shared = Graph("float[2] x; a = Relu(x)  y = Add(a, a)")
    assert kinds(paths.needed_for(shared.node("y"))) == ["Add", "Relu"]


def test_the_readers_of_a_value() -> None:
    assert kinds(paths.readers(DIAMOND["a"])) == ["Neg", "Abs"]
    assert kinds(paths.readers(DIAMOND.node("a"))) == ["Neg", "Abs"]
    assert kinds(paths.readers(DIAMOND["a"], through=("Neg", "Abs"))) == ["Neg", "Abs", "Add", "Exp"]
    assert kinds(paths.readers(DIAMOND["a"], through=lambda node: True)) == ["Neg", "Abs", "Add", "Exp", "Mul"]
    assert kinds(paths.readers(DIAMOND["a"], through=lambda node: True, within=2)) == ["Neg", "Abs", "Add", "Exp"]
    assert kinds(paths.readers(DIAMOND["y"])) == []


def test_the_only_reader() -> None:
    assert paths.only_reader(DIAMOND["b"]) is DIAMOND.node("d")
    assert paths.only_reader(DIAMOND["b"], "Add") is DIAMOND.node("d")
    assert paths.only_reader(DIAMOND["b"], "Mul") is None
    assert paths.only_reader(DIAMOND["c"]) is None, "two read it"
    assert paths.only_reader(DIAMOND["y"]) is None, "it is a graph output"
    twice = Graph("float[2] x; a = Relu(x)  y = Add(a, a)")
    assert paths.only_reader(twice["a"]) is None, "it is read twice by one"


def test_what_is_read_once() -> None:
    graph = Graph("float[2] x; a = Relu(x)  b = Identity(a)  c = Neg(b)  y = Add(a, c)")
    assert paths.is_read_once(graph["c"])
    assert not paths.is_read_once(graph["b"]), "the value behind the Identity is read elsewhere, too"
    assert not paths.is_read_once(graph["y"])
    assert not paths.is_read_once(None)


def test_what_leaks_out_of_nodes() -> None:
    inside = [DIAMOND.node(name) for name in "abcd"]
    assert [(v.name, need.split(" `")[0]) for v, need in paths.leaks(inside, inside)] == [
        ("c", "also used by Exp"),
        ("d", "also used by Mul"),
    ]
    assert paths.need_outside(DIAMOND["y"], inside) == "a graph output"
    assert paths.need_outside(DIAMOND["b"], inside) == ""
