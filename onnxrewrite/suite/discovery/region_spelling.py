"""One region spelled as another: the nodes of the one over the operands of the other, if both compute the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.authoring.region import Region, reads
from onnxrewrite.errors import NOT_RUN
from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import attributes
from onnxrewrite.ruletest.modular import check_ring
from onnxrewrite.suite.discovery.enumeration import operands
from onnxrewrite.suite.discovery.joining import Hit
from onnxrewrite.suite.discovery.region_cost import Cost, cost_of
from onnxrewrite.suite.discovery.result_fingerprint import Relation, is_same
from onnxrewrite.suite.discovery.sampled_region import FEW, Operand, SampledRegion
from onnxrewrite.suite.discovery.spelling_variations import may_take_over, misfits
from onnxrewrite.suite.discovery.substitute import (
    Given,
    Inner,
    Operator,
    Origin,
    Parameter,
    Plain,
    Read,
    Substitute,
    model_of,
    results_of,
)

_RUNS = 2
"""In exact arithmetic, both spellings are compared at so many inputs."""


@dataclass(frozen=True)
class Spelling:
    """A region as a small graph.

    Attributes:
        graph: The graph over the region's operands.
        constants: Those operands that are constants of the region.
    """

    graph: Substitute
    constants: Mapping[int, Given]

    def over(self, chosen: Mapping[int, Read]) -> Substitute:
        """The graph with other operands in the places of its own."""

        def changed(read: Read) -> Read:
            return chosen[read] if isinstance(read, int) else read

        nodes = tuple(replace(n, inputs=tuple(map(changed, n.inputs))) for n in self.graph.nodes)
        results = tuple(changed(r) for r in self.graph.results)
        return Substitute(nodes, tuple(r for r in results if isinstance(r, int | Inner)))


def spelling(region: Region, facts: Facts) -> Spelling | None:
    """A region as a small graph; None where it has what a rule's function cannot build."""
    read = operands(region)
    number: dict[ir.Value, Read] = {v: i for i, v in enumerate(read)}
    nodes = []
    for place, node in enumerate(region.nodes):
        given = _attributes(node)
        if given is None or facts.is_newer(node):
            return None
        named = _named(node, facts)
        inputs: list[Read] = [None if v is None else number[v] for v in reads(node)]
        parameters = (*given, *named.values())
        nodes.append(Operator(node.domain, node.op_type, _without(inputs, named), parameters, len(node.outputs)))
        number |= {o: Inner(place, k) for k, o in enumerate(node.outputs)}
    results = tuple(number[o] for o in region.outputs)
    constants = {i: _given(v, facts) for i, v in enumerate(read)}
    graph = Substitute(tuple(nodes), tuple(r for r in results if isinstance(r, int | Inner)))
    return Spelling(graph, {i: c for i, c in constants.items() if c is not None})


def _attributes(node: ir.Node) -> list[tuple[str, Parameter]] | None:
    """The attributes of a node; None where one is no number and no text."""
    given = []
    for each in sorted(attributes(node), key=lambda a: a.name):
        value = tuple(each.value) if isinstance(each.value, list) else each.value
        if each.is_ref() or not (isinstance(value, int | float | str) or _is_plain(value)):
            return None
        given.append((each.name, Parameter(value)))
    return given


def _is_plain(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, int | float | str) for v in value)


def _named(node: ir.Node, facts: Facts) -> dict[int, tuple[str, Parameter]]:
    """The inputs of a node that are parameters, attributes in other opsets, and constant."""
    known = schema.schema(node.domain, node.op_type, facts.version(node))
    found = {}
    for place, formal in enumerate(known.inputs if known is not None else ()):
        value = reads(node)[place] if place < len(node.inputs) else None
        tensor = facts.tensor(value) if value is not None else None
        is_parameter = place > 0 and schema.is_parameter(node.domain, node.op_type, formal.name)
        if is_parameter and tensor is not None and formal.name not in _SHAPES:
            listed = tensor.numpy().tolist()
            found[place] = formal.name, Parameter(tuple(listed) if isinstance(listed, list) else listed)
    return found


_SHAPES = ("shape",)
"""Inputs that were attributes once and are operands to patterns: the sizes of the result."""


def _without(inputs: Sequence[Read], named: Mapping[int, object]) -> tuple[Read, ...]:
    kept = [None if place in named else read for place, read in enumerate(inputs)]
    while kept and kept[-1] is None:
        kept.pop()
    return tuple(kept)


