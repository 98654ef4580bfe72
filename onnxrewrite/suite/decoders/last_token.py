"""Logits of the last token alone: a generator asks for no others, and the head is the largest product of many decoders.

A decoder mixes tokens in its attentions only, or it could not go on from a past.  So what is computed from the results
of the last of them, token by token, is computed for one token: the last of each text that counts.  Texts are padded on
the right, if at all.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.io import preserved
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import constant_tensor, subgraphs
from onnxrewrite.suite.decoders import contract
from onnxrewrite.suite.decoders.attention_operators import ATTENTIONS
from onnxrewrite.suite.decoders.decoder_interface import Interface
from onnxrewrite.suite.decoders.probe import dependent_on_tokens
from onnxrewrite.suite.decoders.spelling import Spelling


def keep_last(model: ir.Model, interface: Interface) -> int:
    """Let a decoder under the contract, which is changed, compute logits of the last token only, [batch, 1, words].

    Returns the number of nodes that have one token to compute now; 0 if the model is as it was.
    """
    graph = model.graph
    Facts(graph, dict(graph.opset_imports))  # which infers shapes
    logits = next(value for value in graph.outputs if value.name == interface.logits)
    hot = dependent_on_tokens(graph, interface)
    nodes = _by_token(graph, logits, hot)
    if not nodes:
        return 0
    spelling, selected = Spelling(graph, interface), dict[ir.Value, ir.Value]()
    place = _last(spelling, interface)
    spelling.finish()
    computed = {value for node in nodes for value in node.outputs}
    for node in nodes:
        for index, value in enumerate(node.inputs):
            if value is None or value in computed or value not in hot:
                continue
            if value not in selected:
                selected[value] = _selected(graph, value, place, before=node)
            node.replace_input_with(index, selected[value])
    logits.shape = ir.Shape([contract.BATCH, 1, interface.words])
    preserved.renew_interface(model)
    return len(nodes)


def _by_token(graph: ir.Graph, logits: ir.Value, hot: frozenset[ir.Value]) -> list[ir.Node]:
    """The nodes from which nothing but the logits is computed, token by token, in the order of the graph."""
    found = dict[ir.Node, None]()
    for node in reversed(graph):
        read = [reader for value in node.outputs for reader, _ in value.uses()]
        others = [value for value in node.outputs if value.is_graph_output() and value is not logits]
        alone = (read or logits in node.outputs) and not others and all(reader in found for reader in read)
        if alone and _is_by_token(node, hot):
            found[node] = None
    return list(reversed(found))


def _is_by_token(node: ir.Node, hot: frozenset[ir.Value]) -> bool:
    """True for a node of values [batch, new, size] and constants, that is no attention."""
    if node.op_type in ATTENTIONS or subgraphs(node):
        return False
    read = [value for value in node.inputs if value is not None and constant_tensor(value) is None]
    made = [value for value in node.outputs if value in hot and any(True for _ in value.uses())]
    made = made or list(node.outputs[:1])
    return bool(read) and all(value in hot and _has_tokens(value) for value in (*read, *made))


def _has_tokens(value: ir.Value) -> bool:
    """True for a value of shape [batch, new, size]."""
    return value.shape is not None and len(value.shape) == 3 and str(value.shape[1]) == contract.SEQUENCE


def _last(spelling: Spelling, interface: Interface) -> ir.Value:
    """The places of the last new tokens that count, of shape [batch, 1, 1]: in a prompt there are as many tokens that
    count before, after a past all new ones count."""
    mask = next(value for value in spelling.graph.inputs if value.name == interface.mask)
    count = spelling.op("ReduceSum", spelling.cast(mask, ir.DataType.INT64), np.array([1]), keepdims=1)
    place = spelling.op("Sub", spelling.op("Min", count, spelling.new()), np.array(1))
    return spelling.op("Unsqueeze", place, np.array([2]))


def _selected(graph: ir.Graph, value: ir.Value, place: ir.Value, *, before: ir.Node) -> ir.Value:
    """The part of a value [batch, new, size] at a place of each text, [batch, 1, size]."""
    node = ir.node("GatherND", [value, place], {"batch_dims": 1})
    node.name = node.outputs[0].name = f"{value.name}/last"
    graph.insert_before(before, [node])
    return node.outputs[0]
