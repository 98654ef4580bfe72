"""Attention before and after, run by ONNX Runtime without its own optimizations; and the traps around it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnxrewrite_patterns import (
    attention,
    attention_lower,
    attention_pack,
    attention_past,
    attention_shared,
    attention_standard,
    constants,
)

from onnxrewrite.ir import text
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.registry import rules_of

FILES = (attention, attention_lower, attention_pack, attention_past, attention_shared, attention_standard, constants)
RULES = tuple(rule for file in FILES for rule in rules_of(file) if not rule.needs_speedup)
INF = math.inf
LOWEST = float(np.finfo(np.float32).min)
Feeds = dict[str, np.ndarray[Any, Any]]


def run(model: ir.Model, feeds: Feeds) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()}))


def check(graph: str, feeds: Feeds, *, opset: int = 17, fused: bool = True, rtol: float = 2e-5) -> list[str]:
    """Rewrite, compare, and say whether it became one kernel; the operators that are left."""
    model = text.parse(graph, opset=opset)
    before = run(model, feeds)
    driver = Driver(model, RULES, target("onnxruntime-cpu"))
    driver.run()
    left = [n.op_type for n in model.graph]
    kernel = "MultiHeadAttention" in left or "Attention" in left
    assert kernel == fused, (left, driver.trace.refused)
    if "MultiHeadAttention" in left:
        model.opset_imports.setdefault("com.microsoft", 1)
    for old, new in zip(before, run(model, feeds), strict=True):
        assert old.shape == new.shape
        np.testing.assert_allclose(new, old, rtol=rtol, atol=rtol, equal_nan=True)
    return left


def qkv(b: int = 2, h: int = 3, s: int = 5, n: int = 7, d: int = 8, *, size: float = 1.0, seed: int = 0) -> Feeds:
    rng = np.random.default_rng(seed)
    shapes = {"q": (b, h, s, d), "k": (b, h, n, d), "v": (b, h, n, d)}
    return {name: (size * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


HEAD = "float[b,3,s,8] q; float[b,3,l,8] k; float[b,3,l,8] v; kt = Transpose<perm=[0,1,3,2]>(k);"
TAIL = "p = Softmax<axis=-1>(a)  y = MatMul(p, v)"
GUARDED = "p = Softmax<axis=-1>(a)  n = IsNaN(p)  w = Where(n, 0.0, p)  y = MatMul(w, v)"

SCALES = {
    "divided": "s = MatMul(q, kt)  a = Div(s, 1.7)",
    "multiplied": "s = MatMul(q, kt)  a = Mul(float[1] {0.3}, s)",
    "none at all (T5)": "a = MatMul(q, kt)",
    "one over the root of the size": "s = MatMul(q, kt)  a = Mul(s, 0.35355339)",
    "twice": "s = MatMul(q, kt)  t = Mul(s, 0.5)  a = Div(t, 3.0)",
    "on q and k": "qs = Mul(q, 0.6)  ks = Mul(kt, 0.7)  a = MatMul(qs, ks)",
    "on q, k and the scores": "qs = Mul(q, 0.6)  ks = Mul(kt, 0.7)  s = MatMul(qs, ks)  a = Mul(s, 0.5)",
    "on k before the Transpose": "k2 = Div(k, 3.0)  t2 = Transpose<perm=[0,1,3,2]>(k2)  a = MatMul(q, t2)",
    "by channel": "qs = Mul(q, {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}) s = MatMul(qs, kt)  a = Mul(s, 0.1)",
}


@pytest.mark.parametrize("spelling", SCALES)
def test_every_scale_survives(spelling: str) -> None:
    left = check(f"{HEAD} {SCALES[spelling]} {TAIL}", qkv())
    assert "Softmax" not in left


@pytest.mark.parametrize("number", ["-0.5", "0.0"])
def test_trap_a_scale_that_the_kernel_would_not_take(number: str) -> None:
    check(f"{HEAD} s = MatMul(q, kt)  a = Mul(s, {number}) {TAIL}", qkv())
    check(f"{HEAD} qs = Mul(q, {number})  a = MatMul(qs, kt) {TAIL}", qkv())


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 1), (1, 3, 1, 1), (2, 1, 1, 1), (5, 1), (2, 3, 5, 1)])
@pytest.mark.parametrize("emit", ["Mul", "Div"])
def test_a_scale_that_is_computed(shape: tuple[int, ...], emit: str) -> None:
    """Swin v2, EdgeNeXt: a temperature by head."""
    feeds = {**qkv(), "t": np.asarray((0.3 + np.abs(normal(1, *shape)))[0], np.float32)}
    head = HEAD.replace("[b,", "[2,").replace("s,", "5,")
    kind = f"float{list(shape)}" if shape else "float"
    check(f"{head} {kind} t; s = MatMul(q, kt)  a = {emit}(s, t) {TAIL}", feeds)


@pytest.mark.parametrize("shape", [(7,), (5, 7), (1, 1, 1, 1, 1), (3, 1, 7)])
def test_trap_a_scale_by_key(shape: tuple[int, ...]) -> None:
    feeds = {**qkv(), "t": normal(*shape)}
    graph = f"{HEAD} float{list(shape)} t; s = MatMul(q, kt)  a = Mul(s, t) {TAIL.replace('y =', 'z =')}  y = Abs(z)"
    check(graph, feeds, fused=False)


@pytest.mark.parametrize("seed", range(3))
def test_big_scores(seed: int) -> None:
    check(f"{HEAD} s = MatMul(q, kt)  a = Mul(s, 1.0) {TAIL}", qkv(size=60.0, seed=seed), rtol=1e-3)


@pytest.mark.parametrize(
    ("b", "s", "n"), [(1, 1, 1), (3, 1, 9), (2, 6, 6), (0, 4, 4), (2, 0, 3), (2, 3, 0), (1, 130, 70)]
)
def test_sizes(b: int, s: int, n: int) -> None:
    check(f"{HEAD} a = MatMul(q, kt) {TAIL}", qkv(b=b, s=s, n=n))


MASKS = {
    "[s,l]": (5, 7),
    "[l]": (7,),
    "[s,1]": (5, 1),
    "[1,1,s,l]": (1, 1, 5, 7),
    "[b,1,1,l]": (2, 1, 1, 7),
    "[b,1,s,l]": (2, 1, 5, 7),
    "[1,3,s,l]": (1, 3, 5, 7),
    "[b,3,s,l]": (2, 3, 5, 7),
    "[3,s,l]": (3, 5, 7),
    "[1,1,1,1]": (1, 1, 1, 1),
    "[3,1,1]": (3, 1, 1),
}


@pytest.mark.parametrize("shape", MASKS)
@pytest.mark.parametrize("value", [None, -INF, LOWEST, -1e4])
def test_added_masks(shape: str, value: float | None) -> None:
    mask = normal(*MASKS[shape])
    if value is not None:
        mask = np.where(mask > 0, 0, value).astype(np.float32)
        np.atleast_2d(mask)[..., :1, :] = value  # a row that is masked throughout
    check(
        f"{HEAD} float{shape} mask; s = MatMul(q, kt)  d = Div(s, 2.0)  a = Add(d, mask) {TAIL}",
        {**qkv(), "mask": mask},
    )


@pytest.mark.parametrize("shape", MASKS)
@pytest.mark.parametrize("number", ["-inf", "-3.4028234663852886e+38", "-1e30"])
@pytest.mark.parametrize("tail", [TAIL, GUARDED])
def test_boolean_masks(shape: str, number: str, tail: str) -> None:
    keep = normal(*MASKS[shape]) > 0
    np.atleast_2d(keep)[..., :1, :] = False
    graph = f"{HEAD} bool{shape} keep; m = Where(keep, float[1] {{0.0}}, float[1] {{{number}}})"
    check(f"{graph} s = MatMul(q, kt)  a = Add(s, m) {tail}", {**qkv(), "keep": keep})


@pytest.mark.parametrize("shape", MASKS)
@pytest.mark.parametrize("number", ["-inf", "-3.4028234663852886e+38", "-1e30", "-1e9"])
@pytest.mark.parametrize("tail", [TAIL, GUARDED])
@pytest.mark.parametrize("order", ["keep, t, {}", "drop, {}, t"])
def test_scores_that_are_replaced(shape: str, number: str, tail: str, order: str) -> None:
    flags = normal(*MASKS[shape]) > 0
    np.atleast_2d(flags)[..., :1, :] = order.startswith("drop")
    graph = f"{HEAD} bool{shape} {order[:4]}; s = MatMul(q, kt)  t = Mul(s, 3.0)"
    check(f"{graph} a = Where({order.format('float ' + number)}) {tail}", {**qkv(size=3.0), order[:4]: flags})


def test_trap_a_replaced_score_that_counts() -> None:
    feeds = {**qkv(), "keep": normal(5, 7) > 0}
    check(f"{HEAD} bool[s,l] keep; s = MatMul(q, kt)  a = Where(keep, s, -10.0) {TAIL}", feeds, fused=False)


def test_trap_a_guard_against_nan_from_an_unknown_mask() -> None:
    mask = np.where(normal(5, 7) > 0, 0, -INF).astype(np.float32)
    mask[0] = -INF
    check(
        f"{HEAD} float[s,l] mask; s = MatMul(q, kt)  a = Add(s, mask) {GUARDED}",
        {**qkv(), "mask": mask},
        fused=False,
    )


def test_bias_and_mask_both_survive() -> None:
    feeds = {**qkv(), "bias": normal(1, 3, 5, 7), "mask": normal(2, 1, 1, 7)}
    head = f"{HEAD} float[1,3,s,l] bias; float[b,1,1,l] mask; s = MatMul(q, kt)"
    check(f"{head} c = Add(s, bias)  a = Add(mask, c) {TAIL}", feeds)
    check(f"{head} c = Add(mask, bias)  a = Add(s, c) {TAIL}", feeds)
    check(f"{head} c = Add(s, bias)  d = Mul(c, 0.3)  a = Add(d, mask) {TAIL}", feeds)
    check(
        f"{head} t = Mul(s, 2.0)  c = Add(t, bias)  a = Mul(c, 0.3) {TAIL}".replace("float[b,1,1,l] mask;", ""),
        feeds,
    )


def test_trap_a_mask_that_broadcasts_the_scores() -> None:
    feeds = {**qkv(b=1, h=3, s=1), "mask": normal(2, 3, 5, 7)}
    graph = "float[1,3,1,8] q; float[1,3,7,8] k; float[1,3,7,8] v; float[2,3,5,7] mask;"
    check(
        f"{graph} kt = Transpose<perm=[0,1,3,2]>(k)  s = MatMul(q, kt)  a = Add(s, mask) {TAIL}",
        feeds,
        fused=False,
    )


def test_trap_batches_that_broadcast() -> None:
    feeds = {**qkv(b=1), "v": normal(2, 3, 7, 8)}
    graph = "float[1,3,5,8] q; float[1,3,7,8] k; float[2,3,7,8] v; kt = Transpose<perm=[0,1,3,2]>(k)"
    check(f"{graph} a = MatMul(q, kt) {TAIL}", feeds, fused=False)


@pytest.mark.parametrize(
    ("opset", "axis", "fused"),
    [(11, "<axis=3>", True), (11, "", False), (13, "", True), (11, "<axis=1>", False)],
)
def test_trap_softmax_before_opset_13(opset: int, axis: str, fused: bool) -> None:
    check(f"{HEAD} a = MatMul(q, kt)  p = Softmax{axis}(a)  y = MatMul(p, v)", qkv(), opset=opset, fused=fused)


@pytest.mark.parametrize("opset", [9, 11, 12, 13, 14, 18, 20, 21, 22])
def test_opsets(opset: int) -> None:
    feeds = {**qkv(), "keep": normal(2, 1, 1, 7) > 0, "bias": normal(7)}
    graph = f"{HEAD} bool[b,1,1,l] keep; m = Where(keep, float 0.0, float -inf)"
    check(
        f"{graph} s = MatMul(q, kt)  a = Add(s, m)  p = Softmax<axis=3>(a)  y = MatMul(p, v)",
        feeds,
        opset=opset,
    )
    check(f"{graph} s = MatMul(q, kt)  a = Add(s, m)  {GUARDED.replace('-1', '3')}", feeds, opset=opset)


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("value", [-INF, LOWEST])
@pytest.mark.parametrize("shape", ["[s,l]", "[b,1,1,l]"])
def test_trap_rows_masked_throughout_in_models_that_have_attention(opset: int, value: float, shape: str) -> None:
    feeds = {**qkv(), "keep": normal(*MASKS[shape]) > 0}
    feeds["keep"][..., :1, :] = False
    graph = f"{HEAD} bool{shape} keep; m = Where(keep, float 0.0, float {value})"
    graph += "s = MatMul(q, kt)  a = Add(s, m)"
    check(f"{graph} {TAIL}", feeds, opset=opset)
    check(f"{graph} {GUARDED}", feeds, opset=opset)
    assert "Attention" in check(f"{HEAD} a = MatMul(q, kt) {TAIL}", feeds, opset=opset)


KEYS = {
    "transposed once": ("float[b,l,3,8] k; kt = Transpose<perm=[0,2,3,1]>(k)", (0, 2, 1, 3)),
    "given as they are": ("float[b,3,8,l] k; kt = Identity(k)", (0, 1, 3, 2)),
    "without heads": (
        "float[b,3,l,8] k; h = Shape(k)  o = Gather(h, {0})  l = Gather(h, {2})"
        "t = Concat<axis=0>(o, {3}, {8}, l)  f = Concat<axis=0>({-1}, l, {8})  r = Reshape(k, f)"
        "rt = Transpose<perm=[0,2,1]>(r)  kt = Reshape(rt, t)",
        (0, 1, 2, 3),
    ),
}


@pytest.mark.parametrize("spelling", KEYS)
def test_keys(spelling: str) -> None:
    graph, perm = KEYS[spelling]
    feeds = qkv()
    feeds["k"] = feeds["k"].transpose(perm)
    check(f"float[b,3,s,8] q; float[b,3,l,8] v; {graph} s = MatMul(q, kt)  a = Mul(s, 0.4) {TAIL}", feeds)


def test_heads_in_the_batch() -> None:
    shapes = {"q": (6, 5, 8), "k": (6, 7, 8), "v": (6, 7, 4), "mask": (6, 5, 7), "row": (1, 7)}
    feeds = {name: normal(*shape) for name, shape in shapes.items()}
    graph = "float[n,s,8] q; float[n,l,8] k; float[n,l,4] v; kt = Transpose<perm=[0,2,1]>(k)  s = MatMul(q, kt)"
    for spelling in (
        "float[n,s,l] mask; a = Add(s, mask)",
        "float[1,l] row; a = Add(row, s)",
        "a = Mul(s, 0.7)",
    ):
        left = check(f"{graph} {spelling} {TAIL}", feeds)
        assert not {"Reshape", "Softmax"} & set(left)


@pytest.mark.parametrize("shape", [(1, 4, 1, 6, 6), (1, 1, 1, 6, 6), (4, 1, 6, 6), (1, 4, 3, 6, 6)])
@pytest.mark.parametrize("batch", [1, 2, 0])
def test_a_mask_by_window(shape: tuple[int, ...], batch: int) -> None:
    """Swin: windows are in the batch, and the mask differs between the windows of an image."""
    feeds = {n: normal(4 * batch, 3, 6, 8) for n in "qkv"} | {"mask": normal(*shape), "x": normal(batch)}
    size = "h = Shape(x)  n = Mul(h, {4})  qs = Concat<axis=0>(n, {3, 6, 8})"
    values = "  ".join(f"{n}1 = Reshape({n}, qs)" for n in "qkv")
    graph = f"float[b] x; float[a,3,6,8] q; float[c,3,6,8] k; float[d,3,6,8] v; float{list(shape)} mask;"
    bias = "bias = float[1,3,6,6] ~  kt = Transpose<perm=[0,1,3,2]>(k1)  s = MatMul(q1, kt)  c = Add(s, bias)"
    view = "t = Concat<axis=0>(h, {4, 3, 6, 6})  u = Concat<axis=0>(n, {3, 6, 6})  w = Reshape(c, t)"
    tail = f"e = Add(w, mask)  a = Reshape(e, u) {TAIL.replace('v)', 'v1)')}"
    check(f"{graph} {size} {values} {bias} {view} {tail}", feeds)


@pytest.mark.parametrize("shape", [(2, 1, 5, 7), (1, 1, 5, 7), (2, 3, 5, 7), (1, 3, 1, 7), (5, 7)])
def test_a_mask_by_head_of_heads_in_the_batch(shape: tuple[int, ...]) -> None:
    feeds = {"q": normal(6, 5, 8), "k": normal(6, 7, 8), "v": normal(6, 7, 8), "mask": normal(*shape)}
    graph = f"float[6,5,8] q; float[6,7,8] k; float[6,7,8] v; float{list(shape)} mask;"
    view = "w = Reshape(s, {2, 3, 5, 7})  e = Add(w, mask)  a = Reshape(e, {6, 5, 7})"
    check(f"{graph} kt = Transpose<perm=[0,2,1]>(k)  s = MatMul(q, kt) {view} {TAIL}", feeds)


def test_values_of_another_size() -> None:
    feeds = {**qkv(), "v": normal(2, 3, 7, 5)}
    check(f"{HEAD.replace('float[b,3,l,8] v', 'float[b,3,l,5] v')} a = MatMul(q, kt) {TAIL}", feeds)


def test_heads_are_split_no_more() -> None:
    feeds = {name: normal(2, 6, 24) for name in ("x", "y", "z")}
    split = "r{0} = Reshape({0}, {{0, 0, 3, 8}})  {1} = Transpose<perm=[0,2,1,3]>(r{0})"
    graph = "float[b,s,24] x; float[b,s,24] y; float[b,s,24] z;" + "  ".join(map(split.format, "xyz", "qkv"))
    left = check(f"{graph} kt = Transpose<perm=[0,1,3,2]>(k)  a = MatMul(q, kt) {TAIL.replace('y =', 'out =')}", feeds)
    assert left.count("Transpose") == 1, "that of the result"


@pytest.mark.parametrize(("b", "s"), [(2, 5), (0, 5), (2, 0), (1, 1)])
@pytest.mark.parametrize("has_bias", ["qkv", "qv", ""])
def test_projections_of_one_input(b: int, s: int, has_bias: str) -> None:
    graph = "float[b,s,12] x; float[b,1,1,s] mask;"
    for name in "qkv":
        graph += f"w{name} = float[12,24] ~ b{name} = float[24] ~ t{name} = MatMul(x, w{name})"
        source = f"t{name}"
        if name in has_bias:
            graph += f"a{name} = Add(b{name}, t{name})"
            source = f"a{name}"
        graph += f"r{name} = Reshape({source}, {{0, 0, 3, 8}}) {name} = Transpose<perm=[0,2,1,3]>(r{name})"
    graph += "kt = Transpose<perm=[0,1,3,2]>(k)  s = MatMul(q, kt)  d = Mul(s, 0.2)  a = Add(d, mask)"
    feeds = {"x": normal(b, s, 12), "mask": normal(b, 1, 1, s)}
    assert "MatMul" not in check(f"{graph} {TAIL}", feeds)


def test_scores_that_are_replaced_and_a_mask() -> None:
    """GPT-J: a causal mask by Where, and padding that is added."""
    feeds = {**qkv(), "keep": normal(5, 7) > 0, "mask": np.where(normal(2, 1, 1, 7) > 0, 0, LOWEST)}
    feeds["keep"][0] = False
    feeds["mask"] = feeds["mask"].astype(np.float32)
    feeds["mask"][0, 0, 0, feeds["keep"][1]] = LOWEST
    for number, fused in ((LOWEST, True), (-1e32, True), (-INF, True), (-1e9, False)):
        graph = f"{HEAD} bool[s,l] keep; float[b,1,1,l] mask; s = MatMul(q, kt)"
        check(f"{graph} t = Where(keep, s, float {number})  a = Add(t, mask) {TAIL}", feeds, fused=fused)


@pytest.mark.parametrize("hidden", ["Where(keep, b, {0})", "Where(drop, {0}, b)"])
@pytest.mark.parametrize("value", [LOWEST, -1e31])
def test_biased_scores_that_are_replaced(hidden: str, value: float) -> None:
    """T5 with a bias from a table: what is added is moderate, and a row may be masked throughout."""
    feeds = {**qkv(), "keep": normal(5, 7) > 0, "i": np.arange(35).reshape(5, 7) % 4}
    feeds["keep"][0] = False
    graph = (
        f"{HEAD} bool[s,l] keep; int64[s,l] i; drop = Not(keep)  t = Gather(float[4] {{0.5, -2.0, 1.0, 3.0}}, i)"
        f"s = MatMul(q, kt)  b = Add(s, t)  a = {hidden.format(f'float {value}')} {TAIL}"
    )
    assert check(graph, feeds, opset=23).count("Add") == 1, "the bias is added to the mask"


@pytest.mark.parametrize("order", ["before", "after"])
def test_softcap_and_a_mask(order: str) -> None:
    """Gemma 2: capped, then masked; the other way round is something else."""
    feeds = {**qkv(size=3.0), "keep": normal(5, 7) > 0}
    cap = "d = Div({0}, 2.0)  t = Tanh(d)  {1} = Mul(t, 2.0)"
    graph = f"{HEAD} bool[s,l] keep; m = Where(keep, 0.0, float {LOWEST})  s = MatMul(q, kt)"
    if order == "before":
        graph += f"{cap.format('s', 'c')}  a = Add(c, m) {TAIL}"
    else:
        graph += f"c = Add(s, m) {cap.format('c', 'a')} {TAIL}"
    for opset in (17, 23, 24):
        check(graph, feeds, opset=opset, fused=order == "before" and opset > 22)


@pytest.mark.parametrize("number", ["-inf", "-3.4028234663852886e+38", "-1e30"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("opset", [17, 23])
def test_masked_before_and_after_softmax(number: str, with_bias: bool, opset: int) -> None:
    """Conformer: rows that are masked throughout are zero, of finite masks too."""
    feeds = {**qkv(), "drop": normal(2, 1, 5, 7) > 0, "w": normal(8, 7)}
    feeds["drop"][:, :, 0] = True
    scored = "float[8,l] w; bias = MatMul(q, w)  s = Add(t, bias)" if with_bias else "s = Mul(t, 0.7)"
    check(
        f"{HEAD} bool[b,1,s,l] drop; t = MatMul(q, kt)  {scored}  a = Where(drop, float {number}, s)"
        "p = Softmax(a)  w2 = Where(drop, 0.0, p)  y = MatMul(w2, v)",
        feeds,
        opset=opset,
    )


@pytest.mark.parametrize("tail", [TAIL, "p = Softmax(a)  w = Where(drop, 0.0, p)  y = MatMul(w, v)"])
@pytest.mark.parametrize("number", ["-inf", "-3.4028234663852886e+38", "-1e30"])
def test_trap_a_mask_before_scores_are_replaced(tail: str, number: str) -> None:
    """What the first mask hides, the second may not uncover, nor the other way round."""
    feeds = {**qkv(), "drop": normal(5, 7) > 0, "bias": np.where(normal(2, 1, 1, 7) > -0.3, LOWEST, 0)}
    feeds["bias"] = feeds["bias"].astype(np.float32)
    feeds["drop"][0], feeds["drop"][1] = True, feeds["bias"][0, 0, 0] == 0
    graph = f"{HEAD} bool[s,l] drop; float[b,1,1,l] bias; t = MatMul(q, kt)  s = Add(t, bias)"
    graph += f"a = Where(drop, float {number}, s) {tail}"
    check(graph, feeds, fused=tail == TAIL)


def test_trap_weights_are_masked_by_another_condition() -> None:
    feeds = {**qkv(), "drop": normal(5, 7) > 0, "other": normal(5, 7) > 1}
    graph = f"{HEAD} bool[s,l] drop; bool[s,l] other; s = MatMul(q, kt)  a = Where(drop, float -1e30, s)"
    tail = "p = Softmax(a)  w = Where(other, 0.0, p)  y = MatMul(w, v)"
    check(f"{graph} {tail}", feeds, fused=False)
    check(f"{graph} {tail}".replace("a = Where(drop, float -1e30, s)", "a = Mul(s, 0.5)"), feeds, fused=False)
    check(f"{graph} {tail}".replace("Where(other, 0.0, p)", "Where(other, p, 0.0)"), feeds, fused=False)


@pytest.mark.parametrize("floor", [LOWEST, -1e31])
def test_scores_with_a_floor(floor: float) -> None:
    """OPT: a mask of the lowest number, and nothing lower."""
    mask = np.where(normal(2, 1, 5, 7) > 0, 0, LOWEST).astype(np.float32)
    mask[0, 0, 0], mask[1, 0, 1, 3] = LOWEST, -INF
    graph = f"{HEAD} float[b,1,s,l] mask; s = MatMul(q, kt)  c = Add(s, mask)  a = Max(c, float {floor}) {TAIL}"
    check(graph, {**qkv(), "mask": mask})
    check(graph.replace(f"float {floor}", "float -3.0"), {**qkv(), "mask": mask}, fused=False)


REPEATS = {
    "Expand": "u{0} = Unsqueeze({0}, {{2}})  e{0} = Expand(u{0}, {{1, 1, 3, 1, 1}})  r{0} = Reshape(e{0}, {{0, 6, -1, 8}})",
    "Tile": "u{0} = Unsqueeze({0}, {{2}})  e{0} = Tile(u{0}, {{1, 1, 3, 1, 1}})  r{0} = Reshape(e{0}, {{0, 6, -1, 8}})",
    "Gather": "r{0} = Gather<axis=1>({0}, {{0, 0, 0, 1, 1, 1}})",
}


@pytest.mark.parametrize("spelling", REPEATS)
@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize("mask", [(), (7,), (5, 7), (2, 1, 5, 7), (2, 1, 1, 7)])
@pytest.mark.parametrize("length", [5, 1])
def test_heads_that_share_keys(spelling: str, opset: int, mask: tuple[int, ...], length: int) -> None:
    mask = tuple(length if size == 5 else size for size in mask)
    feeds = {"q": normal(2, 6, length, 8), "k": normal(2, 2, 7, 8), "v": normal(2, 2, 7, 8), "mask": normal(*mask) > 0}
    graph = "float[b,6,s,8] q; float[b,2,7,8] k; float[b,2,7,8] v;" + "  ".join(map(REPEATS[spelling].format, "kv"))
    graph += "kt = Transpose<perm=[0,1,3,2]>(rk)  s = MatMul(q, kt)  d = Mul(s, 0.4)"
    named = str(["s" if size == 5 else "b" if size == 2 else size for size in mask]).replace("'", "")
    masked = f"bool{named} mask; m = Where(mask, 0.0, float -1e30)  a = Add(d, m)" if mask else "a = Mul(d, 1.5)"
    left = check(f"{graph} {masked} {TAIL.replace('v)', 'rv)')}", feeds, opset=opset)
    assert "Tile" not in left


def test_trap_heads_that_are_repeated_as_a_whole() -> None:
    """Head h of q is for head h mod 2 of k: that is no shared head of the standard's."""
    feeds = {"q": normal(2, 6, 5, 8), "k": normal(2, 2, 7, 8), "v": normal(2, 2, 7, 8)}
    graph = "float[b,6,s,8] q; float[b,2,7,8] k; float[b,2,7,8] v; rk = Tile(k, {1,3,1,1})  rv = Tile(v, {1,3,1,1})"
    left = check(f"{graph} kt = Transpose<perm=[0,1,3,2]>(rk)  a = MatMul(q, kt) {TAIL.replace('v)', 'rv)')}", feeds)
    assert left.count("Tile") == 2


