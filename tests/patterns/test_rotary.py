"""Rotary embeddings before and after, as exporters spell them, run by ONNX Runtime; and their traps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnxrewrite_patterns import (
    constants,
    gathers,
    identity,
    rotary,
    rotary_matrices,
    rotary_operator,
    rotary_signs,
    slice_concat_split,
    view_chains,
)
from sides import rewrite

from onnxrewrite.rewrite.registry import rules_of

RULES = (
    *rules_of(constants),
    *rules_of(identity),
    *rules_of(gathers),
    *rules_of(slice_concat_split),
    *rules_of(view_chains),
    *rules_of(rotary),
    *rules_of(rotary_signs),
    *rules_of(rotary_matrices),
    *rules_of(rotary_operator),
)
Feeds = dict[str, np.ndarray[Any, Any]]

ANGLES = "float[b,s,4] f; t = Concat<axis=-1>(f, f)  c = Cos(t)  k = Sin(t)"
HALVES = "x1 = Slice(x, {0}, {4}, {3})  x2 = Slice(x, {4}, {9223372036854775807}, {3})"
WHOLE = "n = Neg(x2)  r = Concat<axis=-1>(n, x1)  u = Mul(x, cos)  v = Mul(r, sin)  y = Add(u, v)"
PRODUCTS = "a1 = Mul(x1, c)  a2 = Mul(x2, k)  a = Sub(a1, a2)  b1 = Mul(x2, c)  b2 = Mul(x1, k)  d = Add(b1, b2)"
SHAPE = "h = Shape(x)  last = Gather(h, 3)  half = Div(last, 2)  end = Unsqueeze(half, {0})"
COSINES = "float[b,1,s,4] c; float[b,1,s,4] k; cos = Concat<axis=-1>(c, c)"
SIGNED = f"{COSINES} m = Neg(k)  sin = Concat<axis=-1>(m, k)"
PAIRED = "float[b,1,s,4] f; f5 = Unsqueeze(f, {4})  e = Expand(f5, {1, 1, 1, 1, 2})  t = Reshape(e, {0, 0, 0, 8})"
SIGNS = "cos = Cos(t)  k = Sin(t)  sin = Mul(k, {-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0})"
SUM = "u = Mul(x, cos)  v = Mul(r, sin)  y = Add(u, v)"
SWAP = np.kron([[0.0, 1.0], [-1.0, 0.0]], np.eye(4)).ravel()
TURNED = {
    "rolled": f"float[b,3,s,8] x; {SIGNED} x1, x2 = Split<axis=3>(x, {{4, 4}})  r = Concat<axis=-1>(x2, x1) {SUM}",
    "rolled, the other way": f"float[b,3,s,8] x; {COSINES} m = Neg(k)  sin = Concat<axis=-1>(k, m)"
    f"x1, x2 = Split<axis=3>(x, {{4, 4}})  r = Concat<axis=-1>(x2, x1) {SUM}",
    "rolled, by signs": f"float[b,3,s,8] x; {COSINES} sin = Concat<axis=-1>(k, k) x1, x2 = Split<axis=3>(x, {{4, 4}})"
    "q = Concat<axis=-1>(x2, x1)  r = Mul(q, {-1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0})" + SUM,
    "picked": f"float[b,3,s,8] x; {PAIRED} {SIGNS} r = Gather<axis=3>(x, {{1, 0, 3, 2, 5, 4, 7, 6}}) {SUM}",
    "flipped": f"float[b,3,s,8] x; {PAIRED} {SIGNS} p = Reshape(x, {{0, 0, 0, 4, 2}})"
    "g = Slice(p, {-1}, {-9}, {4}, {-1})  r = Reshape(g, {0, 0, 0, 8})" + SUM,
    "by matrix": f"float[b,3,s,8] x; {COSINES} sin = Concat<axis=-1>(k, k)"
    f"r = MatMul(x, float[8,8] {{{', '.join(map(str, SWAP))}}})" + SUM,
    "by matrices": "float[b,3,s,8] x; float[b,1,s,4] c; float[b,1,s,4] k; c5 = Unsqueeze(c, {4})  k5 = Unsqueeze(k, {4})"
    "n = Neg(k5)  t = Concat<axis=-1>(c5, n, k5, c5)  m = Reshape(t, {0, 0, 0, 4, 2, 2})  f = Gather<axis=5>(m, 0)"
    "g = Gather<axis=5>(m, 1)  p = Reshape(x, {0, 0, 0, 4, 1, 2})  x1 = Gather<axis=5>(p, 0)"
    "x2 = Gather<axis=5>(p, 1)  u = Mul(f, x1)  v = Mul(g, x2)  w = Add(u, v)  y = Reshape(w, {0, 0, 0, 8})",
    "pairs beside heads": "float[b,s,24] w; float[b,s,1,4] f; f5 = Unsqueeze(f, {4})  e = Expand(f5, {1, 1, 1, 1, 2})"
    "t = Reshape(e, {0, 0, 1, 8})  cos = Cos(t)  sin = Sin(t)  p = Reshape(w, {0, 0, 3, 4, 2})"
    "x1 = Gather<axis=4>(p, {0})  x2 = Gather<axis=4>(p, 1)  n = Neg(x2)  n5 = Unsqueeze(n, {4})"
    "s5 = Concat<axis=4>(n5, x1)  r = Reshape(s5, {0, 0, 3, 8})  x = Reshape(w, {0, 0, 3, 8})" + SUM,
    "llama": f"float[b,3,s,8] x; {ANGLES} cos = Unsqueeze(c, {{1}})  sin = Unsqueeze(k, {{1}}) {HALVES} {WHOLE}",
    "computed ends": f"float[b,3,s,8] x; {ANGLES} cos = Unsqueeze(c, {{1}})  sin = Unsqueeze(k, {{1}}) {SHAPE}"
    f"x1 = Slice(x, {{0}}, end, {{3}})  x2 = Slice(x, end, {{9223372036854775807}}, {{3}}) {WHOLE}",
    "split": f"float[b,3,s,8] x; {ANGLES} cos = Unsqueeze(c, {{1}})  sin = Unsqueeze(k, {{1}})"
    f"x1, x2 = Split<axis=3>(x, {{4, 4}}) {WHOLE}",
    "scaled": f"float[b,3,s,8] x; {ANGLES} c2 = Mul(c, 1.5)  k2 = Mul(k, 1.5)  cos = Unsqueeze(c2, {{1}})"
    f"sin = Unsqueeze(k2, {{1}}) {HALVES} {WHOLE}",
    "viewed": f"float[b,3,s,8] x; {ANGLES} cos = Reshape(c, {{0, 1, -1, 8}})  sin = Reshape(k, {{0, 1, -1, 8}}) {HALVES} {WHOLE}",
    "heads last": f"float[b,s,3,8] x; {ANGLES} cos = Unsqueeze(c, {{2}})  sin = Unsqueeze(k, {{2}}) {HALVES} {WHOLE}",
    "halves": f"float[b,3,s,8] x; float[b,1,s,4] c; float[b,1,s,4] k; {HALVES} {PRODUCTS} y = Concat<axis=-1>(a, d)",
    "one batch of angles": f"float[b,3,s,8] x; float[s,4] c; float[1,s,4] k; {HALVES} {PRODUCTS} y = Concat<axis=-1>(a, d)",
    "partial halves": "float[b,3,s,12] x; float[b,1,s,4] c; float[b,1,s,4] k; x1, x2, z = Split<axis=3>(x, {4, 4, 4})"
    f"{PRODUCTS} y = Concat<axis=-1>(a, d, z)",
    "partial": f"float[b,3,s,12] w; {ANGLES} cos = Unsqueeze(c, {{1}})  sin = Unsqueeze(k, {{1}})"
    f"x = Slice(w, {{0}}, {{8}}, {{3}})  z = Slice(w, {{8}}, {{12}}, {{3}}) {HALVES}"
    f"{WHOLE[:-13]} e = Add(u, v)  y = Concat<axis=-1>(e, z)",
    "table cut to length": "float[b,3,s,8] x; h = Shape(x)  e = Slice(h, {2}, {3})  c = Slice(float[1,1,5,4] "
    f"{{{', '.join(str(i / 10) for i in range(20))}}}, {{0}}, e, {{2}})  k = Neg(c) {HALVES} {PRODUCTS}"
    "y = Concat<axis=-1>(a, d)",
    "pairs": "float[b,s,3,8] x; float[b,s,1,4] c; float[b,s,1,4] k; p = Reshape(x, {0, 0, 0, 4, 2})"
    f"x1 = Gather<axis=4>(p, 0)  x2 = Gather<axis=4>(p, 1) {PRODUCTS} a5 = Unsqueeze(a, {{4}})  d5 = Unsqueeze(d, {{4}})"
    "s5 = Concat<axis=4>(a5, d5)  y = Reshape(s5, {0, 0, 3, 8})",
    "neighbours, of a view with one more axis": "float[b,3,s,8] x; float[1,s,4] f; f4 = Unsqueeze(f, {3})"
    "e = Concat<axis=3>(f4, f4)  t = Reshape(e, {1, 1, -1, 8})  cos = Cos(t)  sin = Sin(t)"
    "p = Reshape(x, {0, 0, 0, 4, 2})  p1, p2 = Split<axis=4>(p, {1, 1})  x1 = Squeeze(p1, {4})  x2 = Squeeze(p2, {4})"
    "n = Neg(x2)  n5 = Unsqueeze(n, {4})  x5 = Unsqueeze(x1, {4})  s5 = Concat<axis=4>(n5, x5)"
    "r = Reshape(s5, {0, 0, 0, 8})" + SUM,
    "unbound halves": f"float[b,3,s,8] x; {ANGLES} cos = Unsqueeze(c, {{1}})  sin = Unsqueeze(k, {{1}})"
    "p = Reshape(x, {0, 0, 0, 2, 4})  p1, p2 = Split<axis=3>(p, {1, 1})  x1 = Squeeze(p1, {3})  x2 = Squeeze(p2, {3})"
    f"{WHOLE}",
    "stacked halves": f"float[b,3,s,8] x; {ANGLES} cos = Unsqueeze(c, {{1}})  sin = Unsqueeze(k, {{1}}) {HALVES}"
    "n = Neg(x2)  n5 = Unsqueeze(n, {-2})  x5 = Unsqueeze(x1, {-2})  s5 = Concat<axis=-2>(n5, x5)"
    "r = Reshape(s5, {0, 0, 0, 8})  u = Mul(x, cos)  v = Mul(r, sin)  y = Add(u, v)",
    "neighbours": "float[b,3,s,8] x; float[b,1,s,4] f; f5 = Unsqueeze(f, {4})  e = Expand(f5, {1, 1, 1, 1, 2})"
    "t = Reshape(e, {0, 0, 0, 8})  cos = Cos(t)  sin = Sin(t)  x1 = Slice(x, {0}, {8}, {3}, {2})"
    "x2 = Slice(x, {1}, {8}, {3}, {2})  n = Neg(x2)  n5 = Unsqueeze(n, {4})  x5 = Unsqueeze(x1, {4})"
    "s5 = Concat<axis=4>(n5, x5)  r = Reshape(s5, {0, 0, 3, 8})  u = Mul(x, cos)  v = Mul(r, sin)  y = Add(u, v)",
}


def feeds(sides: Any, b: int, s: int) -> Feeds:
    rng = np.random.default_rng(b + s)
    sizes = {"b": b, "s": s}
    made = {}
    for value in sides.before.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in kind.shape.dim]
        made[value.name] = rng.standard_normal(shape).astype(np.float16 if kind.elem_type == 10 else np.float32)
    return made


@pytest.mark.parametrize("opset", [13, 17, 23])
@pytest.mark.parametrize("spelling", TURNED)
def test_turned(spelling: str, opset: int) -> None:
    graph = TURNED[spelling].replace("r = Reshape(s5, {0, 0, 3, 8})", "r = Reshape(s5, {0, 0, 0, 8})")
    sides = rewrite(graph, RULES, opset=opset)
    assert ("RotaryEmbedding" if opset >= 23 else "com.microsoft.RotaryEmbedding") in sides.operators
    assert not {"Mul", "Split"} & set(sides.operators) or spelling == "scaled"
    for b, s in ((1, 1), (2, 5), (3, 1)):
        sides.same(feeds(sides, b, s))


def test_cosines_and_sines_are_shared() -> None:
    graph = f"float[b,3,s,8] x; float[b,2,s,8] z; {ANGLES} cos = Unsqueeze(c, {{1}})  sin = Unsqueeze(k, {{1}})"
    other = "z1 = Slice(z, {0}, {4}, {3})  z2 = Slice(z, {4}, {8}, {3})  m = Neg(z2)  o = Concat<axis=-1>(m, z1)"
    sides = rewrite(f"{graph} {HALVES} {WHOLE} {other} p = Mul(z, cos)  q = Mul(o, sin)  w = Add(p, q)", RULES)
    counts = {name: sides.operators.count(name) for name in ("Cos", "Sin", "Range", "com.microsoft.RotaryEmbedding")}
    assert counts == {"Cos": 1, "Sin": 1, "Range": 1, "com.microsoft.RotaryEmbedding": 2}
    sides.same(feeds(sides, 2, 5))


def test_half_precision() -> None:
    graph = TURNED["halves"].replace("float[", "float16[")
    sides = rewrite(graph, RULES)
    assert "com.microsoft.RotaryEmbedding" in sides.operators
    sides.same(feeds(sides, 2, 5))


@pytest.mark.parametrize(
    "graph",
    [
        f"float[b,3,s,8] x; float[b,1,s,8] cos; float[b,1,s,8] sin; {HALVES} {WHOLE}",
        f"float[b,3,s,8] x; {ANGLES} cos = Unsqueeze(c, {{1}})  sin = Unsqueeze(k, {{1}})"
        f"x1 = Slice(x, {{0}}, {{3}}, {{3}})  x2 = Slice(x, {{3}}, {{8}}, {{3}}) {WHOLE}",
        f"float[b,3,s,8] x; {ANGLES} cos = Unsqueeze(c, {{1}})  sin = Unsqueeze(k, {{1}}) {HALVES}"
        "r = Concat<axis=-1>(x2, x1)  u = Mul(x, cos)  v = Mul(r, sin)  y = Add(u, v)",
        f"float[b,3,s,8] x; {ANGLES} cos = Unsqueeze(c, {{1}})  sin = Unsqueeze(k, {{1}}) {HALVES}"
        "n = Neg(x1)  r = Concat<axis=-1>(x2, n)  u = Mul(x, cos)  v = Mul(r, sin)  y = Add(u, v)",
        f"float[b,3,s,8] x; float[b,3,s,4] c; float[b,3,s,4] k; {HALVES} {PRODUCTS} y = Concat<axis=-1>(a, d)",
        f"float[b,3,s,7] x; float[b,1,s,1] c; float[b,1,s,1] k; x1 = Slice(x, {{0}}, {{4}}, {{3}})"
        f"x2 = Slice(x, {{3}}, {{7}}, {{3}}) {PRODUCTS} y = Concat<axis=-1>(a, d)",
    ],
)
def test_not_turned(graph: str) -> None:
    sides = rewrite(graph, RULES)
    assert not [name for name in sides.operators if "RotaryEmbedding" in name]
