"""Never slower: what a run of ``apply`` measures, or has told by a cost model, and what it leaves out for that.

Rewrites of the lower stage are chosen for the whole model: see ``kernel_choice.py``.  The result is timed against the
original.  A rule that slows it down all the same is found by bisection and left out, and if that does not help, all of
them.  What was measured before is remembered, so that the same run makes the same choices; and a run that repeats
another one is told what that one chose.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import onnx
import onnx_ir as ir

from onnxrewrite.checks.rewrite_log import Verdicts
from onnxrewrite.compiler.loop import Clock, RewriteLoop, Round
from onnxrewrite.compiler.request import Request
from onnxrewrite.compiler.result import Speed
from onnxrewrite.errors import NOT_RUN, ModelError, reason
from onnxrewrite.ir.target import Target
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.rewrite.trace import Trace

if TYPE_CHECKING:
    from onnxrewrite.checks.model import Baseline
    from onnxrewrite.compiler.kernel_choice import KernelChoice
    from onnxrewrite.measure.ab_timing import Comparison
    from onnxrewrite.measure.choice import Scale
    from onnxrewrite.measure.cost_models import Cost
    from onnxrewrite.measure.database.known import Known
    from onnxrewrite.measure.timing import Interval
    from onnxrewrite.runtime.settings import Setting

Opened: TypeAlias = onnx.ModelProto | str

_TAKES = "takes {:.2f} times as long as the original"

_MOST = 3
"""If the whole is slower without so many rules, too, it is left as it was."""


def measurements(request: Request, verdicts: Verdicts) -> Known | None:
    """The source of what is known of speed; None where that is not asked, or the choices of an earlier run are known.

    Raises:
        UsageError: The file of measurements cannot be used.
    """
    if request.lowering != "fastest" or verdicts.losses is not None:
        return None
    from onnxrewrite.measure.database.known import Database, Frozen, frozen

    if request.model_of_cost is not None:
        return Frozen({}, "")
    return frozen(request.measurements, request.signed_by) if request.measurements is not None else Database()


def _name(request: Request) -> str:
    """The name of the cost model; empty for the clock."""
    if request.model_of_cost is None:
        return ""
    from onnxrewrite.measure.cost_models import name_of

    return name_of(request.model_of_cost)


class SpeedGuard:
    """Measures the speed of one run, and leaves out rules that slow its result down.

    Args:
        rounds: Makes the results; is told what to leave out, and asks what a rewrite costs.
        rules: The rules.
        target: The target that the result must run on.
        request: The request.
        verdicts: The choices of an earlier run.
        clock: Told of progress.
        known: Earlier measurements; None where they are not asked for.

    Attributes:
        speed: The measurements.
    """

    def __init__(
        self,
        rounds: RewriteLoop,
        rules: RuleSet,
        target: Target,
        request: Request,
        verdicts: Verdicts,
        clock: Clock,
        known: Known | None,
    ):
        self.speed = Speed(request.lowering, threads=request.threads, cost=_name(request))
        self._loop = rounds
        self._rules = {r.name: r for r in rules}
        self._target = target
        self._request = request
        self._verdicts = verdicts
        self._clock = clock
        self._kernels: KernelChoice | None = None
        self._known = known

    def start(self, original: Opened | None, baseline: Baseline | None) -> None:
        """Before the first round; ``original`` is None where nothing is to be run, and ``baseline`` knows whether it
        runs."""
        if self._repeats:
            self.speed.slower = dict(self._verdicts.slow)
            self._loop.without |= self.speed.slower.keys()
            return
        self.speed.skipped = self._reason_to_skip(original) or (baseline.hindrance if baseline is not None else "")
        if not self.speed.skipped:
            assert original is not None
            try:
                self._measure(original, baseline)
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
        if self._kernels is not None:
            self.speed.weighed = self._kernels.weighed
            self.speed.assumed = dict(Counter(self._kernels.chooser.assumed.values()))
            self.speed.raced = self._kernels.raced
        if self._kernels is None or not made.trace.applied:
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

        assert self._kernels is not None
        most = 1 + self._kernels.models.margin
        seen = self._timed(made.model)
        slow = self._brakes(made.trace, rewrite, most) if seen is not None and is_slower(seen, most) else []
        if slow and seen is not None:
            takes = "costs {:.2f} times what the original does" if self.speed.cost else _TAKES
            takes = takes.format(seen.median) if math.isfinite(seen.median) else "does not open as it is optimized"
            reason = f"with it the model {takes}"
            self.speed.slower |= dict.fromkeys(slow, reason)
            self._loop.without |= set(slow)
            return True
        if seen is not None and math.isinf(seen.median):
            raise ModelError("ONNX Runtime does not open the result as it optimizes it; disable its optimizations")
        self.speed.ratio = seen
        self._choose_level(made.model)
        self._remember(made.model)
        return False

    @property
    def notes(self) -> list[str]:
        """Remarks on the measurements that were used."""
        return self._known.notes if self._known is not None else []

    @property
    def _repeats(self) -> bool:
        return self._verdicts.losses is not None

    def _reason_to_skip(self, original: Opened | None) -> str:
        if self.speed.lower != "fastest":
            return f"not asked for (--lower {self.speed.lower})"
        if self._request.model_of_cost is not None:
            return ""
        if original is None:
            return "nothing is run (--check off)"
        if self._target.provider is None:
            lacked = self._target.runs_on
            return f"{lacked} is not here" if lacked else f"target {self._target.name} is no runtime"
        return ""

    def _measure(self, original: Opened, baseline: Baseline | None) -> None:
        from onnxrewrite.compiler.kernel_choice import KernelChoice
        from onnxrewrite.measure.choice import Chooser

        asked = self._request
        cost = asked.model_of_cost
        scale, models = self._by_clock(original, baseline) if cost is None else self._by_cost(original, cost)
        chooser = Chooser(self._rules, self._loop.lower, self.speed.binding, scale, asked.seed)
        self._kernels = self._loop.kernels = KernelChoice(chooser, models, (self._target.name, asked.withheld))

    def _by_clock(self, original: Opened, baseline: Baseline | None) -> tuple[Scale, Comparison]:
        from onnxrewrite.inputs.workload import workload
        from onnxrewrite.measure.ab_timing import ABTiming
        from onnxrewrite.measure.region_timing import RegionTiming
        from onnxrewrite.measure.timing import Allowance

        asked = self._request
        session = baseline.session if baseline is not None else None
        session = None if isinstance(session, str) else session
        found = workload(original, dims=asked.dims, inputs=asked.inputs, seed=asked.seed, session=session)
        self.speed.binding = found.binding
        assert self._known is not None
        setting, known, allowance = self._setting(), self._known, Allowance(asked.budget)
        timing = ABTiming(original, found, setting, known, allowance)
        return RegionTiming(setting, allowance, known, lambda: timing.seconds), timing

    def _by_cost(self, original: Opened, cost: Cost) -> tuple[Scale, Comparison]:
        from onnxrewrite.inputs.workload import at_typical_sizes
        from onnxrewrite.measure.cost_comparison import CostComparison

        asked = self._request
        found = at_typical_sizes(original, dims=asked.dims, inputs=asked.inputs, seed=asked.seed)
        self.speed.binding = found.binding
        comparison = CostComparison(original, found.binding, found.feeds, cost)
        return comparison, comparison

    def _setting(self) -> Setting:
        from onnxrewrite.runtime.settings import Setting

        assert self._target.provider is not None
        return Setting(self._target.provider, self._request.threads)

    def _timed(self, model: ir.Model) -> Interval | None:
        """Time or cost to the original's; infinite where it does not open as ONNX Runtime optimizes it."""
        from onnxrewrite.measure.ab_timing import Unopened
        from onnxrewrite.measure.timing import Interval
        from onnxrewrite.runtime.references import by_reference

        assert self._kernels is not None
        with by_reference(model) as candidate:
            try:
                return self._kernels.models.against(candidate)
            except Unopened:
                return Interval(math.inf, math.inf, math.inf)

    def _brakes(self, trace: Trace, rewrite: Callable[[], Round], most: float) -> list[str]:
        """The rules to leave out of a result that is slower than the original: the one that makes it so, all of them
        once that was found often enough or the time is up, none where the original in the same opset is as slow."""
        from onnxrewrite.measure.ab_timing import is_slower, slowest

        order = [stage.name.lower() for stage in Stage]
        groups = sorted(trace.counts(), key=lambda name: order.index(self._rules[name].stage.name.lower()))
        if len(self.speed.slower) >= _MOST or self._is_time_up:
            return groups
        before = set(self._loop.without)

        def timed(without: Sequence[str]) -> Interval | None:
            self._loop.without = before | set(without)
            return self._timed(rewrite().model)

        def is_slow(without: Sequence[str], most: float) -> bool:
            seen = timed(without)
            return seen is not None and is_slower(seen, most)

        try:
            bare = timed(groups)
            allowed = max(most, bare.median if bare is not None else 0.0)  # another opset alone can cost that
            name = slowest(groups, lambda without: is_slow(without, allowed))
        finally:
            self._loop.without = before
        return [name] if name is not None else []

    @property
    def _is_time_up(self) -> bool:
        return self._kernels is not None and self._kernels.models.is_time_up

    def _choose_level(self, model: ir.Model) -> None:
        from onnxrewrite.runtime.references import by_reference

        assert self._kernels is not None
        with by_reference(model) as candidate:
            self.speed.level, self.speed.level_ratio = self._kernels.models.best_level(candidate)

    def _remember(self, model: ir.Model) -> None:
        """Store with the model how it is to be opened, where that is not the default."""
        from onnxrewrite.runtime.opening import SESSION_KEY, options_for

        level = self._verdicts.level if self._repeats else self.speed.level
        self.speed.level = level
        if level != "all":
            model.metadata_props[SESSION_KEY] = options_for(level, model.metadata_props.get(SESSION_KEY))
