"""A model as rules are to find it: in the opset that is asked for, without functions that no rule asks for by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import onnx_ir as ir

from onnxrewrite.io.inlining import inlined
from onnxrewrite.io.opset_conversion import in_opset
from onnxrewrite.pattern.terms import Call, walk
from onnxrewrite.rewrite.rule import Rule

_SHOWN = 5
"""So many functions are named in a note."""


class Prepared(NamedTuple):
    """A model to rewrite.

    Attributes:
        model: The model itself where nothing is to be done to it, else a copy.
        notes: What was done, a line each.
    """

    model: ir.Model
    notes: tuple[str, ...]


def prepared(model: ir.Model, rules: Iterable[Rule], opset: int | None = None) -> Prepared:
    """Inline the functions of a model and bring it to an opset.

    Args:
        model: A model as ``io.load`` gives it; it is not changed.
        rules: The rules; a function of a name that a pattern of theirs has stays one.
        opset: The ai.onnx opset; None for that of the model.

    Raises:
        UsageError: The model cannot be brought to that opset.
    """
    named = {(call.domain, name) for rule in rules for call in _calls(rule) for name in call.op_types}
    found = inlined(model, lambda domain, name: (domain, name) in named)
    return Prepared(in_opset(found.model, opset), tuple(_notes(found.functions)))


def _calls(rule: Rule) -> Iterator[Call]:
    return (item for root in rule.outputs for item in walk(root) if isinstance(item, Call))


def _notes(functions: Sequence[str]) -> Iterator[str]:
    if functions:
        more = f" and {len(functions) - _SHOWN} more" if len(functions) > _SHOWN else ""
        yield f"functions of the model were inlined: {', '.join(functions[:_SHOWN])}{more}"
