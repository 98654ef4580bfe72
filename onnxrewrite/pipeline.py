"""From a model to a checked, optimized model: load, rewrite, check, and undo what was wrong.

The driver is handed its checks as a function, so that rewriting knows nothing of verification.  A rewrite that a check
of the whole model finds guilty is quarantined and the run is repeated: the driver is deterministic, so everything else
comes out as before.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import onnx
import onnx_ir as ir

from onnxrewrite.errors import CheckError, ModelError, UsageError
from onnxrewrite.ir import io
from onnxrewrite.ir.calls import forget_types
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.target import Target
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver, Limits
from onnxrewrite.rewrite.edit import drop_unused_initializers
from onnxrewrite.rewrite.legality import illegal_node
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.rewrite.trace import Applied, Key, Trace
from onnxrewrite.rewrite.untouched import Tampered
from onnxrewrite.verify.certificate import ArrayRecord, Certificate, Options, array_digest
from onnxrewrite.verify.ledger import Ledger, Verdicts

if TYPE_CHECKING:
    from onnxrewrite.verify.model import Baseline, ModelCheck
    from onnxrewrite.verify.rewrites import SiteChecker

CheckLevel: TypeAlias = Literal["full", "fast", "off"]
Progress: TypeAlias = Callable[[str, int, int], None]
"""Told of progress: the phase (a stage, or a check), what is done of it, what waits; 0 and 0 where nobody knows."""

_SAMPLES = {"full": 3, "fast": 1}
_WRONG_RULE = 2
"""A rule that was found guilty so often is not trusted at any other site of the model."""

_MAX_CULPRITS = 16
"""With more wrong rewrites than this, something else is wrong."""


@dataclass
class Checks:
    """What was checked, and what came of it.

    Attributes:
        level: How much was asked for.
        structure: Problems of the emitted model's structure, which are those of the original; empty when it is valid.
        sites: Rewrites that were run against what they replace.
        distinct_sites: How many different ones among them.
        sites_not_run: Why rewrites could not be run by themselves, and how many.
        model: The whole model against the original; None when that was not asked for.
        undone: Rewrites that a check turned down: (rule, value) to reason.
    """

    level: CheckLevel
    structure: list[str] = field(default_factory=list)
    sites: int = 0
    distinct_sites: int = 0
    sites_not_run: dict[str, int] = field(default_factory=dict)
    model: ModelCheck | None = None
    undone: dict[Key, str] = field(default_factory=dict)


@dataclass
class Result:
    """What ``apply`` returns.

    Attributes:
        model: The optimized model.
        original: The model as loaded, before any conversion to another opset.
        trace: What was rewritten, what was refused and why.
        ledger: The same rewrites in text, each with its check.
        checks: What was checked.
        rules: The rules that ran.
        options: What was asked for.
        notes: Repairs of the input, plugins that could not be used, rules that raised.
        seconds: Phase to time.
    """

    model: ir.Model
    original: ir.Model
    trace: Trace
    ledger: Ledger
    checks: Checks
    rules: RuleSet
    target: Target
    options: Options
    notes: list[str]
    seconds: dict[str, float]

    def save(self, path: str | os.PathLike[str], *, certificate: bool = False) -> None:
        """Write the optimized model, with its ``certificate`` beside it if that is wanted; external data is chosen when
        it would pass 2 GB."""
        from onnxrewrite.certify import save

        save(self, path) if certificate else io.save(self.model, path)

    @cached_property
    def certificate(self) -> Certificate:
        """What was done and how it was checked, with the digests of all that it depends on; reads the input's file."""
        from onnxrewrite.certify import certificate

        return certificate(self)

    def to_proto(self) -> onnx.ModelProto:
        """The optimized model as a protobuf message."""
        return io.to_proto(self.model)

    def to_json(self) -> dict[str, Any]:
        """Everything that the report shows, as plain data."""
        from onnxrewrite.report.summary import summary

        return summary(self)


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
        opset: Convert the model to this ai.onnx opset first.
        dims: Sizes of named dimensions for the checks.
        inputs: Arrays for the checks, by input name; the others are generated.
        check: ``full``: every site, and the whole model on three samples at each of two bindings; ``fast``: every
            site, and the whole model on one sample; ``off``: legality and structure only.
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
    given = list(rules)
    library, notes = _rules(given)
    run = _Run(
        original=io.load(source),
        options=Options(
            target=target,
            opset=opset,
            dims=dict(dims or {}),
            inputs={n: ArrayRecord(None, array_digest(a)) for n, a in (inputs or {}).items()},
            check=check,
            seed=seed,
            rules=[r for r in given if isinstance(r, str)],
        ),
        rules=library.select(only, without),
        level=check,
        inputs=inputs or {},
        progress=progress,
        conflicts=conflicts,
        verdicts=verdicts or Verdicts(),
    )
    result = run.execute()
    result.notes[:0] = [*io.repairs(run.original), *notes]
    return result


