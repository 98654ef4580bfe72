"""The masks of a decoder, by what they do: they are computed for steps of every kind, and compared with what a decoder
means by a mask.

A token sees itself and those before it, if they count; in a layer with a sliding window, the last of these only.
However an exporter spells that, the masks of a layer become one that is added to its scores, and that is given from
outside as long as the model is rewritten: ``CAUSAL`` by name.  ``spell_out`` puts the spelling in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from onnxrewrite.io import preserved
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import constant_tensor
from onnxrewrite.ir.operators import operators
from onnxrewrite.pattern.paths import is_read_once
from onnxrewrite.suite.decoders import contract
from onnxrewrite.suite.decoders.attention_operators import PRODUCTS
from onnxrewrite.suite.decoders.decoder_interface import Interface
from onnxrewrite.suite.decoders.probe import LEFT, STEPS, Probe, Step, dependent_on_tokens, last_of, possible
from onnxrewrite.suite.decoders.sinks import SinksStay
from onnxrewrite.suite.decoders.spelling import Spelling
from onnxrewrite.system.arrays import Array

CAUSAL = "causal_mask"
"""The name of the input that stands for a mask; the size of a window is appended."""

_HIDDEN = -58000.0
"""Scores to which this or less is added are masked: the lowest number of float16 is -65504."""
_FARTHEST = 8192
"""A window is looked for among so many tokens."""
_ALONG = frozenset(("Cast", "Add", *operators(marks="product")))
"""What passes scores on, what is masked still so far away: a Tanh would bring it near."""


@dataclass(frozen=True)
class _Masking:
    """A node that masks scores: which of its inputs are scores, and which say what is masked.

    Attributes:
        scores: None for an attention, which computes them.
        allows: The elements of the mask to whether they let a token be seen.
    """

    node: ir.Node
    scores: ir.Value | None
    mask: ir.Value
    allows: Callable[[Array], Array]


@dataclass(frozen=True)
class Seen:
    """The tokens that a new one looks at, and what else takes a share of them.

    Attributes:
        window: The size of a window; None for none.
        sinks: A number for each head, see ``sinks``; None for none.
    """

    window: int | None = None
    sinks: Array | None = None


@dataclass(frozen=True)
class Masks:
    """The masks of the layers of a decoder.

    Attributes:
        windows: For each layer whose mask is understood, by the number of its Softmax or Attention: the size of its
            window, None for none.
        unknown: For each other layer, why it is not.
        left: True if all masks heed padding on the left too.
        sinks: The sinks of each layer that has some.
    """

    windows: dict[int, int | None] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)
    left: bool = True
    sinks: dict[int, Array] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, Seen]:
        """The names of the inputs that stand for masks, to what they stand for."""
        return {self.name_of(layer): Seen(window, self.sinks.get(layer)) for layer, window in self.windows.items()}

    def name_of(self, layer: int) -> str:
        """The name of the input that stands for the mask of a layer: one for all that see alike."""
        window = self.windows[layer]
        name = CAUSAL if window is None else f"{CAUSAL}.{window}"
        return f"{name}.sinks.{layer}" if layer in self.sinks else name


def shape_of(interface: Interface) -> tuple[str | int, ...]:
    """The dimensions of the inputs that stand for masks."""
    return contract.BATCH, 1, contract.SEQUENCE, contract.total(interface)


def take_out(
    model: ir.Model,
    interface: Interface,
    context: int,
    *,
    heeds: bool = True,
    sinks: Mapping[ir.Node, Array] = MappingProxyType({}),
) -> Masks:
    """Replace the masks of a decoder under the contract, which is changed, by inputs.

    Args:
        model: The model.
        interface: Of the model.
        context: The number of tokens that a text may have.
        heeds: False for a decoder that takes no mask, for which every token counts.
        sinks: Those that were taken out, by the Softmax of their layer.

    Raises:
        ModelError: The masks cannot be computed.
        SinksStay: The mask of a layer stays whose sinks were taken out.
    """
    found, graph = Masks(), model.graph
    _spell_causal(graph, interface)
    hot = dependent_on_tokens(graph, interface)
    masked = [(node, each) for node in graph if (each := list(_maskings(node, hot)))]
    layers = {number: each for number, (_, each) in enumerate(masked)}
    bare = len(sinks.keys() - {node for node, _ in masked})
    if bare:
        raise SinksStay(f"the sinks stay: {bare} layers that have some mask no scores")
    values = list({each.mask: None for layer in layers.values() for each in layer})
    if not values:
        return found
    probe, farthest = Probe(model, interface, values), min(context, _FARTHEST)
    heeds_left, steps = heeds, [step for step in possible(STEPS, interface) if heeds or step.counts.all()]
    biases = {value for value, bias in zip(values, _are_biases(probe, steps), strict=True) if bias}
    for number, every in layers.items():
        layer = [each for each in every if each.scores is None or each.mask not in biases]
        window, left, reason = _understood(layer, probe, farthest, steps)
        node = masked[number][0]
        if reason and node in sinks:
            raise SinksStay(f"layer {number}: the sinks stay, for its mask does: {reason}")
        if reason:
            found.unknown[number] = reason
            continue
        heeds_left &= left
        found.windows[number] = window
        if node in sinks:
            found.sinks[number] = sinks[node]
        _rewire(node, layer, _input(graph, found.name_of(number), interface))
    preserved.renew_interface(model)
    return replace(found, left=heeds_left)


def spell_out(model: ir.Model, interface: Interface, masks: Masks) -> None:
    """Put masks in place of the inputs that stand for them, in a model, which is changed.

    Raises:
        SinksStay: One stands for sinks, too.
    """
    spelling = Spelling(model.graph, interface)
    for name, seen in masks.names.items():
        stand_in = _input(model.graph, name, interface)
        if any(True for _ in stand_in.uses()):
            if seen.sinks is not None:
                raise SinksStay("the sinks stay: an attention that has some is no GroupQueryAttention")
            stand_in.replace_all_uses_with(spelling.causal_mask(seen.window))
        model.graph.inputs.remove(stand_in)
    spelling.finish()
    preserved.renew_interface(model)


# -- finding -------------------------------------------------------------------------------------------------


def _spell_causal(graph: ir.Graph, interface: Interface) -> None:
    """Give attentions that hide later tokens by themselves a mask that does, in a graph, which is changed: of a decoder
    without past, for with one they need not mean the same."""
    nodes = [node for node in graph if _is_attention(node) and _is_causal(node)]
    if interface.caches or not nodes:
        return
    Facts(graph, dict(graph.opset_imports))  # which infers dtypes
    spelling = Spelling(graph, interface)
    seen = spelling.seen(None)
    for node in nodes:
        node.attributes.pop("is_causal")
        node.resize_inputs(max(len(node.inputs), 4))
        given = node.inputs[3]
        if given is None:
            node.replace_input_with(3, seen)
            continue
        if given.dtype == ir.DataType.BOOL:
            both = ir.node("And", [given, seen])
        else:
            lowest = _constant(None, like=given)
            both = ir.node("Where", [seen, given, lowest.outputs[0]])
            graph.insert_before(node, [lowest])
            lowest.outputs[0].name = f"{node.outputs[0].name}/lowest"
        both.outputs[0].name = f"{node.outputs[0].name}/mask"
        graph.insert_before(node, [both])
        node.replace_input_with(3, both.outputs[0])
    spelling.finish()


def _is_attention(node: ir.Node) -> bool:
    """True for the standard's attention."""
    return node.op_type == "Attention" and not node.domain


