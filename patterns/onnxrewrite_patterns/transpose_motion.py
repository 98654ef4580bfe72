"""Moving Transposes through whatever does not care about layout, until they meet and vanish.

Why: a channels-last network that was exported for channels-first operators has a Transpose on either side of every
convolution, each of them a pass over memory, and each of them between a convolution and the bias, activation or
padding that could be fused into it.

Around one Transpose lies a *region*: the nodes that would do as well in the other layout (``transpose_frames.py``), and
the values between them.  Each of its nodes is either kept or turned; where a kept one meets a turned one there has to be
a Transpose, and where a turned one meets one of the Transposes that are there, that one goes.  Which nodes to turn is
then a minimum cut (networkx), as in register allocation and in layout assignment: Transposes that many values share, or
that residual connections tie together, are seen as a whole.  The chosen nodes are turned in one rewrite.

What gets smaller, so that this ends and nothing undoes it: the price of all Transposes of the graph, that is (1) the
number of those that move data; then (2) of those that only move dimensions of size one, twice, plus the number of those
right beside a convolution or the like, where they hide a bias or a padding from it.  The whole is paid again on the
tape before anything is changed, additional Reshapes, Unsqueezes and Gathers included.

A Transpose that feeds a matrix product is the product's own spelling (attention): it is no reason to move anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
import onnx_ir as ir
from onnxrewrite_patterns.transpose_frames import (
    MOVE,
    SMALL,
    Frame,
    Perm,
    compose,
    frame_of,
    inverse,
    is_identity,
    layout_of,
    perm_of,
)

from onnxrewrite import Builder, Facts, Value, cheapest_cut, same_shape

Shape = Sequence[int | ir.SymbolicDim] | None

BESIDE = 1
"""The price of a place beside a convolution."""

_LARGE = 400
"""No region grows beyond so many nodes."""

_FUSES = frozenset(
    "Conv ConvTranspose ConvInteger QLinearConv BatchNormalization MaxPool AveragePool GlobalAveragePool".split()
)
_PRODUCTS = frozenset(
    "MatMul Gemm MatMulInteger QLinearMatMul FusedMatMul Attention MultiHeadAttention Einsum".split()
)

_SCALES = frozenset("Cast Identity Mul Div QuantizeLinear DequantizeLinear".split())

_KEPT, _TURNED = "kept", "turned"


def reshaped(shape: Shape, perm: Perm) -> tuple[int, ...] | None:
    """The target of the Reshape that does the same as a Transpose; None where it moves data, or no target can be written."""
    if shape is None or len(shape) != len(perm):
        return None
    kept = [a for a in perm if shape[a] != 1]
    if kept != sorted(kept):
        return None
    new = [shape[a] for a in perm]
    target = []
    for axis, dim in enumerate(new):
        if isinstance(dim, int):
            target.append(dim)
        else:
            target.append(0 if same_shape([dim], [shape[axis]]) else -1)
    if any(d == 0 and new[i] == 0 for i, d in enumerate(target)) or target.count(-1) > 1:
        return None
    return None if -1 in target and 0 in target else tuple(target)


def price(shape: Shape, perm: Perm) -> int:
    """What it costs to lay a value of this shape out in another way."""
    if is_identity(perm):
        return 0
    if reshaped(shape, perm) is None or shape is None:
        return MOVE
    return 0 if same_shape([shape[a] for a in perm], shape) else SMALL


class Region:
    """The nodes around one value that could do with another layout of it.

    Args:
        facts: What is known about the values.
        graph: The graph that the region lies in.
        seed: The value.
        layout: Its other layout, as the permutation that leads there.

    Attributes:
        layouts: Value to its other layout.
        frames: Node to its frame and the order of axes that gives these layouts.
        stops: Operators at the border that need their operands as they are.
    """

    def __init__(self, facts: Facts, graph: ir.Graph | ir.Function, seed: Value, layout: Perm):
        self.facts = facts
        self.graph = graph
        self.layouts: dict[Value, Perm] = {seed: layout}
        self.frames: dict[ir.Node, tuple[Frame, Perm]] = {}
        self.stops: dict[str, None] = {}
        self._known: dict[ir.Node, Frame | None] = {}
        self._grow()

    # -- growing -------------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        queue = list(self.layouts)
        for value in queue:
            around = dict.fromkeys((value.producer(), *value.consumers()))
            for node in around:
                if node is None or node.graph is not self.graph or node in self.frames:
                    continue
                if node.op_type != "Transpose" and len(self.frames) < _LARGE:
                    queue.extend(self._join(node, value))

    def _join(self, node: ir.Node, value: Value) -> list[Value]:
        """Take a node in, if it has a frame in which every operand gets the one layout it may have; new values."""
        if node not in self._known:
            self._known[node] = frame_of(node, self.facts)
        frame = self._known[node]
        operands = list(_operands(node, frame)) if frame is not None else []
        axes = next((a for v, a in operands if v is value), None)
        if frame is None or axes is None:
            self.stops[node.op_type] = None
            return []
        order = frame.order(axes, self.layouts[value])
        new: dict[Value, Perm] = {}
        for other, held in operands:
            layout = layout_of(held, order)
            if not is_identity(layout) and self.layouts.get(other, new.setdefault(other, layout)) != layout:
                return []
        if is_identity(order) or not frame.fits(order):
            self.stops[node.op_type] = None
            return []
        new = {v: p for v, p in new.items() if v not in self.layouts}
        self.frames[node] = frame, order
        self.layouts.update(new)
        return list(new)

    # -- how values are read and made ----------------------------------------------------------------------------

    def follows(self, node: ir.Node, index: int) -> bool:
        """Whether a node of the region, when it is turned, reads input ``index`` in the other layout."""
        if node not in self.frames:
            return False
        frame, order = self.frames[node]
        return index in frame.inputs and not is_identity(layout_of(frame.inputs[index], order))

    def makes(self, value: Value) -> bool:
        """Whether the producer of a value, when it is turned, gives it in the other layout."""
        node, index = value.producer(), value.index()
        if node not in self.frames or node is None or index is None:
            return False
        frame, order = self.frames[node]
        return index in frame.outputs and not is_identity(layout_of(frame.outputs[index], order))

    def above(self, value: Value) -> tuple[Value, Perm] | None:
        """What a value is the Transpose of."""
        node = value.producer()
        return self.turn(node) if node is not None and node.graph is self.graph else None

    def turn(self, node: ir.Node) -> tuple[Value, Perm] | None:
        """The operand of a Transpose, and how it is permuted."""
        if (
            node.op_type != "Transpose"
            or node.domain
            or node.graph is not self.graph
            or node.inputs[0] is None
        ):
            return None
        perm = perm_of(node, self.facts.rank(node.inputs[0]))
        return None if perm is None else (node.inputs[0], perm)

    def turned_shape(self, value: Value) -> Shape:
        """The shape of a value in its other layout."""
        shape = self.facts.shape(value)
        return None if shape is None else [shape[a] for a in self.layouts[value]]

    # -- what it costs -------------------------------------------------------------------------------------------

    def cheapest(self) -> list[ir.Node]:
        """The nodes to turn: none if that is as cheap, else all that may be, for a Transpose is best far away."""
        costs = list(self._costs()) if self.frames else []
        kept = cheapest_cut(costs, _KEPT, _TURNED)
        if kept.issuperset(self.frames):
            return []
        turned = cheapest_cut(((b, a, cost) for a, b, cost in costs), _TURNED, _KEPT)
        return [n for n in self.frames if n in turned]

    def _costs(self) -> Iterator[tuple[Hashable, Hashable, int | None]]:
        for node, (frame, order) in self.frames.items():
            relaid = (self._relaid(node.inputs[i], frame.rank, order) for i in frame.relaid)
            yield _KEPT, node, frame.extra(order) + sum(relaid)
        for value, layout in self.layouts.items():
            above, readers = self.above(value), self._readers(value)
            for turn, (_, perm) in self._turns(value):
                beside = BESIDE * is_beside(turn)
                yield turn, _TURNED, price(self.facts.shape(value), perm) + beside
                cost = price(self.turned_shape(value), compose(inverse(layout), perm))
                yield _KEPT, turn, cost + beside if cost else 0
            if above is not None:
                source, perm = above
                shape, beside = self.facts.shape(source), BESIDE * is_beside(value.producer())
                as_it_is = price(shape, perm) + beside
                other = price(shape, compose(perm, layout))
                other += beside if other else 0
                maker: Hashable = None
            else:
                fused = any(n.op_type in _FUSES for n, _ in value.uses())
                as_it_is = price(self.turned_shape(value), inverse(layout)) + BESIDE * fused
                other = price(self.facts.shape(value), layout)
                maker = value.producer() if self.makes(value) else _KEPT
                if other:
                    turns = [t for t, _ in self._turns(value)]
                    other += BESIDE * (_is_made_by(value, _FUSES) or any(map(is_beside, turns)))
            if maker is not _KEPT:
                # Whoever is kept reads the value as it is; if it is made in the other layout, that takes a Transpose.
                yield from ((r, (value, _KEPT), None) for r in readers)
                yield (value, _KEPT), maker or _TURNED, as_it_is
            yield maker or _KEPT, (value, _TURNED), other
            yield from (((value, _TURNED), r, None) for r in readers)

    def _readers(self, value: Value) -> list[Hashable]:
        """Who needs the value in a layout: nodes and Transposes of the region, and all others, which are kept."""
        readers: dict[Hashable, None] = {}
        turns = dict(self._turns(value))
        for node, index in value.uses():
            if self.follows(node, index) or node in turns:
                readers[node] = None
            elif self.turn(node) is None or _feeds_product(node):
                readers[_KEPT] = None
        if value.is_graph_output():
            readers[_KEPT] = None
        return list(readers)

    def _turns(self, value: Value) -> list[tuple[ir.Node, tuple[Value, Perm]]]:
        """The Transposes that read a value, without those that feed a product or lead back into the region."""
        found = []
        for node in dict.fromkeys(value.consumers()):
            turn = self.turn(node)
            if turn is not None and node.outputs[0] not in self.layouts and not _feeds_product(node):
                found.append((node, turn))
        return found

    def _relaid(self, value: Value | None, rank: int, order: Perm) -> int:
        """What it costs to have a broadcast operand in the other layout."""
        if value is None or self.facts.tensor(value) is not None or is_single(self.facts.shape(value)):
            return 0
        own, inserted = operand_layout(self.facts.rank(value) or 0, rank, order)
        return price(self.facts.shape(value), own) + SMALL * bool(inserted)


class Turning:
    """Turns nodes of a region, on the tape."""

    def __init__(self, region: Region, nodes: Sequence[ir.Node], build: Builder):
        self.region = region
        self.nodes = dict.fromkeys(nodes)
        self._build = build
        self._facts = region.facts
        self._turned: dict[Value, Value] = {}
        self._plain: dict[Value, Value] = {}
        self._laid: dict[tuple[Value, Perm], Value] = {}
        self._added = 0

    def run(self) -> dict[Value, Value]:
        """Build the turned nodes; what replaces the values that are needed elsewhere."""
        for node in self._in_order():
            self._rebuild(node)
        replaced: dict[Value, Value] = {}
        for value in (o for n in self.nodes for o in n.outputs):
            if self._is_read(value):
                replaced[value] = self.plain(value)
            if self.region.makes(value):
                for turn in dict.fromkeys(value.consumers()):
                    if self.region.turn(turn) is not None and self._is_read(turn.outputs[0]):
                        replaced[turn.outputs[0]] = self.plain(turn.outputs[0])
        return {old: new for old, new in replaced.items() if old is not new}

    def covered(self) -> list[ir.Node]:
        """The nodes that are replaced: those turned, and the Transposes around them."""
        around: dict[ir.Node, None] = dict(self.nodes)
        for node in self.nodes:
            for value in node.inputs:
                producer = value.producer() if value is not None else None
                if producer is not None and self.region.turn(producer) is not None:
                    around[producer] = None
            turns = (c for o in node.outputs for c in o.consumers() if self.region.turn(c) is not None)
            around.update(dict.fromkeys(turns))
        return list(around)

    def gain(self, replaced: dict[Value, Value]) -> int:
        """What is saved, counted on the graph and on the tape."""
        read = {i for n in self._build.nodes for i in n.inputs}
        before = 0
        for node in self.covered():
            turn, output = self.region.turn(node), node.outputs[0]
            goes = output in replaced or not (self._is_read(output) or output in read)
            if turn is not None and goes:
                before += price(self._facts.shape(turn[0]), turn[1]) + BESIDE * is_beside(node)
        after = sum(frame.extra(order) for frame, order in map(self.region.frames.__getitem__, self.nodes))
        fused = {new for old, new in replaced.items() if any(c.op_type in _FUSES for c in old.consumers())}
        for node in self._build.nodes:
            if node.op_type == "Transpose":
                beside = node.outputs[0] in fused or _is_made_by(node.inputs[0], _FUSES)
                after += MOVE + BESIDE * beside
        return before - after - SMALL * self._added

    # -- values --------------------------------------------------------------------------------------------------

    def plain(self, value: Value) -> Value:
        """A value in the layout that it has now."""
        if value not in self._plain:
            above = self.region.above(value)
            if value in self._turned and self.region.makes(value):
                self._plain[value] = self._lay(self._turned[value], inverse(self.region.layouts[value]))
            elif above is not None and above[0] in self._turned and self.region.makes(above[0]):
                back = inverse(self.region.layouts[above[0]])
                self._plain[value] = self._lay(self._turned[above[0]], compose(back, above[1]))
            else:
                self._plain[value] = value
        return self._plain[value]

    def turned(self, value: Value) -> Value:
        """A value in its other layout."""
        if value not in self._turned:
            source, perm = self.region.above(value) or (value, ())
            if source is value:
                self._turned[value] = self._lay(self.plain(value), self.region.layouts[value])
            else:
                if source in self._turned and self.region.makes(source):
                    perm = compose(inverse(self.region.layouts[source]), perm)
                    source = self._turned[source]
                else:
                    source = self.plain(source)
                self._turned[value] = self._lay(source, compose(perm, self.region.layouts[value]))
        return self._turned[value]

    def _operand(self, value: Value, rank: int, order: Perm) -> Value:
        """An operand that is broadcast against the frame, laid out for the new order."""
        shape, data = self._facts.shape(value), self._facts.constant(value)
        if is_single(shape) or shape is None:
            return self.plain(value)
        own, inserted = operand_layout(len(shape), rank, order)
        if data is not None:
            return self._build.const(np.expand_dims(data.transpose(own), inserted), like=value)
        laid = self._lay(self.plain(value), own)
        self._added += bool(inserted)
        return self._build.Unsqueeze(laid, axes=inserted) if inserted else laid

    def _lay(self, value: Value, perm: Perm) -> Value:
        """A value permuted, by the cheapest means."""
        key = value, perm
        if key not in self._laid:
            shape = self._facts.shape(value)
            cost, target = price(shape, perm), reshaped(shape, perm)
            if not cost:
                self._laid[key] = value
            elif cost == SMALL and target is not None:
                self._added += 1
                self._laid[key] = self._build.Reshape(value, np.array(target, dtype=np.int64))
            else:
                self._laid[key] = self._build.Transpose(value, perm=perm)
        return self._laid[key]

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _rebuild(self, node: ir.Node) -> None:
        frame, order = self.region.frames[node]
        inputs: list[Value | None] = []
        for index, value in enumerate(node.inputs):
            if value is None:
                inputs.append(None)
            elif index in frame.relaid:
                inputs.append(self._operand(value, frame.rank, order))
            else:
                inputs.append(self.turned(value) if self.region.follows(node, index) else self.plain(value))
        for old, new in zip(node.outputs, frame.emit(self._build, inputs, order), strict=True):
            (self._turned if self.region.makes(old) else self._plain)[old] = new

    def _in_order(self) -> list[ir.Node]:
        """The nodes to turn, producers first, also where a Transpose lies between."""
        done: dict[ir.Node, None] = {}
        for start in self.nodes:
            stack = [start]
            while stack:
                node = stack[-1]
                waiting = [p for p in self._before(node) if p not in done]
                stack.extend(waiting)
                if not waiting:
                    done[stack.pop()] = None
        return list(done)

    def _before(self, node: ir.Node) -> Iterable[ir.Node]:
        for value in node.inputs:
            if value is not None:
                above = self.region.above(value)
                producer = (value if above is None else above[0]).producer()
                if producer is not None and producer in self.nodes:
                    yield producer

    def _is_read(self, value: Value) -> bool:
        """Whether anything but the turned nodes, and the Transposes that go with them, reads a value."""
        if value.is_graph_output():
            return True
        gone = self.region.makes(value) and value.producer() in self.nodes
        readers = (n for n in value.consumers() if n not in self.nodes)
        return any(not gone or self.region.turn(n) is None for n in readers)


def operand_layout(own: int, rank: int, order: Perm) -> tuple[Perm, tuple[int, ...]]:
    """How an operand of ``own`` axes, broadcast against ``rank``, is permuted, and where it then gets axes of size one."""
    held = range(rank - own, rank)
    layout = tuple(a - held.start for a in order if a in held)
    first = next((i for i, a in enumerate(order) if a in held), rank)
    return layout, tuple(i - first for i in range(first, rank) if order[i] not in held)


def is_single(shape: Shape) -> bool:
    """Whether a value has one element, which no layout changes."""
    return shape is not None and all(d == 1 for d in shape)


def is_beside(turn: ir.Node | None) -> bool:
    """Whether a Transpose stands right beside a convolution or the like."""
    if turn is None:
        return False
    return _is_made_by(turn.inputs[0], _FUSES) or any(
        n.op_type in _FUSES for n in turn.outputs[0].consumers()
    )


def _is_made_by(value: Value | None, operators: frozenset[str]) -> bool:
    producer = value.producer() if value is not None else None
    return producer is not None and producer.op_type in operators


def _feeds_product(node: ir.Node, depth: int = 4) -> bool:
    """Whether a matrix product reads what a node computes, at once or scaled, cast or quantized."""
    readers = set(node.outputs[0].consumers())
    if any(n.op_type in _PRODUCTS for n in readers):
        return True
    return depth > 0 and any(n.op_type in _SCALES and _feeds_product(n, depth - 1) for n in readers)


def _operands(node: ir.Node, frame: Frame) -> Iterator[tuple[Value, tuple[int, ...]]]:
    """The values that move with the frame, and the axes that they hold."""
    for values, held in ((node.inputs, frame.inputs), (node.outputs, frame.outputs)):
        for index, axes in held.items():
            value = values[index]
            if value is not None:
                yield value, axes
