"""Instances of a rule: graphs on which it fires, far from the ones that its author thought of.

They start from the pattern itself and from the rule's examples, are spelled anew, and are then changed in up to three
ways: an attribute off its default, another size, another constant, an operand more or less, a value that is also read
elsewhere, exported or overridable, another opset, a branch of an ``If``.  Where the rule still fires, what it made has
to be right; where it does not, it has refused.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.rewrite.purity import ImpureRule
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.ruletest.fuzz.variations import VARIATIONS, along_others, is_veil
from onnxrewrite.ruletest.metamorphic import Seed
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.ruletest.metamorphic.firing import Trial
from onnxrewrite.ruletest.metamorphic.mutants import with_facts, with_producers
from onnxrewrite.ruletest.metamorphic.mutations import attributes, change_attribute
from onnxrewrite.ruletest.metamorphic.seeds import STANDARD
from onnxrewrite.ruletest.metamorphic.variants import Spelling, spelling

HOW_MANY = (0, 1, 1, 1, 1, 2, 2, 3)
"""The number of variations of an instance, one of these at random."""

SWEPT = 5
"""In about so many graphs each attribute has its turn."""

TRIES = 8
"""So many are tried at most for one of which there is something in the graph."""


@dataclass(frozen=True)
class Instance:
    """A graph that was made to fit a rule.

    Attributes:
        trial: The rule, and the target that it was asked to rewrite for.
        before: The graph.
        raised: The graph after the rule, as it is before lowering; None where the rule does not fire.
        after: The graph after the rule and the lower stage; None where the rule does not fire.
        variations: The changes that were made.
        refusal: The reason why the rule does not fire, where it matched and refused.
    """

    trial: Trial
    before: ir.Model
    raised: ir.Model | None
    after: ir.Model | None
    variations: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def fired(self) -> bool:
        """True if the rule fires on it."""
        return self.after is not None


def instances(seeds: Iterable[Seed], count: int, seed: int = 0, parents: Sequence[Instance] = ()) -> Iterator[Instance]:
    """``count`` graphs; the same for the same ``seed``.

    Each seed has its turn as it is, then some with each attribute changed.  From then on every other graph starts from
    one of ``parents``, if there are any by then: graphs that the rule has rewritten, so that changes add up and lead
    away from where it began.

    What is legal by the standard alone is left out: no runtime can be trusted to say whether it is right.
    """
    running = (s for s in seeds if s.feeder is not None and s.trial.target != STANDARD)
    yield from itertools.islice(_all(running, parents, seed), count)


def _all(seeds: Iterable[Seed], parents: Sequence[Instance], seed: int) -> Iterator[Instance]:
    running = []
    for start in seeds:
        running.append(start)
        yield fitted(start.trial, start.model)
    if not running:
        return
    chosen = running[:: -(-len(running) // SWEPT)]
    alike = [s for s in running if _is_alike(s.model)][:1]
    yield from _swept([*chosen, *(s for s in alike if not any(s is each for each in chosen))], seed)
    for number in itertools.count():
        rng = random.Random(f"{seed}/instance/{number}")
        if parents and number % 2:
            parent = rng.choice(parents)
            yield fitted(parent.trial, *_changed(parent.before, None, parent.variations, rng))
        else:
            written = _written(start := running[number % len(running)], rng)
            yield fitted(start.trial, *_changed(written.model, written.nodes, (), rng))


def _is_alike(model: ir.Model) -> bool:
    """True if some input has several sizes and all are alike: there no shape tells one axis from another."""
    shapes = [v.shape.numpy() for v in model.graph.inputs if v.shape is not None and v.shape.is_static()]
    return any(len(s) > 1 for s in shapes) and len({d for s in shapes for d in s}) == 1


def _swept(chosen: Sequence[Seed], seed: int) -> Iterator[Instance]:
    """Every attribute of every node that is covered off its default, and every constant that varies along one axis
    along another one, one at a time."""
    for start in chosen:
        for number in itertools.count():
            draft = Draft(with_facts(start.model))
            nodes = _changeable(with_producers(draft.nodes(start.places[0].nodes)))
            rng = random.Random(f"{seed}/attribute/{number}")
            changes: list[Callable[[], str | None]] = [
                *(partial(change_attribute, draft, *each, rng) for each in attributes(draft, nodes)),
                *along_others(draft, nodes),
            ]
            if number >= len(changes):
                break
            changed = changes[number]()
            if changed is not None:
                yield fitted(start.trial, draft.done(), (changed,))


def _written(seed: Seed, rng: random.Random) -> Spelling:
    """A seed as it is, or spelled anew."""
    place = rng.choice(seed.places)
    if rng.random() < 0.5:
        return Spelling(seed, seed.model, frozenset({place.value}), place.nodes)
    return spelling(seed, rng)


def _changed(
    model: ir.Model, names: Sequence[str] | None, before: tuple[str, ...], rng: random.Random
) -> tuple[ir.Model, tuple[str, ...]]:
    """A model changed at random, around certain nodes or anywhere, and all that was changed in it so far."""
    draft = Draft(with_facts(model))
    changes = []
    for _ in range(rng.choice(HOW_MANY)):
        around = draft.graph if names is None else with_producers(draft.nodes(names))
        nodes = _changeable(around)
        tried = (change(draft, nodes, rng) for change in rng.sample(VARIATIONS, TRIES)) if nodes else iter(())
        changes += [next((what for what in tried if what is not None), "")]
    return draft.done(), (*before, *filter(None, changes))


def _changeable(nodes: Iterable[ir.Node]) -> list[ir.Node]:
    """Nodes that are the graph's own, but for constants: what they hold is told by their readers' operands."""
    return [n for n in nodes if n.op_type != "Constant" and not is_veil(n)]


def fitted(trial: Trial, model: ir.Model, variations: tuple[str, ...] = ()) -> Instance:
    """The instance that a model becomes: the graph before the rule, after it, and after lowering.

    Raises:
        ImpureRule: A rule changed the graph by itself.
    """
    try:
        driver = trial.drive(model)
        if not any(a.rule == trial.rule.name for a in driver.trace.applied):
            refused = driver.trace.refused.get(trial.rule.name, {})
            return Instance(trial, model, None, None, variations, next(iter(refused.values()), ""))
        raised = driver.model.clone()
        if trial.rule.stage is not Stage.LOWER:
            driver.run_stage(Stage.LOWER, trial.lowering)
    except ImpureRule:
        raise
    except OnnxRewriteError:  # the changes left no valid model
        return Instance(trial, model, None, None, variations)
    return Instance(trial, model, raised, driver.model, variations)