def test_one_head_of_keys_for_all() -> None:
    feeds = {"q": normal(2, 6, 5, 8), "k": normal(2, 1, 7, 8), "v": normal(2, 1, 7, 8)}
    graph = "float[b,6,s,8] q; float[b,1,l,8] k; float[b,1,l,8] v; kt = Transpose<perm=[0,1,3,2]>(k)"
    for opset in (17, 23):
        check(f"{graph} a = MatMul(q, kt) {TAIL}", feeds, opset=opset)


@pytest.mark.parametrize("past", [0, 1, 4])
@pytest.mark.parametrize("opset", [17, 23])
def test_past_keys_and_values(past: int, opset: int) -> None:
    feeds = {"x": normal(2, 5, 24), "y": normal(2, 5, 24), "z": normal(2, 5, 24)}
    feeds |= {"pk": normal(2, 3, past, 8), "pv": normal(2, 3, past, 8), "mask": normal(5, 5 + past)}
    split = "r{0} = Reshape({0}, {{0, 0, 3, 8}})  {1} = Transpose<perm=[0,2,1,3]>(r{0})"
    graph = "float[b,s,24] x; float[b,s,24] y; float[b,s,24] z; float[b,3,p,8] pk; float[b,3,p,8] pv; float[s,n] mask;"
    graph += "  ".join(map(split.format, "xyz", "qkv"))
    graph += "ks = Concat<axis=2>(pk, k)  vs = Concat<axis=-2>(pv, v)  kt = Transpose<perm=[0,1,3,2]>(ks)"
    tail = f"a = MatMul(q, kt) {TAIL.replace('v)', 'vs)').replace('y =', 'out =')}"
    left = check(f"{graph} {tail}  present_k = Identity(ks)  present_v = Identity(vs)", feeds, opset=opset)
    assert "Concat" not in left


