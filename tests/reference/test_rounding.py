"""Integers that a quantizer made, judged by the number that was rounded."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxrewrite.reference.rounding import Unrounded, compare_rounded, unrounded

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'


def parsed(text: str) -> onnx.ModelProto:
    """A model of one graph."""
    return onnx.parser.parse_model(f"{HEAD} g {text}")


PRODUCT = parsed(
    "(uint8[2,3] q, float[3,2] w) => (uint8[2,2] y) <float s = {0.5}, uint8 z = {3}>"
    "{ x = DequantizeLinear(q, s, z) p = MatMul(x, w) r = QuantizeLinear(p, s, z) y = Identity(r) }"
)


def test_says_what_is_rounded_in_steps() -> None:
    rng = np.random.default_rng(0)
    feeds = {"q": rng.integers(0, 255, (2, 3)).astype(np.uint8), "w": rng.normal(size=(3, 2)).astype(np.float32)}
    wanted = (feeds["q"].astype(np.float64) - 3) @ feeds["w"].astype(np.float64) + 3
    found = Unrounded(PRODUCT).numbers(feeds, "y")
    assert found is not None
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    "nodes",
    [
        "r = QuantizeLinear(x, s, z) d = DequantizeLinear(r, s, z) y = QuantizeLinear(d, s, z)",
        "y = QuantizeLinear(x, v, z)",
        "i = QuantizeLinear(x, s, z) y = Transpose(i)",
    ],
    ids=["rounded before", "a scale that is no number", "made by another operator"],
)
def test_says_nothing_of_others(nodes: str) -> None:
    model = parsed(f"(float[2,2] x, float[2] v) => (uint8[2,2] y) <float s = {{0.5}}, uint8 z = {{3}}> {{ {nodes} }}")
    feeds = {"x": np.ones((2, 2), np.float32), "v": np.ones(2, np.float32)}
    assert Unrounded(model).numbers(feeds, "y") is None


def test_leaves_a_quantizer_that_is_read() -> None:
    model = parsed(
        "(float[2] x) => (uint8[2] y, float[2] d) <float s = {0.5}, uint8 z = {3}>"
        "{ y = QuantizeLinear(x, s, z) d = DequantizeLinear(y, s, z) }"
    )
    assert not unrounded(model)[1]


def bytes_of(*numbers: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """An array of uint8."""
    return np.array(numbers, np.uint8)


def test_either_neighbour_of_a_half_is_right() -> None:
    exact = np.array([10.5, 20.5 + 1e-6, 254.9999999])
    assert compare_rounded(exact, bytes_of(10, 21, 255), bytes_of(11, 20, 255)).accept


def test_a_step_elsewhere_is_wrong() -> None:
    found = compare_rounded(np.array([10.5, 20.4]), bytes_of(10, 20), bytes_of(10, 21))
    assert not found.accept
    assert found.where == (1,)
    assert "20.4 is to be rounded" in found.reason


def test_a_tenth_of_a_step_is_noticed() -> None:
    """A bias that is lost is often less than a step; over many elements some tell."""
    exact = np.linspace(0, 200, 1001)
    right, biased = np.rint(exact).astype(np.uint8), np.rint(exact + 0.1).astype(np.uint8)
    assert not compare_rounded(exact, right, biased).accept


def test_what_is_out_of_range_is_the_end_of_it() -> None:
    exact = np.array([-1000.0, 1e9])
    assert compare_rounded(exact, bytes_of(0, 255), bytes_of(0, 255)).accept
    assert not compare_rounded(exact, bytes_of(0, 255), bytes_of(1, 255)).accept


def test_no_worse_than_the_original() -> None:
    """Where a sum cancels, the original may be off by more than a rounding, and the rewrite may, too."""
    exact = np.array([10.0, 20.0])
    assert compare_rounded(exact, bytes_of(12, 20), bytes_of(10, 18)).accept
    assert not compare_rounded(exact, bytes_of(12, 20), bytes_of(10, 17)).accept


def test_another_shape_is_refused() -> None:
    assert not compare_rounded(np.zeros(2), bytes_of(0, 0), bytes_of(0)).accept
