"""A region in canonical text: both sides of a rewrite, without what does not bear on their time.

Names, values of large constants and exact sizes are left out, so that equal regions of other models read the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.io import preserved
from onnxrewrite.ir.text.printer import Printer, model_header
from onnxrewrite.measure.site_benchmark import Subject

SHOWN = 16
"""Sizes up to this are told as they are; larger constants by their size, for their values do not bear on the time."""

_BEFORE, _AFTER = "before\n", "after\n"


def region(found: Subject) -> str:
    """The text of both sides; sizes that the model fixes are told to a power of two."""
    return f"{_BEFORE}{printed(found.before)}{_AFTER}{printed(found.after)}"


def sides(text: str) -> tuple[str, str]:
    """The texts of both sides of a ``region``."""
    before, _, after = text.partition(f"\n{_AFTER}")
    return f"{before.removeprefix(_BEFORE)}\n", after


def sizes(found: Subject) -> tuple[str, ...]:
    """The dtypes and shapes of the inputs, in their order, to a power of two: ``float32[8,128]``."""
    given = (np.asarray(found.feeds[i.name]) for i in found.before.graph.input if i.name in found.feeds)
    return tuple(f"{array.dtype}[{','.join(str(near(size)) for size in array.shape)}]" for array in given)


def near(size: int) -> int:
    """The size if it is small, else a power of two near to it."""
    return size if size <= SHOWN else int(2 ** round(math.log2(size)))


def printed(side: onnx.ModelProto) -> str:
    """The text of one side."""
    model = preserved.deserialized(side)
    for value in model.graph.outputs:
        if not value.is_graph_input():
            value.type, value.shape = None, None  # it follows from the rest
    numbers: dict[str, str] = {}
    for value in model.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape(_dims(value.shape, numbers))
    printer = _Printer(True, model.opset_imports)
    lines = [model_header(model, True), *printer.graph(model.graph)]
    for function in sorted(model.functions.values(), key=lambda each: each.identifier()):
        lines += Printer(True, function.opset_imports).function(function)
    return "\n".join(lines) + "\n"


def _dims(shape: ir.Shape, numbers: dict[str, str]) -> Sequence[int | str | None]:
    """Named sizes by the order in which they occur: ONNX Runtime fuses by which are equal."""
    found: list[int | str | None] = []
    for dim in shape:
        if isinstance(dim, int):
            found.append(near(dim))
        else:
            found.append(numbers.setdefault(str(dim.value), f"d{len(numbers)}") if dim.value else None)
    return found


class _Printer(Printer):
    def constant(self, value: ir.Value, tensor: ir.TensorProtocol) -> str:
        """A large constant by its dtype and its size, with values that nobody chose."""
        if tensor.size <= SHOWN:
            return super().constant(value, tensor)
        dims = ",".join(str(near(int(size))) for size in tensor.shape.numpy())
        return f"{tensor.dtype.name.lower()}[{dims}] {self.name(value)} = ~"
