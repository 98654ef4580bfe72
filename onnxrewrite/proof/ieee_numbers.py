"""Floats of IEEE 754 and bits: the bitwise domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import z3

from onnxrewrite.proof.domains import FORMATS, Domain
from onnxrewrite.proof.exact_integers import Typed, nested
from onnxrewrite.proof.index_terms import Term

D = ir.DataType


_NATIVE = (D.FLOAT, D.DOUBLE)
"""Dtypes that kernels add and multiply in, and do not compute in a wider one."""

_UPPER = ("Max", "ClipLow", "Relu")
"""Operators that take the larger of two numbers."""


class Bitwise(Domain):
    """Floats of IEEE 754 and bits.

    Args:
        arithmetic: True if sums and products are those of IEEE 754.
    """

    name = "bitwise"

    def __init__(self, *, arithmetic: bool) -> None:
        super().__init__()
        self.arithmetic = arithmetic

    def sort(self, dtype: ir.DataType) -> Term:
        """Of IEEE numbers, or of bits."""
        if dtype in FORMATS:
            return z3.FPSort(*FORMATS[dtype], self.context)
        if dtype.is_integer():
            return z3.BitVecSort(dtype.bitwidth, self.context)
        return super().sort(dtype)

    def number(self, value: Term, dtype: ir.DataType) -> Term:
        """A number by its bits."""
        if dtype not in FORMATS:
            return super().number(value, dtype)
        raw = np.asarray(value)
        bits = int(raw.view(f"u{raw.dtype.itemsize}"))
        return z3.simplify(
            z3.fpBVToFP(z3.BitVecVal(bits, dtype.bitwidth, self.context), self.sort(dtype), self.context)
        )

    def _of_exact(self, element: Term, dtype: ir.DataType) -> Term:
        if isinstance(element, int):
            return z3.BitVecVal(element, dtype.bitwidth, self.context)
        return super()._of_exact(element, dtype)

    def interpreted(
        self, op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType
    ) -> Term:
        """By the meaning of the operands' dtype."""
        found = super().interpreted(op_type, parameters, args, dtype)
        if found is not None or not args:
            return found
        if op_type == "Cast":
            return self._cast(*args[0], dtype)
        kinds = {d for _, d in args}
        terms = [e for e, _ in args]
        if kinds <= set(FORMATS):
            return self._float(op_type, parameters, terms, args[0][1])
        if all(d.is_integer() for d in kinds) and len(kinds) == 1:
            return self._integer(op_type, terms, args[0][1])
        return None

    # -- floats ----------------------------------------------------------------------------------------------

    def _float(self, op_type: str, parameters: Mapping[str, Any], terms: Sequence[Term], dtype: ir.DataType) -> Term:
        simple = OF_FLOATS.get(op_type)
        if simple is not None:
            return simple(*terms)
        if op_type in ("Max", "Min"):
            return nested(lambda a, b: self._extremum(op_type, a, b, dtype), terms)
        zero = z3.fpPlusZero(self.sort(dtype))
        if op_type in ("ClipLow", "ClipHigh"):
            return self._bounded(op_type, terms[0], terms[1], dtype)
        if op_type == "Relu":
            return self._bounded(op_type, terms[0], zero, dtype)
        if op_type == "WhereTrue":
            some = self._zero(f"{op_type}, {parameters['ones']},", terms, dtype)
            return z3.If(z3.fpIsZero(terms[0], self.context), some, terms[0])
        if op_type == "ThresholdedRelu":
            return z3.If(z3.fpGT(terms[0], self._parameter(parameters["alpha"], dtype), self.context), terms[0], zero)
        if op_type in ("LeakyRelu", "PRelu"):
            slope = terms[1] if op_type == "PRelu" else self._parameter(parameters["alpha"], dtype)
            line = self.pointwise("Mul", {}, [(terms[0], dtype), (slope, dtype)], dtype)
            return z3.If(z3.fpLT(terms[0], zero, self.context), line, terms[0])
        if op_type in ("Add", "Sub", "Mul", "Div") and self.arithmetic and dtype in _NATIVE:
            mode = z3.RNE(self.context)
            return {"Add": z3.fpAdd, "Sub": z3.fpSub, "Mul": z3.fpMul, "Div": z3.fpDiv}[op_type](
                mode, *terms, self.context
            )
        return None

    def _parameter(self, value: float, dtype: ir.DataType) -> Term:
        """An attribute's number, which is a float32, in the dtype of the operands."""
        held = {D.FLOAT16: np.float16, D.BFLOAT16: ml_dtypes.bfloat16, D.FLOAT: np.float32, D.DOUBLE: np.float64}[dtype]
        return self.number(np.float32(value).astype(held), dtype)

    def _extremum(self, op_type: str, a: Term, b: Term, dtype: ir.DataType) -> Term:
        """NaN where one is; of two zeros some one, the same one for the same two."""
        sort = self.sort(dtype)
        above = (z3.fpGEQ if op_type in _UPPER else z3.fpLEQ)(a, b, self.context)
        own = self.context
        both = z3.And(z3.fpIsZero(a, own), z3.fpIsZero(b, own), a != b)
        ordered = z3.If(both, self._zero(op_type, (a, b), dtype), z3.If(above, a, b))
        return z3.If(z3.Or(z3.fpIsNaN(a, own), z3.fpIsNaN(b, own)), z3.fpNaN(sort), ordered)

    def _zero(self, op_type: str, terms: Sequence[Term], dtype: ir.DataType) -> Term:
        """A zero whose sign an operator chooses, the same one for the same operands."""
        sort = self.sort(dtype)
        chosen = z3.Function(f"{op_type} of zeros {dtype.name.lower()}", *[sort] * (len(terms) + 1))(*terms)
        return z3.If(z3.fpIsNegative(chosen, self.context), z3.fpMinusZero(sort), z3.fpPlusZero(sort))

    def _bounded(self, op_type: str, x: Term, bound: Term, dtype: ir.DataType) -> Term:
        """A Relu or a half of a Clip: NaN stays; a bound that may be NaN is not told."""
        if not z3.is_fp_value(z3.simplify(bound)) or z3.is_true(z3.simplify(z3.fpIsNaN(bound, self.context))):
            return None
        return self._extremum(op_type, x, bound, dtype)

    # -- integers --------------------------------------------------------------------------------------------

    def _integer(self, op_type: str, terms: Sequence[Term], dtype: ir.DataType) -> Term:
        signed = dtype.is_signed()
        less = (lambda a, b: a < b) if signed else z3.ULT
        zero = z3.BitVecVal(0, dtype.bitwidth, self.context)
        if op_type in ("Max", "Min", "ClipLow", "ClipHigh"):
            return nested(lambda a, b: z3.If(less(a, b), *((b, a) if op_type in _UPPER else (a, b))), terms)
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
        simple = OF_BITS.get(op_type)
        return simple(*terms) if simple is not None else None

    # -- casts -----------------------------------------------------------------------------------------------

    def _cast(self, term: Term, source: ir.DataType, target: ir.DataType) -> Term:
        if source == target:
            return term
        mode, sort = z3.RNE(self.context), self.sort(target)
        if source in FORMATS and target in FORMATS:
            return z3.fpFPToFP(mode, term, sort, self.context)
        if source in FORMATS and target == D.BOOL:
            return z3.Not(z3.fpIsZero(term, self.context))
        if source.is_integer() and target in FORMATS:
            return (z3.fpSignedToFP if source.is_signed() else z3.fpUnsignedToFP)(mode, term, sort, self.context)
        if source.is_integer() and target.is_integer():
            return _resized(term, source, target)
        if source.is_integer() and target == D.BOOL:
            return term != z3.BitVecVal(0, source.bitwidth, self.context)
        if source == D.BOOL and target in FORMATS:
            return z3.If(term, self._parameter(1.0, target), z3.fpPlusZero(sort))
        if source == D.BOOL and target.is_integer():
            return z3.If(term, *(z3.BitVecVal(k, target.bitwidth, self.context) for k in (1, 0)))
        if source in FORMATS and target.is_integer():
            return self._to_integer(term, source, target)
        return None

    def _to_integer(self, term: Term, source: ir.DataType, target: ir.DataType) -> Term:
        """Rounded towards zero; out of range it is whatever the hardware makes of it, some function of the number."""
        if term.decl().kind() == z3.Z3_OP_ITE:
            return z3.If(term.arg(0), *(self._to_integer(term.arg(k), source, target) for k in (1, 2)))
        own, sort = self.context, self.sort(source)
        low = -(2.0 ** (target.bitwidth - 1)) if target.is_signed() else 0.0
        high = 2.0 ** (target.bitwidth - target.is_signed())
        bounds = [
            z3.fpFPToFP(z3.RNE(own), z3.FPVal(b, z3.FPSort(11, 53, own), None, own), sort, own) for b in (low, high)
        ]
        inside = z3.And(z3.fpGEQ(term, bounds[0], own), z3.fpLT(term, bounds[1], own))
        convert = z3.fpToSBV if target.is_signed() else z3.fpToUBV
        whole = convert(z3.RTZ(own), term, self.sort(target), own)
        return z3.simplify(z3.If(inside, whole, self.uninterpreted("Cast", {}, [(term, source)], target)))


def _resized(term: Term, source: ir.DataType, target: ir.DataType) -> Term:
    more = target.bitwidth - source.bitwidth
    if more <= 0:
        return z3.Extract(target.bitwidth - 1, 0, term)
    return z3.SignExt(more, term) if source.is_signed() else z3.ZeroExt(more, term)


OF_FLOATS: dict[str, Callable[..., Term]] = {
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

OF_BITS: dict[str, Callable[..., Term]] = {
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
