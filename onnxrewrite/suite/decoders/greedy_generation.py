"""Greedy generation with a decoder in ONNX Runtime: what each step is fed, and the tokens that come of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.ir.target import type_string
from onnxrewrite.suite.decoders.decoder_interface import Interface
from onnxrewrite.system.arrays import Array, Feeds, Outputs


class Steps(Protocol):
    """A session."""

    types: dict[str, str]

    def run(self, feeds: Feeds) -> Outputs | str:
        """Outputs by name, or one line saying why there are none."""


_DTYPES: Final = {
    type_string(d): d.numpy()
    for d in map(ir.DataType.__getitem__, ("INT64", "INT32", "FLOAT", "FLOAT16", "DOUBLE", "BOOL"))
}
"""The dtypes that a step can be fed with, by ONNX's name of the tensor type."""


@dataclass
class Generator:
    """A decoder in the middle of a text.

    Args:
        session: Runs the model.
        interface: Of the model.
        mask: 1 for each token so far that counts, of shape [batch, tokens]; it grows.
        past: Keys and values so far, by the name of the input.
        read: The tokens so far, of shape [batch, tokens]; for a decoder without past, which reads them all again.
        buffer: The number of tokens that the buffer of past and present has room for; 0 where they are apart.
    """

    session: Steps
    interface: Interface
    mask: Array = field(default_factory=lambda: np.zeros((1, 0), np.int64))
    past: dict[str, Any] = field(default_factory=dict)
    read: Array | None = None
    buffer: int = 0

    def feeds(self, ids: Array, mask: Array | None = None) -> dict[str, Array]:
        """The inputs of a step that reads tokens ``ids``, of shape [batch, n], all of which count unless ``mask`` says
        otherwise; positions count those that do."""
        face = self.interface
        new = np.ones_like(ids, np.int64) if mask is None else mask
        self.mask = np.concatenate([self.mask, new], axis=1) if self.past or self.read is not None else new
        if not face.caches:
            self.read = ids = ids if self.read is None else np.concatenate([self.read, ids], axis=1)
        positions = np.maximum(np.cumsum(self.mask, axis=1) - 1, 0)[:, -ids.shape[1] :]
        given = {face.ids: ids, face.mask: self.mask, face.positions: positions}
        made = {name: array.astype(self._dtype(name)) for name, array in given.items() if name is not None}
        for cache in face.caches:
            empty = (ids.shape[0], cache.heads, self.buffer, cache.size)
            for name in (cache.past_key, cache.past_value):
                made[name] = self.past[name] if name in self.past else np.zeros(empty, self._dtype(name))
        return made

    def step(self, ids: Array, mask: Array | None = None) -> Array:
        """The logits of a step, of shape [batch, n, words], or of its last token, [batch, 1, words].

        Raises:
            ModelError: The model cannot be run.
        """
        made = self.session.run(self.feeds(ids, mask))
        if isinstance(made, str):
            before = self.mask.shape[1] - ids.shape[1]
            raise ModelError(f"the decoder cannot be run on {ids.shape[1]} tokens after {before}: {made}")
        for cache in self.interface.caches:
            self.past[cache.past_key] = made[cache.present_key]
            self.past[cache.past_value] = made[cache.present_value]
        return np.asarray(made[self.interface.logits], np.float64)[:, -ids.shape[1] :]

    def _dtype(self, name: str) -> np.dtype[Any]:
        kind = self.session.types[name]
        if kind not in _DTYPES:
            raise ModelError(f"input {name} has elements of {kind}, which no step can be fed with")
        return _DTYPES[kind]


@dataclass(frozen=True)
class Text:
    """A text that a decoder wrote.

    Attributes:
        tokens: Those after the prompt, of shape [steps].
        logits: That each was chosen by, of shape [steps, words].
    """

    tokens: Array
    logits: Array


@dataclass(frozen=True)
class Side:
    """A decoder that can be run.

    Attributes:
        session: Runs the model.
        interface: Of the model.
        buffer: The number of tokens that the buffer of past and present has room for; 0 where they are apart.
    """

    session: Steps
    interface: Interface
    buffer: int = 0

    def start(self) -> Generator:
        """The decoder at the beginning of a text."""
        return Generator(self.session, self.interface, buffer=self.buffer)


def greedy(side: Side, prompt: Sequence[int], steps: int) -> Text:
    """Let a decoder write ``steps`` tokens after a prompt, each the most likely one.

    Raises:
        ModelError: The model cannot be run.
    """
    return forced(side, prompt, None, steps)


def forced(side: Side, prompt: Sequence[int], tokens: Array | None, steps: int) -> Text:
    """The same, with ``tokens`` written in place of what the decoder chooses, if there are any."""
    generator = side.start()
    ids = np.asarray([prompt], np.int64)
    chosen, scores = [], []
    for step in range(steps):
        logits = generator.step(ids)[0, -1]
        chosen.append(int(logits.argmax()))
        scores.append(logits)
        ids = np.asarray([[chosen[-1] if tokens is None else int(tokens[step])]], np.int64)
    return Text(np.asarray(chosen, np.int64), np.asarray(scores))