def test_batch_and_heads_in_one_dimension_of_what_has_both() -> None:
    """BLOOM: [B·H, S, D] of [B, H, S, D], a bias by head, a mask by batch."""
    feeds = {**qkv(), "bias": normal(6, 1, 7), "mask": normal(2, 1, 5, 7)}
    merge = "h = Shape(q)  o = Gather(h, {0})  n = Mul(o, {3})  t = Concat<axis=0>(n, {-1, 8})"
    merge += "  ".join(f"{n}3 = Reshape({n}, t)" for n in "qkv")
    graph = f"{HEAD.split('kt')[0]} float[6,1,l] bias; float[b,1,s,l] mask; {merge} kt = Transpose<perm=[0,2,1]>(k3)"
    tail = TAIL.replace("v)", "v3)")
    assert "Reshape" in check(f"{graph} s = MatMul(q3, kt)  a = Mul(s, 0.3) {tail}", feeds)
    two = graph.replace("[b,", "[2,")
    check(f"{two} s = MatMul(q3, kt)  a = Add(s, bias) {tail}", feeds)
    view = "c = Reshape(s, {2, 3, -1, 7})  e = Add(c, mask)  a = Reshape(e, {6, -1, 7})"
    check(
        f"{two} r = MatMul(q3, kt)  s = Add(r, bias) {view} {tail}".replace("l]", "7]").replace("l,8]", "7,8]"), feeds
    )


