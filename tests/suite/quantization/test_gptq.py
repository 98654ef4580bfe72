"""GPTQ: errors are made up for on what a product reads."""

from __future__ import annotations

import numpy as np
import pytest

from onnxrewrite.errors import ModelError
from onnxrewrite.suite.quantization import engine, gptq
from onnxrewrite.suite.quantization.weight_format import WeightFormat

INNER, OUTER = 96, 24


def reads(rows: int) -> np.ndarray:
    """What a product reads: of few directions, as activations are, and the same ones each time."""
    rng = np.random.default_rng(rows)
    directions = np.random.default_rng(1).normal(size=(12, INNER))
    return (rng.normal(size=(rows, 12)) @ directions + 0.1 * rng.normal(size=(rows, INNER))).astype(np.float32)


def unpacked(blocks: engine.Blocks, block: int) -> np.ndarray:
    """The weights [inner, outer] that a product computes with."""
    assert blocks.zeros is not None
    count = blocks.scales.shape[1]
    numbers = np.stack([blocks.packed & 15, blocks.packed >> 4], -1).reshape(OUTER, count, block).astype(np.float64)
    zeros = np.stack([blocks.zeros & 15, blocks.zeros >> 4], -1).reshape(OUTER, -1)[:, :count, None]
    return ((numbers - zeros) * blocks.scales[..., None]).reshape(OUTER, -1).T


@pytest.mark.parametrize("block", [16, 32, 64])  # six blocks, three, and one and a half
def test_it_is_closer_than_rounding_to_nearest_on_other_rows(block: int, rng: np.random.Generator) -> None:
    weight, fitted, other = rng.normal(size=(INNER, OUTER)).astype(np.float32), reads(400), reads(100)
    errors = {}
    for algorithm, given in (("gptq", [fitted[:200], fitted[200:]]), ("nearest", [])):
        form = WeightFormat(4, block, algorithm=algorithm, symmetric=False)  # type: ignore[arg-type]
        made = unpacked(engine.in_blocks("MatMul", weight, form, given), block)[:INNER]
        errors[algorithm] = float(np.linalg.norm(other @ (made - weight)))
    assert errors["gptq"] < 0.5 * errors["nearest"]


def test_where_nothing_is_known_of_what_is_read_it_is_rounding_to_nearest(rng: np.random.Generator) -> None:
    """White noise: no row makes up for another."""
    weight, block = rng.normal(size=(INNER, OUTER)), 32
    numbers, scales, zeros = gptq.rounded(weight, [np.eye(INNER)], block)
    found = (numbers.reshape(-1, block, OUTER) - zeros.astype(float)[:, None]) * scales[:, None]
    exact = weight.reshape(-1, block, OUTER)
    inside = np.abs(found - exact) / scales[:, None]
    assert inside.max() <= 1.0  # half a step, and another half where the zero point is rounded at an end
    assert np.median(inside) < 0.3


def test_channels_that_are_never_read_and_weights_that_are_all_one() -> None:
    read = reads(50)
    read[:, :7] = 0
    weight = np.zeros((INNER, OUTER))
    weight[:, 1] = 3.0
    numbers, scales, zeros = gptq.rounded(weight, [read], 32)
    found = (numbers - np.repeat(zeros.astype(float), 32, 0)) * np.repeat(scales, 32, 0)
    np.testing.assert_allclose(found, weight, atol=1e-9)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ModelError, match="gptq: what it reads has no inverse"):
        gptq.rounded(np.ones((INNER, OUTER)), [np.full((3, INNER), np.nan)], 32)


def test_it_takes_matrices_only() -> None:
    form = WeightFormat(4, 32, algorithm="gptq", symmetric=False)
    assert form.fits("MatMul", (96, 8))
    assert not form.fits("MatMul", (1, 96, 8))
    assert not form.fits("MatMul", (16, 8))
    assert not form.fits("Gather", (96, 64))
