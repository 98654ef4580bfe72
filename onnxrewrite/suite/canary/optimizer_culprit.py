"""The optimizer of ONNX Runtime that makes a right result wrong, by sessions that disable some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_MOST_OTHERS = 3


@dataclass(frozen=True)
class Culprit:
    """Optimizers, by ONNX Runtime's names.

    Attributes:
        optimizers: The fewest found that mend the result when all of them are disabled; empty if none do.
        others: Further ones of which each mends it alone: they take part in the fault.
    """

    optimizers: tuple[str, ...]
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.optimizers:
            return "none that can be disabled by name"
        joint = " and ".join(self.optimizers)
        return f"{joint}; it needs {' and '.join(self.others)}, too" if self.others else joint


def culprit(names: Sequence[str], is_right: Callable[[tuple[str, ...]], bool]) -> Culprit:
    """The culprit among optimizers.

    To disable more is taken to mend no less.  Each search takes about log₂ of the number of names attempts.

    Args:
        names: Of optimizers; what contains others, such as a transformer of many rules, at the end.
        is_right: Tells whether the result is right while certain optimizers are disabled.
    """
    found = _fewest(names, is_right)
    if len(found) != 1:
        return Culprit(found)
    others: list[str] = []
    rest = [name for name in names if name not in found]
    while len(others) < _MOST_OTHERS:
        further = _fewest(rest, is_right)
        if len(further) != 1:
            break
        others += further
        rest = [name for name in rest if name not in further]
    return Culprit(found, tuple(name for name in others if not contains_others(name)))


def contains_others(name: str) -> bool:
    """True for a transformer that stands for many rules."""
    return name.endswith("RuleBasedTransformer")


def _fewest(names: Sequence[str], is_right: Callable[[tuple[str, ...]], bool]) -> tuple[str, ...]:
    """So few names that the result is right while they are disabled; none if it is not so with all."""
    if not names or not is_right(tuple(names)):
        return ()
    found: list[str] = []
    waiting = list(names)
    while not found or not is_right(tuple(found)):
        low, high = 0, len(waiting)  # with the first ``high`` it is right
        while high - low > 1:
            middle = (low + high) // 2
            if is_right((*found, *waiting[:middle])):
                high = middle
            else:
                low = middle
        found.append(waiting[high - 1])
        waiting = waiting[: high - 1]
    for name in list(found[:-1]):
        rest = tuple(each for each in found if each != name)
        if is_right(rest):
            found.remove(name)
    return tuple(found)
