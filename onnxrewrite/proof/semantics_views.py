"""Operators that move data: index maps, whatever the elements are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import z3

from onnxrewrite.proof.integers import (
    Index,
    Integer,
    Unprovable,
    all_numbers,
    chosen,
    conjunction,
    disjunction,
    equal,
    floor_divided,
    larger,
    modulo,
    plain,
    product,
    quotient,
    smaller,
    within,
)
from onnxrewrite.proof.reshaping import reshaped
from onnxrewrite.proof.tensors import Call, Encoding, Outputs, Tensor, from_front, means

D = ir.DataType


@means("Identity")
def _identity(e: Encoding, call: Call) -> Outputs:
    return call.tensor()


@means("Dropout")
def _dropout(e: Encoding, call: Call) -> Outputs:
    """In inference; what it keeps is all."""
    x, training = call.tensor(), call.optional(2)
    if call.version < 7 and not call.attribute("is_test", 0):
        raise Unprovable("Dropout in training")
    if training is not None and (training.array is None or training.array.any()):
        raise Unprovable("Dropout that may be in training")
    return x, e.tensor(D.BOOL, x.dims, lambda _: True)


@means("Transpose")
def _transpose(e: Encoding, call: Call) -> Outputs:
    x = call.tensor()
    perm = call.attribute("perm") or tuple(reversed(range(x.rank)))
    if sorted(perm) != list(range(x.rank)):
        raise Unprovable(f"the permutation {list(perm)} of {x.rank} axes")
    back = np.argsort(perm) if perm else []
    return e.tensor(x.dtype, [x.dims[p] for p in perm], lambda i: x.at(tuple(i[b] for b in back)))


def view(e: Encoding, x: Tensor, dims: Sequence[Integer]) -> Tensor:
    """The elements of a tensor in their order, in another shape of as many."""
    sizes = tuple(map(plain, dims))
    return e.tensor(x.dtype, sizes, lambda index: x.at(reshaped(e, index, sizes, x.dims)))


@means("Reshape")
def _reshape(e: Encoding, call: Call) -> Outputs:
    x = call.tensor()
    given = call.integers("shape")
    if given is None:
        raise Unprovable("Reshape without a shape")
    keeps_zeros = bool(call.attribute("allowzero", 0))
    dims: list[Integer] = []
    for axis, size in enumerate(given):
        if isinstance(size, int):
            if size == 0 and not keeps_zeros and axis >= x.rank:
                raise Unprovable("Reshape copies a size that is not there")
            dims.append(x.dims[axis] if size == 0 and not keeps_zeros else size)
        else:  # a size that is 0 would be read as one to copy
            e.require(size >= 0, "a size in the target of Reshape")
            copied = x.dims[axis] if axis < x.rank else None
            is_kept = keeps_zeros or (copied is not None and quotient(copied, size) is not None)
            if is_kept or e.holds(plain(size > 0)):
                dims.append(size)
            elif copied is None:
                e.require(plain(size > 0), "a size of zero in the target of Reshape")
                dims.append(size)
            else:
                dims.append(plain(chosen(equal(size, 0), copied, size)))
    free = [axis for axis, size in enumerate(dims) if isinstance(size, int) and size == -1]
    if len(free) > 1 or any(isinstance(d, int) and d < -1 for d in dims):
        raise Unprovable("the target of Reshape")
    if free:
        dims[free[0]] = _rest(e, x.dims, [d for k, d in enumerate(dims) if k != free[0]])
    else:
        _same_number(e, x.dims, dims)
        dims = [_uncopied(e, size) for size in dims]
    return view(e, x, dims)


def _uncopied(e: Encoding, size: Integer) -> Integer:
    """A size that would be copied if it were zero, where that makes no difference."""
    if not isinstance(size, z3.ExprRef) or not z3.is_app_of(size, z3.Z3_OP_ITE):
        return size
    own = size.arg(2)
    return own if e.holds(equal(own, size)) else size


def _rest(e: Encoding, whole: Sequence[Integer], others: Sequence[Integer]) -> Integer:
    """The size that -1 stands for; no other may be zero."""
    for size in others:
        e.require(plain(larger(size, 0) > 0), "a size of zero beside -1")
    left, open_ = list(whole), []
    for size in others:  # what stands on both sides goes, before products hide it
        place = next((k for k, d in enumerate(left) if equal(d, size) is True), None)
        if place is None:
            open_.append(size)
        else:
            del left[place]
    found = quotient(product(left), product(open_))
    if found is not None:
        return found
    number = product(open_)
    if isinstance(number, int) and number > 0:
        e.require(equal(modulo(product(left), number), 0), "the number of elements of Reshape")
        return floor_divided(product(left), number)
    raise Unprovable("a size that Reshape leaves open")


def _same_number(e: Encoding, old: Sequence[Integer], new: Sequence[Integer]) -> None:
    left = list(old)
    rest = []
    for size in new:
        place = next((k for k, d in enumerate(left) if equal(d, size) is True), None)
        if place is None:
            rest.append(size)
        else:
            del left[place]
    e.require(equal(product(left), product(rest)), "the number of elements of Reshape")


@means("Flatten")
def _flatten(e: Encoding, call: Call) -> Outputs:
    x = call.tensor()
    axis = call.attribute("axis", 1)
    axis = axis if axis >= 0 else axis + x.rank
    if not 0 <= axis <= x.rank:
        raise Unprovable("the axis of Flatten")
    return view(e, x, [product(x.dims[:axis]), product(x.dims[axis:])])


def _numbers(call: Call, name: str) -> list[int] | None:
    found = call.integers(name)
    if found is not None and not all_numbers(found):
        raise Unprovable(f"{name} of {call.op_type} are not numbers")
    return found


@means("Squeeze")
def _squeeze(e: Encoding, call: Call) -> Outputs:
    x, axes = call.tensor(), _numbers(call, "axes")
    if axes is None:
        if not all(isinstance(d, int) for d in x.dims):
            raise Unprovable("a Squeeze of all axes of size 1, of which none is known to be")
        axes = [k for k, d in enumerate(x.dims) if d == 1]
    gone = {from_front(a, x.rank) for a in axes}
    for axis in gone:
        e.require(equal(x.dims[axis], 1), "the size of a squeezed axis")
    kept = [k for k in range(x.rank) if k not in gone]

    def at(index: Index) -> Any:
        places: list[Integer] = [0] * x.rank
        for k, i in zip(kept, index, strict=True):
            places[k] = i
        return x.at(tuple(places))

    return e.tensor(x.dtype, [x.dims[k] for k in kept], at)


@means("Unsqueeze")
def _unsqueeze(e: Encoding, call: Call) -> Outputs:
    x, axes = call.tensor(), _numbers(call, "axes")
    if axes is None:
        raise Unprovable("Unsqueeze without axes")
    rank = x.rank + len(axes)
    new = {from_front(a, rank) for a in axes}
    if len(new) != len(axes):
        raise Unprovable("Unsqueeze names an axis twice")
    old = [k for k in range(rank) if k not in new]
    dims: list[Integer] = [1] * rank
    for k, d in zip(old, x.dims, strict=True):
        dims[k] = d
    return e.tensor(x.dtype, dims, lambda index: x.at(tuple(index[k] for k in old)))


@means("Expand")
def _expand(e: Encoding, call: Call) -> Outputs:
    x, shape = call.tensor(), call.integers("shape")
    if shape is None:
        raise Unprovable("Expand without a shape")
    dims = e.broadcast([x.dims, shape])
    return e.tensor(x.dtype, dims, lambda i: x.at(e.narrowed(i, x.dims, dims)))


@means("Tile")
def _tile(e: Encoding, call: Call) -> Outputs:
    x, repeats = call.tensor(), call.integers("repeats")
    if repeats is None or len(repeats) != x.rank:
        raise Unprovable("the repeats of Tile")
    for count in repeats:
        e.require(plain(count >= 0) if not isinstance(count, int) else count >= 0, "the repeats of Tile")

    def at(index: Index) -> Any:
        places = []
        for i, d, r in zip(index, x.dims, repeats, strict=True):
            once = isinstance(r, int) and r == 1
            places.append(i if once else 0 if isinstance(d, int) and d == 1 else modulo(i, d))
        return x.at(tuple(places))

    return e.tensor(x.dtype, [product([d, r]) for d, r in zip(x.dims, repeats, strict=True)], at)


@means("Concat")
def _concat(e: Encoding, call: Call) -> Outputs:
    parts = [t for t in call.inputs if t is not None]
    if not parts or any(p.rank != parts[0].rank for p in parts):
        raise Unprovable("the operands of Concat")
    axis = call.axis(parts[0].rank, 1 if call.version < 4 else 0)
    return joined(e, parts, axis)


def joined(e: Encoding, parts: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors one behind the other along an axis."""
    first = parts[0]
    for part in parts[1:]:
        for k in range(first.rank):
            if k != axis:
                e.require(equal(first.dims[k], part.dims[k]), "the sizes of what Concat joins")
    ends = list(itertools.accumulate((p.dims[axis] for p in parts), lambda a, b: plain(a + b)))

    def at(index: Index, number: int = 0) -> Any:
        start = 0 if number == 0 else ends[number - 1]
        own = (*index[:axis], plain(index[axis] - start), *index[axis + 1 :])
        if number == len(parts) - 1:
            return parts[number].at(own)
        inside = plain(index[axis] < ends[number])
        return e.choose(inside, lambda: parts[number].at(own), lambda: at(index, number + 1), first.dtype)

    dims = [*first.dims[:axis], ends[-1], *first.dims[axis + 1 :]]
    return e.tensor(first.dtype, dims, at)


