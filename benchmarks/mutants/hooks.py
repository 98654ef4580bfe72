"""Hooks that observe and disturb a rule's rewrite: what it builds, what it requires, what it returns.

Classes of the engine are patched for good, which is why this runs in processes of its own; but nothing happens unless
the rule at hand is being applied.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from benchmarks.mutants.guards import Guard, caller
from benchmarks.mutants.laws import same
from benchmarks.mutants.tape import Emission
from onnxrewrite.pattern.match import Match
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.transaction import Transaction
from onnxrewrite.ruletest.fuzz import fuzzer


class Listener:
    """Is asked at each step of a rewrite; this one changes nothing.

    Attributes:
        law: Set where the last step has found a change that makes no difference: the law that says so.
    """

    law: str = ""

    def strays(self, match: Match) -> bool:
        """True if the right rule would not have come by this match."""
        return False

    def emits(self, asked: Emission, build: Builder) -> Emission | ir.Value:
        """The node to build instead, or a value in its place; ``asked`` itself if nothing is changed."""
        return asked

    def asks(self, guard: Guard, holds: bool) -> bool:
        """True if the match may go on."""
        return holds

    def returns(self, results: list[ir.Value], match: Match, build: Builder) -> list[ir.Value]:
        """The results to return instead; the same list if nothing is changed."""
        return results


@dataclass
class Tally:
    """The effects of a mistake.

    Attributes:
        acted: The number of rewrites that went another way for it.
        emitted: The number of those that reached a graph, not counting what is not valid before and so means nothing.
        judged: The number of those in graphs that ran, so that a difference would have shown.
        laws: Laws of operators by which nodes that it changed compute what they did, to their number; such a change is
            none, and the node is built as the right rule asks for it.
    """

    acted: int = 0
    emitted: int = 0
    judged: int = 0
    laws: Counter[str] = field(default_factory=Counter)
    _tapes: list[Any] = field(default_factory=list, repr=False)

    def act(self, tape: object) -> None:
        """A rewrite on this tape goes another way."""
        if not self.has(tape):
            self._tapes = [tape]  # only the last one can still be committed
            self.acted += 1

    def has(self, tape: object) -> bool:
        """True if the last rewrite that went another way is the one on this tape."""
        return any(tape is each for each in self._tapes)


class _Attending:
    """The rewrite that is going on, if it is the rule's."""

    build: Builder | None = None


def attended(rule: Rule, listener: Listener) -> tuple[Rule, Tally]:
    """The rule with somebody listening, and a count of what that changes."""
    tally, now = Tally(), _Attending()
    _hook_tape(listener, tally, now)
    _hook_guards(listener, tally, now)
    _hook_judge(tally)
    commit = Transaction.commit

    def committed(self: Transaction, kept: Any = None) -> Any:
        if tally.has(self.build.nodes):
            is_again = all(map(_is_again, self.results, self.match.outputs))
            tally.emitted += not is_again
            tally.laws.update([_AGAIN] * is_again)
        return commit(self, kept)

    Transaction.commit = committed  # type: ignore[method-assign]

    @functools.wraps(rule.rewrite)
    def rewrite(m: Match, build: Builder) -> Sequence[ir.Value] | ir.Value:
        if listener.strays(m):
            tally.act(build.nodes)
        now.build = build
        try:
            made: Any = rule.rewrite(m, build)
        finally:
            now.build = None
        results = [made] if isinstance(made, ir.Value) else list(made) if made is not None else []
        returned = listener.returns(results, m, build)
        if returned is not results:
            tally.act(build.nodes)
        if listener.law:
            tally.laws[listener.law] += 1
            listener.law = ""
        return returned

    return dataclasses.replace(rule, rewrite=rewrite), tally


INVALID = "it is not valid by the standard"
"""The ladder's reason for not running an instance that has no meaning."""

_AGAIN = "it makes anew what is there"


def _is_again(new: ir.Value, old: ir.Value) -> bool:
    """True if a value is made as another one is: the same operator, of the same values."""
    mine, theirs = new.producer(), old.producer()
    if mine is None or theirs is None or new.index() != old.index():
        return False
    same = (mine.domain, mine.op_type, *mine.inputs) == (theirs.domain, theirs.op_type, *theirs.inputs)
    return same and {n: a.value for n, a in mine.attributes.items()} == {
        n: a.value for n, a in theirs.attributes.items()
    }


def _hook_tape(listener: Listener, tally: Tally, now: _Attending) -> None:
    node = Builder.node

    def emitted(
        self: Builder, op_type: str, inputs: Any, parameters: Any = None, outputs: int = 1
    ) -> tuple[ir.Value, ...]:
        if now.build is None or self.nodes is not now.build.nodes:
            return node(self, op_type, inputs, parameters, outputs)
        asked = Emission(self._domain, op_type, inputs, parameters or {})
        now.build = None  # constants that the listener makes are its own affair
        try:
            wrong = listener.emits(asked, self)
            law = same(asked, wrong, outputs, self) if wrong is not asked else ""
        finally:
            now.build = self
        if law:
            tally.laws[law] += 1
            wrong = asked
        elif wrong is not asked:
            tally.act(self.nodes)
        if isinstance(wrong, ir.Value):
            return (wrong,) * outputs
        return node(self, wrong.op_type, wrong.inputs, wrong.parameters, outputs)

    Builder.node = emitted  # type: ignore[method-assign]


def _hook_judge(tally: Tally) -> None:
    names: dict[str, Any] = vars(fuzzer)
    judge, known = names["judged"], 0

    def judged(*given: Any) -> Any:
        nonlocal known
        finding = judge(*given)
        made = tally.emitted - known
        if finding is not None and finding.status == "not run" and finding.reason == INVALID:
            tally.emitted -= made
        elif finding is not None and finding.status != "not run":
            tally.judged += made
        known = tally.emitted
        return finding

    names["judged"] = judged


def _hook_guards(listener: Listener, tally: Tally, now: _Attending) -> None:
    refuse, build_refuse = Match.refuse, Builder.refuse

    def passes(holds: bool) -> bool:
        if now.build is None:
            return holds
        may = listener.asks(caller(2), holds)
        if may != holds:
            tally.act(now.build.nodes)
        return may

    def requires(self: Match, condition: object, reason: str, at: Any = None) -> None:
        if not passes(bool(condition)):
            refuse(self, reason, at)

    def refuses(self: Match, reason: str, at: Any = None) -> None:
        if not passes(False):
            refuse(self, reason, at)

    def build_refuses(self: Builder, reason: str) -> None:
        if not passes(False):
            build_refuse(self, reason)

    Match.require = requires  # type: ignore[method-assign]
    Match.refuse = refuses  # type: ignore[method-assign,assignment]
    Builder.refuse = build_refuses  # type: ignore[method-assign]
