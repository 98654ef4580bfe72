"""Never slower: what a run of ``apply`` measures, and what it leaves out for that.

Rewrites of the lower stage are weighed one by one where they are; then the whole result is timed against the original,
and rules that slow it down are found by bisection and left out.  What was measured before is remembered, so that the
same run makes the same choices; and a run that repeats another one is told what that one chose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import onnx
import onnx_ir as ir

from onnxrewrite.checks.rewrite_log import Verdicts
from onnxrewrite.compiler.loop import Clock, RewriteLoop, Round
from onnxrewrite.compiler.request import Request
from onnxrewrite.compiler.result import Speed
from onnxrewrite.errors import NOT_RUN, reason
from onnxrewrite.ir.target import Target
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.rewrite.trace import Trace

if TYPE_CHECKING:
    from onnxrewrite.measure.ab_timing import ABTiming
    from onnxrewrite.measure.choice import Chooser
    from onnxrewrite.measure.database.known import Known
    from onnxrewrite.measure.timing import Interval
    from onnxrewrite.runtime.settings import Setting

Opened: TypeAlias = onnx.ModelProto | str

_MOST = 3
"""So many rules at most are left out because the whole is slower with them."""


class SpeedGuard:
    """Measures the speed of one run, and leaves out rules that slow its result down.

    Args:
        rounds: Makes the results; is told what to leave out, and asks what a rewrite costs.
        rules: The rules.
        target: The target that the result must run on.
        request: The request.
        verdicts: The choices of an earlier run.
        clock: Told of progress.

    Attributes:
        speed: The measurements.

    Raises:
        UsageError: The file of measurements cannot be used.
    """

    def __init__(
        self,
        rounds: RewriteLoop,
        rules: RuleSet,
        target: Target,
        request: Request,
        verdicts: Verdicts,
        clock: Clock,
    ):
        self.speed = Speed(request.lowering, threads=request.threads)
        self._loop = rounds
        self._rules = {r.name: r for r in rules}
        self._target = target
        self._request = request
        self._verdicts = verdicts
        self._clock = clock
        self._chooser: Chooser | None = None
        self._timing: ABTiming | None = None
        self._known = self._measurements()

    def start(self, original: Opened | None, hindrance: str) -> None:
        """Before the first round; ``original`` is None where nothing is to be run, and ``hindrance`` says why it cannot
        be, if that is known."""
        if self._repeats:
            self.speed.slower = dict(self._verdicts.slow)
            self._loop.without |= self.speed.slower.keys()
            return
        self.speed.skipped = self._reason_to_skip(original) or hindrance
        if not self.speed.skipped:
            assert original is not None
            try:
                self._measure(original)
            except NOT_RUN as error:
                self.speed.skipped = reason(error)
        if self.speed.skipped:
            self._loop.without |= {n for n, r in self._rules.items() if r.needs_speedup}

    def finish(self, made: Round, rewrite: Callable[[], Round]) -> bool:
        """After a round whose result is right: whether a rule slows it down, which is left out from now on.

        Args:
            made: The round.
            rewrite: Makes another one.
        """
        if self._chooser is not None:
            self.speed.weighed = list(self._chooser.weighed.values())
            self.speed.assumed = dict(Counter(self._chooser.assumed.values()))
        if self._timing is None or not made.trace.applied:
            self._remember(made.model)
            return False
        with self._clock.phase("measure"):
            try:
                return self._slowed(made, rewrite)
            except NOT_RUN as error:  # it runs unoptimized, and not as ONNX Runtime optimizes it
                self.speed.skipped = reason(error)
                return False

    def _slowed(self, made: Round, rewrite: Callable[[], Round]) -> bool:
        from onnxrewrite.measure.ab_timing import is_slower

        seen = self._timed(made.model)
        if seen is not None and is_slower(seen) and len(self.speed.slower) < _MOST:
            name = self._brake(made.trace, rewrite)
            if name is not None:
                self.speed.slower[name] = f"with it the model takes {seen.median:.2f} times as long as the original"
                self._loop.without.add(name)
                return True
        self.speed.ratio = seen
        self._choose_level(made.model)
        self._remember(made.model)
        return False

    @property
    def notes(self) -> list[str]:
        """Remarks on the measurements that were used."""
        return self._known.notes if self._known is not None else []

    def _measurements(self) -> Known | None:
        """The source of what is known of speed; None where that is not asked."""
        if self._request.lowering != "fastest" or self._repeats:
            return None
        from onnxrewrite.measure.database.known import Database, frozen

        path = self._request.measurements
        return frozen(path, self._request.signed_by) if path is not None else Database()

    @property
    def _repeats(self) -> bool:
        return self._verdicts.losses is not None

    def _reason_to_skip(self, original: Opened | None) -> str:
        if self.speed.lower != "fastest":
            return f"not asked for (--lower {self.speed.lower})"
        if original is None:
            return "nothing is run (--check off)"
        if self._target.provider is None:
            lacked = self._target.runs_on
            return f"{lacked} is not here" if lacked else f"target {self._target.name} is no runtime"
        return ""

    def _measure(self, original: Opened) -> None:
        from onnxrewrite.inputs.workload import workload
        from onnxrewrite.measure.ab_timing import ABTiming
        from onnxrewrite.measure.choice import Chooser

        asked = self._request
        found = workload(original, dims=asked.dims, inputs=asked.inputs, seed=asked.seed)
        self.speed.binding = found.binding
        assert self._known is not None
        setting, known = self._setting(), self._known
        self._chooser = Chooser(self._rules, self._loop.lower, found.binding, setting, asked.seed, asked.budget, known)
        self._loop.cost = self._chooser
        self._timing = ABTiming(original, found, setting, known)

    def _setting(self) -> Setting:
        from onnxrewrite.runtime.settings import Setting

        assert self._target.provider is not None
        return Setting(self._target.provider, self._request.threads)

    def _timed(self, model: ir.Model) -> Interval | None:
        from onnxrewrite.runtime.references import by_reference

        assert self._timing is not None
        with by_reference(model) as candidate:
            return self._timing.against(candidate)

    def _brake(self, trace: Trace, rewrite: Callable[[], Round]) -> str | None:
        """The rule that makes the result slower than the original; lowered ones are suspected first."""
        from onnxrewrite.measure.ab_timing import MARGIN, is_slower, slowest

        order = [stage.name.lower() for stage in Stage][::-1]
        groups = sorted(trace.counts(), key=lambda name: order.index(self._rules[name].stage.name.lower()))
        before = set(self._loop.without)

        def timed(without: Sequence[str]) -> Interval | None:
            self._loop.without = before | set(without)
            return self._timed(rewrite().model)

        def is_slow(without: Sequence[str], most: float) -> bool:
            seen = timed(without)
            return seen is not None and is_slower(seen, most)

        try:
            bare = timed(groups)
            most = max(1 + MARGIN, bare.median if bare is not None else 0.0)  # another opset alone can cost that
            return slowest(groups, lambda without: is_slow(without, most))
        finally:
            self._loop.without = before

    def _choose_level(self, model: ir.Model) -> None:
        from onnxrewrite.runtime.references import by_reference

        assert self._timing is not None
        with by_reference(model) as candidate:
            self.speed.level, self.speed.level_ratio = self._timing.best_level(candidate)

    def _remember(self, model: ir.Model) -> None:
        """Store with the model how it is to be opened, where that is not the default."""
        from onnxrewrite.runtime.opening import SESSION_KEY, options_for

        level = self._verdicts.level if self._repeats else self.speed.level
        self.speed.level = level
        if level != "all":
            model.metadata_props[SESSION_KEY] = options_for(level, model.metadata_props.get(SESSION_KEY))
