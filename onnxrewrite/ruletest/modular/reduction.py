"""Sums, means, extremes along axes, and what is normalized by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from onnxrewrite.ruletest.modular import arithmetic as ring
from onnxrewrite.ruletest.modular.elementwise import greater_or_less
from onnxrewrite.ruletest.modular.evaluate import Call, NotApplicable, Run, computes
from onnxrewrite.system.arrays import Array

_MANY = 64
"""Up to so many elements are folded one by one."""


def _axes(call: Call, rank: int, given: Any) -> tuple[int, ...] | None:
    """The axes of a reduction, attribute or input; None where it does nothing."""
    axes = call.get("axes") if given is None else given.tolist()
    if not axes and call.get("noop_with_empty_axes", 0):
        return None
    return tuple(a % rank for a in axes) if axes else tuple(range(rank))


def _mean(a: Array, axes: Sequence[int], keepdims: bool = True) -> Array:
    count = math.prod(a.shape[axis] for axis in axes)
    return ring.mul(ring.total(a, axes, keepdims), ring.element(1, count))


@computes("ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL2", "ReduceProd", "ReduceMax", "ReduceMin")
def _reduce(run: Run, call: Call, a: Array, given: object = None) -> Array:
    axes, keep = _axes(call, a.ndim, given), bool(call.get("keepdims", 1))
    if axes is None:
        return a
    if call.op_type == "ReduceMean":
        return _mean(a, axes, keep)
    if call.op_type == "ReduceSum":
        return ring.total(a, axes, keep)
    if call.op_type in ("ReduceSumSquare", "ReduceL2"):
        squares = ring.total(ring.mul(a, a), axes, keep)
        return squares if call.op_type == "ReduceSumSquare" else ring.sqrt(squares)
    if call.op_type == "ReduceProd":
        return _folded(ring.mul, a, axes, keep)
    return _folded(partial(greater_or_less, run, call.op_type == "ReduceMax"), a, axes, keep)


def _folded(function: Callable[[Array, Array], Array], a: Array, axes: Sequence[int], keep: bool) -> Array:
    """One element after the other along the axes; of many, halves together as long as they are many."""
    kept = [n for axis, n in enumerate(a.shape) if axis not in axes]
    rows = np.moveaxis(a, axes, range(len(axes))).reshape(-1, *kept)
    while len(rows) > _MANY:
        half = len(rows) // 2
        rows = np.concatenate([function(rows[:half], rows[half : 2 * half]), rows[2 * half :]])
    result = reduce(function, rows)
    return np.expand_dims(result, tuple(axes)) if keep else result


@computes("CumSum")
def _cumsum(run: Run, call: Call, a: Array, axis: Array) -> Array:
    line = int(axis.ravel()[0])
    turned = np.flip(a, line) if call.get("reverse", 0) else a
    if call.get("exclusive", 0):
        zero = np.zeros_like(np.take(turned, [0], line))
        turned = np.concatenate([zero, np.delete(turned, -1, line)], line)
    bad = np.logical_or.accumulate(ring.is_undefined(turned), line)
    sums = np.where(bad, ring.UNDEFINED, np.cumsum(turned, line, dtype=np.uint64) % np.uint64(ring.MODULUS))
    return np.flip(sums, line) if call.get("reverse", 0) else sums


@computes("Softmax", "LogSoftmax")
def _softmax(run: Run, call: Call, a: Array) -> Array:
    """exp(x)/Σexp(x), and x - log(Σexp(x)); before opset 13 over all axes from the given one on."""
    axis = call.get("axis", -1) % max(1, a.ndim)
    axes = tuple(range(axis, a.ndim)) if call.version is not None and call.version < 13 else (axis,)
    powers = ring.exp(a)
    whole = ring.total(powers, axes, keepdims=True)
    if call.op_type == "Softmax":
        return ring.div(powers, whole)
    run.note("Log", whole)
    return ring.sub(a, ring.hashed("Log", whole))


@computes("GlobalAveragePool")
def _global_average(run: Run, call: Call, a: Array) -> Array:
    return _mean(a, range(2, a.ndim))


@computes("BatchNormalization")
def _batch_norm(
    run: Run, call: Call, x: Array, scale: Array, shift: Array, mean: Array, var: Array
) -> tuple[Array, ...]:
    """γ(x - μ)/sqrt(σ² + ε) + β."""
    if call.get("training_mode", 0) or call.outputs > 1:
        raise NotApplicable("BatchNormalization in training mode")
    return (_normalized(run, call, x, mean, var, scale, shift),)


@computes("InstanceNormalization")
def _instance_norm(run: Run, call: Call, x: Array, scale: Array, shift: Array) -> Array:
    axes = range(2, x.ndim)
    mean = _mean(x, axes)
    centred = ring.sub(x, mean)
    return _normalized(run, call, x, mean, _mean(ring.mul(centred, centred), axes), scale, shift)


def _normalized(run: Run, call: Call, x: Array, mean: Array, var: Array, scale: Array, shift: Array) -> Array:
    mean, var, scale, shift = (
        each.reshape(-1, *[1] * (x.ndim - 2)) if each.ndim == 1 else each for each in (mean, var, scale, shift)
    )
    gain = ring.div(scale, ring.sqrt(ring.add(var, run.attribute(call, "epsilon", 1e-5))))
    return ring.add(ring.mul(ring.sub(x, mean), gain), shift)
