"""The pattern language: captures and terms, as pure data.

A pattern is written with Python's own operators and reads like the formula it stands for::

    x = Var("x", dtype=FLOATS)
    gelu = 0.5 * x * (1 + op.Erf(x / SQRT2))

Terms are compared by identity: the same object used twice must be bound to the same value.  Nothing here knows
about graphs; ``match.py`` gives terms their meaning.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import onnx_ir as ir

if TYPE_CHECKING:
    from onnxrewrite.ir.facts import Facts

T = TypeVar("T")

Dtypes: TypeAlias = ir.DataType | frozenset[ir.DataType]
Operand: TypeAlias = "Term | int | float | bool | None"

Operands: TypeAlias = "Each[Any]"
"""An ``Each`` of whatever."""

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})
"""The floating-point dtypes that arithmetic operators take."""

INTS = frozenset({ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64})
"""The signed integer dtypes."""

SQRT2 = math.sqrt(2.0)


class Part:
    """Something in the place of operands or an attribute that is no term, and has terms in it."""

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms in it."""
        return ()


class _Required:
    """The mark of a capture without a default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


class Term:
    """Something that stands for one value of the graph.

    ``+ - * / **`` build algebraic terms, which the matcher compares modulo operand order, association,
    reciprocal and negated constants.  ``op.Add(a, b)`` in contrast means that very operator.
    """

    def __repr__(self) -> str:
        return "; ".join(notation([self]))

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms directly below, of a kind that ``children`` does not know by itself."""
        return ()

    def _written(self, below: Callable[[Term], str]) -> str:
        """The term in the language's own notation, given how the terms directly below are written."""
        raise NotImplementedError

    def __add__(self, other: Operand) -> Sum:
        return Sum((*_addends(self), *_addends(term(other))))

    def __radd__(self, other: Operand) -> Sum:
        return Sum((*_addends(term(other)), *_addends(self)))

    def __sub__(self, other: Operand) -> Sum:
        return Sum((*_addends(self), *_negated(_addends(term(other)))))

    def __rsub__(self, other: Operand) -> Sum:
        return Sum((*_addends(term(other)), *_negated(_addends(self))))

    def __neg__(self) -> Product:
        return Product(((Literal(-1.0), 1), *_factors(self)))

    def __mul__(self, other: Operand) -> Product:
        return Product((*_factors(self), *_factors(term(other))))

    def __rmul__(self, other: Operand) -> Product:
        return Product((*_factors(term(other)), *_factors(self)))

    def __truediv__(self, other: Operand) -> Product:
        return Product((*_factors(self), *_negated(_factors(term(other)))))

    def __rtruediv__(self, other: Operand) -> Product:
        return Product((*_factors(term(other)), *_negated(_factors(self))))

    def __pow__(self, exponent: Operand) -> Term:
        if isinstance(exponent, int | float):
            return power(self, float(exponent))
        return Call("Pow", (self, term(exponent)))


class Capture(Term):
    """A term with a name, whose binding ``match[capture]`` gives to the rewrite.

    A default makes it optional: where the operand is absent the capture is bound to the default.
    """

    def __init__(self, name: str, *, default: object = REQUIRED, dtype: Dtypes | None = None, rank: int | None = None):
        self.name = name
        self.default = default
        self.dtypes = frozenset({dtype}) if isinstance(dtype, ir.DataType) else dtype
        self.rank = rank

    @property
    def optional(self) -> bool:
        """True if the operand may be absent."""
        return self.default is not REQUIRED

    def _written(self, below: Callable[[Term], str]) -> str:
        return self.name


class Var(Capture):
    """Any value.  ``match[x]`` is an ``onnx_ir.Value``, or the default."""


class Const(Capture):
    """A constant tensor.  ``match[w]`` is a numpy array, floating-point data in float64 so that folding rounds once."""


class Scalar(Capture):
    """A constant with one element, whatever its rank.  ``match[s]`` is a Python number.

    In a product it takes the product of all scalar constants there, in a sum their sum.
    """


class Attr(Generic[T]):
    """An attribute, or the constant input that carries the same parameter in another opset.

    ``op.ReduceMean(x, axes=Attr[tuple[int, ...]]("axes"))`` matches opset 17 (attribute) and 18 (input) alike.
    """

    def __init__(self, name: str, default: T | _Required = REQUIRED):
        self.name = name
        self.default = default

    def __repr__(self) -> str:
        return self.name