def _given(value: ir.Value, facts: Facts) -> Given | None:
    tensor = facts.tensor(value)
    return Given.of(tensor.numpy(), tensor.dtype) if tensor is not None and tensor.size <= FEW else None


# ------------------------------------------------------------------------------------------------- as another one


def hits(left: SampledRegion, right: Spelling, chosen: Mapping[int, int]) -> Iterator[Hit]:
    """A region with another in its place, if that is cheaper and computes the same: first with what the two have in
    common taken over from the one, if it may change, then with all constants and attributes as they are.

    Args:
        left: The region that is to be replaced.
        right: The other one.
        chosen: The operand of the left region for each of the right one that is no constant.
    """
    whole = spelling(left.region, left.facts)
    if whole is None:
        return
    shared = {i: _same_constant(c, left.operands) for i, c in right.constants.items()}
    taken = right.over({**right.constants, **{i: k for i, k in shared.items() if k is not None}, **chosen})
    own = right.over({**right.constants, **chosen})
    general = replace(taken, nodes=tuple(replace(n, parameters=_anchored(n, left)) for n in taken.nodes))
    if not _is_equal(own, left) or not is_cheaper(own, whole.graph, left) or differs(whole.graph, own, left):
        return
    equal = tuple(Relation() for _ in left.results)
    wrong = tuple(misfits(whole.graph, own, left))
    kept = [general] if may_take_over(whole.graph, general, left) else []
    yield from (Hit(left, each, equal, wrong) for each in dict.fromkeys((*kept, own)))


def is_cheaper(one: Substitute, other: Substitute, region: SampledRegion) -> bool:
    """True if a graph over the operands of a region costs less than another."""
    costs = _cost(one, region), _cost(other, region)
    return costs[0] is not None and costs[1] is not None and costs[0] < costs[1]


def _cost(graph: Substitute, region: SampledRegion) -> Cost | None:
    try:
        return cost_of(model_of(graph, region.operands, region.opset))
    except NOT_RUN:
        return None


def differs(one: Substitute, other: Substitute, region: SampledRegion) -> bool:
    """True if two graphs over the operands of a region differ in exact arithmetic, where that applies."""
    before, after = (io.load(model_of(each, region.operands, region.opset)) for each in (one, other))
    return check_ring(before, after, runs=_RUNS).status == "differs"


def _is_equal(graph: Substitute, left: SampledRegion) -> bool:
    """True if a graph computes what the region does at the region's numbers, in its shape and dtype."""
    found = results_of(graph, left)
    return found is not None and all(map(is_same, found, left.results))


def _same_constant(given: Given, known: Sequence[Operand]) -> int | None:
    """The operand that is the same constant."""
    same = (
        i
        for i, o in enumerate(known)
        if o.is_constant and o.value.dtype == given.dtype and np.array_equal(o.array, given.array)
    )
    return next(same, None)


def _anchored(node: Operator, left: SampledRegion) -> tuple[tuple[str, Parameter], ...]:
    """The parameters of a node with their origins: the region's own parameters of the same name and value."""
    return tuple((name, replace(p, origin=_origin(name, p.value, left))) for name, p in node.parameters)


def _origin(name: str, value: Plain, left: SampledRegion) -> Origin:
    number = {o.value: i for i, o in enumerate(left.operands)}
    for place, node in enumerate(left.region.nodes):
        for formal, given in _named(node, left.facts).values():
            if (formal, given.value) == (name, value):
                read = reads(node)[schema.formal_index(_schema(node, left.facts), name) or 0]
                return Origin("number", number[read]) if read in number else Origin("literal")
        if name in node.attributes and (name, value) in [(n, p.value) for n, p in _attributes(node) or ()]:
            return Origin("attribute", place, name)
    return Origin("literal")


def _schema(node: ir.Node, facts: Facts) -> schema.Schema | None:
    return schema.schema(node.domain, node.op_type, facts.version(node))


def orders(kinds: Sequence[str], most: int) -> Iterator[dict[int, int]]:
    """Ways to give operands the places of others of their kind: the number of one to that of another, its own first.

    Args:
        kinds: The kinds of the operands.
        most: So many ways at the most.
    """
    ways = itertools.permutations(range(len(kinds)))
    found = (way for way in itertools.islice(ways, _WAYS) if [kinds[k] for k in way] == list(kinds))
    yield from (dict(enumerate(way)) for way in itertools.islice(found, most))


_WAYS = 5040
"""So many orders of operands are looked at."""