def piece(e: Encoding, x: Tensor, axis: int, start: Integer, length: Integer, step: Integer = 1) -> Tensor:
    """Elements of an axis, from one on."""
    dims = [*x.dims[:axis], length, *x.dims[axis + 1 :]]
    return e.tensor(
        x.dtype, dims, lambda i: x.at((*i[:axis], plain(start + i[axis] * step), *i[axis + 1 :]))
    )


@means("Split")
def _split(e: Encoding, call: Call) -> Outputs:
    x = call.tensor()
    axis, sizes = call.axis(x.rank), call.integers("split")
    count = len(call.known)
    if sizes is None:
        size, pieces = x.dims[axis], call.attribute("num_outputs", count)
        if call.version < 18:
            e.require(equal(modulo(size, count), 0), "equal pieces of Split")
        each = floor_divided(plain(size + (pieces - 1)), pieces)
        sizes = [each] * (pieces - 1) + [plain(size - each * (pieces - 1))]
    if len(sizes) != count:
        raise Unprovable("the pieces of Split")
    for size in sizes:
        e.require(plain(size >= 0) if not isinstance(size, int) else size >= 0, "the pieces of Split")
    starts = [0, *itertools.accumulate(sizes, lambda a, b: plain(a + b))]
    e.require(equal(starts[-1], x.dims[axis]), "the pieces of Split")
    return [piece(e, x, axis, s, n) for s, n in zip(starts, sizes, strict=False)]