def _maskings(node: ir.Node, hot: frozenset[ir.Value]) -> Iterator[_Masking]:
    """The nodes between the product of queries and keys and a Softmax that mask scores, the last first; or an attention
    with a mask.  Of a router's logits there is none."""
    if _is_attention(node) and len(node.inputs) > 3 and node.inputs[3] is not None and not _is_causal(node):
        yield _Masking(node, None, node.inputs[3], lambda a: a if a.dtype == np.bool_ else a == 0)
    if node.op_type == "Softmax" and node.inputs[0] in hot:
        yield from _before(node, hot)


def _is_causal(node: ir.Node) -> bool:
    return bool(node.attributes.get_int("is_causal", 0))


def _before(softmax: ir.Node, hot: frozenset[ir.Value]) -> Iterator[_Masking]:
    """The nodes before a Softmax that mask scores, the last first."""
    value = softmax.inputs[0]
    while value is not None and (node := value.producer()) is not None and node.op_type not in PRODUCTS:
        warm = [each for each in node.inputs if each in hot]
        if len(warm) != 1 or not is_read_once(value):
            return
        found = _masking(node, warm[0])
        if found is not None:
            yield found
        elif node.op_type not in _ALONG:
            return
        value = warm[0]


def _masking(node: ir.Node, scores: ir.Value) -> _Masking | None:
    """The masking of scores that a node does; None for one that does something else."""
    if node.op_type == "Add":
        (other,) = (each for each in node.inputs if each is not None and each is not scores)
        return _Masking(node, scores, other, lambda a: a == 0) if _varies(other) else None
    if node.op_type != "Where":
        return None
    condition, first, second = node.inputs
    fill = second if scores is first else first
    tensor = constant_tensor(fill) if fill is not None else None
    low = tensor is not None and bool((tensor.numpy() <= _HIDDEN).all())
    if condition is None or scores is condition or not low:
        return None
    return _Masking(node, scores, condition, (lambda a: a) if scores is first else np.logical_not)


def _varies(value: ir.Value) -> bool:
    return constant_tensor(value) is None


# -- understanding -------------------------------------------------------------------------------------------


