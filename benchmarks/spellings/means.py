"""Means as sums, poolings and products with ones."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


def _mean(s: Script) -> tuple[ir.Value, tuple[int, ...], bool] | None:
    """What a ReduceMean reduces, its axes from the front, and whether they stay."""
    node = s.place
    x, axes, rank = node.inputs[0], s.axes(node), s.rank(node.inputs[0])
    if x is None or not axes or rank is None or not s.is_float(x):
        return None
    return x, axes, bool(node.attributes.get_int("keepdims", 1))


@spelling("ReduceMean")
def sum_by_count(s: Script) -> bool:
    """The mean as the sum divided by the count."""
    found = _mean(s)
    if found is None:
        return False
    x, axes, keepdims = found
    sizes = [s.size(x, a) for a in axes]
    count = math.prod(n for n in sizes if n is not None)
    if None in sizes or not count:
        return False
    total = s.reduced("ReduceSum", x, axes, keepdims)
    if s.rng.random() < 0.5:
        return s.put(s.new("Div", total, s.constant(count, x)))
    return s.put(s.new("Mul", total, s.constant(1 / count, x)))


@spelling("ReduceMean")
def product_with_ones(s: Script) -> bool:
    """The mean of the last axis as a product with a column of 1/n."""
    found = _mean(s)
    if found is None:
        return False
    x, axes, keepdims = found
    count = s.size(x, -1)
    if axes != ((s.rank(x) or 0) - 1,) or not count or not keepdims:
        return False
    return s.put(s.new("MatMul", x, s.constant(np.full((count, 1), 1 / count), x)))


@spelling("ReduceMean")
def global_pool(s: Script) -> bool:
    """The mean of all but the first two axes as a GlobalAveragePool."""
    found = _mean(s)
    if found is None:
        return False
    x, axes, keepdims = found
    rank = s.rank(x) or 0
    if rank < 3 or sorted(axes) != list(range(2, rank)):
        return False
    pooled = s.new("GlobalAveragePool", x)
    return s.put(pooled if keepdims else s.new("Flatten", pooled, axis=1))


@spelling("GlobalAveragePool")
def mean_of_picture(s: Script) -> bool:
    """A GlobalAveragePool as a mean."""
    x = s.place.inputs[0]
    rank = s.rank(x)
    return rank is not None and s.put(s.reduced("ReduceMean", x, range(2, rank)))


@spelling("ReduceMean", "ReduceSum")
def axes_from_back(s: Script) -> bool:
    """Axes counted from the other end."""
    node, axes, rank = s.place, s.axes(s.place), s.rank(s.place.inputs[0])
    if not axes or rank is None:
        return False
    keepdims = bool(node.attributes.get_int("keepdims", 1))
    return s.put(s.reduced(node.op_type, node.inputs[0], [a - rank for a in axes], keepdims))
