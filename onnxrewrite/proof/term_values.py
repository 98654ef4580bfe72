"""Terms of z3 as arrays: evaluated by numpy for all elements of an output at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import z3

from onnxrewrite.proof.index_terms import Term, Unprovable
from onnxrewrite.proof.polynomials import applied

Values = npt.NDArray[Any]

_JOINS = {"sum over": np.add, "product over": np.multiply, "max over": np.maximum, "min over": np.minimum}
"""Folds to functions of two."""

_AT_ONCE = 2**20
"""So many summands are evaluated at once."""


def is_open_zero(name: str) -> bool:
    """True if a function of this name gives a zero of either sign, as a kernel chooses."""
    return " of zeros" in name or name.startswith("WhereTrue")


def evaluate(term: Term, feeds: Mapping[str, Values], names: Mapping[str, Values]) -> Values:
    """A term for many values of its variables at once.

    Args:
        term: The term, or a Python number.
        feeds: The inputs.
        names: The values of variables, which are broadcast.
    """
    if isinstance(term, bool | int):
        return np.asarray(term)
    return _Evaluation(feeds, names).of(term)


class _Evaluation:
    def __init__(self, feeds: Mapping[str, Values], names: Mapping[str, Values]):
        self._feeds, self._names = feeds, names
        self._known: dict[int, Values] = {}

    def of(self, term: Term) -> Values:
        key = term.get_id()
        if key not in self._known:
            self._known[key] = self._of(term)
        return self._known[key]

    def _of(self, term: Term) -> Values:
        if z3.is_int_value(term):
            return np.asarray(term.as_long())
        if z3.is_rational_value(term):
            return np.asarray(float(term.as_fraction()))
        if z3.is_bv_value(term):
            return np.asarray(term.as_signed_long(), f"i{max(term.size() // 8, 1)}")
        if z3.is_fp(term) and z3.is_fp_value(term):
            return _float_of(term)
        name, parts = term.decl().name(), term.children()
        if not parts and name in self._names:
            return self._names[name]
        if name.startswith("input "):
            return self._element(self._feeds[name[6:]], [self.of(p) for p in parts])
        if name.endswith(" over"):
            return self._folded(name, *parts)
        if term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            return self._function(name, term)
        return self._operation(term, parts)

    def _element(self, array: Values, index: Sequence[Values]) -> Values:
        if array.dtype.kind == "u":  # bits are signed here
            array = array.view(f"i{array.itemsize}")
        if not index:
            return np.asarray(array)
        inside = tuple(np.clip(i, 0, max(n - 1, 0)) for i, n in zip(index, array.shape, strict=True))
        return np.asarray(array[inside])

    def _folded(self, name: str, function: Term, length: Term) -> Values:
        join = _JOINS[name]
        count = int(np.max(self.of(length)))
        variable = z3.Int(f"at!{len(self._names)}", function.ctx)
        body = applied(function, variable)
        shape = np.broadcast_shapes(*(v.shape for v in self._names.values()))
        step = max(_AT_ONCE // max(math.prod(shape), 1), 1)
        result: Values | None = None
        for start in range(0, count, step):
            places = np.arange(start, min(start + step, count)).reshape(-1, *(1 for _ in shape))  # an axis of its own
            made = _Evaluation(self._feeds, {**self._names, variable.decl().name(): places}).of(body)
            if made.ndim <= len(shape):  # the same at all places
                made = np.broadcast_to(made, (len(places), *made.shape))
            folded = np.asarray(join.reduce(made, axis=0, dtype=made.dtype))
            result = folded if result is None else join(result, folded)
        return np.asarray(float(join.identity or 0)) if result is None else result

    def _function(self, name: str, term: Term) -> Values:
        parts = [self.of(p) for p in term.children()]
        if name in _FUNCTIONS:
            return np.asarray(_FUNCTIONS[name](*parts))
        if name.startswith("integer of ") or name.endswith(" of integer") or is_open_zero(name):
            return parts[0]
        if not parts:  # a number, told by its name
            return np.asarray(float(name.split(" ")[1]))
        raise Unprovable(f"{name} is not evaluated")

    def _operation(self, term: Term, parts: Sequence[Term]) -> Values:
        kind = term.decl().kind()
        if kind == z3.Z3_OP_ITE:
            return np.where(self.of(parts[0]), self.of(parts[1]), self.of(parts[2]))
        if kind in (z3.Z3_OP_TO_REAL,):
            return self.of(parts[0]).astype(np.float64)
        if kind == z3.Z3_OP_FPA_TO_FP:
            return self.of(parts[-1]).astype(_FLOATS[term.sort().ebits(), term.sort().sbits()])
        if kind == z3.Z3_OP_FPA_ROUND_TO_INTEGRAL:
            modes = {z3.Z3_OP_FPA_RM_TOWARD_NEGATIVE: np.floor, z3.Z3_OP_FPA_RM_TOWARD_POSITIVE: np.ceil}
            return np.asarray(modes.get(parts[0].decl().kind(), np.rint)(self.of(parts[1])))
        if kind == z3.Z3_OP_FPA_TO_FP_UNSIGNED:
            return _unsigned(self.of(parts[-1])).astype(_FLOATS[term.sort().ebits(), term.sort().sbits()])
        if kind in (z3.Z3_OP_EXTRACT, z3.Z3_OP_SIGN_EXT, z3.Z3_OP_ZERO_EXT):
            bits = self.of(parts[0])
            return (_unsigned(bits) if kind == z3.Z3_OP_ZERO_EXT else bits).astype(f"i{max(term.size() // 8, 1)}")
        given = [self.of(p) for p in parts if not z3.is_fprm(p)]
        if kind in _VARIADIC:
            result = given[0]
            for each in given[1:]:
                result = _VARIADIC[kind](result, each)
            return np.asarray(result)
        found = _OPERATIONS.get(kind)
        if found is None:
            raise Unprovable(f"{term.decl().name()} is not evaluated")
        return np.asarray(found(*given))


def _unsigned(bits: Values) -> Values:
    return bits.view(f"u{bits.itemsize}")


_FLOATS = {(5, 11): np.float16, (8, 8): ml_dtypes.bfloat16, (8, 24): np.float32, (11, 53): np.float64}


def _float_of(term: Term) -> Values:
    dtype = np.dtype(_FLOATS[term.ebits(), term.sbits()])
    bits = z3.simplify(z3.fpToIEEEBV(term, term.ctx)) if not term.isNaN() else None
    if bits is None:
        return np.asarray(np.nan, dtype)
    return np.array(bits.as_long(), f"u{dtype.itemsize}").view(dtype)


_erf = np.vectorize(math.erf, otypes=[float])

_FUNCTIONS: dict[str, Callable[..., Term]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "quotient": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
}

_VARIADIC: dict[int, Callable[..., Term]] = {
    z3.Z3_OP_ADD: np.add,
    z3.Z3_OP_SUB: np.subtract,
    z3.Z3_OP_MUL: np.multiply,
    z3.Z3_OP_AND: np.logical_and,
    z3.Z3_OP_OR: np.logical_or,
    z3.Z3_OP_XOR: np.logical_xor,
    z3.Z3_OP_BADD: np.add,
    z3.Z3_OP_BMUL: np.multiply,
    z3.Z3_OP_BAND: np.bitwise_and,
    z3.Z3_OP_BOR: np.bitwise_or,
    z3.Z3_OP_BXOR: np.bitwise_xor,
}

_OPERATIONS: dict[int, Callable[..., Term]] = {
    z3.Z3_OP_UMINUS: np.negative,
    z3.Z3_OP_DIV: np.divide,
    z3.Z3_OP_IDIV: lambda a, b: a // b,
    z3.Z3_OP_MOD: lambda a, b: a % b,
    z3.Z3_OP_LE: np.less_equal,
    z3.Z3_OP_LT: np.less,
    z3.Z3_OP_GE: np.greater_equal,
    z3.Z3_OP_GT: np.greater,
    z3.Z3_OP_EQ: lambda a, b: (a == b) | ((a != a) & (b != b)),
    z3.Z3_OP_DISTINCT: np.not_equal,
    z3.Z3_OP_NOT: np.logical_not,
    z3.Z3_OP_IMPLIES: lambda a, b: ~a | b,
    z3.Z3_OP_TRUE: lambda: True,
    z3.Z3_OP_FALSE: lambda: False,
    z3.Z3_OP_FPA_ADD: np.add,
    z3.Z3_OP_FPA_SUB: np.subtract,
    z3.Z3_OP_FPA_MUL: np.multiply,
    z3.Z3_OP_FPA_DIV: np.divide,
    z3.Z3_OP_FPA_NEG: np.negative,
    z3.Z3_OP_FPA_ABS: np.abs,
    z3.Z3_OP_FPA_EQ: np.equal,
    z3.Z3_OP_FPA_LT: np.less,
    z3.Z3_OP_FPA_LE: np.less_equal,
    z3.Z3_OP_FPA_GT: np.greater,
    z3.Z3_OP_FPA_GE: np.greater_equal,
    z3.Z3_OP_FPA_IS_NAN: np.isnan,
    z3.Z3_OP_FPA_IS_ZERO: lambda a: a == 0,
    z3.Z3_OP_FPA_IS_NEGATIVE: lambda a: np.signbit(a) & ~np.isnan(a),
    z3.Z3_OP_BSUB: np.subtract,
    z3.Z3_OP_BNEG: np.negative,
    z3.Z3_OP_BNOT: np.invert,
    z3.Z3_OP_ULT: lambda a, b: _unsigned(a) < _unsigned(b),
    z3.Z3_OP_ULEQ: lambda a, b: _unsigned(a) <= _unsigned(b),
    z3.Z3_OP_UGT: lambda a, b: _unsigned(a) > _unsigned(b),
    z3.Z3_OP_UGEQ: lambda a, b: _unsigned(a) >= _unsigned(b),
    z3.Z3_OP_SLT: np.less,
    z3.Z3_OP_SLEQ: np.less_equal,
    z3.Z3_OP_SGT: np.greater,
    z3.Z3_OP_SGEQ: np.greater_equal,
}
