"""A model as rules are to find it: in an opset that the target runs, without functions that no rule asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.io.inlining import inlined, spelled_out
from onnxrewrite.io.opset_conversion import in_opset, to_opset
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.target import Target
from onnxrewrite.pattern.terms import Call, walk
from onnxrewrite.rewrite.rule import Rule

_SHOWN = 5
"""So many functions are named in a note."""


class Prepared(NamedTuple):
    """A model to rewrite.

    Attributes:
        model: The model itself where nothing is to be done to it, else a copy.
        notes: What was done, a line each.
        highest: The newest ai.onnx opset in which the target can run it; None where that is not known to matter.
    """

    model: ir.Model
    notes: tuple[str, ...]
    highest: int | None


def prepared(model: ir.Model, rules: Iterable[Rule], target: Target, opset: int | None = None) -> Prepared:
    """Inline the functions of a model and bring it to an opset.

    Args:
        model: A model as ``io.load`` gives it; it is not changed.
        rules: The rules; a function of a name that a pattern of theirs has stays one.
        target: The target.
        opset: The ai.onnx opset; None for that of the model, or the newest before in which the target has kernels for
            all of its operators.

    Raises:
        UsageError: The model cannot be brought to that opset.
    """
    named = cache(lambda: {(c.domain, name) for rule in rules for c in _calls(rule) for name in c.op_types})
    found = inlined(model, lambda domain, name: (domain, name) in named())  # most models ask for none
    notes = [*_inlining(found.functions)]
    if opset is not None:
        return Prepared(in_opset(found.model, opset), tuple(notes), None)
    made = _by_bodies(_in_opset_with_kernels(found.model, target), target)
    if made is found.model:
        return Prepared(made, tuple(notes), None)
    own, highest = io.opset(found.model), io.opset(made)
    lacking = sorted(_standard(found.model) - _standard(made))
    lacking = lacking or sorted(name for name in _standard(made) if target.newest_opset(name, own) < own)
    how = f"lowered to opset {highest}" if highest < own else "replaced by their function bodies"
    notes.append(f"{how}: {target.name} has no kernel of opset {own} of {', '.join(lacking)}")
    return Prepared(made, tuple(notes), highest)


def _in_opset_with_kernels(model: ir.Model, target: Target) -> ir.Model:
    """The model in the newest opset in which the target has kernels for its operators; itself if there is none."""
    made = model
    while True:
        own = io.opset(made)
        newest = min((target.newest_opset(name, own) for name in _standard(made)), default=own)
        if newest == own:
            return made
        try:
            made = to_opset(made, newest)
        except UsageError:  # an operator is not in that opset, and lacks a kernel in the own one
            return model


def _by_bodies(model: ir.Model, target: Target) -> ir.Model:
    """The model with the function bodies of operators that the target runs in no other way."""
    opset, tried = io.opset(model), set[str]()
    while lacking := {name for name in _standard(model) if not target.runs_body(name, opset)} - tried:
        model = spelled_out(model, lacking)  # the body of one may have another one of them
        tried |= lacking
    return model


def _standard(model: ir.Model) -> set[str]:
    """The operators of the standard that a model has."""
    return {n.op_type for scope in scopes(model) for n in scope if not n.domain}


def _calls(rule: Rule) -> Iterator[Call]:
    return (item for root in rule.outputs for item in walk(root) if isinstance(item, Call))


def _inlining(functions: Sequence[str]) -> Iterator[str]:
    if functions:
        more = f" and {len(functions) - _SHOWN} more" if len(functions) > _SHOWN else ""
        yield f"functions of the model were inlined: {', '.join(functions[:_SHOWN])}{more}"
