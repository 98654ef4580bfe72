"""The groups that a node lies in, one inside the other, by the module that the exporter says it comes from.

A group of thousands cannot be drawn, so a large one is divided in computing order; that also groups the nodes of a
model that says nothing.  Nothing here knows which nodes a rewrite made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import TypeAlias, TypeVar

import onnx_ir as ir

from onnxrewrite.explanation.near_miss import source_of

MAX_CHILDREN = 40
"""A group of more nodes than these, or more groups, is divided."""

_MAX_DEPTH = 16
"""Deeper modules are put into the deepest; nobody opens seventeen boxes."""

Path: TypeAlias = tuple[str, ...]
"""The labels of the groups around a node, the outermost first."""

_T = TypeVar("_T")

_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def module(node: ir.Node) -> Path:
    """The modules that a node comes from, the outermost first; none where neither exporter nor name says any.

    ``['', 'encoder', 'encoder.layer.0', 'add_1']`` and the name ``/encoder/layer.0/Add`` are both in encoder, layer.0.
    """
    said = source_of(node)
    if said.startswith("["):  # pkg.torch.onnx.name_scopes: a list in Python's spelling
        return _steps([a or b for a, b in _QUOTED.findall(said)])
    if ": " in said:  # namespace: name and class of each module
        return _steps([part.partition(": ")[0] for part in said.split("/")])
    return tuple(part for part in (node.name or "").split("/")[:-1] if part)[:_MAX_DEPTH]


def _steps(names: Sequence[str]) -> Path:
    """From full names, each of which begins with the one before, and the node's own as the last."""
    steps = (inner.removeprefix(f"{outer}.") for outer, inner in pairwise(["", *names[:-1]]))
    return tuple(step for step in steps if step)[:_MAX_DEPTH]


@dataclass
class Group:
    """Nodes by number, and groups by label, each in computing order.

    Attributes:
        label: Its name; a merged one has several labels in one.
        path: The labels down to it, its own included: what it is known by on both sides.
    """

    label: str = ""
    path: Path = ()
    groups: dict[str, Group] = field(default_factory=dict)
    nodes: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Group:
        """The outermost group of nodes that have these paths, no group of them too large to be drawn."""
        top = cls()
        for number, path in enumerate(paths):
            group = top
            for label in path:
                group = group.groups.setdefault(label, cls(label))
            group.nodes.append(number)
        top._divide()
        top._settle(())
        return top

    def _divide(self) -> None:
        """Leave no group, this one and those inside, with more than ``MAX_CHILDREN`` nodes, or given groups."""
        for each in self.groups.values():
            each._divide()
        if len(self.groups) > MAX_CHILDREN:
            groups, self.groups = list(self.groups.values()), {}
            for part in _parts(groups):
                self._fresh(f"{part[0].label} … {part[-1].label}").groups = {g.label: g for g in part}
        if len(self.nodes) > MAX_CHILDREN:
            nodes, self.nodes = self.nodes, []
            self._divide_nodes(nodes, 1)

    def _divide_nodes(self, nodes: Sequence[int], first: int) -> None:
        for part in _parts(nodes):
            group = self._fresh(f"nodes {first}–{first + len(part) - 1}")
            if len(part) > MAX_CHILDREN:
                group._divide_nodes(part, first)
            else:
                group.nodes = list(part)
            first += len(part)

    def simplify(self) -> None:
        """A group of one node is that node; a group of nothing but one group is that, under both labels."""
        groups, self.groups = self.groups, {}
        for label, each in groups.items():
            each.simplify()
            if len(each.nodes) <= 1 and not each.groups:
                self.nodes += each.nodes
                continue
            if len(each.groups) == 1 and not each.nodes:
                (each,) = each.groups.values()
                each.label = f"{label}/{each.label}"
            self.groups[label] = each
        self.nodes.sort()

    def unwrap(self, ends: set[int]) -> None:
        """Do without the one group that holds everything but ``ends``."""
        while ends.issuperset(self.nodes):
            full = [label for label, each in self.groups.items() if not ends.issuperset(each.paths())]
            others = {label: each for label, each in self.groups.items() if label not in full}
            if len(full) != 1 or others.keys() & self.groups[full[0]].groups.keys():
                return
            only = self.groups[full[0]]
            self.groups, self.nodes = {**others, **only.groups}, sorted([*self.nodes, *only.nodes])

    def paths(self) -> dict[int, Path]:
        """Each node, and the path of the group that it lies in."""
        return {number: group.path for group in self.below() for number in group.nodes}

    def below(self) -> Iterator[Group]:
        """This group and those inside, outer before inner."""
        yield self
        for each in self.groups.values():
            yield from each.below()

    def _settle(self, path: Path) -> None:
        self.path = path
        for label, each in self.groups.items():
            each._settle((*path, label))

    def _fresh(self, label: str) -> Group:
        """A new group, whatever the others are called."""
        name = next(name for n in count() if (name := f"{label} ({n})" if n else label) not in self.groups)
        self.groups[name] = Group(name)
        return self.groups[name]


def _parts(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """As few parts as may be, but no more than there may be groups."""
    size = max(MAX_CHILDREN, -(-len(items) // MAX_CHILDREN))
    number = -(-len(items) // size)
    bounds = [len(items) * i // number for i in range(number + 1)]
    yield from (items[a:b] for a, b in pairwise(bounds))