class Each(Part, Generic[T]):
    """All remaining inputs of a node.  ``match[xs]`` is a tuple of values.

    With ``of``, each of them matches that term, and ``match[xs]`` is a tuple of matches.  Captures inside ``of`` are
    bound anew for each input, but for those in ``shared``, which must be the same everywhere.

    With ``carry``, each takes something from the one before it, as the layers of a ``Repeat`` do: a capture stands for
    the value that a term has in the input before, and outside for what the first input takes.
    """

    def __init__(
        self,
        name: str,
        of: Term | None = None,
        *,
        shared: Sequence[Term | Attr[Any]] = (),
        at_least: int = 1,
        carry: Mapping[Capture, Term] | None = None,
    ):
        self.name = name
        self.of = of
        self.shared = tuple(shared)
        self.at_least = at_least
        self.carry = dict(carry or {})
        if self.carry and of is None:
            raise ValueError(f"{name}: what inputs carry is said of a term that they match")

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms of an input."""
        return () if self.of is None else (self.of, *self.carry.values())

    def __repr__(self) -> str:
        return f"*{self.name}"


class Literal(Term):
    """A number: a constant with one element that equals it when rounded to the tensor's own dtype."""

    def __init__(self, value: float):
        self.value = value

    def _written(self, below: Callable[[Term], str]) -> str:
        return f"{self.value:.6g}"


class Call(Term):
    """One node.  As a term it stands for the node's first output; ``call[i]`` is output ``i``.

    Args:
        op_type: The operator, or several that are treated alike.
        inputs: One term per input; None for an input that must be absent; a last ``Each`` takes the rest.
        parameters: Attributes, or constant inputs by the schema's name, that must have the given value or are captured.
        domain: The operator's domain.
    """

    def __init__(
        self,
        op_type: str | tuple[str, ...],
        inputs: Sequence[Term | Each[Any] | None],
        parameters: Mapping[str, object] | None = None,
        domain: str = "",
    ):
        self.op_types = (op_type,) if isinstance(op_type, str) else op_type
        self.inputs = tuple(inputs)
        self.parameters = dict(parameters or {})
        self.domain = domain

    def __getitem__(self, index: int) -> Output:
        return Output(self, index)

    def __iter__(self) -> Iterator[Output]:
        raise TypeError("a call has no fixed number of outputs: index it, call[0], call[1], ...")

    def _written(self, below: Callable[[Term], str]) -> str:
        def operand(value: object) -> str:
            return below(value) if isinstance(value, Term) else "" if value is None else repr(value)

        name = "|".join(self.op_types)
        name = f"{self.domain}.{name}" if self.domain else name
        operands = [operand(i) for i in self.inputs]
        operands += [f"{key}={operand(value)}" for key, value in self.parameters.items()]
        return f"{name}({', '.join(operands)})"


class AnyNode(Term):
    """Any output of any node for which ``where(node, facts)`` holds; of certain standard operators only, if given.

    ``match.node(term)`` is the node, ``match[term]`` the value.  Unlike a ``Call`` it is the node that is there, not
    the one behind Identities, and says nothing about its inputs and attributes.  ``where`` may say why it does not hold
    by returning that, a text, instead of False.
    """

    def __init__(
        self,
        name: str = "node",
        where: Callable[[ir.Node, Facts], bool | str] | None = None,
        op_types: Sequence[str] | None = None,
    ):
        self.name = name
        self.where = where
        self.op_types = tuple(op_types) if op_types is not None else None

    def _written(self, below: Callable[[Term], str]) -> str:
        return self.name if self.op_types is None else "|".join(self.op_types)


class Output(Term):
    """Output ``index`` of a node."""

    def __init__(self, call: Call, index: int):
        self.call = call
        self.index = index

    def _written(self, below: Callable[[Term], str]) -> str:
        return f"{below(self.call)}[{self.index}]"


class Sum(Term):
    """An n-ary sum: (term, +1 or -1) pairs."""

    def __init__(self, operands: Sequence[tuple[Term, int]]):
        self.operands = tuple(operands)

    def _written(self, below: Callable[[Term], str]) -> str:
        text = ""
        for item, sign in self.operands:
            text += f" {'+' if sign > 0 else '-'} {below(item)}" if text else f"{'' if sign > 0 else '-'}{below(item)}"
        return f"({text})"


class Product(Term):
    """An n-ary product: (term, +1 or -1) pairs, where -1 divides."""

    def __init__(self, operands: Sequence[tuple[Term, int]]):
        self.operands = tuple(operands)

    def _written(self, below: Callable[[Term], str]) -> str:
        text = ""
        for item, exponent in self.operands:
            sign = f" {'*' if exponent > 0 else '/'} " if text else "" if exponent > 0 else "1 / "
            text += f"{sign}{below(item)}"
        return f"({text})"


class Power(Term):
    """``base`` to a constant power that is not a small integer; ``Sqrt`` is the power one half."""

    def __init__(self, base: Term, exponent: float):
        self.base = base
        self.exponent = exponent

    def _written(self, below: Callable[[Term], str]) -> str:
        return f"{below(self.base)}**{self.exponent:g}"


