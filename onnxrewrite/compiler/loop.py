"""Rounds of rewriting: one model, again and again, each time without what the rounds before have shown to be wrong.

The driver is handed its checks as a function, so that rewriting knows nothing of verification; and it is deterministic,
so that what is not left out comes out as before.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.checks.rewrite_log import Loss, RewriteLog, Verdicts
from onnxrewrite.compiler.opsets import Opsets
from onnxrewrite.compiler.request import Request
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.target import Target
from onnxrewrite.rewrite.driver import Driver, Review, SiteCheck, make_runnable
from onnxrewrite.rewrite.finish import finish
from onnxrewrite.rewrite.purity import ImpureRule
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.rewrite.trace import Key, Trace

if TYPE_CHECKING:
    from onnxrewrite.checks.passed import Memory
    from onnxrewrite.checks.rewrites import SiteChecker
    from onnxrewrite.compiler.kernel_choice import KernelChoice

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told of progress: the phase (a stage, or a check), what is done of it, what waits; 0 and 0 where nobody knows."""


class Clock:
    """Tells of phases, and how long they took.

    Attributes:
        seconds: Phase to time.
    """

    def __init__(self, progress: Progress | None):
        self.progress = progress
        self.seconds: Counter[str] = Counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of the block as this phase's."""
        self.tell(name, 0, 0)
        start = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - start  # type: ignore[assignment]

    def tell(self, name: str, done: int, waiting: int) -> None:
        """Tell how much of a phase is done, and how much waits."""
        if self.progress is not None:
            self.progress(name, done, waiting)

    def stage(self, stage: Stage, visited: int, waiting: int) -> None:
        """Told by the driver how far it is."""
        self.tell(stage.name.lower(), visited, waiting)


class Round(NamedTuple):
    """One result: all that is known of it belongs to it, whatever later rounds try.

    Attributes:
        model: The rewritten copy.
        trace: The trace of its rewrites, each with its record.
        rewrite_log: The rewrites that were turned down on the way.
        sites: The checks of its rewrites; None where there were none.
    """

    model: ir.Model
    trace: Trace
    rewrite_log: RewriteLog
    sites: SiteChecker | None