TOKENS = "float[5,b,24] x; float[7,b,24] y; float[7,b,24] z;" + "  ".join(
    f"{n}3 = Reshape({of}, {{0, -1, 8}})  {n} = Transpose<perm={list(perm)}>({n}3)"
    for n, of, perm in (("q", "x", (1, 0, 2)), ("k", "y", (1, 2, 0)), ("v", "z", (1, 0, 2)))
)
BY_HEAD = {
    "nothing, of any number of tokens": "a = MatMul(q, k)",
    "a bias for all": "float[5,7] bias; r = MatMul(q, k)  a = Add(r, bias)",
    "keys dropped": "bool[b,1,1,7] drop; r = MatMul(q, k)  c = Reshape(r, {-1, 3, 5, 7})"
    "  e = Where(drop, float -inf, c)  a = Reshape(e, {-1, 5, 7})",
    "keys kept": "bool[b,1,1,7] drop; keep = Not(drop)  r = MatMul(q, k)  c = Reshape(r, {-1, 3, 5, 7})"
    "  e = Where(keep, c, -1e9)  a = Reshape(e, {-1, 5, 7})",
}


@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize("spelling", BY_HEAD)
def test_heads_beside_the_batch_of_tokens_that_come_first(spelling: str, opset: int) -> None:
    """fairseq: [S, B, H·D] is taken apart into [S, B·H, D], a mask is put in by head."""
    drop = np.zeros((2, 1, 1, 7), bool)
    drop[1, ..., 4:] = True
    feeds = {"x": normal(5, 2, 24), "y": normal(7, 2, 24), "z": normal(7, 2, 24), "bias": normal(5, 7), "drop": drop}
    graph = f"{TOKENS} {BY_HEAD[spelling]} p = Softmax<axis=-1>(a)  o = MatMul(p, v)"
    graph += "  t = Transpose<perm=[1,0,2]>(o)  out = Reshape(t, {5, -1, 24})"
    if spelling.startswith("nothing"):
        graph = graph.replace("[5,b", "[s,b").replace("[7,b", "[l,b").replace("{5, -1", "{0, -1")
    assert "Softmax" not in check(graph, feeds, opset=opset)


