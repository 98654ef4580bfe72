"""Constants against numbers: the one place that says when they are equal.

A constant equals a pattern's number when it is that number rounded to the constant's own dtype, no looser: the
square root of two is 1.41421354 in float32 and 1.4141 in float16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.value_numbering import same_tensor
from onnxrewrite.ir.views import spellings
from onnxrewrite.pattern.look import resolve
from onnxrewrite.system.arrays import Array


def scalar(facts: Facts, value: ir.Value) -> float | int | None:
    """The number in a constant with one element; None for anything else."""
    tensor = facts.tensor(resolve(value))
    return None if tensor is None else facts.number(tensor)


def array(facts: Facts, value: ir.Value) -> Array:
    """A constant as an array, floating-point data in float64 so that what is computed from it is rounded once."""
    data: Array | None = facts.constant(value)
    assert data is not None
    is_float = data.dtype.kind == "f" or data.dtype.name == "bfloat16"
    return data.astype(np.float64) if is_float else data


def equals(facts: Facts, value: ir.Value, number: float) -> bool:
    """True if ``value`` is a constant with one element that equals ``number`` in its own dtype."""
    found = scalar(facts, value)
    return found is not None and found == rounded(number, facts.dtype(value))


def rounded(number: float, dtype: ir.DataType | None) -> float:
    """``number`` as a tensor of ``dtype`` holds it: infinite if too large; NaN, equal to nothing, where it cannot."""
    if dtype is None:
        return math.nan
    if not dtype.is_floating_point():
        return number if float(number).is_integer() else math.nan
    with np.errstate(over="ignore"):
        return float(np.asarray(number, np.float64).astype(dtype.numpy()))


def product_equals(
    found: Sequence[tuple[float, int]], expected: Sequence[tuple[float, int]], dtype: ir.DataType
) -> bool:
    """True if a product of constants, each multiplied (+1) or divided by (-1), equals the expected one.

    One constant against one number is compared exactly, as itself or as its reciprocal, each rounded to ``dtype``.
    Several are multiplied in float64, and may be off by what rounding each of them costs; in double precision the
    pattern's own numbers are rounded no less.
    """
    if len(found) == len(expected) == 1:
        (number, sign), (wanted, wanted_sign) = found[0], expected[0]
        if sign == wanted_sign:
            return number == rounded(wanted, dtype)
        if wanted != 0 and number == rounded(1.0 / wanted, dtype):
            return True
    a, b = product(found), product(expected)
    return a == b or rounded(a, dtype) == rounded(b, dtype) or abs(a - b) <= _rounding(found, expected, dtype) * abs(b)


def _rounding(found: Sequence[tuple[float, int]], expected: Sequence[tuple[float, int]], dtype: ir.DataType) -> float:
    """The relative error that rounding can cause in a product or a sum of constants."""
    if not dtype.is_floating_point():
        return 0.0
    steps = len(found) if len(found) > 1 else 0
    own = len(expected) + 1 if dtype == ir.DataType.DOUBLE else 0
    return (steps + own) * epsilon(dtype) / 2


def product(factors: Sequence[tuple[float, int]]) -> float:
    """The product of numbers, each multiplied (+1) or divided by (-1); exact for integers, NaN for a division by 0."""
    result: float = 1
    for number, sign in factors:
        if sign < 0 and number == 0:
            return math.nan
        result = result * number if sign > 0 else result / number
    return result


def total_equals(found: Sequence[tuple[float, int]], expected: Sequence[tuple[float, int]], dtype: ir.DataType) -> bool:
    """True if a sum of constants, each added (+1) or subtracted (-1), equals the expected one."""
    if len(found) == len(expected) == 1:
        return found[0][1] * found[0][0] == rounded(expected[0][1] * expected[0][0], dtype)
    a, b = total(found), total(expected)
    size = max((abs(number) for number, _ in found), default=0.0)
    return a == b or rounded(a, dtype) == rounded(b, dtype) or abs(a - b) <= _rounding(found, expected, dtype) * size


def total(addends: Sequence[tuple[float, int]]) -> float:
    """The sum of numbers, each added (+1) or subtracted (-1); exact for integers, NaN for infinities that differ."""
    signed = [sign * number for number, sign in addends]
    if all(isinstance(n, int) for n in signed):
        return sum(signed)
    try:
        return math.fsum(signed)
    except (ValueError, OverflowError):  # infinities that differ, and a sum on the way that no float holds
        return sum(signed)


def is_product(facts: Facts, whole: ir.Value | None, *factors: ir.Value | None) -> bool:
    """True if a constant is the product of others, but for one rounding, and as large; False where one is unknown."""
    known = [None if v is None else facts.tensor(v) for v in (whole, *factors)]
    own, *parts = (np.nan if tensor is None else np.asarray(tensor.numpy(), np.float64) for tensor in known)
    try:
        wanted = math.prod(parts, start=np.asarray(1.0))
    except ValueError:  # of shapes that are not broadcast there is no product
        return False
    return np.size(own) == np.size(wanted) and bool(np.allclose(own, wanted, rtol=_ROUNDED_ONCE, atol=0))


_ROUNDED_ONCE = 2.0**-22
"""The product of two numbers in float32 that was rounded once, and that of the numbers as they are."""


def same_constant(facts: Facts, a: ir.Value, b: ir.Value) -> bool:
    """True if two small constants have equal content."""
    left, right = facts.tensor(a), facts.tensor(b)
    return left is not None and right is not None and same_tensor(left, right)


def same_parameter(actual: Any, expected: Any) -> bool:
    """True if an attribute has the expected value; floats are compared as float32, in which they are stored."""
    if isinstance(expected, bool | np.bool_):
        return bool(actual) == bool(expected)
    if isinstance(actual, float) or isinstance(expected, float):
        numeric = isinstance(actual, int | float) and isinstance(expected, int | float)
        return numeric and np.float32(actual) == np.float32(expected)
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        pairs = zip(actual, expected, strict=False)
        return len(actual) == len(expected) and all(same_parameter(a, e) for a, e in pairs)
    return bool(actual == expected)


def same_parameter_at(node: ir.Node, name: str, actual: object, expected: object) -> bool:
    """``same_parameter`` at a node, in whatever way its value is written."""
    return any(same_parameter(each, expected) for each in spellings(node, name, actual))


def describe(facts: Facts, value: ir.Value) -> str:
    """A constant in a few characters; any other value by name."""
    tensor = facts.tensor(value)
    if tensor is None:
        return f"`{value.name}`" + (", which is a graph input" if value.is_graph_input() else "")
    if tensor.size == 1:
        number = scalar(facts, value)
        return f"{number:.6g}" if isinstance(number, float) else str(number)
    return f"a tensor of shape {list(tensor.shape)}"


def unequal(facts: Facts, value: ir.Value, expected: float) -> str:
    """The reason why ``value`` is not the constant ``expected``."""
    found = scalar(facts, value)
    if found is None:
        return f"expected constant {expected:.6g}, found {describe(facts, value)}"
    return tell(expected, found, facts.dtype(value))


def tell(expected: float, found: float, dtype: ir.DataType | None) -> str:
    """Two different numbers in as many digits as it takes to see that they differ, if many, with the dtype that has
    them."""
    digits = next((n for n in (6, 9, 17) if f"{expected:.{n}g}" != f"{found:.{n}g}"), 17)
    precise = f" in {dtype.name.lower()}" if digits > 6 and dtype is not None else ""
    return f"expected constant {expected:.{digits}g}, found {found:.{digits}g}{precise}"


def epsilon(dtype: ir.DataType) -> float:
    """The distance from 1 to the next larger number of a floating-point dtype."""
    return float(ml_dtypes.finfo(dtype.numpy()).eps)  # type: ignore[no-untyped-call]


def is_normal(number: float, dtype: ir.DataType) -> bool:
    """True if a number of ``dtype`` is zero, or as precise as its epsilon says: neither denormal nor infinite."""
    if not dtype.is_floating_point():
        return math.isfinite(number)
    info = ml_dtypes.finfo(dtype.numpy())  # type: ignore[no-untyped-call]
    return number == 0 or float(info.tiny) <= abs(number) <= float(info.max)
