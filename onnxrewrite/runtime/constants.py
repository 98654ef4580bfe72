"""Running single nodes of constants, what constant folding computes with, and a few nodes on given arrays.

ONNX Runtime runs them in the model's own opset, with its optimizer off, in so much memory and time (``bounds``); where
it has no kernel, the reference evaluator does.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import custom
from onnxrewrite.ir.graph import extract, subgraphs
from onnxrewrite.runtime import bounds
from onnxrewrite.runtime.limited import Overrun
from onnxrewrite.runtime.native import opened, run
from onnxrewrite.system.arrays import Array

if TYPE_CHECKING:
    import onnxruntime as ort

_BY_REFERENCE = 2**16
"""Elements that the reference evaluator is given at the most: it computes some operators one by one."""


def evaluate(node: ir.Node, opset_imports: Mapping[str, int]) -> list[Array]:
    """The outputs of a node whose inputs are all constant.

    Raises:
        Exception: Whatever the runtime says when it cannot run the node.
    """
    outputs = [o for o in node.outputs if o.name or o.uses()]
    by_value = dict(zip(outputs, evaluate_part([node], {}, outputs, opset_imports), strict=True))
    return [by_value.get(o) for o in node.outputs]  # type: ignore[misc]


def evaluate_part(
    nodes: Sequence[ir.Node],
    feeds: Mapping[ir.Value, Array],
    outputs: Sequence[ir.Value],
    opset_imports: Mapping[str, int],
) -> list[Array]:
    """The outputs of some nodes, producers first, computed from constants and from ``feeds`` of any shape.

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
    try:
        handle = opened(proto.SerializeToString(), _options(), seconds=bounds.SECONDS)
        return [np.array(each) for each in run(handle, None, arrays, seconds=bounds.SECONDS)]  # not the arena's memory
    except Overrun:
        raise
    except Exception:
        if not _is_small(nodes):
            raise
        import onnx.reference

        return list(onnx.reference.ReferenceEvaluator(proto).run(None, arrays))


def _is_small(nodes: Sequence[ir.Node]) -> bool:
    """True if the reference evaluator, which knows no limits, will be done soon."""
    values = {v for n in nodes for v in (*n.inputs, *n.outputs) if v is not None}
    sizes = [v.shape.numpy() for v in values if v.shape is not None and v.shape.is_static()]
    return len(sizes) == len(values) and sum(map(_size, sizes)) <= _BY_REFERENCE and not any(map(subgraphs, nodes))


def _size(shape: Sequence[int]) -> int:
    return functools.reduce(int.__mul__, map(int, shape), 1)


def _options() -> ort.SessionOptions:
    import onnxruntime

    _bound_memory()
    options = custom.equip(onnxruntime.SessionOptions())
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    return options


@functools.cache
def _bound_memory() -> None:
    """Give ONNX Runtime an allocator of so much memory, which the sessions of this module share."""
    import onnxruntime

    where = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    as_requested = 1
    settings = onnxruntime.OrtArenaCfg({"max_mem": bounds.WORK_BYTES, "arena_extend_strategy": as_requested})
    onnxruntime.create_and_register_allocator(where, settings)