IN_BATCH = "float[3,s,24] x; float[3,l,24] z; float[3,l,24] u;" + "  ".join(
    f"{n}4 = Reshape({of}, {{3, -1, 3, 8}})  {n}5 = Transpose<perm=[2,0,1,3]>({n}4)  {n} = Reshape({n}5, {{9, -1, 8}})"
    for n, of in (("q", "x"), ("k", "z"), ("v", "u"))
)


def test_heads_one_behind_the_other_in_the_batch() -> None:
    """Set Transformer: [B, S, H·D] is cut by head, and the pieces joined along the batch: [H·B, S, D]."""
    feeds = {"x": normal(3, 5, 24), "z": normal(3, 7, 24), "u": normal(3, 7, 24)}
    graph = f"{IN_BATCH} kt = Transpose<perm=[0,2,1]>(k)  a = MatMul(q, kt)  p = Softmax<axis=-1>(a)  o = MatMul(p, v)"
    back = "o4 = Reshape(o, {3, 3, -1, 8})  ot = Transpose<perm=[1,2,0,3]>(o4)  y = Reshape(ot, {3, -1, 24})"
    assert "Softmax" not in check(f"{graph} {back}", feeds)


def test_trap_a_mask_by_head_is_laid_out_as_its_heads_are() -> None:
    """Three heads of three batches: which of them comes first does not show in the shapes."""
    feeds = {"x": normal(3, 5, 24), "z": normal(3, 7, 24), "u": normal(3, 7, 24), "mask": normal(9, 5, 7)}
    graph = f"{IN_BATCH} kt = Transpose<perm=[0,2,1]>(k)  s = MatMul(q, kt)".replace("[3,s", "[3,5").replace(
        "[3,l", "[3,7"
    )
    tail = "p = Softmax<axis=-1>(a)  y = MatMul(p, v)"
    check(f"{graph} float[9,5,7] mask; a = Add(s, mask) {tail}", feeds)
    apart = "c = Reshape(s, {3, 3, 5, 7})  e = Add(c, mask)  a = Reshape(e, {9, 5, 7})"
    check(f"{graph} float[3,1,5,7] mask; {apart} {tail}", {**feeds, "mask": normal(3, 1, 5, 7)})


