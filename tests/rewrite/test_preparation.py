"""Models as rules are to find them: in an opset that the target runs."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite.preparation import prepared
from onnxrewrite.runtime.session import Session, as_proto, open_session

NEWEST = 28

pytestmark = pytest.mark.skipif(target("onnxruntime-cpu").opset_max < NEWEST, reason="an older ONNX Runtime")


def model(graph: str, opset: int = NEWEST) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> g {graph}')


UNABLE = {
    "quantize": "(float[2,8] x, float s, uint8 z) => (uint8[2,8] y) { y = QuantizeLinear(x, s, z) }",
    "roi-align": "(float[1,3,8,8] x, float[2,4] r, int64[2] b) => (float[2,3,1,1] y) { y = RoiAlign(x, r, b) }",
    "lp-pool": "(float[2,3,4,4] x) => (float[2,3,1,1] y) { y = GlobalLpPool(x) }",
    "swiglu": "(float[2,8] x, float[2,8] z) => (float[2,8] y) { y = SwiGLU<alpha=0.5>(x, z) }",
    "swish": "(float[2,8] x) => (float[2,8] y) { y = Swish(x) }",
    "in-a-branch": "(float[2,8] x, bool c) => (float[2,8] y) { y = If(c) <then_branch = t () => (float[2,8] a)"
    " { a = Swish(x) }, else_branch = e () => (float[2,8] b) { b = Neg(x) }> }",
}


@pytest.mark.parametrize("graph", UNABLE.values(), ids=UNABLE)
def test_what_onnx_runtime_does_not_load_is_made_runnable(graph: str) -> None:
    made = prepared(io.load(model(graph)), [], target("onnxruntime-cpu"))
    is_loaded = isinstance(open_session(model(graph)), Session)
    assert is_loaded == (made.notes == ())  # a newer ONNX Runtime may have the kernel
    assert isinstance(open_session(as_proto(made.model)), Session)


def test_a_model_that_does_not_load_is_checked_against_what_it_was_made_to() -> None:
    result = rw.apply(model(UNABLE["swiglu"]), lower="fused")
    assert result.checks.model is not None
    assert not result.checks.model.skipped
    assert any("function bodies" in note for note in result.notes)


def test_an_opset_that_was_asked_for_stays() -> None:
    made = prepared(io.load(model(UNABLE["roi-align"])), [], target("onnxruntime-cpu"), NEWEST)
    assert io.opset(made.model) == NEWEST


def test_what_no_opset_has_together_stays() -> None:
    graph = "(float[1,3,8,8] x, float[2,4] r, int64[2] b) => (float[2,3,1,1] y) { a = RoiAlign(x, r, b)  y = Swish(a) }"
    loaded = io.load(model(graph))
    assert io.opset(prepared(loaded, [], target("onnxruntime-cpu")).model) == NEWEST


def test_a_target_without_kernels_asks_for_nothing() -> None:
    loaded = io.load(model(UNABLE["swiglu"]))
    assert prepared(loaded, [], target("onnx")).model is loaded
