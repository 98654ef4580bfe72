"""Costs: operations and bytes by hand, and against kernels that were counted another way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxrewrite.runtime.kernel_work import Tensor, Work, work


def floats(*shape: int) -> Tensor:
    return Tensor("float", shape)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "flops", "nbytes"),
    [
        ("Add", [floats(2, 3), floats(3)], [floats(2, 3)], 6, 4 * (6 + 3 + 6)),
        ("Relu", [Tensor("float16", (5,))], [Tensor("float16", (5,))], 5, 20),
        ("Transpose", [floats(2, 3)], [floats(3, 2)], 0, 48),
        ("Reshape", [floats(2, 3), Tensor("int64", (1,))], [floats(6)], 0, 0),
        ("Gather", [floats(1000, 8), Tensor("int64", (3,))], [floats(3, 8)], 0, 4 * 24 * 2 + 24),
        ("ReduceMean", [floats(2, 8)], [floats(2)], 16, 4 * 18),
        ("Softmax", [floats(2, 8)], [floats(2, 8)], 80, 4 * 32),
        ("MatMul", [floats(7, 2, 3), floats(3, 5)], [floats(7, 2, 5)], 2 * 7 * 2 * 3 * 5, 4 * (42 + 15 + 70)),
        ("MatMul", [floats(3), floats(3, 5)], [floats(5)], 30, 4 * 23),
        ("MatMul", [floats(4, 2, 3), floats(3)], [floats(4, 2)], 48, 4 * 35),
        ("Gemm", [floats(2, 3), floats(3, 5), floats(5)], [floats(2, 5)], 70, 4 * (6 + 15 + 5 + 10)),
        ("Conv", [floats(1, 4, 8, 8), floats(6, 2, 3, 3)], [floats(1, 6, 8, 8)], 2 * 18 * 384, 4 * (256 + 108 + 384)),
        ("Conv", [floats(1, 4, 8), floats(6, 4, 1), floats(6)], [floats(1, 6, 8)], 9 * 48, 4 * (32 + 24 + 6 + 48)),
        ("ConvTranspose", [floats(1, 4, 8), floats(4, 6, 2)], [floats(1, 6, 16)], 2 * 12 * 32, 4 * (32 + 48 + 96)),
        # [batch 1, 5 steps, 2 heads of 4] against 7 keys: both products have 2·5·7·8 operations
        ("MultiHeadAttention", [floats(1, 5, 8)] + 2 * [floats(1, 7, 8)], [floats(1, 5, 8)], 1120, 4 * (40 + 112 + 40)),
        ("Attention", [floats(1, 2, 5, 4)] + 2 * [floats(1, 2, 7, 4)], [floats(1, 2, 5, 4)], 1120, 4 * (40 + 112 + 40)),
        # com.microsoft: first 2·5·8·24 for the projection
        ("Attention", [floats(1, 5, 8), floats(8, 24)], [floats(1, 5, 8)], 1920 + 4 * 5 * 40, 4 * (40 + 192 + 40)),
        (
            "GRU",
            [floats(5, 1, 4), floats(1, 9, 4), floats(1, 9, 3)],
            [floats(5, 1, 1, 3)],
            2 * 5 * 63,
            4 * (20 + 63 + 15),
        ),
        ("Unheard", [floats(2)], [floats(3)], None, 20),
        ("MatMul", [], [floats(3)], None, 12),
        ("Shape", [floats(2, 3)], [Tensor("int64", (2,))], 0, 0),
    ],
)
def test_cost(op_type: str, inputs: list[Tensor], outputs: list[Tensor], flops: int | None, nbytes: int) -> None:
    assert work(op_type, inputs, outputs) == Work(flops, nbytes)


def test_quantized_operators_have_their_weights_behind_scales() -> None:
    x, w, y = (Tensor("uint8", s) for s in ((1, 4, 8, 8), (6, 4, 3, 3), (1, 6, 8, 8)))
    scale, zero = floats(), Tensor("uint8", ())
    assert work("QLinearConv", [x, scale, zero, w, scale, zero, scale, zero], [y]).flops == 2 * 36 * 384


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.booleans(), st.sampled_from(["FusedMatMul", "Gemm"]))
def test_a_product_costs_the_same_transposed(m: int, n: int, k: int, transposed: bool, op_type: str) -> None:
    a = floats(k, m) if transposed else floats(m, k)
    assert work(op_type, [a, floats(k, n)], [floats(m, n)]).flops == 2 * m * n * k


@given(
    st.lists(st.integers(0, 5), max_size=3), st.sampled_from(["float", "double", "float16", "int64", "bool", "uint8"])
)
def test_bytes_are_those_of_numpy(shape: list[int], dtype: str) -> None:
    array = np.empty(shape, {"float": "float32"}.get(dtype, dtype))
    assert Tensor(dtype, tuple(shape)).nbytes == array.nbytes


def test_four_bits_are_half_a_byte() -> None:
    assert Tensor("int4", (3,)).nbytes == 2


def test_unknown_operations_stay_unknown_in_a_sum() -> None:
    assert Work(None, 3) + Work(5, 4) == Work(None, 7)
    assert Work(1, 3) + Work(5, 4) == Work(6, 7)
