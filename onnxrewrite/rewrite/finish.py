"""The last touch to a rewritten model: nothing stays behind that only the work needed."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx_ir as ir

from onnxrewrite.ir.calls import forget_types
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.names import Names, rename
from onnxrewrite.rewrite.edit import share_constants
from onnxrewrite.rewrite.legality import sized

_MADE_UP = re.compile(r"(_new_shape|_token_\d+)+$")
"""What ONNX Runtime adds to a name, of the shape of fused Reshapes, and of anything that it makes."""


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
    _leave_names(scopes(model))
    forget_types(model)


def _leave_names(graphs: Sequence[ir.Graph]) -> None:
    """Rename constants that are called as ONNX Runtime calls what it makes when it optimizes a model.

    It does not look at all other names then, and does not open a model in which such a one is taken.  Files that it, or
    one of its tools, wrote have such names.
    """
    constants = [c for graph in graphs for c in graph.initializers.values() if not c.is_graph_input()]
    taken = [c for c in constants if c.name and _MADE_UP.search(c.name)]
    if not taken:
        return
    outputs = (output for graph in graphs for node in graph for output in node.outputs)
    inputs = (value for graph in graphs for value in graph.inputs)
    names = Names(value.name for value in (*constants, *inputs, *outputs) if value.name)
    for constant in taken:
        rename(constant, names.fresh(f"{_MADE_UP.sub('', constant.name or '')}_constant"))


def has_inner_types(model: ir.Model) -> bool:
    """True if a model declares the type of any inner value."""
    outputs = (o for graph in scopes(model) for node in graph for o in node.outputs)
    return any(o.type is not None and not o.is_graph_output() for o in outputs)


def _is_name(dim: ir.SymbolicDim) -> bool:
    return dim.value is not None and dim.value.isidentifier() and not dim.value.startswith("_d")
