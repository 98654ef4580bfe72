"""Types of numbers in bulk, as numpy holds them, and of what models take and give."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
"""An array of any dtype and shape."""

DType: TypeAlias = np.dtype[Any]
"""Any dtype, those of ``ml_dtypes`` too."""

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

Held: TypeAlias = "Array | Sequence[Held] | Mapping[int, float] | Mapping[str, float] | None"
"""The contents of a value of a model: a tensor, a sequence, a map, or an optional that is empty."""

Feeds: TypeAlias = Mapping[str, Held]
"""Contents of inputs, by name."""

Outputs: TypeAlias = dict[str, Held]
"""Contents of outputs, by name."""


def is_tensor(value: object) -> TypeGuard[Array]:
    """True for an array, and for a number of numpy's, which is like one of no dimensions."""
    return isinstance(value, np.ndarray | np.generic)


def element_count(values: Feeds) -> int:
    """The elements of all values together; of a sequence, those of its parts."""
    return sum(map(_elements, values.values()))


def _elements(value: Held) -> int:
    if value is None:
        return 0
    if is_tensor(value):
        return int(value.size)
    return len(value) if isinstance(value, Mapping) else sum(map(_elements, value))


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """The bytes of an npz file, the same each time; ``numpy.savez`` takes an array called ``file`` for a parameter."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, value in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=False)
    return buffer.getvalue()
