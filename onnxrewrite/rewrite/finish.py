"""The last touch to a rewritten model: nothing stays behind that only the work needed."""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.ir.calls import forget_types
from onnxrewrite.ir.graph import scopes
from onnxrewrite.rewrite.edit import share_constants


def finish(model: ir.Model, *, keep_types: bool) -> None:
    """Leave out opset marks, constants that are unused or there twice, made-up dimension names, and, unless
    ``keep_types``, the types of inner values."""
    bodies = {f.graph for f in model.functions.values()}
    for graph in scopes(model):
        for node in graph:
            node.version = None
            for output in node.outputs:
                if not keep_types and (graph in bodies or not output.is_graph_output()):
                    output.type, output.shape = None, None
                elif output.shape is not None:
                    output.shape = ir.Shape([d if isinstance(d, int) or _is_name(d) else None for d in output.shape])
        share_constants(graph)
    forget_types(model)


def has_inner_types(model: ir.Model) -> bool:
    """True if a model declares the type of any inner value."""
    outputs = (o for graph in scopes(model) for node in graph for o in node.outputs)
    return any(o.type is not None and not o.is_graph_output() for o in outputs)


def _is_name(dim: ir.SymbolicDim) -> bool:
    return dim.value is not None and dim.value.isidentifier() and not dim.value.startswith("_d")