def check(
    a: io.Source,
    b: io.Source,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    samples: int = 3,
) -> ModelCheck:
    """Whether model ``b`` computes what model ``a`` computes, at two bindings of every symbolic dimension."""
    from onnxrewrite.verify.model import compare_models

    with _openable(io.load(a)) as first, _openable(io.load(b)) as second:
        return compare_models(first, second, dims=dims, inputs=inputs, seed=seed, samples=samples)


def _rules(given: Sequence[str | Rule | RuleSet]) -> tuple[registry.Registry, list[str]]:
    library = registry.load([r for r in given if isinstance(r, str)])
    library.add(r for r in given if not isinstance(r, str))
    return library, library.broken


def _converted(model: ir.Model, opset: int | None) -> ir.Model:
    if opset is None or opset == io.opset(model):
        return model
    from onnxrewrite.ir.convert import to_opset

    return to_opset(model, opset)


class _Run:
    """One call of ``apply``."""

    def __init__(
        self,
        original: ir.Model,
        options: Options,
        rules: RuleSet,
        level: CheckLevel,
        inputs: Mapping[str, Any],
        progress: Progress | None,
        conflicts: bool,
        verdicts: Verdicts,
    ):
        self.original = original
        self.options = options
        self.target = target_by_name(options.target)
        self.start = _converted(original, options.opset)
        self.rules = rules
        self.level: CheckLevel = level
        self.inputs = inputs
        self.progress = progress
        self.conflicts = conflicts
        self.verdicts = verdicts
        self.lowering = [r for r in rules if r.stage == Stage.LOWER]
        self.seconds: Counter[str] = Counter()
        self.sites: SiteChecker | None = None
        self.ledger = Ledger(None)
        self._has_inner_types = has_inner_types(original)
        self._excused: list[str] = []
        self._tampered: dict[str, Tampered] = {}

    def execute(self) -> Result:
        """Rewrite, check the whole, and repeat without what was found guilty."""
        guilty: dict[Key, str] = dict(self.verdicts.model)
        found: Counter[str] = Counter()
        with self._baseline() as baseline:
            while True:
                model, trace = self.rewrite(set(guilty))
                distrusted = [a for a in trace.applied if found[a.rule] >= _WRONG_RULE]  # also where it only now can be
                if distrusted:
                    guilty |= {a.key: f"the rule was wrong at {found[a.rule]} other sites" for a in distrusted}
                    continue
                problems, checked = self.verify(model, baseline)
                if not problems:
                    break
                key = self._culprit(trace.applied, set(guilty), baseline) if found.total() < _MAX_CULPRITS else None
                if key is None:
                    what = "valid" if checked is None else "equal to the original"
                    raise CheckError(f"the result is not {what} and nothing was written: {problems[0]}")
                guilty[key] = problems[0]
                found[key[0]] += 1
        for (rule, value), reason in guilty.items():
            trace.refuse(rule, value, f"undone: {reason}")
        return Result(
            model=model,
            original=self.original,
            trace=trace,
            ledger=self.ledger,
            checks=self._checks(checked, {**trace.failed, **guilty}),
            rules=self.rules,
            target=self.target,
            options=self.options,
            notes=list(dict.fromkeys(trace.warnings)),
            seconds=dict(self.seconds),
        )

    def rewrite(self, quarantine: set[Key]) -> tuple[ir.Model, Trace]:
        """Rewrite a copy of the original, but for the sites in ``quarantine``.

        A raised operator that the lower stage could not make legal after all is not raised in the next round.  Nor does
        a rule take part in it that changed the graph by itself.
        """
        while True:
            try:
                model, trace = self._rewrite(quarantine)
                break
            except Tampered as error:
                self._tampered[error.rule] = error
                self.lowering = [r for r in self.lowering if r.name != error.rule]
        for tampering in self._tampered.values():
            trace.refuse(tampering.rule, tampering.value, tampering.reason)
            trace.warnings.append(f"{tampering}; it was left out")
        return model, trace

    def _rewrite(self, quarantine: set[Key]) -> tuple[ir.Model, Trace]:
        banned = set(quarantine)
        unlowerable: dict[Key, str] = {}
        while True:
            with self._timed("rewrite"):
                self.sites = self._site_checker() if self.level != "off" else None  # counts the last round only
                self.ledger = Ledger(self.sites, self.verdicts)
                model = io.load(self.start)
                driver = Driver(
                    model,
                    [r for r in self.rules if r.name not in self._tampered],
                    self.target,
                    check=self.ledger,
                    limits=Limits(quarantine=banned),
                    progress=self._tell_stage if self.progress is not None else None,
                    conflicts=self.conflicts,
                )
                trace = driver.run()
                stuck = {k: node.op_type for node in unlowered(driver) for k in _makers(node, trace)}
            if not stuck.keys() - banned:
                break
            banned |= stuck.keys()
            unlowerable |= stuck
        for (rule, value), op_type in unlowerable.items():
            trace.refuse(rule, value, f"{op_type} could not be lowered after all")
        finish(model, keep_types=self._has_inner_types)
        return model, trace

    def verify(self, model: ir.Model, baseline: Baseline | None) -> tuple[list[str], ModelCheck | None]:
        """Problems of an emitted model, and the comparison with the original."""
        from onnxrewrite.verify.structure import check_structure

        with self._opened(model) as candidate:
            with self._timed("check structure"):
                found = check_structure(candidate, kernels=self._kernels)
                problems = [p for p in found if _check_of(p) not in self._failed_before]
                self._excused = [p for p in found if p not in problems]
            if problems or baseline is None:
                return problems, None
            with self._timed("check model"):
                checked = baseline.check(candidate)
        return checked.failures, checked

    @contextmanager
    def _opened(self, model: ir.Model) -> Iterator[onnx.ModelProto | str]:
        """A model to be checked; nothing of its weights is read where it need not run."""
        if self.level == "off":
            yield io.to_bare_proto(model)
            return
        with _openable(model) as openable:
            yield openable

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

    def _culprit(self, applied: Sequence[Applied], quarantine: set[Key], baseline: Baseline | None) -> Key | None:
        """The rewrite that makes a right result wrong, by bisection over those applied.

        None if there is none: the result is wrong without any rewrite too.  At every step the result is wrong without
        the ``innocent`` rewrites, and right without the suspects as well.
        """
        innocent = set(quarantine)
        suspects = list(dict.fromkeys(a.key for a in applied))
        while True:
            model, trace = self.rewrite(innocent | set(suspects))
            if not self.verify(model, baseline)[0]:
                break
            others = [k for k in dict.fromkeys(a.key for a in trace.applied) if k not in suspects]
            if not others:
                return None
            suspects += others
        while len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            model, _ = self.rewrite(innocent | set(half))
            if self.verify(model, baseline)[0]:
                innocent |= set(half)
                suspects = suspects[len(half) :]
            else:
                suspects = half
        return suspects[0] if suspects else None

    def _site_checker(self) -> SiteChecker:
        from onnxrewrite.verify.rewrites import SiteChecker

        return SiteChecker(lower=self._lower, seed=self.options.seed)

    def _lower(self, model: ir.Model) -> None:
        """Make the replacement of one site runnable, unless it is: a wrong rule that lowers is not to spoil it."""
        driver, imports = Driver(model, self.lowering, self.target), model.opset_imports
        if any(illegal_node(n, driver.facts(g), self.target, imports, ()) for g in scopes(model) for n in g):
            driver.run_stage(Stage.LOWER)

    @contextmanager
    def _baseline(self) -> Iterator[Baseline | None]:
        """The original, to compare with; its outputs are computed once."""
        if self.level == "off":
            yield None
            return
        from onnxrewrite.verify.model import Baseline

        with _openable(self.original) as original:
            asked, samples = self.options, _SAMPLES[self.level]
            yield Baseline(original, dims=asked.dims, inputs=self.inputs, seed=asked.seed, samples=samples)

    def _checks(self, checked: ModelCheck | None, undone: dict[Key, str]) -> Checks:
        result = Checks(level=self.level, structure=self._excused, model=checked, undone=undone)
        if self.sites is not None:
            result.sites, result.distinct_sites = self.sites.ok, len(self.sites.distinct)
            result.sites_not_run = dict(self.sites.not_run)
        return result

    def _tell_stage(self, stage: Stage, visited: int, waiting: int) -> None:
        if self.progress is not None:
            self.progress(stage.name.lower(), visited, waiting)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        if self.progress is not None:
            self.progress(phase, 0, 0)
        start = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start  # type: ignore[assignment]