def test_trap_a_bias_beside_scores_that_are_replaced_by_head() -> None:
    feeds = {"x": normal(5, 2, 24), "y": normal(7, 2, 24), "z": normal(7, 2, 24), "bias": normal(6, 5, 7)}
    scores = "r = MatMul(q, k)  u = Add(r, bias)  c = Reshape(u, {2, 3, 5, 7})  e = Where(drop, float -inf, c)"
    tokens = TOKENS.replace(",b,", ",2,")
    graph = f"{tokens} float[6,5,7] bias; bool[2,1,1,7] drop; {scores}  a = Reshape(e, {{6, 5, 7}}) {TAIL}"
    check(graph.replace("y = MatMul", "o = MatMul"), {**feeds, "drop": np.zeros((2, 1, 1, 7), bool)}, fused=False)


def test_scores_that_are_taken_apart_by_head_for_good() -> None:
    """BLOOM in the newest Transformers: the mask is added, and Softmax runs, by head."""
    feeds = {**qkv(), "bias": normal(6, 1, 7), "mask": normal(2, 1, 5, 7)}
    graph = "float[2,3,5,8] q; float[2,3,7,8] k; float[2,3,7,8] v; float[6,1,7] bias; float[2,1,5,7] mask;"
    graph += "q3 = Reshape(q, {6, 5, 8})  k3 = Reshape(k, {6, 7, 8})  kt = Transpose<perm=[0,2,1]>(k3)"
    scores = "r = MatMul(q3, kt)  t = Mul(r, 0.3)  s = Add(t, bias)  c = Reshape(s, {2, 3, 5, 7})  a = Add(c, mask)"
    check(f"{graph} {scores} {TAIL}", feeds)
    by_window = scores.replace("{2, 3, 5, 7}", "{3, 2, 5, 7}").replace("mask)", "m)")
    moved = {**feeds, "v": normal(3, 2, 7, 8), "m": normal(3, 1, 5, 7)}
    head = graph.replace("float[2,3,7,8] v", "float[3,2,7,8] v").replace("float[2,1,5,7] mask", "float[3,1,5,7] m")
    check(f"{head} {by_window} {TAIL}", moved, fused=False)


