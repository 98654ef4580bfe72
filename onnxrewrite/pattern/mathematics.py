"""Terms as mathematics writes them, for the one line that says what a rule does: ``x·Sigmoid(x) ⟶ Swish(x)``."""

from __future__ import annotations

from collections.abc import Sequence

from onnxrewrite.pattern.terms import AnyOf, Call, Literal, Output, Power, Product, Sum, Term, term

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "epsilon": "ε", "theta": "θ"}

_SUM, _PRODUCT, _FACTOR = range(3)
"""Terms by how tightly they hold together."""


def formula(item: Term) -> str:
    """A term in one line, written by the first of its alternatives."""
    return _written(item, _SUM)


def _written(item: Term, place: int) -> str:
    """A term in brackets if it holds together less tightly than its place asks for."""
    text, own = _split(item)
    return f"({text})" if own < place else text


def _split(item: Term) -> tuple[str, int]:
    """The text of a term, and how tightly it holds together."""
    match item:
        case Sum(operands=operands):
            return _sum(operands), _SUM
        case Product(operands=operands):
            return _product(operands), _PRODUCT
        case Power(base=base, exponent=exponent):
            factor = _written(base, _FACTOR)
            return (f"√{factor}" if exponent == 0.5 else f"{factor}^{exponent:g}"), _FACTOR
        case AnyOf(alternatives=alternatives):
            return _split(alternatives[0])
        case Call():
            return _call(item), _FACTOR
        case Output(call=call, index=index):
            return f"{_call(call)}[{index}]", _FACTOR
        case Literal(value=value):
            return f"{value:.6g}", _FACTOR if value >= 0 else _SUM
        case _:
            return _named(item), _FACTOR


def _named(item: object) -> str:
    name = repr(item)
    return _GREEK.get(name, name)


def _sum(operands: Sequence[tuple[Term, int]]) -> str:
    text = ""
    for item, sign in operands:
        link = (" + " if sign > 0 else " - ") if text else "" if sign > 0 else "-"
        text += link + _written(item, _SUM if sign > 0 and text == "" else _PRODUCT)
    return text


def _product(operands: Sequence[tuple[Term, int]]) -> str:
    above = [item for item, exponent in operands if exponent > 0]
    below = [item for item, exponent in operands if exponent < 0]
    sign = "-" if len(above) > 1 and isinstance(above[0], Literal) and above[0].value == -1 else ""
    divisor = _factors(below) if len({id(item) for item in below}) < 2 else f"({_factors(below)})"
    return sign + (_factors(above[1:] if sign else above) or "1") + (f"/{divisor}" if below else "")


def _factors(items: Sequence[Term]) -> str:
    """A product, what occurs several times as a power."""
    counts = {id(item): sum(other is item for other in items) for item in items}
    once = {id(item): item for item in items}.values()
    powers = (str(counts[id(item)]).translate(_SUPERSCRIPTS) if counts[id(item)] > 1 else "" for item in once)
    return "·".join(f"{_written(item, _FACTOR)}{power}" for item, power in zip(once, powers, strict=True))


def _call(item: Call) -> str:
    def operand(value: object) -> str:
        if isinstance(value, Term | float):
            return formula(term(value))
        return "" if value is None else _named(value)

    given = [*map(operand, item.inputs), *(f"{name}={operand(value)}" for name, value in item.parameters.items())]
    return f"{item.domain}{'.' if item.domain else ''}{'|'.join(item.op_types)}({', '.join(given)})"
