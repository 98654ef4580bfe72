"""Operators that move data: index maps, whatever the elements are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import z3

from onnxrewrite.ir.dims import slice_end
from onnxrewrite.proof.index_terms import (
    Index,
    Integer,
    Term,
    Unprovable,
    all_numbers,
    chosen,
    equal,
    floor_divided,
    larger,
    modulo,
    plain,
    product,
    quotient,
    smaller,
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
    back = [list(perm).index(k) for k in range(x.rank)]
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
            if not e.is_replacement and not e.holds(plain(size >= 0)):
                raise Unprovable("a size in the target of Reshape that may be -1")
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


def numbers_of(call: Call, name: str) -> list[int] | None:
    """A parameter that is a list of integers, all of which must be known; None where it is absent."""
    found = call.integers(name)
    if found is not None and not all_numbers(found):
        raise Unprovable(f"{name} of {call.op_type} are not numbers")
    return found


@means("Squeeze")
def _squeeze(e: Encoding, call: Call) -> Outputs:
    x, axes = call.tensor(), numbers_of(call, "axes")
    if axes is None:
        if not all(isinstance(d, int) for d in x.dims):
            raise Unprovable("a Squeeze of all axes of size 1, of which none is known to be")
        axes = [k for k, d in enumerate(x.dims) if d == 1]
    elif not axes:
        raise Unprovable("a Squeeze of no axes, which is one of all in ONNX Runtime")
    gone = {from_front(a, x.rank) for a in axes}
    for axis in gone:
        e.require(equal(x.dims[axis], 1), "the size of a squeezed axis")
    kept = [k for k in range(x.rank) if k not in gone]

    def at(index: Index) -> Term:
        places: list[Integer] = [0] * x.rank
        for k, i in zip(kept, index, strict=True):
            places[k] = i
        return x.at(tuple(places))

    return e.tensor(x.dtype, [x.dims[k] for k in kept], at)


@means("Unsqueeze")
def _unsqueeze(e: Encoding, call: Call) -> Outputs:
    x, axes = call.tensor(), numbers_of(call, "axes")
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

    def at(index: Index) -> Term:
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

    def at(index: Index, number: int = 0) -> Term:
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
    return e.tensor(x.dtype, dims, lambda i: x.at((*i[:axis], plain(start + i[axis] * step), *i[axis + 1 :])))


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
    axes = numbers_of(call, "axes")
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
    start, end = counted_place(start, size), counted_place(slice_end(end, step), size)
    low, high = (0, size) if step > 0 else (-1, plain(size - 1))
    first = smaller(larger(start, 0), size if step > 0 else high)
    last = smaller(larger(end, low), high)
    distance = plain(last - first) if step > 0 else plain(first - last)
    return first, larger(floor_divided(plain(distance + (abs(step) - 1)), abs(step)), 0)


def counted_place(place: Integer, size: Integer) -> Integer:
    """A place that may be counted from the end."""
    if isinstance(place, int):
        return place if place >= 0 else plain(size + place)
    return plain(chosen(plain(place < 0), place + size, place))


@means("Shape")
def _shape(e: Encoding, call: Call) -> Outputs:
    dims = call.tensor().dims
    start, end = call.attribute("start", 0), call.attribute("end")
    found = list(dims)[start : len(dims) if end is None else end]
    return of_list(e, found)


def of_list(e: Encoding, elements: Sequence[Term], dtype: ir.DataType = D.INT64) -> Tensor:
    """A tensor of rank 1 of given elements."""

    def at(index: Index, number: int = 0) -> Term:
        (place,) = index
        if not elements or (isinstance(place, int) and not 0 <= place < len(elements)):
            return False if dtype == D.BOOL else 0  # outside, where nothing reads it
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
    """The kernel of ONNX Runtime may make +0 of -0 where the condition holds, by what stands elsewhere, and what is
    broadcast."""
    condition, yes, no = (call.tensor(k) for k in range(3))
    dims = e.broadcast([condition.dims, yes.dims, no.dims])
    has_zeros = yes.dtype.is_floating_point() and (yes.array is None or not yes.array.all())
    told = {"ones": [[isinstance(d, int) and d == 1 for d in t.dims] for t in (condition, yes, no)]}

    def at(index: Index) -> Term:
        def of(tensor: Tensor) -> Term:
            return tensor.at(e.narrowed(index, tensor.dims, dims))

        def first() -> Term:
            both = [(of(yes), yes.dtype), (of(no), no.dtype)]
            return e.domain.pointwise("WhereTrue", told, both, yes.dtype) if has_zeros else both[0][0]

        return e.choose(of(condition), first, lambda: of(no), yes.dtype)

    return e.tensor(yes.dtype, dims, at)
