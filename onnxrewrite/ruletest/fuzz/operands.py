"""Operands of an operator, given its first: shapes of weights, contents of shapes, axes, indices.

The standard says this in words only, not in its schemas.  It serves twice: graphs are grown by it, and what is grown
or changed is held to it (``standard``).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from onnxrewrite.ir.operators import operators
from onnxrewrite.ruletest.fuzz.operand_position import DoesNotFit, Shape, Spot
from onnxrewrite.system.arrays import Array

Maker: TypeAlias = Callable[[Spot], "Shape | Array | None"]

OPERANDS: dict[tuple[str, int], Maker] = {}
"""(operator, input) to its shape, or for a list of integers its contents; None where that can be anything."""

STRICT: set[tuple[str, int]] = set()
"""Those for which the standard allows one shape only."""


def operand(*places: tuple[str, int], strict: bool = False) -> Callable[[Maker], Maker]:
    """Register the shape, or the contents, of inputs of operators."""

    def register(maker: Maker) -> Maker:
        OPERANDS.update(dict.fromkeys(places, maker))
        if strict:
            STRICT.update(places)
        return maker

    return register


def integers(values: Sequence[int]) -> Array:
    """A list of 64-bit integers."""
    return np.array(values, np.int64)


# -- layers --------------------------------------------------------------------------------------------------


def _divisor(number: int, rng: random.Random) -> int:
    """A divisor, more often than not neither one nor the number."""
    found = [d for d in range(1, number + 1) if number % d == 0]
    return rng.choice(found[1:-1] if len(found) > 2 and rng.random() < 0.7 else found)


_ORT = "com.microsoft."
_INTEGER_PRODUCT, _DYNAMIC_PRODUCT = f"{_ORT}MatMulIntegerToFloat", f"{_ORT}DynamicQuantizeMatMul"


@operand(("Conv", 1), ("ConvInteger", 1), (f"{_ORT}FusedConv", 1))
def _weight(s: Spot) -> Shape:
    """[outputs, inputs of a group, sizes of the window]."""
    spatial, group = s.spatial(), s.attribute("group", 1)
    if group < 1 or s.of(0)[1] % group:
        raise DoesNotFit("channels that groups do not share")
    window = s.attribute("kernel_shape") or _window(s, spatial)
    outputs = s.rng.choice((s.of(0)[1], group * s.size()))
    return (outputs - outputs % group or group, s.of(0)[1] // group, *window)


def _window(s: Spot, spatial: Shape) -> Shape:
    if s.rng.random() < 0.4:
        return (1,) * len(spatial)
    return tuple(s.rng.randint(1, max(1, min(3, d))) for d in spatial)


@operand(("ConvTranspose", 1))
def _transposed_weight(s: Spot) -> Shape:
    """[inputs, outputs of a group, sizes of the window]."""
    spatial, group = s.spatial(), s.attribute("group", 1)
    if group < 1 or s.of(0)[1] % group:
        raise DoesNotFit("channels that groups do not share")
    outputs = s.rng.choice((max(1, s.of(0)[1] // group), s.size()))
    return (s.of(0)[1], outputs, *(s.attribute("kernel_shape") or _window(s, spatial)))


@operand(("Conv", 2), (f"{_ORT}FusedConv", 2), strict=True)
def _bias(s: Spot) -> Shape:
    return (s.of(1, 1)[0],)


@operand(("ConvTranspose", 2), strict=True)
def _transposed_bias(s: Spot) -> Shape:
    return (s.of(1, 2)[1] * s.attribute("group", 1),)


@operand(
    *(("BatchNormalization", i) for i in range(1, 5)),
    ("InstanceNormalization", 1),
    ("InstanceNormalization", 2),
    strict=True,
)
def _channels(s: Spot) -> Shape:
    if len(s.of(0)) < 2 or (s.node.op_type == "InstanceNormalization" and len(s.of(0)) < 3):
        raise DoesNotFit(f"{s.node.op_type} needs channels")
    return (s.of(0)[1],)


@operand(("GroupNormalization", 1), ("GroupNormalization", 2))
def _groups(s: Spot) -> Shape:
    """A number for each group until opset 21, for each channel since."""
    s.spatial()
    return (s.of(0)[1] if "stash_type" in s.attributes else s.attribute("num_groups", 1),)


@operand(("LayerNormalization", 1), ("LayerNormalization", 2), ("RMSNormalization", 1))
def _normalized(s: Spot) -> Shape:
    return s.of(0)[s.axis(-1) :]


@operand(("Gemm", 1), (f"{_ORT}FusedGemm", 1))
def _factor(s: Spot) -> Shape:
    if len(s.of(0)) != 2:
        raise DoesNotFit("Gemm needs matrices")
    inner = s.of(0)[0 if s.attribute("transA", 0) else 1]
    outer = s.rng.choice((inner, s.size()))
    return (outer, inner) if s.attribute("transB", 0) else (inner, outer)


@operand(("Gemm", 2), (f"{_ORT}FusedGemm", 2))
def _added(s: Spot) -> Shape:
    a, b = s.of(0, 2), s.of(1, 2)
    rows, columns = a[1 if s.attribute("transA", 0) else 0], b[0 if s.attribute("transB", 0) else 1]
    return s.rng.choice(((columns,), (columns,), (rows, columns), (1, columns), (rows, 1), ()))


@operand(("MatMul", 1), ("MatMulInteger", 1), (_INTEGER_PRODUCT, 1), (_DYNAMIC_PRODUCT, 1))
def _right_factor(s: Spot) -> Shape:
    if not s.of(0):
        raise DoesNotFit("a product of no axes")
    inner = s.of(0)[-1]
    if s.rng.random() < 0.25:
        return (*s.of(0)[:-2], inner, s.size())
    return (inner, s.rng.choice((inner, s.size())))


@operand(("MatMul", 0))
def _left_factor(s: Spot) -> Shape:
    """The shape of the left factor, where only the right one is known."""
    other = s.of(1)
    if not other:
        raise DoesNotFit("a product of no axes")
    inner = other[-2] if len(other) > 1 else other[0]
    return (s.rng.choice((inner, s.size())), inner)


@operand(("PRelu", 1))
def _slope(s: Spot) -> Shape:
    shape = s.of(0)
    return s.rng.choice(((1,), shape[-1:], (shape[1] if len(shape) > 1 else 1, *[1] * max(0, len(shape) - 2)), shape))


@operand(("LSTM", 1), ("GRU", 1), ("RNN", 1), ("LSTM", 2), ("GRU", 2), ("RNN", 2))
def _recurrent(s: Spot) -> Shape:
    if len(s.of(0)) != 3:
        raise DoesNotFit(f"{s.node.op_type} needs a sequence")
    gates, hidden = {"LSTM": 4, "GRU": 3, "RNN": 1}[s.node.op_type], s.attribute("hidden_size", 2)
    directions = 2 if s.attribute("direction", "forward") == "bidirectional" else 1
    return (directions, gates * hidden, s.of(0)[-1] if s.index == 1 else hidden)


@operand(("Attention", 1), ("Attention", 2))
def _like_queries(s: Spot) -> Shape:
    if len(s.of(0)) not in (3, 4):
        raise DoesNotFit("attention needs heads")
    return s.of(0)


@operand(("GridSample", 1))
def _grid(s: Spot) -> Shape:
    spatial = s.spatial(2)
    return (s.of(0)[0], *(s.size() for _ in spatial), len(spatial))


# -- shapes --------------------------------------------------------------------------------------------------


@operand(("Reshape", 1))
def _target(s: Spot) -> Array:
    """As it was, as another value is, two axes in one, one in two, flat."""
    shape = s.of(0)
    back = [e for e in s.earlier if math.prod(e) == math.prod(shape) and e != shape]
    way = s.rng.choice(("back", "back", "merged", "merged", "split", "flat", "same", "shared"))
    if len(shape) > 1 and (way == "shared" or (s.rank is not None and s.rng.random() < 0.4)):
        target = (shape[0], *_shared(math.prod(shape[1:]), (s.rank or s.rng.randint(2, 5)) - 1, s.rng))
    elif s.rank is not None:
        target = _of_rank(shape, s.rank, s.rng)
    elif way == "back" and back:
        target = s.rng.choice(back)
    elif way in ("merged", "back") and len(shape) > 1:
        target = _of_rank(shape, len(shape) - 1, s.rng)
    elif way == "split" and shape:
        target = _of_rank(shape, len(shape) + 1, s.rng)
    else:
        target = s.rng.choice(
            (shape, shape, shape[::-1], (math.prod(shape),), (1, math.prod(shape)), (*shape[:1], math.prod(shape[1:])))
        )
    if target and 0 not in target and s.rng.random() < 0.4:
        place = s.rng.randrange(len(target))
        target = (*target[:place], -1, *target[place + 1 :])
    same = len(target) and shape and target[0] == shape[0] and s.rng.random() < 0.2
    return integers((0, *target[1:]) if same else target)


def _shared(number: int, count: int, rng: random.Random) -> Shape:
    """A number as a product of so many."""
    parts = []
    for _ in range(max(0, count - 1)):
        parts.append(_divisor(number, rng) if number else 1)
        number //= parts[-1] or 1
    return (*parts, number)


def _of_rank(shape: Shape, rank: int, rng: random.Random) -> Shape:
    """The same elements in so many axes: neighbours in one, or one in two."""
    while len(shape) > max(rank, 1):
        place = rng.randrange(len(shape) - 1)
        shape = (*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :])
    while len(shape) < rank:
        large = [a for a, d in enumerate(shape) if d > 1] or list(range(len(shape)))
        if not large:
            return (1,) * rank
        place = rng.choice(large)
        part = _divisor(shape[place], rng) if shape[place] else 1
        shape = (*shape[:place], part, shape[place] // part, *shape[place + 1 :])
    return shape


@operand(("Expand", 1))
def _expanded(s: Spot) -> Array:
    larger = [s.rng.choice((d, 1)) if d != 1 else s.rng.choice((1, 2, 3)) for d in s.of(0)]
    return integers([*([s.size()] if s.rng.random() < 0.25 else []), *larger])


@operand(("Tile", 1))
def _repeats(s: Spot) -> Array:
    return integers([s.rng.choice((1, 1, 2, 3)) for _ in s.of(0)])


@operand(("ConstantOfShape", 0))
def _sizes(s: Spot) -> Array:
    return integers([s.rng.randint(1, 4) for _ in range(s.rng.randint(1, 3))])


@operand(("Slice", 1), ("Slice", 2), ("Slice", 3), ("Slice", 4))
def _sliced(s: Spot) -> Array:
    """Starts, ends, axes and steps: as many as were chosen for the starts."""
    shape, before = s.of(0), s.shapes[1] if s.index > 1 and len(s.shapes) > 1 else None
    count = before[0] if before else 1 if s.rng.random() < 0.7 else len(shape)
    if count > len(shape) or not shape:
        raise DoesNotFit("a slice of more axes than there are")
    axes = sorted(s.rng.sample(range(len(shape)), count)) if s.index == 3 else range(count)
    if s.index == 3:
        return integers(axes)
    if s.index == 4:
        return integers([s.rng.choice((1, 1, 2, -1)) for _ in axes])
    if s.index == 1:
        return integers([s.rng.choice((0, 0, 1, -1)) for _ in axes])
    return integers([s.rng.choice((2, 3, shape[a], 2**31 - 1, -1)) for a in axes])


@operand(("Pad", 1))
def _padding(s: Spot) -> Array:
    rank = len(s.of(0))
    last = [s.rng.choice((0, 1, 2)) if axis >= min(rank - 1, 2) or s.rng.random() < 0.2 else 0 for axis in range(rank)]
    ends = last if s.rng.random() < 0.5 else [s.rng.choice((0, 1, 2)) if n else 0 for n in last]
    return integers([*last, *ends])


@operand(("Squeeze", 1))
def _ones(s: Spot) -> Array:
    ones = [axis for axis, size in enumerate(s.of(0)) if size == 1]
    if not ones:
        raise DoesNotFit("no axis of size 1")
    return integers([s.rng.choice((0, -len(s.of(0)))) + s.rng.choice(ones)])


@operand(("Unsqueeze", 1))
def _new_axes(s: Spot) -> Array:
    count = s.rng.choice((1, 1, 2))
    rank = len(s.of(0)) + count
    return integers(sorted(a - s.rng.choice((0, rank)) for a in s.rng.sample(range(rank), count)))


@operand(*((f"Reduce{k}", 1) for k in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()))
def _axes(s: Spot) -> Array:
    return integers(axes_of(len(s.of(0)), s.rng))


def axes_of(rank: int, rng: random.Random) -> list[int]:
    """Some axes of a tensor: the last, any, two next to each other, each counted from the front or the back."""
    if not rank:
        raise DoesNotFit("no axes")
    ways = [[-1], [rng.randrange(-rank, rank)], [rng.randrange(-rank, rank)], [rank - 1]]
    if rank > 1:
        ways += [[rank - 2, rank - 1], [-2, -1], list(range(1, rank)), sorted(rng.sample(range(rank), 2))]
    return rng.choice(ways)


@operand(("Split", 1))
def _parts(s: Spot) -> Array:
    size, count = s.of(0)[s.axis()], max(1, len(s.node.outputs))
    if size < count:
        raise DoesNotFit("too few to be split")
    cuts = sorted(s.rng.sample(range(1, size), count - 1))
    return integers([b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)])


@operand(("Gather", 1))
def _indices(s: Spot) -> Array:
    size = s.of(0)[s.axis()]
    if not size:
        raise DoesNotFit("nothing to gather from")
    whole = list(range(size))
    ways = [
        whole,
        whole[::-1],
        s.rng.sample(whole, size),
        whole[: (size + 1) // 2],
        s.rng.randrange(size),
        [s.rng.randrange(-size, size)],
    ]
    return np.array(s.rng.choice(ways), np.int64)


@operand(("GatherElements", 1), ("ScatterElements", 1))
def _elements(s: Spot) -> Array:
    size = s.of(0)[s.axis()]
    if not size:
        raise DoesNotFit("nothing to gather from")
    return np.array([s.rng.randrange(size) for _ in range(math.prod(s.of(0)))], np.int64).reshape(s.of(0))


@operand(("ScatterElements", 2))
def _updates(s: Spot) -> Shape:
    return s.of(1)


@operand(("GatherND", 1), ("ScatterND", 1))
def _tuples(s: Spot) -> Array:
    shape = s.of(0)
    if not shape or not all(shape):
        raise DoesNotFit("nothing to gather from")
    depth = s.rng.randint(1, len(shape))
    return integers([[s.rng.randrange(d) for d in shape[:depth]] for _ in range(2)])  # type: ignore[misc]


@operand(("ScatterND", 2))
def _tuple_updates(s: Spot) -> Shape:
    places = s.of(1)
    return (*places[:-1], *s.of(0)[places[-1] :]) if places else ()


@operand(("TopK", 1))
def _count(s: Spot) -> Array:
    return integers([s.rng.randint(1, max(1, s.of(0)[s.axis(-1)]))])


@operand(("CumSum", 1))
def _one_axis(s: Spot) -> Array:
    if not s.of(0):
        raise DoesNotFit("no axes")
    return np.array(s.rng.randrange(-len(s.of(0)), len(s.of(0))), np.int64)


@operand(("Trilu", 1))
def _diagonal(s: Spot) -> Array:
    if len(s.of(0)) < 2:
        raise DoesNotFit("no matrix")
    return np.array(s.rng.choice((0, 0, 1, -1)), np.int64)


@operand(("OneHot", 1))
def _depth(s: Spot) -> Array:
    return np.array(s.rng.randint(2, 4), np.int64)


@operand(("OneHot", 2))
def _off_and_on(s: Spot) -> Shape:
    return (2,)


@operand(("Compress", 1))
def _picked(s: Spot) -> Array:
    axis = s.attribute("axis")
    size = math.prod(s.of(0)) if axis is None else s.of(0)[s.axis()]
    return np.array([s.rng.random() < 0.6 for _ in range(size)], np.bool_)


@operand(("Resize", 2), ("Upsample", 1))
def _factors(s: Spot) -> Array:
    """The sizes behind batch and channels, larger or smaller."""
    s.spatial()
    if s.rng.random() < 0.6:
        return np.array([1, 1, *[s.rng.choice((0.5, 2, 2, 3))] * (len(s.of(0)) - 2)], np.float32)
    return np.array([1, 1, *(s.rng.choice((0.5, 1, 2, 3)) for _ in s.of(0)[2:])], np.float32)


@operand(("Resize", 3))
def _new_sizes(s: Spot) -> Array:
    return integers([*s.of(0)[:2], *(max(1, s.rng.choice((d, 2 * d, d // 2))) for d in s.spatial())])


@operand(("Resize", 1))
def _region(s: Spot) -> Array:
    rank = len(s.of(0))
    return np.array([0.0] * rank + [1.0] * rank, np.float32)


# -- numbers -------------------------------------------------------------------------------------------------


@operand(
    *(("Clip", i) for i in (1, 2)),
    ("Pad", 2),
    ("BitShift", 1),
    ("Dropout", 1),
    ("Dropout", 2),
    ("Range", 0),
    ("Range", 1),
    ("Range", 2),
)
def _scalar(s: Spot) -> Shape:
    return ()


@operand(("QuantizeLinear", 1), ("DequantizeLinear", 1))
def _steps(s: Spot) -> Shape:
    """One for all, or since opset 13 one for each index of an axis."""
    axis = s.attribute("axis")
    per_axis = axis is not None and -len(s.of(0)) <= axis < len(s.of(0)) and s.rng.random() < 0.3
    return (s.of(0)[axis],) if per_axis else ()


@operand(("QuantizeLinear", 2), ("DequantizeLinear", 2), strict=True)
def _zero_points(s: Spot) -> Shape:
    return s.of(1)


@operand((_INTEGER_PRODUCT, 2), (_INTEGER_PRODUCT, 4), strict=True)
def _one_step(s: Spot) -> Shape:
    return ()


@operand((_INTEGER_PRODUCT, 6), (_DYNAMIC_PRODUCT, 4), strict=True)
def _of_columns(s: Spot) -> Shape:
    return (s.of(1, 2)[-1],)


@operand((_INTEGER_PRODUCT, 3), (_DYNAMIC_PRODUCT, 2))
def _steps_of_columns(s: Spot) -> Shape:
    """One for all, or one for each column."""
    return s.rng.choice(((), (s.of(1, 2)[-1],)))


@operand((_INTEGER_PRODUCT, 5), strict=True)
def _zero_points_of_columns(s: Spot) -> Shape:
    return s.of(3)


@operand((_DYNAMIC_PRODUCT, 3), strict=True)
def _zero_points_of_dynamic(s: Spot) -> Shape:
    return s.of(2)


POSITIVE = frozenset(
    {("BatchNormalization", 4), ("QuantizeLinear", 1), ("DequantizeLinear", 1), ("Dropout", 1)}
    | {(_INTEGER_PRODUCT, 2), (_INTEGER_PRODUCT, 3), (_DYNAMIC_PRODUCT, 2)}
)
"""Operands that are never negative or zero: variances, steps, ratios."""

DIVISORS = frozenset({("Div", 1), ("Mod", 1)})
"""Operands that are not zero where they are integers."""

LISTS = frozenset(
    {("Pad", 1)}
    | {place for place in OPERANDS if place[0].startswith("Reduce")}
    | {place for place in OPERANDS if place[0] in {*operators("view select repeat"), "ConstantOfShape", "TopK"}}
)
"""Operands that are lists, whatever runtimes make of others."""

STRUCTURE = LISTS | {
    ("CumSum", 1),
    ("Trilu", 1),
    ("OneHot", 1),
    ("Compress", 1),
    *((o, i) for o in ("Resize", "Upsample") for i in (1, 2, 3)),
}
"""Operands that say shapes, axes and counts: constant in nearly every model."""
