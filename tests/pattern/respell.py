"""A pattern written out as a graph, in one of its many spellings, or in one that misses it by one thing.

The spelling varies what the engine promises to absorb: operand order, association, ``x / c`` or ``x * 1/c``,
``- c`` or ``+ -c``, constants split or merged, Neg and Reciprocal, powers, Sqrt or Pow, initializers,
Constant nodes and ``[1]``, Identities and Casts to the dtype that is already there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from onnxrewrite.pattern.terms import (
    AnyOf,
    Attr,
    Call,
    Capture,
    Const,
    Literal,
    Output,
    Power,
    Product,
    Scalar,
    Sum,
    Term,
    Var,
    walk,
)

NUMPY = {
    "float": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "double": np.dtype(np.float64),
}
TYPE_CODE = {"float": 1, "float16": 10, "bfloat16": 16, "double": 11}
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
NO_FLOATS = ("Shape", "IsNaN", "IsInf", "Not", "And", "Or", *COMPARISONS)
COMMUTATIVE = ("Add", "Mul", "Min", "Max")
PARAMETERS: dict[str, Any] = {"axes": [-1], "axis": -1, "keepdims": 1, "perm": [1, 0], "low": -1.0}


class Unspellable(Exception):
    """The generator does not know how to write this term."""


class Speller:
    """One random spelling.

    Args:
        rng: Decides everything.
        dtype: Of all values.
        mutate: Which of the pattern's numbers and operands to get wrong, counted as they come; None for none.
    """

    def __init__(self, rng: random.Random, dtype: str = "float", mutate: int | None = None):
        self.rng = rng
        self.dtype = dtype
        self.lines: list[str] = []
        self.mutated = ""
        self._mutate = mutate
        self.chances = 0
        self._memo: dict[Any, str] = {}
        self._names = 0
        self.inputs: dict[str, str] = {}
        self._one_dtype = True

    def text(self, item: Term) -> str:
        """The graph, whose output is ``y``."""
        self._one_dtype = not any(isinstance(t, Call) and "Cast" in t.op_types for t in walk(item))
        last = self.spell(item)
        declared = "".join(f"{self.dtype}[2,3] {name}; " for name in self.inputs.values())
        return f"{declared}{'  '.join(self.lines)}  y = Identity({last})"

    def spell(self, item: Term) -> str:
        """The name of the value that ``item`` stands for."""
        if item in self._memo:
            name = self._memo[item]
            return self._wrong_input(name) if isinstance(item, Var) else name
        name = self._spell(item)
        self._memo[item] = name
        return name

    def _spell(self, item: Term) -> str:
        match item:
            case Literal(value=value):
                return self.number(self._wrong_number(value))
            case Scalar():
                return self.number(self._scalar(item))
            case Const():
                raise Unspellable(item.name)
            case Capture():
                return self._input(item.name)
            case AnyOf(alternatives=alternatives):
                return self.spell(self.rng.choice(alternatives))
            case Sum():
                return self._chain(item, SumWriter(self))
            case Product():
                return self._chain(item, ProductWriter(self))
            case Power(base=base, exponent=0.5) if self.rng.random() < 0.6:
                return self.node("Sqrt", self.spell(base))
            case Power(base=base, exponent=exponent):
                return self.node("Pow", self.spell(base), self.number(exponent, plain=True))
            case Call():
                return self._call(item)
            case Output(call=call, index=0):
                return self.spell(call)
        raise Unspellable(repr(item))

    # -- leaves ----------------------------------------------------------------------------------------------

    def _input(self, name: str) -> str:
        return self.inputs.setdefault(name, f"in{len(self.inputs)}")

    def number(self, value: float, plain: bool = False) -> str:
        """A constant of one element."""
        rounded = repr(float(np.float64(value).astype(NUMPY[self.dtype])))
        style = self.rng.randrange(1 if plain else 5)
        if style == 1:
            return f"{self.dtype}[1] {{{rounded}}}"
        if style == 2:
            return f"{self.dtype}[1,1] {{{rounded}}}"
        if style == 3:
            return self.assign(f"Constant<value = {self.dtype} {{{rounded}}}>()")
        if style == 4:
            return self.assign(f"Identity({self.dtype} {{{rounded}}})")
        return f"{self.dtype} {{{rounded}}}"

    def _scalar(self, item: Scalar) -> float:
        return self.rng.choice([0.25, 1.5, 3.0, 0.1])

    # -- nodes -----------------------------------------------------------------------------------------------

    def assign(self, call: str) -> str:
        self._names += 1
        self.lines.append(f"v{self._names} = {call}")
        return f"v{self._names}"

    def node(self, op_type: str, *inputs: str, attributes: str = "", domain: str = "") -> str:
        operands = list(inputs)
        if op_type in COMMUTATIVE and len(operands) == 2:
            self.rng.shuffle(operands)
        name = self.assign(f"{domain}{op_type}{attributes}({', '.join(operands)})")
        chance = self.rng.random()
        if chance < 0.05:
            return self.assign(f"Identity({name})")
        if chance < 0.1 and op_type not in NO_FLOATS and self._one_dtype:
            return self.assign(f"Cast<to = {TYPE_CODE[self.dtype]}>({name})")
        return name

    def _call(self, item: Call) -> str:
        inputs = []
        for operand in item.inputs:
            if not isinstance(operand, Term):
                raise Unspellable(repr(operand))
            inputs.append(self.spell(operand))
        attributes = []
        for name, expected in item.parameters.items():
            if item.op_types == ("Clip",):
                value = -1.0 if isinstance(expected, Attr) else self._wrong_number(expected)
                inputs.append(f"{self.dtype} {{{value!r}}}")
            elif isinstance(expected, Term):
                raise Unspellable(name)
            else:
                free = {"to": TYPE_CODE[self.dtype], **PARAMETERS}
                value = free[name] if isinstance(expected, Attr) else self._wrong_number(expected)
                attributes.append(f"{name} = {list(value) if isinstance(value, tuple) else value}")
        domain = f"{item.domain}." if item.domain else ""
        text = f"<{', '.join(attributes)}>" if attributes else ""
        return self.node(self._wrong_operator(item), *inputs, attributes=text, domain=domain)

    def _chain(self, item: Sum | Product, writer: ChainWriter) -> str:
        values: list[tuple[str, int]] = []
        numbers: list[tuple[float, int]] = []
        free = any(isinstance(t, Scalar) for t in walk(item))  # then another number or sign is another match
        for operand, sign in item.operands:
            if isinstance(operand, Literal):
                numbers.append((operand.value if free else self._wrong_number(operand.value), sign))
            elif isinstance(operand, Scalar):
                if not operand.optional or self.rng.random() < 0.6:
                    numbers.append((self._scalar(operand), sign))
            else:
                values.append((self.spell(operand), sign if free else self._wrong_sign(operand, sign)))
        return writer.write(values, numbers)

    # -- mistakes --------------------------------------------------------------------------------------------

    def _now(self, what: str) -> bool:
        self.chances += 1
        if self._mutate != self.chances - 1:
            return False
        self.mutated = what
        return True

    def _wrong_number(self, value: Any) -> Any:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return value
        return value * 1.07 + 0.03 if self._now(f"number {value}") else value

    def _wrong_sign(self, operand: Term, sign: int) -> int:
        return -sign if self._now(f"sign of {operand!r}") else sign

    def _wrong_input(self, name: str) -> str:
        return self._input("other") if self._now(f"another {name}") else name

    def _wrong_operator(self, item: Call) -> str:
        swaps = {
            "Erf": "Tanh",
            "Tanh": "Erf",
            "Sigmoid": "Tanh",
            "Exp": "Tanh",
            "Softplus": "Exp",
            "Min": "Max",
            "Max": "Min",
        }
        op_type = self.rng.choice(item.op_types)
        if op_type in swaps and self._now(f"operator {op_type}"):
            return swaps[op_type]
        return op_type


class ChainWriter:
    """Signed values and numbers as a random tree of binary nodes."""

    def __init__(self, speller: Speller):
        self.speller = speller
        self.rng = speller.rng

    def write(self, values: list[tuple[str, int]], numbers: list[tuple[float, int]]) -> str:
        """The name of the whole."""
        values = self.grouped(values)
        numbers = self.rearranged(numbers, bool(values))
        if self.rng.random() < 0.2:
            values, numbers = self.negated(values, numbers)
        items = values + [(self.speller.number(n), s) for n, s in numbers]
        while len(items) > 1:
            a, b = items.pop(self.rng.randrange(len(items))), items.pop(self.rng.randrange(len(items)))
            items.append(self.combine(*a, *b))
        ((name, sign),) = items
        return name if sign > 0 else self.opposite(name)

    def grouped(self, values: list[tuple[str, int]]) -> list[tuple[str, int]]:
        return values

    def rearranged(self, numbers: list[tuple[float, int]], others: bool) -> list[tuple[float, int]]:
        """The same numbers, merged or not, with signs of their own."""
        if len(numbers) > 1 and self.rng.random() < 0.5:
            numbers = [self.merged(numbers)]
        return [self.flipped(n, s) if self.rng.random() < 0.4 else (n, s) for n, s in numbers]

    def negated(
        self, values: list[tuple[str, int]], numbers: list[tuple[float, int]]
    ) -> tuple[list[tuple[str, int]], list[tuple[float, int]]]:
        """A Neg around one value, made good elsewhere."""
        raise NotImplementedError

    merged: Callable[[list[tuple[float, int]]], tuple[float, int]]
    flipped: Callable[[float, int], tuple[float, int]]
    combine: Callable[[str, int, str, int], tuple[str, int]]
    opposite: Callable[[str], str]


class SumWriter(ChainWriter):
    def negated(
        self, values: list[tuple[str, int]], numbers: list[tuple[float, int]]
    ) -> tuple[list[tuple[str, int]], list[tuple[float, int]]]:
        if not values:
            return values, numbers
        (name, sign), *others = values
        return [(self.speller.node("Neg", name), -sign), *others], numbers

    def merged(self, numbers: list[tuple[float, int]]) -> tuple[float, int]:
        return sum(n * s for n, s in numbers), 1

    def flipped(self, number: float, sign: int) -> tuple[float, int]:
        return -number, -sign

    def combine(self, a: str, a_sign: int, b: str, b_sign: int) -> tuple[str, int]:
        node = self.speller.node
        if a_sign == b_sign:
            return node(self.rng.choice(["Add", "Add", "Sum"]), a, b), a_sign
        if self.rng.random() < 0.2:
            return node("Sub", b, a), b_sign
        return (node("Sub", a, b), 1) if a_sign > 0 else (node("Sub", b, a), 1)

    def opposite(self, name: str) -> str:
        return self.speller.node("Neg", name)


class ProductWriter(ChainWriter):
    def grouped(self, values: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Equal factors as a power, now and then."""
        for value in dict.fromkeys(values):
            times = values.count(value)
            if times in (2, 3, 4) and self.rng.random() < 0.5:
                name, sign = value
                exponent = times * (sign if self.rng.random() < 0.3 else 1)
                values = [v for v in values if v != value]
                power = self.speller.node("Pow", name, self.speller.number(exponent, plain=True))
                values.append((power, 1 if exponent < 0 else sign))
        return values

    def merged(self, numbers: list[tuple[float, int]]) -> tuple[float, int]:
        result = 1.0
        for n, s in numbers:
            result = result * n if s > 0 else result / n
        return result, 1

    def flipped(self, number: float, sign: int) -> tuple[float, int]:
        return 1 / number, -sign

    def rearranged(self, numbers: list[tuple[float, int]], others: bool) -> list[tuple[float, int]]:
        return [
            n for n in super().rearranged(numbers, others) if not (others and n[0] == 1 and self.rng.random() < 0.8)
        ]

    def combine(self, a: str, a_sign: int, b: str, b_sign: int) -> tuple[str, int]:
        node = self.speller.node
        if a_sign == b_sign:
            return node("Mul", a, b), a_sign
        if a_sign < 0:
            a, b = b, a
        return node("Div", a, b), 1

    def opposite(self, name: str) -> str:
        return self.speller.node("Reciprocal", name)

    def negated(
        self, values: list[tuple[str, int]], numbers: list[tuple[float, int]]
    ) -> tuple[list[tuple[str, int]], list[tuple[float, int]]]:
        """A Neg around one value, and a second Neg or a negated number."""
        if len(values) + bool(numbers) < 2:
            return values, numbers
        (name, sign), *others = values
        negative = (self.speller.node("Neg", name), sign)
        if numbers:
            (number, its_sign), *more = numbers
            return [negative, *others], [(-number, its_sign), *more]
        (second, its_sign), *rest = others
        return [negative, (self.speller.node("Neg", second), its_sign), *rest], numbers


def spellings(item: Term, count: int, dtype: str = "float") -> Iterator[str]:
    """``count`` spellings of a pattern."""
    for seed in range(count):
        yield Speller(random.Random(seed), dtype).text(item)


def near_misses(item: Term, count: int, dtype: str = "float") -> Iterator[tuple[str, str]]:
    """``count`` spellings that are wrong in one thing, and what that is."""
    for seed in range(count):
        counted = Speller(random.Random(seed), dtype)
        counted.text(item)
        if not counted.chances:
            continue
        wrong = Speller(random.Random(seed), dtype, mutate=random.Random(seed).randrange(counted.chances))
        graph = wrong.text(item)
        if wrong.mutated:
            yield graph, wrong.mutated


def has_numbers(item: Term) -> bool:
    """Whether a pattern contains a number."""
    return any(isinstance(t, Literal) for t in walk(item))
