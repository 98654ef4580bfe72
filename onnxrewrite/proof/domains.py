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
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir
import z3

from onnxrewrite.ir.operators import operators
from onnxrewrite.proof.exact_integers import Element, Typed, exact, logical
from onnxrewrite.proof.index_terms import Term, Unprovable, chosen, plain

D = ir.DataType

FORMATS = {D.FLOAT16: (5, 11), D.BFLOAT16: (8, 8), D.FLOAT: (8, 24), D.DOUBLE: (11, 53)}
"""Exponent bits and digits of floating-point dtypes."""

COMMUTATIVE = operators(marks="commutative")

_FUNCTION = {"max": "Max", "min": "Min", "sum": "Add", "product": "Mul"}
"""The operator that a fold repeats."""


class Domain:
    """The domain in which nothing is known of operators; see the module's docstring."""

    name = "uninterpreted"

    def __init__(self) -> None:
        self.context = z3.Context()

    # -- values ----------------------------------------------------------------------------------------------

    def sort(self, dtype: ir.DataType) -> Term:
        """The sort of the elements of a dtype."""
        if dtype == D.BOOL:
            return z3.BoolSort(self.context)
        return z3.DeclareSort(dtype.name.lower(), self.context)

    def application(self, name: str, dtype: ir.DataType, arguments: Sequence[Term]) -> Term:
        """Some function of a name, of arguments of any sorts."""
        given = [self._argument(a) for a in arguments]
        if not given:
            return z3.Const(name, self.sort(dtype))
        return z3.Function(name, *(a.sort() for a in given), self.sort(dtype))(*given)

    def _argument(self, argument: Term) -> Term:
        if isinstance(argument, bool):
            return z3.BoolVal(argument, self.context)
        return z3.IntVal(argument, self.context) if isinstance(argument, int) else argument

    def number(self, value: Term, dtype: ir.DataType) -> Term:
        """A number of a floating-point dtype."""
        bits = np.asarray(value).tobytes().hex()
        return z3.Const(f"{dtype.name.lower()} {float(value)!r} {bits}", self.sort(dtype))

    def lifted(self, element: Element, dtype: ir.DataType) -> Term:
        """An element as a term of the sort of its dtype; an exact integer becomes one of the domain."""
        if dtype == D.BOOL:
            return self._argument(element)
        if isinstance(element, int) or z3.is_int(element):
            return self._of_exact(element, dtype)
        return element

    def _of_exact(self, element: Term, dtype: ir.DataType) -> Term:
        return self.application(f"{dtype.name.lower()} of integer", dtype, [element])

    def as_index(self, element: Element, dtype: ir.DataType) -> Term:
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

    def pointwise(self, op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType) -> Term:
        """An operator on elements; ``parameters`` are attributes, ``dtype`` is that of the result."""
        found = exact(op_type, parameters, args, dtype)
        if found is None:
            found = logical(op_type, args)
        if found is not None:
            return found
        lifted = [(self.lifted(e, d), d) for e, d in args]
        found = self.interpreted(op_type, parameters, lifted, dtype)
        return self.uninterpreted(op_type, parameters, lifted, dtype) if found is None else found

    def interpreted(
        self, op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType
    ) -> Term:
        """An operator that the domain has a meaning for; None for one that it has none for."""
        if op_type in ("Max", "Min", "Add", "Mul") and len(args) == 1:
            return args[0][0]
        return None

    def uninterpreted(
        self, op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType
    ) -> Term:
        """Some function of the operands; of a commutative operator of two, of operands in some order.

        More than two floats are added up in the order in which they stand.
        """
        terms = [e for e, _ in args]
        if op_type in COMMUTATIVE and len(terms) == 2 and not _tells_zeros_apart(op_type, dtype):
            terms.sort(key=lambda t: t.sexpr())
        told = " ".join(f"{k}={v!r}" for k, v in sorted(parameters.items()))
        sorts = ",".join(d.name.lower() for _, d in args)
        return self.application(f"{op_type}<{told}>({sorts})->{dtype.name.lower()}", dtype, terms)

    # -- folds -----------------------------------------------------------------------------------------------

    def may_fold(self, fold: str, dtype: ir.DataType) -> None:
        """Raise ``Unprovable`` where the result depends on the order, which kernels choose."""
        if fold in ("sum", "product") and dtype.is_floating_point():
            raise Unprovable("the order of a sum of floats, which a kernel chooses")
        if fold in ("max", "min") and dtype.is_floating_point():
            raise Unprovable("the largest of floats, of which NaN is lost in an order that a kernel chooses")

    def fold(self, fold: str, bound: Term, length: Term, body: Term, dtype: ir.DataType) -> Term:
        """A fold over all values of ``bound`` below a length."""
        self.may_fold(fold, dtype)
        return self.application(f"{fold} over", dtype, [z3.Lambda([bound], body), length])

    def folded(self, fold: str, parts: Sequence[Term], dtype: ir.DataType) -> Term:
        """A fold of terms that are given one by one."""
        self.may_fold(fold, dtype)
        if fold in ("max", "min") and dtype.is_floating_point() and len(parts) > 1:
            raise Unprovable("the largest of floats one by one, in which NaN stays, where a kernel may lose it")
        if not parts:
            return self.application(f"{fold} of nothing", dtype, [])
        result = parts[0]
        for part in parts[1:]:
            result = self.pointwise(_FUNCTION[fold], {}, [(result, dtype), (part, dtype)], dtype)
        return result


