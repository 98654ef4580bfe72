"""What a Reshape makes of sizes that may be zero."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import pytest

from onnxrewrite.ir.dims import Dim
from onnxrewrite.rewrite.reshape import takes_sizes_as_told


def dims(shape: Sequence[int | str]) -> list[Dim]:
    """Sizes, those in letters symbolic."""
    return [size if isinstance(size, int) else ir.SymbolicDim(size) for size in shape]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (["n", "s", 12], ["n", "s", 3, 4]),
        (["n", "s", 12], ["n*s", 12]),  # alone: what 12 leaves over, whatever it copies
        (["n", 12], ["12*n", -1]),  # zero where n is
        (["n*s", 12], ["n", -1]),
        (["n*s"], ["n", "s", 1]),  # there is nothing to copy for s, and it does not run
        ([1, "s"], [4, -1]),
    ],
)
def test_sizes_that_hold(source: list[int | str], target: list[int | str]) -> None:
    assert takes_sizes_as_told(dims(source), dims(target))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ([1, "s", 1, 1], ["s", -1]),
        (["n", "s", 12], ["n*s", -1]),  # of s = 0 it is [n, 0]
        (["n", "s", "d"], ["n*s", "d"]),
        (["n*s", 12], ["n", "s", 12]),
        (["n", 12], ["n + s", -1]),
    ],
)
def test_sizes_that_may_not_hold(source: list[int | str], target: list[int | str]) -> None:
    assert not takes_sizes_as_told(dims(source), dims(target))


def test_of_an_unknown_shape_any_size_that_may_be_zero_may_copy() -> None:
    assert takes_sizes_as_told(None, dims(["s", 12]))
    assert not takes_sizes_as_told(None, dims(["s", -1]))
    assert takes_sizes_as_told(None, None)