class AnyOf(Term):
    """Alternatives, tried in order, with full backtracking.  ``match.alternative(term)`` tells which one it was."""

    def __init__(self, alternatives: Sequence[Term]):
        self.alternatives = tuple(alternatives)

    def _written(self, below: Callable[[Term], str]) -> str:
        return f"any_of({', '.join(map(below, self.alternatives))})"


def term(operand: Operand) -> Term:
    """A number becomes a literal; a term stays what it is."""
    if isinstance(operand, Term):
        return operand
    if isinstance(operand, int | float):
        return Literal(operand)
    raise TypeError(f"not a term: {operand!r}")


def any_of(*alternatives: Operand) -> AnyOf:
    """Real alternatives: spellings that the engine cannot know to be equal."""
    return AnyOf([term(a) for a in alternatives])


def power(base: Term, exponent: float) -> Term:
    """``base ** exponent`` in its one form: small integers are products, negative powers divide."""
    if exponent < 0:
        return Product(_negated(_factors(power(base, -exponent))))
    if exponent in (1.0, 2.0, 3.0, 4.0):
        return base if exponent == 1.0 else Product(_factors(base) * int(exponent))
    return Power(base, exponent)


def _addends(item: Term) -> tuple[tuple[Term, int], ...]:
    return item.operands if isinstance(item, Sum) else ((item, 1),)


def _factors(item: Term) -> tuple[tuple[Term, int], ...]:
    return item.operands if isinstance(item, Product) else ((item, 1),)


def _negated(operands: Sequence[tuple[Term, int]]) -> tuple[tuple[Term, int], ...]:
    return tuple((item, -sign) for item, sign in operands)


@functools.cache
def flipped(item: Term, divides: bool) -> Term | None:
    """The term for ``-item``, or for ``1 / item`` where ``divides``, if that can be one node's value; else None."""
    if divides:
        return Power(item.base, -item.exponent) if isinstance(item, Power) else None
    return Product(((Literal(-1.0), 1), *item.operands)) if isinstance(item, Product) else None


class Operators:
    """The operators of one domain as functions on terms: ``op.Erf(x)``, ``op.Conv(x, w, b, group=groups)``."""

    def __init__(self, domain: str = ""):
        self._domain = domain

    def __getattr__(self, op_type: str) -> _Operator:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return _Operator(self._domain, (op_type,))

    def Sqrt(self, x: Term) -> Term:
        """The power one half, however it is spelled."""
        return power(x, 0.5)

    def __getitem__(self, op_types: tuple[str, ...] | str) -> _Operator:
        """``op["Relu", "Clip"](x)``: any of several operators."""
        return _Operator(self._domain, (op_types,) if isinstance(op_types, str) else op_types)


class _Operator:
    """One operator, to be called with terms."""

    def __init__(self, domain: str, op_types: tuple[str, ...]):
        self._domain = domain
        self._op_types = op_types

    def __call__(self, *inputs: Operand | Each[Any], **parameters: object) -> Call:
        return Call(self._op_types, [_input(i) for i in inputs], parameters, self._domain)


def _input(operand: Operand | Each[Any]) -> Any:
    return operand if operand is None or isinstance(operand, Each) else term(operand)


def children(item: Term) -> tuple[Term, ...]:
    """The terms directly below ``item``."""
    match item:
        case Call(inputs=inputs, parameters=parameters):
            return tuple(t for given in (*inputs, *parameters.values()) for t in _terms(given))
        case Output(call=call):
            return (call,)
        case Sum(operands=operands) | Product(operands=operands):
            return tuple(i for i, _ in operands)
        case Power(base=base):
            return (base,)
        case AnyOf(alternatives=alternatives):
            return alternatives
        case _:
            return item.parts


def _terms(given: object) -> tuple[Term, ...]:
    """The terms that stand in the place of operands or an attribute."""
    return (given,) if isinstance(given, Term) else given.parts if isinstance(given, Part) else ()


def walk(root: Term) -> Iterator[Term]:
    """``root`` and every term below it, each once, in order of first occurrence."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        stack.extend(reversed(children(item)))


def notation(pattern: Sequence[Term]) -> list[str]:
    """A pattern in a line, and in one more for each part that it has in several places: written out, those multiply."""
    places = Counter(
        id(below) for item in {id(t): t for root in pattern for t in walk(root)}.values() for below in children(item)
    )
    names: dict[int, str] = {}
    lines: list[str] = []

    def below(item: Term) -> str:
        if places[id(item)] < 2 or not children(item):
            return item._written(below)
        if id(item) not in names:
            names[id(item)] = f"p{len(names) + 1}"
            lines.append("")
            place = len(lines) - 1
            lines[place] = f"{names[id(item)]} = {item._written(below)}"
        return names[id(item)]

    return [", ".join(item._written(below) for item in pattern), *lines]


op = Operators()
"""The standard operators."""

microsoft = Operators("com.microsoft")
"""The contrib operators of ONNX Runtime."""
