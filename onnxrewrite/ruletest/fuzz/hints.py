"""Numbers, lists and words that a rule's own code asks for: a guard that compares with 0.125 lets nothing else through.

The constants of the functions that a rule is made of, as fuzzers take their dictionaries from what they test.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType

import numpy as np

from onnxrewrite.pattern.terms import Call, Literal, walk
from onnxrewrite.rewrite.replacement import Replacement
from onnxrewrite.rewrite.rule import Rule

_DEPTH = 3
"""The depth to which functions that a rewrite calls are followed."""

_LARGEST = 64
"""Above this, a number is no size of a tensor that is made to be tried."""


@dataclass(frozen=True)
class Hints:
    """The constants in a rule's pattern and code.

    Attributes:
        numbers: All numbers.
        lists: Lists of integers, such as permutations.
        words: Texts.
    """

    numbers: tuple[float, ...] = ()
    lists: tuple[tuple[int, ...], ...] = ()
    words: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers that can be sizes."""
        return tuple(int(n) for n in self.numbers if n == round(n) and 1 < n <= _LARGEST)


def hints(rule: Rule) -> Hints:
    """The constants in a rule's pattern, its rewrite, and the functions that this calls."""
    found = [*_constants(rule.rewrite, _DEPTH, set())]
    found += [t.value for o in rule.outputs for t in walk(o) if isinstance(t, Literal)]
    numbers = [float(c) for c in found if isinstance(c, int | float) and not isinstance(c, bool) and math.isfinite(c)]
    lists = [c for c in found if isinstance(c, tuple) and c and all(type(e) is int for e in c)]
    texts = [c for c in found if isinstance(c, str) and c and len(c) < 40 and " " not in c]
    return Hints(tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys(lists)), tuple(dict.fromkeys(texts)))


def _constants(what: object, depth: int, seen: set[int]) -> Iterator[object]:
    """Constants of a function, of what it holds and of what it calls."""
    if id(what) in seen or depth < 0:
        return
    seen.add(id(what))
    if isinstance(what, MethodType):
        yield from _constants(what.__func__, depth, seen)
    elif isinstance(what, FunctionType):
        yield from _of_code(what.__code__)
        held = [c.cell_contents for c in what.__closure__ or () if _is_filled(c)]
        named = [what.__globals__[n] for n in _names(what.__code__) if n in what.__globals__]
        own = [v for v in named if not isinstance(v, FunctionType) or v.__module__ == what.__module__]
        for each in (*held, *own, *(what.__defaults__ or ())):
            yield from _constants(each, depth - 1, seen)
    elif isinstance(what, Replacement):
        inside = [item for root in what.terms for item in walk(root)]
        yield from (item.value for item in inside if isinstance(item, Literal))
        for each in (given for item in inside if isinstance(item, Call) for given in item.parameters.values()):
            yield from _constants(each, depth, seen)
    elif isinstance(what, int | float | np.number) and not isinstance(what, bool):
        yield float(what) if isinstance(what, np.number) else what
    elif isinstance(what, str):
        yield what
    elif isinstance(what, tuple | list) and len(what) <= 16:
        yield tuple(what)
        for each in what:
            yield from _constants(each, depth - 1, seen)
    elif isinstance(what, partial):
        for each in (what.func, *what.args, *what.keywords.values()):
            yield from _constants(each, depth, seen)


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _of_code(code: CodeType) -> Iterator[object]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)
        elif isinstance(constant, tuple):
            yield constant
            yield from constant
        elif constant is not None:
            yield constant
