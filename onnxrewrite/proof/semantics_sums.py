"""Operators that add up: reductions, products of matrices, convolutions, normalizations.

They have a meaning where sums have no order, over the reals.  In another domain the same operator of the same operands
gives the same result, and that is all.  What is taken to be largest or smallest has a meaning in all domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import onnx_ir as ir
import z3

from onnxrewrite.proof.domains import Reals
from onnxrewrite.proof.exact_integers import wrapped
from onnxrewrite.proof.index_terms import (
    Index,
    Integer,
    Term,
    Unprovable,
    conjunction,
    disjunction,
    equal,
    floor_divided,
    larger,
    plain,
    product,
    smaller,
)
from onnxrewrite.proof.tensors import Call, Encoding, Outputs, Tensor, from_front, is_exact, means

D = ir.DataType


def _reals(e: Encoding, call: Call) -> Reals:
    if not isinstance(e.domain, Reals):
        raise Unprovable(f"{call.op_type} in numbers that are rounded")
    return e.domain


def _number(e: Encoding, value: float) -> Term:
    """An attribute's number, which a model holds in float32."""
    domain = e.domain
    assert isinstance(domain, Reals)
    return domain.real(Fraction(float(np.float32(value))))


def _of(e: Encoding, name: str, *terms: Term) -> Term:
    real = z3.RealSort(e.domain.context)
    return z3.Function(name, *[real] * (len(terms) + 1))(*terms)


def reduced(
    e: Encoding, x: Tensor, axes: Sequence[int], fold: str, *, keepdims: bool = True, square: str = ""
) -> Tensor:
    """A fold of a tensor along axes: ``sum``, ``max``, ``min``; of squares, magnitudes or powers of e, if asked for."""
    along = sorted(set(axes))
    kept = [k for k in range(x.rank) if k not in along]
    lengths = [x.dims[k] for k in along]

    def at(index: Index) -> Term:
        outer = [index[k] for k in kept] if keepdims else list(index)

        def body(bound: Index) -> Term:
            places: list[Integer] = [0] * x.rank
            for k, i in (*zip(kept, outer, strict=True), *zip(along, bound, strict=True)):
                places[k] = i
            return _changed(e, x.at(tuple(places)), x.dtype, square)

        return e.total(lengths, body, fold, x.dtype)

    dims = [1 if k in along else d for k, d in enumerate(x.dims) if keepdims or k in kept]
    return e.tensor(x.dtype, dims, at)


def _changed(e: Encoding, element: Term, dtype: ir.DataType, how: str) -> Term:
    given = [(element, dtype)]
    if how == "square":
        return e.domain.pointwise("Mul", {}, given * 2, dtype)
    return e.domain.pointwise(how, {}, given, dtype) if how else element


def _axes(e: Encoding, call: Call, x: Tensor) -> list[int]:
    axes = call.integers("axes")
    if axes is None or not axes:
        return [] if call.attribute("noop_with_empty_axes", 0) else list(range(x.rank))
    return [from_front(a, x.rank) for a in axes]


def _of_exact(e: Encoding, x: Tensor, axes: Sequence[int], fold: str, *, keepdims: bool) -> Tensor | None:
    """The fold of a shape tensor of rank 1; None of any other."""
    if x.rank != 1 or not isinstance(x.dims[0], int) or not 0 < x.dims[0] <= 16 or not x.dtype.is_integer():
        return None
    elements = [x.at((k,)) for k in range(x.dims[0])]
    if not all(map(is_exact, elements)):
        return None
    join = {"sum": lambda a, b: plain(a + b), "product": lambda a, b: plain(a * b), "max": larger, "min": smaller}
    result = elements[0]
    for each in elements[1:]:
        result = wrapped(join[fold](result, each), x.dtype)
    return e.tensor(x.dtype, [1] * keepdims, lambda _: result)


_FOLDS = {
    "ReduceSum": ("sum", ""),
    "ReduceMean": ("sum", ""),
    "ReduceSumSquare": ("sum", "square"),
    "ReduceL2": ("sum", "square"),
    "ReduceL1": ("sum", "Abs"),
    "ReduceLogSum": ("sum", ""),
    "ReduceLogSumExp": ("sum", "Exp"),
    "ReduceProd": ("product", ""),
    "ReduceMax": ("max", ""),
    "ReduceMin": ("min", ""),
}
"""Reduction to the fold, and what is done to each element before."""


