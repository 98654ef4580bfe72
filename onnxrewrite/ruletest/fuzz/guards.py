"""Guards that may be too strict: what a rule refuses, rewritten all the same, and compared.

That both sides are equal on a few graphs does not show that a guard can go; where they never differ, have a look.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from onnxrewrite.pattern.match import overruled
from onnxrewrite.rewrite.purity import ImpureRule
from onnxrewrite.rewrite.rule import Assumption
from onnxrewrite.ruletest.fuzz.instances import Instance, fitted
from onnxrewrite.ruletest.fuzz.judge import judged
from onnxrewrite.ruletest.fuzz.verdict import general

ENOUGH = 3
"""So many graphs on which both sides are equal make a guard worth a look."""

_MOST = 6
"""So many graphs are looked at for each reason to refuse."""


@dataclass
class Guards:
    """Results of overruling a rule's guards on the graphs that it refused.

    Attributes:
        equal: Reason, without names and numbers, to the graphs on which both sides were equal.
        needed: Reasons for which they were not, or nothing could be built.
    """

    equal: dict[str, int] = field(default_factory=dict)
    needed: dict[str, int] = field(default_factory=dict)

    def ask(self, instance: Instance, assumes: Collection[Assumption], seed: int) -> None:
        """Overrule the guard that refused an instance."""
        reason = general(instance.refusal)
        if not reason or self.equal.get(reason, 0) + self.needed.get(reason, 0) >= _MOST:
            return
        try:
            with overruled():
                forced = fitted(instance.trial, instance.before, instance.variations)
            finding = judged(forced, assumes, seed)
        except ImpureRule:  # a guard may keep the rule from that
            finding = None
        kind = self.equal if finding is not None and finding.status == "equal" else self.needed
        kind[reason] = kind.get(reason, 0) + 1

    def warnings(self) -> tuple[str, ...]:
        """The reasons for which overruling made no difference, ever."""
        return tuple(
            f"a guard may be too strict: without “{reason}” both sides were equal on all of {count} graphs"
            for reason, count in self.equal.items()
            if count >= ENOUGH and reason not in self.needed
        )
