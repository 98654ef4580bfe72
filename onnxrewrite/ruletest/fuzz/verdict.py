"""The verdict of the ladder on a rule."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxrewrite.system.arrays import Feeds

PROVED, RING_CHECKED, TESTED, REFUTED, UNTRIED = "proved", "ring-checked", "tested", "refuted", "not tried"


PASSED = (PROVED, RING_CHECKED, TESTED)
"""Verdicts on rules of which nothing is known to be wrong."""


@dataclass(frozen=True)
class Counterexample:
    """A graph that a rule rewrites wrongly.

    Attributes:
        before: The graph.
        after: The graph after the rule and the lower stage.
        reason: The difference between them.
        variations: The changes that led to it from one of the rule's own graphs.
        target: The target that the rule rewrote for.
        feeds: The inputs at which they differ; None where it takes no inputs to see it.
    """

    before: ir.Model
    after: ir.Model
    reason: str
    variations: tuple[str, ...]
    target: str
    feeds: Feeds | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Verdict:
    """The result of trying a rule.

    Attributes:
        rule: Its name.
        status: ``proved``: both sides of each form compute the same at all sizes, and no instance showed otherwise;
            ``ring-checked``: some instances were equal in exact arithmetic, and all were against float64;
            ``tested``: they were against float64; ``refuted``: one was not, or the rule changed a graph by itself;
            ``not tried``: it fired on none that runs.
        reason: The reason why it is refuted, or could not be tried where no ``refusals`` tell that.
        instances: The number of graphs on which it fired and both sides ran.
        exact: The number of these that were equal in exact arithmetic.
        refused: The number of graphs that it left alone.
        refusals: Reasons for leaving them alone, or for trying none, to number of graphs, the most frequent first.
            Of reasons that differ only in names and numbers one stands for all.
        not_run: Reason to the number of graphs on which it fired and that could not be run.
        classes: The classes of values that were fed.
        assumes: The assumptions that were not put to the test.
        warnings: Findings that do not refute the rule: guards that may be too strict, differences that it assumes away.
        counterexample: The graph that refutes it, or None.
        proof: What was proved of it, or why it is not; empty where that was not asked for.
        script: SHA-256 of the proofs as a script of SMT-LIB; empty where there is none.
        seconds: The time it took.
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
    proof: str = ""
    script: str = ""
    seconds: float = 0.0

    @property
    def refuted(self) -> bool:
        """True if the rule is wrong."""
        return self.status == REFUTED

    @property
    def passed(self) -> bool:
        """True if it was tried and no difference was found."""
        return self.status in PASSED


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
