"""The rewrites that runs of the lower stage meet on one model, what they build on, and what each of them gains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.measure.choice import Chooser, Weighed
from onnxrewrite.measure.decision import Decision, Raced, Weighing
from onnxrewrite.measure.kernel_program import Part, Step, best
from onnxrewrite.measure.timing import Interval
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.rewrite.trace import Key, Site

Loss: TypeAlias = Callable[[int], str | None]
"""The answer for a rewrite, by its number: None if it is taken, else why not."""

_HOPELESS = 1.5
"""What takes so many times as long is not tried as a step to something else."""

_LEAST = 1e-3
"""The part of its time that a rewrite within the margin is taken to gain, or to lose where it has to pay."""


@dataclass(frozen=True)
class Met:
    """One rewrite at one place."""

    key: Key
    step: Step
    weighed: Weighed | str


@dataclass
class Rewrites:
    """All rewrites that were met on one model, numbered; one that builds on another has the larger number.

    Args:
        chooser: Weighs them.
    """

    chooser: Chooser
    met: list[Met] = field(default_factory=list)
    _numbers: dict[tuple[str, str, frozenset[Part]], int] = field(default_factory=dict)

    @classmethod
    def remembered(cls, chooser: Chooser, decision: Decision) -> Rewrites:
        """Those that were met when something was decided."""
        found, nothing = cls(chooser), frozenset[Part]()
        for each in decision.met:
            weighed, key = each.weighed, (each.rule, each.value)
            weighed = replace(weighed, remembered=True) if isinstance(weighed, Weighed) else weighed
            found._numbers[*key, frozenset(each.covers)] = len(found.met)
            found.met.append(Met(key, Step(frozenset(each.covers), nothing, nothing), weighed))
        chooser.assumed.update({met.key: met.weighed for met in found.met if isinstance(met.weighed, str)})
        return found

    def decision(self, taken: Iterable[int], raced: Iterable[Raced]) -> Decision:
        """The decision for some of these."""
        met = (Weighing(*m.key, tuple(sorted(m.step.covers, key=str)), m.weighed) for m in self.met)
        return Decision(tuple(met), tuple(sorted(taken)), tuple(raced))

    @property
    def are_known(self) -> bool:
        """True if each was measured, or cannot be; not if there was no time for it."""
        return all(met.weighed != self.chooser.scale.known.missing for met in self.met)

    def number(self, site: Site, parts: dict[ir.Node, frozenset[Part]]) -> int:
        """The number of a rewrite, which is weighed when it is met for the first time."""
        covers = _parts(site.before, parts)
        key = (site.rule, site.value, covers)
        if key not in self._numbers:
            removes = _parts([n for n in site.before if _goes(n, site)], parts)
            replaces = _parts([n for n in site.before if site.facts.is_newer(n)], parts)
            self._numbers[key] = len(self.met)
            step = Step(covers, removes, replaces & removes)
            self.met.append(Met(site.key, step, self.chooser.site(site)))
        return self._numbers[key]

    def alone(self, number: int) -> str | None:
        """Each rewrite by itself: the first that pays where it is."""
        met = self.met[number]
        return self.chooser.loss(met.key[0], met.weighed)

    def keys(self, numbers: Iterable[int]) -> set[Key]:
        """The keys of rewrites."""
        return {self.met[number].key for number in numbers}

    def tally(self, taken: Collection[int]) -> list[Weighed]:
        """The measured rewrites, equal ones once, with the numbers of their places, and of those that were taken."""
        places = Counter(met.weighed for met in self.met)
        applied = Counter(self.met[number].weighed for number in taken)
        measured = ((w, count) for w, count in places.items() if isinstance(w, Weighed))
        return [replace(w, places=count, taken=applied[w]) for w, count in measured]

    def besides(self, number: int) -> str | None:
        """For a run without those that pay by themselves: also steps that do not pay by themselves."""
        weighed = self.met[number].weighed
        if isinstance(weighed, str):
            return self.alone(number)
        return self.chooser.scale.more if weighed.ratio.low > _HOPELESS else None

    def only(self, chosen: frozenset[int]) -> Loss:
        """Those that were ``chosen``; what had not been met then is judged by itself."""
        known = len(self.met)

        def loss(number: int) -> str | None:
            if number in chosen:
                return None
            return self.alone(number) or ("another choice is faster" if number < known else None)

        return loss

    def choices(self, alone: frozenset[int], least: float) -> list[frozenset[int]]:
        """The best sets of rewrites: by the medians, by what is gained for certain, and by what might be gained; in the
        place of one that would not save more than those that pay ``alone``, by ``least`` of what they all replace,
        these."""
        steps = [met.step for met in self.met]
        ends: list[Callable[[Interval], float]] = [lambda r: r.median, lambda r: r.high, lambda r: r.low]
        found = list[frozenset[int]]()
        for end in ends:
            gains = [self._gain(met, end) for met in self.met]
            choice = best(steps, gains)
            if choice is not None:
                saved = sum(gains[n] for n in choice) - sum(gains[n] for n in alone)
                found.append(choice if saved > least * self._seconds(choice | alone) else alone)
        return list(dict.fromkeys(found))

    def _seconds(self, numbers: Iterable[int]) -> float:
        """The seconds, or the parts of the cost, of what some rewrites replace, as far as they are known."""
        weighed = (self.met[number].weighed for number in numbers)
        return sum(each.seconds for each in weighed if isinstance(each, Weighed))

    def _gain(self, met: Met, end: Callable[[Interval], float]) -> float:
        """The seconds that a rewrite saves, by one end of what was measured, or what a cost model counts."""
        asked, weighed = self.chooser.rules[met.key[0]], met.weighed
        if isinstance(weighed, str):
            return -1.0 if asked.needs_speedup else _LEAST * _LEAST
        ratio = weighed.ratio.high if asked.assumes else end(weighed.ratio)
        change = 1 - ratio
        if ratio == weighed.ratio.median:
            pays = self.chooser.loss(asked.name, weighed) is None
            change = max(change, _LEAST) if pays else min(change, -_LEAST)
        return change * weighed.seconds


class Survey:
    """One run of the lower stage: to be asked by the driver what each rewrite costs.

    Args:
        rewrites: Those that were met, which grow.
        loss: Says which are taken.

    Attributes:
        taken: The numbers of those that were.
    """

    def __init__(self, rewrites: Rewrites, loss: Loss):
        self.taken: set[int] = set()
        self._rewrites = rewrites
        self._loss = loss
        self._parts: dict[ir.Node, frozenset[Part]] = {}

    def __call__(self, site: Site) -> str | None:
        """None if the rewrite is taken, else why not."""
        if self._rewrites.chooser.rules[site.rule].stage is not Stage.LOWER:
            self._parts.update(dict.fromkeys(site.after, _parts(site.before, self._parts)))
            return None
        number = self._rewrites.number(site, self._parts)
        loss = self._loss(number)
        if loss is None:
            self.taken.add(number)
            self._parts.update({node: frozenset([(number, place)]) for place, node in enumerate(site.after)})
        return loss

    def tally(self) -> list[Weighed]:
        """The measured rewrites, and how often they were met and taken."""
        return self._rewrites.tally(self.taken)


def _parts(nodes: Iterable[ir.Node], parts: Mapping[ir.Node, frozenset[Part]]) -> frozenset[Part]:
    return frozenset(p for n in nodes for p in parts.get(n) or {n.outputs[0].name or ""})


def _goes(node: ir.Node, site: Site) -> bool:
    """True if nothing but what the rewrite covers or builds reads a node any more."""
    own = {*site.before, *site.after}
    return all(
        o in site.outputs or (not o.is_graph_output() and all(reader in own for reader in o.consumers()))
        for o in node.outputs
    )
