"""Values of a decoder that do not depend on its tokens, such as masks and angles, computed for steps of every kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.ir.graph import extract
from onnxrewrite.runtime.session import open_session
from onnxrewrite.suite.decoders.cones import below
from onnxrewrite.suite.decoders.decoder_interface import Interface
from onnxrewrite.suite.decoders.greedy_generation import Generator
from onnxrewrite.system.arrays import Array


@dataclass(frozen=True)
class Step:
    """A step: new tokens after a past, and which of all of them count.

    Attributes:
        counts: 1 for each token that counts, of shape [batch, past + new].
        new: The number of new tokens.
    """

    counts: Array
    new: int

    @property
    def past(self) -> int:
        """The number of tokens before."""
        return int(self.counts.shape[1]) - self.new

    @property
    def positions(self) -> Array:
        """The positions of the new tokens, those that do not count left out of the count."""
        return np.asarray(np.maximum(np.cumsum(self.counts, axis=1) - 1, 0)[:, self.past :])

    @property
    def visible(self) -> Array:
        """The tokens that each new one may look at, [batch, new, past + new]: no later ones, and those that count."""
        places = np.arange(self.counts.shape[1])
        causal = places[None, :] <= places[self.past :, None]
        return np.asarray(causal[None] & self.counts[:, None, :].astype(bool))


def full(batch: int, past: int, new: int) -> Step:
    """A step in which every token counts."""
    return Step(np.ones((batch, past + new), np.int64), new)


def padded(past: int, new: int, *, left: int = 0, right: int = 0) -> Step:
    """A step of two texts, of which the first is shorter: it is filled up at its front, or at the end of its prompt."""
    counts = np.ones((2, past + new), np.int64)
    counts[0, :left] = 0
    end = past or new
    counts[0, end - right : end] = 0
    return Step(counts, new)


STEPS = (
    full(1, 0, 5),
    full(2, 0, 4),
    full(2, 6, 1),
    full(1, 5, 3),
    full(1, 0, 1),
    padded(0, 5, right=2),
    padded(6, 1, right=2),
)
"""Steps without padding, or with padding on the right."""

LEFT = (padded(0, 5, left=2), padded(6, 1, left=2))
"""Steps with padding on the left."""


def possible(steps: Sequence[Step], interface: Interface) -> list[Step]:
    """Those of some steps that a decoder can take: without past, prompts only."""
    return [step for step in steps if interface.caches or not step.past]


def last_of(count: int, interface: Interface) -> Step:
    """A step that ends with the last of ``count`` tokens, and has no more new ones than needed."""
    return full(1, count - 1, 1) if interface.caches else full(1, 0, count)


class Probe:
    """Computes values of a decoder.

    Args:
        model: The model; inputs beyond its interface are masks, see ``masks.take_out``.
        interface: Of the model.
        values: The values, which must not depend on tokens.

    Raises:
        ModelError: They cannot be computed.
    """

    def __init__(self, model: ir.Model, interface: Interface, values: Sequence[ir.Value]) -> None:
        self.values, self.interface = values, interface
        inputs = [value for value in model.graph.inputs if value.const_value is None]
        part = extract(needed(values), inputs, values, model.graph.opset_imports)
        for given, value in zip(part.graph.inputs, inputs, strict=True):
            given.name = value.name
        opened = open_session(part)
        if isinstance(opened, str):
            raise ModelError(f"the decoder's masks cannot be computed: {opened}")
        self.session, self.outputs = opened, [value.name for value in part.graph.outputs]
        self.masks = [name for name in opened.inputs if name not in interface.inputs]

    def at(self, step: Step, positions: Array | None = None) -> list[Array]:
        """The values at a step, in their order; at other ``positions`` than it has, if they are given."""
        feeds = self._feeds(step)
        if positions is not None and self.interface.positions is not None:
            feeds[self.interface.positions] = positions.astype(feeds[self.interface.positions].dtype)
        found = self.session.run(feeds)
        if isinstance(found, str):
            raise ModelError(f"the decoder's masks cannot be computed for {step.counts.shape[1]} tokens: {found}")
        return [np.asarray(found[name]) for name in self.outputs if name is not None]

    def _feeds(self, step: Step) -> dict[str, Array]:
        batch = step.counts.shape[0]
        before = Generator(self.session, self.interface)
        if step.past:
            before.mask = step.counts[:, : step.past]
            shapes = {(cache.heads, cache.size) for cache in self.interface.caches}
            empty = {(h, d): np.zeros((batch, h, step.past, d), np.float32) for h, d in shapes}  # never read
            for cache in self.interface.caches:
                before.past |= dict.fromkeys((cache.past_key, cache.past_value), empty[cache.heads, cache.size])
        made = before.feeds(np.ones((batch, step.new), np.int64), step.counts[:, step.past :])
        return made | dict.fromkeys(self.masks, step.visible[:, None])


def dependent_on_tokens(graph: ir.Graph, interface: Interface) -> frozenset[ir.Value]:
    """The values that are computed from the elements of ids, or of keys and values."""
    past = {name for cache in interface.caches for name in (cache.past_key, cache.past_value)}
    found = set[ir.Value]()
    for value in graph.inputs:
        if value.name in past | {interface.ids}:
            found.add(value)
            found |= {made for node, _ in below(value, lambda node, index: False) for made in node.outputs}
    return frozenset(found)


def needed(values: Sequence[ir.Value]) -> list[ir.Node]:
    """The nodes that compute values, in the order of their graph."""
    met, waiting = set[ir.Node](), list(values)
    graph = None
    while waiting:
        node = waiting.pop().producer()
        if node is None or node in met:
            continue
        met.add(node)
        graph = node.graph
        waiting += _read(node)
    return [node for node in graph or () if node in met]


def _read(node: ir.Node) -> Iterator[ir.Value]:
    return (value for value in node.inputs if value is not None)
