"""DequantizeLinear and QuantizeLinear past what only moves data, so that integers are moved.

Where it comes from: what moves data is quantized like its neighbours, or stands between a weight and its layer.

Why: int8 is a quarter of the memory; a constant that is moved as integers is moved ahead; and the two come next to an
operator that has a kernel for integers, or next to each other, where they cancel.  DequantizeLinear only moves down and
QuantizeLinear only up, so what gets smaller is the number of bytes that are moved.  What repeats elements is not moved
above DequantizeLinear, and what leaves some out not above QuantizeLinear: they would compute more.  The largest of some
integers is that of the numbers that they stand for, where the scale is positive, so MaxPool is one that leaves out.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.quantize_pairs import NARROW, require_same_elements
from onnxrewrite_patterns.transpose_frames import Perm

KEEPS = operators("view permute")
"""Of every element one."""

q, x = Var("q"), Var("x")
scale, zero = Const("scale"), Const("zero", default=0)
dequantized = op.DequantizeLinear(q, scale, zero)
sinking = op[(*KEEPS, "Slice", "Gather", "GatherElements", "MaxPool")](dequantized, Each("others", at_least=0))
moving = op[(*KEEPS, "Expand", "Tile")](x, Each("others", at_least=0))
rising = op.QuantizeLinear(moving, scale, zero)


def _require_one_scale(m: Match) -> None:
    one = m[scale].ndim <= 1 and m[scale].size == 1 and m[zero].size == 1
    m.require(one, "there is a scale for each channel", at=scale)


def _meets(value: Value, op_type: str) -> bool:
    return any(n.op_type == op_type for n in readers(value, within=1))


@rule(
    "dequantize-after-move",
    CANONICALIZE,
    sinking,
    benefit=40,
    examples=(
        Rewrites(
            "int8[n,4] q; d = DequantizeLinear(q, 0.5, int8 3)  y = Transpose<perm=[1,0]>(d)",
            to="int8[n,4] q; t = Transpose<perm=[1,0]>(q)  y = DequantizeLinear(t, 0.5, int8 3)",
            opset=21,
        ),
        Rewrites(
            "uint8[9,4] q; int64[n] i; d = DequantizeLinear(q, 0.5)  y = Gather(d, i)",
            to="uint8[9,4] q; int64[n] i; g = Gather(q, i)  y = DequantizeLinear(g, 0.5)",
        ),
        Rewrites(
            "uint8[n,2,6,6] q; d = DequantizeLinear(q, 0.5)  y = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(d)",
            to="uint8[n,2,6,6] q; p = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(q)  y = DequantizeLinear(p, 0.5)",
        ),
        Rejects(
            "uint8[n,2,6,6] q; d = DequantizeLinear(q, -0.5)  y = MaxPool<kernel_shape=[3,3]>(d)",
            because="the scale is not positive",
        ),
        Rejects(
            "uint8[n,2,6,6] q; d = DequantizeLinear(q, 0.5)  y, i = MaxPool<kernel_shape=[3,3]>(d)",
            because="`i` inside the match is a graph output",
        ),
        Rejects(
            "uint8[n,2,6,6] q; d = DequantizeLinear(q, 0.5)  y = MaxPool<kernel_shape=[2,2],ceil_mode=1>(d)",
            because="outside of the image",
        ),
        Rejects(
            "int8[n,2] q; d = DequantizeLinear<axis=1>(q, {0.5, 0.25}, int8[2] {0, 0})  y = Transpose<perm=[1,0]>(d)",
            because="for each channel",
        ),
        Rejects("int8[n,1] q; d = DequantizeLinear(q, 0.5)  y = Expand(d, {1, 4})", because="found DequantizeLinear"),
        Rejects(
            "int8[n,4] q; d = DequantizeLinear(q, 0.5)  y = Transpose<perm=[1,0]>(d)  z = Relu(d)",
            because="also used by Relu",
        ),
    ),
)
def dequantize_after_move(m: Match, build: Builder) -> Value:
    """f(DequantizeLinear(q, s, z)) ⟶ DequantizeLinear(f(q), s, z) for an f that moves data, repeating none."""
    _require_one_scale(m)
    m.require(m.dtype(q) in NARROW, "it is not of at most 16 bits", at=q)
    m.require(not _meets(m[sinking], "QuantizeLinear"), "it is quantized again", at=sinking)
    require_same_elements(m, sinking, scale)
    (moved,) = build.again(m.node(sinking), m[q])
    return build.again(m.node(dequantized), moved)[0]


steps, zeros = Var("scales", rank=1), Var("zeros", default=None)
perm, axis = Attr[Perm]("perm", default=()), Attr[int]("axis", default=1)
turned = op.Transpose(op.DequantizeLinear(q, steps, zeros, axis=axis), perm=perm)


@rule(
    "dequantize-after-transpose",
    CANONICALIZE,
    turned,
    benefit=40,
    examples=(
        Rewrites(
            "int8[2,4] q; d = DequantizeLinear<axis=0>(q, {0.5, 0.25}, int8[2] {0, 1})  y = Transpose<perm=[1,0]>(d)",
            to="int8[2,4] q; t = Transpose<perm=[1,0]>(q)y = DequantizeLinear<axis=1>(t, {0.5, 0.25}, int8[2] {0, 1})",
        ),
        Rewrites(
            "int8[n,2,m] q; d = DequantizeLinear<axis=-2>(q, {0.5, 0.25})  y = Transpose(d)",
            to="int8[n,2,m] q; t = Transpose<perm=[2,1,0]>(q)  y = DequantizeLinear<axis=1>(t, {0.5, 0.25})",
        ),
        Rejects(
            "int8[2,4] q; d = DequantizeLinear<axis=0,block_size=2>(q, float[1,4] {1, 2, 3, 4})"
            "  y = Transpose<perm=[1,0]>(d)",
            because="scales must have rank 1",
            opset=21,
        ),
        Rejects(
            "int8[2,4] q; d = DequantizeLinear<axis=0>(q, {0.5, 0.25})  y = Transpose<perm=[1,0]>(d)  z = Relu(d)",
            because="also used by Relu",
        ),
    ),
)
def dequantize_after_transpose(m: Match, build: Builder) -> Value:
    """Transpose(DequantizeLinear(q, s, z)) ⟶ DequantizeLinear(Transpose(q), s, z) for a scale for each channel."""
    m.require(m.dtype(q) in NARROW, "it is not of at most 16 bits", at=q)
    m.require(not _meets(m[turned], "QuantizeLinear"), "it is quantized again", at=turned)
    order = m[perm] or tuple(reversed(range(m.rank(q) or 0)))
    m.require(order, "the rank is unknown, and the Transpose has no perm", at=turned)
    moved = build.Transpose(m[q], perm=order)
    return build.DequantizeLinear(moved, m[steps], m.value(zeros), axis=order.index(m[axis] % len(order)))


@rule(
    "quantize-before-move",
    CANONICALIZE,
    rising,
    benefit=40,
    examples=(
        Rewrites(
            "float[n,4] x; t = Transpose<perm=[1,0]>(x)  y = QuantizeLinear(t, 0.5, uint8 3)",
            to="float[n,4] x; q = QuantizeLinear(x, 0.5, uint8 3)  y = Transpose<perm=[1,0]>(q)",
            opset=21,
        ),
        Rejects(
            "float[n,4] x; i = Gather(x, {0, 1})  y = QuantizeLinear(i, 0.5, uint8 3)",
            because="found Gather",
        ),
        Rejects(
            "float[n,2] x; t = Transpose<perm=[1,0]>(x)  y = QuantizeLinear<axis=0>(t, {0.5, 0.25}, uint8[2] {0, 0})",
            because="for each channel",
        ),
        Rejects(
            "float[n,4] x; t = Transpose<perm=[1,0]>(x)  y = QuantizeLinear(t, 0.5, uint8 3)  z = Relu(t)",
            because="also used by Relu",
        ),
    ),
)
def quantize_before_move(m: Match, build: Builder) -> Value:
    """QuantizeLinear(f(x), s, z) ⟶ f(QuantizeLinear(x, s, z)) for an f that moves data, leaving none out."""
    _require_one_scale(m)
    m.require(m.dtype(rising) in NARROW, "it is not of at most 16 bits", at=rising)
    (integers,) = build.again(m.node(rising), m[x])
    return build.again(m.node(moving), integers)[0]


split = op.Split(dequantized, Each("sizes", at_least=0))


@rule(
    "dequantize-after-split",
    CANONICALIZE,
    split,
    benefit=40,
    allow_shared=True,
    examples=(
        Rewrites(
            "int8[n,4] q; d = DequantizeLinear(q, 0.5, int8 3)  a, b = Split<axis=1>(d, {1, 3})"
            "  y = Relu(a)  z = Abs(b)",
            to="int8[n,4] q; t = float 0.5  o = int8 3  a, b = Split<axis=1>(q, {1, 3})"
            "  c = DequantizeLinear(a, t, o)  d = DequantizeLinear(b, t, o)  y = Relu(c)  z = Abs(d)",
        ),
        Rejects(
            "int8[n,4] q; d = DequantizeLinear<axis=0>(q, {0.5, 0.25}, int8[2] {0, 0})"
            "  a, b = Split<axis=1>(d, {1, 3})  y = Relu(a)  z = Abs(b)",
            because="for each channel",
        ),
        Rejects(
            "int8[n,4] q; d = DequantizeLinear(q, 0.5)  a, b = Split<axis=1>(d, {1, 3})  y = Relu(a)  z = Abs(b)"
            "  v = Neg(d)",
            because="needed as a whole, too",
        ),
    ),
)
def dequantize_after_split(m: Match, build: Builder) -> list[Value]:
    """Split(DequantizeLinear(q, s, z)) ⟶ DequantizeLinear of every piece of Split(q)."""
    _require_one_scale(m)
    m.require(m.dtype(q) in NARROW, "it is not of at most 16 bits", at=q)
    m.require(is_read_once(m[dequantized]), "it is needed as a whole, too", at=dequantized)
    node = m.node(split)
    m.widen([node])
    return [build.again(m.node(dequantized), piece)[0] for piece in build.again(node, m[q])]


place = op["ArgMax", "ArgMin"](dequantized)


@rule(
    "place-among-integers",
    CANONICALIZE,
    place,
    allow_shared=True,
    examples=(
        Rewrites(
            "uint8[n,4] q; d = DequantizeLinear(q, 0.5, uint8 3)  y = ArgMax<axis=1>(d)",
            to="uint8[n,4] q; y = ArgMax<axis=1>(q)",
        ),
        Rejects("uint8[n,4] q; d = DequantizeLinear(q, -0.5)  y = ArgMax<axis=1>(d)", because="not positive"),
        Rejects("uint8[n,4] q; d = DequantizeLinear(q, 1e-44)  y = ArgMax<axis=1>(d)", because="not positive"),
        Rejects(
            "uint8[n,2] q; d = DequantizeLinear<axis=1>(q, {0.5, 0.25}, uint8[2] {0, 0})  y = ArgMax<axis=1>(d)",
            because="for each channel",
        ),
        Rejects("uint8[n,4] q; d = DequantizeLinear(q, float16 0.5)  y = ArgMax(d)", because="not FLOAT", opset=19),
    ),
)
def place_among_integers(m: Match, build: Builder) -> Value:
    """ArgMax(DequantizeLinear(q, s, z)) ⟶ ArgMax(q) for a positive scale, and ArgMin: other integers, other numbers."""
    _require_one_scale(m)
    m.require(m.dtype(q) in NARROW, "it is not of at most 16 bits", at=q)
    dtype = m.dtype(scale)
    m.require(dtype == ir.DataType.FLOAT, f"the dtype of the scale is {dtype}, not FLOAT", at=scale)
    m.require(bool((m[scale] > _TINY).all()), "the scale is not positive, or too small", at=scale)
    m.node(dequantized)  # its axis says nothing where there is one scale
    return build.again(m.node(place), m[q])[0]


_TINY = 1e-30
"""Below it the products of a scale may be the same number, or zero."""
