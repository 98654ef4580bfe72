"""The two half precisions, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxrewrite.errors import UsageError
from onnxrewrite.system.arrays import Array, DType


@dataclass(frozen=True)
class Format:
    """A floating-point format of 16 bits.

    Attributes:
        name: ``float16`` or ``bfloat16``.
        dtype: onnx_ir's name of it.
        numpy: NumPy's.
        largest: The largest finite number.
        least: The least normal number; smaller ones lose digits, and become 0 in the end.
        epsilon: Distance from 1 to the next number.
    """

    name: str
    dtype: ir.DataType
    numpy: DType = field(repr=False)
    largest: float
    least: float
    epsilon: float

    def rounded(self, array: Array) -> Array:
        """The nearest numbers of this format; infinite where they lie beyond it."""
        with np.errstate(over="ignore"):
            return array.astype(self.numpy)


def _format(name: str, dtype: ir.DataType, numpy: Any) -> Format:
    info: Any = ml_dtypes.finfo(numpy)  # type: ignore[no-untyped-call]
    return Format(name, dtype, np.dtype(numpy), float(info.max), float(info.smallest_normal), float(info.eps))


FORMATS = {
    "float16": _format("float16", ir.DataType.FLOAT16, np.float16),
    "bfloat16": _format("bfloat16", ir.DataType.BFLOAT16, ml_dtypes.bfloat16),
}


def half_format(name: str) -> Format:
    """The format of this name.

    Raises:
        UsageError: There is none.
    """
    if name not in FORMATS:
        raise UsageError(f"dtype must be {' or '.join(FORMATS)}, not {name!r}")
    return FORMATS[name]
