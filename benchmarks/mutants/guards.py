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
        """The reason that it gives, in the source's words: code around it comes and goes, what users read stays."""
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


def asked_in(file: str) -> list[str]:
    """The reasons of all guards in a file, in order."""
    asked = [n for n in ast.walk(_parsed(file)) if isinstance(n, ast.Call) and _asks(n)]
    return [_reason(n, file) for n in sorted(asked, key=lambda n: n.lineno)]


@functools.cache
def _words(file: str, line: int) -> str:
    asked = [n for n in ast.walk(_parsed(file)) if isinstance(n, ast.Call) and _asks(n) and _holds(n, line)]
    return _reason(asked[-1], file) if asked else f"{Path(file).stem}, line {line}"


def _reason(call: ast.Call, file: str) -> str:
    assert isinstance(call.func, ast.Attribute)
    named = [k.value for k in call.keywords if k.arg == "reason"]
    given = [*named, *call.args[1 if call.func.attr == "require" else 0 :]]
    told = _told(given[0])
    return f"{Path(file).stem}: {told}" if isinstance(given[0], ast.Name) else told


def _told(reason: ast.expr) -> str:
    """A reason as text; what is filled in is left out."""
    match reason:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_told(v) if isinstance(v, ast.Constant) else "…" for v in values)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{_told(body)} / {_told(orelse)}"
    return ast.unparse(reason)


@functools.cache
def _parsed(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _asks(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _ASKING


def _holds(node: ast.expr | ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)
