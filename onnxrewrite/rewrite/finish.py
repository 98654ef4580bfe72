"""The last touch to a rewritten model: nothing stays behind that only the work needed."""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.ir.calls import forget_types
from onnxrewrite.ir.graph import scopes
from onnxrewrite.rewrite.edit import share_constants
from onnxrewrite.rewrite.legality import sized


def finish(model: ir.Model, *, keep_types: bool) -> None:
    """Leave out opset marks, constants that are unused or there twice, made-up dimension names, and, unless
    ``keep_types``, the types of inner values but those that an operator must be told."""
    bodies = {f.graph for f in model.functions.values()}
    told = {v for graph in scopes(model) for n in graph if (v := sized(n)) and v.shape and len(v.shape) == 3}
    for graph in scopes(model):
        for node in graph:
            node.version = None
            for output in node.outputs:
                is_told = graph not in bodies and (output in told or output.is_graph_output())
                if not (keep_types or is_told):
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
