"""The decision tree and its matcher find exactly what the plain matcher finds, on graphs and patterns of all kinds."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.finder import Matcher, Patterns, View
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.pattern.terms import Term
from onnxrewrite.rewrite import registry
from onnxrewrite.rules import FLOATS, AnyNode, Attr, Const, Each, Scalar, Var, any_of, op

Found = set[tuple[Any, ...]]


def told(match: Match) -> tuple[Any, ...]:
    """A match, as far as a rewrite can see it."""

    def plain(bound: Any) -> Any:
        if isinstance(bound, Match):
            return told(bound)
        if isinstance(bound, tuple | list):
            return tuple(map(plain, bound))
        return bound.tobytes() if hasattr(bound, "tobytes") else bound

    bound = frozenset((id(t) if isinstance(t, Term) else str(t), plain(b)) for t, b in match._bound.items())
    return match.outputs, frozenset(match.nodes), match.remainder, bound


def by_oracle(patterns: Sequence[tuple[Term, ...]], facts: Facts, graph: ir.Graph, value: ir.Value) -> Found:
    oracle = RecursiveMatcher(facts, graph)
    return {(i, *told(m)) for i, p in enumerate(patterns) for m in oracle.matches(p, value)}


def by_tree(patterns: Sequence[tuple[Term, ...]], view: View[int], value: ir.Value) -> Found:
    matcher = Matcher(view)
    return {(i, *told(m)) for i in view.at(value) for m in matcher.matches(patterns[i], value)}


def compare(patterns: Sequence[tuple[Term, ...]], source: str | ir.Model) -> int:
    """The number of matches, which must be the same both ways, at every value."""
    model = text.parse(source, opset=17) if isinstance(source, str) else source
    facts = Facts(model.graph, dict(model.opset_imports))
    tree = Patterns((p[0], i) for i, p in enumerate(patterns))
    count = 0
    for graph in (model.graph, *model.graph.subgraphs()):
        view = tree.view(facts, graph)
        for value in [o for node in graph for o in node.outputs]:
            expected = by_oracle(patterns, facts, graph, value)
            assert by_tree(patterns, view, value) == expected, (value.name, patterns)
            count += len(expected)
    return count


# -- random graphs -----------------------------------------------------------------------------------------------------

UNARY = ["Relu", "Erf", "Sigmoid", "Neg", "Sqrt", "Identity", "Reciprocal", "Tanh"]
BINARY = ["Add", "Mul", "Sub", "Div", "Max", "Pow", "MatMul"]
NUMBERS = ["0.5", "{0.5}", "2.0", "1.0", "-1.0", "3.0", "{0.5, 2.0}"]


@st.composite
def graphs(draw: st.DrawFn, dtype: str = "float") -> str:
    """A few operators over two inputs, an overridable constant and small numbers."""
    lines, names = list[str](), ["x", "w", "o"]
    for number in range(draw(st.integers(1, 14))):
        name = f"v{number}"
        recent = names[-4:] + names[:1]
        pick = functools.partial(draw, st.sampled_from([*recent, *recent, *NUMBERS]))
        kind = draw(st.integers(0, 9))
        if kind < 4:
            lines.append(f"{name} = {draw(st.sampled_from(UNARY))}({draw(st.sampled_from(recent))})")
        elif kind < 8:
            lines.append(f"{name} = {draw(st.sampled_from(BINARY))}({draw(st.sampled_from(recent))}, {pick()})")
        elif kind == 8:
            lines.append(f"{name} = Sum({pick()}, {draw(st.sampled_from(recent))}, {pick()})")
        else:
            axis = draw(st.integers(0, 1))
            lines.append(f"{name} = Softmax<axis = {axis}>({draw(st.sampled_from(recent))})")
        names.append(name)
    return f"{dtype}[2,2] x; {dtype}[2,2] w; input o = {dtype} {{0.5}}  {'  '.join(lines)}"


# -- random patterns ---------------------------------------------------------------------------------------------------


@st.composite
def terms(draw: st.DrawFn) -> Term:
    """A pattern over a handful of captures, some of which it uses more than once."""
    leaves: list[Term] = [
        Var("a"),
        Var("b", dtype=FLOATS),
        Var("c", rank=2),
        Const("k"),
        Scalar("s"),
        Scalar("t", default=1.0),
        Var("z", default=None),
    ]
    made = list(leaves)

    def operand() -> Any:
        return draw(st.sampled_from([*made[-3:], *made[-3:], *leaves, 0.5, 2.0, 1.0]))

    def term() -> Term:
        return draw(st.sampled_from([*made[-3:], *leaves]))

    for _ in range(draw(st.integers(1, 6))):
        match draw(st.integers(0, 11)):
            case 0 | 1:
                made.append(op[draw(st.sampled_from(UNARY))](term()))
            case 2:
                made.append(op[draw(st.sampled_from(BINARY))](operand(), operand()))
            case 3 | 4:
                made.append(term() * operand())
            case 5 | 6:
                made.append(term() + operand())
            case 7:
                made.append(term() - operand())
            case 8:
                made.append(term() / operand())
            case 9:
                made.append(any_of(*(operand() for _ in range(draw(st.integers(2, 3))))))
            case 10:
                made.append(op.Softmax(term(), axis=draw(st.sampled_from([0, 1, Attr[int]("axis")]))))
            case _:
                made.append(
                    draw(
                        st.sampled_from(
                            [
                                term() ** 2,
                                op.Sqrt(term()),
                                op["Relu", "Erf", "Max"](term()),
                                op.Sum(term(), Each("rest")),
                                op.Sum(Each("all", of=op.Relu(term()))),
                                AnyNode("n", op_types=("Relu", "Add")),
                            ]
                        )
                    )
                )
    return made[-1]


@pytest.mark.slow
@settings(max_examples=400)
@given(st.lists(terms(), min_size=1, max_size=6), graphs())
def test_the_tree_finds_what_the_oracle_finds(patterns: list[Term], graph: str) -> None:
    compare([(p,) for p in patterns], graph)


@settings(max_examples=60)
@given(terms(), graphs(), st.sampled_from(["float16", "bfloat16", "double", "int64"]))
def test_in_other_dtypes(pattern: Term, graph: str, dtype: str) -> None:
    compare([(pattern,)], graph.replace("float", dtype) if dtype != "int64" else graph)


@st.composite
def dense_graphs(draw: st.DrawFn) -> str:
    """Few operators, many readers of few values."""
    lines, names = list[str](), ["x", "w"]
    for number in range(draw(st.integers(3, 10))):
        one, other = (draw(st.sampled_from([*names[:2], *names[-2:]])) for _ in range(2))
        kinds = [f"Relu({one})", f"Neg({one})", f"Add({one}, {other})", f"Mul({one}, {other})", f"Identity({one})"]
        lines.append(f"v{number} = {draw(st.sampled_from(kinds))}")
        names.append(f"v{number}")
    return f"float[2,2] x; float[2,2] w; {'  '.join(lines)}"


@st.composite
def partners(draw: st.DrawFn) -> tuple[Term, ...]:
    """Two or three terms that have one in common, near their ends or further up."""
    x, u = Var("x"), Var("u")
    shared = draw(st.sampled_from([x, x, op.Relu(x), op.Neg(x), x * u, x + u]))
    kinds = [op.Relu(shared), op.Neg(shared), shared * u, shared + u, op.Relu(op.Neg(shared)), op.Neg(shared + u)]
    return tuple(draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=3)))


@pytest.mark.slow
@settings(max_examples=300)
@given(partners(), dense_graphs())
def test_patterns_of_several_outputs(pattern: tuple[Term, ...], graph: str) -> None:
    compare([pattern], graph)


def test_several_outputs_where_one_value_has_many_readers() -> None:
    """The partner is looked for among the readers of the value that fewest read."""
    crowd = "  ".join(f"c{i} = Neg(x)" for i in range(200))
    graph = f"float[2,2] x; float[2,2] w; m = Mul(x, w)  {crowd}  n = Sub(w, x)"
    u, v = Var("u"), Var("v")
    assert compare([(op.Mul(u, v), op.Sub(v, u))], graph) == 1


def test_the_library_on_real_models(golden_graph: ir.Model) -> None:
    rules = list(registry.load(plugins=False))
    assert compare([r.outputs for r in rules], golden_graph) > 0


# -- what a tree must not cost -----------------------------------------------------------------------------------------

MANY = 12


@pytest.mark.parametrize("hit", [True, False])
def test_a_sum_of_twelve(hit: bool) -> None:
    """Compiled and found, or not found, in no time, whatever the order."""
    pattern = op.Relu(
        functools.reduce(lambda a, b: a + b, [op.Exp(Var(f"x{i}")) for i in range(MANY - 1)]) + op.Erf(Var("y"))
    )
    adds = "  ".join(f"s{i} = Add(e{i}, s{i - 1})" for i in range(1, MANY))
    last = "Erf" if hit else "Tanh"
    exps = "  ".join(f"e{i} = {last if i == 7 else 'Exp'}(x)" for i in range(MANY))
    graph = f"float[2] x; {exps}  s0 = Identity(e0)  {adds}  y = Relu(s{MANY - 1})"
    start = time.perf_counter()
    model = text.parse(graph)
    facts = Facts(model.graph, dict(model.opset_imports))
    view = Patterns([(pattern, "sum")]).view(facts, model.graph)
    value = model.graph.outputs[0]
    found = [next(Matcher(view).matches((pattern,), value), None) for _ in view.at(value)]
    assert (found != [] and found[0] is not None) == hit
    assert time.perf_counter() - start < 2


def test_operands_that_compete_for_one_leaf() -> None:
    """Each of them is there, but not all at once: Hall's condition, not luck."""
    competing = [op["Exp", f"Op{i}"](Var(f"x{i}")) for i in range(MANY)]
    pattern = op.Relu(functools.reduce(lambda a, b: a + b, competing))
    leaves = [f"e{i} = {'Exp' if i < MANY - 1 else 'Sin'}(x)" for i in range(2 * MANY - 2)]
    adds = [f"s{i} = Add(s{i - 1}, e{i})" for i in range(1, MANY)]
    graph = f"float[2] x; {'  '.join(leaves)}  s0 = Identity(e0)  {'  '.join(adds)}  y = Relu(s{MANY - 1})"
    model = text.parse(graph)
    facts = Facts(model.graph, dict(model.opset_imports))
    start = time.perf_counter()
    view = Patterns([(pattern, 0)]).view(facts, model.graph)
    assert not list(Matcher(view).matches((pattern,), model.graph.outputs[0]))
    assert time.perf_counter() - start < 2
