"""What lies between named values, and what is told where that is no pattern."""

from __future__ import annotations

import pytest

from onnxrewrite import io
from onnxrewrite.authoring.region import Region, between, ending_at, named, sizes, starting_at
from onnxrewrite.errors import UsageError
from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts


def region(graph: str, starts: str, ends: str) -> Region:
    model = io.load(text.parse(graph, opset=17))
    facts = Facts(model.graph, dict(model.opset_imports))
    begin = [v for s in starts.split() for v in starting_at(named(model, s, "--from"), model.graph, facts)]
    end = [v for e in ends.split() for v in ending_at(named(model, e, "--to"))]
    return between(model.graph, facts, begin, end)


def operators(found: Region) -> list[str]:
    return [n.op_type for n in found.nodes]


def names(values: object) -> list[str]:
    return [v.name for v in values]  # type: ignore[attr-defined]


CHAIN = "float[b,8] x; a = Relu(x)  c = Mul(a, 2.0)  d = Add(c, a)  y = Tanh(d)"


def test_what_lies_between_values() -> None:
    found = region(CHAIN, "a", "d")
    assert operators(found) == ["Mul", "Add"]
    assert (names(found.inputs), names(found.outputs), found.further) == (["a"], ["d"], ())


def test_nodes_are_part_of_what_lies_between_them() -> None:
    graph = "float[b,8] x; [first] a = Relu(x)  [next] c = Mul(a, 2.0)  [last] d = Add(c, a)  y = Tanh(d)"
    assert operators(region(graph, "first", "last")) == ["Relu", "Mul", "Add"]


def test_what_else_is_read_is_further() -> None:
    found = region("float[b,8] x; float[b,8] z; t = Tanh(z)  a = Relu(x)  c = Add(a, t)  y = Mul(c, x)", "x", "y")
    assert operators(found) == ["Relu", "Add", "Mul"]
    assert names(found.further) == ["t"]


def test_shape_arithmetic_stays_outside() -> None:
    graph = (
        "float[b,8] x; float[b,2,4] z; a = Relu(x)  s = Shape(z)  b0 = Gather(s, {0})  t = Concat<axis=0>(b0, {2, 4})"
        "r = Reshape(a, t)  y = Tanh(r)"
    )
    found = region(graph, "x", "y")
    assert operators(found) == ["Relu", "Reshape", "Tanh"]
    assert (names(found.sizes), names(found.watched)) == (["t"], [])


def test_a_shape_asked_of_what_is_inside_is_told() -> None:
    graph = (
        "float[b,8] x; a = Relu(x)  s = Shape(a)  b0 = Gather(s, {0})  t = Concat<axis=0>(b0, {2, 4})  r = Reshape(a, t)"
        "y = Tanh(r)"
    )
    assert names(region(graph, "x", "y").watched) == ["a"]


def test_sizes_are_integers_that_follow_from_shapes_alone() -> None:
    graph = (
        "float[b,8] x; int64[1] i; s = Shape(x)  g = Gather(s, {0})  m = Mul(g, {2})  k = Add(m, i)  f = Cast<to=1>(m)"
        "n = Size(x)"
    )
    model = text.parse(graph, opset=17)
    found = sizes(model.graph, Facts(model.graph, dict(model.opset_imports)))
    assert sorted(names(found)) == ["g", "m", "n", "s"]


def test_constants_and_identities_are_no_part_of_it() -> None:
    graph = (
        "float[b,8] x; k = Constant<value=float 2.0>()  a = Relu(x)  i = Identity(a)  c = Mul(i, k)  y = Identity(c)"
    )
    found = region(graph, "x", "c")
    assert operators(found) == ["Relu", "Mul"]
    assert found.further == ()


@pytest.mark.parametrize(
    ("graph", "starts", "ends", "reason"),
    [
        (CHAIN, "nowhere", "d", "--from nowhere: no value and no node is called so"),
        (CHAIN, "a", "nowhere", "--to nowhere: no value and no node is called so"),
        (CHAIN, "d", "a", "--to a: is not computed from it: nothing lies between `d` and that"),
        (CHAIN, "a", "a", "`a` is named as a beginning and as an end"),
        (CHAIN, "x d", "y", "--from x: nothing on the way to `y` reads it"),
        (CHAIN, "x", "c", "`a` lies between and is also read by Add"),
        (f"float[b,8] q; {CHAIN}  z = Add(q, x)", "x q", "y", "--from q: nothing on the way to `y` reads it"),
        ("float[b,8] x; s = Shape(x)  y = Cast<to=1>(s)", "x", "s", "a size, which a rule captures as it is"),
        (
            "float[b,8] x; a = Relu(x)  c = Tanh(a)  d = Exp(c)  y = Add(a, d)",
            "x d",
            "y",
            "`d` is read between and computed from `a`, which lies between, too",
        ),
        (
            "float[b,8] x; bool c; a = Relu(x)  y = If<then_branch = () => (p) { p = Neg(a) },"
            " else_branch = () => (q) { q = Exp(a) }>(c)",
            "x",
            "y",
            "If `If` lies between and holds a graph",
        ),
    ],
)
def test_what_is_no_pattern_is_told_why(graph: str, starts: str, ends: str, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        region(graph, starts, ends)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_an_output_of_the_graph_inside_is_told() -> None:
    with pytest.raises(UsageError, match="`a` lies between and is an output of the graph"):
        region("(float[b,8] x) => (a, y) { a = Relu(x)  y = Tanh(a) }", "x", "y")


def test_a_name_in_two_graphs_is_told() -> None:
    graph = "float[b,8] x; bool c; y = If<then_branch = () => (p) { p = Neg(x) }, else_branch = () => (p) { p = Exp(x) }>(c)"
    with pytest.raises(UsageError, match="--from p: 2 graphs of the model have a value of this name"):
        named(text.parse(graph, opset=17), "p", "--from")


def test_too_much_is_told() -> None:
    graph = "float[8] x0; " + "  ".join(f"x{n + 1} = Relu(x{n})" for n in range(200))
    with pytest.raises(UsageError, match="200 operators lie between, and a pattern has 150 at the most"):
        region(graph, "x0", "x200")
