"""The number of new tokens, spelled in another way: exporters that trace sizes write it with bounds that never count.

torch.export writes the length of a slice of a table as Max(0, Min(256, past + new) - Min(256, past)), of which no rule
can know that it is the number of new tokens.  It is, for every text that the table is long enough for: such numbers are
computed for steps of every kind, up to the longest.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.suite.decoders.decoder_interface import Interface
from onnxrewrite.suite.decoders.probe import LEFT, STEPS, Probe, dependent_on_tokens, full, last_of, possible
from onnxrewrite.suite.decoders.spelling import Spelling
from onnxrewrite.system.arrays import Array

_BOUNDED = frozenset({"Max", "Min"})


def spell_counts(model: ir.Model, interface: Interface, context: int) -> int:
    """Replace bounded numbers that are always that of new tokens, in a model, which is changed; how many there were.

    Args:
        model: The model.
        interface: Of the model, which takes a mask.
        context: The number of tokens that a text may have.

    Raises:
        ModelError: The numbers cannot be computed.
    """
    hot = dependent_on_tokens(model.graph, interface)
    values = [node.outputs[0] for node in model.graph if node.op_type in _BOUNDED and not node.domain]
    values = [value for value in values if value not in hot and not value.is_graph_output()]
    if not values:
        return 0
    probe, left = Probe(model, interface, values), set(values)
    steps = (*STEPS, *LEFT, last_of(context, interface), full(1, 1, context - 1), full(1, 0, context))
    for step in possible(steps, interface):
        found = zip(values, probe.at(step), strict=True)
        left -= {value for value, array in found if not _is_number(array, step.new)}
    spelling = Spelling(model.graph, interface)
    for value in values:
        if value in left:
            value.replace_all_uses_with(spelling.new())
    spelling.finish()
    return len(left)


def _is_number(array: Array, number: int) -> bool:
    """True for a scalar of int64 that is this number."""
    return array.shape == () and array.dtype == np.int64 and int(array) == number
