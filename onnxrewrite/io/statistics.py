"""Counts of a model: operators, nodes, bytes.  Knows nothing of how they are shown."""

from __future__ import annotations

import os
from collections import Counter

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.io import external, mapped, preserved
from onnxrewrite.ir.graph import scopes


def operator_counts(model: ir.Model) -> dict[str, int]:
    """The number of nodes of each operator, in subgraphs and functions too, constants left out; sorted by name."""
    return dict(sorted(Counter(operator_name(n) for g in scopes(model) for n in g if not _is_constant(n)).items()))


def node_count(model: ir.Model) -> int:
    """The number of nodes, in subgraphs and functions too, constants left out."""
    return sum(operator_counts(model).values())


def operator_name(node: ir.Node) -> str:
    """``Add``, ``com.microsoft.FusedConv``."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def stored_bytes(model: ir.Model, path: str | os.PathLike[str] | None = None) -> int:
    """The bytes that the model takes when it is saved, or takes at ``path``; of one that needs external data, the
    weights alone."""
    if io.needs_external_data(model):
        with preserved.completed(model):
            return external.total_bytes(model)
    if path is not None and os.path.isfile(path):
        return os.path.getsize(path)
    return mapped.size(*io.to_weightless(model))


def external_bytes(model: ir.Model) -> int:
    """The bytes of the weights that still lie outside of the file."""
    with preserved.completed(model):
        return sum(s.tensor.nbytes for s in external.slots(model) if isinstance(s.tensor, ir.ExternalTensor))


def file_bytes(model: ir.Model) -> int:
    """Of the file that a model was read from, as it was then, and the weights outside of it; without a file, what it
    would take."""
    known = preserved.origin(model)
    size = known.size if known is not None else None
    return size + external_bytes(model) if size is not None else stored_bytes(model)


def _is_constant(node: ir.Node) -> bool:
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")
