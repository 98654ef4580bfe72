"""Laying the nodes of a region out anew: on the tape, with what becomes of the values around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_heads import HEADS
from onnxrewrite_patterns.transpose_frames import (
    BESIDE,
    MOVE,
    SMALL,
    Perm,
    compose,
    elements,
    inverse,
    is_single,
    operand_layout,
    price,
    reshaped,
)
from onnxrewrite_patterns.transpose_region import (
    FUSES,
    TAKES_IN,
    Region,
    feeds_heads,
    is_beside,
    is_made_by,
    price_at,
    reads,
)

VIEWS = tuple(operators("view"))


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
        self._same: dict[ir.Node, Value] = {}
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
                for turn in readers(value, within=1):
                    if self.region.turn(turn) is not None and self._is_read(turn.outputs[0]):
                        replaced[turn.outputs[0]] = self.plain(turn.outputs[0])
        for node, new in self._same.items():
            if self._is_read(node.outputs[0]):
                replaced.setdefault(node.outputs[0], new)
        return {old: new for old, new in replaced.items() if old is not new}

    def covered(self) -> list[ir.Node]:
        """The nodes that are replaced: those turned, and the Transposes around them."""
        around: dict[ir.Node, None] = dict(self.nodes) | dict.fromkeys(self._same)
        for node in self.nodes:
            makers = (value.producer() for value in inputs_of(node))
            around.update({n: None for n in makers if n is not None and self.region.turn(n) is not None})
            turns = (c for c in readers(node, within=1) if self.region.turn(c) is not None)
            around.update(dict.fromkeys(turns))
        return list(around)

    def moves_more(self, replaced: dict[Value, Value]) -> bool:
        """True if more elements are moved than before, as above a cut of which other pieces do not move."""
        return self._moved(self._made(replaced)) > self._moved(self._going(replaced))

    def _moved(self, turns: Iterable[ir.Node]) -> int:
        """About how many elements Transposes move."""
        return sum(elements(self._facts.shape(n.outputs[0])) for n in turns if self._price_of(n) >= MOVE)

    def _made(self, replaced: dict[Value, Value]) -> Iterator[ir.Node]:
        """The Transposes on the tape, but those that Attention takes in."""
        before = self._before_attention(replaced)
        for node in self._build.nodes:
            if node.op_type == "Transpose" and not (node in before and permutation(self._facts, node) == HEADS):
                yield node

    @staticmethod
    def _before_attention(replaced: dict[Value, Value]) -> set[ir.Node | None]:
        """The Transposes on the tape that Attention will read."""
        return {made_by(new, "Transpose") for old, new in replaced.items() if feeds_heads(old)}

    def _going(self, replaced: dict[Value, Value]) -> Iterator[ir.Node]:
        """The Transposes that are there no longer."""
        read = {i for n in self._build.nodes for i in n.inputs}
        for node in self.covered():
            output = node.outputs[0]
            goes = output in replaced or not (self._is_read(output) or output in read)
            if goes and self.region.turn(node) is not None:
                yield node

    def gain(self, replaced: dict[Value, Value]) -> int:
        """The price that is saved, counted on the graph and on the tape."""
        before = sum(self._price_of(node) + BESIDE * is_beside(node) for node in self._going(replaced))
        after = sum(frame.extra(order) for frame, order in map(self.region.frames.__getitem__, self.nodes))
        fused = {new for old, new in replaced.items() if reads(old, TAKES_IN)}
        before_attention = self._before_attention(replaced)
        for node in self._made(replaced):
            beside = node.outputs[0] in fused or is_made_by(input_of(node), FUSES) or node in before_attention
            after += self._price_of(node) + BESIDE * beside
        return before - after - SMALL * self._added

    def _price_of(self, turn: ir.Node) -> int:
        """The price of a Transpose."""
        perm, source = permutation(self._facts, turn), input_of(turn)
        assert source is not None
        assert not isinstance(perm, str)
        return price_at(turn, self._facts.shape(source), perm)

    # -- values --------------------------------------------------------------------------------------------

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
        """A value permuted, by the cheapest means; a Transpose does for those that do the same.

        A view goes on as one; else it is a Transpose until the lower stage, for it can still meet another one.
        """
        key = value, perm
        if key not in self._laid:
            there = [n for n in value.consumers() if self.region.turn(n) == key]
            shape = self._facts.shape(value)
            cost, target = price(shape, perm), reshaped(shape, perm)
            if not cost:
                self._laid[key] = value
            elif cost == SMALL and target is not None and made_by(value, *VIEWS):
                self._added += 1
                self._laid[key] = self._build.Reshape(value, np.array(target, dtype=np.int64))
            else:
                self._laid[key] = self._build.Transpose(value, perm=perm)
                self._same.update(dict.fromkeys(there, self._laid[key]))
        return self._laid[key]

    # -- nodes ---------------------------------------------------------------------------------------------

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
        for value in inputs_of(node):
            source, _ = self.region.above(value) or (value, ())
            producer = source.producer()
            if producer is not None and producer in self.nodes:
                yield producer

    def _is_read(self, value: Value) -> bool:
        """True if anything but the turned nodes, and the Transposes that go with them, reads a value."""
        gone = self.region.makes(value) and value.producer() in self.nodes
        turns = [n for n in readers(value, within=1) if gone and self.region.turn(n) is not None]
        return bool(need_outside(value, {*self.nodes, *turns}))
