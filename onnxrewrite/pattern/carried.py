"""Matches of what carries something from one to the next: the layers of a ``Repeat``, the operands of an ``Each``.

They are found from the last one up.  The search keeps its own stack, for there can be hundreds of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.blocks import Repeat
from onnxrewrite.pattern.look import called
from onnxrewrite.pattern.match import Binding, Match
from onnxrewrite.pattern.terms import Attr, Call, Capture, Operands, Term, walk

_MARKS = ("alternative", "layers")
"""The marks of what is bound of a term beside its value."""

Places: TypeAlias = Sequence[tuple[Term, ir.Value]]
"""Terms, each with the value at which it must match."""


class TermMatcher(Protocol):
    """A matcher, as far as it is needed here: see ``RecursiveMatcher``."""

    facts: Facts
    graph: ir.Graph | None

    def term(self, item: Term, value: ir.Value, binding: Binding) -> Iterator[Binding]:
        """The matches of a term at a value."""

    def told_of(self, place: str | None, depth: int, found: Iterator[Binding]) -> Iterator[Binding]:
        """The same matches; the reasons of those that fail say where that is; for None there are none."""

    def candidates(self, item: Term, binding: Binding) -> list[ir.Value]:
        """Values that a term could stand for, of which parts are bound."""

    def miss(self, binding: Binding, reason: Callable[[], str], item: object = None) -> None:
        """Note why not."""

    def describe(self, value: ir.Value, binding: Binding) -> str:
        """An unexpected value in words."""

    def inside(self, graph: ir.Graph, place: str = "") -> TermMatcher:
        """A matcher of a graph inside or around this one."""


def all_of(matcher: TermMatcher, places: Places, binding: Binding) -> Iterator[Binding]:
    """The matches of terms at their values, one after the other."""
    if not places:
        yield binding
        return
    (item, value), *others = places
    for found in matcher.term(item, value, binding):
        yield from all_of(matcher, others, found)


@dataclass
class _Step:
    """One layer that is looked for.

    Attributes:
        ways: Its matches.
        outer: What was bound before it.
        value: What it gives.
        found: The match at which the search is.
        after: What is bound after it.
        is_found: True if it has had a match.
    """

    ways: Iterator[Binding]
    outer: Binding
    value: ir.Value
    found: Binding | None = None
    after: Binding | None = None
    is_found: bool = False


class Carried:
    """The search for layers.

    Args:
        matcher: Matches their terms.
        carry: What a layer takes, and what that is of the layer before.
        terms: Those of a layer.
        shared: Those that all layers share.
    """

    def __init__(
        self,
        matcher: TermMatcher,
        carry: Mapping[Capture, Term],
        terms: Sequence[Term],
        shared: Sequence[Term | Attr[Any]],
    ):
        self._matcher = matcher
        self._carry = carry
        common = {t for term in shared if isinstance(term, Term) for t in walk(term)}
        own = {t for term in terms for t in walk(term) if t not in common}
        given = (p for t in own if isinstance(t, Call) for p in t.parameters.values())
        attributes = {p for p in given if isinstance(p, Attr) and p not in shared}
        self._local: frozenset[Any] = frozenset(own | attributes | {(t, mark) for t in own for mark in _MARKS})

    def rows(
        self, outer: Binding, places: Callable[[int], Places | None], most: int | None, at_least: int
    ) -> Iterator[tuple[tuple[Match, ...], Binding]]:
        """The longest rows of layers, the first one first, each with what is bound then.

        Args:
            outer: What is bound before.
            places: The places of the terms of the last layer but so many that do not follow from what is carried; None
                if there is no such layer.
            most: The number of layers at which a row ends.
            at_least: A shorter row is none.
        """
        steps = [self._step(0, at_least, outer, places, {})]
        while steps:
            step = steps[-1]
            step.found = next(step.ways, None)
            if step.found is None:
                is_end = not step.is_found
                steps.pop()
                if is_end and most is None and len(steps) >= at_least:
                    yield from self._finished(steps)
                continue
            step.is_found = True
            step.after = self.after(step.outer, step.found)
            if len(steps) == most:
                yield from self._finished(steps)
                continue
            steps.append(self._step(len(steps), at_least, step.after, places, step.found.bound))

    def start(self, outer: Binding) -> Binding:
        """The binding before, without what a layer binds anew."""
        return Binding({t: b for t, b in outer.bound.items() if t not in self._local})

    def _step(
        self, number: int, needed: int, outer: Binding, places: Callable[[int], Places | None], below: Mapping[Any, Any]
    ) -> _Step:
        """The layer above those that were found; ``below`` is what is bound in the one below it.  That there is none is
        no reason, unless more are ``needed``."""
        own = places(number)
        carried = [(term, below[name]) for name, term in self._carry.items()] if number else []
        wanted = [(t, v) for t, v in carried if isinstance(v, ir.Value)]
        if own is None or len(wanted) < len(carried):
            return _Step(iter(()), outer, ir.Value())
        all_places = [*wanted, *own]
        layer = layer_from_last(number) if number < needed else None
        ways = self._matcher.told_of(
            layer, number * len(self._local), all_of(self._matcher, all_places, self.start(outer))
        )
        return _Step(ways, outer, all_places[-1][1])

    def after(self, outer: Binding, found: Binding) -> Binding:
        """The binding after a layer: what all share, and the nodes that are covered."""
        shared = {t: bound for t, bound in found.bound.items() if t not in self._local}
        return Binding({**outer.bound, **shared}, outer.nodes, outer.remainder).cover(*found.nodes)

    def _finished(self, steps: Sequence[_Step]) -> Iterator[tuple[tuple[Match, ...], Binding]]:
        """The layers, with what the first one takes bound outside of them."""
        first, binding = steps[-1].found, steps[-1].after
        assert first is not None
        assert binding is not None
        matches = tuple(
            Match(self._matcher.facts, (step.value,), step.found) for step in reversed(steps) if step.found is not None
        )
        taken = [(name, first.bound[name]) for name in self._carry]
        yield from ((matches, each) for each in all_of(self._matcher, taken, binding))


def layer_from_last(number: int) -> str:
    """A layer in words, counted from the last one, which is 0."""
    return f"layer {number + 1} from the last" if number else "the last layer"


def layers(matcher: TermMatcher, item: Repeat, value: ir.Value, binding: Binding) -> Iterator[Binding]:
    """The matches of layers, the last of which gives a value."""
    carried = Carried(matcher, item.carry, item.parts, item.shared)
    rows = carried.rows(binding, lambda number: () if number else [(item.block, value)], item.times, item.at_least)
    for row, found in rows:
        yield found.bind((item, "layers"), row)


def is_last(matcher: TermMatcher, item: Repeat, value: ir.Value, found: Binding) -> bool:
    """True if no layer follows those that were found; as many as are asked for may be followed by others."""
    if item.times is not None:
        return True
    last = found.bound[item, "layers"][-1]
    carried = Carried(matcher, item.carry, item.parts, item.shared)
    given = {name: value if term is item.block else last.value(term) for name, term in item.carry.items()}
    start = Binding({**carried.start(found).bound, **given})
    others = (v for v in matcher.candidates(item.block, start) if v is not value)
    ways = ((v, matcher.told_of(None, 0, matcher.term(item.block, v, start))) for v in others)
    below = next((v for v, found in ways if next(found, None) is not None), None)
    if below is not None:
        matcher.miss(found, lambda: f"another layer follows, `{below.name}`", item)
    return below is None


def inputs(
    matcher: TermMatcher, rest: Operands, values: Sequence[ir.Value], node: ir.Node, binding: Binding
) -> Iterator[Binding]:
    """The matches of the remaining inputs of a node."""
    if len(values) < rest.at_least:
        matcher.miss(binding, lambda: f"{called(node)} has fewer than {rest.at_least} operands", rest)
    elif rest.of is None:
        yield binding.bind(rest, tuple(values))
    else:
        yield from (_linked if rest.carry else _by_themselves)(matcher, rest, rest.of, values, binding)


def _linked(
    matcher: TermMatcher, rest: Operands, of: Term, values: Sequence[ir.Value], binding: Binding
) -> Iterator[Binding]:
    """The matches of inputs from the last one up, each with what the one after it takes from it."""
    carried, count = Carried(matcher, rest.carry, rest.parts, rest.shared), len(values)

    def place(number: int) -> Places | None:
        return [(of, values[-1 - number])] if number < count else None

    for row, found in carried.rows(binding, place, count, count):
        yield found.bind(rest, row)


def _by_themselves(
    matcher: TermMatcher, rest: Operands, of: Term, values: Sequence[ir.Value], binding: Binding
) -> Iterator[Binding]:
    """The matches of inputs one by one, each with captures of its own but for the shared ones."""
    carried = Carried(matcher, {}, [of], rest.shared)

    def matched(left: Sequence[ir.Value], done: tuple[Match, ...], outer: Binding) -> Iterator[Binding]:
        if not left:
            yield outer.bind(rest, done)
            return
        for found in matcher.term(of, left[0], carried.start(outer)):
            match = Match(matcher.facts, (left[0],), found)
            yield from matched(left[1:], (*done, match), carried.after(outer, found))

    yield from matched(values, (), binding)
