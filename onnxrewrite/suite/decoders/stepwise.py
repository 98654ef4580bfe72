"""One pass over a text gives what as many steps give: the check of a decoder whose past was added.

Where it does not, the first value that differs tells which operator mixes tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.ir.graph import extract
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.suite.decoders.decoder_interface import Interface
from onnxrewrite.suite.decoders.greedy_generation import Side
from onnxrewrite.suite.decoders.probe import dependent_on_tokens
from onnxrewrite.suite.decoders.token_check import largest
from onnxrewrite.system.arrays import Array, Feeds, Outputs

_TOKENS, _FIRST = 7, 5


def require_causal(session: Session, interface: Interface, seed: int) -> None:
    """Refuse a decoder without past whose logits for a token depend on later tokens.

    Args:
        session: Runs the model.
        interface: Of the model.
        seed: Of the text.

    Raises:
        ModelError: They do, or it cannot be run.
    """
    side, text = Side(session, interface), _text(interface, seed)
    whole, first = side.start().step(text), side.start().step(text[:, :_FIRST])
    if whole.shape != (1, _TOKENS, interface.words):
        raise ModelError(f"the model is no decoder: its logits for {_TOKENS} tokens are {list(whole.shape)}")
    if not _is_close(whole[:, :_FIRST], first, largest(side)):
        raise ModelError("the model is no decoder: its logits for a token depend on later tokens")


def _text(interface: Interface, seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, interface.words, (1, _TOKENS))


def require_stepwise(model: ir.Model, interface: Interface, seed: int) -> None:
    """Refuse a decoder whose steps give something else than one pass.

    Args:
        model: The model; inputs beyond its interface are masks, see ``masks.take_out``.
        interface: Of the model, which has caches.
        seed: Of the text.

    Raises:
        ModelError: They differ, or cannot be run.
    """
    text = _text(interface, seed)
    graph = model.graph
    logits = next(value for value in graph.outputs if value.name == interface.logits)
    if _first_apart(model, interface, [logits], text) is None:
        return
    hot = dependent_on_tokens(graph, interface)
    values = [value for node in graph for value in node.outputs if value in hot and value.dtype == logits.dtype]
    found = _first_apart(model, interface, values, text) or logits
    node = found.producer()
    by = "" if node is None else f", which {node.op_type} computes"
    raise ModelError(
        f"the model is no decoder: a token's {found.name}{by}, is something else once there are other tokens"
    )


def _first_apart(model: ir.Model, interface: Interface, values: Sequence[ir.Value], text: Array) -> ir.Value | None:
    """The first value that is for the last token of a text something else in one pass than in steps."""
    opened = open_session(_shown(model, interface, values))
    if isinstance(opened, str):
        raise ModelError(f"the decoder cannot be opened: {opened}")
    session, names = _Masked(opened, interface), [f"shown.{number}" for number in range(len(values))]
    side = Side(session, interface)
    side.start().step(text)
    once = [np.asarray(session.made[name]) for name in names]
    generator = side.start()
    for token in text[0]:
        generator.step(token.reshape(1, 1))
    most = largest(side)
    pairs = zip(values, once, [np.asarray(session.made[name]) for name in names], strict=True)
    return next((value for value, whole, last in pairs if not _is_last_of(whole, last, most)), None)


def _shown(model: ir.Model, interface: Interface, values: Sequence[ir.Value]) -> ir.Model:
    """A decoder that gives more values, ``shown.0`` and so on."""
    graph = model.graph
    inputs = [value for value in graph.inputs if value.const_value is None]
    part = extract(list(graph), inputs, [*graph.outputs, *values], graph.opset_imports)
    names = [value.name for value in graph.outputs] + [f"shown.{number}" for number in range(len(values))]
    for given, value in zip(part.graph.inputs, inputs, strict=True):
        given.name = value.name
    for output, name in zip(part.graph.outputs, names, strict=True):
        output.name = name
    return part


def _is_last_of(whole: Array, last: Array, most: float) -> bool:
    """True if a value is, but for rounding, what another one has for its last token."""
    axes = [axis for axis, (a, b) in enumerate(zip(whole.shape, last.shape, strict=False)) if a != b]
    if len(axes) == 1 and last.shape[axes[0]] == 1:
        whole = np.take(whole, [-1], axis=axes[0])
    return len(axes) > 1 if whole.shape != last.shape else _is_close(whole, last, most)


def _is_close(a: Array, b: Array, most: float) -> bool:
    """True if two arrays differ by no more than rounding."""
    return bool(np.abs(a - b).max(initial=0.0) <= most * (np.abs(a).max(initial=0.0) or 1.0))


class _Masked:
    """A session whose masks are those of a text in which every token counts; it keeps what it gave."""

    def __init__(self, session: Session, interface: Interface) -> None:
        self.session, self.interface, self.types = session, interface, session.types
        self.masks = [name for name in session.inputs if name not in interface.inputs]
        self.made: Outputs = {}

    def run(self, feeds: Feeds) -> Outputs | str:
        """See ``Steps``."""
        past = np.asarray(feeds[self.interface.caches[0].past_key]).shape[2]
        new = np.asarray(feeds[self.interface.ids]).shape[1]
        visible = np.tri(past + new, dtype=bool)[None, None, past:]
        found = self.session.run(dict(feeds) | dict.fromkeys(self.masks, visible))
        if not isinstance(found, str):
            self.made = found
        return found
