"""Running single nodes of constants: what constant folding computes with.

ONNX Runtime runs the node in the model's own opset, with its optimizer off; where it has no kernel, the reference
evaluator does.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    model = extract([node], [], outputs, opset_imports)
    for value in model.graph.outputs:
        value.shape = None
    proto = ir.serde.serialize_model(model)
    custom.complete(proto)
    import onnxruntime

    options = custom.equip(onnxruntime.SessionOptions())
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        results = session.run(None, {})
    except Exception:
        import onnx.reference

        results = onnx.reference.ReferenceEvaluator(proto).run(None, {})
    by_value = dict(zip(outputs, results, strict=True))
    return [by_value.get(o) for o in node.outputs]  # type: ignore[misc]
