"""Casts that lose nothing, alone and in chains.

Why: exporters cast shapes and masks to and fro.  A cast loses nothing where every number of the one dtype is
a number of the other; only such a cast may be left out between two others.
"""

from __future__ import annotations

import ml_dtypes
import onnx_ir as ir

from onnxrewrite.rules import *

x = Var("x")
D = ir.DataType

_SIGNED = (D.INT8, D.INT16, D.INT32, D.INT64)
_UNSIGNED = (D.UINT8, D.UINT16, D.UINT32, D.UINT64)
_FLOATS = (D.FLOAT16, D.BFLOAT16, D.FLOAT, D.DOUBLE)


def keeps_all(source: ir.DataType, to: ir.DataType) -> bool:
    """True if every number of dtype ``source`` is a number of dtype ``to``."""
    if source == to:
        return True
    if source == D.BOOL:
        return to in (*_SIGNED, *_UNSIGNED, *_FLOATS)
    if source in _FLOATS:
        return to in _FLOATS and _within(source, to)
    if source not in (*_SIGNED, *_UNSIGNED):
        return False
    bits = source.bitwidth - (source in _SIGNED)
    if to in _FLOATS:
        info = ml_dtypes.finfo(to.numpy())  # type: ignore[no-untyped-call]
        return bool(bits <= info.nmant + 1 and bits < info.maxexp)
    return (to in _SIGNED and bits < to.bitwidth) or (to in _UNSIGNED and source in _UNSIGNED and bits <= to.bitwidth)


def _within(source: ir.DataType, to: ir.DataType) -> bool:
    narrow, wide = (ml_dtypes.finfo(d.numpy()) for d in (source, to))  # type: ignore[no-untyped-call]
    return bool(narrow.nmant <= wide.nmant and narrow.maxexp <= wide.maxexp and narrow.minexp >= wide.minexp)


def _always_defined(source: ir.DataType, to: ir.DataType) -> bool:
    """True if a cast is defined for every number, so that it gives the same result from a wider dtype."""
    if to == D.BOOL or source == D.BOOL:
        return True
    return to in _FLOATS or (source in (*_SIGNED, *_UNSIGNED) and to in (*_SIGNED, *_UNSIGNED))


cast = AnyNode(op_types=("Cast", "CastLike"))


@rule(
    "cast-to-own-dtype",
    CANONICALIZE,
    cast,
    benefit=80,
    examples=(
        Rewrites("float x; c = Cast<to=1>(x)  y = Relu(c)", to="float x; y = Relu(x)"),
        Rewrites("float x; float z; c = CastLike(x, z)  y = Relu(c)", to="float x; float z; y = Relu(x)"),
        Rejects("float x; y = Cast<to=7>(x)", because="the dtype changes"),
    ),
)
def cast_to_own_dtype(m: Match, build: Builder) -> Value:
    """Cast(x, dtype of x) ⟶ x."""
    source = input_of(m.node(cast))
    assert source is not None
    known = m.dtype(source) is not None and m.dtype(source) == m.dtype(cast)
    m.require(known, f"the dtype changes from {m.dtype(source)} to {m.dtype(cast)}", at=source)
    return source


like = Var("like")
cast_like = op.CastLike(x, like)


@rule(
    "cast-like",
    CANONICALIZE,
    cast_like,
    examples=(
        Rewrites("int64 x; float z; y = CastLike(x, z)", to="int64 x; float z; y = Cast<to=1>(x)"),
        Rejects(
            "int64 x; float8e4m3fn z; y = CastLike<saturate=0>(x, z)",
            because="does not consider saturate",
            opset=19,
        ),
    ),
)
def to_cast(m: Match, build: Builder) -> Value:
    """CastLike(x, y) ⟶ Cast(x, dtype of y), which does not need y."""
    dtype = m.dtype(like)
    m.require(dtype is not None, "its dtype is not known", at=like)
    assert dtype is not None
    return build.Cast(m[x], to=int(dtype))


to = Attr[int]("to")
second = op.Cast(first := op.Cast(x, to=Attr[int]("via")), to=to)


@rule(
    "cast-of-cast",
    CANONICALIZE,
    second,
    benefit=70,
    allow_shared=True,
    examples=(
        Rewrites("int32 x; a = Cast<to=7>(x)  b = Cast<to=6>(a)  y = Neg(b)", to="int32 x; y = Neg(x)"),
        Rewrites("float16 x; a = Cast<to=1>(x)  y = Cast<to=11>(a)", to="float16 x; y = Cast<to=11>(x)"),
        Rewrites("bool x; a = Cast<to=7>(x)  y = Cast<to=1>(a)", to="bool x; y = Cast<to=1>(x)"),
        Rejects(
            "float x; a = Cast<to=7>(x)  y = Cast<to=1>(a)",
            because="int64 does not hold every number of float",
        ),
        Rejects(
            "float x; a = Cast<to=10>(x)  y = Cast<to=1>(a)",
            because="float16 does not hold every number of float",
        ),
        Rejects(
            "int64 x; a = Cast<to=11>(x)  y = Cast<to=7>(a)",
            because="double does not hold every number of int64",
        ),
        Rejects("float x; a = Cast<to=11>(x)  y = Cast<to=6>(a)", because="out of range"),
        Rejects("bool x; a = Cast<to=10>(x)  y = Cast<to=8>(a)", because="text tells"),
    ),
)
def cast_of_cast(m: Match, build: Builder) -> Value:
    """Cast(Cast(x, wider), dtype) ⟶ Cast(x, dtype), or x itself."""
    source, via, dtype = m.dtype(x), m.dtype(first), D(m[to])
    m.require(source is not None and via is not None, "the dtype is not known", at=x)
    assert source is not None
    assert via is not None
    m.require(
        keeps_all(source, via),
        f"{via.name.lower()} does not hold every number of {source.name.lower()}",
        at=first,
    )
    if dtype == source:
        return m[x]
    m.require(dtype != ir.DataType.STRING, "text tells of which dtype a number was", at=second)
    # Numbers out of range, and NaN as an integer, are whatever the cast from that very dtype makes of them.
    m.require(_always_defined(source, dtype), f"{source.name.lower()} may be out of range", at=x)
    return build.Cast(m[x], to=int(dtype))