PACKED = "float[b,s,16] x; w = float[16,72] ~ c = float[72] ~ m = MatMul(x, w)  j = Add(m, c)"
PIECES = {
    "split": "xq, xk, xv = Split<axis=2>(j, {24, 24, 24})"
    + "  ".join(f"r{n} = Reshape(x{n}, {{0, 0, 3, 8}})  {n} = Transpose<perm=[0,2,1,3]>(r{n})" for n in "qkv"),
    "unbind by Gather": "r = Reshape(j, {0, 0, 3, 3, 8})  t = Transpose<perm=[2,0,3,1,4]>(r)"
    + "  ".join(f"{n} = Gather<axis=0>(t, int64 {i})" for i, n in enumerate("qkv")),
    "unbind by Split": "r = Reshape(j, {0, 0, 3, 3, 8})  t = Transpose<perm=[2,0,3,1,4]>(r)"
    "xq, xk, xv = Split<axis=0>(t, {1, 1, 1})" + "  ".join(f"{n} = Squeeze(x{n}, {{0}})" for n in "qkv"),
}


@pytest.mark.parametrize("spelling", PIECES)
@pytest.mark.parametrize("opset", [17, 23])
def test_one_projection_for_all(spelling: str, opset: int) -> None:
    tail = "kt = Transpose<perm=[0,1,3,2]>(k)  s = MatMul(q, kt)  a = Mul(s, 0.3)  p = Softmax(a)  o = MatMul(p, v)"
    end = "t2 = Transpose<perm=[0,2,1,3]>(o)  y = Reshape(t2, {0, 0, 24})"
    left = check(f"{PACKED} {PIECES[spelling]} {tail} {end}", {"x": normal(2, 5, 16)}, opset=opset)
    assert opset > 22 or "MatMul" not in left


def test_heads_merged_in_models_that_have_attention() -> None:
    feeds = {name: normal(2, 6, 24) for name in ("x", "y", "z")}
    split = "r{0} = Reshape({0}, {{0, 0, 3, 8}})  {1} = Transpose<perm=[0,2,1,3]>(r{0})"
    graph = "float[b,s,24] x; float[b,s,24] y; float[b,s,24] z;" + "  ".join(map(split.format, "xyz", "qkv"))
    tail = "kt = Transpose<perm=[0,1,3,2]>(k)  a = MatMul(q, kt)  p = Softmax(a)  o = MatMul(p, v)"
    end = "t = Transpose<perm=[0,2,1,3]>(o)  out = Reshape(t, {0, 0, 24})"
    assert "Transpose" not in check(f"{graph} {tail} {end}", feeds, opset=23)


