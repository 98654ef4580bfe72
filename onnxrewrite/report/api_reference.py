"""The reference as plain text: what a documentation page names, with its signature and the first line of its docstring.

A page asks for an object by a line ``::: module.name``, which the site turns into all that there is to say of it.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

BEGIN, END = "<!-- signatures -->", "<!-- end -->"

_ASKED = re.compile(r"^::: (?P<name>[\w.]+)(?:\n    options:\n      members: \[(?P<members>[^\]]+)\])?$", re.MULTILINE)

_BLOCK = re.compile(rf"\n\n{BEGIN}\n.*?{END}\n", re.DOTALL)


def renewed(page: str) -> str:
    """A page with the signatures of what it asks for, in place of those that it had, below each such line."""
    bare = _BLOCK.sub("", page)
    return _ASKED.sub(lambda asked: f"{asked[0]}\n\n{BEGIN}\n{_listed(asked)}{END}\n", bare)


def _listed(asked: re.Match[str]) -> str:
    found = _object(asked["name"])
    if not isinstance(found, ModuleType):
        return "\n".join([*_told(asked["name"].rpartition(".")[2], found), ""])
    names = [n.strip() for n in asked["members"].split(",")] if asked["members"] else _public(found)
    return "\n".join([line for name in names for line in _told(name, getattr(found, name))] + [""])


def _object(name: str) -> Any:
    """The object that a dotted name refers to."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def _public(module: ModuleType) -> list[str]:
    """The public names of a module: ``__all__``, else its callables."""
    own = [n for n, v in vars(module).items() if not n.startswith("_") and not isinstance(v, ModuleType)]
    return list(getattr(module, "__all__", [n for n in own if callable(getattr(module, n))]))


def _told(name: str, found: object) -> Iterator[str]:
    """An item, and one for each public method of a class."""
    if not callable(found):
        yield f"- `{name}`"
        return
    yield f"- `{name}{_signature(found)}`: {_summary(found)}"
    if isinstance(found, type):
        yield from (f"    - `{line}" for line in _members(found))


def _members(kind: type) -> Iterator[str]:
    if issubclass(kind, enum.Enum):
        yield from (f"{each.name}`" for each in kind)
        return
    for name, member in vars(kind).items():
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if name.startswith("_") or not inspect.getdoc(function):
            continue
        if isinstance(function, property) or hasattr(function, "func"):
            yield f"{name}`: {_summary(function)}"
        elif callable(function):
            yield f"{name}{_signature(function)}`: {_summary(function)}"


def _signature(found: Callable[..., object]) -> str:
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # it is built in, or an enumeration
        return ""
    kept = [
        p.replace(default=_plain(p.default), annotation=_unquoted(p.annotation))
        for n, p in signature.parameters.items()
        if n not in ("self", "cls")
    ]
    return str(signature.replace(parameters=kept, return_annotation=_unquoted(signature.return_annotation)))


class _Written:
    """A default or an annotation as it is to be read."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _unquoted(annotation: object) -> object:
    return _Written(annotation) if isinstance(annotation, str) else annotation


def _plain(default: object) -> object:
    if default is inspect.Parameter.empty or isinstance(default, enum.Enum):
        return default if default is inspect.Parameter.empty else _Written(str(default))
    return _Written("…") if " at 0x" in repr(default) or repr(default).startswith("<") else default


def _summary(found: object) -> str:
    lines = (inspect.getdoc(found) or "").partition("\n\n")[0]
    return " ".join(lines.split())
