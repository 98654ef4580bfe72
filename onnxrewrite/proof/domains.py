"""Domains: what an element of a tensor is, and what operators on elements are there.

``Uninterpreted``: of each dtype there is some set of values, and of each operator some function on it.  What holds for
all of them holds for the kernels, to the bit, as long as a kernel computes each element by itself.  Truth values are
those of logic.

``Bitwise``: floats are those of IEEE 754, integers are bits; the elementary functions stay uninterpreted, and with
``arithmetic=False`` so do sums and products.  Which zero ``Max(0, -0)`` is, is left open.

``Reals``: floats are real numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx_ir as ir
import z3

from onnxrewrite.ir.operators import operators
from onnxrewrite.proof.integers import (
    Index,
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

COMMUTATIVE = operators(marks="commutative")

_FUNCTION = {"max": "Max", "min": "Min", "sum": "Add", "product": "Mul"}
"""The operator that a fold repeats."""


class Domain:
    """The domain in which nothing is known of operators; see the module's docstring."""

    name = "uninterpreted"

    def __init__(self) -> None:
        self.context = z3.Context()

    # -- values ----------------------------------------------------------------------------------------------

    def sort(self, dtype: ir.DataType) -> Any:
        """The sort of the elements of a dtype."""
        if dtype == D.BOOL:
            return z3.BoolSort(self.context)
        return z3.DeclareSort(dtype.name.lower(), self.context)

    def application(self, name: str, dtype: ir.DataType, arguments: Sequence[Any]) -> Any:
        """Some function of a name, of arguments of any sorts."""
        given = [self._argument(a) for a in arguments]
        if not given:
            return z3.Const(name, self.sort(dtype))
        return z3.Function(name, *(a.sort() for a in given), self.sort(dtype))(*given)

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, bool):
            return z3.BoolVal(argument, self.context)
        return z3.IntVal(argument, self.context) if isinstance(argument, int) else argument

    def number(self, value: Any, dtype: ir.DataType) -> Any:
        """A number of a floating-point dtype."""
        bits = np.asarray(value).tobytes().hex()
        return z3.Const(f"{dtype.name.lower()} {float(value)!r} {bits}", self.sort(dtype))

    def lifted(self, element: Element, dtype: ir.DataType) -> Any:
        """An element as a term of the sort of its dtype; an exact integer becomes one of the domain."""
        if dtype == D.BOOL:
            return self._argument(element)
        if isinstance(element, int) or z3.is_int(element):
            return self._of_exact(element, dtype)
        return element

    def _of_exact(self, element: Any, dtype: ir.DataType) -> Any:
        return self.application(f"{dtype.name.lower()} of integer", dtype, [element])

    def as_index(self, element: Element, dtype: ir.DataType) -> Any:
        """An element of an integer dtype as an exact integer."""
        if isinstance(element, int) or z3.is_int(element):
            return element
        if z3.is_app(element) and element.decl().name() == f"{dtype.name.lower()} of integer":
            return plain(element.arg(0))
        if element.decl().kind() == z3.Z3_OP_ITE:
            yes, no = (self.as_index(element.arg(k), dtype) for k in (1, 2))
            return chosen(element.arg(0), yes, no)
        name = f"integer of {dtype.name.lower()}"
        return z3.Function(name, element.sort(), z3.IntSort(self.context))(element)

    # -- operators -------------------------------------------------------------------------------------------

    def pointwise(self, op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType) -> Any:
        """An operator on elements; ``parameters`` are attributes, ``dtype`` is that of the result."""
        found = exact(op_type, parameters, args, dtype)
        if found is None:
            found = logical(op_type, args)
        if found is not None:
            return found
        lifted = [(self.lifted(e, d), d) for e, d in args]
        found = self.interpreted(op_type, parameters, lifted, dtype)
        return self.uninterpreted(op_type, parameters, lifted, dtype) if found is None else found

    def interpreted(self, op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType) -> Any:
        """An operator that the domain has a meaning for; None for one that it has none for."""
        if op_type in ("Max", "Min", "Add", "Mul") and len(args) == 1:
            return args[0][0]
        return None

    def uninterpreted(
        self, op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType
    ) -> Any:
        """Some function of the operands; of a commutative operator, of operands in some order."""
        terms = [e for e, _ in args]
        if op_type in COMMUTATIVE:
            terms.sort(key=lambda t: t.sexpr())
        told = " ".join(f"{k}={v!r}" for k, v in sorted(parameters.items()))
        sorts = ",".join(d.name.lower() for _, d in args)
        return self.application(f"{op_type}<{told}>({sorts})->{dtype.name.lower()}", dtype, terms)

    # -- folds -----------------------------------------------------------------------------------------------

    def may_fold(self, fold: str, dtype: ir.DataType) -> None:
        """Raise ``Unprovable`` where the result depends on the order, which kernels choose."""
        if fold in ("sum", "product") and dtype.is_floating_point():
            raise Unprovable("the order of a sum of floats, which a kernel chooses")

    def fold(self, fold: str, bound: Any, length: Any, body: Any, dtype: ir.DataType) -> Any:
        """A fold over all values of ``bound`` below a length."""
        self.may_fold(fold, dtype)
        return self.application(f"{fold} over", dtype, [z3.Lambda([bound], body), length])

    def folded(self, fold: str, parts: Sequence[Any], dtype: ir.DataType) -> Any:
        """A fold of terms that are given one by one."""
        self.may_fold(fold, dtype)
        if not parts:
            return self.application(f"{fold} of nothing", dtype, [])
        result = parts[0]
        for part in parts[1:]:
            result = self.pointwise(_FUNCTION[fold], {}, [(result, dtype), (part, dtype)], dtype)
        return result