@means(*_FOLDS)
def _reduce(e: Encoding, call: Call) -> Outputs:
    x, (fold, before) = call.tensor(), _FOLDS[call.op_type]
    axes, keepdims = _axes(e, call, x), bool(call.attribute("keepdims", 1))
    if fold in ("sum", "product") and x.dtype.is_floating_point():
        _reals(e, call)
    if not axes:
        after = {"ReduceProd", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"}
        if call.op_type not in after:
            raise Unprovable(f"{call.op_type} along no axis")
        return x
    exact = _of_exact(e, x, axes, fold, keepdims=keepdims) if not before else None
    if exact is not None and call.op_type != "ReduceMean":
        return exact
    if fold in ("sum", "product") and not x.dtype.is_floating_point():
        raise Unprovable(f"{call.op_type} of integers, which kernels add up in float64, and cut off")
    total = reduced(e, x, axes, fold, keepdims=keepdims, square=before)
    if call.op_type in ("ReduceProd", "ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceMax", "ReduceMin"):
        return total
    domain = _reals(e, call)
    if call.op_type == "ReduceMean":
        count = domain.count(product(x.dims[k] for k in axes))
        return e.tensor(x.dtype, total.dims, lambda i: total.at(i) / count)
    name = "sqrt" if call.op_type == "ReduceL2" else "log"
    return e.tensor(x.dtype, total.dims, lambda i: _of(e, name, total.at(i)))


@means("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(e: Encoding, call: Call) -> Outputs:
    x = call.tensor()
    if x.rank < 3:
        raise Unprovable("a picture of another rank")
    axes = range(2, x.rank)
    e.require_sizes(x.dims[2:], "a picture of nothing")
    if call.op_type == "GlobalMaxPool":
        return reduced(e, x, axes, "max")
    domain = _reals(e, call)
    total, count = reduced(e, x, axes, "sum"), domain.count(product(x.dims[2:]))
    return e.tensor(x.dtype, total.dims, lambda i: total.at(i) / count)


# -- products of matrices --------------------------------------------------------------------------------------------


def turned(e: Encoding, x: Tensor) -> Tensor:
    """The last two axes exchanged."""
    dims = [*x.dims[:-2], x.dims[-1], x.dims[-2]]
    return e.tensor(x.dtype, dims, lambda i: x.at((*i[:-2], i[-1], i[-2])))


def matrix_product(e: Encoding, a: Tensor, b: Tensor) -> Tensor:
    """Over the last axis of ``a`` and the last but one of ``b``, the others broadcast; vectors as numpy takes them."""
    if not a.rank or not b.rank:
        raise Unprovable("a product with a scalar")
    left = a if a.rank > 1 else e.tensor(a.dtype, (1, *a.dims), lambda i: a.at(i[1:]))
    right = b if b.rank > 1 else e.tensor(b.dtype, (*b.dims, 1), lambda i: b.at(i[:1]))
    inner = left.dims[-1]
    e.require(plain(inner == right.dims[-2]), "the inner size of a product")
    batch = e.broadcast([left.dims[:-2], right.dims[:-2]])

    def at(index: Index) -> Term:
        *outer, row, column = _full(index, a, b)
        places = tuple(outer)

        def body(bound: Index) -> Term:
            first = left.at((*e.narrowed(places, left.dims[:-2], batch), row, bound[0]))
            second = right.at((*e.narrowed(places, right.dims[:-2], batch), bound[0], column))
            return e.domain.pointwise("Mul", {}, [(first, a.dtype), (second, b.dtype)], a.dtype)

        return e.total([inner], body, "sum", a.dtype)

    dims = [*batch, *([left.dims[-2]] if a.rank > 1 else []), *([right.dims[-1]] if b.rank > 1 else [])]
    return e.tensor(a.dtype, dims, at)


def _full(index: Index, a: Tensor, b: Tensor) -> Index:
    outer = list(index)
    if b.rank == 1:
        outer.append(0)
    if a.rank == 1:
        outer.insert(len(outer) - 1, 0)
    return tuple(outer)


@means("MatMul")
def _matmul(e: Encoding, call: Call) -> Outputs:
    a, b = call.tensor(0), call.tensor(1)
    if a.dtype.is_floating_point():
        _reals(e, call)
    return matrix_product(e, a, b)


@means("Gemm")
def _gemm(e: Encoding, call: Call) -> Outputs:
    a, b, c = call.tensor(0), call.tensor(1), call.optional(2)
    _reals(e, call)
    if a.rank != 2 or b.rank != 2 or (c is not None and c.rank > 2) or not a.dtype.is_floating_point():
        raise Unprovable("Gemm of what are no matrices of floats")
    a = turned(e, a) if call.attribute("transA", 0) else a
    b = turned(e, b) if call.attribute("transB", 0) else b
    found = matrix_product(e, a, b)
    alpha, beta = (call.attribute(n, 1.0) for n in ("alpha", "beta"))
    if c is not None:
        for axis in range(1, c.rank + 1):
            size, own = found.dims[-axis], c.dims[-axis]
            e.require(z3.Or(plain(size == own), plain(own == 1)) if _open(size, own) else own in (size, 1), "the bias")

    def at(index: Index) -> Term:
        result = found.at(index) if alpha == 1 else _number(e, alpha) * found.at(index)
        if c is None or not beta:
            return result
        added = c.at(e.narrowed(index, c.dims, found.dims))
        return result + (added if beta == 1 else _number(e, beta) * added)

    return e.tensor(a.dtype, found.dims, at)


def _open(*sizes: Integer) -> bool:
    return not all(isinstance(s, int) for s in sizes)


@means("FusedMatMul", domain="com.microsoft")
def _fused_matmul(e: Encoding, call: Call) -> Outputs:
    a, b = call.tensor(0), call.tensor(1)
    _reals(e, call)
    if call.attribute("transBatchA", 0) or call.attribute("transBatchB", 0):
        raise Unprovable("FusedMatMul of batches that are transposed")
    a = turned(e, a) if call.attribute("transA", 0) and a.rank > 1 else a
    b = turned(e, b) if call.attribute("transB", 0) and b.rank > 1 else b
    found, alpha = matrix_product(e, a, b), call.attribute("alpha", 1.0)
    return found if alpha == 1 else e.tensor(a.dtype, found.dims, lambda i: _number(e, alpha) * found.at(i))


@means("Einsum")
def _einsum(e: Encoding, call: Call) -> Outputs:
    equation = str(call.attribute("equation")).replace(" ", "")
    tensors = [t for t in call.inputs if t is not None]
    _reals(e, call)
    if not all(t.dtype.is_floating_point() for t in tensors):
        raise Unprovable("an Einsum of integers")
    if "->" not in equation or "." in equation:
        raise Unprovable("an Einsum of an equation without a result, or with an ellipsis")
    left, result = equation.split("->")
    names = left.split(",")
    is_named = len(set(result)) == len(result) and set(result) <= {*"".join(names)}
    if [len(n) for n in names] != [t.rank for t in tensors] or not is_named:
        raise Unprovable("the equation of an Einsum")
    sizes: dict[str, Integer] = {}
    for letters, tensor in zip(names, tensors, strict=True):
        for letter, size in zip(letters, tensor.dims, strict=True):
            if letter in sizes:
                _same_size(e, equal(sizes[letter], size))
            sizes.setdefault(letter, size)
    summed = [letter for letter in sizes if letter not in result]
    e.require_sizes(list(sizes.values()), "an Einsum of nothing, of which ONNX Runtime may die")

    def at(index: Index) -> Term:
        def body(bound: Index) -> Term:
            place = dict(zip((*result, *summed), (*index, *bound), strict=True))
            args = [t.at(tuple(place[c] for c in n)) for n, t in zip(names, tensors, strict=True)]
            found = args[0]
            for each in args[1:]:
                found = found * each
            return found

        return e.total([sizes[c] for c in summed], body, "sum", tensors[0].dtype) if summed else body(())

    return e.tensor(tensors[0].dtype, [sizes[c] for c in result], at)


def _same_size(e: Encoding, condition: Term) -> None:
    """Kernels broadcast an axis of size 1, so that an Einsum that runs does not say that sizes are equal."""
    if not e.is_replacement and not e.holds(condition):
        raise Unprovable("sizes of an Einsum that may be broadcast")
    e.require(condition, "the sizes of an Einsum")


# -- convolutions ----------------------------------------------------------------------------------------------------


@means("Conv")
def _conv(e: Encoding, call: Call) -> Outputs:
    x, w, bias = call.tensor(0), call.tensor(1), call.optional(2)
    domain = _reals(e, call)
    spatial, group = x.rank - 2, call.attribute("group", 1)
    if spatial < 1 or (group > 1 and not isinstance(w.dims[0], int)):
        raise Unprovable("a Conv of unknown channels in groups")
    strides = call.attribute("strides") or (1,) * spatial
    dilations = call.attribute("dilations") or (1,) * spatial
    pads = _pads(call, x.dims[2:], w.dims[2:], strides, dilations)
    e.require(plain(x.dims[1] == product([w.dims[1], group])), "the channels of a Conv")
    e.require_sizes(x.dims[2:], "a picture of nothing")
    if bias is not None:
        _fits(e, bias, w.dims[0], "the bias of a Conv")
    kernel, each = w.dims[2:], floor_divided(w.dims[0], group)
    dims = [
        plain(floor_divided(plain(n + b + f - d * (k - 1) - 1), s) + 1)
        for n, b, f, d, k, s in zip(x.dims[2:], pads[:spatial], pads[spatial:], dilations, kernel, strides, strict=True)
    ]

    def at(index: Index) -> Term:
        batch, out, *places = index
        first = 0 if group == 1 else product([floor_divided(out, each), w.dims[1]])

        def body(bound: Index) -> Term:
            channel, *offsets = bound
            own = [
                plain(i * s + k * d - b)
                for i, s, k, d, b in zip(places, strides, offsets, dilations, pads, strict=False)
            ]
            inside = [
                plain(c)
                for o, n, b, f in zip(own, x.dims[2:], pads[:spatial], pads[spatial:], strict=True)
                for c in ([] if _is_none(b) else [o >= 0]) + ([] if _is_none(f) else [o < n])
            ]
            weight = w.at((out, channel, *offsets))
            read = (batch, plain(first + channel), *own)
            return e.choose(conjunction(inside), lambda: x.at(read) * weight, lambda: domain.real(0), x.dtype)

        found = e.total([w.dims[1], *kernel], body, "sum", x.dtype)
        return found if bias is None else found + bias.at((out,))

    return e.tensor(x.dtype, [x.dims[0], w.dims[0], *dims], at)


def _is_none(pad: Integer) -> bool:
    return isinstance(pad, int) and pad == 0


def _pads(
    call: Call, sizes: Sequence[Integer], kernel: Sequence[Integer], strides: Sequence[int], dilations: Sequence[int]
) -> Sequence[Integer]:
    """The padding at the beginning and at the end of each axis, also where a window pads by itself."""
    how = call.attribute("auto_pad", "NOTSET")
    if how in ("NOTSET", "VALID"):
        given = call.attribute("pads") if how == "NOTSET" else None
        return given or (0,) * (2 * len(sizes))
    first, last = [], []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        places = floor_divided(plain(size + (s - 1)), s)
        total = larger(plain((places - 1) * s + d * (k - 1) + 1 - size), 0)
        half = floor_divided(total, 2)
        first.append(half if how == "SAME_UPPER" else plain(total - half))
        last.append(plain(total - half) if how == "SAME_UPPER" else half)
    return [*first, *last]


# -- along axes ------------------------------------------------------------------------------------------------------


@means("Softmax", "LogSoftmax")
def _softmax(e: Encoding, call: Call) -> Outputs:
    x = call.tensor()
    _reals(e, call)
    axis = call.axis(x.rank, -1 if call.version >= 13 else 1)
    axes = [axis] if call.version >= 13 else list(range(axis, x.rank))
    total = reduced(e, x, axes, "sum", square="Exp")

    def at(index: Index) -> Term:
        row = total.at(e.narrowed(index, total.dims, x.dims))
        if call.op_type == "Softmax":
            return _of(e, "exp", x.at(index)) / row
        return x.at(index) - _of(e, "log", row)

    return e.tensor(x.dtype, x.dims, at)


def _mean(e: Encoding, x: Tensor, axes: Sequence[int], square: str = "") -> Tensor:
    domain = e.domain
    assert isinstance(domain, Reals)
    total, count = reduced(e, x, axes, "sum", square=square), domain.count(product(x.dims[k] for k in axes))
    return e.tensor(x.dtype, total.dims, lambda i: total.at(i) / count)


def _difference(e: Encoding, x: Tensor, mean: Tensor) -> Tensor:
    return e.tensor(x.dtype, x.dims, lambda i: x.at(i) - mean.at(e.narrowed(i, mean.dims, x.dims)))


def _normalized(e: Encoding, x: Tensor, axes: Sequence[int], epsilon: float, *, centred: bool) -> Tensor:
    """(x - mean)/√(variance + ε) along axes; without the mean, x/√(mean of squares + ε)."""
    if centred:
        mean = _mean(e, x, axes)
        x = _difference(e, x, mean)
    power = _mean(e, x, axes, "square")

    def at(index: Index) -> Term:
        spread = power.at(e.narrowed(index, power.dims, x.dims)) + _number(e, epsilon)
        return x.at(index) / _of(e, "sqrt", spread)

    return e.tensor(x.dtype, x.dims, at)


@means("LayerNormalization", "RMSNormalization")
def _layer_norm(e: Encoding, call: Call) -> Outputs:
    x, scale, bias = call.tensor(0), call.tensor(1), call.optional(2)
    _reals(e, call)
    axes = range(call.axis(x.rank, -1), x.rank)
    e.require_sizes(x.dims[axes.start :], "rows of nothing")
    centred = call.op_type == "LayerNormalization"
    found = _normalized(e, x, axes, call.attribute("epsilon", 1e-5), centred=centred)
    return [_scaled(e, found, scale, bias)]


def _fits(e: Encoding, x: Tensor, size: Integer, what: str) -> None:
    """A vector that must have as many elements as something has channels."""
    if x.rank != 1:
        raise Unprovable(f"{what} that is no vector")
    e.require(equal(x.dims[0], size), what)


def _scaled(e: Encoding, x: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    for given in (scale, *([bias] if bias is not None else [])):
        if given.rank > x.rank:
            raise Unprovable("a scale of more axes than what is scaled")
        for own, size in zip(reversed(given.dims), reversed(x.dims), strict=False):
            e.require(disjunction([equal(own, size), equal(own, 1)]), "the size of a scale")

    def at(index: Index) -> Term:
        result = x.at(index) * scale.at(e.narrowed(index, scale.dims, x.dims))
        return result if bias is None else result + bias.at(e.narrowed(index, bias.dims, x.dims))

    return e.tensor(x.dtype, x.dims, at)


@means("InstanceNormalization")
def _instance_norm(e: Encoding, call: Call) -> Outputs:
    x, scale, bias = (call.tensor(k) for k in range(3))
    _reals(e, call)
    if x.rank < 3:
        raise Unprovable("a picture of another rank")
    for each in (scale, bias):
        _fits(e, each, x.dims[1], "a scale for each channel")
    found = _normalized(e, x, range(2, x.rank), call.attribute("epsilon", 1e-5), centred=True)
    return e.tensor(x.dtype, x.dims, lambda i: found.at(i) * scale.at((i[1],)) + bias.at((i[1],)))


@means("BatchNormalization")
def _batch_norm(e: Encoding, call: Call) -> Outputs:
    x, scale, bias, mean, variance = (call.tensor(k) for k in range(5))
    _reals(e, call)
    if call.attribute("training_mode", 0) or len(call.known) > 1 or call.version < 9:
        raise Unprovable("BatchNormalization in training")
    if x.rank < 2:
        raise Unprovable("a picture of another rank")
    for each in (scale, bias, mean, variance):
        _fits(e, each, x.dims[1], "a scale for each channel")
    epsilon = _number(e, call.attribute("epsilon", 1e-5))

    def at(index: Index) -> Term:
        channel = (index[1],)
        spread = _of(e, "sqrt", variance.at(channel) + epsilon)
        return (x.at(index) - mean.at(channel)) / spread * scale.at(channel) + bias.at(channel)

    return e.tensor(x.dtype, x.dims, at)
