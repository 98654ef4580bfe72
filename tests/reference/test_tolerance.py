from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxrewrite.reference.tolerance import TOLERANCES, Norms, Rounding, compare, identical, measure, near_enough

X = np.random.default_rng(0).standard_normal((8, 64))


def erf(x: Any) -> Any:
    from math import erf as one

    return np.vectorize(one)(x)


def gelu(x: Any, c: float = np.sqrt(2), dtype: Any = np.float64) -> Any:
    x = x.astype(dtype)
    inner = erf(x.astype(np.float64) / c).astype(dtype)
    return (x * dtype(0.5) * (dtype(1) + inner)).astype(dtype)


def layer_norm(x: Any, eps: float, dtype: Any = np.float64) -> Any:
    x = x.astype(dtype)
    centred = x - x.mean(-1, keepdims=True, dtype=dtype)
    variance = (centred * centred).mean(-1, keepdims=True, dtype=dtype)
    return (centred / np.sqrt(variance + dtype(eps))).astype(dtype)


def test_gelu_with_a_wrong_constant_is_refused() -> None:
    found = compare(gelu(X), gelu(X, dtype=np.float32), gelu(X, 1.41, np.float32))
    assert not found.accept
    assert found.error_rewritten > 10 * found.bound
    assert "allowed" in found.reason
    assert found.where is not None


def test_gelu_in_another_order_is_accepted() -> None:
    x = X.astype(np.float32)
    other = (x * (np.float32(0.5) + np.float32(0.5) * erf(x * np.float32(np.sqrt(0.5))).astype(np.float32))).astype(
        np.float32
    )
    assert compare(gelu(x), gelu(x, dtype=np.float32), other).accept


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_eps_of_1e5_for_1e12_is_refused(scale: float) -> None:
    x = (X * scale).astype(np.float32)
    original, rewritten = (layer_norm(x, eps, np.float32) for eps in (1e-12, 1e-5))
    reference = layer_norm(x.astype(np.float64), 1e-12)
    assert compare(reference, original, original[::-1][::-1].copy()).accept
    assert not compare(reference, original, rewritten).accept


def test_reassociated_sums_are_accepted(rng: np.random.Generator) -> None:
    x = rng.standard_normal((32, 1024)).astype(np.float32)
    reference = x.astype(np.float64).sum(-1)
    pairwise = x.sum(-1)
    sequential = np.cumsum(x, axis=-1, dtype=np.float32)[:, -1]
    assert compare(reference, sequential, pairwise).accept
    blocked = x.reshape(32, 32, 32).sum(1, dtype=np.float32).sum(-1, dtype=np.float32)
    assert compare(reference, pairwise, blocked).accept


def test_folded_scale_is_accepted(rng: np.random.Generator) -> None:
    x, w, g = (rng.standard_normal(s).astype(np.float32) for s in ((16, 64), (64, 32), (32,)))
    reference = (x.astype(np.float64) @ w.astype(np.float64)) * g.astype(np.float64)
    assert compare(reference, (x @ w) * g, x @ (w * g)).accept


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_patterns_must_agree(bad: float) -> None:
    original = X.astype(np.float32)
    broken = original.copy()
    broken[3, 5] = bad
    found = compare(X, original, broken)
    assert not found.accept
    assert found.where == (3, 5)
    assert compare(np.where(np.isfinite(broken), X, bad), broken, broken * np.float32(1 + 1.2e-7)).accept


def test_shape_and_dtype_must_agree() -> None:
    x = X.astype(np.float32)
    assert "shape" in compare(X, x, x[:4]).reason
    assert "dtype" in compare(X, x, X).reason
    assert not compare(X, x, x[:4]).accept
    assert not compare(X, x, X).accept


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,)])
def test_empty_and_scalar(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    assert compare(x.astype(np.float64), x, x.copy()).accept
    if x.size:
        assert compare(x.astype(np.float64), x, x * np.float32(1 + 1.2e-7)).accept
        assert not compare(x.astype(np.float64), x, x * np.float32(1.001)).accept


def test_integers_booleans_and_strings_are_equal_or_wrong() -> None:
    for value, other in ((1, 2), (True, False), ("a", "b")):
        a, b = np.array([value, value]), np.array([value, other])
        assert compare(None, a, a.copy()).accept
        found = compare(None, a, b)
        assert not found.accept
        assert found.where == (1,)


@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=str)
def test_every_dtype_has_a_row(dtype: np.dtype[Any]) -> None:
    original = X.astype(dtype)
    assert compare(X, original, original.copy()).accept
    wrong = (X * 1.2).astype(dtype)
    assert not compare(X, original, wrong).accept


def test_one_roundoff_is_accepted_where_the_original_is_exact() -> None:
    original = X.astype(np.float32)
    moved = np.nextafter(original, np.float32(10))
    assert compare(original.astype(np.float64), original, moved).accept
    assert not compare(original.astype(np.float64), original, original * np.float32(1 + 1e-5)).accept


