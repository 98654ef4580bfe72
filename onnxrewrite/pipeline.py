"""From a model to a checked, optimized model: load, rewrite, check, and undo what was wrong.

A rewrite that a check of the whole model finds guilty is quarantined and the run is repeated.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import onnx
import onnx_ir as ir

from onnxrewrite.errors import CheckError, ModelError, UsageError
from onnxrewrite.ir import io
from onnxrewrite.ir.convert import in_opset
from onnxrewrite.ir.sums import named_sums, with_plain_names
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.pace import Pace
from onnxrewrite.result import CheckLevel, Checks, Lowering, Result
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.finish import has_inner_types
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.rewrite.trace import Key, Trace
from onnxrewrite.rounds import Clock, Progress, Round, Rounds
from onnxrewrite.runtime import limited
from onnxrewrite.verify.certificate import ArrayRecord, Options, array_digest
from onnxrewrite.verify.culprit import culprit
from onnxrewrite.verify.ledger import Verdicts

if TYPE_CHECKING:
    from onnxrewrite.verify.checked import ModelCheck
    from onnxrewrite.verify.model import Baseline
    from onnxrewrite.verify.session import Session

_SAMPLES = {"full": 3, "fast": 1}
_WRONG_RULE = 2
"""A rule that was found guilty so often is not trusted at any other site of the model."""

_MAX_CULPRITS = 16
"""With more wrong rewrites than this, something else is wrong."""


def apply(
    source: io.Source,
    *,
    rules: Iterable[str | Rule | RuleSet] = (),
    only: Iterable[str] = (),
    without: Iterable[str] = (),
    target: str = "onnxruntime-cpu",
    opset: int | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    check: CheckLevel = "full",
    lower: Lowering | None = None,
    threads: int = 0,
    budget: float = 20.0,
    run_limit: float | None = None,
    named_sums: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    conflicts: bool = False,
    verdicts: Verdicts | None = None,
) -> Result:
    """Rewrite a model and check the result.

    Args:
        source: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is not changed.
        rules: Rules beside the library: ``Rule`` and ``RuleSet`` objects, rule files, packages.
        only: Names of rules or rule sets; without it, all.
        without: Names of rules or rule sets to leave out.
        target: ``onnxruntime-cpu``, ``onnxruntime-cuda`` or ``onnx``.
        opset: Convert the model to this ai.onnx opset first, and leave it there; without it, a runtime's model is
            given a newer opset where a rule of the raise stage needs one.
        dims: Sizes of named dimensions for the checks.
        inputs: Arrays for the checks, by input name; the others are generated.
        check: ``full``: every site, and the whole model on three samples at each of two bindings; ``fast``: every
            site, and the whole model on one sample; ``off``: legality and structure only.
        lower: ``fastest``: what is measured to pay, each rewrite of the lower stage and the whole result against the
            original; ``fused``: the most fused form that is legal, nothing is measured; ``portable``: standard
            operators only.  Without it, what ONNXREWRITE_LOWER says, else ``fastest``.
        threads: Within an operator where it measures; 0 is ONNX Runtime's choice.
        budget: Seconds for measuring rewrites; what is met later is taken for granted.
        run_limit: Seconds for one run of a model; what takes longer is not checked, and not measured, and the result
            says so.  0 for no limit; without it, what ONNXREWRITE_RUN_LIMIT says, else 10 seconds, and one more for
            each 10 MB of weights.
        named_sums: Whether an input's dimension that is called ``a + b`` is taken for the sum.  Where the original also
            runs at sizes at which it is none, and the result would differ there, it is not, and the notes say so.
        seed: Of the generated inputs.
        progress: Called with (phase, nodes visited, nodes waiting).
        conflicts: Find out which rules could have been applied where another one was, ``Result.trace.conflicts``; it
            takes longer and does not change the result.
        verdicts: What checks of an earlier run turned down; it is not tried again.

    Raises:
        UsageError, ModelError, RuleError: Bad arguments, model or rules.
        CheckError: The result is not equal to the original, and undoing rewrites does not mend it.
    """
    if check not in ("full", "fast", "off"):
        raise UsageError(f"check must be full, fast or off, not {check!r}")
    asked = lower or os.environ.get("ONNXREWRITE_LOWER") or "fastest"
    lowering = next((each for each in get_args(Lowering) if each == asked), None)
    if lowering is None:
        raise UsageError(f"lower must be {', '.join(get_args(Lowering))}, not {asked!r}")
    given, only = list(rules), tuple(only)
    library, notes = _rules(given)
    original, known = io.load(source), verdicts or Verdicts()
    options = Options(
        target=target,
        opset=opset,
        dims=dict(dims or {}),
        inputs={n: ArrayRecord(None, array_digest(a)) for n, a in (inputs or {}).items()},
        check=check,
        seed=seed,
        rules=[r for r in given if isinstance(r, str)],
        lower=lowering,
        threads=threads,
        budget=budget,
        named_sums=named_sums,
    )
    rules_taken = library.select(only, without)
    with limited.run_limit(run_limit):
        try:
            result = _Run(original, options, rules_taken, inputs or {}, progress, conflicts, known).execute()
        except _NoSum as error:
            plain = replace(options, named_sums=False)
            result = _Run(original, plain, rules_taken, inputs or {}, progress, conflicts, known).execute()
            notes = [str(error), *notes]
    result.notes[:0] = [*io.repairs(original), *notes]
    result.asked = _asked(library, only, given)
    return result


def _asked(library: registry.Registry, only: Iterable[str], given: Iterable[str | Rule | RuleSet]) -> frozenset[str]:
    """The names of the rules that somebody named, alone or in a set, or gave."""
    sets: list[Rule | RuleSet] = [library.named(name) for name in only]
    for each in given:
        sets += registry.sets_called(each) if isinstance(each, str) else [each]
    return frozenset(rule.name for rule in RuleSet("", sets))


def check(
    a: io.Source,
    b: io.Source,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    run_limit: float | None = None,
    seed: int = 0,
    samples: int = 3,
) -> ModelCheck:
    """Whether model ``b`` computes what model ``a`` computes, at two bindings of every symbolic dimension."""
    from onnxrewrite.verify.model import compare_models
    from onnxrewrite.verify.session import openable

    with limited.run_limit(run_limit), openable(io.load(a)) as first, openable(io.load(b)) as second:
        return compare_models(first, second, dims=dims, inputs=inputs, seed=seed, samples=samples)


def _rules(given: Sequence[str | Rule | RuleSet]) -> tuple[registry.Registry, list[str]]:
    library = registry.load([r for r in given if isinstance(r, str)])
    library.add(r for r in given if not isinstance(r, str))
    return library, library.broken


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
        options: Options,
        rules: RuleSet,
        inputs: Mapping[str, Any],
        progress: Progress | None,
        conflicts: bool,
        verdicts: Verdicts,
    ):
        self.original = original
        self.options = options
        self.target = target_by_name(options.target, portable=options.lower == "portable")
        self.rules = rules
        self.level: CheckLevel = options.check
        self.inputs = inputs
        self.verdicts = verdicts
        self.clock = Clock(progress)
        source = in_opset(original, options.opset)
        self.rounds = Rounds(
            source if options.named_sums else with_plain_names(source),
            rules,
            self.target,
            opset=self._newest_opset(),
            for_speed=options.lower == "fastest",
            seed=options.seed,
            checks_sites=self.level != "off",
            keep_types=has_inner_types(original),
            verdicts=verdicts,
            conflicts=conflicts,
            clock=self.clock,
        )
        self.pace = Pace(self.rounds, rules, self.target, options, inputs, verdicts, self.clock)
        self._excused: list[str] = []

    def execute(self) -> Result:
        """Rewrite, check the whole, and repeat without what was found guilty, or slow."""
        guilty: dict[Key, str] = dict(self.verdicts.model)
        found: Counter[str] = Counter()
        with self._original() as original:
            baseline = self._baseline(original)
            self.pace.start(original, baseline.hindrance if baseline is not None else "")
            while True:
                made, checked = self._right(baseline, guilty, found)
                if not self.pace.finish(made, lambda: self.rounds.rewrite(set(guilty))):
                    break
        trace = made.trace
        for (rule, value), reason in guilty.items():
            trace.refuse(rule, value, f"undone: {reason}")
        return Result(
            model=made.model,
            original=self.original,
            trace=trace,
            ledger=made.ledger,
            checks=self._checks(made, checked, {**trace.failed, **guilty}),
            speed=self.pace.speed,
            rules=RuleSet("", (r for r in self.rules if r.name not in self.rounds.without)),
            target=self.target,
            options=self.options,
            notes=list(dict.fromkeys(trace.warnings)),
            seconds=dict(self.clock.seconds),
        )

    def _right(
        self, baseline: Baseline | None, guilty: dict[Key, str], found: Counter[str]
    ) -> tuple[Round, ModelCheck | None]:
        """A result that is right; rewrites that make it wrong become ``guilty``, and ``found`` counts their rules."""
        while True:
            made = self.rounds.rewrite(set(guilty))
            # Also where it can be applied only now.
            distrusted = [a for a in made.trace.applied if found[a.rule] >= _WRONG_RULE]
            if distrusted:
                guilty |= {a.key: f"the rule was wrong at {found[a.rule]} other sites" for a in distrusted}
                continue
            problems, checked = self.verify(made.model, baseline)
            if not problems:
                return made, checked
            key = self._culprit(made.trace, guilty, baseline) if found.total() < _MAX_CULPRITS else None
            if key is None:
                what = "valid" if checked is None else "equal to the original"
                raise CheckError(f"the result is not {what} and nothing was written: {problems[0]}")
            guilty[key] = problems[0]
            found[key[0]] += 1

    def verify(self, model: ir.Model, baseline: Baseline | None) -> tuple[list[str], ModelCheck | None]:
        """Problems of an emitted model, and the comparison with the original."""
        from onnxrewrite.verify.session import Session, open_session
        from onnxrewrite.verify.structure import check_structure

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
                if checked.ok and self.options.named_sums and isinstance(session, Session):
                    self._try_other_sizes(baseline, session)
        return checked.failures, checked

    def _try_other_sizes(self, baseline: Baseline, session: Session) -> None:
        """Raise ``_NoSum`` if the result is wrong where a size is not what it is called and the original runs."""
        for name in named_sums(self.original):
            reason = baseline.difference_at_other_sizes(name, session)
            if reason is not None:
                raise _NoSum(name, reason)

    def _culprit(self, trace: Trace, guilty: Collection[Key], baseline: Baseline | None) -> Key | None:
        """The rewrite that makes a right result wrong; None if the result is wrong without any rewrite too."""

        def attempt(quarantine: set[Key]) -> tuple[bool, list[Key]]:
            made = self.rounds.rewrite(quarantine)
            return not self.verify(made.model, baseline)[0], [a.key for a in made.trace.applied]

        return culprit([a.key for a in trace.applied], guilty, attempt)

    @contextmanager
    def _opened(self, model: ir.Model) -> Iterator[onnx.ModelProto | str]:
        """A model to be checked; nothing of its weights is read where it need not run."""
        if self.level == "off":
            yield io.to_bare_proto(model)
            return
        from onnxrewrite.verify.session import openable

        with openable(model) as opened:
            yield opened

    def _newest_opset(self) -> int:
        """What the model may be converted to where a rule needs it: the standard alone has no kernels to gain."""
        asked = self.options.opset
        may_rise = asked is None and self.target.provider is not None and not self.target.portable
        return self.target.opset_max if may_rise else asked or io.opset(self.original)

    @property
    def _kernels(self) -> bool:
        """Whether ONNX Runtime is asked to open the result."""
        return self.level != "off" and self.target.provider is not None

    @cached_property
    def _failed_before(self) -> set[str]:
        """Checks that the original fails already: that is no fault of a rewrite."""
        from onnxrewrite.verify.structure import check_structure

        with self._opened(self.original) as original:
            return {_check_of(p) for p in check_structure(original, kernels=self._kernels)}

    @contextmanager
    def _original(self) -> Iterator[onnx.ModelProto | str | None]:
        """The original in a form that runs; None where nothing is to be run."""
        if self.level == "off":
            yield None
            return
        with self._opened(self.original) as original:
            yield original

    def _baseline(self, original: onnx.ModelProto | str | None) -> Baseline | None:
        """The original, to compare with; its outputs are computed once."""
        if original is None:
            return None
        from onnxrewrite.verify.model import Baseline

        asked, samples = self.options, _SAMPLES[self.level]
        return Baseline(original, dims=asked.dims, inputs=self.inputs, seed=asked.seed, samples=samples)

    def _checks(self, made: Round, checked: ModelCheck | None, undone: dict[Key, str]) -> Checks:
        result = Checks(level=self.level, structure=self._excused, model=checked, undone=undone)
        if made.sites is not None:
            result.sites, result.distinct_sites = made.sites.ok, len(made.sites.distinct)
            result.sites_not_run = dict(made.sites.not_run)
        return result


def _check_of(problem: str) -> str:
    """Which check a problem comes from: what stands before the first colon."""
    return problem.partition(":")[0]


__all__ = ["CheckLevel", "Checks", "ModelError", "Progress", "Result", "apply", "check"]
