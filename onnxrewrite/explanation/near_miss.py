"""Near misses: records of where a rule came near and what kept it, and their grouping."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

import onnx_ir as ir

from onnxrewrite.pattern.match import Binding
from onnxrewrite.pattern.misses import Stands
from onnxrewrite.pattern.terms import AnyNode, AnyOf, Call, Power, Product, Sum, Term, children, walk

_SOURCES = ("pkg.torch.onnx.name_scopes", "namespace")
"""Metadata in which exporters say what a node comes from."""

OPERATORS = Call | Power | Sum | Product | AnyNode

_NAME = re.compile(r"`[^`]*`")


class PlaceRow(TypedDict):
    """A place where a rule came near, see ``Near``; ``guard``: the whole pattern matches."""

    value: str
    node: str
    source: str
    matched: int
    operators: int
    reason: str
    guard: bool
    otherwise: str


class ReasonRow(TypedDict):
    """The places of one reason."""

    reason: str
    places: list[PlaceRow]


class ExplanationReport(TypedDict):
    """A rule in a model as plain data, see ``Explanation``."""

    rule: str
    applied: list[str]
    groups: list[ReasonRow]
    newer: dict[str, int]


@dataclass(frozen=True)
class Near:
    """A place where a rule came near.

    Attributes:
        value: The name of the value that it would replace.
        node: The name of the node that computes it.
        source: The exporter's note of where that comes from; empty if there is none.
        matched: The number of the pattern's operators that are there, of ``operators``.
        operators: The number of operators that must be there.
        reason: The first thing that is not as it must be.
        is_guard: True if the whole pattern matches, and the rule itself or the engine refused.
        held: The number of the rule's preconditions that held before it refused.
        stands: The kind of thing that stands where the pattern goes on.
        faults: The number of things that are not as they must be.
        bound: The number of parts of the pattern that are there, operands and parameters with them.
        otherwise: The outcome without that requirement; empty if it is not known.
    """

    value: str
    node: str
    source: str
    matched: int
    operators: int
    reason: str
    is_guard: bool = False
    held: int = 0
    stands: Stands = Stands.NODE
    faults: int = 1
    bound: int = 0
    otherwise: str = ""

    @property
    def missing(self) -> int:
        """The number of operators that are not there."""
        return self.operators - self.matched

    def to_json(self) -> PlaceRow:
        """Plain data."""
        return {
            "value": self.value,
            "node": self.node,
            "source": self.source,
            "matched": self.matched,
            "operators": self.operators,
            "reason": self.reason,
            "guard": self.is_guard,
            "otherwise": self.otherwise,
        }


@dataclass(frozen=True)
class Group:
    """Places of one reason, names aside: the layers of a model."""

    places: tuple[Near, ...]

    @property
    def first(self) -> Near:
        """The place that stands for all."""
        return self.places[0]

    def to_json(self) -> ReasonRow:
        """Plain data."""
        return {"reason": self.first.reason, "places": [p.to_json() for p in self.places]}


@dataclass(frozen=True)
class Explanation:
    """The places in a model where a rule applies, and where it came near.

    Attributes:
        rule: Its name.
        applied: The values that it replaces.
        groups: The places where it came near, the nearest first.
        newer: The operators for which ``apply`` may bring the model to a newer opset, and the opset that each needs:
            what is found there is not told here.
    """

    rule: str
    applied: tuple[str, ...]
    groups: tuple[Group, ...]
    newer: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> ExplanationReport:
        """Plain data."""
        groups = [g.to_json() for g in self.groups]
        return {"rule": self.rule, "applied": list(self.applied), "groups": groups, "newer": dict(self.newer)}


def grouped(found: Iterable[Near]) -> tuple[Group, ...]:
    """Equal reasons together: first what matches as a whole, of that what got furthest; then what lacks least and does
    not end there, then what is most frequent."""
    groups: dict[tuple[str, int, bool, str], list[Near]] = defaultdict(list)
    for near in found:
        template = _NAME.sub("``", near.reason)
        groups[template, near.missing, near.is_guard, _NAME.sub("``", near.otherwise)].append(near)
    made = [Group(tuple(places)) for places in groups.values()]
    return tuple(sorted(made, key=_nearness))


def _nearness(group: Group) -> tuple[bool, int, int, int, int, int, int]:
    first = group.first
    return (
        not first.is_guard,
        first.missing,
        first.faults,
        -first.held,
        -first.bound,
        -first.stands,
        -len(group.places),
    )


def source_of(node: ir.Node) -> str:
    """The exporter's note of where a node comes from; empty if there is none."""
    return next((node.metadata_props[key] for key in _SOURCES if key in node.metadata_props), "")


def count(pattern: Iterable[Term], binding: Binding) -> tuple[int, int]:
    """The numbers of a pattern's operators that are there and that must be, in the alternatives that were tried.

    What was bound is there, and so is what stands between that and the anchor.
    """
    there: dict[Term, bool] = {}

    def visit(item: Term) -> bool:
        """True if an operator at ``item`` or above it in the graph is there."""
        if isinstance(item, AnyOf):
            return visit(binding.bound.get((item, "alternative")) or _tried(item, binding))
        if item in there:
            return there[item]
        above = [visit(child) for child in children(item)]  # all of them: each is to be counted
        if not isinstance(item, OPERATORS):
            return any(above)
        there[item] = any(above) or item in binding.bound or (item, "entered") in binding.bound
        return there[item]

    for item in pattern:
        visit(item)
    found = [item for item, is_there in there.items() if is_there]
    if len(found) == 1 and found[0] not in binding.bound:
        found = []  # any product, say, and nothing of what it is to be of
    return len(found), len(there)


def _tried(item: AnyOf, binding: Binding) -> Term:
    """The alternative of which most is bound, of several the smallest."""
    return min(item.alternatives, key=lambda a: (-sum(t in binding.bound for t in _walked(a)), size(a)))


@functools.lru_cache(maxsize=4096)  # asked for at every place
def _walked(item: Term) -> tuple[Term, ...]:
    return tuple(walk(item))


@functools.lru_cache(maxsize=4096)  # alternatives share sub-patterns, and are nested
def size(item: Term) -> int:
    """The least number of operators that a term stands for."""
    if isinstance(item, AnyOf):
        return min(map(size, item.alternatives))
    return int(isinstance(item, OPERATORS)) + sum(map(size, children(item)))
