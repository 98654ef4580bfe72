"""Peak rates of the machine, measured in ONNX Runtime itself: arithmetic, memory, and starting a kernel.

They are the roofs of the roofline model (Williams, Waterman and Patterson, *Roofline: an insightful visual performance
model for multicore architectures*, CACM 52(4), 2009): no kernel is faster than the slower of its operations at the
arithmetic peak and its bytes at the bandwidth.  Small kernels meet a third roof, the time that it takes to start one.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxrewrite.errors import ModelError
from onnxrewrite.measure.timing import interleave
from onnxrewrite.runtime.kernel_work import Work
from onnxrewrite.runtime.session import one_line
from onnxrewrite.runtime.settings import Setting, open_runner

SECONDS = 0.25
"""For each peak."""

_SIDE = 512
"""Of the matrices: large enough for blocking to pay, small enough to run between what others do to the machine."""

_ELEMENTS = 2**23
"""Of the vector, 32 MiB in float32, read and written: more than caches hold."""

_CHAIN = 64
"""Kernels in a row, of which the time to start one is taken."""

_CODES = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "uint8": TensorProto.UINT8,
}


@dataclass(frozen=True)
class Peaks:
    """The machine's roofs.

    Attributes:
        flops: Operations a second of a large matrix product.
        bandwidth: Bytes a second, read and written, of a large elementwise pass.
        dispatch: Seconds that a kernel takes that has nothing to do.
    """

    flops: float
    bandwidth: float
    dispatch: float

    def seconds(self, work: Work, calls: int = 1) -> float:
        """The least time that ``calls`` kernels with this work together can take."""
        return max(self.times(work, calls).values())

    def bound(self, work: Work, calls: int = 1) -> str:
        """The lowest roof: ``compute``, ``memory`` or ``dispatch``."""
        times = self.times(work, calls)
        return max(times, key=lambda name: times[name])

    def times(self, work: Work, calls: int = 1) -> dict[str, float]:
        """Seconds by roof; unknown operations are taken for few."""
        return {
            "memory": work.bytes / self.bandwidth,
            "compute": (work.flops or 0) / self.flops,
            "dispatch": calls * self.dispatch,
        }

    def to_json(self) -> dict[str, float]:
        """Plain data: operations and bytes a second, and seconds."""
        return asdict(self)


def peaks(setting: Setting, dtype: str = "float") -> Peaks:
    """The roofs for one dtype, by ONNX Runtime's name; measured once a process.

    A dtype for which the provider has no matrix product is measured as float32, and all integers as eight bits wide.
    """
    measured = replace(setting, level="disabled", without=())
    return Peaks(_flops(measured, measured_as(dtype)), _bandwidth(measured), _dispatch(measured))


def median_peaks(setting: Setting, times: int) -> Peaks:
    """The roofs for float32, measured anew so many times: of each the median, for one that was disturbed may come out
    too high as well as too low."""
    measured = replace(setting, level="disabled", without=())
    parts = _flops.__wrapped__, _bandwidth.__wrapped__, _dispatch.__wrapped__
    found = [(parts[0](measured, "float"), parts[1](measured), parts[2](measured)) for _ in range(times)]
    return Peaks(*map(statistics.median, zip(*found, strict=True)))


def measured_as(dtype: str) -> str:
    """The dtype that stands for another one."""
    return dtype if dtype in _CODES else "uint8" if "int" in dtype else "float"


@functools.cache
def _flops(setting: Setting, dtype: str) -> float:
    """Operations a second of a square matrix product with constant weights, which ONNX Runtime packs beforehand."""
    op_type = "MatMulInteger" if dtype == "uint8" else "MatMul"

    def products(count: int) -> list[onnx.NodeProto]:
        made = [helper.make_node(op_type, ["x", "weights"], [f"v{n}"]) for n in range(count)]
        return [*made, *(_first(f"v{n}", f"y{n}") for n in range(count))]

    code = TensorProto.INT8 if dtype == "uint8" else _CODES[dtype]
    ones = np.ones([_SIDE, _SIDE], helper.tensor_dtype_to_np_dtype(code))
    try:
        weights = numpy_helper.from_array(ones, "weights")
        return 2 * _SIDE**3 / _seconds_of_one(products, 3, [_SIDE, _SIDE], dtype, setting, weights)
    except ModelError:  # no kernel, or none that takes numpy's arrays of it
        if dtype == "float":
            raise
        return _flops(setting, "float")


@functools.cache
def _bandwidth(setting: Setting) -> float:
    """Bytes a second of an elementwise pass over what no cache holds: each is read once and written once."""
    return 2 * 4 * _ELEMENTS / _seconds_of_one(_chain, 3, [_ELEMENTS], "float", setting)


@functools.cache
def _dispatch(setting: Setting) -> float:
    """Seconds of a kernel that has one number to negate."""
    return _seconds_of_one(_chain, _CHAIN, [1], "float", setting)


def _chain(count: int) -> list[onnx.NodeProto]:
    """So many negations in a row."""
    names = ["x", *(f"v{n}" for n in range(count))]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    return [*nodes, _first(names[-1], "y")]


def _first(value: str, name: str) -> onnx.NodeProto:
    """The first row alone: what is large does not leave the session, or copying it would count."""
    return helper.make_node("Gather", [value, "zero"], [name])


def _seconds_of_one(
    nodes: Callable[[int], list[onnx.NodeProto]],
    count: int,
    shape: Sequence[int],
    dtype: str,
    setting: Setting,
    *weights: onnx.TensorProto,
) -> float:
    """The extra time of ``count`` kernels over one, for each additional one: what surrounds them cancels out.

    The fastest of the rounds counts, as in STREAM (McCalpin, 1995): a peak is what can be had, not what others left.

    Raises:
        ModelError: There is no kernel for this dtype.
    """
    x = np.ones(shape, helper.tensor_dtype_to_np_dtype(_CODES[dtype]))
    runners = {str(n): open_runner(_model(nodes(n), dtype, shape, weights), {"x": x}, setting) for n in (1, count)}
    try:
        found = interleave(runners, seconds=SECONDS)
    except Exception as error:  # ORT raises a dozen classes, one a status code
        raise ModelError(f"{dtype} cannot be measured: {one_line(error)}") from error
    more = min(found[str(count)].wall) - min(found["1"].wall)
    return max(more / (count - 1), 1e-9)


def _model(
    nodes: Sequence[onnx.NodeProto], dtype: str, shape: Sequence[int], weights: Sequence[onnx.TensorProto]
) -> onnx.ModelProto:
    """A model of one input ``x``, whose outputs are those of its Gathers."""
    names = [n.output[0] for n in nodes if n.op_type == "Gather"]
    result = TensorProto.INT32 if dtype == "uint8" else _CODES[dtype]
    graph = helper.make_graph(
        nodes,
        "peaks",
        [helper.make_tensor_value_info("x", _CODES[dtype], shape)],
        [helper.make_tensor_value_info(name, result, None) for name in names],
        [helper.make_tensor("zero", TensorProto.INT64, [], [0]), *weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