def _understood(
    layer: list[_Masking], probe: Probe, farthest: int, steps: Sequence[Step]
) -> tuple[int | None, bool, str]:
    """The window of a layer, whether it heeds padding on the left, and why it is not understood, if it is not."""
    if not layer:
        return None, False, "nothing is hidden"
    far = _allowed(layer, probe, last_of(farthest, probe.interface))
    if isinstance(far, str):
        return None, False, far
    seen = int(far[:, -1].sum())
    window = None if seen == farthest else seen
    for step in steps:
        reason = _difference(layer, probe, step, window)
        if reason:
            return window, False, reason
    left = possible(LEFT, probe.interface)
    return window, not any(_difference(layer, probe, step, window) for step in left), ""


def _are_biases(probe: Probe, steps: Sequence[Step]) -> Iterator[bool]:
    """For each value of a probe, whether it hides nothing: numbers that are added to scores as they are, as ALiBi's."""
    for arrays in zip(*(probe.at(step) for step in steps), strict=True):
        lowest = min((float(a.min(initial=0)) for a in arrays if a.dtype != np.bool_), default=_HIDDEN)
        yield lowest > _HIDDEN and any(array.any() for array in arrays)


def _difference(layer: list[_Masking], probe: Probe, step: Step, window: int | None) -> str:
    """The difference between a layer's masks and those of a decoder at a step; empty for none."""
    found = _allowed(layer, probe, step)
    if isinstance(found, str):
        return found
    wanted = step.visible & within(step, window)
    rows = wanted.any(axis=-1) & step.counts[:, step.past :].astype(bool)
    shape = (step.counts.shape[0], step.new, step.counts.shape[1])
    try:
        actual = np.broadcast_to(found, shape)
    except ValueError:
        return f"its shape is {list(found.shape)} where scores are {list(shape)}"
    return "" if (actual == wanted)[rows].all() else "it hides other tokens than later ones and those that do not count"


def within(step: Step, window: int | None) -> Array:
    """The tokens within the window of each new one, [new, past + new]."""
    places = np.arange(step.counts.shape[1])
    near = places[None, :] > places[step.past :, None] - (window or len(places) + 1)
    return np.asarray(near)


def _allowed(layer: list[_Masking], probe: Probe, step: Step) -> Array | str:
    """The tokens that all masks of a layer together let be seen; or why they say more than that."""
    found: Array = np.ones((1, 1, 1), bool)
    arrays = dict(zip(probe.values, probe.at(step), strict=True))
    for each in layer:
        array = arrays[each.mask]
        allowed = each.allows(array)
        if array.dtype != np.bool_ and not (array[~allowed] <= _HIDDEN).all():
            return "it is added to scores and is more than a mask"
        if allowed.ndim == 4:
            if allowed.shape[1] != 1:
                return "heads have masks of their own"
            allowed = allowed[:, 0]
        if allowed.ndim > 3:
            return f"it has rank {allowed.ndim}"
        found = found & allowed
    return found


# -- rewriting -----------------------------------------------------------------------------------------------


def _rewire(node: ir.Node, layer: list[_Masking], mask: ir.Value) -> None:
    """Take the masking nodes of a layer out, and mask what goes into its Softmax or Attention by an input."""
    graph, prefix = node.graph, f"{node.name or node.outputs[0].name}/{mask.name}"
    assert graph is not None
    zero, lowest = (_constant(number, like=node.inputs[0]) for number in (0.0, None))
    where = ir.node("Where", [mask, zero.outputs[0], lowest.outputs[0]])
    made, place, masking = [zero, lowest, where], 3, where.outputs[0]
    for each in layer:
        if each.scores is not None:
            each.node.outputs[0].replace_all_uses_with(each.scores)
    if node.op_type == "Softmax":
        made.append(ir.node("Add", [node.inputs[0], masking]))
        place, masking = 0, made[-1].outputs[0]
    for part, new in zip(("zero", "lowest", "where", "add"), made, strict=False):
        new.name = new.outputs[0].name = f"{prefix}/{part}"
    node.replace_input_with(place, masking)
    graph.insert_before(node, made)


def _constant(number: float | None, like: ir.Value | None) -> ir.Node:
    """A number of the dtype of a value, float if that is not known; without one, the lowest that there is."""
    dtype = like.dtype if like is not None and like.dtype is not None else ir.DataType.FLOAT
    tensor = ir.tensor(np.asarray(dtype.min if number is None else number, dtype.numpy()), dtype=dtype)
    return ir.node("Constant", [], {"value": tensor})


def _input(graph: ir.Graph, name: str, interface: Interface) -> ir.Value:
    """The input of this name, which is added if there is none."""
    for value in graph.inputs:
        if value.name == name:
            return value
    kind = ir.TensorType(ir.DataType.BOOL)
    made = ir.Value(name=name, type=kind, shape=ir.Shape(shape_of(interface)))
    graph.inputs.append(made)
    return made
