"""Operators that pick elements by indices, set others beside them, or take blocks apart: index maps as well."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.proof.index_terms import (
    Index,
    Integer,
    Term,
    Unprovable,
    chosen,
    conjunction,
    equal,
    floor_divided,
    larger,
    modulo,
    plain,
    product,
    smaller,
    within,
)
from onnxrewrite.proof.semantics_views import counted_place, numbers_of, view
from onnxrewrite.proof.tensors import Call, Encoding, Outputs, Tensor, from_front, means

D = ir.DataType


@means("Gather")
def _gather(e: Encoding, call: Call) -> Outputs:
    x, indices = call.tensor(0), call.tensor(1)
    axis = call.axis(x.rank)

    def at(index: Index) -> Term:
        place = e.domain.as_index(indices.at(index[axis : axis + indices.rank]), indices.dtype)
        return x.at((*index[:axis], _looked_at(e, place, x.dims[axis]), *index[axis + indices.rank :]))

    def place_at(index: Index) -> Term:
        return _looked_at(e, e.domain.as_index(indices.at(index), indices.dtype), x.dims[axis])

    e.everywhere(indices.dims, place_at)  # whatever is empty beside them
    return e.tensor(x.dtype, [*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :]], at)


def _looked_at(e: Encoding, place: Integer, size: Integer) -> Integer:
    """An index that may be counted from the end, which must lie inside."""
    e.require(conjunction([plain(place >= -size), plain(place < size)]), "an index of a gather")
    return counted_place(place, size)


@means("GatherElements")
def _gather_elements(e: Encoding, call: Call) -> Outputs:
    x, indices = call.tensor(0), call.tensor(1)
    axis = call.axis(x.rank)
    for k in range(x.rank):
        if k != axis:
            e.require(plain(indices.dims[k] <= x.dims[k]), "the shape of the indices")

    def at(index: Index) -> Term:
        place = e.domain.as_index(indices.at(index), indices.dtype)
        return x.at((*index[:axis], _looked_at(e, place, x.dims[axis]), *index[axis + 1 :]))

    made = e.tensor(x.dtype, indices.dims, at)
    e.everywhere(made.dims, made.at)
    return made


@means("GatherND")
def _gather_nd(e: Encoding, call: Call) -> Outputs:
    x, indices = call.tensor(0), call.tensor(1)
    batch, width = call.attribute("batch_dims", 0), indices.dims[-1] if indices.rank else None
    if batch or not isinstance(width, int) or width > x.rank:
        raise Unprovable("GatherND with batches, or of places of unknown length")
    outer = indices.rank - 1

    def looked_at(index: Index) -> list[Integer]:
        places = [e.domain.as_index(indices.at((*index, k)), indices.dtype) for k in range(width)]
        return [_looked_at(e, p, d) for p, d in zip(places, x.dims, strict=False)]

    e.everywhere(indices.dims[:outer], looked_at)
    made = [*indices.dims[:outer], *x.dims[width:]]
    return e.tensor(x.dtype, made, lambda i: x.at((*looked_at(i[:outer]), *i[outer:])))


@means("Pad")
def _pad(e: Encoding, call: Call) -> Outputs:
    x, value = call.tensor(), call.optional(2) if call.version >= 11 else None
    pads = call.integers("pads" if call.version >= 2 else "paddings")
    if call.version >= 18 and call.optional(3) is not None:
        axes = [from_front(a, x.rank) for a in numbers_of(call, "axes") or []]
        given, pads = pads or [], [0] * (2 * x.rank)
        for k, axis in enumerate(axes):
            pads[axis], pads[axis + x.rank] = given[k], given[k + len(axes)]
    if pads is None or len(pads) != 2 * x.rank:
        raise Unprovable("the pads of Pad")
    begin, finish = pads[: x.rank], pads[x.rank :]
    dims = [plain(b + d + f) for b, d, f in zip(begin, x.dims, finish, strict=True)]
    for size in dims:
        e.require(plain(size >= 0) if not isinstance(size, int) else size >= 0, "a size after Pad")
    mode = call.attribute("mode", "constant")
    if mode == "constant":
        number = call.attribute("value", 0.0)
        return padded(e, x, begin, dims, lambda: _given(value) if value is not None else _filling(e, number, x.dtype))
    return _mirrored(e, x, begin, finish, dims, mode)


def _given(value: Tensor) -> Term:
    return value.at((0,) * value.rank)


def _filling(e: Encoding, number: float, dtype: ir.DataType) -> Term:
    if dtype == D.BOOL:
        return bool(number)
    return int(number) if dtype.is_integer() else e.domain.number(np.asarray(number).astype(dtype.numpy()), dtype)


def padded(e: Encoding, x: Tensor, begin: Sequence[Integer], dims: Sequence[Integer], fill: Term) -> Tensor:
    """A tensor with others around it; what is negative is cut off."""

    def at(index: Index) -> Term:
        own = tuple(plain(i - b) for i, b in zip(index, begin, strict=True))
        needed = [
            conjunction([True if _is_zero(b) else plain(o >= 0), plain(o < d)])
            for o, b, d in zip(own, begin, x.dims, strict=True)
        ]
        changed = [
            c
            for c, b, d, n in zip(needed, begin, x.dims, dims, strict=True)
            if not (_is_zero(b) and equal(d, n) is True)
        ]
        return e.choose(conjunction(changed), lambda: x.at(own), fill, x.dtype)

    return e.tensor(x.dtype, dims, at)


def _is_zero(size: Integer) -> bool:
    return isinstance(size, int) and size == 0


def _mirrored(
    e: Encoding, x: Tensor, begin: Sequence[Integer], finish: Sequence[Integer], dims: Sequence[Integer], mode: str
) -> Tensor:
    if mode not in ("edge", "reflect") or not all(isinstance(b, int) and b >= 0 for b in (*begin, *finish)):
        raise Unprovable(f"Pad of mode {mode}")
    for b, f, d in zip(begin, finish, x.dims, strict=True):
        least = max(b, f) if mode == "reflect" else 0
        e.require(plain(d > least) if b or f else True, f"what Pad of mode {mode} repeats")

    def place(i: Integer, b: Integer, d: Integer) -> Integer:
        own = plain(i - b)
        if mode == "edge":
            return smaller(larger(own, 0), plain(d - 1))
        back = plain(chosen(plain(own < 0), -own, own))
        return plain(chosen(plain(back < d), back, 2 * (d - 1) - back))

    def at(index: Index) -> Term:
        cut = zip(index, begin, finish, x.dims, strict=True)
        return x.at(tuple(i if _is_zero(b) and _is_zero(f) else place(i, b, d) for i, b, f, d in cut))

    return e.tensor(x.dtype, dims, at)


@means("DepthToSpace", "SpaceToDepth")
def _space(e: Encoding, call: Call) -> Outputs:
    """By the Reshape, Transpose and Reshape that define them."""
    x, block = call.tensor(), call.attribute("blocksize")
    if x.rank != 4:
        raise Unprovable("a picture of another rank")
    n, c, h, w = x.dims
    if call.op_type == "SpaceToDepth":
        for size in (h, w):
            e.require(equal(modulo(size, block), 0), "whole blocks")
        apart = view(e, x, [n, c, floor_divided(h, block), block, floor_divided(w, block), block])
        turned = _turned(e, apart, (0, 3, 5, 1, 2, 4))
        return view(e, turned, [n, product([c, block * block]), floor_divided(h, block), floor_divided(w, block)])
    e.require(equal(modulo(c, block * block), 0), "whole blocks")
    rest = floor_divided(c, block * block)
    is_first = call.attribute("mode", "DCR") == "DCR"
    apart = view(e, x, [n, block, block, rest, h, w] if is_first else [n, rest, block, block, h, w])
    turned = _turned(e, apart, (0, 3, 4, 1, 5, 2) if is_first else (0, 1, 4, 2, 5, 3))
    return view(e, turned, [n, rest, product([h, block]), product([w, block])])


def _turned(e: Encoding, x: Tensor, perm: Sequence[int]) -> Tensor:
    back = [perm.index(k) for k in range(len(perm))]
    return e.tensor(x.dtype, [x.dims[p] for p in perm], lambda i: x.at(tuple(i[b] for b in back)))


@means("Trilu")
def _trilu(e: Encoding, call: Call) -> Outputs:
    x, shift = call.tensor(), call.optional(1)
    k = shift.at((0,) * shift.rank) if shift is not None else 0
    if not isinstance(k, int):
        raise Unprovable("the diagonal of Trilu")
    upper = bool(call.attribute("upper", 1))

    def at(index: Index) -> Term:
        distance = plain(index[-1] - index[-2])
        kept = plain(distance >= k) if upper else plain(distance <= k)
        return e.choose(kept, lambda: x.at(index), lambda: _filling(e, 0, x.dtype), x.dtype)

    return e.tensor(x.dtype, x.dims, at)


@means("NonZero")
def _nonzero(e: Encoding, call: Call) -> Outputs:
    """Of a tensor of rank 1 in which no element is zero: all places."""
    x = call.tensor()
    place = e.symbol("j")
    with e.where(within((place,) * x.rank, x.dims)):
        element = x.at((place,)) if x.rank == 1 else None
    if not isinstance(element, bool | int) or not element:
        raise Unprovable("the places of what is not zero")
    return e.tensor(D.INT64, [1, x.dims[0]], lambda i: i[1])
