"""Guards that are forgotten: a ``require`` or ``refuse`` that lets everything pass, and attributes nobody looks at."""

from __future__ import annotations

import ast
import functools
import sys
from dataclasses import dataclass
from pathlib import Path

_ASKING = ("require", "refuse")


@dataclass(frozen=True, order=True)
class Guard:
    """A call of ``require`` or ``refuse``: the file, and the line that Python says it is in."""

    file: str
    line: int

    @property
    def words(self) -> str:
        """The function and what it asks, as the source says it."""
        return _words(self.file, self.line)


@dataclass(frozen=True)
class Vouched:
    """Attributes of the nodes of a pattern that the rule vouches for without having looked at them.

    Args:
        index: Of the call among the terms of the pattern.
    """

    index: int


def caller(depth: int) -> Guard:
    """The call that is being made ``depth`` frames above the function that calls this one."""
    frame = sys._getframe(depth + 1)
    return Guard(frame.f_code.co_filename, frame.f_lineno)


@functools.cache
def _words(file: str, line: int) -> str:
    tree = _parsed(file)
    asked = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _asks(n) and _holds(n, line)]
    inside = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and _holds(n, line)]
    name = inside[-1].name if inside else "module"
    return f"{Path(file).stem}.{name}: {ast.unparse(asked[-1]) if asked else f'line {line}'}"


@functools.cache
def _parsed(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _asks(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _ASKING


def _holds(node: ast.expr | ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)
