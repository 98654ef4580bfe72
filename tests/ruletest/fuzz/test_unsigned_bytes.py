"""Products of both kinds of bytes become such of unsigned ones, and compute the same without saturation."""

from __future__ import annotations

import numpy as np
import pytest

from onnxrewrite.ir import text
from onnxrewrite.ruletest.fuzz.unsigned_bytes import in_unsigned_bytes
from onnxrewrite.runtime.session import as_proto, open_session

PRODUCTS = {
    "MatMulInteger": "uint8[m,k] a; int8[k,n] b; y = MatMulInteger(a, b, uint8 3, int8 -5)",
    "QLinearMatMul": "uint8[m,k] a; int8[k,n] b; y = QLinearMatMul(a, 0.5, uint8 3, b, 0.25, int8 2, 64.0, uint8 9)",
}


@pytest.mark.parametrize("graph", PRODUCTS.values(), ids=PRODUCTS)
def test_they_compute_the_same_exactly(graph: str) -> None:
    model = in_unsigned_bytes(text.parse(graph))
    assert {v.dtype.name for n in model.graph if "MatMul" in n.op_type for v in n.inputs if v and v.dtype} >= {"UINT8"}
    rng = np.random.default_rng(0)
    a, b = rng.integers(128, 256, (4, 8)).astype(np.uint8), rng.integers(-128, 128, (8, 16)).astype(np.int8)
    session = open_session(as_proto(model), threads=1)
    assert not isinstance(session, str)
    made = session.run({"a": a, "b": b})
    assert not isinstance(made, str)
    if "QLinear" in graph:
        exact = np.rint((a.astype(float) - 3) @ (b.astype(float) - 2) * 0.5 * 0.25 / 64.0) + 9
        assert np.abs(np.asarray(made["y"]) - np.clip(exact, 0, 255)).max() == 0
    else:
        assert (np.asarray(made["y"]) == (a.astype(int) - 3) @ (b.astype(int) + 5)).all()


@pytest.mark.parametrize(
    "graph",
    [
        "uint8[m,k] a; uint8[k,n] b; y = MatMulInteger(a, b, uint8 3, uint8 5)",
        "uint8[m,k] a; int8[k,n] b; y = MatMulInteger(a, b)",
        "float[m] x; q = QuantizeLinear(x, 0.5, int8 3)  y = DequantizeLinear(q, 0.5, int8 3)",
    ],
)
def test_others_stay(graph: str) -> None:
    model = text.parse(graph)
    before = text.print_model(model)
    assert text.print_model(in_unsigned_bytes(model)) == before
