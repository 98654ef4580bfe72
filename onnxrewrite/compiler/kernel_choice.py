"""The choice of kernels for a whole model: what the lower stage could do, the best ways by a 0/1 program, and a race.

The lower stage runs on copies of the raised model: once as each rewrite pays by itself, once with what that left aside.
What was met is weighed, a program picks the sets of rewrites that gain the most, and the models that these make run by
turns with the original.  The stage then does on the model itself what the fastest did.  The decision is remembered with
the measurements that it rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.errors import NOT_RUN
from onnxrewrite.measure.ab_timing import Comparison
from onnxrewrite.measure.choice import Chooser, Weighed
from onnxrewrite.measure.decision import Raced, read, subject
from onnxrewrite.measure.survey import Loss, Rewrites, Survey
from onnxrewrite.rewrite.driver import SiteCheck
from onnxrewrite.rewrite.trace import Key, Site

Lowered: TypeAlias = Callable[[SiteCheck, Collection[Key]], ir.Model | None]
"""Makes a lowered copy of a model with the rewrites that pass, some not even tried; None if it is not legal then."""

_RACED = 3
"""So many ways to lower a model are run as whole models."""


@dataclass
class KernelChoice:
    """Chooses the rewrites of the lower stage; to be asked by the driver what each one costs.

    Args:
        chooser: Weighs single rewrites.
        models: Compares whole models.
        asked: What else a choice depends on: the target, and what is asked for.

    Attributes:
        raced: The ways that were raced, that of the medians first.
    """

    chooser: Chooser
    models: Comparison
    asked: tuple[object, ...] = ()
    raced: list[Raced] = field(default_factory=list)
    _chosen: dict[Hashable, tuple[Rewrites, frozenset[int]]] = field(default_factory=dict)
    _survey: Survey | None = None
    _is_settled: bool = True
    """False if a race could not be run."""

    def __call__(self, site: Site) -> str | None:
        """None if a rewrite is to be applied, else why not."""
        return self._survey(site) if self._survey is not None else None

    @property
    def weighed(self) -> list[Weighed]:
        """The rewrites that were measured for the last round, equal ones once."""
        return self._survey.tally() if self._survey is not None else []

    def choose(self, round_: Hashable, model: ir.Model, without: Collection[Key], lowered: Lowered) -> None:
        """Before the lower stage of a round; what was chosen in an equal ``round_`` stays, and what was decided in an
        earlier run for an equal ``model``, ``without`` the same rewrites, on the same measurements."""
        if round_ not in self._chosen:
            asked = self.chooser
            told = (self.asked, asked.scale.setting, sorted(asked.dims.items()))
            about = subject(model, asked.rules.values(), without, *told)
            self._chosen[round_] = self._remembered(about) or self._decided(about, lowered)
        rewrites, chosen = self._chosen[round_]
        self._survey = Survey(rewrites, rewrites.only(chosen))

    def _remembered(self, about: str) -> tuple[Rewrites, frozenset[int]] | None:
        decision = read(self.chooser.scale.known.decision(about))
        if decision is None:
            return None
        self.raced = list(decision.raced)
        return Rewrites.remembered(self.chooser, decision), frozenset(decision.taken)

    def _decided(self, about: str, lowered: Lowered) -> tuple[Rewrites, frozenset[int]]:
        rewrites, self._is_settled, self.raced = Rewrites(self.chooser), True, []
        chosen = self._fastest(rewrites, lowered)
        if rewrites.are_known and self._is_settled:
            self.chooser.scale.known.decide(about, rewrites.decision(chosen, self.raced).written())
        return rewrites, chosen

    def _fastest(self, rewrites: Rewrites, lowered: Lowered) -> frozenset[int]:
        """The rewrites of the fastest model."""

        def run(loss: Loss, without: Collection[Key] = ()) -> tuple[frozenset[int], ir.Model | None]:
            survey = Survey(rewrites, loss)
            model = lowered(survey, without)
            return frozenset(survey.taken), model

        alone, first = run(rewrites.alone)
        if first is None or not rewrites.met:
            return alone
        run(rewrites.besides, rewrites.keys(alone))
        ways: dict[frozenset[int], ir.Model] = {}
        for choice in rewrites.choices(alone, self.models.close / 2):
            if len(ways) < _RACED:
                left = rewrites.keys(range(len(rewrites.met))) - rewrites.keys(choice)
                taken, model = (alone, first) if choice == alone else run(rewrites.only(choice), left)
                ways |= {taken: model} if model is not None else {}
                ways.setdefault(alone, first)
        return self._race(ways, alone) if len(ways) > 1 else alone

    def _race(self, ways: Mapping[frozenset[int], ir.Model], greedy: frozenset[int]) -> frozenset[int]:
        from onnxrewrite.runtime.references import by_reference

        with ExitStack() as stack:
            models = [stack.enter_context(by_reference(model)) for model in ways.values()]
            try:
                seen = self.models.race(models)
            except NOT_RUN:  # the whole result is timed again, and said not to run
                seen = None
        self._is_settled = seen is not None
        if seen is None:
            return next(iter(ways))
        ratios = dict(zip(ways, seen, strict=True))
        fastest = min(each.median for each in ratios.values())
        taken = next(way for way, each in ratios.items() if each.median <= fastest * (1 + self.models.close / 2))
        self.raced = [Raced(len(way), ratios[way], way == taken, way == greedy) for way in ways]
        return taken
