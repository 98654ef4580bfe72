"""Groups of options: a parameter of a command whose type is a dataclass stands for an option for each of its fields."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints


def ungrouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its groups as parameters, in the groups' places: typer reads these off the
    signature, and has no groups of its own.  A group may hold groups."""
    hints = get_type_hints(command, include_extras=True)
    given = inspect.signature(command).parameters.values()

    @functools.wraps(command)
    def called(**options: Any) -> None:
        try:
            command(**{each.name: _value(each.name, hints[each.name], options) for each in given})
        except EOFError as error:  # typer takes it for Ctrl-D
            raise RuntimeError(f"a file ended: {error}") from error

    flat = [option for each in given for option in _options(each.name, hints[each.name], each.default)]
    called.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return called


def _options(name: str, kind: Any, default: Any) -> Iterator[inspect.Parameter]:
    if not is_dataclass(kind):
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        return
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        made = each.default_factory() if each.default_factory is not MISSING else each.default
        yield from _options(each.name, hints[each.name], inspect.Parameter.empty if made is MISSING else made)


def _value(name: str, kind: Callable[..., Any], options: dict[str, Any]) -> Any:
    if not is_dataclass(kind):
        return options[name]
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{each.name: _value(each.name, hints[each.name], options) for each in fields(kind)})
