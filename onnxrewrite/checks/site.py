"""One rewrite at its place: the matched subgraph against its replacement, both cut out as small models.

Inputs are sampled like a model's, at two bindings, and the float ones also from classes of values at which
fusions go wrong.  Opening the two sessions is most of the time; the float64 reference is only made when
outputs differ.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import onnx
import onnx_ir as ir

from onnxrewrite.checks.movement import only_moves
from onnxrewrite.checks.site_inputs import ORDINARY, counted, elements_of, site_feeds
from onnxrewrite.checks.site_record import Status
from onnxrewrite.checks.smaller import shrunk, smaller
from onnxrewrite.errors import NOT_RUN, reason
from onnxrewrite.inputs.bindings import Binding, shape_of
from onnxrewrite.inputs.classes import (
    ALONE,
    CANCELLING,
    CLASSES,
    DRAWN,
    OF_INTEGERS,
    is_data,
    is_float,
)
from onnxrewrite.inputs.sample import CARE, Sampler, Trial
from onnxrewrite.ir.random_operators import draws, stochastic_ops
from onnxrewrite.reference.judgement import FEW, PART, Finding, Judge
from onnxrewrite.reference.runs import Run
from onnxrewrite.reference.tolerance import EXACT
from onnxrewrite.runtime.session import Session, is_short_of_memory, open_session, site_proto
from onnxrewrite.system.arrays import Feeds, Outputs, element_count
from onnxrewrite.system.plain import Json

CACHE_LIMIT = 4096

_FEW_INPUTS = 6
"""Of more inputs not each is fed what is special alone."""

_FEW_ELEMENTS, _TURNS = 24, 8
"""Of fewer elements what is special is drawn so often."""

LARGE = 2**16
"""Elements of all inputs, or of all results, together."""

Dims = Mapping[str, int] | Sequence[Mapping[str, int]] | None


@dataclass(frozen=True)
class SiteCheck:
    """The result of checking that a replacement computes what it replaces.

    ``status``: ``ok``, ``failed`` or ``not run``.  ``feeds``: the inputs at which it failed, where it was run.
    """

    status: Status
    reason: str = ""
    reference: str = "not needed"
    error_original: float = 0.0
    error_rewritten: float = 0.0
    bound: float = 0.0
    where: str = ""
    bindings: list[dict[str, int]] = field(default_factory=list)
    runs: int = 0
    seconds: float = 0.0
    cached: bool = False
    notes: list[str] = field(default_factory=list)
    feeds: Feeds | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """True if the check ran and passed."""
        return self.status == "ok"

    def to_json(self) -> dict[str, Json]:
        """Plain data; without inputs."""
        return asdict(replace(self, feeds=None))


_CACHE: dict[str, SiteCheck] = {}


def clear_cache() -> None:
    """Forget all results."""
    _CACHE.clear()


@dataclass(frozen=True)
class Trials:
    """The inputs at which both sides are run.

    Attributes:
        dims_hint: Sizes known for symbolic dimensions, one mapping or several to try first.
        seed: Of what is drawn.
        classes: The classes of values to feed.
        sizes: The number of bindings of symbolic dimensions.
        in_turn: Classes that are fed at one of these only, another one for each.
        in_range: True if no intermediate result is taken to overflow (``Assumption.IN_RANGE``).
        rows_count: True if every row of truth values begins with true and ends with false, so that, whichever of them
            masks, no row is masked throughout (``Assumption.SCORES_ABOVE_10000``).
        only_small: True if sizes that make inputs large are not tried even where no others run.
    """

    dims_hint: Dims = None
    seed: int = 0
    classes: Sequence[str] = CLASSES
    sizes: int = 2
    in_turn: Sequence[str] = ()
    in_range: bool = False
    rows_count: bool = False
    only_small: bool = False


_USUAL = Trials()


def check_site(
    before: ir.Model,
    after: ir.Model,
    trials: Trials = _USUAL,
    *,
    key: str | None = None,
) -> SiteCheck:
    """Run both models side by side and compare their outputs by name.

    ``key``: sites of the same key are the same up to names and are checked once.
    """
    if key is not None and key in _CACHE:
        return replace(_CACHE[key], cached=True, seconds=0.0)
    start = time.perf_counter()
    try:
        result = _check(before, after, trials)
    except NOT_RUN as error:
        result = SiteCheck("not run", reason(error))
    result = replace(result, seconds=time.perf_counter() - start)
    if key is not None:
        if len(_CACHE) >= CACHE_LIMIT:
            _CACHE.pop(next(iter(_CACHE)))
        _CACHE[key] = result
    return result


def _check(before: ir.Model, after: ir.Model, trials: Trials) -> SiteCheck:
    """At smaller sizes first, where that says that all is well; at their own sizes else."""
    elements = elements_of(before)
    with site_proto(before) as old, site_proto(after) as new:
        for small in shrunk(old, new) if not elements else ():
            result = _Site(*small, elements, trials).check()
            if result.ok:
                return replace(result, notes=[*result.notes, "at smaller sizes"])
        return _Site(old, new, elements, trials).check()


class _Site:
    def __init__(
        self,
        before: onnx.ModelProto,
        after: onnx.ModelProto,
        elements: Mapping[str, Sequence[int | str]],
        trials: Trials,
    ) -> None:
        self.before, self.after, self.trials = before, after, trials
        self.sampler = Sampler(self.before, seed=self.trials.seed)
        self.elements = elements
        hint = trials.dims_hint
        self.hints = [hint] if isinstance(hint, Mapping) else list(hint or [])

    def check(self) -> SiteCheck:
        problem = self._interface()
        if problem:
            return SiteCheck("failed", problem)
        random = stochastic_ops(self.before)
        if random:
            names, old, new = ", ".join(random), draws(self.before), draws(self.after)
            if old is not None and new is not None and old != new:
                return SiteCheck(
                    "failed", f"random numbers of {names} are drawn {new.total()} times, were {old.total()}"
                )
            return SiteCheck("not run", f"random operators: {names}")
        original = open_session(self.before, threads=1)
        if isinstance(original, str):
            return SiteCheck("not run", f"the original subgraph does not open: {original}")
        found = self._bindings(original)
        if isinstance(found, str):
            return SiteCheck("not run", found)
        rewritten = open_session(self.after, threads=1)
        if isinstance(rewritten, str):
            return SiteCheck("failed", f"the replacement does not open: {rewritten}")
        both = self._runs(original, rewritten, found)
        if isinstance(both, SiteCheck):
            return both
        runs, made = both
        return replace(self._judged(original, runs, made), bindings=[t.binding for t in found], runs=len(runs))

    def _judged(self, original: Session, runs: Sequence[Run], made: Sequence[Outputs]) -> SiteCheck:
        judge = Judge(self.before, original, replace(PART, in_range=self.trials.in_range))
        worst: Finding | None = None
        for found in judge.judge(runs, made):
            if worst is None or found.comparison.error_rewritten >= worst.comparison.error_rewritten:
                worst = found
            if not found.comparison.accept:
                worst = found
                break
        comparison = worst.comparison if worst is not None else EXACT
        place = f"output {worst.name}, {worst.run.describe()}" if worst is not None else ""
        return SiteCheck(
            "ok" if comparison.accept else "failed",
            "" if comparison.accept else f"{place}: {comparison.reason}",
            judge.reference.kind if judge.used_reference else "not needed",
            comparison.error_original,
            comparison.error_rewritten,
            comparison.bound,
            place,
            notes=judge.notes,
            feeds=None if comparison.accept or worst is None else worst.run.feeds,
        )

    def _interface(self) -> str:
        for kind in ("input", "output"):
            old = [v.name for v in getattr(self.before.graph, kind)]
            new = [v.name for v in getattr(self.after.graph, kind)]
            if (kind == "output" and old != new) or not set(new) <= set(old):
                return f"the {kind}s are {new}, were {old}"
        return ""

    def _candidates(self) -> Iterator[Binding]:
        names = self.sampler.symbols()
        yield from ({n: int(h[n]) for n in names} for h in self.hints if all(n in h for n in names))
        for hint in self.hints[:1]:
            known = {n: int(hint[n]) for n in names if n in hint}
            sampler = Sampler(self.before, dims=known, seed=self.trials.seed)
            yield from sampler.candidates(10)
        large = filter(self._is_large, self.sampler.candidates(2 * self.trials.sizes))
        yield from self._allowed(b for binding in large for b in smaller(binding, self.sampler.specs))
        held = []  # the large ones are tried only where no others run, and only then the rest is asked for
        for binding in self.sampler.candidates(30):
            if self._is_large(binding):
                held.append(binding)
            else:
                yield binding
        yield from self._allowed(held)

    def _allowed(self, bindings: Iterable[Binding]) -> Iterator[Binding]:
        """Those, of some sizes, that may be tried; what has no sizes always may."""
        return (b for b in bindings if not (self.trials.only_small and b and self._is_large(b)))

    def _bindings(self, session: Session) -> list[Trial] | str:
        """Different bindings at which the original runs."""
        found: list[Trial] = []
        reason = "no sizes to try"
        for binding in self._candidates():
            if any(binding == t.binding for t in found):
                continue
            for care in range(CARE):
                feeds = self.feeds(binding, ORDINARY, care)
                outputs = session.run(feeds)
                if not isinstance(outputs, str):
                    found.append(Trial(binding, care, feeds, outputs))
                    break
                reason = outputs
            if len(found) == self.trials.sizes or (found and not binding):
                break
        return found or f"no inputs found at which the original subgraph runs: {reason}"

    def feeds(self, binding: Binding, values: str, care: int, alone: str | None = None, turn: int = 0) -> Outputs:
        """Inputs that are of one class of values, or one of them ``alone``."""
        made = site_feeds(self.sampler, self.elements, binding, values, care, alone, turn)
        return {name: counted(value) for name, value in made.items()} if self.trials.rows_count else made

    def _runs(
        self, original: Session, rewritten: Session, found: Sequence[Trial]
    ) -> tuple[list[Run], list[Outputs]] | SiteCheck:
        fed = list(self._feeds(found))
        unknown = iter(original.run_each([feeds for trial, _, feeds in fed if feeds is not trial.feeds]))
        olds = [trial.outputs if feeds is trial.feeds else next(unknown) for trial, _, feeds in fed]
        runs = [
            Run(trial.binding, f"{values} inputs", feeds, old, values)
            for (trial, values, feeds), old in zip(fed, olds, strict=True)
            if not isinstance(old, str)
        ]
        made = list[Outputs]()
        for run, new in zip(runs, rewritten.run_each([run.feeds for run in runs]), strict=True):
            if isinstance(new, str) and is_short_of_memory(new):
                raise MemoryError
            if isinstance(new, str):
                return SiteCheck("failed", f"the replacement fails where the original runs: {new}", feeds=run.feeds)
            made.append(new)
        return runs, made

    def _feeds(self, found: Sequence[Trial]) -> Iterator[tuple[Trial, str, Feeds]]:
        """The inputs of all runs, each with its trial and the class of its values."""
        for number, (values, alone, turn) in enumerate(self._fed(found[0])):
            in_turn = values in self.trials.in_turn or self._is_large(found[0].binding)
            for trial in [found[number % len(found)]] if in_turn else found:
                ran = values == ORDINARY and turn == 0
                yield trial, values, trial.feeds if ran else self.feeds(trial.binding, values, trial.care, alone, turn)

    def _fed(self, trial: Trial) -> Iterator[tuple[str, str | None, int]]:
        """The classes of values to feed, to which input alone, and at which turn: of integers and truth values not all
        classes differ, small inputs get as many turns as make a result that has a scale, and more of what is special,
        and what nobody looks at is fed once."""
        if all(map(is_data, self.sampler.specs)) and only_moves(self.before) and only_moves(self.after):
            yield (ORDINARY, None, 0)
            return
        whole = (*self.trials.classes[:2], *(c for c in self.trials.classes if c in OF_INTEGERS))
        size, made = element_count(trial.feeds), element_count(trial.outputs)
        few = -(-FEW // max(size, made)) if size else 1
        turns = max(few, _TURNS if size < _FEW_ELEMENTS and made <= LARGE else 1)
        for values in self.trials.classes if self._has_floats() else whole:
            count = max(2, turns) if values == CANCELLING else turns if values in DRAWN else few
            yield from ((values, None, turn) for turn in range(count))
        data = [s.name for s in self.sampler.specs if is_data(s)]
        for values in (c for c in ALONE if c in self.trials.classes and 1 < len(data) <= _FEW_INPUTS):
            yield from ((values, name, 0) for name in data)

    def _is_large(self, binding: Binding) -> bool:
        """True if runs take so long that each class of values gets one binding only, in turn."""
        return sum(math.prod(shape_of(s, binding)) for s in self.sampler.specs if s.tensor) > LARGE

    def _has_floats(self) -> bool:
        return any(is_float(s) for s in self.sampler.specs)
