"""Canonicalizations change nothing: before and after are equal to the bit, signs of zero and NaN included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnxrewrite_patterns import (
    casts,
    clamps,
    constants,
    expands,
    gathers,
    identity,
    logic,
    slice_concat_split,
    view_chains,
)

from onnxrewrite.ir import text
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.registry import rules_of

RULES = [
    r
    for family in (constants, identity, casts, clamps, logic, view_chains, expands, slice_concat_split, gathers)
    for r in rules_of(family)
]

SPECIAL = [np.nan, -np.inf, np.inf, -0.0, 0.0, -3.5, 3.5, 1e-40, -1e-40, 0.5, 2.5, -1.0]
FAILS = "the original fails"


def run(model: ir.Model, feeds: dict[str, Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    proto = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(proto, options, ["CPUExecutionProvider"])
    try:
        return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})
    except Exception:  # what the original cannot run, it may become
        return FAILS


def same(a: Any, b: Any) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool((a == b).all())
    nan = np.isnan(a) & np.isnan(b)
    return bool((nan | ((a == b) & (np.signbit(a) == np.signbit(b)))).all())


def check(graph: str, *feeds: dict[str, Any], opset: int = 17, left: Sequence[str] | None = None) -> ir.Model:
    """Rewrite ``graph`` and compare both on every one of ``feeds``; ``left`` are the operators afterwards."""
    before, after = text.parse(graph, opset=opset), text.parse(graph, opset=opset)
    Driver(after, RULES, target("onnxruntime-cpu")).run()
    operators = sorted(n.op_type for n in after.graph if n.op_type != "Constant")
    if left is not None:
        assert operators == sorted(left), text.print_model(after)
    for feed in feeds:
        old, new = run(before, feed), run(after, feed)
        if old is not FAILS:
            assert new is not FAILS, f"only the original runs {[v.shape for v in feed.values()]}"
            assert all(same(a, b) for a, b in zip(old, new, strict=True)), (old, new)
    return after


def values(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# -- numbers -------------------------------------------------------------------------------------------------

BOUNDS = [
    (-1.0, 6.0),
    (0.0, 6.0),
    (-0.0, 6.0),
    (2.0, 1.0),
    (-5.0, -2.0),
    (2.0, 3.0),
    (None, 1.0),
    (0.5, None),
    (None, None),
]
BOUNDS += [(-np.inf, np.inf), (0.0, np.inf)]


def _clip(result: str, source: str, bounds: tuple[float | None, float | None], dtype: str) -> str:
    written = ["" if b is None else f"{dtype} {b}" for b in bounds]
    return f"{result} = Clip({source}, {written[0]}, {written[1]})"


@pytest.mark.parametrize("dtype", ["float", "float16", "double"])
@pytest.mark.parametrize("outer", [*BOUNDS, "Relu"])
@pytest.mark.parametrize("inner", [*BOUNDS, "Relu"])
def test_trap_clip_of_clip_with_disjoint_crossed_and_absent_bounds(inner: Any, outer: Any, dtype: str) -> None:
    first = "a = Relu(x)" if inner == "Relu" else _clip("a", "x", inner, dtype)
    second = "y = Relu(a)" if outer == "Relu" else _clip("y", "a", outer, dtype)
    x = np.array(SPECIAL * 3, {"float": np.float32, "float16": np.float16, "double": np.float64}[dtype])
    after = check(f"{dtype}[n] x; {first}  {second}", {"x": x})
    only_zero = inner == (-5.0, -2.0) and (outer == "Relu" or outer[0] == 0)
    assert len(after.graph) == (2 if only_zero else 1)


def test_trap_clip_without_bounds_clamps_infinity() -> None:
    check("float[n] x; a = Clip(x)  y = Neg(a)", {"x": np.array(SPECIAL, np.float32)}, left=["Clip", "Neg"])


def test_clip_of_integers() -> None:
    x = np.array([-(2**31), -5, 0, 5, 2**31 - 1], np.int32)
    check("int32[n] x; a = Clip(x, int32 -3)  y = Clip(a, , int32 4)", {"x": x}, left=["Clip"])


@pytest.mark.parametrize("opset", [8, 10])
def test_clip_by_attributes(opset: int) -> None:
    x = np.array(SPECIAL, np.float32)
    check(
        "float[n] x; a = Clip<min=-1.0>(x)  b = Relu(a)  y = Clip<max=6.0>(b)",
        {"x": x},
        opset=opset,
        left=["Clip"],
    )


@pytest.mark.parametrize("kind", ["Max", "Min"])
def test_trap_extrema_of_nan_and_higher_rank(kind: str) -> None:
    x = np.array([SPECIAL] * 2, np.float32)
    check(f"float[n,12] x; a = {kind}(x, nan)  y = {kind}(a, 1.0)", {"x": x}, left=[kind])
    check(f"float[12] x; a = {kind}(x, 2.0)  y = {kind}(a, float[2,1] {{-1.0, 1.0}})", {"x": x[0]}, left=[kind])


@pytest.mark.parametrize("op", ["Relu", "Abs", "Ceil", "Floor", "Round", "Sign"])
def test_idempotent(op: str) -> None:
    x = {"x": np.array(SPECIAL, np.float32)}
    check(f"float[n] x; a = {op}(x)  b = {op}(a)  c = {op}(b)  y = Add(c, a)", x, left=["Add", op])


@pytest.mark.parametrize(
    ("node", "goes"),
    [
        ("Add(x, 0.0)", False),
        ("Add(x, -0.0)", True),
        ("Sub(x, 0.0)", True),
        ("Sub(x, -0.0)", False),
        ("Mul(1.0, x)", True),
        ("Div(x, 1.0)", True),
        ("Pow(x, 1.0)", True),
        ("Pow(x, int64 1)", True),
        ("Mul(x, 1.0000001)", False),
        ("Mul(x, 0.0)", False),
        ("Sub(x, x)", False),
        ("Mul(x, float[1] {1.0})", True),
        ("Mul(x, float[1,1] {1.0})", False),
        ("Add(x, float[12] {-0.0,-0.0,-0.0,-0.0,-0.0,-0.0,-0.0,-0.0,-0.0,-0.0,-0.0,0.0})", False),
    ],
)
def test_trap_neutral_operands_and_the_sign_of_zero(node: str, goes: bool) -> None:
    left = ["Neg"] if goes else ["Neg", node[: node.index("(")]]
    check(f"float[n] x; a = {node}  y = Neg(a)", {"x": np.array(SPECIAL, np.float32)}, left=left)


def test_trap_times_almost_one_in_double() -> None:
    check("double[n] x; a = Mul(x, 1.000009)  y = Add(a, 1e-12)", {"x": np.ones(3)}, left=["Add", "Mul"])


def test_trap_ones_that_broadcast_stay() -> None:
    ones = "float[3,1] {1.0, 1.0, 1.0}"
    check(
        f"float[n,4] x; a = Mul(x, {ones})  y = Neg(a)",
        {"x": values(1, 4)},
        {"x": values(3, 4)},
        left=["Mul", "Neg"],
    )
    check(f"float[3,4] x; a = Mul(x, {ones})  y = Neg(a)", {"x": values(3, 4)}, left=["Neg"])


def test_trap_overridable_one_stays() -> None:
    check(
        "float[n] x; float c; a = Mul(x, c)  y = Neg(a)",
        {"x": values(3), "c": np.array(2, np.float32)},
        left=["Mul", "Neg"],
    )


CASTS = {"float": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "double": 11}


@pytest.mark.parametrize("via", CASTS)
@pytest.mark.parametrize("source", ["float", "int32", "int64", "uint8", "float16"])
def test_trap_casts_that_narrow_stay(source: str, via: str) -> None:
    numbers = {
        "float": np.array([1.7, -1.7, 1e-9, 3e38, 16777217.0, 0.0, -0.0], np.float32),
        "int32": np.array([2**31 - 1, -(2**31), 300, -1, 0], np.int32),
        "int64": np.array([2**53 + 1, 2**31 + 5, -(2**40), 300, -1, 0], np.int64),
        "uint8": np.array([0, 1, 255], np.uint8),
        "float16": np.array([1.7, 65504, 6e-8, -0.0], np.float16),
    }[source]
    defined = not (source in ("float", "float16") and via not in ("float", "float16", "double", "bool"))
    feeds = [{"x": numbers}] if defined else [{"x": numbers[:2]}]
    for to in CASTS:
        if source in ("float", "float16") and to not in ("float", "float16", "double", "bool"):
            feeds = [{"x": numbers[:1]}]
        check(f"{source}[n] x; a = Cast<to={CASTS[via]}>(x)  y = Cast<to={CASTS[to]}>(a)", *feeds)


def test_double_negation_and_negated_comparison() -> None:
    x = np.array([-(2**63), -1, 0, 1, 2**63 - 1], np.int64)
    check("int64[n] x; a = Neg(x)  b = Neg(a)  y = Abs(b)", {"x": x}, left=["Abs"])
    check("int64[n] x; c = Less(x, 1)  d = Not(c)  y = Not(d)", {"x": x}, left=["Less"])
    check("int64[n] x; c = Less(x, 1)  y = Not(c)", {"x": x}, left=["GreaterOrEqual"])
    check("float[n] x; c = Less(x, 1.0)  y = Not(c)", {"x": np.array(SPECIAL, np.float32)}, left=["Less", "Not"])


def test_branch_of_a_constant_condition_is_inlined() -> None:
    then = "then_branch = () => (t) { u = Mul(x, w)  t = Add(u, x) }"
    graph = (
        f"float[n] x; float w = 2.0; c = Less(1.0, 2.0)  y = If<{then}, else_branch = () => (e) {{ e = Relu(x) }}>(c)"
    )
    check(graph, {"x": values(3)}, left=["Add", "Mul"])


# -- shapes --------------------------------------------------------------------------------------------------

SIZES = [(2, 3), (1, 1), (3, 1), (0, 3), (3, 0), (0, 0), (1, 5)]


@pytest.mark.parametrize(("n", "s"), SIZES)
@pytest.mark.parametrize(
    ("graph", "left"),
    [
        ("h = Shape(x)  a = Slice(h, {0}, {2})  t = Concat<axis=0>(a, {6, 32})"
         "  y = Reshape(x, t)", ["Reshape"]),
        ("h = Shape(x)  a = Gather(h, 0)  b = Gather(h, 1)  c = Mul(a, b)  d = Unsqueeze(c, {0})"
         "  t = Concat<axis=0>(d, {192})  y = Reshape(x, t)", ["Reshape"]),
        ("h = Shape(x)  a = Gather(h, {0})  t = Concat<axis=0>(a, {-1, 192})  y = Reshape(x, t)", None),
        ("h = Shape(x)  a = Gather(h, {1})  b = Gather(h, {0})  t = Concat<axis=0>(a, b, {192})"
         "  y = Reshape(x, t)", None),
        ("a = Reshape(x, {0, 0, 6, 32})  y = Reshape(a, {0, 0, -1})", None),
        ("a = Reshape(x, {-1, 32})  b = Reshape(a, {-1, 6, 32})  y = Neg(b)", ["Neg", "Reshape"]),
        ("a = Flatten<axis=2>(x)  b = Reshape<allowzero=1>(a, {-1, 8, 24})  y = Neg(b)", ["Neg", "Reshape"]),
        ("a = Unsqueeze(x, {1})  b = Unsqueeze(a, {-1})  c = Squeeze(b, {1})"
         "  y = Neg(c)", ["Neg", "Unsqueeze"]),
        ("h = Shape(x)  e = Expand(x, h)  y = Neg(e)", ["Neg"]),
        ("h = Shape(x)  a = Slice(h, {0}, {1})  t = Concat<axis=0>(a, {1, 192})  e = Expand(x, t)"
         "  y = Neg(e)", None),
        ("a = Slice(x, {0}, {2}, {1})  b = Slice(a, {1}, {9223372036854775807}, {1})"
         "  y = Slice(b, {0}, {1}, {0})", ["Slice"]),
        ("a = Slice(x, {1}, {9223372036854775807}, {1})  y = Slice(a, {0}, {-1}, {1})", ["Slice"]),
        ("a = Slice(x, {0}, {-1}, {1})  y = Slice(a, {0}, {2}, {1})", ["Slice", "Slice"]),
        ("a = Slice(x, {-1}, {-9223372036854775807}, {1}, {-1})"
         "  y = Slice(a, {1}, {9}, {1})", ["Slice", "Slice"]),
        ("a, b = Split<axis=2>(x, {64, 128})  c = Concat<axis=-1>(a, b)  y = Neg(c)", ["Neg"]),
        ("a, b = Split<axis=2>(x, {64, 128})  c = Concat<axis=-1>(b, a)  p, q = Split<axis=2>(c, {128, 64})"
         "  d = Concat<axis=2>(q, p)  y = Neg(d)", ["Neg"]),
        ("a = Relu(x)  b = Concat<axis=1>(a, x)  y = Concat<axis=1>(b, a)", ["Concat", "Relu"]),
        ("a = Relu(x)  b = Concat<axis=1>(a, x)  i = Cast<to=1>(b)  y = Concat<axis=1>(i, a)", ["Concat", "Relu"]),
        ("p = Pad(x, {0,0,0,0,0,0})  t = Tile(p, {1,1,1})  y = Neg(t)", ["Neg"]),
        ("y = Pad(x, {0,0,-1,0,0,1})", ["Pad"]),
        ("a = Relu(x)  h = Shape(a)  z = ConstantOfShape(h)"
         "  y = Add(x, z)", ["Add"]),
        ("a = Squeeze(x)  y = Neg(a)", ["Neg", "Squeeze"]),
    ],
)  # fmt: skip
def test_shapes_at_every_size(graph: str, left: list[str] | None, n: int, s: int) -> None:
    check(f"float[n,s,192] x; {graph}", {"x": values(n, s, 192)}, left=left)


@pytest.mark.parametrize("sizes", [(2, 3, 4), (0, 3, 4), (2, 0, 4), (2, 3, 0), (1, 1, 1)])
def test_trap_minus_one_next_to_a_size_of_zero(sizes: tuple[int, int, int]) -> None:
    graph = "h = Shape(x)  a = Gather(h, {0})  b = Gather(h, {1})  c = Gather(h, {2})  d = Mul(b, c)"
    check(f"float[n,s,t] x; {graph}  t = Concat<axis=0>(a, d)  y = Reshape(x, t)", {"x": values(*sizes)})


def test_sizes_that_are_known_late() -> None:
    """What was inferred of a size that had no name yet gives way to the number, once the pads are computed."""
    graph = (
        "k = Transpose(int64[2,2] {0, 1, 1, 0})  p = Reshape(k, {-1})  q = Pad(x, p)  h = Shape(q)"
        "  g = Gather(h, 0)  d = Sub(g, 1)  r = Range(0, d, 1)  c = Greater(r, z)  t = Shape(c)  y = Add(z, t)"
    )
    check(f"float[2,1] x; int64 z; {graph}", {"x": values(2, 1), "z": np.array(2)}, left=["Add"])


@pytest.mark.parametrize("m", [1, 3])
def test_trap_two_symbols_may_be_one_and_broadcast(m: int) -> None:
    feeds = {"x": values(3, 4), "z": values(m, 4)}
    check("float[n,4] x; float[m,4] z; w = Where(true, z, x)  y = Neg(w)", feeds, left=["Neg", "Where"])
    check(
        "float[n,4] x; float[m,4] z; h = Shape(x)  e = Expand(z, h)  y = Neg(e)",
        feeds,
        left=["Expand", "Neg", "Shape"],
    )
    check("float[n,4] x; float[m,4] z; h = Shape(x)  e = Expand(z, h)  y = Add(e, x)", feeds)


@pytest.mark.parametrize("s", [3, 8, 20])
def test_trap_slice_that_is_longer_than_the_axis(s: int) -> None:
    feeds = {"x": values(s)}
    check("float[s] x; a = Slice(x, {0}, {8})  y = Reshape(a, {-1})", feeds)
    check("float[s] x; a = Slice(x, {0}, {8})  h = Shape(a)  f = Cast<to=1>(h)  y = Mul(f, 2.0)", feeds)


@pytest.mark.parametrize("shape", [(1, 3, 1), (2, 1, 1), (1, 1, 1)])
def test_trap_squeeze_without_axes_has_no_known_rank(shape: tuple[int, ...]) -> None:
    check("float[n,s,1] x; a = Squeeze(x)  h = Shape(a)  y = Cast<to=1>(h)", {"x": values(*shape)})


def test_trap_reshape_target_from_outside_may_be_minus_one() -> None:
    graph = (
        "int64[1] t; float[n,4] x; u = Concat<axis=0>(t, {4})  e = Equal(u, {-1})"
        "  w = Where(e, {1}, u)  y = Reshape(x, u)  z = Neg(w)"
    )
    for size in (-1, 3):
        check(graph, {"x": values(3, 4), "t": np.array([size])})


def test_forty_no_ops_in_a_row() -> None:
    graph = "float[n,4] x; a0 = Relu(x)" + "".join(
        f"  b{i} = Mul(a{i}, 1.0)  a{i + 1} = Identity(b{i})" for i in range(40)
    )
    check(graph + "  y = Neg(a40)", {"x": values(2, 4)}, left=["Neg", "Relu"])


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 13, 18, 21])
def test_every_opset(opset: int) -> None:
    axes = "Unsqueeze<axes=[1]>(x)" if opset < 13 else "Unsqueeze(x, {1})"
    back = "Squeeze<axes=[1]>(b)" if opset < 13 else "Squeeze(b, {1})"
    cut = "Slice<starts=[0], ends=[9], axes=[1]>(c)" if opset < 10 else "Slice(c, {0}, {9}, {1})"
    drop = "Dropout(d)" if opset >= 12 else "Dropout<ratio=0.4>(d)"
    graph = f"float[n,4] x; a = {axes}  b = Max(a)  c = {back}  d = {cut}  e = {drop}  y = Neg(e)"
    check(graph, {"x": values(2, 4)}, {"x": values(0, 4)}, opset=opset, left=["Neg"])


def test_trap_training_dropout_stays() -> None:
    after = check("float[n] x; a = Dropout(x, 0.5, true)  y = Neg(a)", left=["Dropout", "Neg"])
    assert after is not None


def test_dead_nodes_vanish_random_ones_included() -> None:
    graph = "(float[n] x) => (y) { r = RandomNormal<shape=[2]>()  d = Add(r, 1.0)  y = Neg(x) }"
    check(graph, {"x": values(2)}, left=["Neg"])


def test_trap_inner_value_that_is_an_output_is_kept() -> None:
    graph = "(float[n,4] x) => (a, y) { a = Unsqueeze(x, {0})  y = Unsqueeze(a, {0}) }"
    after = check(graph, {"x": values(2, 4)}, left=["Unsqueeze", "Unsqueeze"])
    assert [o.name for o in after.graph.outputs] == ["a", "y"]