def _check_of(problem: str) -> str:
    """Which check a problem comes from: what stands before the first colon."""
    return problem.partition(":")[0]


def unlowered(driver: Driver) -> list[ir.Node]:
    """Nodes that are written for a newer opset than the model's."""
    return [n for g in scopes(driver.model) for n in g if driver.facts(g).is_newer(n)]


def _makers(node: ir.Node, trace: Trace) -> list[Key]:
    """The rewrites that emitted a node."""
    names = {o.name for o in node.outputs}
    return [a.key for a in trace.applied if names & {*a.values, a.value}]


def finish(model: ir.Model, *, keep_types: bool) -> None:
    """Leave nothing behind that only the work needed: opset marks, unused constants, made-up dimension names, and,
    unless ``keep_types``, the types of inner values."""
    bodies = {f.graph for f in model.functions.values()}
    for graph in scopes(model):
        for node in graph:
            node.version = None
            for output in node.outputs:
                if not keep_types and (graph in bodies or not output.is_graph_output()):
                    output.type, output.shape = None, None
                elif output.shape is not None:
                    output.shape = ir.Shape([d if isinstance(d, int) or _is_name(d) else None for d in output.shape])
        drop_unused_initializers(graph)
    forget_types(model)


def has_inner_types(model: ir.Model) -> bool:
    """Whether a model says anything about the types of its inner values."""
    outputs = (o for graph in scopes(model) for node in graph for o in node.outputs)
    return any(o.type is not None and not o.is_graph_output() for o in outputs)


def _is_name(dim: ir.SymbolicDim) -> bool:
    return dim.value is not None and dim.value.isidentifier() and not dim.value.startswith("_d")


@contextmanager
def _openable(model: ir.Model) -> Iterator[onnx.ModelProto | str]:
    """A model in a form that ORT opens: a message, or, beyond 2 GB, a file that is gone afterwards."""
    if not io.needs_external_data(model):
        yield io.to_proto(model)
        return
    with tempfile.TemporaryDirectory(prefix="onnxrewrite-") as folder:
        path = os.path.join(folder, "model.onnx")
        io.save(model.clone(), path)
        yield path


__all__ = ["CheckLevel", "Checks", "ModelError", "Result", "apply", "check"]
