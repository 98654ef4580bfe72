"""Operators on real numbers: arithmetic, the elementary functions, and activations by their definitions in these.

``exp``, ``log``, ``tanh``, ``erf`` and their like are functions of their name; ``polynomials`` knows the laws of some.
A comparison of computed numbers is refused: by a rounding it comes out the other way, and no bound on rounding says
what happens then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import z3

from onnxrewrite.proof.index_terms import Term, Unprovable
from onnxrewrite.proof.not_a_number import compared

if TYPE_CHECKING:
    from onnxrewrite.proof.domains import Reals

Parameters = Mapping[str, Any]


def function(domain: Reals, op_type: str, parameters: Parameters, terms: Sequence[Term]) -> Term:
    """An operator on reals; None where it has no definition here."""
    found = _FUNCTIONS.get(op_type)
    if found is not None:
        return found(_Pen(domain, parameters), *terms)
    if op_type in _COMPARISONS:
        if not all(map(_is_given, terms)):
            raise Unprovable("a comparison of computed floats, which rounding may turn over")
        domain.compares = True
        return compared(_COMPARISONS[op_type](*terms), *terms)
    if op_type in ("ThresholdedRelu", "Shrink"):
        raise Unprovable(f"{op_type}, which makes zero of NaN")
    if op_type in ("Floor", "Ceil", "Round", "Sign", "Mod") and not all(map(_is_given, terms)):
        raise Unprovable(f"{op_type} of computed floats, which jumps")
    return None


def _is_given(term: Term) -> bool:
    """True if a term is a number, or an element of an input or a constant: nothing rounded on the way."""
    if z3.is_rational_value(term):
        return True
    return bool(z3.is_app(term) and term.decl().name().startswith(("input ", "constant ")))


_COMPARISONS: dict[str, Callable[..., Term]] = {
    "Equal": lambda a, b: a == b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
}


class _Pen:
    """Writes terms."""

    def __init__(self, domain: Reals, parameters: Parameters):
        self._domain = domain
        self._parameters = parameters

    def number(self, value: Term) -> Term:
        """A number, as the fraction that it is."""
        return self._domain.real(Fraction(value))

    def given(self, name: str, default: float) -> Term:
        """An attribute's number, which is held in float32."""
        from onnxrewrite.proof.domains import float32

        return self._domain.real(float32(self._parameters.get(name, default)))

    def option(self, name: str, default: Term) -> Term:
        """An attribute of another kind."""
        return self._parameters.get(name, default)

    def of(self, name: str, *terms: Term) -> Term:
        """A function of a name."""
        real = z3.RealSort(self._domain.context)
        return z3.Function(name, *[real] * (len(terms) + 1))(*terms)

    def larger(self, a: Term, b: Term) -> Term:
        """The larger of two."""
        return self.of("max", *sorted((a, b), key=lambda t: t.sexpr()))

    def smaller(self, a: Term, b: Term) -> Term:
        """The smaller of two."""
        return self.of("min", *sorted((a, b), key=lambda t: t.sexpr()))

    def power(self, base: Term, exponent: Term) -> Term:
        """A power; of a number that is a multiple of ½ by products and roots."""
        if not z3.is_rational_value(exponent):
            return self.of("pow", base, exponent)
        number = Fraction(exponent.numerator_as_long(), exponent.denominator_as_long())
        if number.denominator not in (1, 2) or abs(number) > 8:
            return self.of("pow", base, exponent)
        result = self.number(1)
        for _ in range(abs(number.numerator) // number.denominator):
            result = result * base
        if number.denominator == 2:
            result = result * self.of("sqrt", base)
        return self.number(1) / result if number < 0 else result


def _sum(p: _Pen, *terms: Term) -> Term:
    result = terms[0]
    for each in terms[1:]:
        result = result + each
    return result


def _nested(write: Callable[[_Pen, Term, Term], Term]) -> Callable[..., Term]:
    def whole(p: _Pen, *terms: Term) -> Term:
        result = terms[0]
        for each in terms[1:]:
            result = write(p, result, each)
        return result

    return whole


def _sigmoid(p: _Pen, x: Term) -> Term:
    return p.number(1) / (p.number(1) + p.of("exp", -x))


def _softplus(p: _Pen, x: Term) -> Term:
    return p.larger(x, p.number(0)) + p.of("log", p.number(1) + p.of("exp", -p.larger(x, -x)))


def _gelu(p: _Pen, x: Term) -> Term:
    half, one = p.number(0.5), p.number(1)
    if p.option("approximate", "none") == "tanh":
        inner = p.number(math.sqrt(2 / math.pi)) * (x + p.number(0.044715) * x * x * x)
        return half * x * (one + p.of("tanh", inner))
    return half * x * (one + p.of("erf", x * p.number(math.sqrt(0.5))))


def _clamped(p: _Pen, x: Term, low: Term, high: Term) -> Term:
    return p.smaller(p.larger(x, low), high)


def _bound(bound: Term) -> Term:
    """A bound of Clip, which is a number: one that is NaN is none for the kernel."""
    if not z3.is_rational_value(bound):
        raise Unprovable("a bound of Clip that may be NaN")
    return bound


def _leaky(p: _Pen, x: Term) -> Term:
    return z3.If(x < 0, p.given("alpha", 0.01) * x, x)


def _bent(p: _Pen, x: Term, alpha: Term, gamma: Term) -> Term:
    """γ·x above zero, γ·α·(exp(x) - 1) below."""
    return gamma * z3.If(x > 0, x, alpha * (p.of("exp", x) - p.number(1)))


_FUNCTIONS: dict[str, Callable[..., Term]] = {
    "Identity": lambda p, x: x,
    "WhereTrue": lambda p, x, other: x + p.number(0),  # no x: of two zeros it may be the other one
    "Add": lambda p, a, b: a + b,
    "Sub": lambda p, a, b: a - b,
    "Mul": lambda p, a, b: a * b,
    "Div": lambda p, a, b: a / b,
    "Neg": lambda p, x: -x,
    "Sum": _sum,
    "Mean": lambda p, *t: _sum(p, *t) / p.number(len(t)),
    "Reciprocal": lambda p, x: p.number(1) / x,
    "Sqrt": lambda p, x: p.of("sqrt", x),
    "Pow": lambda p, a, b: p.power(a, b),
    "Exp": lambda p, x: p.of("exp", x),
    "Log": lambda p, x: p.of("log", x),
    "Tanh": lambda p, x: p.of("tanh", x),
    "Erf": lambda p, x: p.of("erf", x),
    "Sin": lambda p, x: p.of("sin", x),
    "Cos": lambda p, x: p.of("cos", x),
    "Sigmoid": _sigmoid,
    "Softplus": _softplus,
    "Softsign": lambda p, x: x / (p.number(1) + p.larger(x, -x)),
    "Gelu": _gelu,
    "Swish": lambda p, x: x * _sigmoid(p, p.given("alpha", 1.0) * x),
    "Mish": lambda p, x: x * p.of("tanh", _softplus(p, x)),
    "HardSigmoid": lambda p, x: _clamped(
        p, p.given("alpha", 0.2) * x + p.given("beta", 0.5), p.number(0), p.number(1)
    ),
    "HardSwish": lambda p, x: x
    * _clamped(p, x * p.number(Fraction(1, 6)) + p.number(0.5), p.number(0), p.number(1)),
    "Relu": lambda p, x: p.larger(x, p.number(0)),
    "Abs": lambda p, x: p.larger(x, -x),
    "ClipLow": lambda p, a, b: p.larger(a, _bound(b)),
    "ClipHigh": lambda p, a, b: p.smaller(a, _bound(b)),
    "Max": _nested(lambda p, a, b: p.larger(a, b)),
    "Min": _nested(lambda p, a, b: p.smaller(a, b)),
    "LeakyRelu": _leaky,
    "PRelu": lambda p, x, s: z3.If(x < 0, s * x, x),
    "Elu": lambda p, x: _bent(p, x, p.given("alpha", 1.0), p.number(1)),
    "Selu": lambda p, x: _bent(
        p, x, p.given("alpha", 1.67326319217681884765625), p.given("gamma", 1.05070102214813232421875)
    ),
}  # fmt: skip
"""Operator to its definition over the reals."""

REAL_FUNCTIONS = frozenset(_FUNCTIONS)