# -- exact integers and truth values ---------------------------------------------------------------------------------

_EXACT: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: plain(a + b),
    "Sub": lambda a, b: plain(a - b),
    "Mul": lambda a, b: plain(a * b),
    "Neg": lambda a: plain(-a),
    "Abs": lambda a: larger(a, plain(-a)),
    "Identity": lambda a: a,
    "Relu": lambda a: larger(a, 0),
    "Max": lambda *a: _nested(larger, a),
    "Min": lambda *a: _nested(smaller, a),
    "ClipLow": larger,
    "ClipHigh": smaller,
    "Sum": lambda *a: _nested(lambda x, y: plain(x + y), a),
    "Equal": equal,
    "Less": lambda a, b: plain(a < b),
    "LessOrEqual": lambda a, b: plain(a <= b),
    "Greater": lambda a, b: plain(a > b),
    "GreaterOrEqual": lambda a, b: plain(a >= b),
    "Sign": lambda a: chosen(plain(a > 0), 1, chosen(plain(a < 0), -1, 0)) if not isinstance(a, int) else (a > 0) - (a < 0),
}  # fmt: skip


def _nested(function: Callable[[Any, Any], Any], args: Sequence[Any]) -> Any:
    result = args[0]
    for each in args[1:]:
        result = function(result, each)
    return result


def exact(op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType) -> Any:
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
    function = _EXACT.get(op_type)
    if function is None:
        return None
    found = function(*elements)
    return wrapped(found, dtype) if dtype.is_integer() else found


def wrapped(value: Any, dtype: ir.DataType) -> Any:
    """An exact integer in a dtype: a number wraps around; a term, which is made of sizes, fits into 32 bits or more."""
    bits, signed = dtype.bitwidth, dtype.is_signed()
    if isinstance(value, int):
        low = value % 2**bits
        return low - 2**bits if signed and low >= 2 ** (bits - 1) else low
    if bits < 32 or not signed:
        raise Unprovable(f"a size in {dtype.name.lower()}")
    return value


_LOGIC: dict[str, Callable[..., Any]] = {
    "And": lambda a, b: conjunction([a, b]),
    "Or": lambda a, b: disjunction([a, b]),
    "Not": negated,
    "Xor": lambda a, b: negated(equal(a, b)),
    "Equal": equal,
    "Identity": lambda a: a,
}


def logical(op_type: str, args: Sequence[Typed]) -> Any:
    """An operator on truth values; None for any other."""
    if op_type in _LOGIC and args and all(d == D.BOOL for _, d in args):
        return plain(_LOGIC[op_type](*(e for e, _ in args)))
    return None


# -- IEEE numbers and bits -------------------------------------------------------------------------------------------

_FORMATS = {D.FLOAT16: (5, 11), D.BFLOAT16: (8, 8), D.FLOAT: (8, 24), D.DOUBLE: (11, 53)}

_NATIVE = (D.FLOAT, D.DOUBLE)
"""Dtypes that kernels add and multiply in, and do not compute in a wider one."""


