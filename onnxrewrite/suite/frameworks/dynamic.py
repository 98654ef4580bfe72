"""Dynamic sizes in the two ways in which PyTorch's exporters take them, turned into one.  Knows no framework.

``dynamic_axes`` names axes by input: ``{"x": {0: "batch"}}`` or ``{"x": [0]}``.  ``dynamic_shapes`` has the structure
of the arguments, with dimensions for axes: ``{"x": {0: Dim("batch")}}``, ``({0: "batch"},)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from onnxrewrite.errors import UsageError

Axes: TypeAlias = dict[str, dict[int, str]]
"""Input → axis → name of the dimension."""


def from_axes(given: Mapping[str, object], inputs: Mapping[str, int], outputs: Sequence[str] = ()) -> Axes:
    """Axes of inputs by name, of ``dynamic_axes``; ``inputs``: name to rank.

    Raises:
        UsageError: There is no such input or axis.
    """
    found: Axes = {}
    for name, axes in given.items():
        if name in outputs:
            continue  # what the inputs' sizes make of the outputs' is for the exporter to find out
        if name not in inputs:
            raise UsageError(f"dynamic_axes: the module has no input {name!r}; it has {', '.join(inputs) or 'none'}")
        named = axes if isinstance(axes, Mapping) else dict.fromkeys(_listed(name, axes))
        for axis, dim in named.items():
            place = _axis(name, axis, inputs[name])
            found.setdefault(name, {})[place] = dim if isinstance(dim, str) else f"{name}_dim{place}"
    return found


def _listed(name: str, axes: object) -> Sequence[object]:
    if isinstance(axes, list | tuple | set | frozenset):
        return sorted(axes)
    raise UsageError(f"dynamic_axes: {name} must have a mapping of axes to names or a list of axes, not {axes!r}")


def _axis(name: str, axis: object, rank: int) -> int:
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise UsageError(f"dynamic sizes: input {name!r} has {rank} axes, none is {axis!r}")
    return axis % rank


def from_shapes(
    given: object, arguments: Mapping[str, object], names: Mapping[int, str], ranks: Mapping[str, int]
) -> Axes:
    """Axes of inputs by name, of ``dynamic_shapes``.

    Args:
        given: By parameter or by position.
        arguments: Parameter to what was given for it.
        names: Identity of each tensor among the arguments to the name of its input.
        ranks: Name of an input to its rank.

    Raises:
        UsageError: It has not the structure of the arguments.
    """
    found: Axes = {}
    _walk(given, _as_structure(given, arguments), names, ranks, found, "dynamic_shapes")
    return found


def _as_structure(given: object, arguments: Mapping[str, object]) -> object:
    return dict(arguments) if isinstance(given, Mapping) else list(arguments.values())


def _walk(
    given: Any, value: object, names: Mapping[int, str], ranks: Mapping[str, int], found: Axes, where: str
) -> None:
    if given is None:
        return
    if id(value) in names:
        name = names[id(value)]
        axes = given if isinstance(given, Mapping) else dict(enumerate(_sequence(given, where)))
        for axis, dim in axes.items():
            place = _axis(name, axis, ranks[name])
            called = _called(dim, f"{name}_dim{place}")
            if called is not None:
                found.setdefault(name, {})[place] = called
        return
    if isinstance(given, Mapping) and isinstance(value, Mapping):
        for key, each in given.items():
            if key not in value:
                raise UsageError(f"{where}: there is no argument {key!r}; there are {', '.join(map(str, value))}")
            _walk(each, value[key], names, ranks, found, f"{where}[{key!r}]")
        return
    if not isinstance(value, list | tuple) or len(_sequence(given, where)) > len(value):
        raise UsageError(f"{where} has not the structure of the arguments")
    for index, each in enumerate(given):
        _walk(each, value[index], names, ranks, found, f"{where}[{index}]")


def _sequence(given: object, where: str) -> Sequence[object]:
    if isinstance(given, list | tuple):
        return given
    raise UsageError(f"{where} must be a mapping or a sequence, not {given!r}")


def _called(dim: object, otherwise: str) -> str | None:
    """The name of a dimension; None where it is fixed."""
    if dim is None or isinstance(dim, int):
        return None
    if isinstance(dim, str):
        return dim
    hint = str(getattr(getattr(dim, "type", None), "name", ""))  # torch.export.Dim.STATIC, AUTO, DYNAMIC
    if hint:
        return None if hint == "STATIC" else otherwise
    return str(getattr(dim, "__name__", otherwise))