@pytest.mark.parametrize("batch", ["2", "2,3"])
@pytest.mark.parametrize("opset", [17, 23])
def test_values_times_transposed_weights(batch: str, opset: int) -> None:
    """YOLO 11, the autoencoder of latent diffusion: channels come before positions."""
    shape = tuple(map(int, batch.split(",")))
    feeds = {"q": normal(*shape, 4, 5), "k": normal(*shape, 4, 7), "v": normal(*shape, 6, 7), "e": normal(*shape, 6, 5)}
    swap = "[0,2,1]" if len(shape) == 1 else "[0,1,3,2]"
    graph = f"float[{batch},4,5] q; float[{batch},4,7] k; float[{batch},6,7] v; float[{batch},6,5] e;"
    graph += f"qt = Transpose<perm={swap}>(q)  s = MatMul(qt, k)  a = Mul(s, 0.5)  p = Softmax<axis=-1>(a)"
    check(f"{graph} pt = Transpose<perm={swap}>(p)  o = MatMul(v, pt)  y = Add(o, e)", feeds, opset=opset)


def test_a_mask_that_is_subtracted() -> None:
    feeds = {**qkv(), "m": (normal(2, 1, 1, 7) > 0).astype(np.float32)}
    check(f"{HEAD} float[b,1,1,l] m; s = MatMul(q, kt)  n = Mul(m, 1e4)  a = Sub(s, n) {TAIL}", feeds)
    check(f"{HEAD} float[b,1,1,l] m; s = MatMul(q, kt)  n = Mul(m, 1e4)  a = Sub(n, s) {TAIL}", feeds, fused=False)


def test_heads_that_are_split_and_rotated() -> None:
    feeds = {name: normal(2, 6, 3, 8) for name in "qkv"}
    graph = "float[b,s,3,8] q; float[b,s,3,8] k; float[b,s,3,8] v;"
    graph += "  ".join(f"{n}4 = Transpose<perm=[0,2,1,3]>({n})" for n in "qkv")
    tail = "kt = Transpose<perm=[0,1,3,2]>(k4)  a = MatMul(q4, kt)  p = Softmax(a)  o = MatMul(p, v4)"
    left = check(f"{graph} {tail}", feeds)
    assert left.count("Transpose") == 1, "that of the result"


def test_trap_probabilities_are_an_output() -> None:
    check(
        f"{HEAD} a = MatMul(q, kt)  p = Softmax(a)  y = MatMul(p, v)  attentions = Identity(p)",
        qkv(),
        fused=False,
    )


def test_trap_keys_are_an_output_too() -> None:
    left = check(f"{HEAD} a = MatMul(q, kt) {TAIL} present = Identity(kt)", qkv())
    assert left.count("Transpose") >= 1


def test_trap_heads_that_are_not_known() -> None:
    graph = HEAD.replace("[b,3,", "[b,h,")
    check(f"{graph} a = MatMul(q, kt) {TAIL}", qkv(), fused=False)


def test_trap_no_kernel_for_the_dtype() -> None:
    feeds = {name: array.astype(np.float64) for name, array in qkv().items()}
    check(f"{HEAD.replace('float', 'double')} a = MatMul(q, kt) {TAIL}", feeds, fused=False, rtol=1e-3)


HALF = HEAD.replace("float", "float16")
HALVES = {
    "float16 throughout": f"a = MatMul(q, kt) {TAIL}",
    "Softmax in float32": "s = MatMul(q, kt)  a = Cast<to=1>(s)  p = Softmax(a)  w = Cast<to=10>(p)  y = MatMul(w, v)",
    "scores in float32": (
        "s = MatMul(q, kt)  f = Cast<to=1>(s)  a = Mul(f, 0.3)  p = Softmax(a)  w = Cast<to=10>(p)  y = MatMul(w, v)"
    ),
    "a mask in float32": (
        "float[s,l] mask; s = MatMul(q, kt)  f = Cast<to=1>(s)  a = Add(f, mask)  p = Softmax(a)"
        "w = Cast<to=10>(p)  y = MatMul(w, v)"
    ),
    "a mask in float16": (
        "float16[s,l] mask16; s = MatMul(q, kt)  a = Add(s, mask16)  f = Cast<to=1>(a)  p = Softmax(f)"
        "w = Cast<to=10>(p)  y = MatMul(w, v)"
    ),
    "a mask of the lowest float16": (
        "bool[s,l] keep; m = Where(keep, float16 0.0, float16 -65504.0)  s = MatMul(q, kt)  t = Mul(s, float16 0.1)"
        f"a = Add(t, m) {TAIL}"
    ),
    "the lowest float16": f"bool[s,l] keep; s = MatMul(q, kt)  a = Where(keep, s, float16 -65504.0) {TAIL}",
}


@pytest.mark.parametrize("spelling", HALVES)
@pytest.mark.parametrize("opset", [17, 23])
def test_float16(spelling: str, opset: int) -> None:
    feeds = {name: array.astype(np.float16) for name, array in qkv().items()}
    feeds |= {"mask": normal(5, 7), "mask16": normal(5, 7).astype(np.float16), "keep": normal(5, 7) > 0}
    feeds["keep"][0] = False
    check(f"{HALF} {HALVES[spelling]}", feeds, rtol=2e-3, opset=opset)


def test_an_overridable_scale_is_no_constant() -> None:
    model = text.parse(f"input c = float[1] {{0.5}} {HEAD} s = MatMul(q, kt)  a = Mul(s, c) {TAIL}")
    # What the pipeline's reader does: an overridable initializer becomes a plain input.
    value = model.graph.initializers.pop("c")
    value.const_value = None
    driver = Driver(model, RULES, target("onnxruntime-cpu"))
    driver.run()
    assert "Mul" in [n.op_type for n in model.graph]