class Bitwise(Domain):
    """Floats of IEEE 754 and bits.

    Args:
        arithmetic: True if sums and products are those of IEEE 754.
    """

    name = "bitwise"

    def __init__(self, *, arithmetic: bool) -> None:
        super().__init__()
        self.arithmetic = arithmetic

    def sort(self, dtype: ir.DataType) -> Any:
        """Of IEEE numbers, or of bits."""
        if dtype in _FORMATS:
            return z3.FPSort(*_FORMATS[dtype], self.context)
        if dtype.is_integer():
            return z3.BitVecSort(dtype.bitwidth, self.context)
        return super().sort(dtype)

    def number(self, value: Any, dtype: ir.DataType) -> Any:
        """A number by its bits."""
        if dtype not in _FORMATS:
            return super().number(value, dtype)
        raw = np.asarray(value)
        bits = int(raw.view(f"u{raw.dtype.itemsize}"))
        return z3.simplify(
            z3.fpBVToFP(z3.BitVecVal(bits, dtype.bitwidth, self.context), self.sort(dtype), self.context)
        )

    def _of_exact(self, element: Any, dtype: ir.DataType) -> Any:
        if isinstance(element, int):
            return z3.BitVecVal(element, dtype.bitwidth, self.context)
        return super()._of_exact(element, dtype)

    def interpreted(self, op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType) -> Any:
        """By the meaning of the operands' dtype."""
        found = super().interpreted(op_type, parameters, args, dtype)
        if found is not None or not args:
            return found
        if op_type == "Cast":
            return self._cast(*args[0], dtype)
        kinds = {d for _, d in args}
        terms = [e for e, _ in args]
        if kinds <= set(_FORMATS):
            return self._float(op_type, parameters, terms, args[0][1])
        if all(d.is_integer() for d in kinds) and len(kinds) == 1:
            return self._integer(op_type, terms, args[0][1])
        return None

    # -- floats ----------------------------------------------------------------------------------------------

    def _float(self, op_type: str, parameters: Mapping[str, Any], terms: Sequence[Any], dtype: ir.DataType) -> Any:
        simple = _OF_FLOATS.get(op_type)
        if simple is not None:
            return simple(*terms)
        if op_type in ("Max", "Min"):
            return _nested(lambda a, b: self._extremum(op_type, a, b, dtype), terms)
        zero = z3.fpPlusZero(self.sort(dtype))
        if op_type in ("ClipLow", "ClipHigh"):
            return self._bounded(op_type, *terms, dtype)
        if op_type == "Relu":
            return self._bounded("ClipLow", terms[0], zero, dtype)
        if op_type == "ThresholdedRelu":
            return z3.If(z3.fpGT(terms[0], self._parameter(parameters["alpha"], dtype), self.context), terms[0], zero)
        if op_type in ("LeakyRelu", "PRelu"):
            slope = terms[1] if op_type == "PRelu" else self._parameter(parameters["alpha"], dtype)
            line = self.pointwise("Mul", {}, [(terms[0], dtype), (slope, dtype)], dtype)
            return z3.If(z3.fpLT(terms[0], zero, self.context), line, terms[0])
        if op_type in ("Add", "Sub", "Mul", "Div") and self.arithmetic and dtype in _NATIVE:
            mode = z3.RNE(self.context)
            return {"Add": z3.fpAdd, "Sub": z3.fpSub, "Mul": z3.fpMul, "Div": z3.fpDiv}[op_type](mode, *terms, self.context)
        return None

    def _parameter(self, value: float, dtype: ir.DataType) -> Any:
        """An attribute's number, which is a float32, in the dtype of the operands."""
        held = {D.FLOAT16: np.float16, D.BFLOAT16: ml_dtypes.bfloat16, D.FLOAT: np.float32, D.DOUBLE: np.float64}[dtype]
        return self.number(np.float32(value).astype(held), dtype)

    def _extremum(self, op_type: str, a: Any, b: Any, dtype: ir.DataType) -> Any:
        """NaN where one is; of two zeros some one, the same one for the same two."""
        sort = self.sort(dtype)
        above = (z3.fpGEQ if op_type == "Max" else z3.fpLEQ)(a, b, self.context)
        tie = z3.Function(f"{op_type} of zeros {dtype.name.lower()}", sort, sort, sort)(a, b)
        zero = z3.fpPlusZero(sort)
        negative = z3.fpMinusZero(sort)
        own = self.context
        either = z3.If(z3.fpIsNegative(tie, own), negative, zero)
        ordered = z3.If(z3.And(z3.fpIsZero(a, own), z3.fpIsZero(b, own), a != b), either, z3.If(above, a, b))
        return z3.If(z3.Or(z3.fpIsNaN(a, own), z3.fpIsNaN(b, own)), z3.fpNaN(sort), ordered)

    def _bounded(self, op_type: str, x: Any, bound: Any, dtype: ir.DataType) -> Any:
        """A half of a Clip: NaN stays; a bound that may be NaN is not told."""
        if not z3.is_fp_value(z3.simplify(bound)) or z3.is_true(z3.simplify(z3.fpIsNaN(bound, self.context))):
            return None
        return self._extremum("Max" if op_type == "ClipLow" else "Min", x, bound, dtype)

    # -- integers --------------------------------------------------------------------------------------------

    def _integer(self, op_type: str, terms: Sequence[Any], dtype: ir.DataType) -> Any:
        signed = dtype.is_signed()
        less = (lambda a, b: a < b) if signed else z3.ULT
        zero = z3.BitVecVal(0, dtype.bitwidth, self.context)
        if op_type in ("Max", "Min", "ClipLow", "ClipHigh"):
            is_upper = op_type in ("Max", "ClipLow")
            return _nested(lambda a, b: z3.If(less(a, b), *((b, a) if is_upper else (a, b))), terms)
        if op_type in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
            a, b = terms if op_type in ("Less", "GreaterOrEqual") else reversed(list(terms))
            return less(a, b) if op_type in ("Less", "Greater") else z3.Not(less(a, b))
        if op_type == "Relu":
            return z3.If(less(terms[0], zero), zero, terms[0])
        if op_type == "Abs":
            return z3.If(less(terms[0], zero), -terms[0], terms[0])
        if op_type == "Div":
            a, b = terms
            overflows = z3.And(b == -1, a == 2 ** (dtype.bitwidth - 1)) if signed else z3.BoolVal(False, self.context)
            rest = self.uninterpreted("Div", {}, [(a, dtype), (b, dtype)], dtype)
            return z3.If(z3.Or(b == 0, overflows), rest, a / b if signed else z3.UDiv(a, b))
        simple = _OF_BITS.get(op_type)
        return simple(*terms) if simple is not None else None

    # -- casts -----------------------------------------------------------------------------------------------

    def _cast(self, term: Any, source: ir.DataType, target: ir.DataType) -> Any:
        if source == target:
            return term
        mode, sort = z3.RNE(self.context), self.sort(target)
        if source in _FORMATS and target in _FORMATS:
            return z3.fpFPToFP(mode, term, sort, self.context)
        if source in _FORMATS and target == D.BOOL:
            return z3.Not(z3.fpIsZero(term, self.context))
        if source.is_integer() and target in _FORMATS:
            return (z3.fpSignedToFP if source.is_signed() else z3.fpUnsignedToFP)(mode, term, sort, self.context)
        if source.is_integer() and target.is_integer():
            return _resized(term, source, target)
        if source.is_integer() and target == D.BOOL:
            return term != z3.BitVecVal(0, source.bitwidth, self.context)
        if source == D.BOOL and target in _FORMATS:
            return z3.If(term, self._parameter(1.0, target), z3.fpPlusZero(sort))
        if source == D.BOOL and target.is_integer():
            return z3.If(term, *(z3.BitVecVal(k, target.bitwidth, self.context) for k in (1, 0)))
        if source in _FORMATS and target.is_integer():
            return self._to_integer(term, source, target)
        return None

    def _to_integer(self, term: Any, source: ir.DataType, target: ir.DataType) -> Any:
        """Rounded towards zero; out of range it is whatever the hardware makes of it, some function of the number."""
        if term.decl().kind() == z3.Z3_OP_ITE:
            return z3.If(term.arg(0), *(self._to_integer(term.arg(k), source, target) for k in (1, 2)))
        own, sort = self.context, self.sort(source)
        low = -(2.0 ** (target.bitwidth - 1)) if target.is_signed() else 0.0
        high = 2.0 ** (target.bitwidth - target.is_signed())
        bounds = [z3.fpFPToFP(z3.RNE(own), z3.FPVal(b, z3.FPSort(11, 53, own), None, own), sort, own) for b in (low, high)]
        inside = z3.And(z3.fpGEQ(term, bounds[0], own), z3.fpLT(term, bounds[1], own))
        convert = z3.fpToSBV if target.is_signed() else z3.fpToUBV
        whole = convert(z3.RTZ(own), term, self.sort(target), own)
        return z3.simplify(z3.If(inside, whole, self.uninterpreted("Cast", {}, [(term, source)], target)))


