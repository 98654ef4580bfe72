"""Moving Transposes through whatever does not care about layout, until they meet and vanish.

Why: a channels-last network that was exported for channels-first operators has a Transpose on either side of
every convolution, each of them a pass over memory, and each of them between a convolution and the bias,
activation or padding that could be fused into it.

Around one Transpose lies a *region*: the nodes that would do as well in the other layout (those that have a
frame, ``transpose_operators.py``), and the values between them.  Each node is either kept or turned.  Where a
kept one meets a turned one there has to be a Transpose; where a turned one meets a Transpose that is there,
that one goes.  Which nodes to turn is then a minimum cut: Transposes that many nodes share, or that residual
connections tie together, are weighed as a whole, and the chosen nodes are turned in one rewrite
(``transpose_sinking.py``).  The region grows only where the cut asks for it: most Transposes have to stay, and what
is close by shows that.

What gets smaller, so that this ends and nothing undoes it: the price of all Transposes in the graph, that is
(1) the number of those that move data; then (2) twice the number of those that only move dimensions of size
one, plus the number of those right beside a convolution or the like, where they hide a bias or a padding from
it; then (3) the number of elements that are moved: a Transpose stands in front of what adds elements.  The
price is paid again on the tape before anything is changed, with the Reshapes, Unsqueezes and Gathers that have
to be added.  No other rule makes a Transpose where there was none.

A Transpose that feeds a matrix product belongs to it: that is how exporters spell attention, and rules for
attention look for it.  Such a one is no reason to move anything, unless the product is one with a weight; another
one may join it, as long as a Transpose is left.  One that lays out heads for Attention, or its result, costs nothing
where it only swaps heads and tokens, for kernels read and write them the other way, too: where a network has the
sequence first, that is a reason to move all else.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator

import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_heads import HEADS
from onnxrewrite_patterns.transpose_frames import (
    BESIDE,
    MOVE,
    SMALL,
    Frame,
    Perm,
    Shape,
    compose,
    inverse,
    is_identity,
    is_single,
    layout_of,
    operand_layout,
    price,
)
from onnxrewrite_patterns.transpose_operators import frame_of

_LARGE = 400
"""No region grows beyond so many nodes."""

FEW, MANY = 48, 2000
"""Most Transposes have to stay, as what is close by shows; whether a network is to have its tokens first, all of it
shows."""

FUSES = frozenset(operators(marks="fusing"))
"""Operators that take in what stands beside them, so that a Transpose should not."""

TAKES_IN = FUSES.union(operators(marks="summing"))
"""Those, and what does so only with what stands before it."""

_PRODUCTS = frozenset({
    "MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "Attention", "MultiHeadAttention",
    "Einsum",
})  # fmt: skip

_PASSING = frozenset((*operators("quantize", marks="rounding"), "Cast", "Identity"))
_SCALING = frozenset(operators("broadcast", marks="product", but="partial"))
"""Operators between a Transpose and the product that takes it in: those that keep all elements, and scale them."""

_STEPS = 5
"""So far below a Transpose a product may be that takes it in."""

_KEPT, _TURNED = "kept", "turned"

_Costs = Iterator[tuple[Hashable, Hashable, int | None]]
"""The price of keeping the first and turning the second; None forbids it."""


class Region:
    """The nodes around one value that could work with another layout of it, found on demand.

    Args:
        facts: The facts known about the values.
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
        self._seed = seed
        self._known: dict[ir.Node, Frame | None] = {}
        self._told: set[Value] = set()
        self._weighed: set[ir.Node] = set()  # Transposes below a value told

    # -- growing -------------------------------------------------------------------------------------------

    def _grow(self, value: Value) -> None:
        """Come to the nodes around a value of the region."""
        maker = value.producer()
        self._enter(maker, value)
        cheap = price(self.facts.shape(value), self.layouts[value]) < MOVE
        if cheap and maker not in self.frames and self.above(value) is None:
            return  # a table that many read, and that costs nothing in either layout, ties nobody together
        for node in readers(value, within=1):
            self._enter(node, value)

    def _enter(self, node: ir.Node | None, value: Value) -> None:
        """Come to a node by one of its values."""
        if node is None or node.graph is not self.graph or node in self.frames or node.op_type == "Transpose":
            return
        if len(self.frames) < _LARGE:
            self._join(node, value)

    def _join(self, node: ir.Node, value: Value) -> None:
        """Take a node in, if every operand gets its one other layout then."""
        if node not in self._known:
            self._known[node] = frame_of(node, self.facts)
        frame = self._known[node]
        operands = list(_operands(node, frame)) if frame is not None else []
        axes = next((a for v, a in operands if v is value), None)
        if frame is None or axes is None:
            self.stops[node.op_type] = None
            return
        order = frame.order(axes, self.layouts[value])
        new: dict[Value, Perm] = {}
        for other, held in operands:
            layout = layout_of(held, order)
            if not is_identity(layout) and (self.layouts.get(other) or new.setdefault(other, layout)) != layout:
                return
        if is_identity(order) or not frame.fits(order):
            self.stops[node.op_type] = None
            return
        self.frames[node] = frame, order
        self.layouts.update(new)

    # -- how values are read and made ----------------------------------------------------------------------

    def follows(self, node: ir.Node, index: int) -> bool:
        """True if a node of the region, when it is turned, reads input ``index`` in the other layout."""
        if node not in self.frames:
            return False
        frame, order = self.frames[node]
        return index in frame.inputs and not is_identity(layout_of(frame.inputs[index], order))

    def makes(self, value: Value) -> bool:
        """True if the producer of a value, when it is turned, gives it in the other layout."""
        node, index = value.producer(), value.index()
        if node not in self.frames or node is None or index is None:
            return False
        frame, order = self.frames[node]
        return index in frame.outputs and not is_identity(layout_of(frame.outputs[index], order))

    def above(self, value: Value) -> tuple[Value, Perm] | None:
        """The operand of the Transpose that computes a value, and its permutation; None if none does."""
        node = value.producer()
        return None if node is None else self.turn(node)

    def turn(self, node: ir.Node) -> tuple[Value, Perm] | None:
        """The operand of a Transpose, and how it is permuted."""
        source = input_of(node)
        if node.op_type != "Transpose" or node.domain or node.graph is not self.graph or source is None:
            return None
        perm = permutation(self.facts, node)
        return None if isinstance(perm, str) else (source, perm)

    def is_met(self, node: ir.Node) -> bool:
        """True for a Transpose of a Transpose, or one that another one reads: two of them become one."""
        source, others = input_of(node), readers(node, within=1)
        if source is None or self.turn(node) is None:
            return False
        return self.above(source) is not None or any(self.turn(n) is not None for n in others)

    def turned_shape(self, value: Value) -> Shape:
        """The shape of a value in its other layout."""
        shape = self.facts.shape(value)
        return None if shape is None else [shape[a] for a in self.layouts[value]]

    # -- what it costs -------------------------------------------------------------------------------------

    def cheapest(self, few: int = FEW) -> list[ir.Node]:
        """The nodes to turn: none where that saves nothing, else all that may be, so that Transposes go far.

        ``few``: So many vertices may be looked at for what else speaks for it.
        """
        turned = Cut(_KEPT, _TURNED, self._costs, few=few).far_side((self._seed, _TURNED))
        return [n for n in self.frames if n in turned]

    def _costs(self, vertex: Hashable) -> _Costs:
        """The prices around a vertex: a node, or a value in one of its layouts; the region grows there."""
        if isinstance(vertex, tuple):
            values = [vertex[0]]
        elif vertex in self.frames:
            frame, order = self.frames[vertex]
            relaid = (self._relaid(vertex.inputs[i], frame.rank, order) for i in frame.relaid)
            yield _KEPT, vertex, frame.extra(order) + sum(relaid)
            known = (v for i, v in enumerate(vertex.inputs) if v in self._told and self.follows(vertex, i))
            yield from (((v, _TURNED), vertex, None) for v in known)  # come to before this node was
            values = [v for v, _ in _operands(vertex, frame) if v in self.layouts]
        else:
            values = []
        for value in values:
            if value not in self._told:
                self._told.add(value)
                self._grow(value)
                yield from self._costs_of(value)

    def _costs_of(self, value: Value) -> _Costs:
        """The prices of a value in its two layouts, and of the Transposes that read it."""
        shape, turned, turns = self.facts.shape(value), self.turned_shape(value), self._turns(value)
        self._weighed.update(turns)
        back = inverse(self.layouts[value])
        for turn, perm in turns.items():
            as_is, anew = price_at(turn, shape, perm), price_at(turn, turned, compose(back, perm))
            yield turn, _TURNED, _placed(as_is, is_beside(turn))
            yield _KEPT, turn, _placed(as_is if anew and self._feeds_product(turn) else anew, is_beside(turn))
        maker = value.producer() if self.makes(value) else _KEPT
        above = self.above(value) if value.producer() not in self._weighed else None
        as_it_is, other = self._prices(value, turns) if above is None else self._prices_below(value, *above)
        yield (value, _KEPT), _TURNED if above else maker, as_it_is
        yield _KEPT if above else maker, (value, _TURNED), other
        for reader in self._readers(value, turns):
            yield reader, (value, _KEPT), None
            yield (value, _TURNED), reader, None

    def _prices(self, value: Value, turns: Iterable[ir.Node]) -> tuple[int, int]:
        """The price of a value as it is once its producer is turned, and in its other layout while that is kept."""
        fused = reads(value, TAKES_IN)
        beside = is_made_by(value, FUSES) or any(map(is_beside, turns))
        layout = self.layouts[value]
        as_it_is = price(self.turned_shape(value), inverse(layout)) + BESIDE * fused
        return as_it_is, _placed(price(self.facts.shape(value), layout), beside)

    def _prices_below(self, value: Value, source: Value, perm: Perm) -> tuple[int, int]:
        """The price of the Transpose of ``source`` as it is, and of having its result in the other layout."""
        shape, turn, other = self.facts.shape(source), value.producer(), compose(perm, self.layouts[value])
        as_is, anew = price_at(turn, shape, perm), price_at(turn, shape, other)
        return _placed(as_is, is_beside(turn)), _placed(anew, is_beside(turn))

    def _readers(self, value: Value, turns: Container[ir.Node]) -> list[Hashable]:
        """The readers of a value: nodes and Transposes, ``_KEPT`` for others; no Transposes back into the region."""
        readers: dict[Hashable, None] = {}
        for node, index in value.uses():
            if self.follows(node, index) or node in turns:
                readers[node] = None
            elif self.turn(node) is None or self._feeds_product(node):
                readers[_KEPT] = None
        if value.is_graph_output():
            readers[_KEPT] = None
        return list(readers)

    def _turns(self, value: Value) -> dict[ir.Node, Perm]:
        """The Transposes that read a value, but those that lead back into the region, or that feed a product and would
        be none in the other layout."""
        found, back = {}, inverse(self.layouts[value])
        for node in readers(value, within=1):
            turn = self.turn(node)
            if turn is None or node.outputs[0] in self.layouts:
                continue
            if not self._feeds_product(node) or price(self.turned_shape(value), compose(back, turn[1])) >= MOVE:
                found[node] = turn[1]
        return found

    def _feeds_product(self, turn: ir.Node) -> bool:
        """True if a product takes a Transpose in, scaled or not."""

        def through(node: ir.Node) -> bool:
            return node.op_type in _PASSING or (node.op_type in _SCALING and any(map(self._is_scale, node.inputs)))

        return any(map(self._takes_in, readers(turn, through, within=_STEPS)))

    def _takes_in(self, node: ir.Node) -> bool:
        """True for a product that takes in a Transpose: of matrices, or of two tensors that are computed."""
        weight = node.inputs[1] if node.op_type == "MatMul" else None
        is_layer = weight is not None and self.facts.tensor(weight) is not None
        return node.op_type in _PRODUCTS and not (is_layer and (self.facts.rank(node.outputs[0]) or 0) > 2)

    def _is_scale(self, value: Value | None) -> bool:
        """True for one number: what is multiplied by a tensor is gated, and not scaled."""
        return value is not None and is_single(self.facts.shape(value))

    def _relaid(self, value: Value | None, rank: int, order: Perm) -> int:
        """The price of having a broadcast operand in the other layout."""
        if value is None or self.facts.tensor(value) is not None or is_single(self.facts.shape(value)):
            return 0
        own, inserted = operand_layout(self.facts.rank(value) or 0, rank, order)
        return price(self.facts.shape(value), own) + SMALL * bool(inserted)


