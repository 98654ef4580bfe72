"""Texts as data for a decoder: of token ids alone, the other inputs are made, as a generator would feed them."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.io.inlining import inlined
from onnxrewrite.ir.target import type_string
from onnxrewrite.runtime.references import by_reference
from onnxrewrite.runtime.session import open_session
from onnxrewrite.suite.decoders.decoder_interface import Interface, find_interface
from onnxrewrite.suite.decoders.greedy_generation import Generator
from onnxrewrite.suite.decoders.stepwise import require_causal
from onnxrewrite.suite.quality.texts import TextParts
from onnxrewrite.system.arrays import Array, Feeds, Outputs


@dataclass
class Decoder:
    """A decoder as what texts are given to; it runs nothing.

    Attributes:
        interface: Its inputs and outputs.
        types: Those of inputs by name, in ONNX's words.
    """

    interface: Interface
    types: dict[str, str]

    @property
    def parts(self) -> TextParts:
        """The inputs and outputs that hold texts."""
        return TextParts(self.interface.ids, self.interface.mask, self.interface.logits)

    def run(self, feeds: Feeds) -> Outputs | str:
        """See ``greedy_generation.Steps``."""
        return "it is not open"

    def feeds(self, given: Feeds) -> Feeds:
        """All inputs for a text [batch, tokens] of which some are given, after no other."""
        ids, mask = np.asarray(given[self.interface.ids]), given.get(self.interface.mask or "")
        made = Generator(self, self.interface).feeds(ids, None if mask is None else np.asarray(mask))
        return {**made, **{name: value for name, value in given.items() if name not in made}}

    def completed(self, given: Any) -> Any:
        """Data with all inputs, where they hold token ids and lack some; others as they are.

        Args:
            given: See ``quality.data.load_data``.  A ``.npy`` file of ids, or a ``.npz`` file of ids and, if there is
                one, a mask, has a text in each row; a row's tokens at the end that do not count are left out.
        """
        if isinstance(given, str | os.PathLike):
            arrays = self._read(Path(given))
            return given if arrays is None else [self.feeds(text) for text in self._rows(arrays)]
        if isinstance(given, list | tuple) and all(isinstance(each, Mapping) and self._lacks(each) for each in given):
            for each in given:
                self._require_texts(each)
            return [self.feeds(each) for each in given]
        return given

    def _lacks(self, arrays: Iterable[str]) -> bool:
        """True for ids without all of the other inputs."""
        names = set(arrays)
        return self.interface.ids in names and not names >= self.interface.inputs

    def _read(self, path: Path) -> dict[str, Array] | None:
        """The arrays of a file that holds texts; None for another one."""
        try:
            if path.suffix == ".npy" and len(self.interface.inputs) > 1:
                return {self.interface.ids: np.load(path)}
            if path.suffix != ".npz":
                return None
            with np.load(path) as found:
                return {name: found[name] for name in found.files} if self._lacks(found.files) else None
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # which is told where data are read
            return None

    def _require_texts(self, arrays: Feeds) -> None:
        ids, mask = np.asarray(arrays[self.interface.ids]), arrays.get(self.interface.mask or "")
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise UsageError(f"texts must be integers [texts, tokens], not {ids.dtype} {list(ids.shape)}")
        shape = ids.shape if mask is None else np.asarray(mask).shape
        if shape != ids.shape:
            raise UsageError(f"{self.interface.mask} is {list(shape)}, and {self.interface.ids} {list(ids.shape)}")

    def _rows(self, arrays: Mapping[str, Array]) -> Iterator[Feeds]:
        ids, mask = arrays[self.interface.ids], arrays.get(self.interface.mask or "")
        self._require_texts(arrays)
        for number, row in enumerate(ids):
            counts = mask[number] if mask is not None else np.ones(len(row), np.int64)
            length = int(np.flatnonzero(counts).max(initial=-1)) + 1
            if length:
                text = {self.interface.ids: row[None, :length]}
                yield text if mask is None else text | {self.interface.mask or "": counts[None, :length]}


def decoder_of(model: ir.Model, seed: int = 0) -> Decoder | None:
    """A model as a decoder; None for one that is none, gives states in place of logits, or whose inputs cannot be told
    apart.  One without past is run: its logits must not depend on later tokens."""
    try:
        whole = inlined(model).model
        interface = find_interface(whole)
        if interface.words == interface.width or not _is_of_texts(whole, interface):
            return None
        if not interface.caches:
            with by_reference(whole) as given:
                session = open_session(given)
                if isinstance(session, str):
                    return None
                require_causal(session, interface, seed)
    except (ModelError, UsageError):
        return None
    types = {v.name or "": type_string(v.dtype) for v in whole.graph.inputs if v.dtype is not None}
    return Decoder(interface, types)


def _is_of_texts(model: ir.Model, interface: Interface) -> bool:
    """True if ids, mask and positions are integers of shape [batch, tokens]."""
    names = {interface.ids, interface.mask, interface.positions}
    given = [v for v in model.graph.inputs if v.name in names]
    return all(
        v.dtype is not None and v.dtype.is_integer() and v.shape is not None and len(v.shape) == 2 for v in given
    )