def _resized(term: Any, source: ir.DataType, target: ir.DataType) -> Any:
    more = target.bitwidth - source.bitwidth
    if more <= 0:
        return z3.Extract(target.bitwidth - 1, 0, term)
    return z3.SignExt(more, term) if source.is_signed() else z3.ZeroExt(more, term)


_OF_FLOATS: dict[str, Callable[..., Any]] = {
    "Identity": lambda a: a,
    "Neg": lambda a: z3.fpNeg(a, a.ctx),
    "Abs": lambda a: z3.fpAbs(a, a.ctx),
    "Equal": lambda a, b: z3.fpEQ(a, b, a.ctx),
    "Less": lambda a, b: z3.fpLT(a, b, a.ctx),
    "LessOrEqual": lambda a, b: z3.fpLEQ(a, b, a.ctx),
    "Greater": lambda a, b: z3.fpGT(a, b, a.ctx),
    "GreaterOrEqual": lambda a, b: z3.fpGEQ(a, b, a.ctx),
    "IsNaN": lambda a: z3.fpIsNaN(a, a.ctx),
    "Floor": lambda a: z3.fpRoundToIntegral(z3.RTN(a.ctx), a, a.ctx),
    "Ceil": lambda a: z3.fpRoundToIntegral(z3.RTP(a.ctx), a, a.ctx),
    "Round": lambda a: z3.fpRoundToIntegral(z3.RNE(a.ctx), a, a.ctx),
}

