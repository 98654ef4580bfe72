"""Dimensions that are called like a computation, ``past + seq``: taken for its result, or for nothing but a name.

The standard says of a ``dim_param`` only that equal ones are equal sizes.  Exporters mean what they write, but a
runtime asks nobody, and takes other sizes there; so that it is the result is an assumption.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx_ir as ir

from onnxrewrite.ir.dims import declared


def named_sums(model: ir.Model) -> list[str]:
    """The names of input dimensions that are taken for what they say, in order of first appearance."""
    return list(dict.fromkeys(name for _, _, name in _places(model)))


def with_plain_names(model: ir.Model) -> ir.Model:
    """A copy of a model in which such names say nothing; the interface that is written stays what it was."""
    copied = model.clone()
    known = {str(d) for v in copied.graph.inputs for d in v.shape or ()}
    for value, axis, name in list(_places(copied)):
        assert value.shape is not None
        plain = re.sub(r"\W+", "_", name)
        while plain in known:
            plain += "_"
        dims = list(value.shape)
        dims[axis] = ir.SymbolicDim(plain)
        value.shape = ir.Shape(dims)
    return copied


def _places(model: ir.Model) -> Iterator[tuple[ir.Value, int, str]]:
    """Inputs, axes, and the names there."""
    for value in model.graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            told = declared(dim) if isinstance(dim, ir.SymbolicDim) else dim
            if isinstance(told, ir.SymbolicDim) and told.value is not None and told.free_symbols() - {told.value}:
                yield value, axis, told.value
