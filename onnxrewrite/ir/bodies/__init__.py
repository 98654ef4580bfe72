"""Operators defined by simpler ones: those of ONNX Runtime (``BODIES``), and functions in another opset
(``conversion``)."""

from onnxrewrite.ir.bodies import attentions, integers  # noqa: F401  (register)
from onnxrewrite.ir.bodies.contributed import BODIES

__all__ = ["BODIES"]