_OF_BITS: dict[str, Callable[..., Any]] = {
    "Identity": lambda a: a,
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Neg": lambda a: -a,
    "Equal": lambda a, b: a == b,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
    "BitwiseNot": lambda a: ~a,
}


# -- real numbers ----------------------------------------------------------------------------------------------------

_FLOATS = frozenset(_FORMATS)


class Reals(Domain):
    """Floats are real numbers, integers are uninterpreted; no infinities, nothing is rounded.

    Args:
        unit: The unit roundoff of the results.

    Attributes:
        compares: True once floats were compared, so that it matters which of them are NaN, see ``not_a_number``.
    """

    name = "reals"
    compares = False

    def __init__(self, unit: float = 2.0**-24) -> None:
        super().__init__()
        self.unit = unit

    def sort(self, dtype: ir.DataType) -> Any:
        """Real for floats."""
        return z3.RealSort(self.context) if dtype in _FLOATS else super().sort(dtype)

    def number(self, value: Any, dtype: ir.DataType) -> Any:
        """A finite number, as the fraction that it is."""
        if dtype not in _FLOATS:
            return super().number(value, dtype)
        if not np.isfinite(float(value)):
            raise Unprovable("a constant is no real number")
        return self.real(Fraction(float(value)))

    def real(self, value: Fraction | int) -> Any:
        """A fraction."""
        return z3.RealVal(str(Fraction(value)), self.context)

    def may_fold(self, fold: str, dtype: ir.DataType) -> None:
        """Sums of reals have no order."""

    def interpreted(self, op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType) -> Any:
        """Arithmetic, and functions by their definitions in ``real_functions``."""
        found = super().interpreted(op_type, parameters, args, dtype)
        if found is not None:
            return found
        if op_type == "Cast":
            return self._cast(*args[0], dtype)
        if args and all(d in _FLOATS for _, d in args):
            from onnxrewrite.proof.real_functions import function

            return function(self, op_type, parameters, [e for e, _ in args])
        return None

    def _cast(self, term: Any, source: ir.DataType, target: ir.DataType) -> Any:
        if source in _FLOATS and target in _FLOATS:
            return self._narrowed(term, source, target)
        if source == D.BOOL and target in _FLOATS:
            return z3.If(term, self.real(1), self.real(0))
        made = f"{source.name.lower()} of integer"
        if target in _FLOATS and z3.is_app(term) and term.decl().name() == made:
            return z3.ToReal(term.arg(0))
        return None

    def _narrowed(self, term: Any, source: ir.DataType, target: ir.DataType) -> Any:
        """A number in a dtype of fewer digits: one more rounding, where the result has no more digits than that."""
        if _FORMATS[target][1] >= _FORMATS[source][1]:
            return term
        if 2.0 ** -_FORMATS[target][1] > self.unit:
            raise Unprovable("a cast to fewer digits than the result has")
        real = z3.RealSort(self.context)
        return z3.Function("rounded", real, real)(term)

    def count(self, size: Any) -> Any:
        """A size as a real number."""
        return self.real(size) if isinstance(size, int) else z3.ToReal(size)


def float32(value: float) -> Fraction:
    """An attribute's number, which a model holds in float32."""
    return Fraction(struct.unpack("f", struct.pack("f", value))[0])


Uninterpreted = Domain
