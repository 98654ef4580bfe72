"""Types of numbers in bulk, as numpy holds them, and of what models take and give."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
"""An array of any dtype and shape."""

DType: TypeAlias = np.dtype[Any]
"""Any dtype, those of ``ml_dtypes`` too."""

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
