"""Turning a rule into a mutant."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from benchmarks.mutants.guards import Guard, Vouched
from benchmarks.mutants.hooks import Listener, Tally, attended
from benchmarks.mutants.laws import unread
from benchmarks.mutants.mutant import Mutant
from benchmarks.mutants.right import Right
from benchmarks.mutants.tape import Emission, OnTape, Result
from benchmarks.mutants.terms import terms_of
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.terms import Call
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rewrite.rule import Rule


def mutate(rule: Rule, mutant: Mutant) -> tuple[Rule, Tally]:
    """The wrong rule, and what its mistake does as it runs.

    Patches classes and terms for good: to be called once, in a process of its own.
    """
    change = mutant.change
    if not isinstance(change, OnTape | Result | Guard | Vouched):
        right = Right(rule)
        change.patch(rule)
        return attended(rule, right)
    return attended(rule, _Mistaken(rule, change))


@dataclass
class _Mistaken(Listener):
    """Makes one mistake."""

    rule: Rule
    change: OnTape | Result | Guard | Vouched

    def emits(self, asked: Emission, build: Builder) -> Emission | ir.Value:
        is_meant = isinstance(self.change, OnTape) and self.change.operator == asked.operator
        return self.change.wrong(asked, build) if is_meant and isinstance(self.change, OnTape) else asked

    def asks(self, guard: Guard, holds: bool) -> bool:
        return holds or guard == self.change

    def returns(self, results: list[ir.Value], match: Match, build: Builder) -> list[ir.Value]:
        if isinstance(self.change, Vouched):
            return self._vouched(results, match)
        if not isinstance(self.change, Result) or self.change.index >= len(results):
            return results
        index = self.change.index
        wrong = self.change.wrong(results[index], match.dtype(match.outputs[index]), build)
        if wrong is results[index]:
            return results
        return [wrong if i == index else v for i, v in enumerate(results)]

    def _vouched(self, results: list[ir.Value], match: Match) -> list[ir.Value]:
        """The same results, as another list where the engine would have refused what nobody looked at."""
        assert isinstance(self.change, Vouched)
        call = terms_of(self.rule)[self.change.index]
        assert isinstance(call, Call)
        if call not in match:
            return results
        before = match.overlooked(self.rule.mentioned)
        node = match.node(call)
        if before == match.overlooked(self.rule.mentioned):
            return results
        looked_at = self.rule.mentioned[call]
        laws = [unread(node, name, match.facts) for name in node.attributes if name not in looked_at]
        if not all(laws):
            return [*results]
        self.law = "; ".join(sorted(set(laws)))
        return results
