"""The float64 reference of a model: what its outputs would be without rounding.

``build_reference`` says what kind of reference a model has:

- ``float64``: every operator computes in double; what the graph itself asks to be rounded is rounded all the same.
- ``float64 with float32 islands: Op, ...``: these operators have neither a double kernel nor an expansion.
- ``float32``: none; the original itself is compared with, at a stated tolerance.  So for quantized models,
  where a rounding in double falls on the other side of a tie than in float, and a whole quantization step
  apart is right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from onnxrewrite.ir.schema import NON_DETERMINISTIC
from onnxrewrite.verify.double import NotDoublable, double_model
from onnxrewrite.verify.session import (
    Feeds,
    ModelLike,
    Outputs,
    Session,
    as_proto,
    one_line,
    open_session,
    weight_bytes,
)

_RANDOM_OPS = frozenset(name for _, name in NON_DETERMINISTIC)
_ASK_SHAPES = ("Shape", "Size")
QUANTIZED = re.compile(
    r"Quantize|Integer|^QLinear|^QGemm|^QAttention|^QEmbed|^MatMulNBits|^MatMulBnb4|^MatMulFpQ4|^QMoE"
)
REFERENCE_LIMIT = 700_000_000
"""Bytes of float32 weights above which no double copy is made (it needs about three times as much memory)."""

_NARROW_DTYPES = {np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)}


@dataclass
class Reference:
    """How to get the reference of a model's outputs; ``session`` is None for kind ``float32``."""

    kind: str
    reason: str = ""
    session: Session | None = field(default=None, repr=False)
    stepped: bool = False
    """Whether the model rounds to fewer digits than it computes with, see ``numeric``."""

    @property
    def trusted(self) -> bool:
        """Whether there is a float64 reference at all."""
        return self.session is not None

    @property
    def islands(self) -> bool:
        """Whether some operators of the reference compute in float32."""
        return "islands" in self.kind

    def run(self, feeds: Feeds) -> Outputs | None:
        """Reference outputs by name, None where there is no reference (for these feeds)."""
        if self.session is None:
            return None
        outputs = self.session.run(widened(feeds))
        return None if isinstance(outputs, str) else outputs


def widened(feeds: Feeds) -> dict[str, Any]:
    """The same feeds with floats as double."""
    return {name: _wide(value) for name, value in feeds.items()}


def _wide(value: Any) -> Any:
    if isinstance(value, list):
        return [_wide(v) for v in value]
    return value.astype(np.float64) if getattr(value, "dtype", None) in _NARROW_DTYPES else value


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of a model: of its graph, of bodies inside nodes, of its functions."""

    def walk(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        for node in nodes:
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield from walk(attribute.g.node)
                for graph in attribute.graphs:
                    yield from walk(graph.node)

    yield from walk(model.graph.node)
    for function in model.functions:
        yield from walk(function.node)


def stochastic_ops(model: onnx.ModelProto) -> list[str]:
    """Operators whose result is random, training-mode Dropout included."""
    return sorted({n.op_type for n in _random_nodes(model)})


def draws(model: onnx.ModelProto) -> Counter[str] | None:
    """How many nodes of each operator draw random numbers that something reads; who reads their shape reads none.

    None for a model with branches or loops: which of them run, and how often, is not told by counting.
    """
    nodes = list(all_nodes(model))
    if len(nodes) > len(model.graph.node):
        return None
    read = {name for node in nodes if node.op_type not in _ASK_SHAPES for name in node.input}
    read.update(v.name for v in model.graph.output)
    return Counter(n.op_type for n in _random_nodes(model) if not read.isdisjoint(n.output))


def _random_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    constants = {t.name: t for t in model.graph.initializer}
    for node in all_nodes(model):
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = node.attribute[0].t
        if node.op_type in _RANDOM_OPS or (node.op_type == "Dropout" and _training(node, constants)):
            yield node


def _training(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    if len(node.input) < 3 or not node.input[2]:
        return False
    tensor = constants.get(node.input[2])
    return tensor is None or bool(onnx.numpy_helper.to_array(tensor).any())


def quantized_ops(model: onnx.ModelProto) -> list[str]:
    """Operators that round to a grid, where float and double legitimately differ by a whole step."""
    return sorted({n.op_type for n in all_nodes(model) if QUANTIZED.search(n.op_type)})


def build_reference(model: ModelLike, *, threads: int = 0) -> Reference:
    """The best reference this model allows."""
    if weight_bytes(model) > REFERENCE_LIMIT:
        return Reference("float32", "the weights are too large for a double copy")
    try:
        proto = as_proto(model)
        quantized = quantized_ops(proto)
        if quantized:
            return Reference("float32", f"quantized: {', '.join(quantized)}", stepped=True)
        return _open(proto, threads)
    except NotDoublable as error:
        return Reference("float32", one_line(error))
    except Exception as error:  # inliner, converter and shape inference raise many classes; none may stop a check
        return Reference("float32", f"no double copy: {one_line(error)}")


def _open(proto: onnx.ModelProto, threads: int) -> Reference:
    """Open the double copy; an operator that ORT refuses becomes an island and it is tried again."""
    forced: frozenset[str] = frozenset()
    for _ in range(8):
        doubled = double_model(proto, forced)
        session = open_session(doubled.model, threads=threads)
        if not isinstance(session, str):
            kind = "float64"
            if doubled.islands:
                kind += f" with float32 islands: {', '.join(sorted(doubled.islands))}"
            return Reference(kind, session=session, stepped=doubled.stepped)
        refused = _refused(session)
        if refused is None or refused in forced:
            return Reference("float32", f"no double copy: {session}")
        forced |= {refused}
    return Reference("float32", "no double copy: too many operators without double kernels")


def _refused(message: str) -> str | None:
    for pattern in (r"implementation for (\w+)\(\d+\)", r"of operator \((\w+)\)", r'\("[^"]*", (\w+), '):
        found = re.search(pattern, message)
        if found:
            return found.group(1)
    return None
