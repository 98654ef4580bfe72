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
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import onnx

from onnxrewrite.ir.protos import all_nodes
from onnxrewrite.reference.double import NotDoublable, double_model
from onnxrewrite.runtime.references import POOLED, referred_bytes
from onnxrewrite.runtime.session import (
    ModelLike,
    Session,
    as_proto,
    message_bytes,
    one_line,
    open_session,
)
from onnxrewrite.system.arrays import Feeds, Held, Outputs, is_tensor

QUANTIZED = re.compile(
    r"Quantize|Integer|^QLinear|^QGemm|^QAttention|^QEmbed|^MatMulNBits|^MatMulBnb4|^MatMulFpQ4|^QMoE"
)
REFERENCE_LIMIT = 700_000_000
"""Bytes of float32 weights above which no double copy is made (it needs about three times as much memory)."""

_NARROW_DTYPES = {np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)}


@dataclass
class Reference:
    """The source of reference outputs of a model; ``session`` is None for kind ``float32``."""

    kind: str
    reason: str = ""
    session: Session | None = field(default=None, repr=False)
    stepped: bool = False
    """True if the model rounds to fewer digits than it computes with, see ``tolerance``."""

    @property
    def trusted(self) -> bool:
        """True if there is a float64 reference at all."""
        return self.session is not None

    @property
    def islands(self) -> bool:
        """True if some operators of the reference compute in float32."""
        return "islands" in self.kind

    def run(self, feeds: Feeds) -> Outputs | None:
        """Reference outputs by name, None where there is no reference (for these feeds)."""
        if self.session is None:
            return None
        outputs = self.session.run(widened(feeds))
        return None if isinstance(outputs, str) else outputs


def widened(feeds: Feeds) -> Outputs:
    """The same feeds with floats as double."""
    return {name: _wide(value) for name, value in feeds.items()}


def _wide(value: Held) -> Held:
    if isinstance(value, list):
        return [_wide(v) for v in value]
    return value.astype(np.float64) if is_tensor(value) and value.dtype in _NARROW_DTYPES else value


def quantized_ops(model: onnx.ModelProto) -> list[str]:
    """Operators that round to a grid, where float and double legitimately differ by a whole step."""
    return sorted({n.op_type for n in all_nodes(model) if QUANTIZED.search(n.op_type)})


def build_reference(model: ModelLike, *, threads: int = 0) -> Reference:
    """The best reference this model allows."""
    if message_bytes(model) > REFERENCE_LIMIT:
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
        session = open_session(doubled.model, threads=threads, pooled=referred_bytes(proto) <= POOLED)
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