def _placed(cost: int, beside: bool) -> int:
    """The price of a Transpose, which is higher beside a convolution, where there is one."""
    return cost + BESIDE * beside if cost else 0


def is_beside(turn: ir.Node | None) -> bool:
    """True if a Transpose directly precedes or follows a convolution or the like."""
    if turn is None:
        return False
    return is_made_by(input_of(turn), FUSES) or reads(turn, TAKES_IN)


def price_at(turn: ir.Node | None, shape: Shape, perm: Perm) -> int:
    """The price of laying out a value of this shape in another way in the place of a Transpose: beside Attention none
    for swapping heads and tokens, and more for another, which keeps its kernel from doing so."""
    cost = price(shape, perm)
    if not cost or not is_of_heads(turn):
        return cost
    return 0 if perm == HEADS else cost + BESIDE


def is_of_heads(turn: ir.Node | None) -> bool:
    """True if a Transpose stands right beside Attention: it reads the result, or lays out queries, keys or values."""
    source = input_of(turn) if turn is not None else None
    is_result = source is not None and made_by(source, "Attention") is not None and source.index() == 0
    return is_result or (turn is not None and feeds_heads(turn))


def feeds_heads(of: Value | ir.Node) -> bool:
    """True if a value, or a Transpose, is read as queries, keys or values of Attention, and as nothing else."""
    users = list(readers(of, within=1))
    return bool(users) and all(_reads_as_heads(node, of) for node in users)


def _reads_as_heads(node: ir.Node, of: Value | ir.Node) -> bool:
    if node.op_type != "Attention" or node.domain:
        return False
    read = [x for i in range(3) if (x := input_of(node, i)) is not None and of in (x, made_by(x, "Transpose"))]
    return bool(read) and not read[0].is_graph_output()


def is_made_by(value: Value | None, operators: frozenset[str]) -> bool:
    """True if one of ``operators`` computes a value."""
    producer = value.producer() if value is not None else None
    return producer is not None and producer.op_type in operators


def reads(of: Value | ir.Node, operators: frozenset[str]) -> bool:
    """True if one of ``operators`` reads a value or a node's results."""
    return any(n.op_type in operators for n in readers(of, within=1))


def _operands(node: ir.Node, frame: Frame) -> Iterator[tuple[Value, tuple[int, ...]]]:
    """The values that move with the frame, and the axes that they hold."""
    for values, held in ((node.inputs, frame.inputs), (node.outputs, frame.outputs)):
        for index, axes in held.items():
            value = values[index]
            if value is not None:
                yield value, axes
