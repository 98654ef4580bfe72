"""From a model to a checked, optimized model: load, rewrite, check, and undo what was wrong.

A rewrite that a check of the whole model finds guilty is quarantined and the run is repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.checks.rewrite_log import Verdicts
from onnxrewrite.compiler.bisection import bisect
from onnxrewrite.compiler.loop import Clock, Progress, RewriteLoop, Round
from onnxrewrite.compiler.opsets import Opsets
from onnxrewrite.compiler.request import CheckLevel, Request
from onnxrewrite.compiler.result import Checks, Result
from onnxrewrite.compiler.speed_guard import SpeedGuard, measurements
from onnxrewrite.errors import CheckError
from onnxrewrite.io.preserved import note_on_defaults
from onnxrewrite.ir.sums import named_sums, with_plain_names
from onnxrewrite.ir.target import Target
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import stuck
from onnxrewrite.rewrite.finish import has_inner_types
from onnxrewrite.rewrite.preparation import prepared
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.rewrite.trace import Key
from onnxrewrite.runtime import limited

if TYPE_CHECKING:
    from onnxrewrite.checks.findings import Fault, ModelCheck
    from onnxrewrite.checks.model import Baseline
    from onnxrewrite.measure.database.known import Known
    from onnxrewrite.measure.decision import OpsetMemory
    from onnxrewrite.runtime.session import Session

_SAMPLES = {"full": 3, "fast": 1}
_WRONG_RULE = 2
"""A rule that was found guilty so often is not trusted at any other site of the model."""

_MAX_CULPRITS = 16
"""With more wrong rewrites than this, something else is wrong."""


def apply(
    source: io.Source, request: Request, *, progress: Progress | None = None, verdicts: Verdicts | None = None
) -> Result:
    """Rewrite a model and check the result.

    Args:
        source: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is not changed.
        request: The request.
        progress: Called with (phase, nodes visited, nodes waiting).
        verdicts: The verdicts of an earlier run's checks; what they turned down is not tried again.

    Raises:
        UsageError, ModelError, RuleError: Bad arguments, model or rules.
        CheckError: The result is not equal to the original, and undoing rewrites does not mend it.
    """
    library = registry.load(request.sources)
    library.add(r for r in request.rules if not isinstance(r, str))
    notes = library.broken
    original, known = io.load(source), verdicts or Verdicts()
    rules = library.select(request.only, request.without)
    with limited.run_limit(request.run_limit):
        try:
            result = _Run(original, request, rules, progress, known).execute()
        except _NoSum as error:
            result = _Run(original, replace(request, named_sums=False), rules, progress, known).execute()
            notes = [str(error), *notes]
    result.notes[:0] = [*io.repairs(original), *notes]
    result.asked = _asked(library, request)
    return result


def _asked(library: registry.Registry, request: Request) -> frozenset[str]:
    """The names of the rules that somebody named, alone or in a set, or gave."""
    sets: list[Rule | RuleSet] = [library.named(name) for name in request.only]
    for each in request.rules:
        sets += registry.sets_called(each) if isinstance(each, str) else [each]
    return frozenset(rule.name for rule in RuleSet("", sets))


class _NoSum(Exception):
    """A dimension that is called like a computation is something else, too, and that changes the result."""

    def __init__(self, name: str, reason: str):
        super().__init__(
            f"the size `{name}` is taken for a name: the original runs where it is something else, and the result "
            f"would differ there ({reason})"
        )


class _Run:
    """One call of ``apply``."""

    def __init__(
        self,
        original: ir.Model,
        request: Request,
        rules: RuleSet,
        progress: Progress | None,
        verdicts: Verdicts,
    ):
        self.original = original
        self.request = request
        self.target = target_by_name(request.target, portable=request.lowering == "portable")
        self.rules = rules
        self.level: CheckLevel = request.check
        self.verdicts = verdicts
        self.clock = Clock(progress)
        source, notes, highest = prepared(original, rules, self.target, request.opset)
        self._compared = original if highest is None else source  # which the target runs
        named = source if request.named_sums else with_plain_names(source)
        known = measurements(request, verdicts)
        memory = _opset_memory(known, rules, self.target, request) if known is not None else None
        for_speed = request.lowering == "fastest"
        opsets = Opsets(
            named,
            highest or self._newest_opset(),
            for_speed=for_speed,
            memory=memory,
            stuck=partial(stuck, rules=rules, target=self.target),
        )
        types = has_inner_types(original)
        self.loop = RewriteLoop(
            opsets, rules, self.target, request, keep_types=types, verdicts=verdicts, clock=self.clock
        )
        self.loop.memory = known if verdicts == Verdicts() else None  # a repetition runs all checks itself
        self.speed_guard = SpeedGuard(self.loop, rules, self.target, request, verdicts, self.clock, known)
        self._excused: list[str] = []
        self._notes = [*notes, *filter(None, [note_on_defaults(original), self._checked_on])]

    def execute(self) -> Result:
        """Rewrite, check the whole, and repeat without what was found guilty, or slow."""
        guilty: dict[Key, str] = dict(self.verdicts.model)
        found: Counter[str] = Counter()
        with self._original() as original:
            baseline = self._baseline(original)
            self.speed_guard.start(original, baseline)
            while True:
                made, checked = self._right(baseline, guilty, found)
                if not self.speed_guard.finish(made, lambda: self.loop.rewrite(set(guilty))):
                    break
        trace = made.trace
        for (rule, value), reason in guilty.items():
            trace.refuse(rule, value, f"undone: {reason}")
        return Result(
            model=made.model,
            original=self.original,
            trace=trace,
            rewrite_log=made.rewrite_log,
            checks=self._checks(made, checked, {**trace.failed, **guilty}),
            speed=self.speed_guard.speed,
            rules=RuleSet("", (r for r in self.rules if r.name not in self.loop.without)),
            target=self.target,
            request=self.request,
            notes=list(dict.fromkeys([*self._notes, *self.speed_guard.notes, *trace.warnings])),
            seconds=dict(self.clock.seconds),
        )

    def _right(
        self, baseline: Baseline | None, guilty: dict[Key, str], found: Counter[str]
    ) -> tuple[Round, ModelCheck | None]:
        """A result that is right; rewrites that make it wrong become ``guilty``, and ``found`` counts their rules."""
        while True:
            made = self.loop.rewrite(set(guilty))
            # Also where it can be applied only now.
            distrusted = [a for a in made.trace.applied if found[a.rule] >= _WRONG_RULE]
            if distrusted:
                guilty |= {a.key: f"the rule was wrong at {found[a.rule]} other sites" for a in distrusted}
                continue
            problems, checked = self.verify(made.model, baseline)
            if not problems:
                return made, checked
            key = self._culprit(made, checked, guilty, baseline) if found.total() < _MAX_CULPRITS else None
            if key is None:
                what = "valid" if checked is None else "equal to the original"
                raise CheckError(f"the result is not {what} and nothing was written: {problems[0]}")
            guilty[key] = problems[0]
            found[key[0]] += 1

    def verify(self, model: ir.Model, baseline: Baseline | None) -> tuple[list[str], ModelCheck | None]:
        """Problems of an emitted model, and the comparison with the original."""
        from onnxrewrite.checks.structure import check_structure
        from onnxrewrite.runtime.session import Session, open_session

        with self._opened(model) as candidate:
            with self.clock.phase("check structure"):
                session = open_session(candidate) if self._kernels else None
                found = check_structure(candidate, kernels=self._kernels, session=session)
                problems = [p for p in found if _check_of(p) not in self._failed_before]
                self._excused = [p for p in found if p not in problems]
            if problems or baseline is None:
                return problems, None
            with self.clock.phase("check model"):
                checked = baseline.check(candidate, session)
                if checked.ok and self.request.named_sums and isinstance(session, Session):
                    self._try_other_sizes(baseline, candidate, session)
        return checked.failures, checked

    def _try_other_sizes(self, baseline: Baseline, candidate: onnx.ModelProto, session: Session) -> None:
        """Raise ``_NoSum`` if the result is wrong where a size is not what it is called and the original runs."""
        for name in named_sums(self.original):
            reason = baseline.difference_at_other_sizes(name, candidate, session)
            if reason is not None:
                raise _NoSum(name, reason)

    def _culprit(
        self, wrong: Round, checked: ModelCheck | None, guilty: Collection[Key], baseline: Baseline | None
    ) -> Key | None:
        """The rewrite that makes a right result wrong; None if the result is wrong without any rewrite too.

        Where the first segment that differs can be told, those in it are suspected first, what is right beyond it is
        right, and no other is run where it can be run alone.
        """
        from onnxrewrite.checks.parts import Spot

        fault = self._fault(wrong, checked, baseline)
        spot = None if fault is None else Spot(fault, threads=self.request.threads)

        def attempt(quarantine: set[Key]) -> tuple[bool, list[Key]]:
            made = self.loop.rewrite(quarantine)
            if spot is not None:
                with self._opened(made.model) as candidate:
                    is_right = spot.is_right(candidate)
                if is_right is not None:
                    return is_right, _suspects(made, fault)
            problems, checked = self.verify(made.model, baseline)
            left = self._fault(made, checked, baseline) if fault and problems else None
            return not problems or bool(fault and left and left.end > fault.end), _suspects(made, left)

        with closing(spot) if spot is not None else nullcontext():
            return bisect(_suspects(wrong, fault), guilty, attempt)

    def _fault(self, made: Round, checked: ModelCheck | None, baseline: Baseline | None) -> Fault | None:
        """The place of the first fault; None where it cannot be told."""
        if baseline is None or checked is None or checked.fault:
            return checked.fault if checked else None
        with self._opened(made.model) as candidate:
            return baseline.fault(candidate)

    @contextmanager
    def _opened(self, model: ir.Model) -> Iterator[onnx.ModelProto]:
        """A model to be checked."""
        from onnxrewrite.runtime.references import by_reference

        with by_reference(model) as opened:
            yield opened

    def _newest_opset(self) -> int:
        """The newest opset that the model may be converted to for a rule: the standard alone has no kernels to gain."""
        asked = self.request.opset
        may_rise = asked is None and self.target.knows_kernels and not self.target.portable
        return self.target.opset_max if may_rise else asked or io.opset(self.original)

    @cached_property
    def _device(self) -> str:
        """The target's provider, if whole models can be compared on it: it is not the CPU's, and starts here."""
        from onnxrewrite.runtime.installed import preferred

        own = self.target.provider if self.level != "off" and self.target.note else None
        return own if own is not None and own in preferred() else ""

    @property
    def _checked_on(self) -> str:
        """The providers that results are checked on, where those are not the target's alone."""
        if self.level == "off" or not self._device:
            return self.target.note if self.level != "off" else ""
        return f"each rewrite by itself is checked on the CPU, the whole model on {self._device}, too"

    @property
    def _kernels(self) -> bool:
        """True if ONNX Runtime is to open the result."""
        return self.level != "off" and self.target.provider is not None

    @cached_property
    def _failed_before(self) -> set[str]:
        """Checks that the original fails already: that is no fault of a rewrite."""
        from onnxrewrite.checks.structure import check_structure

        with self._opened(self._compared) as original:
            return {_check_of(p) for p in check_structure(original, kernels=self._kernels)}

    @contextmanager
    def _original(self) -> Iterator[onnx.ModelProto | str | None]:
        """The original in a form that runs; None where nothing is to be run or costed."""
        if self.level == "off" and self.request.model_of_cost is None:
            yield None
            return
        with self._opened(self._compared) as original:
            yield original

    def _baseline(self, original: onnx.ModelProto | str | None) -> Baseline | None:
        """The original, to compare with; its outputs are computed once."""
        if original is None or self.level == "off":
            return None
        from onnxrewrite.checks.model import Baseline

        asked, samples = self.request, _SAMPLES[self.level]
        made = Baseline(
            original,
            dims=asked.dims,
            inputs=asked.inputs,
            seed=asked.seed,
            samples=samples,
            progress=partial(self.clock.tell, "check model"),
        )
        return made.too_on(self._device) if self._device else made

    def _checks(self, made: Round, checked: ModelCheck | None, undone: dict[Key, str]) -> Checks:
        result = Checks(level=self.level, structure=self._excused, model=checked, undone=undone)
        if made.sites is not None:
            result.sites, result.distinct_sites = made.sites.ok, len(made.sites.distinct)
            result.remembered_sites = made.sites.remembered
            result.sites_not_run = dict(made.sites.not_run)
        return result


def _opset_memory(known: Known, rules: RuleSet, target: Target, request: Request) -> OpsetMemory:
    from onnxrewrite.measure.decision import OpsetMemory

    return OpsetMemory(known, tuple(rules), (target.name, request.withheld))


def _suspects(wrong: Round, fault: Fault | None) -> list[Key]:
    """The rewrites of a wrong result, or those alone of where it is."""
    applied = wrong.trace.applied
    near = [a.key for a in applied if fault and not fault.values.isdisjoint((a.value, *a.values))]
    return near or [a.key for a in applied]


def _check_of(problem: str) -> str:
    """The check that a problem comes from: what stands before the first colon."""
    return problem.partition(":")[0]


__all__ = ["Progress", "Result", "apply"]
