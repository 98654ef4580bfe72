"""Kernels that end the process: they are not run on what they die of."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxrewrite import io
from onnxrewrite.ir import text
from onnxrewrite.runtime.session import Session, open_session

GRAPH = 'float[b,h,i,d] q; float[b,h,j,d] k; y = Einsum<equation="bhid,bhjd->bhij">(q, k)'


def opened(model: ir.Model) -> Session:
    found = open_session(io.to_proto(model), threads=1)
    assert isinstance(found, Session)
    return found


@pytest.mark.parametrize("heads", [0, 2])
def test_einsum_is_not_run_on_what_is_empty(heads: int) -> None:
    """ONNX Runtime 1.32 divides by the number of heads where it transposes k: SIGFPE."""
    session = opened(text.parse(GRAPH, opset=17))
    feeds = {n: np.ones((1, heads, 3, 2), np.float32) for n in ("q", "k")}
    for made in (session.run(feeds), *session.run_each([feeds, feeds])):
        if heads:
            assert isinstance(made, dict)
            assert np.asarray(made["y"]).shape == (1, 2, 3, 3)
        else:
            assert made == "ONNX Runtime dies of Einsum of empty operands"


def test_others_are() -> None:
    session = opened(text.parse("float[n,m] x; float[m,k] w; y = MatMul(x, w)", opset=17))
    made = session.run({"x": np.ones((2, 0), np.float32), "w": np.ones((0, 3), np.float32)})
    assert isinstance(made, dict)
    assert np.asarray(made["y"]).shape == (2, 3)
