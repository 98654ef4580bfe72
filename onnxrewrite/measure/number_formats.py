"""Speed of matrix products in each number format, by turns with float32: shown by ``doctor --measure``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from onnxrewrite.errors import ModelError
from onnxrewrite.measure.timing import Span, interleave, ratio
from onnxrewrite.runtime.settings import Runner, Setting, open_runner
from onnxrewrite.system.arrays import Array

_SIDE: Final = 384
"""Of the square matrices: blocking pays, and a product takes milliseconds."""

_SECONDS: Final = 2.0

FORMS: Final[Mapping[str, tuple[str, int, int]]] = {
    "float32": ("MatMul", TensorProto.FLOAT, TensorProto.FLOAT),
    "float16": ("MatMul", TensorProto.FLOAT16, TensorProto.FLOAT16),
    "uint8 x int8": ("MatMulInteger", TensorProto.UINT8, TensorProto.INT8),
    "uint8 x uint8": ("MatMulInteger", TensorProto.UINT8, TensorProto.UINT8),
    "int8 x int8": ("MatMulInteger", TensorProto.INT8, TensorProto.INT8),
}
"""Operator, dtype of the activations, dtype of the constant weights."""


def speeds(threads: int, *, seconds: float = _SECONDS) -> dict[str, Span]:
    """Speed of each form relative to float32 on the CPU: median, and the interval of 95 % from ``low`` to ``high``.

    A form that ONNX Runtime has no kernel for is left out.
    """
    runners: dict[str, Runner] = {}
    for name, form in FORMS.items():
        try:
            runners[name] = _runner(*form, threads)
            runners[name]()
        except ModelError:
            runners.pop(name, None)
    timings = interleave(runners, seconds=seconds)
    found = {name: ratio(timings["float32"], timings[name]) for name in runners if name != "float32"}
    return {name: each.to_json() for name, each in found.items()}


def _runner(op_type: str, activations: int, weights: int, threads: int) -> Runner:
    """A product with constant weights; only its first row leaves the session, or copying it would count."""
    rng = np.random.default_rng(0)
    shape = (_SIDE, _SIDE)
    x, w = (_values(rng, shape, code) for code in (activations, weights))
    result = TensorProto.INT32 if op_type == "MatMulInteger" else activations
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", "w"], ["v"]), helper.make_node("Gather", ["v", "zero"], ["y"])],
        "form",
        [helper.make_tensor_value_info("x", activations, shape)],
        [helper.make_tensor_value_info("y", result, [_SIDE])],
        [numpy_helper.from_array(w, "w"), helper.make_tensor("zero", TensorProto.INT64, [], [0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return open_runner(model, {"x": x}, Setting(threads=threads))


def _values(rng: np.random.Generator, shape: tuple[int, ...], code: int) -> Array:
    return rng.integers(0, 100, shape).astype(helper.tensor_dtype_to_np_dtype(code))
