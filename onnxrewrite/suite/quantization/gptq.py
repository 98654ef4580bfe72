"""GPTQ: weights rounded one row after the other, each error made up for by the rows that follow.

Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers, 2023, algorithm 1.
With H = XᵀX of what a product reads and U the upper Cholesky factor of H⁻¹, row i of the weights is rounded, its error
divided by U[i, i], and U[i, j] times that taken from each row j > i.  The steps of a block are found when it begins.

onnxruntime.quantization has the same by name.  It takes a column of U in place of a row (1.32), which is zero below the
diagonal, so that nothing is made up for: its results are those of rounding to nearest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxrewrite.errors import ModelError
from onnxrewrite.system.arrays import Array, Floats

_DAMP = 0.01
"""What is added to the diagonal of H, as a part of its mean."""

_MOST = 15
"""The largest number of 4 bits."""


def rounded(weight: Array, read: Sequence[Array], block: int) -> tuple[Array, Floats, Array]:
    """Weights in 4 bits.

    Args:
        weight: [inner, outer].
        read: Arrays [rows, inner] that the product reads.
        block: Rows of weights that share a scale.

    Returns:
        The numbers, uint8 [inner, outer]; scales and zero points, float64 and uint8 [blocks, outer]: a weight is
        (number - zero point) · scale.

    Raises:
        ModelError: What is read has no finite inverse.
    """
    inner, outer = weight.shape
    upper, left = _upper(read, inner), weight.astype(np.float64)
    numbers = np.empty((inner, outer), np.uint8)
    scales, zeros = [], []
    for start in range(0, inner, block):
        end = min(start + block, inner)
        low, high = left[start:end].min(0, initial=0.0), left[start:end].max(0, initial=0.0)
        scale = np.where(high > low, (high - low) / _MOST, 1.0)
        zero = np.rint(-low / scale)
        errors = np.empty((end - start, outer))
        for row in range(start, end):
            number = np.clip(np.rint(left[row] / scale) + zero, 0, _MOST)
            errors[row - start] = error = (left[row] - (number - zero) * scale) / upper[row, row]
            left[row + 1 : end] -= np.outer(upper[row, row + 1 : end], error)
            numbers[row] = number
        left[end:] -= upper[start:end, end:].T @ errors
        scales.append(scale)
        zeros.append(zero.astype(np.uint8))
    return numbers, np.stack(scales), np.stack(zeros)


def _upper(read: Sequence[Array], inner: int) -> Floats:
    """The upper Cholesky factor of the inverse of XᵀX, damped; a channel that is never read stands for itself."""
    squares = np.zeros((inner, inner))
    for rows in read:
        wide = rows.astype(np.float64)
        squares += wide.T @ wide
    diagonal = np.diagonal(squares).copy()
    damp = _DAMP * float(diagonal.mean()) or 1.0
    squares[np.diag_indices(inner)] += damp + np.where(diagonal == 0, 1.0, 0.0)
    refusal = ModelError("the weights of a product cannot be rounded by gptq: what it reads has no inverse")
    if not np.isfinite(squares).all():
        raise refusal
    try:
        found: Floats = np.linalg.cholesky(np.linalg.inv(squares)).T
    except np.linalg.LinAlgError:
        raise refusal from None
    return found
