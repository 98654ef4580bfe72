"""Floats that numpy has no dtype for, as ONNX Runtime takes and gives them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnxrewrite.runtime.session import from_ortvalue, to_ortvalue


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (0, 3)])
def test_an_array_comes_back_as_it_is(dtype: type, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    found = from_ortvalue(to_ortvalue(array))
    assert found.dtype == array.dtype
    assert found.shape == shape
    assert np.array_equal(found.astype(np.float32), array.astype(np.float32))