def test_something_for_exact_zero_is_refused() -> None:
    zero = np.zeros((2, 3), np.float32)
    assert not compare(zero.astype(np.float64), zero, zero + np.float32(1e-30)).accept
    assert compare(zero.astype(np.float64), zero, -zero).accept


def test_what_no_rounding_could_tell_from_zero_is_accepted() -> None:
    """``log(exp(x))`` of 1e-136 is zero in double precision, give or take a rounding of one: any less is right."""
    zero, tiny = np.zeros(2), np.array([0.0, 1.2e-136])
    noise = measure(zero, np.array([2.2e-16, -2.2e-16]), np.dtype(np.float64))
    assert compare(zero, zero, tiny, Rounding(noise)).accept
    assert not compare(zero, zero, tiny).accept
    assert not compare(zero, zero, np.array([0.0, 1e-13]), Rounding(noise)).accept


@pytest.mark.parametrize("sentinel", [-1e4, -1e9, -3.4028235e38])
def test_masks_do_not_hide_errors(sentinel: float) -> None:
    reference = X.copy()
    reference[:, 40:] = sentinel
    original = reference.astype(np.float32)
    wrong = original.copy()
    wrong[2, 3] += np.float32(0.01)
    assert not compare(reference, original, wrong).accept
    assert compare(reference, original, np.nextafter(original, np.float32(0))).accept


def test_without_a_reference_the_tolerance_is_stated() -> None:
    x = X.astype(np.float32)
    assert compare(None, x, x * np.float32(1 + 1e-6)).accept
    assert not compare(None, x, x * np.float32(1 + 1e-4)).accept
    assert compare(None, x, x * np.float32(1 + 1e-4), Rounding(Norms(1e-4, 1e-4))).accept


def test_conditioning_widens_the_bound() -> None:
    x = X.astype(np.float32)
    moved = (x * np.float32(1 + 5e-6)).astype(np.float32)
    assert not compare(X, x, moved).accept
    assert compare(X, x, moved, Rounding(Norms(1e-6, 1e-6))).accept


def test_sequences_are_compared_element_by_element() -> None:
    x = X.astype(np.float32)
    assert compare([X, X], [x, x], [x.copy(), x.copy()]).accept
    assert not compare([X, X], [x, x], [x, x * 2]).accept
    assert not compare([X], [x], [x, x]).accept
    assert identical([x], [x.copy()])


def test_measure_is_relative() -> None:
    error = measure(X, (X * (1 + 1e-3)).astype(np.float32))
    assert error.worst == pytest.approx(1e-3, rel=0.01)
    assert error.rms == pytest.approx(1e-3, rel=0.01)


def test_bfloat16_rounding_is_accepted() -> None:
    original = X.astype(ml_dtypes.bfloat16)
    other = (X * (1 + 2.0**-9)).astype(ml_dtypes.bfloat16)
    assert compare(X, original, other).accept


def test_result_is_plain_data() -> None:
    import json

    x = X.astype(np.float32)
    json.dumps(compare(X, x, x * 2).to_json())


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 5, 64, 300]),
    st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16]),
    st.floats(0, 16),
    st.floats(0, 16),
)
def test_what_needs_no_reference_is_accepted_with_any(
    seed: int, size: int, dtype: Any, own: float, apart: float
) -> None:
    """``own`` and ``apart`` are errors of the original and of what is between the two, in units of roundoff."""
    rng = np.random.default_rng(seed)
    exact = rng.standard_normal(size) * np.exp(rng.normal(0, rng.uniform(0, 2), size))
    unit = TOLERANCES[np.dtype(dtype)].unit
    scale = np.abs(exact).max()
    original = (exact + own * unit * scale * rng.choice([-1, 1], size)).astype(dtype)
    rewritten = (original.astype(float) + apart * unit * scale * rng.choice([-1, 1, 0], size)).astype(dtype)
    if near_enough(original, rewritten) is not None:
        assert compare(exact, original, rewritten).accept


@pytest.mark.parametrize(("apart", "needed"), [(1.0, False), (20.0, True)])
def test_a_reference_is_needed_where_the_two_are_far_apart(apart: float, needed: bool) -> None:
    original = np.linspace(1, 2, 100, dtype=np.float32)
    rewritten = (original.astype(float) * (1 + apart * 2.0**-24)).astype(np.float32)
    assert (near_enough(original, rewritten) is None) == needed


def test_nothing_is_near_enough_to_nothing() -> None:
    assert near_enough(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)) is not None


def test_only_a_reference_can_excuse_a_nan() -> None:
    assert near_enough(np.float32([1, np.nan]), np.float32([1, 2])) is None


@pytest.mark.parametrize(
    "dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "bfloat16", "float16"]
)
def test_nan_is_nan_in_every_format(dtype: str) -> None:
    """However many bits it has, and whether or not the format has a tolerance."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    nan, number = np.array([1.0, float("nan")]).astype(kind), np.array([1.0, 2.0]).astype(kind)
    assert identical(nan, nan.copy())
    assert compare(None, nan, nan.copy()).accept
    assert not identical(nan, number)
    assert not compare(None, nan, number).accept
