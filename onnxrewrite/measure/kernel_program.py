"""The 0/1 program that picks the rewrites of the lower stage for a whole model, solved by HiGHS.

Each rewrite at each place is a variable.  A node can be taken away by one rewrite only, and a built one only where the
rewrite that built it is chosen; so those that compete for a node exclude each other, and one that builds on another
needs it.  The gains in seconds are added up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onnxrewrite.system.solver import Program

Part: TypeAlias = str | tuple[int, int]
"""A node: of the model before its lower stage, by its first output, or built: by which step, and the how manieth."""

_UNIT = 1e-6
"""Seconds in which gains are counted: the solver works with numbers around 1."""

_MOST = 1e6
"""The largest gain in the solver's eyes; of a cost model the unit may be bytes."""


@dataclass(frozen=True)
class Step:
    """The effect of one rewrite on the nodes of a model.

    Attributes:
        covers: The nodes that it matches.
        removes: Those of them that are gone afterwards.
        replaces: Those of these that the result must not have.
    """

    covers: frozenset[Part]
    removes: frozenset[Part]
    replaces: frozenset[Part]


def best(steps: Sequence[Step], gains: Sequence[float]) -> frozenset[int] | None:
    """The steps, by number, that together gain the most; None if none of all sets of them is possible.

    Args:
        steps: The rewrites; one that builds on another comes after it.
        gains: Seconds that each saves, or what a cost model counts.
    """
    if not steps:
        return frozenset()
    program = Program()
    unit = max(_UNIT, max(map(abs, gains)) / _MOST)
    chosen = [program.addBinary(obj=gain / unit) for gain in gains]
    remove, replace = defaultdict[Part, list[int]](list), defaultdict[Part, list[int]](list)
    for number, step in enumerate(steps):
        for part in sorted(step.covers, key=str):  # the order may decide which of two equal optima is found
            if part in step.removes:
                remove[part].append(number)
            if part in step.replaces:
                replace[part].append(number)
            if isinstance(part, tuple):
                program.addConstr(chosen[number] <= chosen[part[0]])
    for numbers in remove.values():
        if len(numbers) > 1:
            program.addConstr(program.qsum(chosen[n] for n in numbers) <= 1)
    for part, numbers in replace.items():
        there = chosen[part[0]] if isinstance(part, tuple) else 1
        program.addConstr(program.qsum(chosen[n] for n in numbers) >= there)
    program.maximize()
    if not program.is_solved:
        return None
    return frozenset(n for n, value in enumerate(program.vals(chosen)) if value > 0.5)
