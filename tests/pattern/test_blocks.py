"""Layers in a row, operands that carry something from one to the next, bodies, and values of outer graphs."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import pytest

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.finder import Matcher, Patterns
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.misses import Misses
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.rules import Attr, Body, Const, Each, Outer, Repeat, Term, Var, op
from tests.pattern.test_finder import compare

x, w, h, c, s = Var("x"), Const("w"), Var("h"), Var("c"), Var("s")
layer = op.Relu(op.MatMul(x, w))
LAYERS = Repeat(layer, x)


def stack(count: int, *, other: int | None = None) -> str:
    """Layers, one of which can be another one."""
    lines, before = list[str](), "v0"
    for number in range(1, count + 1):
        activation = "Tanh" if number == other else "Relu"
        lines.append(f"m{number} = MatMul({before}, float[2,2] {{{number}.0, 0.0, 0.0, 1.0}})")
        lines.append(f"v{number} = {activation}(m{number})")
        before = f"v{number}"
    return f"float[2,2] v0; {'  '.join(lines)}  y = Exp({before})"


def graph_of(source: str) -> tuple[Facts, ir.Graph]:
    model = text.parse(source, opset=17)
    return Facts(model.graph, dict(model.opset_imports)), model.graph


def matches(pattern: Term | Sequence[Term], source: str, at: str) -> list[Match]:
    """The matches at a value, which the tree finds and the plain matcher too."""
    outputs = [pattern] if isinstance(pattern, Term) else list(pattern)
    compare([tuple(outputs)], source)
    facts, graph = graph_of(source)
    value = next(o for scope in (graph, *graph.subgraphs()) for n in scope for o in n.outputs if o.name == at)
    scope = value.producer().graph  # type: ignore[union-attr]
    assert isinstance(scope, ir.Graph)
    view = Patterns([(outputs[0], 0)]).view(facts, scope)
    return list(Matcher(view).matches(outputs, value)) if view.at(value) else []


def why_not(pattern: Term, source: str, at: str) -> str:
    facts, graph = graph_of(source)
    misses = Misses()
    value = next(o for n in graph for o in n.outputs if o.name == at)
    assert not list(RecursiveMatcher(facts, graph, misses).matches([pattern], value))
    return misses.reason


# -- layers ------------------------------------------------------------------------------------------------------------


def test_as_many_layers_as_there_are_are_one_match() -> None:
    (found,) = matches(LAYERS, stack(5), "v5")
    layers = found.layers(LAYERS)
    assert [each[w][0, 0] for each in layers] == [1, 2, 3, 4, 5]
    assert found[x].name == "v0"
    assert found[LAYERS].name == "v5"
    assert [each[x].name for each in layers] == ["v0", "v1", "v2", "v3", "v4"]
    assert len(found.nodes) == 10


def test_the_row_is_matched_where_it_ends_only() -> None:
    assert not matches(LAYERS, stack(5), "v4")
    assert why_not(LAYERS, stack(5), "v4") == "another layer follows, `v5`"


def test_a_row_begins_where_a_layer_is_another_one() -> None:
    (found,) = matches(LAYERS, stack(6, other=3), "v6")
    assert found[x].name == "v3"
    assert len(found.layers(LAYERS)) == 3


def test_one_layer_is_no_row_and_why_is_told_of_the_layer_that_lacks() -> None:
    told = why_not(LAYERS, stack(3, other=2), "v3")
    assert told.startswith("expected Relu, found Tanh `v2`")
    assert told.endswith(", in layer 2 from the last")


@pytest.mark.parametrize("times", [1, 2, 5])
def test_so_many_layers_as_are_asked_for(times: int) -> None:
    pattern = Repeat(layer, x, times=times)
    (found,) = matches(pattern, stack(5), "v5")
    assert len(found.layers(pattern)) == times
    assert found[x].name == f"v{5 - times}"
    assert len(matches(pattern, stack(6), "v5")) == 1  # others may follow


def test_too_few_layers_are_told() -> None:
    told = why_not(Repeat(layer, x, times=6), stack(5), "v5")
    assert told == "expected Relu, found graph input `v0`, in layer 6 from the last"


def test_that_a_row_ends_is_no_reason() -> None:
    told = why_not(op.Exp(Repeat(layer, x)) + op.Tanh(s), f"float[2] k; {stack(3)}  z = Add(y, k)", "z")
    assert "layer" not in told
    assert "`k`" in told


def test_a_row_is_a_term_like_any_other() -> None:
    pattern = op.Exp(Repeat(layer, x)) + Const("k")
    source = f"{stack(3)}  z = Add(y, {{1.0, 2.0}})"
    (found,) = matches(pattern, source, "z")
    assert len(found.nodes) == 8


def test_captures_are_each_layers_own_unless_they_are_shared() -> None:
    scaled = op.Mul(op.Relu(x), s)
    same = (
        "float[2] v0; float[2] a; float[2] b; r = Relu(v0)  v1 = Mul(r, a)  q = Relu(v1)  v2 = Mul(q, a)  y = Exp(v2)"
    )
    others = same.replace("Mul(q, a)", "Mul(q, b)")
    own, shared = Repeat(scaled, x), Repeat(scaled, x, shared=[s])
    assert len(matches(own, same, "v2")) == len(matches(own, others, "v2")) == len(matches(shared, same, "v2")) == 1
    assert not matches(shared, others, "v2")
    (found,) = matches(shared, same, "v2")
    assert found[s].name == "a"


def test_several_values_are_carried() -> None:
    """The recurrence of Fibonacci: each layer takes both values of the one before it."""
    a, b = Var("a"), Var("b")
    total, last = op.Add(a, b), op.Relu(b)
    pattern = Repeat(total, {a: last, b: total})
    source = "float[2] a0; float[2] b0; b1 = Add(a0, b0)  a1 = Relu(b0)  b2 = Add(a1, b1)  a2 = Relu(b1)  b3 = Add(a2, b2)  y = Exp(b3)"
    (found,) = matches(pattern, source, "b3")
    assert len(found.layers(pattern)) == 3
    assert {found[a].name, found[b].name} == {"a0", "b0"}
    broken = source.replace("a2 = Relu(b1)", "a2 = Relu(b0)")
    assert not matches(pattern, broken, "b3")


def test_an_attribute_that_no_rule_has_considered_is_seen_in_every_layer() -> None:
    pattern = Repeat(op.Softmax(x), x)
    source = "float[2,2] x; a = Softmax(x)  b = Softmax<axis=0>(a)  c = Softmax(b)  y = Exp(c)"
    (found,) = matches(pattern, source, "c")
    call = pattern.block
    told = found.overlooked({call: frozenset()})  # type: ignore[dict-item]
    assert told == "the rule does not consider axis=0 of Softmax `b`"
    assert found.overlooked({call: frozenset({"axis"})}) is None  # type: ignore[dict-item]


@pytest.mark.slow
def test_hundreds_of_layers_are_found() -> None:
    (found,) = matches(LAYERS, stack(200), "v200")
    assert len(found.layers(LAYERS)) == 200


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: Repeat(layer, {x: op.Exp(x)}), "must be what its block gives"),
        (lambda: Repeat(layer, x, times=0), "one layer"),
    ],
)
def test_a_row_that_cannot_be_is_refused(made, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        made()


def test_a_row_reads_like_its_formula() -> None:
    assert repr(Repeat(op.Relu(op.MatMul(x, w)), x, times=28)) == "Repeat(Relu(MatMul(x, w)), x, times=28)"


# -- operands that carry something -------------------------------------------------------------------------------------

i = Attr[int]("axis")
step = op.Add(op.Mul(h, s), c)
STEPS: Each[Match] = Each("steps", of=op.Exp(step), carry={h: step})
UNROLLED = op.Concat(STEPS, axis=i)
RECURRENCE = (
    "float[2] h0; float[2] a; float[2] b;"
    "p1 = Mul(h0, a)  h1 = Add(p1, b)  e1 = Exp(h1)"
    "  p2 = Mul(h1, b)  h2 = Add(p2, a)  e2 = Exp(h2)"
    "  p3 = Mul(h2, a)  h3 = Add(p3, a)  e3 = Exp(h3)  y = Concat<axis=0>(e1, e2, e3)"
)


def test_operands_take_what_the_one_before_them_gives() -> None:
    first, other = matches(UNROLLED, RECURRENCE, "y")  # a factor of the first step may be either
    found = first if first[h].name == "h0" else other
    assert [each[s].name for each in found[STEPS]] == ["a", "b", "a"]
    assert [each[h].name for each in found[STEPS]] == ["h0", "h1", "h2"]
    assert found[h].name == "h0"
    assert len(found.nodes) == 10


def test_operands_in_another_order_carry_nothing() -> None:
    source = RECURRENCE.replace("(e1, e2, e3)", "(e2, e1, e3)")
    assert not matches(UNROLLED, source, "y")
    assert "in layer 2 from the last" in why_not(UNROLLED, source, "y")


# -- bodies ------------------------------------------------------------------------------------------------------------

SCAN = """float[2] h0; float[3,2] a; float[2] k;
    hn, y = Scan<num_scan_inputs=1, body = b (float[2] h, float[2] s) => (float[2] n, float[2] e) { p = Mul(h, s)  q = Add(p, k)  n = Relu(q)  e = Exp(n) }>(h0, a)"""
h_in, s_in, k = Var("h in"), Var("s in"), Var("k")
new = op.Relu(op.Add(op.Mul(h_in, s_in), k))
SCANNED = op.Scan(h, s, body=Body([new, op.Exp(new)], [h_in, s_in]), num_scan_inputs=1)


def test_a_body_is_matched_with_its_inputs() -> None:
    (found,) = matches(SCANNED[1], SCAN, "y")
    assert found[h_in].name == "h"
    assert found[k].name == "k"
    assert [n.op_type for n in found.nodes] == ["Scan"]
    assert found.value(new).name == "n"  # type: ignore[union-attr]


def test_what_a_body_reads_from_outside_is_a_value_of_the_graph_around() -> None:
    """One capture for both: the value that the body reads is the operand of a node outside."""
    pattern = op.Add(SCANNED[1], k)
    source = f"{SCAN}  z = Add(y, k)"
    assert len(matches(pattern, source, "z")) == 1
    assert not matches(pattern, f"float[2] other; {source}".replace("Add(y, k)", "Add(y, other)"), "z")


def test_the_border_is_crossed_where_the_pattern_says_so() -> None:
    computed = SCAN.replace("float[2] k;", "float[2] r; k = Neg(r)")
    r = Var("r")
    inner = op.Relu(op.Add(op.Mul(h_in, s_in), Outer(op.Neg(r))))
    outer = op.Scan(h, s, body=Body([inner, op.Exp(inner)], [h_in, s_in]), num_scan_inputs=1)
    (found,) = matches(outer[1], computed, "y")
    assert found[r].name == "r"
    assert [n.op_type for n in found.nodes] == ["Scan"]
    plain = op.Relu(op.Add(op.Mul(h_in, s_in), op.Neg(r)))
    without = op.Scan(h, s, body=Body([plain, op.Exp(plain)], [h_in, s_in]), num_scan_inputs=1)
    assert not matches(without[1], computed, "y")
    assert "`k` from outside the subgraph" in why_not(without[1], computed, "y")


def test_a_pattern_in_a_body_sees_what_is_outside() -> None:
    computed = SCAN.replace("float[2] k;", "float[2] r; k = Neg(r)")
    r = Var("r")
    (found,) = matches(op.Add(x, Outer(op.Neg(r))), computed, "q")
    assert found[r].name == "r"
    assert [n.op_type for n in found.nodes] == ["Add"]


def test_why_a_body_does_not_match_is_told_with_its_node() -> None:
    told = why_not(SCANNED[1], SCAN.replace("e = Exp(n)", "e = Tanh(n)"), "y")
    assert told.startswith("expected Exp, found Tanh")
    assert ", in the body of Scan" in told


@pytest.mark.parametrize(("inputs", "outputs", "told"), [(1, 2, "has 2 inputs"), (2, 1, "has 2 outputs")])
def test_a_body_has_as_many_inputs_and_outputs_as_are_asked_for(inputs: int, outputs: int, told: str) -> None:
    body = Body([new, op.Exp(new)][:outputs], [h_in, s_in][:inputs])
    assert told in why_not(op.Scan(h, s, body=body, num_scan_inputs=1)[1], SCAN, "y")


def test_the_others_of_a_body_are_taken_together() -> None:
    rest, more = Each[ir.Value]("rest", at_least=0), Each[ir.Value]("more", at_least=0)
    (found,) = matches(op.Scan(h, s, body=Body([new, rest], [h_in, more]), num_scan_inputs=1)[1], SCAN, "y")
    assert [v.name for v in found[rest]] == ["e"]
    assert [v.name for v in found[more]] == ["s"]


def test_both_branches_and_a_loop() -> None:
    branches = "bool t; float[2] x; y = If<then_branch = p () => (float[2] a) { a = Relu(x) }, else_branch = q () => (float[2] b) { b = Neg(x) }>(t)"
    cond = Var("cond")
    both = op.If(cond, then_branch=Body([op.Relu(x)]), else_branch=Body([op.Neg(x)]))
    assert len(matches(both, branches, "y")) == 1
    assert not matches(op.If(cond, then_branch=Body([op.Relu(x)]), else_branch=Body([op.Exp(x)])), branches, "y")
    loop = """int64 n; bool t; float[2] h0; hn, e = Loop<body = b (int64 i, bool c, float[2] h) => (bool c2, float[2] m, float[2] g)
        { c2 = Not(c)  m = Relu(h)  g = Exp(m) }>(n, t, h0)  y = Neg(e)"""
    number, going, inner = Var("number"), Var("going"), Var("inner")
    body = Body([op.Not(going), op.Relu(inner), op.Exp(op.Relu(inner))], [number, going, inner])
    assert len(matches(op.Loop(Var("trip"), cond, h, body=body)[1], loop, "e")) == 1


CACHE = """int64 n; bool t; float[1,2] first; float[p,2] kept; float[2,2] w;
    last, all = Loop<body = b (int64 i, bool c, float[1,2] row, float[q,2] cache) => (bool c2, float[1,2] next, float[r,2] grown)
        { c2 = Identity(c)  k = MatMul(row, w)  grown = Concat<axis=0>(cache, k)  a = Transpose(grown)  s = MatMul(row, a)
          m = Softmax<axis=-1>(s)  next = MatMul(m, grown) }>(n, t, first, kept)  y = Neg(last)"""


def test_a_loop_with_a_cache() -> None:
    """Each step appends a row, and attends to all that are kept; the weights lie outside."""
    number, going, row, past, weight, start = (Var(n) for n in ("number", "going", "row", "past", "weight", "start"))
    grown = op.Concat(past, op.MatMul(row, weight), axis=0)
    attended = op.MatMul(op.Softmax(op.MatMul(row, op.Transpose(grown)), axis=-1), grown)
    body = Body([going, attended, grown], [number, going, row, past])
    (found,) = matches(op.Loop(Var("trip"), Var("cond"), start, c, body=body)[0], CACHE, "last")
    assert (found[weight].name, found[past].name, found[start].name, found[c].name) == ("w", "cache", "first", "kept")
    assert not matches(
        op.Loop(Var("trip"), Var("cond"), start, c, body=body)[0],
        CACHE.replace("Concat<axis=0>(cache, k)", "Concat<axis=0>(k, cache)"),
        "last",
    )
    assert len(matches(op.Neg(op.Loop(Var("trip"), Var("cond"), start, c, body=body)[0]), CACHE, "y")) == 1


def test_an_identity_between_is_told_with_what_is_before_it() -> None:
    told = why_not(op.Exp(op.Neg(x)), "float[2] a; i = Identity(a)  y = Exp(i)", "y")
    assert told.startswith("expected Neg, found graph input `a` behind Identity")
