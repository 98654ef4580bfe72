"""Exact integers and truth values: operators on what is made of sizes and constants, whatever the domain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import onnx_ir as ir
import z3

from onnxrewrite.ir.dims import FAR
from onnxrewrite.proof.index_terms import (
    Term,
    Unprovable,
    chosen,
    conjunction,
    disjunction,
    equal,
    larger,
    modulo,
    negated,
    plain,
    smaller,
    truncated,
)

D = ir.DataType

Element: TypeAlias = Any
"""An ``int`` or ``bool``, or a term of z3."""

Typed: TypeAlias = tuple[Element, ir.DataType]


EXACT: dict[str, Callable[..., Term]] = {
    "Add": lambda a, b: plain(a + b),
    "Sub": lambda a, b: plain(a - b),
    "Mul": lambda a, b: plain(a * b),
    "Neg": lambda a: plain(-a),
    "Abs": lambda a: larger(a, plain(-a)),
    "Identity": lambda a: a,
    "Relu": lambda a: larger(a, 0),
    "Max": lambda *a: nested(larger, a),
    "Min": lambda *a: nested(smaller, a),
    "ClipLow": larger,
    "ClipHigh": smaller,
    "Sum": lambda *a: nested(lambda x, y: plain(x + y), a),
    "Equal": equal,
    "Less": lambda a, b: plain(a < b),
    "LessOrEqual": lambda a, b: plain(a <= b),
    "Greater": lambda a, b: plain(a > b),
    "GreaterOrEqual": lambda a, b: plain(a >= b),
    "Sign": lambda a: _sign(a),
}  # fmt: skip


def _sign(a: Term) -> Term:
    return (a > 0) - (a < 0) if isinstance(a, int) else chosen(plain(a > 0), 1, chosen(plain(a < 0), -1, 0))


def nested(function: Callable[[Term, Term], Term], args: Sequence[Term]) -> Term:
    """A function of two, over any number of operands from the left."""
    result = args[0]
    for each in args[1:]:
        result = function(result, each)
    return result


def exact(op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType) -> Term:
    """An operator on exact integers; None where an operand is none, or the operator has no exact form."""
    elements = [e for e, _ in args]
    if not args or not all(d.is_integer() and (isinstance(e, int) or z3.is_int(e)) for e, d in args):
        return None
    if op_type == "Cast":
        return None if not dtype.is_integer() else wrapped(elements[0], dtype)
    if op_type in ("Div", "Mod"):
        a, b = elements
        if isinstance(b, int) and b == 0:
            raise Unprovable("a division by zero")
        if op_type == "Div":
            return wrapped(truncated(a, b), dtype) if isinstance(b, int) else None
        known = isinstance(b, int) and b > 0 and not parameters.get("fmod")
        return modulo(a, b) if known else None
    function = EXACT.get(op_type)
    if function is None:
        return None
    found = function(*elements)
    return wrapped(found, dtype) if dtype.is_integer() else found


def wrapped(value: Term, dtype: ir.DataType) -> Term:
    """An exact integer in a dtype: a number wraps around; a term, which is made of sizes, must fit.

    In 64 bits products of sizes are taken to fit, as ``ir.facts`` takes them, multiples by large numbers are not; in 32
    bits a term must fit for all sizes.
    """
    bits, signed = dtype.bitwidth, dtype.is_signed()
    if isinstance(value, int):
        low = value % 2**bits
        return low - 2**bits if signed and low >= 2 ** (bits - 1) else low
    if bits < 32 or not signed:
        raise Unprovable(f"a size in {dtype.name.lower()}")
    if _magnitude(value, FAR if bits == 32 else 1) >= 2**31:
        raise Unprovable(f"a multiple of sizes that may not fit into {dtype.name.lower()}")
    return value


def _magnitude(term: Term, size: int) -> int:
    """A bound of a term of sizes, each of which is at most ``size``."""
    if isinstance(term, int) or z3.is_int_value(term):
        return abs(int(term if isinstance(term, int) else term.as_long()))
    kind, parts = term.decl().kind(), term.children()
    if kind == z3.Z3_OP_ITE:
        return max(_magnitude(p, size) for p in parts[1:])
    if kind in (z3.Z3_OP_ADD, z3.Z3_OP_SUB, z3.Z3_OP_UMINUS):
        return sum(_magnitude(p, size) for p in parts)
    if kind == z3.Z3_OP_MUL:
        return math.prod(_magnitude(p, size) for p in parts)
    if kind in (z3.Z3_OP_IDIV, z3.Z3_OP_MOD):
        return _magnitude(parts[0] if kind == z3.Z3_OP_IDIV else parts[1], size)
    return size


LOGIC: dict[str, Callable[..., Term]] = {
    "And": lambda a, b: conjunction([a, b]),
    "Or": lambda a, b: disjunction([a, b]),
    "Not": negated,
    "Xor": lambda a, b: negated(equal(a, b)),
    "Equal": equal,
    "Identity": lambda a: a,
}


def logical(op_type: str, args: Sequence[Typed]) -> Term:
    """An operator on truth values; None for any other."""
    if op_type in LOGIC and args and all(d == D.BOOL for _, d in args):
        return plain(LOGIC[op_type](*(e for e, _ in args)))
    return None
