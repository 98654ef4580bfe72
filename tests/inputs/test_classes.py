"""Classes of values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnxrewrite.inputs.classes import of_class


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_far_from_zero_is_equal_or_apart(dtype: type) -> None:
    made = np.sort(of_class(np.random.default_rng(0).normal(size=2**14).astype(dtype), "far"))
    gaps = np.diff(made)
    assert np.abs(made - 1e4).max() < 6
    assert gaps[gaps > 0].min() >= 7.5 * np.spacing(dtype(1e4))  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_what_is_narrow_is_less_far(dtype: type) -> None:
    made = of_class(np.random.default_rng(0).normal(size=256).astype(dtype), "far")
    assert made.dtype == dtype
    assert np.abs(made.astype(np.float64) - 10).max() < 6
