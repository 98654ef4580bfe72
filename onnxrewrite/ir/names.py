"""Names in use, and new ones that are not, in time that grows with their number only."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir


class Names:
    """Names in use.

    Args:
        taken: Those that are in use from the start.
    """

    def __init__(self, taken: Iterable[str] = ()):
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """``base``, or ``base_1``, ``base_2``, ...: the first that is not in use; it is in use now."""
        name, number = base, self._numbers.get(base, 0)
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._numbers[base] = number
        self._taken.add(name)
        return name

    def within(self, base: str, part: str) -> str:
        """A fresh ``base/part``; of a base that is one of these itself, a further one beside it, so that what is made
        anew again and again has no name that grows."""
        head, _, last = base.rpartition("/")
        is_one = bool(head) and (last == part or (last.startswith(f"{part}_") and last[len(part) + 1 :].isdigit()))
        return self.fresh(f"{head}/{part}" if is_one else f"{base}/{part}")


def repeated(names: Iterable[str]) -> str | None:
    """The first name that is there a second time; None where each is there once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def rename(value: ir.Value, name: str) -> None:
    """Rename a value, but not its tensor: other models may share that."""
    tensor = value.const_value
    old = tensor.name if tensor is not None else None
    value.name = name
    if tensor is not None:
        tensor.name = old
