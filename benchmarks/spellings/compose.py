"""A spelling of a model: many small steps, each at one place, that can be taken again without some of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from benchmarks.spellings import whole
from benchmarks.spellings.registry import SPELLINGS, Spelling
from benchmarks.spellings.script import Script

WHOLE: dict[str, Callable[[ir.Model, random.Random], ir.Model | None]] = {
    "opsets": whole.in_another_opset,
    "functions": whole.outlined,
}
"""Families that write the whole model anew, in the order in which that is done, after all places."""

MOST = 5
"""A spelling of a model is composed of so many spellings, or fewer."""

_RARE = 0.15
"""How likely each way to write a whole model anew is part of a spelling."""


@dataclass(frozen=True)
class Step:
    """A spelling at one place; a way to write the whole model anew has none.

    Attributes:
        spelling: The name of the spelling, or of the whole family.
        place: The name of the node.
        seed: Of all that is random in it.
        number: Where it is among the steps; what it makes is called after it.
    """

    spelling: str
    place: str
    seed: int
    number: int

    @property
    def family(self) -> str:
        """The family of the spelling."""
        return SPELLINGS[self.spelling].family if self.spelling in SPELLINGS else self.spelling

    def __str__(self) -> str:
        return f"{self.spelling} at {self.place}" if self.place else self.spelling


def draw(model: ir.Model, rng: random.Random, only: Collection[str] = ()) -> list[Step]:
    """Steps of a random composition of spellings, each at a random share of the places where it is possible."""
    chosen = [s for s in SPELLINGS.values() if not only or s.family in only]
    script, steps = Script(model), list[Step]()
    for each in rng.sample(chosen, min(len(chosen), rng.randint(1, MOST))):
        _everywhere(script, each, rng, steps)
    for name in WHOLE:
        if name in only or (not only and rng.random() < _RARE):
            steps.append(Step(name, "", rng.randrange(2**32), len(steps)))
    return steps


def _everywhere(script: Script, spelling: Spelling, rng: random.Random, steps: list[Step]) -> None:
    """Take a spelling at a random share of the nodes."""
    share = rng.random()
    for node in list(script.graph):
        if node.graph is not None and _fits(spelling, node) and rng.random() < share:
            step = Step(spelling.name, node.name or "", rng.randrange(2**32), len(steps))
            if _take(script, step, node):
                steps.append(step)


def _fits(spelling: Spelling, node: ir.Node) -> bool:
    is_plain = not node.domain and not any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values())
    return is_plain and (node.op_type in spelling.operators or not spelling.operators)


def _take(script: Script, step: Step, node: ir.Node) -> bool:
    """Take one step; False where it is not possible, and nothing was changed."""
    script.at(node, f"s{step.number}", random.Random(step.seed))
    return SPELLINGS[step.spelling].write(script)


def spelled(model: ir.Model, steps: Sequence[Step]) -> ir.Model:
    """The model after the steps.  One whose place is not there, for what made it was left out, is none."""
    script = Script(model)
    places = {n.name: n for n in script.graph}
    for step in steps:
        node = places.get(step.place) or _called(script, step.place)
        if step.place and node is not None and node.graph is not None and _fits(SPELLINGS[step.spelling], node):
            _take(script, step, node)
    made = script.done()
    for step in steps:
        if not step.place:
            made = WHOLE[step.spelling](made, random.Random(step.seed)) or made
    return made


def _called(script: Script, name: str) -> ir.Node | None:
    """The node of a name, looked for from the end of the graph on."""
    return next((n for n in reversed(script.graph) if n.name == name), None)


def smallest(steps: Sequence[Step], is_missed: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """The fewest steps, none of which can be left out, after which something is still missed: delta debugging."""
    found, parts = list(steps), 2
    while len(found) > 1:
        size = -(-len(found) // parts)
        for start in range(0, len(found), size):
            rest = found[:start] + found[start + size :]
            if is_missed(rest):
                found, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(len(found), 2 * parts)
    return found
