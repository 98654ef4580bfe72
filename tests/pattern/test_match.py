"""What a pattern matches: one test for each promise of the language, then random spellings of whole rules."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from respell import NUMPY, Speller, Unspellable, has_numbers, near_misses, spellings

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.target import target
from onnxrewrite.pattern.match import Match, Refused, overruled
from onnxrewrite.pattern.misses import Misses
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.pattern.terms import FLOATS, AnyNode, Attr, Call, Const, Each, Scalar, Term, Var, any_of, op
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.index import index
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.ruletest.metamorphic.firing import why_not

x, y, z, w = Var("x"), Var("y"), Var("z"), Var("w")
DTYPES = tuple(NUMPY)


def find(pattern: Term | tuple[Term, ...], graph: str, opset: int = 17, at: str | None = None) -> list[Match]:
    """Every match of a pattern at one value, the first output of the graph unless named."""
    return search(pattern, graph, opset, at)[0]


def search(
    pattern: Term | tuple[Term, ...], graph: str, opset: int = 17, at: str | None = None
) -> tuple[list[Match], str]:
    """The matches, and the reason of the nearest miss."""
    model = text.parse(graph, opset=opset)
    facts, misses = Facts(model.graph, dict(model.opset_imports)), Misses()
    values = [o for n in model.graph for o in n.outputs]
    anchor = model.graph.outputs[0] if at is None else next(v for v in values if v.name == at)
    terms = pattern if isinstance(pattern, tuple) else (pattern,)
    return list(RecursiveMatcher(facts, model.graph, misses).matches(terms, anchor)), misses.reason


def names(match: Match, *terms: Term) -> list[str | None]:
    return [match[t].name for t in terms]


# -- calls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op_type", ["Add", "Mul", "Min", "Max", "And", "Equal"])
def test_operators_of_two_that_commute(op_type: str) -> None:
    kind = "bool[2] a; bool[2] b;" if op_type == "And" else "float[2] a; float[2] b;"
    found = find(Call(op_type, (x, y)), f"{kind} y = {op_type}(a, b)")
    assert [names(m, x, y) for m in found] == [["a", "b"], ["b", "a"]]


@pytest.mark.parametrize("op_type", ["Sub", "Div", "Pow", "MatMul", "Greater"])
def test_operators_that_do_not_commute(op_type: str) -> None:
    found = find(Call(op_type, (x, y)), f"float[2,2] a; float[2,2] b; y = {op_type}(a, b)")
    assert [names(m, x, y) for m in found] == [["a", "b"]]


def test_the_operator_domain_and_arity_matter() -> None:
    assert find(op.Relu(x), "float[2] a; y = Relu(a)")
    assert not find(op.Relu(x), "float[2] a; y = Abs(a)")
    assert not find(op.Gelu(x), "float[2] a; y = com.microsoft.Gelu(a)")
    assert find(op["Relu", "Abs"](x), "float[2] a; y = Abs(a)")
    assert not find(op.Max(x, y), "float[2] a; float[2] b; float[2] c; y = Max(a, b, c)")


def test_the_same_capture_is_the_same_value() -> None:
    assert find(op.Sub(x, x), "float[2] a; y = Sub(a, a)")
    matches, why = search(op.Sub(x, x), "float[2] a; float[2] b; y = Sub(a, b)")
    assert not matches
    assert why == "x must be the same value in both places, here it is `b`"


def test_constants_of_equal_content_are_the_same_value() -> None:
    c = Const("c")
    pattern = op.Mul(op.Add(x, c), c)
    assert find(pattern, "float[2] a; s = Add(a, {1.0, 2.0})  y = Mul(s, {1.0, 2.0})")
    assert not find(pattern, "float[2] a; s = Add(a, {1.0, 2.0})  y = Mul(s, {1.0, 3.0})")
    assert not find(pattern, "float[2] a; s = Add(a, {1.0})  y = Mul(s, float {1.0})")


def test_captures_constrain_dtype_and_rank() -> None:
    graph = "float[2] a; y = Relu(a)"
    assert find(op.Relu(Var("x", dtype=FLOATS, rank=1)), graph)
    assert search(op.Relu(Var("x", rank=2)), graph) == ([], "x must have rank 2, found 1: it is graph input `a`")
    found, why = search(op.Relu(Var("x", dtype=ir.DataType.DOUBLE)), graph)
    assert (found, why) == ([], "x has dtype float, which the rule does not take: it is graph input `a`")


def test_a_shared_sub_pattern_is_one_value() -> None:
    inner = op.Relu(x)
    one = "float[2] a; r = Relu(a)  n = Abs(r)  y = Sub(r, n)"
    two = "float[2] a; r = Relu(a)  q = Relu(a)  n = Abs(q)  y = Sub(r, n)"
    for pattern in (
        op.Sub(inner, op.Abs(inner)),
        inner - op.Abs(inner),
        any_of(op.Exp(inner), inner - op.Abs(inner)),
    ):
        assert find(pattern, one)
        assert not find(pattern, two)
    total = x + y
    assert find(op.Div(total, op.Exp(total)), "float[2] a; float[2] b; s = Add(a, b)  e = Exp(s)  y = Div(s, e)")
    assert not find(
        op.Div(total, op.Exp(total)),
        "float[2] a; float[2] b; s = Add(a, b)  t = Add(a, b)  e = Exp(t)  y = Div(s, e)",
    )


# -- inputs and attributes -----------------------------------------------------------------------------------


def test_optional_inputs() -> None:
    bias = Var("b", default=None)
    conv = op.Conv(x, y, bias)
    (found,) = find(conv, "float[1,2,5,5] a; float[3,2,1,1] k; y = Conv(a, k)")
    assert found[bias] is None
    assert bias not in found
    (found,) = find(conv, "float[1,2,5,5] a; float[3,2,1,1] k; float[3] c; y = Conv(a, k, c)")
    assert found[bias].name == "c"
    assert bias in found
    assert not find(op.Conv(x, y), "float[1,2,5,5] a; float[3,2,1,1] k; float[3] c; y = Conv(a, k, c)")
    assert not find(op.Conv(x, y, z), "float[1,2,5,5] a; float[3,2,1,1] k; y = Conv(a, k)")


def test_none_is_an_input_that_is_absent() -> None:
    clip = op.Clip(x, None, y)
    assert find(clip, "float[2] a; float h; y = Clip(a, , h)")
    assert not find(clip, "float[2] a; float h; y = Clip(a, h, h)")


@pytest.mark.parametrize(
    ("opset", "node"),
    [(13, "ReduceMean<axes = [-1], keepdims = 0>(a)"), (18, "ReduceMean<keepdims = 0>(a, int64[1] {-1})")],
)
def test_attributes_or_inputs(opset: int, node: str) -> None:
    axes = Attr[tuple[int, ...]]("axes")
    (found,) = find(op.ReduceMean(x, axes=axes, keepdims=0), f"float[2,3] a; y = {node}", opset)
    assert tuple(found[axes]) == (-1,)
    assert find(op.ReduceMean(x, axes=[-1]), f"float[2,3] a; y = {node}", opset)
    assert not find(op.ReduceMean(x, axes=[0]), f"float[2,3] a; y = {node}", opset)
    assert not find(op.ReduceMean(x, axes=axes, keepdims=1), f"float[2,3] a; y = {node}", opset)


@pytest.mark.parametrize(("opset", "node"), [(10, "Clip<min = 0.0, max = 6.0>(a)"), (13, "Clip(a, 0.0, 6.0)")])
def test_numbers_as_attributes_or_inputs(opset: int, node: str) -> None:
    high = Attr[float]("high")
    (found,) = find(op.Clip(x, min=0.0, max=high), f"float[2] a; y = {node}", opset)
    assert found[high] == 6
    assert not find(op.Clip(x, min=1.0, max=high), f"float[2] a; y = {node}", opset)


def test_a_parameter_that_is_not_constant_is_none() -> None:
    found, why = search(op.Clip(x, min=Attr[float]("low"), max=6.0), "float[2] a; float l; y = Clip(a, l, 6.0)")
    assert not found
    assert "expected a constant for min" in why


def test_attributes_have_the_schemas_default() -> None:
    alpha, low = Attr[float]("alpha"), Attr[float]("low", default=-1.0)
    (found,) = find(op.HardSigmoid(x, alpha=alpha), "float[2] a; y = HardSigmoid(a)")
    assert np.float32(found[alpha]) == np.float32(0.2)
    (found,) = find(op.Clip(x, min=low), "float[2] a; y = Clip(a)")
    assert found[low] == -1
    assert low not in found


def test_one_attr_in_two_places_is_one_value() -> None:
    axis = Attr[int]("axis")
    pattern = op.Softmax(op.LogSoftmax(x, axis=axis), axis=axis)
    assert find(pattern, "float[2,3] a; l = LogSoftmax<axis = 1>(a)  y = Softmax<axis = 1>(l)")
    found, why = search(pattern, "float[2,3] a; l = LogSoftmax<axis = 0>(a)  y = Softmax<axis = 1>(l)")
    assert not found
    assert "axis must be the same in both places" in why


@pytest.mark.parametrize(
    ("pattern", "graph", "opset"),
    [
        (op.Softmax(x, axis=-1), "float[2,3,4] x; y = Softmax<axis=2>(x)", 17),
        (op.Softmax(x), "float[2,3,4] x; y = Softmax<axis=2>(x)", 17),
        (op.Softmax(x, axis=2), "float[2,3,4] x; y = Softmax(x)", 17),
        (op.ReduceMax(x, axes=(1, 2)), "float[2,3,4] x; y = ReduceMax<axes=[-2,-1]>(x)", 17),
        (op.ReduceMax(x, axes=(-2, -1)), "float[2,3,4] x; y = ReduceMax(x, {1,2})", 18),
        (op.ReduceMax(x, axes=(-1,)), "float[2,3,4] x; y = ReduceMax(x, {2})", 18),
        (op.Unsqueeze(x, axes=(-1,)), "float[2,3] x; y = Unsqueeze(x, {2})", 17),
        (op.Concat(x, x, axis=-1), "float[2,3] x; y = Concat<axis=1>(x, x)", 17),
        (op.Slice(x, starts=(0,), ends=(2,), axes=(-1,)), "float[2,3] x; y = Slice(x, {0}, {2}, {1}, {1})", 17),
        (op.Slice(x, starts=(0,), ends=(2,)), "float[2,3] x; y = Slice(x, {0}, {2}, , {1})", 17),
        (op.Pad(x, pads=(0, 1, 0, 1)), "float[2,3] x; y = Pad(x, {0,1,0,1}, 0.0)", 17),
    ],
)
def test_a_parameter_in_any_spelling(pattern: Term, graph: str, opset: int) -> None:
    """Axes count from either end, and an operand that says nothing may be there; both matchers see it."""
    rule = Rule("found", Stage.CANONICALIZE, pattern, lambda m, b: m[x])
    model = text.parse(graph, opset=opset)
    driver = Driver(model, [rule], target("onnxruntime-cpu"))
    assert len(find(pattern, graph, opset)) == 1
    assert len(list(index((rule,)).view(driver.facts(model.graph), model.graph).at(model.graph.outputs[0]))) == 1
    assert "does not consider" not in why_not(rule, driver)


@pytest.mark.parametrize(
    ("pattern", "graph"),
    [
        (op.Softmax(x, axis=-1), "float[2,3,4] x; y = Softmax<axis=1>(x)"),
        (op.Softmax(x, axis=-1), "float x; y = Softmax<axis=1>(x)"),
        (op.Unsqueeze(x, axes=(-1,)), "float[2,3] x; y = Unsqueeze(x, {1})"),
        (op.Slice(x, starts=(0,), ends=(2,), axes=(1,)), "float[2,3] x; y = Slice(x, {0}, {2}, {1}, {2})"),
        (op.Slice(x, starts=(0,), ends=(2,), axes=(1,)), "float[2,3] x; int64[1] s; y = Slice(x, {0}, {2}, {1}, s)"),
        (op.Pad(x, pads=(0, 1, 0, 1)), "float[2,3] x; y = Pad(x, {0,1,0,1}, 1.0)"),
    ],
)
def test_another_axis_or_operand_is_no_spelling(pattern: Term, graph: str) -> None:
    assert not find(pattern, graph)


def test_each_takes_all_remaining_inputs() -> None:
    rest = Each("rest")
    (found,) = find(op.Concat(x, rest, axis=0), "float[2] a; float[2] b; float[2] c; y = Concat<axis = 0>(a, b, c)")
    assert [v.name for v in found[rest]] == ["b", "c"]
    assert not find(op.Concat(x, Each("r", at_least=2), axis=0), "float[2] a; float[2] b; y = Concat<axis = 0>(a, b)")


def test_a_shared_sub_pattern_may_be_read_through_an_identity() -> None:
    """Each time it is read, what lies between is covered."""
    shared = op.Relu(x)
    graph = "float[2] a; r = Relu(a)  i = Identity(r)  t = Tanh(i)  j = Cast<to = 1>(r)  y = Add(t, j)"
    (match,) = find(op.Add(op.Tanh(shared), shared), graph)
    assert sorted(n.op_type for n in match.nodes) == ["Add", "Cast", "Identity", "Relu", "Tanh"]


def test_each_of_a_term_binds_anew_but_for_what_is_shared() -> None:
    perm = Attr[tuple[int, ...]]("perm")
    inner = op.Transpose(x, perm=perm)
    graph = (
        "float[2,3] a; float[2,3] b; p = Transpose<perm = [1, 0]>(a)  q = Transpose<perm = [1, 0]>(b)"
        "  y = Concat<axis = 0>(p, q)"
    )
    every = Each("every", inner)
    (found,) = find(op.Concat(every, axis=0), graph)
    assert [m[x].name for m in found[every]] == ["a", "b"]
    assert len(found.nodes) == 3
    assert not find(op.Concat(Each("every", inner, shared=(x,)), axis=0), graph)
    same = graph.replace("(b)", "(a)")
    assert find(op.Concat(Each("every", inner, shared=(x,)), axis=0), same)
    assert not find(op.Concat(every, axis=0), graph.replace("Transpose<perm = [1, 0]>(b)", "Relu(b)"))


def test_each_sees_what_was_bound_before_it() -> None:
    every = Each("every", op.Mul(w, x), shared=(x,))
    graph = "float[2] a; float[2] s; float[2] b; p = Mul(a, s)  q = Mul(b, s)  y = Concat<axis = 0>(s, p, q)"
    (found, *_) = find(op.Concat(x, every, axis=0), graph)
    assert found[x].name == "s"
    assert [m[w].name for m in found[every]] == ["a", "b"]


# -- alternatives --------------------------------------------------------------------------------------------


def test_alternatives_in_order() -> None:
    first, second = op.Relu(x), op.Relu(op.Abs(y))
    either = any_of(first, second)
    found = find(either, "float[2] a; b = Abs(a)  y = Relu(b)")
    assert [m.alternative(either) for m in found] == [first, second]
    assert [m[either].name for m in found] == ["y", "y"]


def test_backtracking_into_an_earlier_choice() -> None:
    # The first alternative binds x to `b`; only the second one, chosen anew, lets the other operand match.
    pattern = op.Sub(any_of(op.Relu(x), op.Relu(op.Abs(x))), x)
    (found,) = find(pattern, "float[2] a; b = Abs(a)  r = Relu(b)  y = Sub(r, a)")
    assert found[x].name == "a"
    nested = op.Sub(any_of(any_of(op.Neg(x), op.Relu(x)), op.Relu(op.Abs(x))), x)
    assert find(nested, "float[2] a; b = Abs(a)  r = Relu(b)  y = Sub(r, a)")


def test_backtracking_over_operand_order() -> None:
    pattern = op.Sub(op.Add(x, y), op.Mul(y, z))
    (found,) = find(pattern, "float[2] a; float[2] b; float[2] c; s = Add(a, b)  m = Mul(c, a)  y = Sub(s, m)")
    assert names(found, x, y, z) == ["b", "a", "c"]


def test_an_alternative_at_the_anchor_may_leave_a_remainder() -> None:
    pattern = any_of(op.Tanh(x), x * op.Sigmoid(x))
    (found,) = find(pattern, "float[2] a; float[2] g; s = Sigmoid(a)  m = Mul(a, g)  y = Mul(m, s)")
    assert [(v.name, o) for v, o in found.remainder] == [("g", "Mul")]


# -- sums and products ---------------------------------------------------------------------------------------

THREE = "float[2] a; float[2] b; float[2] c;"


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize(
    ("op_type", "pattern"), [("Add", op.Relu(x) + op.Abs(y) + z), ("Mul", op.Relu(x) * op.Abs(y) * z)]
)
def test_every_order_and_association(op_type: str, pattern: Term, order: Sequence[str], left: bool) -> None:
    p, q, r = ({"a": "r", "b": "s", "c": "c"}[n] for n in order)
    tree = (
        f"t = {op_type}({p}, {q})  y = {op_type}(t, {r})" if left else f"t = {op_type}({q}, {r})  y = {op_type}({p}, t)"
    )
    (found,) = find(pattern, f"{THREE} r = Relu(a)  s = Abs(b)  {tree}")
    assert names(found, x, y, z) == ["a", "b", "c"]
    assert {n.op_type for n in found.nodes} == {op_type, "Relu", "Abs"}


@pytest.mark.parametrize(
    "tree",
    ["t = Sub(r, b)  y = Sub(t, c)", "t = Add(b, c)  y = Sub(r, t)",
     "n = Neg(b)  t = Sub(n, c)  y = Add(t, r)", "t = Sub(b, r)  s = Add(t, c)  y = Neg(s)", "n = Neg(b)  m = Neg(c)  y = Sum(n, m, r)"],
)  # fmt: skip
def test_differences(tree: str) -> None:
    found = find(op.Relu(x) - y - z, f"{THREE} r = Relu(a)  {tree}")
    assert {tuple(names(m, x, y, z)) for m in found} == {("a", "b", "c"), ("a", "c", "b")}
    if "Neg(b)" not in tree:  # there y may stand for -b
        assert not find(op.Relu(x) + y - z, f"{THREE} r = Relu(a)  {tree}")


@pytest.mark.parametrize(
    "tree",
    ["t = Div(r, b)  y = Div(t, c)", "t = Mul(b, c)  y = Div(r, t)", "i = Reciprocal(b)  t = Div(i, c)"
    "  y = Mul(t, r)",
     "t = Div(b, r)  s = Mul(t, c)  y = Reciprocal(s)", "t = Mul(b, c)  i = Pow(t, -1.0)  y = Mul(i, r)"],
)  # fmt: skip
def test_quotients(tree: str) -> None:
    found = find(op.Relu(x) / y / z, f"{THREE} r = Relu(a)  {tree}")
    assert {tuple(names(m, x, y, z)) for m in found} == {("a", "b", "c"), ("a", "c", "b")}
    if "i =" not in tree:  # there y may stand for 1/b
        assert not find(op.Relu(x) * y / z, f"{THREE} r = Relu(a)  {tree}")


def test_integers_are_not_divided_apart() -> None:
    assert not find(x * (y / z), "int64[2] a; int64[2] b; int64[2] c; q = Div(b, c)  y = Mul(a, q)")
    assert find(x * op.Div(y, z), "int64[2] a; int64[2] b; int64[2] c; q = Div(b, c)  y = Mul(a, q)")


@pytest.mark.parametrize("power", ["Pow(r, 3.0)", "Pow(r, int64 3)", "Mul(q, r)", "Mul(r, q)"])
def test_cubes(power: str) -> None:
    graph = f"float[2] a; r = Relu(a)  q = Mul(r, r)  c = {power}  m = Mul(c, 0.5)  y = Tanh(m)"
    assert find(op.Tanh(0.5 * op.Relu(x) ** 3), graph, at="y")
    assert not find(op.Tanh(0.5 * op.Relu(x) ** 2), graph, at="y")


@pytest.mark.parametrize("root", ["Sqrt(a)", "Pow(a, 0.5)"])
@pytest.mark.parametrize(
    "inverse", ["i = Reciprocal(s)  y = Mul(b, i)", "y = Div(b, s)", "i = Div(1.0, s)  y = Mul(i, b)"]
)
def test_roots(root: str, inverse: str) -> None:
    (found, *_) = find(y / op.Sqrt(x), f"float[2] a; float[2] b; s = {root}  {inverse}")
    assert not found.remainder
    assert names(found, x, y) == ["a", "b"]


def test_a_negative_power_divides() -> None:
    assert find(y / op.Sqrt(x), "float[2] a; float[2] b; s = Pow(a, -0.5)  y = Mul(b, s)")
    assert not find(y * op.Sqrt(x), "float[2] a; float[2] b; s = Pow(a, -0.5)  y = Mul(b, s)")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("number", "spelled"),
    [(math.sqrt(2), "Mul(a, {})"), (1 / math.sqrt(2), "Div(a, {})"), (0.1, "Div(a, {})"), (0.044715, "Mul(a, {})")],
)  # fmt: skip
def test_a_number_rounded_to_the_dtype_or_its_reciprocal(dtype: str, number: float, spelled: str) -> None:
    written = repr(float(np.float64(1 / number if "Div" in spelled else number).astype(NUMPY[dtype])))
    assert find(x * number, f"{dtype}[2] a; y = {spelled.format(written)}")
    assert find(x / (1 / number), f"{dtype}[2] a; y = {spelled.format(written)}")
    assert find(number * x, f"{dtype}[2] a; y = {spelled.format(written)}")
    eps = {"float": 2e-7, "float16": 2e-3, "bfloat16": 2e-2, "double": 5e-16}[dtype]
    off = repr(float(np.float64(float(written) * (1 + 2 * eps)).astype(NUMPY[dtype])))
    assert off != written
    assert not find(x * number, f"{dtype}[2] a; y = {spelled.format(off)}"), "no looser"


@pytest.mark.filterwarnings("error")
def test_a_number_too_large_for_the_dtype_matches_what_it_becomes() -> None:
    assert not find(x * 1e30, "float16[2] a; y = Mul(a, 0.5)")
    assert find(x * 1e30, "float16[2] a; y = Mul(a, inf)")


@pytest.mark.parametrize("dtype", DTYPES)
def test_negated_numbers(dtype: str) -> None:
    tenth = float(np.float64(0.1).astype(NUMPY[dtype]))
    assert find(x - 0.1, f"{dtype}[2] a; y = Add(a, {-tenth!r})")
    assert find(x + 0.1, f"{dtype}[2] a; y = Sub(a, {-tenth!r})")
    assert find(0.1 - x, f"{dtype}[2] a; n = Neg(a)  y = Add({tenth!r}, n)")
    assert find(1 - 0.1 * x, f"{dtype}[2] a; m = Mul(a, {-tenth!r})  y = Add(m, 1.0)")
    assert find(-0.1 * x, f"{dtype}[2] a; m = Mul(a, {tenth!r})  y = Neg(m)")
    assert not find(0.1 * x, f"{dtype}[2] a; m = Mul(a, {tenth!r})  y = Neg(m)", at="y")
    assert not find(x + 0.1, f"{dtype}[2] a; y = Sub(a, {tenth!r})")


def test_a_minus_sign_is_never_lost() -> None:
    (found,) = find(op.Tanh(0.5 * x), "float[2] a; n = Neg(a)  m = Mul(n, 0.5)  y = Tanh(m)")
    assert found[x].name == "n"
    for graph in (
        "m = Mul(r, 0.5)  s = Neg(m)",
        "n = Neg(r)  s = Mul(n, 0.5)",
        "s = Mul(r, -0.5)",
        "n = Neg(r)  s = Div(n, 2.0)",
    ):
        assert not find(op.Tanh(0.5 * op.Relu(x)), f"float[2] a; r = Relu(a)  {graph}  y = Tanh(s)"), graph
        assert find(op.Tanh(-0.5 * op.Relu(x)), f"float[2] a; r = Relu(a)  {graph}  y = Tanh(s)"), graph


@pytest.mark.parametrize("literal", ["float {0.5}", "float[1] {0.5}", "float[1,1] {0.5}"])
def test_numbers_of_any_rank(literal: str) -> None:
    assert find(0.5 * x, f"float[2,3] a; y = Mul(a, {literal})")
    assert find(op.Mul(x, 0.5), f"float[2,3] a; c = Constant<value = {literal}>()  i = Identity(c)  y = Mul(i, a)")
    assert not find(0.5 * x, "float[2,3] a; y = Mul(a, float[2,1] {0.5, 0.5})")
    assert not find(0.5 * x, "float[2,3] a; float c; y = Mul(a, c)")


def test_numbers_split_over_the_chain() -> None:
    assert find(op.Relu(x) * 6, "float[2] a; r = Relu(a)  m = Mul(r, 2.0)  y = Mul(m, 3.0)")
    assert find(op.Relu(x) * 0.5, "float[2] a; r = Relu(a)  m = Mul(r, 3.0)  y = Div(m, 6.0)")
    assert find(op.Relu(x) + 1, "float[2] a; r = Relu(a)  m = Add(r, 0.25)  y = Add(0.75, m)")
    assert find(0.3 * 0.7 * x, "float[2] a; m = Mul(a, 0.3)  y = Mul(m, 0.7)")
    assert find(0.3 * 0.7 * x, "float[2] a; y = Mul(a, 0.21)")


def test_one_and_zero_need_not_be_written() -> None:
    assert find(1 / op.Relu(x), "float[2] a; r = Relu(a)  y = Reciprocal(r)")
    assert find(1 / op.Relu(x), "float[2] a; r = Relu(a)  y = Div(1.0, r)")
    assert not find(1 / op.Relu(x), "float[2] a; r = Relu(a)  y = Div(2.0, r)")
    assert find(op.Abs(y) / op.Relu(x), "float[2] a; r = Relu(a)  b = Abs(a)  i = Div(1.0, r)  y = Mul(i, b)")
    assert find(op.Neg(op.Relu(x)), "float[2] a; r = Relu(a)  y = Neg(r)")


def test_scalars() -> None:
    s = Scalar("s")
    assert find(s * op.Relu(x), "float[2] a; r = Relu(a)  y = Mul(r, 0.25)")[0][s] == 0.25
    assert find(s * op.Relu(x), "float[2] a; r = Relu(a)  y = Div(r, 4.0)")[0][s] == 0.25
    assert find(op.Relu(x) / s, "float[2] a; r = Relu(a)  y = Div(r, 4.0)")[0][s] == 4
    assert find(op.Relu(x) + s, "float[2] a; r = Relu(a)  y = Sub(r, 4.0)")[0][s] == -4
    assert find(2 * s * op.Relu(x), "float[2] a; r = Relu(a)  y = Mul(r, 0.5)")[0][s] == 0.25
    assert find(-s * op.Relu(x), "float[2] a; r = Relu(a)  y = Neg(r)")[0][s] == 1
    assert not find(s * op.Relu(x), "float[2] a; r = Relu(a)  y = Mul(r, {1.0, 2.0})")
    assert not find(s * op.Relu(x), "float[2] a; r = Relu(a)  y = Div(r, 0.0)"), "1/0 is no number"
    both = op.Sub(s * op.Relu(x), s * op.Abs(y))
    assert find(both, "float[2] a; r = Relu(a)  b = Abs(a)  p = Mul(r, 3.0)  q = Mul(b, 3.0)  y = Sub(p, q)")
    assert not find(both, "float[2] a; r = Relu(a)  b = Abs(a)  p = Mul(r, 3.0)  q = Mul(b, 2.0)  y = Sub(p, q)")


def test_integer_scalars_are_exact() -> None:
    s = Scalar("s")
    (found, *_) = find(op.Abs(x) + s, f"int64[2] a; r = Abs(a)  p = Add(r, {2**53})  y = Add(p, 1)")
    assert found[s] == 2**53 + 1


def test_an_optional_scalar_or_operand() -> None:
    s, b = Scalar("s", default=1.0), Const("b", default=0.0)
    pattern = op.Tanh(s * op.Relu(x))
    assert find(pattern, "float[2] a; r = Relu(a)  y = Tanh(r)")[0][s] == 1
    assert find(pattern, "float[2] a; r = Relu(a)  m = Mul(r, 2.0)  y = Tanh(m)")[0][s] == 2
    affine = op.Tanh(op.Relu(x) + b)
    assert find(affine, "float[2] a; r = Relu(a)  y = Tanh(r)")[0][b] == 0
    assert find(affine, "float[2] a; r = Relu(a)  m = Add({1.0, 2.0}, r)  y = Tanh(m)")[0][b].tolist() == [
        1,
        2,
    ]
    assert find(affine, "float[2] a; r = Relu(a)  m = Sub(r, {1.0, 2.0})  y = Tanh(m)")[0][b].tolist() == [
        -1,
        -2,
    ]
    # What is there is found before what could be absent.
    assert find(op.Tanh(s * x), "float[2] a; m = Mul(a, 2.0)  y = Tanh(m)")[0][s] == 2


def test_the_remainder_of_a_longer_chain() -> None:
    gate = op.Relu(x) * op.Abs(y)
    graph = f"{THREE} r = Relu(a)  s = Abs(b)  m = Mul(r, c)  y = Mul(m, s)"
    (found,) = find(gate, graph)
    assert [(v.name, o) for v, o in found.remainder] == [("c", "Mul")]
    (found,) = find(gate, graph.replace("Mul(r, c)", "Div(r, c)"))
    assert [(v.name, o) for v, o in found.remainder] == [("c", "Div")]
    (found,) = find(op.Relu(x) + op.Abs(y), f"{THREE} r = Relu(a)  s = Abs(b)  m = Sub(r, c)  y = Add(m, s)")
    assert [(v.name, o) for v, o in found.remainder] == [("c", "Sub")]
    inside, why = search(op.Tanh(gate), graph.replace("y = Mul(m, s)", "t = Mul(m, s)  y = Tanh(t)"))
    assert not inside
    assert why == "the chain at `t` is longer than the pattern, by graph input `c`"


def test_no_remainder_where_the_patterns_part_is_a_value_of_its_own() -> None:
    graph = f"{THREE} r = Relu(a)  s = Abs(b)  m = Mul(r, s)  y = Mul(m, c)"
    assert not find(op.Relu(x) * op.Abs(y), graph)
    assert find(op.Relu(x) * op.Abs(y), graph, at="m")


def test_a_sign_without_a_value_cannot_be_left_over() -> None:
    assert not find(op.Relu(x) * op.Abs(y), "float[2] a; r = Relu(a)  s = Abs(a)  n = Neg(r)  y = Mul(n, s)")
    graph = f"{THREE} r = Relu(a)  s = Abs(b)  n = Neg(c)  m = Mul(r, n)  y = Mul(m, s)"
    (found,) = find(op.Relu(x) * op.Abs(y), graph)
    assert [v.name for v, _ in found.remainder] == ["n"], "but one with a value can"


def test_a_long_chain_is_followed_from_its_end() -> None:
    adds = "s0 = Add(a, a)  " + "  ".join(f"s{i} = Add(s{i - 1}, a)" for i in range(1, 60))
    graph = f"{THREE} {adds}  r = Relu(b)  t = Abs(c)  e = Add(r, t)  y = Add(s59, e)"
    assert find(op.Relu(x) + op.Abs(y) + z, graph)


def test_repeated_squares_do_not_explode() -> None:
    squares = "m0 = Mul(a, a)  " + "  ".join(f"m{i} = Mul(m{i - 1}, m{i - 1})" for i in range(1, 40))
    assert not find(op.Relu(x) * op.Abs(y), f"float[2] a; {squares}  y = Mul(m39, m39)")


def test_old_broadcasting_is_no_chain() -> None:
    graph = "float[2,3] a; float[3] b; r = Relu(a)  y = Add<broadcast = 1>(r, b)"
    assert not find(op.Relu(x) + y, graph, opset=6)


# -- identities ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", ["Identity({})", "Cast<to = 1>({})"])
def test_what_does_nothing_is_not_there(between: str) -> None:
    i = [between.format(v) for v in ("a", "r", "m")]
    graph = f"float[2] a; p = {i[0]}  r = Relu(p)  q = {i[1]}  m = Mul(q, 0.5)  o = {i[2]}  y = Tanh(o)"
    (found,) = find(op.Tanh(0.5 * op.Relu(x)), graph)
    assert found[x].name == "a"
    assert {n.outputs[0].name for n in found.nodes} == {"y", "m", "r", "q", "o"}, "what lies between is covered"


def test_a_cast_that_does_something_is_there() -> None:
    assert not find(op.Tanh(op.Relu(x)), "float[2] a; r = Relu(a)  c = Cast<to = 10>(r)  y = Tanh(c)")


# -- several outputs -----------------------------------------------------------------------------------------


def test_further_outputs_are_reached_through_consumers() -> None:
    mean = op.ReduceMean(x)
    pattern = (op.Sub(x, mean), op.Exp(mean))
    graph = "float[2] a; m = ReduceMean(a)  y = Sub(a, m)  z = Exp(m)"
    (found,) = find(pattern, graph, at="y")
    assert [o.name for o in found.outputs] == ["y", "z"]
    assert {n.op_type for n in found.nodes} == {"Sub", "ReduceMean", "Exp"}
    assert not find(pattern, "float[2] a; m = ReduceMean(a)  n = ReduceMean(a)  y = Sub(a, m)  z = Exp(n)", at="y")


def test_two_outputs_that_share_a_captured_value() -> None:
    pattern = (op.MatMul(x, y), op.MatMul(x, z))
    square = "".join(f"float[2,2] {name}; " for name in "abcd")
    graph = f"{square} y = MatMul(a, b)  z = MatMul(a, c)  w = MatMul(d, b)"
    (found,) = find(pattern, graph, at="y")
    assert names(found, x, y, z) == ["a", "b", "c"]


def test_outputs_of_one_node() -> None:
    split = op.Split(x, axis=0)
    graph = "float[4] a; p, q = Split<axis = 0, num_outputs = 2>(a)  y = Relu(p)  z = Abs(q)"
    (found,) = find((op.Relu(split[0]), op.Abs(split[1])), graph, opset=18, at="y")
    assert found[x].name == "a"
    assert not find((op.Relu(split[1]), op.Abs(split[0])), graph, opset=18, at="y")


# -- borders -------------------------------------------------------------------------------------------------


IF = (
    "float[2] a; bool c; r = Relu(a)  y = If(c)<then_branch = t () => (float[2] p) {{ {} }},"
    " else_branch = f () => (float[2] q) {{ q = Abs(a) }}>"
)


def inner(graph: str, pattern: Term, at: str) -> list[Match]:
    model = text.parse(graph)
    facts = Facts(model.graph, dict(model.opset_imports))
    value = next(o for n in model.graph.all_nodes() for o in n.outputs if o.name == at)
    scope = value.producer().graph  # type: ignore[union-attr]
    return list(RecursiveMatcher(facts, scope).matches((pattern,), value))


def test_a_pattern_does_not_cross_the_border_of_a_subgraph() -> None:
    assert not inner(IF.format("p = Tanh(r)"), op.Tanh(op.Relu(x)), "p")
    assert inner(IF.format("s = Relu(a)  p = Tanh(s)"), op.Tanh(op.Relu(x)), "p")
    assert inner(IF.format("p = Tanh(r)"), op.Tanh(x), "p"), "a capture may lie outside"
    graph = IF.format("m = Mul(r, 2.0)  p = Mul(m, 3.0)")
    (found, *_) = inner(graph, 6 * x, "p")
    assert found[x].name == "r", "a chain ends at the border"


def test_any_node_stays_on_its_side() -> None:
    node = AnyNode(where=lambda n, _: n.op_type == "Relu")
    assert not inner(IF.format("p = Tanh(r)"), op.Tanh(node), "p")
    assert inner(IF.format("s = Relu(a)  p = Tanh(s)"), op.Tanh(node), "p")


# -- what the driver refuses ---------------------------------------------------------------------------------


def to_mish(m: Match, build: Builder) -> ir.Value:
    """tanh(relu(x)) ⟶ Mish(x), which is wrong and does not matter here."""
    return build.Mish(m[x])


def refusal(graph: str, pattern: Term, rewrite: object = to_mish, opset: int = 18) -> str:
    """Why a rule of this pattern is refused; empty where it is applied."""
    model = text.parse(graph, opset=opset)
    rule = Rule("test", Stage.RAISE, pattern, rewrite)  # type: ignore[arg-type]
    driver = Driver(model, [rule], target("onnxruntime-cpu"))
    driver.run()
    return "" if driver.trace.applied else why_not(rule, driver)


TANH_RELU = op.Tanh(op.Relu(x))


def test_an_inner_value_needed_elsewhere_is_refused() -> None:
    assert refusal("float[2] a; r = Relu(a)  y = Tanh(r)", TANH_RELU) == ""
    assert "`r` inside the match is also used by Neg" in refusal(
        "float[2] a; r = Relu(a)  y = Tanh(r)  z = Neg(r)", TANH_RELU
    )
    output = "(float[2] a) => (float[2] y, float[2] r) { r = Relu(a)  y = Tanh(r) }"
    assert "`r` inside the match is a graph output" in refusal(output, TANH_RELU)


def test_an_inner_value_needed_inside_an_if_is_refused() -> None:
    graph = f"{IF.format('p = Neg(r)')}  z = Tanh(r)"
    assert "`r` inside the match is also used by Neg" in refusal(graph, TANH_RELU)
    output = f"{IF.format('p = Identity(r)')}  z = Tanh(r)"
    assert "also used by Identity" in refusal(output, TANH_RELU)


def test_an_inner_identity_needed_elsewhere_is_refused() -> None:
    graph = "float[2] a; r = Relu(a)  i = Identity(r)  y = Tanh(i)"
    assert refusal(graph, TANH_RELU) == ""
    assert "`i` inside the match is also used by Neg" in refusal(f"{graph}  z = Neg(i)", TANH_RELU)
    assert "`r` inside the match is also used by Neg" in refusal(f"{graph}  z = Neg(r)", TANH_RELU)
    output = "(float[2] a) => (float[2] y, float[2] i) { r = Relu(a)  i = Identity(r)  y = Tanh(i) }"
    assert "`i` inside the match is a graph output" in refusal(output, TANH_RELU)


def test_an_attribute_that_nobody_considered_is_refused() -> None:
    pattern = op.Tanh(op.Elu(x))
    assert refusal("float[2] a; r = Elu(a)  y = Tanh(r)", pattern) == ""
    assert refusal("float[2] a; r = Elu<alpha = 1.0>(a)  y = Tanh(r)", pattern) == "", "it is at its default"
    assert "does not consider alpha=0.5 of Elu" in refusal("float[2] a; r = Elu<alpha = 0.5>(a)  y = Tanh(r)", pattern)
    mentioned = op.Tanh(op.Elu(x, alpha=Attr[float]("alpha")))
    assert refusal("float[2] a; r = Elu<alpha = 0.5>(a)  y = Tanh(r)", mentioned) == ""

    elu = op.Elu(x)

    def reads(m: Match, build: Builder) -> ir.Value:
        m.require(m.attr(elu, "alpha") < 1, "alpha is too large")
        return build.Mish(m[x])

    assert refusal("float[2] a; r = Elu<alpha = 0.5>(a)  y = Tanh(r)", op.Tanh(elu), reads) == ""


def test_a_number_that_may_raise_an_unknown_rank_is_refused() -> None:
    pattern = op.Tanh(0.5 * x)
    assert refusal("m = Mul(a, 0.5)  y = Tanh(m)", pattern) == ""
    assert "may raise the rank" in refusal("m = Mul(a, {0.5})  y = Tanh(m)", pattern)
    assert refusal("float[2,3] a; m = Mul(a, {0.5})  y = Tanh(m)", pattern) == ""
    assert "rank 1, not 2" in refusal("float[3] a; m = Mul(a, float[1,1] {0.5})  y = Tanh(m)", pattern)


# -- the reasons ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        ("r = Relu(a)  m = Mul(r, 0.6)  y = Tanh(m)", "expected constant 0.5, found 0.6"),
        ("r = Relu(a)  m = Div(r, 3.0)  y = Tanh(m)", "expected constant 2, found 3"),
        ("r = Relu(a)  m = Mul(r, 0.5000001)  y = Tanh(m)", "expected constant 0.5, found 0.500000119"),
        ("r = Abs(a)  m = Mul(r, 0.5)  y = Tanh(m)", "expected Relu, found"),
        ("r = Relu(a)  m = Mul(r, h)  y = Tanh(m)", "expected constant 0.5, found graph input `h`"),
        ("float h; r = Relu(a)  y = Tanh(r)", "expected a product, found Relu"),
        ("float h; r = Relu(a)  m = Mul(r, 0.5)  y = Erf(m)", "expected Tanh, found Erf"),
    ],
)
def test_the_nearest_miss(graph: str, reason: str) -> None:
    found, why = search(op.Tanh(0.5 * op.Relu(x)), f"float[2] a; {graph}", at="y")
    assert not found
    assert reason in why


# -- every rule, in every spelling ---------------------------------------------------------------------------

RAISE = [r for r in registry.load(plugins=False) if r.stage is Stage.RAISE and has_numbers(r.outputs[0])]


def spellable(rule: Rule) -> bool:
    try:
        list(spellings(rule.outputs[0], 1))
    except (Unspellable, KeyError):
        return False
    return len(rule.outputs) == 1


SPELLABLE = [pytest.param(r, id=r.name) for r in RAISE if spellable(r)]


COUNTS = [
    *((dtype, 30 if dtype == "float" else 10) for dtype in DTYPES),
    pytest.param("float", 80, marks=pytest.mark.slow),
]


def matches(pattern: Term, graph: str) -> bool:
    """Whether a pattern matches what a ``Speller`` has written."""
    model = text.parse(graph, opset=17)
    value = model.graph.outputs[0].producer().inputs[0]  # type: ignore[union-attr]
    assert value is not None
    matcher = RecursiveMatcher(Facts(model.graph, dict(model.opset_imports)), model.graph)
    return any(True for _ in matcher.matches((pattern,), value))


@pytest.mark.parametrize(("dtype", "count"), COUNTS)
@pytest.mark.parametrize("rule", SPELLABLE)
def test_a_rule_matches_every_spelling(rule: Rule, dtype: str, count: int) -> None:
    every = list(spellings(rule.outputs[0], count, dtype))
    missed = [graph for graph in every if not matches(rule.outputs[0], graph)]
    assert len(missed) <= 0.005 * len(every), missed[0]


@pytest.mark.parametrize(("dtype", "count"), COUNTS)
@pytest.mark.parametrize("rule", SPELLABLE)
def test_a_rule_matches_no_near_miss(rule: Rule, dtype: str, count: int) -> None:
    for graph, wrong in near_misses(rule.outputs[0], count, dtype):
        assert not matches(rule.outputs[0], graph), (wrong, graph)


A, B = op.Relu(Var("a")), op.Abs(Var("b"))
FORMULA = op.Tanh(0.3 * A * B - A / (1 + op.Exp(Var("c"))) + 0.7 * op.Sqrt(B) - 2.5)


@pytest.mark.slow
@given(st.randoms(use_true_random=False), st.sampled_from(DTYPES))
@settings(max_examples=150)
def test_a_formula_in_any_spelling(rng: random.Random, dtype: str) -> None:
    graph = Speller(rng, dtype).text(FORMULA)
    assert matches(FORMULA, graph), graph


@given(st.randoms(use_true_random=False), st.integers(0, 12), st.sampled_from(DTYPES))
@settings(max_examples=150)
def test_a_formula_with_one_mistake(rng: random.Random, mistake: int, dtype: str) -> None:
    speller = Speller(rng, dtype, mutate=mistake)
    graph = speller.text(FORMULA)
    assume(speller.mutated)
    assert not matches(FORMULA, graph), (speller.mutated, graph)


# -- preconditions -----------------------------------------------------------------------------------------------


def test_preconditions_can_be_overruled_for_a_while() -> None:
    (match,) = find(op.Relu(Var("x")), "float[2] x; y = Relu(x)")
    for refuses in (lambda: match.require(False, "it is even"), lambda: match.refuse("it is even")):
        with overruled():
            refuses()
        with pytest.raises(Refused, match="it is even"):
            refuses()
