"""What the ladder says of a rule."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

RING_CHECKED, TESTED, REFUTED, UNTRIED = "ring-checked", "tested", "refuted", "not tried"


@dataclass(frozen=True)
class Counterexample:
    """A graph that a rule rewrites wrongly.

    Attributes:
        before: The graph.
        after: What the rule, and the lower stage after it, made of it.
        reason: How they differ.
        variations: What was changed in one of the rule's own graphs to come to it.
        target: What the rule was asked to rewrite for.
        feeds: The inputs at which they differ; None where it takes no inputs to see it.
    """

    before: ir.Model
    after: ir.Model
    reason: str
    variations: tuple[str, ...]
    target: str
    feeds: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Verdict:
    """What came of trying a rule.

    Attributes:
        rule: Its name.
        status: ``ring-checked``: some instances were equal in exact arithmetic, and all were against float64;
            ``tested``: they were against float64; ``refuted``: one was not, or the rule changed a graph by itself;
            ``not tried``: it fired on none that runs.
        reason: Why it is refuted, or why it could not be tried where there are no ``refusals`` to tell that.
        instances: How many graphs it fired on, of which both sides ran.
        exact: How many of these were equal in exact arithmetic.
        refused: How many graphs it left alone.
        refusals: Why it left them alone, or was not tried on any: reason to number of graphs, the most frequent first.
            Of reasons that differ only in names and numbers one stands for all.
        not_run: Reason to the number of graphs on which it fired and that could not be run.
        classes: The classes of values that were fed.
        assumes: What was not put to the test.
        warnings: What does not refute the rule: guards that may be too strict, differences that it assumes away.
        counterexample: What refutes it.
        seconds: How long it took.
    """

    rule: str
    status: str
    reason: str = ""
    instances: int = 0
    exact: int = 0
    refused: int = 0
    refusals: Mapping[str, int] = field(default_factory=dict)
    not_run: Mapping[str, int] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    counterexample: Counterexample | None = None
    seconds: float = 0.0

    @property
    def refuted(self) -> bool:
        """Whether the rule is wrong."""
        return self.status == REFUTED

    @property
    def passed(self) -> bool:
        """Whether it was tried and no difference was found."""
        return self.status in (RING_CHECKED, TESTED)


class Reasons:
    """Counts reasons; of those that are the same in ``general``, the first stands for all."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._counts = Counter[str]()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, reason: str) -> None:
        """Count one more; none where it is empty."""
        if reason:
            self._counts[self._first.setdefault(general(reason), reason)] += 1

    def counts(self) -> dict[str, int]:
        """Reason to number, the most frequent first."""
        return dict(self._counts.most_common())


def general(reason: str) -> str:
    """A reason without what is of one graph only: names, numbers, what a runtime adds."""
    told = re.sub(r"`[^`]*`|\([^)]*\)|\[[^\]]*\]|'[^']*'|-?\b\d[\d.e+-]*\b", "…", reason)
    return told.partition("Status Message")[0].strip()