@means("Slice")
def _slice(e: Encoding, call: Call) -> Outputs:
    x = call.tensor()
    starts, ends = call.integers("starts"), call.integers("ends")
    axes = _numbers(call, "axes")
    steps = call.integers("steps") if call.version >= 10 else None
    if starts is None or ends is None or (steps is not None and not all_numbers(steps)):
        raise Unprovable("the bounds of Slice")
    axes = list(range(len(starts))) if axes is None else [from_front(a, x.rank) for a in axes]
    if len(set(axes)) != len(axes):
        raise Unprovable("an axis is cut twice")
    result = x
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        first, length = _bounds(result.dims[axis], start, end, step)
        result = piece(e, result, axis, first, length, step)
    return result


def _bounds(size: Integer, start: Integer, end: Integer, step: int) -> tuple[Integer, Integer]:
    """The first place and the number of places of ``start:end:step`` on an axis, clamped as the standard says."""
    if step == 0:
        raise Unprovable("a step of zero")
    start, end = _counted(start, size), _counted(end, size)
    low, high = (0, size) if step > 0 else (-1, plain(size - 1))
    first = smaller(larger(start, 0), size if step > 0 else high)
    last = smaller(larger(end, low), high)
    distance = plain(last - first) if step > 0 else plain(first - last)
    return first, larger(floor_divided(plain(distance + (abs(step) - 1)), abs(step)), 0)