def _tells_zeros_apart(op_type: str, dtype: ir.DataType) -> bool:
    """True if an operator may return the first of two zeros of different sign."""
    return op_type in ("Max", "Min") and dtype.is_floating_point()


# -- real numbers ----------------------------------------------------------------------------------------------------

_FLOATS = frozenset(FORMATS)


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

    def sort(self, dtype: ir.DataType) -> Term:
        """Real for floats."""
        return z3.RealSort(self.context) if dtype in _FLOATS else super().sort(dtype)

    def number(self, value: Term, dtype: ir.DataType) -> Term:
        """A finite number, as the fraction that it is."""
        if dtype not in _FLOATS:
            return super().number(value, dtype)
        if not np.isfinite(float(value)):
            raise Unprovable("a constant is no real number")
        return self.real(Fraction(float(value)))

    def real(self, value: Fraction | int) -> Term:
        """A fraction."""
        return z3.RealVal(str(Fraction(value)), self.context)

    def may_fold(self, fold: str, dtype: ir.DataType) -> None:
        """Sums of reals have no order."""

    def interpreted(
        self, op_type: str, parameters: Mapping[str, Any], args: Sequence[Typed], dtype: ir.DataType
    ) -> Term:
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

    def _cast(self, term: Term, source: ir.DataType, target: ir.DataType) -> Term:
        if source in _FLOATS and target in _FLOATS:
            return self._narrowed(term, source, target)
        if source == D.BOOL and target in _FLOATS:
            return z3.If(term, self.real(1), self.real(0))
        made = f"{source.name.lower()} of integer"
        if target in _FLOATS and z3.is_app(term) and term.decl().name() == made:
            return z3.ToReal(term.arg(0))
        return None

    def _narrowed(self, term: Term, source: ir.DataType, target: ir.DataType) -> Term:
        """A number in a dtype of fewer digits, one more rounding where the result has no more digits than that; or of
        more.  Either is marked, for what is rounded in between counts otherwise."""
        real = z3.RealSort(self.context)
        if FORMATS[target][1] >= FORMATS[source][1]:
            return z3.Function("widened", real, real)(term)
        if 2.0 ** -FORMATS[target][1] > self.unit:
            raise Unprovable("a cast to fewer digits than the result has")
        return z3.Function("rounded", real, real)(term)

    def count(self, size: Term) -> Term:
        """A size as a real number."""
        return self.real(size) if isinstance(size, int) else z3.ToReal(size)


def float32(value: float) -> Fraction:
    """An attribute's number, which a model holds in float32."""
    return Fraction(struct.unpack("f", struct.pack("f", value))[0])


Uninterpreted = Domain
