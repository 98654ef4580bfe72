"""The cosines and sines of rotary embeddings as tables, of which each token takes the row of its position.

What is given to a RotaryEmbedding row by row is computed for every position of a text, and for positions in disorder:
where it is the row of its position each time, the table replaces what computed it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnxrewrite.suite.decoders.decoder_interface import Interface
from onnxrewrite.suite.decoders.probe import LEFT, STEPS, Probe, dependent_on_tokens, full
from onnxrewrite.suite.decoders.spelling import Spelling
from onnxrewrite.system.arrays import Array

_MOST_BYTES = 2**28
"""Bytes of a table that is worth writing."""


def tabulate(model: ir.Model, interface: Interface, context: int, *, counted: bool) -> int:
    """Give the rotary embeddings of a decoder, which is changed, tables of ``context`` rows and positions.

    Where it takes no positions, they are the places of tokens, or, if ``counted``, of those that count.

    Returns the number of rotary embeddings that have tables now.

    Raises:
        ModelError: The cosines cannot be computed.
    """
    graph = model.graph
    hot = dependent_on_tokens(graph, interface)
    nodes = [node for node in graph if node.op_type == "RotaryEmbedding" and not node.domain and _by_row(node, hot)]
    rows = list(dict.fromkeys(value for node in nodes for value in node.inputs[1:3] if value is not None))
    if not rows:
        return 0
    found = _tables(Probe(model, interface, rows), rows, interface, context, counted=counted)
    spelling, positions = Spelling(graph, interface), None
    tables = {value: spelling.weight(f"{value.name}/table", table) for value, table in found.items()}
    done = 0
    for node in nodes:
        cos, sin = (tables.get(value) for value in node.inputs[1:3] if value is not None)
        if cos is None or sin is None:
            continue
        positions = positions or spelling.positions(counted=counted)
        node.resize_inputs(4)
        for index, value in enumerate((cos, sin, positions), start=1):
            node.replace_input_with(index, value)
        done += 1
    spelling.finish()
    return done


def _by_row(node: ir.Node, hot: frozenset[ir.Value]) -> bool:
    """True for a rotary embedding whose cosines and sines are given by token, and do not depend on tokens."""
    given = [value for value in node.inputs[1:] if value is not None]
    return len(given) == 2 and not any(value in hot for value in given)


def _tables(
    probe: Probe, rows: Iterable[ir.Value], interface: Interface, context: int, *, counted: bool
) -> dict[ir.Value, Array]:
    """The tables of rows that depend on positions alone; those may be places, or, if ``counted``, what counts."""
    whole = dict(zip(rows, probe.at(full(1, 0, context)), strict=True))
    kept = {
        value: table[0]
        for value, table in whole.items()
        if table.ndim == 3 and table.shape[1] == context and table.nbytes <= _MOST_BYTES
    }
    rng = np.random.default_rng(0)
    for step in (*STEPS, *(LEFT if interface.positions is not None else ())):
        disordered = rng.integers(0, context, step.positions.shape)
        places = np.broadcast_to(np.arange(step.past, step.past + step.new), step.positions.shape)
        accepted = [disordered] if interface.positions is not None else [places, step.positions][: 1 + counted]
        for value, array in zip(rows, probe.at(step, disordered), strict=True):
            if value in kept and not any(_is_row_of(kept[value], positions, array) for positions in accepted):
                del kept[value]
    return kept


def _is_row_of(table: Array, positions: Array, rows: Array) -> bool:
    """True if rows are those of their positions, but for how a product of other shapes is rounded."""
    wanted = table[positions]
    if rows.ndim != 3 or rows.shape[1:] != wanted.shape[1:] or rows.shape[0] not in (1, wanted.shape[0]):
        return False
    return bool(np.allclose(rows, wanted, rtol=0, atol=1e-6))
