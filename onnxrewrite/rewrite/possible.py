"""Patterns that nothing can match: an operator, an attribute or an input that no opset has.

This is told when a rule is made, for a pattern with a typing error in it is as silent as one that applies nowhere.

Operators of a domain that nobody knows are taken as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.pattern.terms import AnyNode, Call, Capture, Each, Output, Term, walk
from onnxrewrite.rewrite.source import is_engine
from onnxrewrite.rewrite.suggestions import nearest

_NUMBERS = (ir.AttributeType.INT, ir.AttributeType.FLOAT)


def impossible(pattern: Sequence[Term], knows: Callable[[str], bool] = lambda domain: True) -> str | None:
    """The first thing in a pattern, or in the terms of a replacement, that no graph has; None where there is none.

    Args:
        pattern: Its terms.
        knows: True for a domain whose operators are to be looked at.
    """
    return next((reason for root in pattern for item in walk(root) for reason in _wrong(item, knows)), None)


def _wrong(item: Term, knows: Callable[[str], bool]) -> Iterator[str]:
    if isinstance(item, AnyNode):
        yield from (r for o in item.op_types or () if knows("") and (r := _unknown(o, "")))
    if isinstance(item, Output) and isinstance(item.call, Call) and knows(item.call.domain):
        most = [s.max_outputs for o in item.call.op_types for s in schema.versions(item.call.domain, o)]
        if most and not 0 <= item.index < max(most):
            yield f"{'|'.join(item.call.op_types)} has no output {item.index}"
    if isinstance(item, Call) and knows(item.domain):
        unknown = [r for o in item.op_types if (r := _unknown(o, item.domain))]
        yield from unknown
        found = [s for o in item.op_types for s in schema.versions(item.domain, o)]
        if found and not unknown:
            yield from _misnamed(item, found)
            yield from _miscounted(item, found)


def _unknown(op_type: str, domain: str) -> str | None:
    """That nobody knows an operator."""
    known = schema.known_operators(domain)
    if not known or op_type in known:
        return None
    called = f"{domain}.{op_type}" if domain else op_type
    same = [name for name in known if name.lower() == op_type.lower()]
    return f"the pattern has {called}, and no operator is called so{nearest(op_type, same or known, '')}"


def _misnamed(item: Call, found: Sequence[schema.Schema]) -> Iterator[str]:
    """Parameters that no version has, and those of a type that it does not take."""
    names = {n: s for s in found for n in (*(f.name for f in s.inputs), *s.attributes)}
    called = "|".join(item.op_types)
    for name, expected in item.parameters.items():
        if name not in names:
            yield f"{called} has no attribute or input {name!r} in any opset{nearest(name, names, '')}"
        kinds = {s.attributes[name].type for s in found if name in s.attributes}
        is_input = any(f.name == name for s in found for f in s.inputs)
        if kinds and not is_input and not any(_fits(kind, expected) for kind in kinds):
            told = " or ".join(sorted(k.name.lower() for k in kinds))
            yield f"{name} of {called} is {told}, the pattern has {expected!r}"


def _fits(kind: ir.AttributeType, expected: object) -> bool:
    if isinstance(expected, str):
        return kind not in (*_NUMBERS, ir.AttributeType.INTS, ir.AttributeType.FLOATS)
    if isinstance(expected, int | float):
        return kind not in (ir.AttributeType.STRING, ir.AttributeType.STRINGS)
    return True


def _miscounted(item: Call, found: Sequence[schema.Schema]) -> Iterator[str]:
    """More inputs than any version takes, or fewer than all need."""
    called = "|".join(item.op_types)
    terms = [t for t in item.inputs if not isinstance(t, Each)]
    while terms and terms[-1] is None:
        terms.pop()
    least = max((i + 1 for i, t in enumerate(terms) if not (isinstance(t, Capture) and t.optional)), default=0)
    if all(least > s.max_inputs for s in found):
        yield f"{called} takes {_inputs(max(s.max_inputs for s in found))}, the pattern has {least}"
    named = [sum(f.name in item.parameters for f in s.inputs) for s in found]
    given = [len(terms) + n for n in named]
    has_rest = len(terms) < len(item.inputs) and any(isinstance(t, Each) for t in item.inputs)
    if not has_rest and all(g < s.min_inputs for g, s in zip(given, found, strict=True)):
        yield f"{called} takes at least {_inputs(min(s.min_inputs for s in found))}, the pattern has {max(given)}"


def _inputs(count: int) -> str:
    return f"{count} input{'' if count == 1 else 's'}"


class Place(NamedTuple):
    """A line of a program."""

    module: str
    file: str
    line: int

    def __str__(self) -> str:
        return f" ({Path(self.file).name}, line {self.line})" if self.file else ""


def place() -> Place:
    """The line from which this program was called; empty where nobody else did."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_engine(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return Place("", "", 0)
    return Place(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename, frame.f_lineno)
