"""Equal spellings of the graphs that a rule applies to, and the question whether it still does.

What is varied is what the engine promises to absorb, and only in the part that the rule's match covers: operand
order everywhere, axes from either end, an operand that says nothing; association, ``x / c`` or ``x * 1/c``, ``- c`` or
``+ -c``, powers or products, where a sum or a product of the pattern matched; scalars or ``[1]``, Constant nodes or
initializers, Identities and Casts to the dtype that is already there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxrewrite.ruletest.metamorphic.chains import respell_chain, respell_power
from onnxrewrite.ruletest.metamorphic.covered import Covered
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.ruletest.metamorphic.operand_forms import (
    pass_through,
    respell_axes,
    respell_constant,
    say_nothing,
    swap,
)
from onnxrewrite.ruletest.metamorphic.seeds import Seed


@dataclass(frozen=True)
class Spelling:
    """A graph that means what its seed means.

    Attributes:
        seed: The seed it was made from.
        model: The graph.
        at: The values at one of which the rule has to apply.
        nodes: The nodes that it has to cover there.
    """

    seed: Seed
    model: ir.Model
    at: frozenset[str]
    nodes: tuple[str, ...]

    def matched(self) -> bool:
        """True if the rule applies to it."""
        return self.seed.trial.fires(self.model, self.at)


def spellings(seeds: Sequence[Seed], count: int, seed: int = 0) -> Iterator[Spelling]:
    """``count`` random spellings of a rule's seeds, in turn; the same for the same ``seed``."""
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        yield spelling(seeds[number % len(seeds)], rng)


def spelling(seed: Seed, rng: random.Random) -> Spelling:
    """One random spelling of a seed."""
    place = rng.choice(seed.places)
    draft = Draft(seed.model)
    algebraic: list[str] = []
    at = {place.value}
    for chain in place.chains:
        written = respell_chain(draft, chain, place.literals, rng) if rng.random() < 0.8 else sorted(chain.nodes)
        algebraic += written
        if chain.grows:
            at.update(o.name or "" for n in draft.nodes(written) for o in n.outputs)
    for node in draft.nodes(place.powers):
        made = respell_power(draft, node) if rng.random() < 0.5 else None
        algebraic.append(made or node.name or "")
    nodes = (*place.explicit, *algebraic)
    _vary_operands(draft, nodes, place, rng)
    return Spelling(seed, draft.done(), frozenset(at), nodes)


def _vary_operands(draft: Draft, nodes: Sequence[str], place: Covered, rng: random.Random) -> None:
    """Order, form of constants, and what does nothing in between, at each of these nodes."""
    often = rng.choice((0.0, 0.1, 0.3))
    for node in draft.nodes(nodes):
        swap(node, rng)
        if rng.random() < 0.5:
            respell_axes(draft, node, rng)
            say_nothing(draft, node)
        for index, value in enumerate(node.inputs):
            if value is not None and rng.random() < 0.5:
                respell_constant(draft, node, index, rng, place.ranked)
            if value is not None and rng.random() < often:
                pass_through(draft, node, index, rng)