def _counted(place: Integer, size: Integer) -> Integer:
    """A place that may be counted from the end."""
    if isinstance(place, int):
        return place if place >= 0 else plain(size + place)
    return plain(chosen(plain(place < 0), place + size, place))


@means("Gather")
def _gather(e: Encoding, call: Call) -> Outputs:
    x, indices = call.tensor(0), call.tensor(1)
    axis = call.axis(x.rank)

    def at(index: Index) -> Any:
        place = e.domain.as_index(indices.at(index[axis : axis + indices.rank]), indices.dtype)
        return x.at((*index[:axis], _looked_at(e, place, x.dims[axis]), *index[axis + indices.rank :]))

    made = e.tensor(x.dtype, [*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :]], at)
    e.everywhere(made)
    return made


def _looked_at(e: Encoding, place: Integer, size: Integer) -> Integer:
    """An index that may be counted from the end, which must lie inside."""
    e.require(conjunction([plain(place >= -size), plain(place < size)]), "an index of a gather")
    return _counted(place, size)


@means("GatherElements")
def _gather_elements(e: Encoding, call: Call) -> Outputs:
    x, indices = call.tensor(0), call.tensor(1)
    axis = call.axis(x.rank)
    for k in range(x.rank):
        if k != axis:
            e.require(plain(indices.dims[k] <= x.dims[k]), "the shape of the indices")

    def at(index: Index) -> Any:
        place = e.domain.as_index(indices.at(index), indices.dtype)
        return x.at((*index[:axis], _looked_at(e, place, x.dims[axis]), *index[axis + 1 :]))

    made = e.tensor(x.dtype, indices.dims, at)
    e.everywhere(made)
    return made


@means("GatherND")
def _gather_nd(e: Encoding, call: Call) -> Outputs:
    x, indices = call.tensor(0), call.tensor(1)
    batch, width = call.attribute("batch_dims", 0), indices.dims[-1] if indices.rank else None
    if batch or not isinstance(width, int) or width > x.rank:
        raise Unprovable("GatherND with batches, or of places of unknown length")
    outer = indices.rank - 1

    def at(index: Index) -> Any:
        places = [e.domain.as_index(indices.at((*index[:outer], k)), indices.dtype) for k in range(width)]
        looked = [_looked_at(e, p, d) for p, d in zip(places, x.dims, strict=False)]
        return x.at((*looked, *index[outer:]))

    made = e.tensor(x.dtype, [*indices.dims[:outer], *x.dims[width:]], at)
    e.everywhere(made)
    return made


@means("Pad")
def _pad(e: Encoding, call: Call) -> Outputs:
    x, value = call.tensor(), call.optional(2) if call.version >= 11 else None
    pads = call.integers("pads" if call.version >= 2 else "paddings")
    if call.version >= 18 and call.optional(3) is not None:
        axes = [from_front(a, x.rank) for a in _numbers(call, "axes") or []]
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
        fill = (lambda: value.at((0,) * value.rank)) if value is not None else (lambda: _filling(e, number, x.dtype))
        return padded(e, x, begin, dims, fill)
    return _mirrored(e, x, begin, finish, dims, mode)


def _filling(e: Encoding, number: float, dtype: ir.DataType) -> Any:
    if dtype == D.BOOL:
        return bool(number)
    return int(number) if dtype.is_integer() else e.domain.number(np.asarray(number).astype(dtype.numpy()), dtype)


def padded(e: Encoding, x: Tensor, begin: Sequence[Integer], dims: Sequence[Integer], fill: Any) -> Tensor:
    """A tensor with others around it; what is negative is cut off."""

    def at(index: Index) -> Any:
        own = tuple(plain(i - b) for i, b in zip(index, begin, strict=True))
        needed = [conjunction([True if _is_zero(b) else plain(o >= 0), plain(o < d)]) for o, b, d in zip(own, begin, x.dims, strict=True)]
        changed = [c for c, b, d, n in zip(needed, begin, x.dims, dims, strict=True) if not (_is_zero(b) and equal(d, n) is True)]
        return e.choose(conjunction(changed), lambda: x.at(own), fill, x.dtype)

    return e.tensor(x.dtype, dims, at)  # fmt: skip


