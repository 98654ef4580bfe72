"""Families of operators of which small graphs are made, and the operands that these have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.operators import TRAITS, operators
from onnxrewrite.suite.discovery.sampled_region import Operand
from onnxrewrite.suite.discovery.substitute import Parameter, Plain
from onnxrewrite.system.arrays import Array

OPSET = 18
"""The version of the standard operators that small graphs are made of."""

SIZES = {"m": 5, "n": 7}
"""The sizes at which they are compared."""


@dataclass(frozen=True)
class Form:
    """An operator with its parameters.

    Attributes:
        op_type: The operator.
        parameters: Its attributes and inputs that are attributes in other opsets, by name.
        rank: The rank that its operand must have; None for any.
    """

    op_type: str
    parameters: tuple[tuple[str, Parameter], ...] = ()
    rank: int | None = None

    @cached_property
    def width(self) -> int:
        """The number of its operands."""
        known = schema.schema("", self.op_type, OPSET)
        assert known is not None
        return 2 if "variadic" in TRAITS[self.op_type].marks else known.min_inputs - self._inputs(known)

    def _inputs(self, known: schema.Schema) -> int:
        """The number of required inputs that are among the parameters."""
        places = [schema.formal_index(known, name) for name, _ in self.parameters]
        return sum(place is not None and place < known.min_inputs for place in places)

    @property
    def _axes(self) -> tuple[int, ...]:
        """The axes that it reduces."""
        given = (p.value for name, p in self.parameters if name == "axes")
        return tuple(axis for axes in given if isinstance(axes, tuple) for axis in axes if isinstance(axis, int))

    def takes(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """True if it takes operands of some shapes, and does something to them."""
        if self.rank is not None and any(len(shape) != self.rank for shape in shapes):
            return False
        if TRAITS[self.op_type].kind == "reduce":
            return all(shape[axis] > 1 for shape in shapes for axis in self._axes)
        if TRAITS[self.op_type].kind == "join":
            (axis,) = (p.value for name, p in self.parameters if name == "axis")
            return len({tuple(d for k, d in enumerate(shape) if k != axis) for shape in shapes}) == 1
        try:
            np.broadcast_shapes(*shapes)
        except ValueError:
            return False
        return True


def _form(op_type: str, rank: int | None = None, **parameters: Plain) -> Form:
    return Form(op_type, tuple((name, Parameter(value)) for name, value in parameters.items()), rank)


_VIEWS = (
    _form("Transpose", 2, perm=(1, 0)),
    _form("Unsqueeze", 2, axes=(0,)),
    _form("Unsqueeze", 2, axes=(2,)),
    _form("Squeeze", 3, axes=(0,)),
    _form("Flatten", 2, axis=0),
    _form("Concat", 2, axis=0),
    _form("Concat", 2, axis=1),
    _form("Slice", 2, starts=(1,), ends=(3,), axes=(1,)),
    _form("Slice", 2, starts=(0,), ends=(2,), axes=(1,)),
)


def _plain(*names: str) -> tuple[Form, ...]:
    return tuple(map(_form, names))


def _reduced(names: Sequence[str], *axes: int) -> tuple[Form, ...]:
    """Operators over an axis, which is kept."""
    return tuple(_form(name, 2, axes=(axis,), keepdims=1) for name in names for axis in axes)


@dataclass(frozen=True)
class Family:
    """Operators and operands that small graphs are made of.

    Attributes:
        name: Its name.
        floats: The names of matrices of floats.
        masks: The names of matrices of truth values.
        numbers: Constants.
        forms: The operators.
    """

    name: str
    floats: str
    masks: str
    numbers: tuple[float, ...]
    forms: tuple[Form, ...]

    def operands(self, seed: int, *, is_special: bool = False) -> list[Operand]:
        """The operands, at the sizes at which graphs are compared.

        Args:
            seed: Of the numbers.
            is_special: True for numbers of which many are equal or zero, and rows and columns that have one sign.
        """
        rng = np.random.default_rng([seed, is_special])
        return list(self._operands(rng, is_special))

    def _operands(self, rng: np.random.Generator, is_special: bool) -> Iterator[Operand]:
        shape = tuple(SIZES.values())
        for name in self.floats.split():
            drawn = rng.standard_normal(shape)
            moved = drawn / 2 + 2 * rng.standard_normal(shape[:1])[:, None] + rng.standard_normal(shape[1:])
            yield _operand(name, np.round(moved) if is_special else drawn)
        for name in self.masks.split():
            yield _operand(name, rng.random(shape) < 0.5)
        for number in self.numbers:
            yield _operand(f"c{number:g}", np.asarray(number, np.float32))


def _operand(name: str, array: Array) -> Operand:
    dtype = ir.DataType.BOOL if array.dtype == np.bool_ else ir.DataType.FLOAT
    shape = ir.Shape(list(SIZES) if array.ndim else [])
    value = ir.Value(name=name, type=ir.TensorType(dtype), shape=shape)
    return Operand(value, name, array, is_constant=not array.ndim, is_size=False)


_SUMS = operators(marks="sum", but="variadic")
_PRODUCTS = operators(marks="product", but="sum partial")
_EXTREMES = operators("broadcast", marks="variadic", but="sum Mean")
_ORDER = operators(marks="comparison", but="commutative")
_BENT = operators("pointwise", marks="nonnegative", but="HardSigmoid")
_SIGNS = operators("pointwise", marks="idempotent exact", but="Ceil Clip Floor Identity Round")
_IRRATIONAL = (*operators("pointwise", marks="partial", but="Acos Acosh Asin Atanh"), "Tanh")
_REDUCED = operators("reduce", but="ArgMax ArgMin ReduceLogSum ReduceProd")

FAMILIES = (
    Family(
        "sums and products",
        "x y",
        "",
        (1.0, 2.0),
        _plain(*_SUMS, *_PRODUCTS, *_EXTREMES, *_SIGNS),
    ),
    Family("functions", "x y", "", (1.0,), _plain(*_SUMS, *_PRODUCTS, *_BENT, *_IRRATIONAL)),
    Family(
        "choices",
        "x y",
        "p q",
        (),
        _plain(*operators(marks="logic"), *_ORDER, *_EXTREMES, "Where", "Neg"),
    ),
    Family(
        "reductions",
        "x y",
        "",
        (2.0,),
        (*_reduced(_REDUCED, 1), *_plain(*_SUMS, *_PRODUCTS, *_EXTREMES, *_BENT, *_IRRATIONAL)),
    ),
    Family(
        "views",
        "x y",
        "",
        (2.0,),
        (*_VIEWS, *_plain(*_SUMS, "Relu", "Mul"), *_reduced(("ReduceSum", "ReduceMax"), 1, 0)),
    ),
)
"""All families, the smaller ones first."""
