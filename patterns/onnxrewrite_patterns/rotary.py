"""Rotary position embedding: features of a head, two by two, turned by an angle that grows with the position.

(x₁, x₂) ⟶ (x₁·cos - x₂·sin, x₂·cos + x₁·sin), where x₁ and x₂ are the halves of a head, or its even and its odd
features ("interleaved").  Exporters write that for both parts, or for whole heads as x·cos + (-x₂, x₁)·sin, where
every cosine and every sine comes twice.  In partial embeddings only the first features of a head turn.

Why: two Slices, a Neg, a Concat, two products and a sum, of queries and of keys in every layer, become one kernel
that reads its input once.  Su et al., 2021, arXiv:2104.09864.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.duplicated_halves import Twice, once
from onnxrewrite_patterns.rotary_operator import embedded, head_size

x = Var("x", dtype=FLOATS)
cos, sin = Var("cos"), Var("sin")

# -- a head in two parts -------------------------------------------------------------------------------------

split = op.Split(x, Each("sizes", at_least=0), axis=Attr[int]("axis of Split", default=0))
pairs = op.Reshape(x, Var("shape of pairs"))
split_pairs = op.Split(pairs, Each("sizes of pairs", at_least=0), axis=Attr[int]("axis of pairs", default=0))


class Part:
    """x₁ or x₂: cut out of x, or picked from its pairs."""

    def __init__(self, number: int):
        self.number = number
        self.sliced = op.Slice(x, Each(f"bounds {number}", at_least=0))
        self.picked = op.Gather(pairs, number, axis=Attr[int](f"axis {number}", default=0))
        self.gathered = op.Gather(pairs, number, axis=Attr[int](f"axis of slot {number}", default=0))
        cut = op.Slice(pairs, Each(f"bounds of pairs {number}", at_least=0))
        self.slot = any_of(cut, split_pairs[number], self.gathered)
        self.squeezed = op.Squeeze(self.slot, Each(f"axes {number}", at_least=0))
        self.term = any_of(self.sliced, split[number], self.picked, self.squeezed)

    def features(self, m: Match, heads: Value) -> range:
        """The features of a head that it has."""
        size, rank = head_size(m, heads), m.rank(heads) or 0
        if self.slot not in m and self.picked not in m:
            m.require(heads is m[x], "the parts are not cut from the heads", at=heads)
            return m.piece(resolve(m[self.term]), rank - 1)
        by_pairs = is_by_pairs(m, heads, pairs, self._axis(m, rank + 1))
        start, step = (self.number, 2) if by_pairs else (self.number * size // 2, 1)
        return range(start, size if by_pairs else start + size // 2, step)

    def _axis(self, m: Match, rank: int) -> int:
        """The axis of the folded heads that it is picked from."""
        if self.picked in m:
            m.require(m.rank(self.picked) == rank - 1, "what is picked is not half of the features", at=pairs)
            return m.axis(m.node(self.picked), rank)
        if self.gathered in m:
            m.require(m.rank(self.gathered) == rank, "what is picked is not half of the features", at=pairs)
            return m.axis(m.node(self.gathered), rank)
        found = piece_of(m.facts, resolve(m[self.slot]))
        if isinstance(found, str) or found.elements != range(self.number, self.number + 1):
            m.refuse("what is picked is not half of the features", at=self.slot)
        return found.axis


def is_by_pairs(m: Match, heads: Value, folded: Call, axis: int) -> bool:
    """True if heads folded in two have neighbours, and not halves, along ``axis``."""
    *before, size = m.shape(heads) or ()
    half = head_size(m, heads) // 2
    if axis == len(before) + 1 and same_shape(m.shape(folded), (*before, half, 2)):
        return True
    halves = axis == len(before) and same_shape(m.shape(folded), (*before, 2, half))
    m.require(halves, f"heads of {size} are not folded in two along one axis", at=m[folded])
    return False


x1, x2 = Part(0), Part(1)


class Joined:
    """Two parts of a head as one: side by side or, neighbour by neighbour, interleaved."""

    def __init__(self, one: Term, other: Term, slot: Term | None = None, *, may_move: bool = False):
        self.parts = one, other
        axes = Attr[tuple[int, ...]]("axes")
        self.beside = op.Concat(one, other, axis=Attr[int]("axis"))
        stacked = op.Unsqueeze(other, axes=axes)
        last = stacked if slot is None else any_of(stacked, slot)
        self.stack = op.Concat(op.Unsqueeze(one, axes=axes), last, axis=Attr[int]("axis"))
        self.paired = op.Reshape(self.stack, Var("shape of heads"))
        self.perm = Attr[tuple[int, ...]]("perm")
        self.moved = op.Reshape(op.Transpose(self.stack, perm=self.perm), Var("shape of moved heads"))
        self.term = any_of(self.beside, self.paired, *([self.moved] if may_move else []))

    def is_interleaved(self, m: Match, heads: Value) -> bool:
        """True if the parts are interleaved; refuses unless they are joined where the heads were taken apart."""
        rank = m.rank(heads) or 0
        if self.beside in m:
            m.require(m.axis(m.node(self.beside), rank) == rank - 1, "Concat goes along another axis", at=x)
            return False
        by_pairs = is_by_pairs(m, heads, self.stack, m.axis(m.node(self.stack), rank + 1))
        shape, order = m.shape(heads) or (), self.order(m, rank)
        wanted = shape if order is None else [shape[a] for a in order]
        m.require(same_shape(m.shape(self.term), wanted), "the Reshape does not make heads", at=self.term)
        return by_pairs

    def order(self, m: Match, rank: int) -> tuple[int, ...] | None:
        """The order of axes in which the heads are laid out once they are joined; None where it stays."""
        if self.moved not in m:
            return None
        perm = m[self.perm]
        m.require(perm[rank - 1 :] == (rank - 1, rank), "the parts are moved apart", at=self.moved)
        return perm[:rank]


def require_parts(m: Match, heads: Value, size: int, interleaved: bool) -> None:
    """x₁ and x₂ are the first ``size`` features of a head, as the spelling that joins them has it."""
    found = [part.features(m, heads) for part in (x1, x2)]
    wanted = [range(i, size, 2) for i in (0, 1)] if interleaved else [range(size // 2), range(size // 2, size)]
    m.require(found == wanted, f"features {found[0]} and {found[1]} are not what is joined", at=x)


# -- whole heads ---------------------------------------------------------------------------------------------

viewed = op.Reshape(x, Var("shape of the heads"))
heads_of_x = any_of(x, viewed)
turned = Joined(-x2.term, x1.term, x1.slot)

_HEADS = "float[b,3,s,8] x; float[b,s,4] f;"
_DOUBLED = "t = Concat<axis=-1>(f, f)  c = Cos(t)  k = Sin(t)  cos = Unsqueeze(c, {1})  sin = Unsqueeze(k, {1})"
_HALVES = "x1 = Slice(x, {0}, {4}, {3})  x2 = Slice(x, {4}, {9223372036854775807}, {3})"
_TURNED = "n = Neg(x2)  r = Concat<axis=-1>(n, x1)  u = Mul(x, cos)  v = Mul(r, sin)  y = Add(u, v)"
_COSINES = "c = Cos(f)  c4 = Unsqueeze(c, {1})  c3 = Squeeze(c4, {1})"
_SINES = "k = Sin(f)  k4 = Unsqueeze(k, {1})  k3 = Squeeze(k4, {1})"
_ROWS = "g = Gather(float[2,4] {0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 2.0, 3.0}, p)  cos = Unsqueeze(g, {1})"
_TABLE = f"float[1,s,3,4] x; int64[s] p; {_ROWS}"
_PAIRS = "float[b,3,s,8] x; float[b,1,s,4] c; float[b,1,s,4] k; c5 = Unsqueeze(c, {-1})  k5 = Unsqueeze(k, {-1})"


@rule(
    "rotary",
    RAISE,
    heads_of_x * cos + turned.term * sin,
    assumes=(Assumption.NOT_EMPTY,),
    allow_shared=True,
    examples=(
        Rewrites(
            f"{_HEADS} {_DOUBLED} {_HALVES} {_TURNED}",
            to=f"{_HEADS} {_COSINES} {_SINES} y = RotaryEmbedding(x, c3, k3)",
            opset=23,
        ),
        Rewrites(
            f"{_TABLE} x1, x2 = Split<axis=-1>(x, {{2, 2}})  n = Neg(x2)"
            "r = Concat<axis=3>(n, x1)  u = Mul(cos, x)  v = Mul(cos, r)  y = Add(v, u)",
            to=f"{_TABLE} a = Slice(cos, {{0}}, {{2}}, {{-1}}, {{1}})  b = Slice(cos, {{0}}, {{2}}, {{-1}}, {{1}})"
            "a2 = Squeeze(a, {1})  b2 = Squeeze(b, {1})  a3 = Unsqueeze(a2, {0})  b3 = Unsqueeze(b2, {0})"
            "f = Reshape(x, {0, 0, 12})  r = RotaryEmbedding<num_heads=3>(f, a3, b3)  y = Reshape(r, {0, 0, 3, 4})",
            opset=23,
        ),
        Rewrites(
            f"{_PAIRS} cc = Concat<axis=-1>(c5, c5)  cos = Reshape(cc, {{0, 0, 0, 8}})  kk = Concat<axis=-1>(k5, k5)"
            "sin = Reshape(kk, {0, 0, 0, 8})  x1 = Slice(x, {0}, {8}, {3}, {2})  x2 = Slice(x, {1}, {8}, {3}, {2})"
            "n = Neg(x2)  n5 = Unsqueeze(n, {-1})  x5 = Unsqueeze(x1, {-1})  a = Concat<axis=-1>(n5, x5)"
            "r = Reshape(a, {0, 0, 0, 8})  u = Mul(x, cos)  v = Mul(r, sin)  y = Add(u, v)",
            to=f"{_PAIRS} c4 = Squeeze(c5, {{4}})  k4 = Squeeze(k5, {{4}})  c3 = Squeeze(c4, {{1}})"
            "k3 = Squeeze(k4, {1})  y = RotaryEmbedding<interleaved=1>(x, c3, k3)",
            opset=23,
        ),
        Rewrites(
            "float[b,3,s,4] x; float[2,s,b,1] f; g = Gather(f, {0, 0, 1, 1})  t = Transpose<perm=[2,3,1,0]>(g)"
            "x1 = Slice(x, {0}, {4}, {3}, {2})  x2 = Slice(x, {1}, {4}, {3}, {2})  n = Neg(x2)"
            "n5 = Unsqueeze(n, {-1})  x5 = Unsqueeze(x1, {-1})  a = Concat<axis=-1>(n5, x5)"
            "r = Reshape(a, {0, 0, 0, 4})  u = Mul(x, t)  v = Mul(r, t)  y = Add(u, v)",
            to="float[b,3,s,4] x; float[2,s,b,1] f; c = Transpose<perm=[2,3,1,0]>(f)"
            "k = Transpose<perm=[2,3,1,0]>(f)  c3 = Squeeze(c, {1})  k3 = Squeeze(k, {1})"
            "y = RotaryEmbedding<interleaved=1>(x, c3, k3)",
            opset=23,
        ),
        Rewrites(
            f"{_PAIRS} cc = Concat<axis=-1>(c5, c5)  cos = Reshape(cc, {{0, 0, 0, 8}})  kk = Concat<axis=-1>(k5, k5)"
            "sin = Reshape(kk, {0, 0, 0, 8})  p = Reshape(x, {0, 0, 0, 4, 2})  p1 = Slice(p, {0}, {1}, {-1})"
            "p2 = Slice(p, {1}, {2}, {-1})  x2 = Squeeze(p2, {-1})  n = Neg(x2)  n5 = Unsqueeze(n, {-1})"
            "a = Concat<axis=-1>(n5, p1)  r = Reshape(a, {0, 0, 0, 8})  u = Mul(x, cos)  v = Mul(r, sin)"
            "y = Add(u, v)",
            to=f"{_PAIRS} c4 = Squeeze(c5, {{4}})  k4 = Squeeze(k5, {{4}})  c3 = Squeeze(c4, {{1}})"
            "k3 = Squeeze(k4, {1})  y = RotaryEmbedding<interleaved=1>(x, c3, k3)",
            opset=23,
        ),
        Rewrites(
            "float[b,3,s,8] x; float[b,s,1,1] c; float[b,s,3,1] k; ce = Expand(c, {1, 1, 1, 2})"
            "ke = Expand(k, {1, 1, 1, 2})  c2 = Reshape(ce, {0, 0, 2})  k6 = Reshape(ke, {0, 0, 6})"
            "t = Concat<axis=-1>(c2, k6)  cos = Unsqueeze(t, {1})  x1 = Slice(x, {0}, {8}, {3}, {2})"
            "x2 = Slice(x, {1}, {8}, {3}, {2})  n = Neg(x2)  n5 = Unsqueeze(n, {-1})  x5 = Unsqueeze(x1, {-1})"
            "a = Concat<axis=-1>(n5, x5)  r = Reshape(a, {0, 0, 0, 8})  u = Mul(x, cos)  v = Mul(r, cos)"
            "y = Add(u, v)",
            to="float[b,3,s,8] x; float[b,s,1,1] c; float[b,s,3,1] k; c3 = Squeeze(c, {3})  k3 = Squeeze(k, {3})"
            "t = Concat<axis=-1>(c3, k3)  i = int64[1] {1}  t4 = Unsqueeze(t, i)  c4 = Squeeze(c, {3})"
            "k4 = Squeeze(k, {3})  u = Concat<axis=-1>(c4, k4)  u4 = Unsqueeze(u, i)  t3 = Squeeze(t4, {1})"
            "u3 = Squeeze(u4, {1})  y = RotaryEmbedding<interleaved=1>(x, t3, u3)",
            opset=23,
        ),
        Rejects(
            f"{_PAIRS} cc = Concat<axis=-1>(c5, c5)  cos = Reshape(cc, {{0, 0, 0, 8}})"
            "p = Reshape(x, {0, 0, 0, 4, 2})  p1 = Slice(p, {1}, {2}, {-1})"
            "p2 = Slice(p, {0}, {1}, {-1})  x1 = Squeeze(p1, {-1})  x2 = Squeeze(p2, {-1})"
            "n = Neg(x2)  n5 = Unsqueeze(n, {-1})  x5 = Unsqueeze(x1, {-1})  a = Concat<axis=-1>(n5, x5)"
            "r = Reshape(a, {0, 0, 0, 8})  u = Mul(x, cos)  v = Mul(r, cos)  y = Add(u, v)",
            because="is not half of the features",
            opset=23,
        ),
        Rejects(
            f"{_HEADS} {_DOUBLED} x1 = Slice(x, {{0}}, {{3}}, {{3}})  x2 = Slice(x, {{3}}, {{8}}, {{3}}) {_TURNED}",
            because="features range(0, 3) and range(3, 8) are not what is joined",
            opset=23,
        ),
        Rejects(
            "float[b,3,s,8] x; float[b,1,s,8] cos; float[b,1,s,8] sin;" + f"{_HALVES} {_TURNED}",
            because="it is not shown to repeat itself",
            opset=23,
        ),
        Rejects(
            "float[b,3,s,2] x; x1 = Slice(x, {0}, {1}, {3})  x2 = Slice(x, {1}, {2}, {3})  n = Neg(x2)"
            "r = Concat<axis=-1>(n, x1)  u = Mul(x, {1.0, 2.0})  v = Mul(r, {3.0, 3.0})  y = Add(u, v)",
            because="does not repeat itself",
            opset=23,
        ),
        Rejects(
            f"float[b,3,s,8] x; float[b,3,s,4] c; cos = Concat<axis=-1>(c, c)  sin = Identity(cos){_HALVES} {_TURNED}",
            because="are not one for each position",
            opset=23,
        ),
        Rejects(
            f"{_HEADS} {_DOUBLED} x2 = Slice(x, {{0}}, {{4}}, {{3}})  x1 = Slice(x, {{4}}, {{8}}, {{3}}) {_TURNED}",
            because="are not what is joined",
            opset=23,
        ),
        Rejects(
            f"{_HEADS} {_DOUBLED} {_HALVES} {_TURNED} z = Abs(r)",
            because="the turned heads are used elsewhere, too",
            opset=23,
        ),
        Rejects(f"double {_HEADS[5:]} {_DOUBLED} {_HALVES} {_TURNED}", because="RotaryEmbedding", opset=23),
    ),
)
def rotary(m: Match, build: Builder) -> Value:
    """x·cos + (-x₂, x₁)·sin ⟶ RotaryEmbedding(x, cos, sin), of cos and sin that repeat themselves."""
    heads = m[heads_of_x]
    interleaved = turned.is_interleaved(m, heads)
    require_parts(m, heads, head_size(m, heads), interleaved)
    m.require(is_read_once(m[turned.term]), "the turned heads are used elsewhere, too", at=m[turned.term])
    tables = [once(m, build, m[t], Twice(interleaved)) for t in (cos, sin)]
    return embedded(m, build, heads, tables, interleaved=interleaved)


# -- part by part --------------------------------------------------------------------------------------------

whole = Joined(x1.term * cos - x2.term * sin, x2.term * cos + x1.term * sin, may_move=True)
rest = any_of(op.Slice(x, Each("bounds of the rest", at_least=0)), split[2])
with_rest = op.Concat(*whole.parts, rest, axis=Attr[int]("axis"))
front = Var("front")
after_front = op.Concat(front, *whole.parts, axis=Attr[int]("axis"))

_PRODUCTS = "a1 = Mul(x1, c)  a2 = Mul(x2, k)  a = Sub(a1, a2)  b1 = Mul(x2, c)  b2 = Mul(x1, k)  b = Add(b1, b2)"
_PARTS = f"{_PRODUCTS} y = Concat<axis=-1>(a, b)"


@rule(
    "rotary-by-parts",
    RAISE,
    any_of(whole.term, with_rest, after_front),
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            f"float[b,3,s,8] x; float[b,1,s,4] c; float[1,s,4] k;{_HALVES} {_PARTS}",
            to="float[b,3,s,8] x; float[b,1,s,4] c; float[1,s,4] k; c3 = Squeeze(c, {1})  k2 = Squeeze(k, {0})"
            "k3 = Unsqueeze(k2, {0})  h = Shape(x)  b = Gather<axis=0>(h, {0})  e = Concat<axis=0>(b, {1, 1})"
            "k4 = Expand(k3, e)  y = RotaryEmbedding(x, c3, k4)",
            opset=23,
        ),
        Rewrites(
            "float[b,s,3,8] x; float[b,s,1,4] c; float[b,s,1,4] k; p = Reshape(x, {0, 0, 0, 4, 2})"
            "x1 = Gather<axis=-1>(p, 0)  x2 = Gather<axis=-1>(p, 1)"
            f"{_PRODUCTS} a5 = Unsqueeze(a, {{4}})  b5 = Unsqueeze(b, {{4}})"
            "ab = Concat<axis=4>(a5, b5)  y = Reshape(ab, {0, 0, 0, 8})",
            to="float[b,s,3,8] x; float[b,s,1,4] c; float[b,s,1,4] k; c3 = Squeeze(c, {2})  k3 = Squeeze(k, {2})"
            "f = Reshape(x, {0, 0, 24})  r = RotaryEmbedding<interleaved=1, num_heads=3>(f, c3, k3)"
            "y = Reshape(r, {0, 0, 3, 8})",
            opset=23,
        ),
        Rewrites(
            "float[b,s,3,8] x; float[b,s,1,4] c; float[b,s,1,4] k; p = Reshape(x, {0, 0, 0, 4, 2})"
            f"p1, p2 = Split<axis=4>(p, {{1, 1}})  x1 = Squeeze(p1, {{4}})  x2 = Squeeze(p2, {{4}}) {_PRODUCTS}"
            "a5 = Unsqueeze(a, {4})  b5 = Unsqueeze(b, {4})  ab = Concat<axis=4>(a5, b5)"
            "t = Transpose<perm=[0,2,1,3,4]>(ab)  y = Reshape(t, {0, 3, -1, 8})",
            to="float[b,s,3,8] x; float[b,s,1,4] c; float[b,s,1,4] k; c3 = Squeeze(c, {2})  k3 = Squeeze(k, {2})"
            "f = Reshape(x, {0, 0, 24})  r = RotaryEmbedding<interleaved=1, num_heads=3>(f, c3, k3)"
            "h = Reshape(r, {0, 0, 3, 8})  y = Transpose<perm=[0,2,1,3]>(h)",
            opset=23,
        ),
        Rewrites(
            "float[b,3,s,8] x; float[b,1,s,2] c; float[b,1,s,2] k; x1, x2, rest = Split<axis=3>(x, {2, 2, 4})"
            f"{_PRODUCTS} y = Concat<axis=-1>(a, b, rest)",
            to="float[b,3,s,8] x; float[b,1,s,2] c; float[b,1,s,2] k; c3 = Squeeze(c, {1})  k3 = Squeeze(k, {1})"
            "y = RotaryEmbedding<rotary_embedding_dim=4>(x, c3, k3)",
            opset=23,
        ),
        Rewrites(
            "float[b,3,s,8] x; float[b,1,s,4] c; float[b,1,s,4] k; x1 = Slice(x, {0}, {8}, {3}, {2})"
            "x2 = Slice(x, {1}, {8}, {3}, {2})"
            f"{_PARTS}",
            to="float[b,3,s,8] x; float[b,1,s,4] c; float[b,1,s,4] k; p = Reshape(x, {0, 0, 0, 4, 2})"
            "t = Transpose<perm=[0,1,2,4,3]>(p)  h = Reshape(t, {0, 0, 0, 8})  c3 = Squeeze(c, {1})"
            "k3 = Squeeze(k, {1})  y = RotaryEmbedding(h, c3, k3)",
            opset=23,
        ),
        Rewrites(
            f"float[b,3,s,4] f; float[b,3,s,8] x; float[b,1,s,4] c; float[b,1,s,4] k;{_HALVES} {_PRODUCTS}"
            "y = Concat<axis=-1>(f, a, b)",
            to="float[b,3,s,4] f; float[b,3,s,8] x; float[b,1,s,4] c; float[b,1,s,4] k; c3 = Squeeze(c, {1})"
            "k3 = Squeeze(k, {1})  r = RotaryEmbedding(x, c3, k3)  y = Concat<axis=-1>(f, r)",
            opset=23,
        ),
        Rejects(
            "float[b,3,s,8] x; float[b,1,s,4] c; float[b,1,s,4] k; x1 = Slice(x, {1}, {8}, {3}, {2})"
            "x2 = Slice(x, {0}, {8}, {3}, {2})"
            f"{_PARTS}",
            because="are not what is joined",
            opset=23,
        ),
        Rejects(
            "float[b,3,s,8] x; float[b,1,s,2] c; float[b,1,s,2] k; x1 = Slice(x, {0}, {2}, {3})"
            "x2 = Slice(x, {2}, {4}, {3})  rest = Slice(x, {5}, {8}, {3})"
            f"{_PRODUCTS} y = Concat<axis=-1>(a, b, rest)",
            because="are not what is joined",
            opset=23,
        ),
        Rewrites(
            "float[b,s,24] x; float[b,s,1,4] c; float[b,s,1,4] k; p = Reshape(x, {0, 0, 3, 4, 2})"
            f"x1 = Gather<axis=-1>(p, 0)  x2 = Gather<axis=-1>(p, 1) {_PRODUCTS} a5 = Unsqueeze(a, {{4}})"
            "b5 = Unsqueeze(b, {4})  ab = Concat<axis=4>(a5, b5)  y = Reshape(ab, {0, 0, 3, 8})",
            to="float[b,s,24] x; float[b,s,1,4] c; float[b,s,1,4] k; h = Reshape(x, {0, 0, 3, 8})"
            "c3 = Squeeze(c, {2})  k3 = Squeeze(k, {2})  f = Reshape(h, {0, 0, 24})"
            "r = RotaryEmbedding<interleaved=1, num_heads=3>(f, c3, k3)  y = Reshape(r, {0, 0, 3, 8})",
            opset=23,
        ),
        Rejects(
            "float[b,s,3,8] x; float[b,s,1,4] c; float[b,s,1,4] k; p = Reshape(x, {0, 0, 0, 4, 2})"
            f"x1 = Gather<axis=-1>(p, 0)  x2 = Gather<axis=-1>(p, 1) {_PRODUCTS} a5 = Unsqueeze(a, {{4}})"
            "b5 = Unsqueeze(b, {4})  ab = Concat<axis=4>(a5, b5)  t = Transpose<perm=[0,1,2,4,3]>(ab)"
            "y = Reshape(t, {0, 0, 3, 8})",
            because="the parts are moved apart",
            opset=23,
        ),
        Rejects(
            f"float[b,3,s,8] x; float[b,1,s,4] c; float[b,1,s,4] k;{_HALVES} {_PRODUCTS} y = Concat<axis=2>(a, b)",
            because="Concat goes along another axis",
            opset=23,
        ),
    ),
)
def rotary_by_parts(m: Match, build: Builder) -> Value:
    """(x₁·cos - x₂·sin, x₂·cos + x₁·sin) ⟶ RotaryEmbedding(x, cos, sin)."""
    if after_front in m:
        axis, rank = m.axis(m.node(after_front), m.rank(x) or 0), m.rank(x) or 0
        m.require(axis == rank - 1, "Concat goes along another axis", at=x)
        turned = embedded(m, build, _in_order(m, build, m[x], False), (m[cos], m[sin]))
        return build.Concat(m[front], turned, axis=-1)
    if with_rest not in m:
        heads = _heads(m, build)
        interleaved, order = whole.is_interleaved(m, heads), whole.order(m, m.rank(heads) or 0)
        in_order = _in_order(m, build, heads, interleaved)
        result = embedded(m, build, in_order, (m[cos], m[sin]), interleaved=interleaved)
        return result if order is None else build.Transpose(result, perm=order)
    size, rank = head_size(m, m[x]), m.rank(x) or 0
    m.require(m.axis(m.node(with_rest), rank) == rank - 1, "Concat goes along another axis", at=x)
    kept = m.piece(resolve(m[rest]), rank - 1)
    require_parts(m, m[x], kept.start, False)
    m.require(kept == range(kept.start, size), f"the rest is features {kept}", at=x)
    return embedded(m, build, m[x], (m[cos], m[sin]), turned=kept.start)


def _in_order(m: Match, build: Builder, heads: Value, interleaved: bool) -> Value:
    """The heads with x₁ and x₂ where they are joined: neighbours may become halves, and halves neighbours."""
    size, before = head_size(m, heads), [0] * ((m.rank(heads) or 0) - 1)
    halves, neighbours = [range(size // 2), range(size // 2, size)], [range(i, size, 2) for i in (0, 1)]
    if [part.features(m, heads) for part in (x1, x2)] != (halves if interleaved else neighbours):
        require_parts(m, heads, size, interleaved)
        return heads
    apart = build.Reshape(heads, np.array([*before, *((2, size // 2) if interleaved else (size // 2, 2))]))
    moved = build.Transpose(apart, perm=(*range(len(before)), len(before) + 1, len(before)))
    ordered: Value = build.Reshape(moved, np.array([*before, size]))
    return ordered


def _heads(m: Match, build: Builder) -> Value:
    """x, split by heads where it is as it is taken apart."""
    folded = m.shape(pairs) if pairs in m else None
    if folded is None or len(folded) < 2 or len(folded) - 1 == m.rank(x):
        return m[x]
    *before, size, both = folded
    target = reshape_target(m.shape(x), (*before, size * both), None)
    m.require(target is not None, "no constant target splits x by heads", at=x)
    heads: Value = build.Reshape(m[x], np.array(target, np.int64))
    return heads
