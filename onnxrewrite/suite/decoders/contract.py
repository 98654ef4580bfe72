"""The contract between a decoder and what generates with it: names, dimensions and their relations.

- ``input_ids`` and ``position_ids`` are [batch, sequence], ``attention_mask`` [batch, past + sequence];
- ``past_key_values.N.key`` and ``.value`` are [batch, heads, past, size], ``present.N...`` [batch, heads, past +
  sequence, size], N counted from 0;
- ``logits`` are [batch, sequence, words].

An exporter often knows less, such as that all layers have as much past: rules see more in a model of these dimensions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.io import preserved
from onnxrewrite.suite.decoders.caches import Cache
from onnxrewrite.suite.decoders.decoder_interface import CUSTOMARY, Interface
from onnxrewrite.suite.decoders.spelling import Spelling

PAST_KEY, PAST_VALUE = "past_key_values.%d.key", "past_key_values.%d.value"
PRESENT_KEY, PRESENT_VALUE = "present.%d.key", "present.%d.value"

BATCH, SEQUENCE, PAST = "batch_size", "sequence_length", "past_sequence_length"
TOTAL = f"{PAST} + {SEQUENCE}"


def under_contract(model: ir.Model, interface: Interface) -> tuple[ir.Model, Interface]:
    """A copy of a decoder with the names and dimensions of the contract, and its interface.

    It has a mask in any case: where past and present are one buffer, only a mask tells how many tokens there are.

    Raises:
        ModelError: Ids, mask or positions are no [batch, tokens].
    """
    made = model.clone()
    _with_integers(made.graph, interface)
    names = _names(interface)
    _free(made.graph, {*names.values(), CUSTOMARY["mask"]})
    for value in (*made.graph.inputs, *made.graph.outputs):
        value.name = names.get(value.name or "", value.name)
    renamed = _renamed(interface, names)
    if renamed.mask is None:
        renamed = replace(renamed, mask=CUSTOMARY["mask"])
        made.graph.inputs.append(ir.Value(name=renamed.mask, type=ir.TensorType(ir.DataType.INT64)))
    declare_shapes(made, renamed)
    return made, renamed


def declare_shapes(model: ir.Model, interface: Interface) -> None:
    """Give inputs and outputs the dimensions of the contract, in a model, which is changed."""
    shapes = _shapes(interface)
    for value in _values(model.graph):
        value.shape = None
    for value in (*model.graph.inputs, *model.graph.outputs):
        dims = shapes.get(value.name or "")
        if dims is not None:
            value.shape = ir.Shape(dims)
    preserved.renew_interface(model)


def total(interface: Interface) -> str:
    """The dimension of all tokens."""
    return TOTAL if interface.caches else SEQUENCE


def without_shapes_of_pasts(model: ir.Model, interface: Interface) -> None:
    """Compute the shapes of pasts from other inputs, in a model, which is changed: a buffer is longer than a past."""
    spelling = Spelling(model.graph, interface)
    for cache in interface.caches:
        for value in model.graph.inputs:
            if value.name not in (cache.past_key, cache.past_value):
                continue
            for node in [node for node, _ in value.uses() if node.op_type == "Shape"]:
                start, end = (
                    node.attributes[name].as_int() if name in node.attributes else None for name in ("start", "end")
                )
                dims = spelling.shape_of_past(cache.heads, cache.size)[start:end]
                node.outputs[0].replace_all_uses_with(spelling.op("Concat", *dims, axis=0))
                model.graph.remove(node, safe=True)
    spelling.finish()


def _names(interface: Interface) -> dict[str, str]:
    """The names of inputs and outputs to those of the contract."""
    parts = {"ids": interface.ids, "mask": interface.mask, "positions": interface.positions, "logits": interface.logits}
    names = {name: CUSTOMARY[part] for part, name in parts.items() if name is not None}
    for layer, cache in enumerate(interface.caches):
        names |= {
            cache.past_key: PAST_KEY % layer,
            cache.past_value: PAST_VALUE % layer,
            cache.present_key: PRESENT_KEY % layer,
            cache.present_value: PRESENT_VALUE % layer,
        }
    return names


def _renamed(interface: Interface, names: Mapping[str, str]) -> Interface:
    caches = tuple(
        Cache(
            names[each.past_key],
            names[each.past_value],
            names[each.present_key],
            names[each.present_value],
            each.heads,
            each.size,
        )
        for each in interface.caches
    )
    mask, positions = (None if each is None else names[each] for each in (interface.mask, interface.positions))
    return replace(
        interface,
        ids=names[interface.ids],
        mask=mask,
        positions=positions,
        caches=caches,
        logits=names[interface.logits],
    )


def _shapes(interface: Interface) -> dict[str, tuple[int | str, ...]]:
    """The dimensions of inputs and outputs by the names of the contract."""
    found: dict[str, tuple[int | str, ...]] = {
        interface.ids: (BATCH, SEQUENCE),
        interface.logits: (BATCH, SEQUENCE, interface.words),
    }
    if interface.mask is not None:
        found[interface.mask] = (BATCH, total(interface))
    if interface.positions is not None:
        found[interface.positions] = (BATCH, SEQUENCE)
    for cache in interface.caches:
        for past, present in ((cache.past_key, cache.present_key), (cache.past_value, cache.present_value)):
            found[past] = (BATCH, cache.heads, PAST, cache.size)
            found[present] = (BATCH, cache.heads, TOTAL, cache.size)
    return found


def _values(graph: ir.Graph) -> list[ir.Value]:
    """The values computed in a graph that are no outputs: their shapes speak of the names that dimensions had."""
    return [value for node in graph for value in node.outputs if not value.is_graph_output()]


def _with_integers(graph: ir.Graph, interface: Interface) -> None:
    """Take ids, mask and positions as int64, of which the model makes what it takes: they must be of one dtype.

    Raises:
        ModelError: One of them has another rank than 2.
    """
    first, casts = next(iter(graph), None), list[ir.Node]()
    for value in graph.inputs:
        if value.name not in (interface.ids, interface.mask, interface.positions):
            continue
        if value.shape is not None and len(value.shape) != 2:
            raise ModelError(f"input {value.name} has rank {len(value.shape)}, and is given as [batch, tokens]")
        if value.dtype == ir.DataType.INT64 or value.dtype is None:
            continue
        cast = ir.node("Cast", [value], {"to": int(value.dtype)})
        cast.name = cast.outputs[0].name = f"{value.name}/cast"
        value.replace_all_uses_with(cast.outputs[0])
        cast.replace_input_with(0, value)
        value.type = ir.TensorType(ir.DataType.INT64)
        casts.append(cast)
    if first is not None:
        graph.insert_before(first, casts)


def _free(graph: ir.Graph, taken: Collection[str]) -> None:
    """Give inner values another name that have one of the contract's."""
    interface = {*graph.inputs, *graph.outputs}
    own = {value.name for value in interface} | set(taken)
    others = [*graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    for value in others:
        if value.name in taken and value not in interface:
            name = value.name
            while name in own:
                name = f"{name}_"
            own.add(name)
            value.name = name
