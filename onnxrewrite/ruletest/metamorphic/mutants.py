"""Near misses: a spelling with one mistake, on which a rule must not fire unless what it makes of it is right.

A mistake may leave another legitimate instance of the rule, such as another number that it captures: the rule fires,
and both sides compute the same.  Then another mistake is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ruletest.metamorphic import mutations
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.ruletest.metamorphic.running import CannotTell, difference, feeder, is_same
from onnxrewrite.ruletest.metamorphic.seeds import STANDARD, Seed
from onnxrewrite.ruletest.metamorphic.variants import Spelling, spelling

_DRAWS = 6
"""So many mistakes are drawn for each near miss that is asked for."""


@dataclass(frozen=True)
class NearMiss:
    """A graph with one mistake.

    Attributes:
        spelling: The graph without it.
        model: The graph.
        mistake: The change that was made.
        wrong: The reason why the result of the rule is wrong; None where it does not fire.
    """

    spelling: Spelling
    model: ir.Model
    mistake: str
    wrong: str | None


def near_misses(seeds: Sequence[Seed], count: int, seed: int = 0) -> Iterator[NearMiss]:
    """Up to ``count`` near misses of those seeds that run; the same for the same ``seed``.

    What is legal by the standard alone is left out: no runtime can be trusted to say whether it is right.
    """
    running = [s for s in seeds if s.feeder is not None and s.trial.target != STANDARD]
    found = 0
    for number in range(count * _DRAWS if running else 0):
        rng = random.Random(f"{seed}/miss/{number}")
        drawn = near_miss(running[number % len(running)], rng)
        if drawn is not None:
            yield drawn
            found += 1
            if found == count:
                return


def near_miss(seed: Seed, rng: random.Random) -> NearMiss | None:
    """One random mistake in a random spelling; None where it left an equal graph, an invalid one, or an instance."""
    correct = spelling(seed, rng)
    draft = Draft(with_facts(correct.model))
    changes_use = rng.random() < 0.2
    mistake = rng.choice(mutations.USE if changes_use else mutations.MEANING)
    what = mistake(draft, with_producers(draft.nodes(correct.nodes)), rng)
    if what is None:
        return None
    model = draft.done()
    if not changes_use and not _differs(seed, model):
        return None
    try:
        rewritten = seed.trial.rewritten(model)
    except OnnxRewriteError:  # the mistake left no valid model
        return None
    if rewritten is None:
        return NearMiss(correct, model, what, None)
    try:
        wrong = difference(model, rewritten)
    except CannotTell:
        return None
    return None if wrong is None else NearMiss(correct, model, what, wrong)


def with_producers(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """The nodes and those right above them, which a rewrite may have looked at, too."""
    above = (v.producer() for n in nodes for v in n.inputs if v is not None)
    return list(dict.fromkeys((*nodes, *(p for p in above if p is not None and p.op_type != "Constant"))))


def with_facts(model: ir.Model) -> ir.Model:
    """A copy whose inner values have their dtypes and shapes."""
    copy = model.clone()
    schema.date(copy)
    Facts(copy.graph, dict(copy.opset_imports))
    return copy


def _differs(seed: Seed, model: ir.Model) -> bool:
    """True if a model runs, and computes something else than the seed from the same inputs."""
    changed = feeder(model)
    if changed is None or seed.feeder is None:
        return False
    return any(not is_same(seed.feeder.run(f), changed.run(f)) for f in (changed.feeds(0), changed.feeds(1)))
