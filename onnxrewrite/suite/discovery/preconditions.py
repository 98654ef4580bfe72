"""The preconditions that a rule may be taught: text that a person might write, of the match."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxrewrite.authoring.formula import WIDTH, literal
from onnxrewrite.authoring.generalize import Kind, Slot
from onnxrewrite.pattern.match import Match
from onnxrewrite.rewrite.rule import Rule


@dataclass(frozen=True)
class Guard:
    """A precondition of a rule, as text.

    Attributes:
        condition: A Python expression of the match ``m``.
        reason: What is told where it does not hold.
        is_of_result: True if it compares the shape of an operand with that of the result.
        compares: The names of the operands whose shapes are to be equal; a single one's to the shape of the result.
        tells: The name of the constant that it computes from others.
    """

    condition: str
    reason: str
    is_of_result: bool = False
    compares: tuple[str, ...] = ()
    tells: str = ""

    @property
    def lines(self) -> list[str]:
        """The statement."""
        line = f"m.require({self.condition}, {literal(self.reason)})"
        parts = ["m.require(", f"    {self.condition},", f"    {literal(self.reason)},", ")"]
        return [line] if len(line) <= WIDTH else parts

    def holds(self, match: Match, rule: Rule) -> bool:
        """True if a match of a rule fulfils it; False, too, where it cannot be told."""
        names = {"ir": ir, **getattr(rule.rewrite, "__globals__", {})}
        try:
            return bool(eval(self.condition, names, {"m": match}))
        except (AttributeError, KeyError, TypeError, ValueError, IndexError):
            return False


def vocabulary(names: dict[Slot, str], match: Match | None, rule: Rule) -> Iterator[Guard]:
    """Preconditions that a person might write, the general ones first."""
    tensors = [n for s, n in names.items() if s.kind in (Kind.VAR, Kind.CONST) and not s.is_shape and not s.is_optional]
    yield Guard("m.rank(m.outputs[0]) is not None", "the rank of the result must be known")
    yield from _of_shapes(tensors)
    if match is None:
        return
    terms = getattr(rule.rewrite, "__globals__", {})
    for name in tensors:
        rank = match.rank(terms[name])
        if rank is not None:
            yield Guard(f"m.rank({name}) == {rank}", f"{name} must be of rank {rank}")
    yield from map(is_constant, tensors)
    for name in tensors:
        yield from (is_known(name, axis) for axis in range(match.rank(terms[name]) or 0))
    yield from _of_products(tensors, match, rule)
    yield from _of_dtypes(tensors)
    for slot, name in names.items():
        if slot.kind is Kind.SCALAR or (slot.kind is Kind.ATTR and isinstance(slot.values[0], float)):
            yield Guard(f"m[{name}] > 0", f"{name} must be positive")
        if slot.kind is Kind.ATTR and not slot.is_optional:
            value = literal(slot.values[0])
            yield Guard(f"m[{name}] == {value}", f"{name} must be {value}")
    for name in tensors:
        axes = range(match.rank(terms[name]) or 0)
        yield from (Guard(f"m.dim({name}, {k}) == 1", f"axis {k} of {name} must be of one") for k in axes)


def of_views(views: Sequence[str], names: dict[Slot, str]) -> Iterator[Guard]:
    """Views keep their first axes, the batch and the sequence, and have the same heads."""
    tensors = [n for s, n in names.items() if s.kind in (Kind.VAR, Kind.CONST) and not s.is_shape and not s.is_optional]
    for view, name in itertools.product(views, tensors):
        condition = f"same_shape((m.shape({view}) or ())[:2], (m.shape({name}) or ())[:2])"
        yield Guard(condition, f"{view} must keep the first two axes of {name}")
    for view, other in itertools.combinations(views, 2):
        condition = f"same_shape((m.shape({view}) or ())[2:], (m.shape({other}) or ())[2:])"
        yield Guard(condition, f"{view} and {other} must have the same heads")


def is_known(name: str, axis: int) -> Guard:
    """A size is a number."""
    return Guard(f"isinstance(m.dim({name}, {axis}), int)", f"axis {axis} of {name} must be of known size")


def is_constant(name: str) -> Guard:
    """A value is a constant."""
    return Guard(f"m.facts.tensor(m.value({name})) is not None", f"{name} must be constant")


def _of_shapes(tensors: Sequence[str]) -> Iterator[Guard]:
    for i, first in enumerate(tensors):
        for second in tensors[i + 1 :]:
            reason = f"{first} and {second} must have one shape"
            condition = f"same_shape(m.shape({first}), m.shape({second}))"
            yield Guard(condition, reason, compares=(first, second))
    for name in tensors:
        reason = f"{name} must have the shape of the result"
        yield Guard(f"same_shape(m.shape({name}), m.shape(m.outputs[0]))", reason, True, (name,))
    for name in tensors:
        condition = f"same_shape(m.shape({name}), (m.shape(m.outputs[0]) or ())[-1:])"
        yield Guard(condition, f"{name} must be as long as the last axis", True)


def _of_products(tensors: Sequence[str], match: Match, rule: Rule) -> Iterator[Guard]:
    """One constant that is the product of two others, as the scale of a quantized bias is."""
    terms = getattr(rule.rewrite, "__globals__", {})
    known = {n: match.facts.tensor(v) for n in tensors if (v := match.value(terms[n])) is not None}
    constant = [n for n, tensor in known.items() if tensor is not None and tensor.dtype.is_floating_point()]
    for whole in constant:
        for one, other in itertools.combinations([n for n in constant if n != whole], 2):
            condition = f"is_product(m.facts, m.value({whole}), m.value({one}), m.value({other}))"
            yield Guard(condition, f"{whole} must be the product of {one} and {other}", tells=whole)


def _of_dtypes(tensors: Sequence[str]) -> Iterator[Guard]:
    for name in tensors:
        yield Guard(f"m.dtype({name}) != ir.DataType.DOUBLE", f"{name} must not be of doubles")
    for name in tensors:
        yield Guard(f"m.dtype({name}) == ir.DataType.FLOAT", f"{name} must be float32")
