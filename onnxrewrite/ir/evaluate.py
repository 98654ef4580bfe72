"""Running single nodes of constants, what constant folding computes with, and a few nodes on given arrays.

ONNX Runtime runs them in the model's own opset, with its optimizer off; where it has no kernel, the reference
evaluator does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from onnxrewrite.ir import custom
from onnxrewrite.ir.graph import extract


def evaluate(node: ir.Node, opset_imports: Mapping[str, int]) -> list[npt.NDArray[Any]]:
    """The outputs of a node whose inputs are all constant.

    Raises:
        Exception: Whatever the runtime says when it cannot run the node.
    """
    outputs = [o for o in node.outputs if o.name or o.uses()]
    by_value = dict(zip(outputs, evaluate_part([node], {}, outputs, opset_imports), strict=True))
    return [by_value.get(o) for o in node.outputs]  # type: ignore[misc]


def evaluate_part(
    nodes: Sequence[ir.Node],
    feeds: Mapping[ir.Value, npt.NDArray[Any]],
    outputs: Sequence[ir.Value],
    opset_imports: Mapping[str, int],
) -> list[npt.NDArray[Any]]:
    """What some nodes, producers first, compute from constants and from ``feeds``, of whatever shape those are.

    Raises:
        Exception: Whatever the runtime says when it cannot run the nodes.
    """
    model = extract(nodes, list(feeds), outputs, opset_imports)
    for node in model.graph:
        for value in node.outputs:
            value.shape = None
    for value, array in zip(model.graph.inputs, feeds.values(), strict=True):
        value.shape = ir.Shape(array.shape)
    arrays = {v.name or "": a for v, a in zip(model.graph.inputs, feeds.values(), strict=True)}
    proto = ir.serde.serialize_model(model)
    custom.complete(proto)
    import onnxruntime

    options = custom.equip(onnxruntime.SessionOptions())
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        return list(session.run(None, arrays))
    except Exception:
        import onnx.reference

        return list(onnx.reference.ReferenceEvaluator(proto).run(None, arrays))
