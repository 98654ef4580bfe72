"""Past keys and values for a decoder that was exported without: it reads a whole text at each step, and need not.

Its attentions, each a single operator whose mask was taken out, are given what they had of earlier tokens.  What a
token is given for its place, such as a row of positions or cosines, becomes a table.  A bias of scores, such as ALiBi,
is computed for the whole text and cut to new tokens: the mask, which has an element for each token, stands for the ids
there.  Sizes are those of the new tokens.

Whether anything else mixes tokens is seen in ``stepwise``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import constant_tensor
from onnxrewrite.suite.decoders import contract
from onnxrewrite.suite.decoders.attention_operators import ATTENTIONS
from onnxrewrite.suite.decoders.caches import Cache
from onnxrewrite.suite.decoders.cones import below
from onnxrewrite.suite.decoders.decoder_interface import Interface
from onnxrewrite.suite.decoders.masks import Masks, shape_of
from onnxrewrite.suite.decoders.probe import Probe, dependent_on_tokens, full, needed
from onnxrewrite.suite.decoders.spelling import Spelling
from onnxrewrite.system.arrays import Array

_CANNOT = "the model has no past, and none can be added: "
_SHORT, _LONG = 5, 7
"""Tokens of two texts, by which what grows with a text is told from what does not."""

_STEPS = (full(2, 0, _SHORT), full(2, 0, _LONG))


@dataclass(frozen=True)
class _Read:
    """A value that depends on no token, where something that does reads it.

    Attributes:
        by: The node.
        index: Of its input.
        of_keys: True where scores are masked or biased.
    """

    value: ir.Value
    by: ir.Node
    index: int
    of_keys: bool


def add_past(model: ir.Model, interface: Interface, masks: Masks, context: int, *, counted: bool) -> Interface:
    """Give a decoder under the contract, which is changed, past keys and values; its interface then.

    Args:
        model: The model, rewritten, its masks taken out.
        interface: Of the model, without caches, with a mask.
        masks: As they were taken out.
        context: The number of tokens that a text may have.
        counted: True if positions count tokens that count, though the model counts all.

    Raises:
        ModelError: An attention is not causal, or no single operator; or a value depends on the length of the text.
    """
    graph = model.graph
    Facts(graph, dict(graph.opset_imports))  # which infers shapes
    stand_ins = [value for value in graph.inputs if value.name in masks.names]
    readers = {node: None for mask in stand_ins for node, _ in below(mask, _is_attention)}
    masked = {made for node in readers if not _is_attention(node) for made in node.outputs}
    attentions = _attentions(graph, masks, masked)
    reads = list(_reads(graph, dependent_on_tokens(graph, interface), masked | set(stand_ins)))
    if reads:
        _advance(model, interface, reads, _Places(model, interface, reads, context), counted=counted)
    caches = tuple(_cached(graph, node, layer) for layer, node in enumerate(attentions))
    made = replace(interface, caches=caches)
    for value in stand_ins:
        value.shape = ir.Shape(shape_of(made))
    contract.declare_shapes(model, made)
    return made


def _is_attention(node: ir.Node, index: int = 0) -> bool:
    """True for an attention, or the Softmax of one that is spelled out."""
    return node.op_type == "Softmax" or node.op_type in ATTENTIONS


# -- attention -----------------------------------------------------------------------------------------------


def _attentions(graph: ir.Graph, masks: Masks, masked: set[ir.Value]) -> list[ir.Node]:
    """The attentions, one a layer.

    Raises:
        ModelError: There is none, or one is not causal, or spelled out.
    """
    for layer, why in masks.unknown.items():
        raise ModelError(f"{_CANNOT}the attention of layer {layer} is not causal: {why}")
    spelled = [node for node in graph if node.op_type == "Softmax" and node.inputs[0] in masked]
    if spelled:
        raise ModelError(f"{_CANNOT}the attention at {spelled[0].outputs[0].name} is not one that an operator does")
    found = [node for node in graph if node.op_type in ATTENTIONS]
    if not found:
        raise ModelError(f"{_CANNOT}it has no attention whose mask hides later tokens")
    for node in found:
        mask = node.inputs[3] if len(node.inputs) > 3 else None
        if node.op_type != "Attention" or mask not in masked:
            raise ModelError(f"{_CANNOT}the attention at {node.outputs[0].name} is not causal: it sees later tokens")
    return found


def _cached(graph: ir.Graph, node: ir.Node, layer: int) -> Cache:
    """Give an attention its past, and the graph the inputs and outputs for it."""
    key, value = node.inputs[1], node.inputs[2]
    assert key is not None
    assert value is not None
    heads, size = _heads(node, key)
    if _heads(node, value) != (heads, size):
        raise ModelError(f"{_CANNOT}keys and values at {node.outputs[0].name} are of different sizes")
    cache = Cache(
        contract.PAST_KEY % layer,
        contract.PAST_VALUE % layer,
        contract.PRESENT_KEY % layer,
        contract.PRESENT_VALUE % layer,
        heads=heads,
        size=size,
    )
    node.resize_inputs(6)
    for index, name in enumerate((cache.past_key, cache.past_value), start=4):
        past = ir.Value(name=name, type=key.type)
        graph.inputs.append(past)
        node.replace_input_with(index, past)
    node.resize_outputs(3)
    for output, name in zip(node.outputs[1:], (cache.present_key, cache.present_value), strict=True):
        output.name, output.type = name, key.type
        graph.outputs.append(output)
    return cache


def _heads(node: ir.Node, value: ir.Value) -> tuple[int, int]:
    """The number of heads of keys or values, and the size of one.

    Raises:
        ModelError: They are not known.
    """
    dims = list(value.shape) if value.shape is not None else []
    heads = dims[1] if len(dims) == 4 else node.attributes.get_int("kv_num_heads", 0)
    size = dims[-1] if dims else None
    if not isinstance(heads, int) or not isinstance(size, int) or not heads:
        raise ModelError(f"{_CANNOT}the number of heads at {node.outputs[0].name}, or their size, is not known")
    return heads, size if len(dims) == 4 else size // heads


# -- what depends on places ----------------------------------------------------------------------------------


def _reads(graph: ir.Graph, tokens: frozenset[ir.Value], masked: set[ir.Value]) -> Iterable[_Read]:
    """The values that depend on no token, and on no mask that was taken out, where what does reads them."""
    moving = tokens | masked
    for node in graph:
        if moving.isdisjoint(node.outputs):
            continue
        for index, value in enumerate(node.inputs):
            if value is not None and value not in moving and constant_tensor(value) is None:
                yield _Read(value, node, index, of_keys=tokens.isdisjoint(node.outputs))


def _advance(model: ir.Model, interface: Interface, reads: list[_Read], places: _Places, *, counted: bool) -> None:
    """Let what depends on places be that of new tokens, which come after the past."""
    graph, spelling = model.graph, Spelling(model.graph, interface)
    ids, mask = (next(v for v in graph.inputs if v.name == name) for name in (interface.ids, interface.mask))
    older, whole, rows = list(mask.uses()), {ids: mask, mask: mask}, dict[ir.Value, ir.Value]()
    for read in (read for read in reads if read.of_keys):
        axes = places.axes_of_keys(read.value)
        if axes is not None:
            made = _for_all(read.value, whole, spelling)
            for axis in axes:
                made = spelling.last(made, axis)
            read.by.replace_input_with(read.index, made)
    for read in (read for read in reads if not read.of_keys):
        value, place = read.value, places.axis_of_rows(read.value)
        if place is not None and value not in rows:
            by = spelling.positions(counted=counted or mask in _inputs_of(value))
            rows[value] = _row(spelling, spelling.weight(f"{value.name}/table", places.table(value, place)), by, place)
        read.by.replace_input_with(read.index, rows.get(value, value))
    new = spelling.last(mask, 1)
    for node, index in older:
        node.replace_input_with(index, new)
    spelling.finish()


def _row(spelling: Spelling, table: ir.Value, positions: ir.Value, axis: int) -> ir.Value:
    """The rows of a table at positions, [batch, new, ...], with the new tokens at an axis."""
    found = spelling.op("Gather", table, positions)
    if axis < 2 or table.shape is None:
        return found
    others = [place for place in range(len(table.shape) + 1) if place != 1]
    return spelling.op("Transpose", found, perm=[*others[:axis], 1, *others[axis:]])


def _inputs_of(value: ir.Value) -> set[ir.Value]:
    """The inputs of the graph that a value is computed from, or that it is."""
    read = {each for node in needed([value]) for each in node.inputs if each is not None} | {value}
    return {each for each in read if each.is_graph_input()}


def _for_all(value: ir.Value, whole: dict[ir.Value, ir.Value], spelling: Spelling) -> ir.Value:
    """A value as it is for all tokens, past and new; ``whole`` has those that are there already."""
    for node in needed([value]):
        if node.outputs[0] in whole:
            continue
        if node.op_type in ATTENTIONS:
            raise ModelError(f"{_CANNOT}{value.name} takes the length of the text from an attention")
        inputs = [each if each is None else whole.get(each, each) for each in node.inputs]
        whole |= zip(node.outputs, spelling.again(node, inputs), strict=True)
    return whole.get(value, value)


class _Places:
    """The dependence of values on the places of tokens: they are computed for texts of several lengths.

    Args:
        reads: Of values that depend on no token.
        context: The number of tokens that a text may have.
    """

    def __init__(self, model: ir.Model, interface: Interface, reads: list[_Read], context: int) -> None:
        self.positions, self.arrays = interface.positions, dict[ir.Value, list[Array]]()
        for of_keys, steps in ((True, _STEPS), (False, (*_STEPS, full(1, 0, context)))):
            values = list(dict.fromkeys(read.value for read in reads if read.of_keys is of_keys))
            if values:
                probe = Probe(model, interface, values)
                arrays = [probe.at(step) for step in steps]
                self.arrays |= {value: [each[number] for each in arrays] for number, value in enumerate(values)}

    def axis_of_rows(self, value: ir.Value) -> int | None:
        """The axis of tokens of a value that is for new tokens; None where it is theirs as it is: it comes from
        positions, or says sizes, or is the same for each token.

        Raises:
            ModelError: It depends on the length of the text in another way.
        """
        arrays = self.arrays[value]
        short, long, whole = arrays
        if (short.shape == long.shape and short.dtype.kind == "i") or _is_repeated(arrays):
            return None
        axes = self._growing(value)
        if len(axes) != 1 or any(size != 1 for size in whole.shape[: axes[0]][:1]):
            raise self._not_understood(value)
        few: Array = np.take(whole, np.arange(_SHORT), axis=axes[0])
        if not np.allclose(np.broadcast_to(few, short.shape), short, rtol=0, atol=1e-6):
            raise ModelError(f"{_CANNOT}{value.name} depends on the length of the text")
        return None if self._is_given(value) else axes[0]

    def table(self, value: ir.Value, axis: int) -> Array:
        """The rows of a value for the places of a text, [context, ...]; of its first axis there is but one, or none."""
        whole = self.arrays[value][-1]
        return np.moveaxis(whole[0], axis - 1, 0) if axis else whole

    def axes_of_keys(self, value: ir.Value) -> tuple[int, ...] | None:
        """The axes that are to be cut to new tokens, of a value for queries and keys: that of queries, if it has one;
        None where it is the same at any length.

        Raises:
            ModelError: It depends on the length of the text in another way.
        """
        axes, (short, long) = self._growing(value), self.arrays[value]
        if np.array_equal(short, long):
            return None
        last = short.ndim - 1
        if axes not in ((last,), (last - 1, last)) or self._is_given(value):
            raise self._not_understood(value)
        return axes[:-1]

    def _growing(self, value: ir.Value) -> tuple[int, ...]:
        """The axes that are as long as the text."""
        short, long = self.arrays[value][:2]
        if short.ndim != long.ndim:
            raise self._not_understood(value)
        pairs = list(zip(short.shape, long.shape, strict=True))
        if any(a != b and (a, b) != (_SHORT, _LONG) for a, b in pairs):
            raise self._not_understood(value)
        return tuple(axis for axis, (a, b) in enumerate(pairs) if a != b)

    def _is_given(self, value: ir.Value) -> bool:
        """True for what is computed from positions that are given."""
        return any(each.name == self.positions for each in _inputs_of(value))

    def _not_understood(self, value: ir.Value) -> ModelError:
        return ModelError(f"{_CANNOT}{value.name} depends on the length of the text in a way that is not understood")


def _is_repeated(arrays: list[Array]) -> bool:
    """True if arrays repeat the same along the axes in which the first two differ, if they do."""
    short, long = arrays[:2]
    if short.ndim != long.ndim:
        return False
    axes = [axis for axis, (a, b) in enumerate(zip(short.shape, long.shape, strict=True)) if a != b]
    first = short[tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(short.ndim))]
    return all(np.array_equal(array, np.broadcast_to(first, array.shape)) for array in arrays)
