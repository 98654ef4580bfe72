"""Products of uint8 and int8 as such of uint8: those are exact on processors without 8-bit dot products, too.

x86 without them adds pairs of products of uint8 and int8 in 16 bits, which saturate.  A rule is judged by what
operators mean, not by that; the check of each rewrite of a model sees what it does to that model's weights.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

_OFFSET = np.array(128, np.int32)
"""Added to a number and to its zero point alike, it changes no difference of the two."""


def in_unsigned_bytes(model: ir.Model) -> ir.Model:
    """The model, changed so that nodes that multiply both kinds read unsigned bytes in place of signed ones and of
    their zero points."""
    moved: dict[ir.Value, ir.Value] = {}
    for node in list(model.graph):
        signed = [i for i, v in enumerate(node.inputs) if v is not None and v.dtype == ir.DataType.INT8]
        if len(signed) < 2 or not _multiplies_both(node):  # with a single one its zero point is left out
            continue
        for place in signed:
            value = node.inputs[place]
            assert value is not None
            if value not in moved:
                made = _moved(value)
                model.graph.insert_before(node, made)
                moved[value] = made[-1].outputs[0]
            node.replace_input_with(place, moved[value])
    return model


def _multiplies_both(node: ir.Node) -> bool:
    dtypes = {v.dtype for v in node.inputs if v is not None}
    return "Quantize" not in node.op_type and dtypes >= {ir.DataType.UINT8, ir.DataType.INT8}


def _moved(value: ir.Value) -> list[ir.Node]:
    name = f"{value.name}/unsigned"
    number = ir.node("Constant", [], {"value": ir.tensor(_OFFSET)}, outputs=[ir.Value(name=f"{name}/128")])
    wide = ir.node("Cast", [value], {"to": int(ir.DataType.INT32)}, outputs=[ir.Value(name=f"{name}/wide")])
    total = ir.node("Add", [wide.outputs[0], number.outputs[0]], outputs=[ir.Value(name=f"{name}/sum")])
    made = ir.node("Cast", [total.outputs[0]], {"to": int(ir.DataType.UINT8)}, outputs=[ir.Value(name=name)])
    return [number, wide, total, made]