class RewriteLoop:
    """Rewrites copies of one model.

    Args:
        opsets: The model.
        rules: The rules.
        target: The target that the result must run on.
        request: The request.
        keep_types: True if the types of inner values stay in the result.
        verdicts: The verdicts of an earlier run's checks.
        clock: Told of progress.

    Attributes:
        kernels: Chooses the rewrites of the lower stage; None where they are not chosen.
        memory: Remembers checks that have passed; None where all are to be run.
        without: The names of rules that are left out.
    """

    def __init__(
        self,
        opsets: Opsets,
        rules: RuleSet,
        target: Target,
        request: Request,
        *,
        keep_types: bool,
        verdicts: Verdicts,
        clock: Clock,
    ):
        self.kernels: KernelChoice | None = None
        self.memory: Memory | None = None
        self.without: set[str] = set()
        self._opsets = opsets
        self._rules = rules
        self._target = target
        self._request = request
        self._keep_types = keep_types
        self._verdicts = verdicts
        self._clock = clock
        self._impure: dict[str, ImpureRule] = {}
        self._sites: SiteChecker | None = None
        # Of all rounds: who repeats this run takes the same way through those that came to nothing.
        self._declined: list[Loss] = []

    def rewrite(self, quarantine: set[Key]) -> Round:
        """Rewrite a copy of the model, but for the sites in ``quarantine``.

        A raised operator that the lower stage could not make legal after all is not raised in the next round.  Nor does
        a rule take part in it that changed the graph by itself.  Where the raise stage needs a newer opset, the model
        is converted.
        """
        absent = frozenset[Hashable]([*self.without, *quarantine])
        failed: list[Loss] = []  # what is not raised in the next attempt was turned down in this
        while True:
            try:
                found = self._lowered(quarantine, absent, failed)
            except ImpureRule as error:
                self._impure[error.rule] = error
                continue
            if not self._opsets.returns(absent, found.trace):
                break
        self._opsets.settle(absent)
        if self._sites is not None and self._sites.passed is not None:
            self._sites.passed.keep()
        found.trace.warnings += self._opsets.notes(absent, found.trace)
        for tampering in self._impure.values():
            found.trace.refuse(tampering.rule, tampering.value, tampering.reason)
            found.trace.warnings.append(f"{tampering}; it was left out")
        return found

    def _lowered(self, quarantine: set[Key], absent: frozenset[Hashable], failed: list[Loss]) -> Round:
        banned = set(quarantine)
        unlowerable: dict[Key, str] = {}
        while True:
            with self._clock.phase("rewrite"):
                sites = self._site_checker() if self._request.check != "off" else None
                rewrite_log = RewriteLog(sites, self.kernels, self._verdicts, failed=failed, declined=self._declined)
                driver = self._driver(self._opsets.source(absent), banned, rewrite_log)
                trace = driver.run(last=Stage.RAISE)
                if self._opsets.grows(absent, trace) or self._opsets.returns(absent, trace):
                    continue
                if self.kernels is not None:
                    lowered = functools.partial(self._copy_lowered, driver.model, banned)
                    round_ = (io.opset(driver.model), frozenset(unlowerable))
                    self.kernels.choose(round_, driver.model, banned, lowered)
                driver.run(first=Stage.LOWER)
                left = _unlowered(driver)
                driver.wish(left)
                if left and self._opsets.grows(absent, trace):  # what would lower it is slower, and was declined
                    continue
                stuck = {k: self._stuck(node, trace) for node in left for k in _makers(node, trace)}
            if not stuck.keys() - banned:
                break
            banned |= stuck.keys()
            unlowerable |= stuck
        for (rule, value), reason in unlowerable.items():
            trace.refuse(rule, value, reason)
        finish(driver.model, keep_types=self._keep_types)
        return Round(driver.model, trace, replace(rewrite_log, declined=[*self._declined]), sites)

    def _stuck(self, node: ir.Node, trace: Trace) -> str:
        """The reason why a node stayed too new, with that of the first rule that might have lowered it."""
        values = [o.name for o in node.outputs if o.name]
        lowering = (trace.refused.get(r.name, {}) for r in self._taking_part() if r.stage is Stage.LOWER)
        reasons = (refused[v] for refused in lowering for v in values if v in refused)
        return ": ".join([f"{node.op_type} could not be lowered after all", *itertools.islice(reasons, 1)])

    def _copy_lowered(
        self, model: ir.Model, banned: set[Key], loss: SiteCheck, without: Collection[Key]
    ) -> ir.Model | None:
        """A copy of a raised model, lowered as ``loss`` says; None if something is left that is too new."""
        driver = Driver(
            io.load(model),
            self._taking_part(),
            self._target,
            review=Review(self._site_checker() if self._request.check != "off" else None, loss),
            quarantine=banned.union(without),
            withheld=self._request.withheld,
        )
        driver.run(first=Stage.LOWER)
        if _unlowered(driver):
            return None
        finish(driver.model, keep_types=self._keep_types)
        return driver.model

    def _driver(self, source: ir.Model, banned: set[Key], rewrite_log: RewriteLog) -> Driver:
        """A driver for a round, with checks that count this round only."""
        return Driver(
            source.clone(),  # was loaded, and has not changed since: there is nothing to repair
            self._taking_part(),
            self._target,
            review=Review(rewrite_log, rewrite_log.weigh, rewrite_log.record, self._request.conflicts),
            quarantine=banned,
            progress=self._clock.stage if self._clock.progress is not None else None,
            withheld=self._request.withheld,
        )

    def _taking_part(self) -> list[Rule]:
        return [r for r in self._rules if r.name not in self._impure and r.name not in self.without]

    def _site_checker(self) -> SiteChecker:
        """One that counts its own sites, and checks nothing that another one of this run has checked."""
        from onnxrewrite.checks.passed import Passed
        from onnxrewrite.checks.rewrites import SiteChecker
        from onnxrewrite.checks.site_proof import SiteProver

        if self._sites is None:
            prover = SiteProver() if self._request.only_proved else None
            passed = Passed(self.memory) if self.memory is not None else None
            self._sites = SiteChecker(lower=self.lower, seed=self._request.seed, prover=prover, passed=passed)
        self._sites = self._sites.anew()
        return self._sites

    def lower(self, model: ir.Model) -> None:
        """Make the replacement of one site runnable."""
        make_runnable(model, self._taking_part(), self._target)


def _unlowered(driver: Driver) -> list[ir.Node]:
    """Nodes that are written for a newer opset than the model's."""
    return [n for g in scopes(driver.model) for n in g if driver.facts(g).is_newer(n)]


def _makers(node: ir.Node, trace: Trace) -> list[Key]:
    """The rewrites that emitted a node."""
    names = {o.name for o in node.outputs}
    return [a.key for a in trace.applied if names & {*a.values, a.value}]
