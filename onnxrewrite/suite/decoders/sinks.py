"""Attention sinks: a number for each head beside its scores, which takes a share of the Softmax and has no value.

softmax([scores, sink])[..., :-1] is softmax(scores) over a denominator that is larger by exp(sink).  No operator of the
standard has it, com.microsoft.GroupQueryAttention does (``head_sink``).  So sinks are taken out while a decoder is
rewritten, and go back in by that operator; if one cannot, all of them stay as they were spelled.
Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks, 2023; gpt-oss, 2025.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.views import slice_of
from onnxrewrite.rewrite.edit import sweep
from onnxrewrite.suite.decoders.decoder_interface import Interface
from onnxrewrite.suite.decoders.probe import dependent_on_tokens
from onnxrewrite.system.arrays import Array

_REPEATS = ("Expand", "Identity")


class SinksStay(Exception):
    """A layer whose sinks are taken out does not become the operator that has them; the message says which, and why."""


@dataclass(frozen=True)
class _Sink:
    """A Softmax beside whose scores there is something else.

    Attributes:
        softmax: It.
        scores: The scores.
        numbers: The sinks, of shape [heads].
        ends: The nodes that cut off its share.
    """

    softmax: ir.Node
    scores: ir.Value
    numbers: Array
    ends: tuple[ir.Node, ...]


def take_out(model: ir.Model, interface: Interface) -> dict[ir.Node, Array]:
    """Take the sinks of a decoder under the contract out, which is changed.

    Returns:
        The Softmax of each layer that had sinks, to these, of shape [heads].
    """
    graph = model.graph
    if not any(node.op_type == "Softmax" for node in graph):
        return {}
    facts, hot = Facts(graph, dict(graph.opset_imports)), dependent_on_tokens(graph, interface)
    found = [sink for node in list(graph) if node.op_type == "Softmax" for sink in _sinks(node, facts, hot)]
    for sink in found:
        _rewire(sink)
    return {sink.softmax: sink.numbers for sink in found}


def _sinks(softmax: ir.Node, facts: Facts, hot: frozenset[ir.Value]) -> Iterator[_Sink]:
    """The one, if there is one."""
    joined = _less_its_largest(softmax.inputs[0])
    node = joined.producer() if joined is not None else None
    if node is None or node.op_type != "Concat" or len(node.inputs) != 2 or not _is_last(node, "axis", facts, joined):
        return
    scores, beside = node.inputs
    numbers = _by_head(beside, facts) if beside is not None else None
    if scores is None or numbers is None or scores not in hot:
        return
    ends = tuple(each for each, _ in softmax.outputs[0].uses())
    ends = tuple(use for end in ends for use in (_read(end) if end.op_type in ("Cast", "Identity") else (end,)))
    if _is_last(softmax, "axis", facts, joined) and ends and all(_cuts_one_off(end, facts) for end in ends):
        yield _Sink(softmax, scores, numbers, ends)


def _read(node: ir.Node) -> tuple[ir.Node, ...]:
    return tuple(use for use, _ in node.outputs[0].uses())


def _less_its_largest(value: ir.Value | None) -> ir.Value | None:
    """The x of x - max(x), which Softmax does not tell from x; or the value itself."""
    node = value.producer() if value is not None else None
    if node is None or node.op_type != "Sub" or node.inputs[1] is None:
        return value
    largest = node.inputs[1].producer()
    is_so = largest is not None and largest.op_type == "ReduceMax" and largest.inputs[0] is node.inputs[0]
    return node.inputs[0] if is_so else value


def _is_last(node: ir.Node, name: str, facts: Facts, value: ir.Value | None) -> bool:
    """True if an axis is the last one of a value."""
    axis, rank = node.attributes.get_int(name, -1), facts.rank(value) if value is not None else None
    return axis == -1 or (rank is not None and axis == rank - 1)


def _cuts_one_off(node: ir.Node, facts: Facts) -> bool:
    """True for a Slice of all but the last element of the last of four axes."""
    if node.op_type != "Slice":
        return False
    found = slice_of(facts, node)
    if isinstance(found, str) or len(found.spans) != 1:
        return False
    (span,) = found.spans
    return span.axis in (-1, 3) and (span.start, span.end, span.step) == (0, -1, 1)


def _by_head(value: ir.Value, facts: Facts) -> Array | None:
    """The numbers [heads] that a value [batch, heads, new, 1] repeats; None if it is something else."""
    while (node := value.producer()) is not None and node.op_type in _REPEATS and node.inputs[0] is not None:
        value = node.inputs[0]
    shape = facts.shape(value)
    node = value.producer()
    source = node.inputs[0] if node is not None and node.op_type in ("Reshape", "Unsqueeze") else value
    array = facts.constant(source) if source is not None else None
    if array is None or shape is None or len(shape) < 3:
        return None
    return array.reshape(-1) if [*shape][-3:] == [array.size, 1, 1] else None


def _rewire(sink: _Sink) -> None:
    """Let the Softmax have the scores alone; nothing else reads them then, which their masks need to be found."""
    joined = sink.softmax.inputs[0]
    sink.softmax.replace_input_with(0, sink.scores)
    for end in sink.ends:
        assert end.inputs[0] is not None
        end.outputs[0].replace_all_uses_with(end.inputs[0])
    before = joined.producer() if joined is not None else None
    sweep([*sink.ends, *([] if before is None else [before])])
