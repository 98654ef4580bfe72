"""Variations of two graphs that compute the same: other attributes and constants in both, and operands of size one.

A rule takes attributes and constants over, and matches operands that are broadcast.  Whether it may is asked here, of
all small variations, before the fuzzer asks it of random ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnxrewrite.authoring.region import reads
from onnxrewrite.suite.discovery.joining import Misfit
from onnxrewrite.suite.discovery.result_fingerprint import is_same
from onnxrewrite.suite.discovery.sampled_region import Operand, SampledRegion
from onnxrewrite.suite.discovery.substitute import Operator, Origin, Parameter, Plain, Substitute, results_of

_VARIATIONS = 96
"""So many choices of attributes are tried."""

_FEW = (0, 1)
"""Numbers that are tried in the place of a whole one."""


def may_take_over(left: Substitute, right: Substitute, region: SampledRegion) -> bool:
    """True if two graphs still compute the same where attributes and constants that the one takes over from the other
    are changed.

    Args:
        left: The graph of a region.
        right: Another one; its parameters have their origins in the region.
        region: The region.
    """
    constants = _with_constants(region.operands, set(right.read()))
    if any(_differ(left, right, replace(region, operands=each)) for each in constants):
        return False
    found = ((n, p) for node in right.nodes for n, p in node.parameters if p.origin.kind != "literal")
    shared = list(dict.fromkeys(found))
    values = [list(_values(p.value)) for _, p in shared]
    for chosen in itertools.islice(itertools.product(*values), _VARIATIONS):
        changed = {(name, p.origin): value for (name, p), value in zip(shared, chosen, strict=True)}
        theirs = Substitute(tuple(_with(n, changed) for n in right.nodes), right.results)
        own = {(place, name): v for (name, origin), v in changed.items() for place in _places(origin, name, region)}
        ours = tuple(_at_place(n, place, own) for place, n in enumerate(left.nodes))
        if _differ(Substitute(ours, left.results), theirs, region):
            return False
    return True


def misfits(left: Substitute, right: Substitute, region: SampledRegion) -> Iterator[Misfit]:
    """The shapes at which two graphs do not compute the same any more: one operand has size one along an axis."""
    for operands in _narrowed(region.operands):
        narrow = replace(region, operands=operands)
        ours, theirs = results_of(left, narrow), results_of(right, narrow)
        if ours is not None and (theirs is None or not all(map(is_same, ours, theirs))):
            yield Misfit(tuple(o.array.shape for o in operands), ours[0].shape)


def _with_constants(operands: Sequence[Operand], read: Container[int]) -> Iterator[tuple[Operand, ...]]:
    """The operands with one of the constants that are read changed: its sign, its size, to nothing."""
    for place, operand in enumerate(operands):
        if operand.is_constant and place in read and operand.array.dtype.kind == "f":
            with np.errstate(over="ignore"):
                others = (-operand.array, 0 * operand.array, 3 * operand.array + 0.5)
            for changed in others:
                other = replace(operand, array=np.asarray(changed, operand.array.dtype))
                yield (*operands[:place], other, *operands[place + 1 :])


def _narrowed(operands: Sequence[Operand]) -> Iterator[tuple[Operand, ...]]:
    """The operands with one of them cut down along an axis."""
    for place, operand in enumerate(operands):
        for axis, size in enumerate(operand.array.shape if operand.is_required else ()):
            if size > 1:
                cut = replace(operand, array=np.take(operand.array, [0], axis))
                yield (*operands[:place], cut, *operands[place + 1 :])


def _differ(one: Substitute, other: Substitute, region: SampledRegion) -> bool:
    """True if the first of two graphs runs, and the second does not or computes something else of the same shapes.

    Other shapes are for those to see who know the shapes.
    """
    ours, theirs = results_of(one, region), results_of(other, region)
    if ours is None or theirs is None:
        return ours is not None
    return [a.shape for a in ours] == [b.shape for b in theirs] and not all(map(is_same, ours, theirs))


def _values(value: Plain) -> Iterator[Plain]:
    """Other values for an attribute, the last of which is its own."""
    if isinstance(value, tuple):
        whole = [v for v in value if isinstance(v, int)]
        if len(whole) == len(value):
            yield from itertools.islice(itertools.product(*({*_FEW, v} for v in whole)), 4 * len(_FEW))
    elif isinstance(value, int):
        yield from (v for v in _FEW if v != value)
    elif isinstance(value, float):
        yield 2 * value + 0.5
    yield value


def _with(node: Operator, changed: Mapping[tuple[str, Origin], Plain]) -> Operator:
    """A node with the values of what it takes over changed."""
    given = ((n, Parameter(changed.get((n, p.origin), p.value), p.origin)) for n, p in node.parameters)
    return replace(node, parameters=tuple(given))


def _at_place(node: Operator, place: int, changed: Mapping[tuple[int, str], Plain]) -> Operator:
    given = ((name, replace(p, value=changed.get((place, name), p.value))) for name, p in node.parameters)
    return replace(node, parameters=tuple(given))


def _places(origin: Origin, name: str, region: SampledRegion) -> Iterator[int]:
    """The nodes of a region of which a parameter is taken over."""
    if origin.kind == "attribute":
        yield origin.place
        return
    value = region.operands[origin.place].value
    yield from (k for k, node in enumerate(region.region.nodes) if value in reads(node))
