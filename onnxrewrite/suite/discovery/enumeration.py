"""The convex regions of a graph: connected, of few nodes, with one output or two, each kind once.

A region is grown node by node from each single node.  Of regions that are the same but for names and weights, as those
of equal layers are, one is grown on; of those that differ in numbers alone, as quantized layers do, a few.  The number
of regions is bounded; what is left out is counted.  Beside these
there is for each node all that is computed for it alone, up to what reads weights: a whole attention, in more nodes
than regions are grown to.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxrewrite.authoring.region import Region, readers, reads, sizes, watched
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import attributes, constant_tensor, scopes, subgraphs
from onnxrewrite.ir.schema import is_random
from onnxrewrite.rewrite.driver import Driver

NODES = 12
"""A region has so many nodes at the most."""

OUTPUTS = 2
"""A region has so many outputs at the most."""

REGIONS = 3000
"""So many regions of a model are looked at, the small ones first."""

CONE = 24
"""What is computed for one node alone has so many nodes at the most."""

_OPEN = OUTPUTS + 1
"""While it grows, a region may have so many outputs: the reader of one of them may be the next node."""

_OPERANDS = 12
"""The most values that a region reads, constants among them."""

_FEW = 16
"""Constants of no more elements are told apart by these; larger ones by dtype and shape."""


_ALIKE = 4
"""Of regions that differ in the elements of small constants alone so many are looked at."""


@dataclass
class Enumerated:
    """The regions of a model.

    Attributes:
        regions: One of each kind, by the digest of its structure; the small ones first.
        left: The number of kinds that were met and left out, because there are too many.
    """

    regions: dict[str, Region] = field(default_factory=dict)
    left: int = 0


def enumerate_regions(driver: Driver, *, nodes: int = NODES, most: int = REGIONS, cone: int = 0) -> Enumerated:
    """The regions of all graphs of a driver's model.

    Args:
        driver: Of the model, as the rules of a stage find it.
        nodes: The most nodes of a region.
        most: The most regions of the model.
        cone: The most nodes of what is computed for one node alone, which is a region beside these.
    """
    found = Enumerated()
    for graph in scopes(driver.model):
        growth = _Growth(graph, driver.facts(graph))
        growth.grow(found, nodes, most)
        growth.add_cones(found, cone)
    return found


def operands(region: Region) -> tuple[ir.Value, ...]:
    """The values that a region reads and does not compute, constants among them, in the order of their first use in its
    formula."""
    return tuple(dict.fromkeys(uses_of_operands(region)))


def uses_of_operands(region: Region) -> list[ir.Value]:
    """The same as often as they are used: in the order in which its formula has them, written from the outputs down."""
    inside = set(region.nodes)
    found: list[ir.Value] = []
    done: set[ir.Node] = set()

    def visit(value: ir.Value | None) -> None:
        node = value.producer() if value is not None else None
        if value is None or node in done:
            return
        if node not in inside:
            found.append(value)
            return
        done.add(node)
        for each in reads(node):
            visit(each)

    for output in region.outputs:
        visit(output)
    return found


class _Growth:
    """Grows the regions of one graph.  A set of nodes is a whole number, with a bit for each node."""

    def __init__(self, graph: ir.Graph, facts: Facts):
        self._graph = graph
        self._facts = facts
        self._sizes = sizes(graph, facts)
        self._nodes = [n for n in graph if not all(o in self._sizes for o in n.outputs)]
        self._number = {n: i for i, n in enumerate(self._nodes)}
        self._values = [[o for o in n.outputs if o.uses() or o.is_graph_output()] for n in self._nodes]
        self._readers = {o: self._reading(o) for own in self._values for o in own}
        self._producers = [self._producing(n) for n in self._nodes]
        self._near = self._neighbours()
        self._above, self._below = self._reach()
        self._labels = [_label(n) for n in self._nodes]

    def grow(self, found: Enumerated, nodes: int, most: int) -> None:
        """Add the regions of the graph, layer by layer."""
        eligible = sum(1 << i for i, n in enumerate(self._nodes) if _is_work(n))
        layer = [1 << i for i in _bits(eligible)]
        met, grown = set(layer), defaultdict[str, set[str]](set)
        for _ in range(nodes):
            following: list[int] = []
            for mask in layer:
                if not self._take(mask, found, grown, most):
                    continue
                around = 0
                for i in _bits(mask):
                    around |= self._near[i]
                for i in _bits(around & eligible & ~mask):
                    larger = mask | 1 << i
                    if larger not in met:
                        met.add(larger)
                        following.append(larger)
            layer = following

    def add_cones(self, found: Enumerated, nodes: int) -> None:
        """Add what is computed for each node alone, but for what is there already."""
        for number, node in enumerate(self._nodes):
            mask = self._cone(number, nodes) if _is_work(node) else 0
            members = list(_bits(mask))
            if not members or len(self._read(members, mask)) > _OPERANDS:
                continue
            ends = self._ends(members, mask)
            _, digest = self._digests(members, ends)
            if len(ends) == 1 and digest not in found.regions:
                found.regions[digest] = self._region(members, ends, mask)

    def _cone(self, root: int, nodes: int) -> int:
        """A node and what is computed for it alone, up to nodes that read weights: its fanout-free cone.  Nothing
        where it has more nodes."""
        mask, left = 1 << root, self._producers[root]
        while left:
            number = left.bit_length() - 1  # its readers come after it, so they are in by now
            left ^= 1 << number
            if self._is_for(number, mask):
                mask |= 1 << number
                left |= self._producers[number]
            if mask.bit_count() > nodes:
                return 0
        return mask

    def _is_for(self, number: int, mask: int) -> bool:
        """True if a node is computed for those of a set alone, and reads no weight."""
        node = self._nodes[number]
        inside = all(
            not elsewhere and not of & ~mask for of, elsewhere in (self._readers[o] for o in self._values[number])
        )
        return inside and _is_work(node) and not any(self._is_weight(v) for v in reads(node))

    def _is_weight(self, value: ir.Value | None) -> bool:
        tensor = constant_tensor(value) if value is not None else None
        return tensor is not None and tensor.size > _FEW

    def _take(self, mask: int, found: Enumerated, grown: dict[str, set[str]], most: int) -> bool:
        """Note a set of nodes if it is a region; True if it is to be grown on.

        Those that were grown on are known by their digests without the elements of constants, then with them.
        """
        members = list(_bits(mask))
        ends = self._ends(members, mask)
        if len(ends) > _OPEN or len(self._read(members, mask)) > _OPERANDS:
            return False
        kind, digest = self._digests(members, ends)
        alike = grown[kind]
        if digest in alike or len(alike) >= _ALIKE:
            return False
        alike.add(digest)
        if not 0 < len(ends) <= OUTPUTS or digest in found.regions or not self._is_convex(members, mask):
            return True
        if len(found.regions) >= most:
            found.left += 1
            return False
        found.regions[digest] = self._region(members, ends, mask)
        return True

    # -- the graph -------------------------------------------------------------------------------------------

    def _reading(self, value: ir.Value) -> tuple[int, bool]:
        """The nodes that read a value, and whether the caller of the graph or a graph inside does; shape arithmetic is
        no reader."""
        mask, is_read_elsewhere = 0, False
        for node in readers(value):
            if node in self._number:
                mask |= 1 << self._number[node]
            elif node is None or not all(o in self._sizes for o in node.outputs):
                is_read_elsewhere = True
        return mask, is_read_elsewhere

    def _producing(self, node: ir.Node) -> int:
        """The nodes that compute what a node reads."""
        found = (v.producer() for v in reads(node) if v is not None and v not in self._sizes)
        return sum({1 << self._number[p] for p in found if p in self._number})

    def _neighbours(self) -> list[int]:
        near = list(self._producers)
        for number, above in enumerate(self._producers):
            for i in _bits(above):
                near[i] |= 1 << number
        return near

    def _reach(self) -> tuple[list[int], list[int]]:
        """The nodes that each node is computed from, and those that are computed from it."""
        above, below = [0] * len(self._nodes), [0] * len(self._nodes)
        for number, producers in enumerate(self._producers):  # the nodes of a graph are in order
            for i in _bits(producers):
                above[number] |= above[i] | 1 << i
        for number in reversed(range(len(self._nodes))):
            for i in _bits(self._producers[number]):
                below[i] |= below[number] | 1 << number
        return above, below

    # -- a set of nodes --------------------------------------------------------------------------------------

    def _ends(self, members: Sequence[int], mask: int) -> list[ir.Value]:
        """The values that a set computes and others need, the last first: that is where a pattern is anchored."""
        found = [o for i in members for o in self._values[i] if self._readers[o][1] or self._readers[o][0] & ~mask]
        return found[::-1]

    def _read(self, members: Sequence[int], mask: int) -> dict[ir.Value, None]:
        found = (v for i in members for v in reads(self._nodes[i]) if v is not None)
        return dict.fromkeys(v for v in found if not self._is_inside(v, mask))

    def _is_inside(self, value: ir.Value, mask: int) -> bool:
        producer = value.producer()
        return producer in self._number and bool(mask >> self._number[producer] & 1)

    def _is_convex(self, members: Sequence[int], mask: int) -> bool:
        """True if no path leaves the set and comes back."""
        above = below = 0
        for i in members:
            above |= self._above[i]
            below |= self._below[i]
        return not above & below & ~mask

    def _region(self, members: Sequence[int], ends: Sequence[ir.Value], mask: int) -> Region:
        nodes = tuple(self._nodes[i] for i in members)
        border = [v for v in self._read(members, mask) if self._facts.tensor(v) is None]
        return Region(
            graph=self._graph,
            nodes=nodes,
            inputs=tuple(v for v in border if v not in self._sizes),
            further=(),
            sizes=tuple(v for v in border if v in self._sizes),
            outputs=tuple(ends),
            watched=watched(nodes, ends, self._sizes),
        )

    def _digests(self, members: Sequence[int], ends: Sequence[ir.Value]) -> tuple[str, str]:
        """Two digests: the same for sets that are the same but for names, weights and the elements of small constants;
        and for those whose small constants are the same, too."""
        known = {o: (place, k) for place, i in enumerate(members) for k, o in enumerate(self._nodes[i].outputs)}
        outside: dict[ir.Value, int] = {}
        told: list[object] = [[known[o] for o in ends]]
        for i in members:
            told.append(self._labels[i])
            for value in reads(self._nodes[i]):
                if value is None or value in known:
                    told.append(None if value is None else known[value])
                else:
                    number = outside.setdefault(value, len(outside))
                    told.append((number, self._told(value) if number == len(outside) - 1 else ""))
        kind = repr(told)
        return _sha256(kind), _sha256(f"{kind} {[_elements(constant_tensor(v)) for v in outside]}")

    def _told(self, value: ir.Value) -> str:
        """A value from outside in words: its dtype and shape, and whether it is constant."""
        return f"{self._facts.dtype(value)} {self._facts.shape(value)} {constant_tensor(value) is not None}"


def _elements(tensor: ir.TensorProtocol | None) -> str:
    """The elements of a small constant."""
    return tensor.tobytes().hex() if tensor is not None and tensor.size <= _FEW else ""


def _sha256(told: str) -> str:
    return hashlib.sha256(told.encode()).hexdigest()


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _is_work(node: ir.Node) -> bool:
    """True if a node may be part of a region."""
    return node.op_type not in ("Identity", "Constant") and not subgraphs(node) and not is_random(node)


def _label(node: ir.Node) -> str:
    given = sorted(f"{a.name}={a.value}" for a in attributes(node) if not a.is_ref())
    return f"{node.domain}.{node.op_type} {given}"