def _is_zero(size: Integer) -> bool:
    return isinstance(size, int) and size == 0


def _mirrored(
    e: Encoding, x: Tensor, begin: Sequence[Integer], finish: Sequence[Integer], dims: Sequence[Integer], mode: str
) -> Tensor:
    if mode not in ("edge", "reflect") or not all(isinstance(b, int) and b >= 0 for b in (*begin, *finish)):
        raise Unprovable(f"Pad of mode {mode}")
    if mode == "reflect":
        for b, f, d in zip(begin, finish, x.dims, strict=True):
            e.require(plain(d > max(b, f)) if b or f else True, "what Pad reflects")

    def place(i: Integer, b: Integer, d: Integer) -> Integer:
        own = plain(i - b)
        if mode == "edge":
            return smaller(larger(own, 0), plain(d - 1))
        back = plain(chosen(plain(own < 0), -own, own))
        return plain(chosen(plain(back < d), back, 2 * (d - 1) - back))

    def at(index: Index) -> Any:
        cut = zip(index, begin, finish, x.dims, strict=True)
        return x.at(tuple(i if _is_zero(b) and _is_zero(f) else place(i, b, d) for i, b, f, d in cut))

    return e.tensor(x.dtype, dims, at)


@means("Shape")
def _shape(e: Encoding, call: Call) -> Outputs:
    dims = call.tensor().dims
    start, end = call.attribute("start", 0), call.attribute("end")
    found = list(dims)[start : len(dims) if end is None else end]
    return of_list(e, found)


def of_list(e: Encoding, elements: Sequence[Any], dtype: ir.DataType = D.INT64) -> Tensor:
    """A tensor of rank 1 of given elements."""

    def at(index: Index, number: int = 0) -> Any:
        (place,) = index
        if isinstance(place, int):
            return elements[place]
        if number == len(elements) - 1:
            return elements[number]
        return e.either(equal(place, number), elements[number], at(index, number + 1), dtype)

    return e.tensor(dtype, [len(elements)], at)


@means("Size")
def _size(e: Encoding, call: Call) -> Outputs:
    number = product(call.tensor().dims)
    return e.tensor(D.INT64, (), lambda _: number)


@means("ConstantOfShape")
def _constant_of_shape(e: Encoding, call: Call) -> Outputs:
    shape = call.integers("input")
    if shape is None:
        raise Unprovable("ConstantOfShape without a shape")
    for size in shape:
        e.require(plain(size >= 0) if not isinstance(size, int) else size >= 0, "a size of ConstantOfShape")
    value = call.attributes.get("value")
    array = np.zeros(1, np.float32) if value is None else value.numpy()
    number = e.constant(array.reshape(()), D.FLOAT if value is None else value.dtype)
    return e.tensor(number.dtype, shape, lambda _: number.at(()))


@means("Range")
def _range(e: Encoding, call: Call) -> Outputs:
    parts = [call.tensor(k) for k in range(3)]
    start, limit, step = (t.at((0,) * t.rank) for t in parts)
    if not parts[0].dtype.is_integer() or not isinstance(step, int) or step == 0:
        raise Unprovable("a Range of floats, or of an unknown step")
    if not all(isinstance(x, int) or z3.is_int(x) for x in (start, limit)):
        raise Unprovable("a Range of data")
    distance = plain(limit - start) if step > 0 else plain(start - limit)
    length = larger(floor_divided(plain(distance + (abs(step) - 1)), abs(step)), 0)
    return e.tensor(parts[0].dtype, [length], lambda i: plain(start + i[0] * step))


@means("Where")
def _where(e: Encoding, call: Call) -> Outputs:
    condition, yes, no = (call.tensor(k) for k in range(3))
    dims = e.broadcast([condition.dims, yes.dims, no.dims])

    def at(index: Index) -> Any:
        asked, first, second = (lambda t=t: t.at(e.narrowed(index, t.dims, dims)) for t in (condition, yes, no))
        return e.choose(asked(), first, second, yes.dtype)

    return e.tensor(yes.dtype, dims, at)


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

    def at(index: Index) -> Any:
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


