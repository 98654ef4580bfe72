"""Kernels from profiles: own time, runs, what the profile itself costs; and the nodes that kernels stand for."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxrewrite import io
from onnxrewrite.api.application import apply
from onnxrewrite.ir.graph import scopes
from onnxrewrite.measure.kernel_times import Run, _overhead, _runs, run_profiled
from onnxrewrite.measure.lineage import covered, origins, rules_by_node
from onnxrewrite.runtime.settings import Level, Setting

HEADER = '<ir_version: 8, opset_import: ["": 17]>'

GELU = f"""{HEADER} g (float[64,32] x, float[32,32] w) => (float[64,32] y)
<float half = {{0.5}}, float one = {{1.0}}, float root = {{1.41421356}}> {{
  [first] p = MatMul(x, w)
  [divided] d = Div(p, root)
  [erf] e = Erf(d)
  [plus] a = Add(e, one)
  [times] m = Mul(p, a)
  [last] y = Mul(m, half)
}}"""

LOOP = f"""{HEADER} g (float[n,64] x) => (float[n,64] y) <int64 k = {{5}}, bool t = {{1}}> {{
  [loop] y = Loop (k, t, x) <body = b (int64 i, bool c, float[n,64] v) => (bool c2, float[n,64] w) {{
    [on] c2 = Identity(c)
    [inside] w = Sin(v)
  }}>
}}"""


def ran(text: str, level: Level = "all", **feeds: Any) -> tuple[Any, Run]:
    model = io.load(parser.parse_model(text))
    return model, run_profiled({"m": model}, feeds, Setting(threads=1, level=level), seconds=0.05)["m"]


def gelu_feeds() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"x": rng.random((64, 32), np.float32), "w": rng.random((32, 32), np.float32)}


def call(name: str, start: float, duration: float, op_type: str = "Add") -> dict[str, Any]:
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": start, "dur": duration, "args": {"op_name": op_type}}


def run_at(start: float) -> dict[str, Any]:
    return {"cat": "Session", "name": "model_run", "ts": start, "dur": 100}


def test_calls_belong_to_the_run_they_started_in() -> None:
    events = [run_at(0), call("a", 1, 5), call("b", 7, 5), run_at(100), call("a", 101, 6)]
    assert [[e.key[0] for e in run] for run in _runs(events)] == [["a", "b"], ["a"]]


def test_the_time_of_a_loop_is_without_what_runs_inside() -> None:
    events = [run_at(0), call("a", 3, 10), call("a", 14, 20), call("loop", 1, 50, "Loop"), call("after", 51, 4)]
    (run,) = _runs(events)
    own = {e.key[0]: 0.0 for e in run}
    for event in run:
        own[event.key[0]] += event.own
    assert {name: round(1e6 * seconds) for name, seconds in own.items()} == {"loop": 20, "a": 30, "after": 4}


@pytest.mark.parametrize(
    ("runs", "latency", "expected"),
    [
        ([[5e-6, 9e-6]] * 3, 8e-6, 3e-6),  # spread evenly
        ([[5e-6, 9e-6]] * 3, 2e-6, 5e-6),  # no kernel takes less than no time
        ([[5e-6, 9e-6]] * 3, 1e-3, 0.0),  # the run takes longer anyway
        ([], 1e-3, 0.0),
    ],
)
def test_what_the_profile_adds(runs: list[list[float]], latency: float, expected: float) -> None:
    assert _overhead(runs, latency) == pytest.approx(expected)


def test_kernels_of_an_unoptimized_model_are_its_nodes() -> None:
    model, run = ran(GELU, "disabled", **gelu_feeds())
    assert [k.name for k in run.kernels] == ["first", "divided", "erf", "plus", "times", "last"]
    assert run.kernels[0].work.flops == 2 * 64 * 32 * 32
    assert run.kernels[0].shapes[1][0].shape == (64, 32)
    assert {len(k.samples) for k in run.kernels} == {len(run.timing.wall)}
    assert {k: [n.name for n in of] for k, of in covered(model, run.optimized).items()} == {
        k.name: [k.name] for k in run.kernels
    }


def test_a_fused_kernel_stands_for_all_nodes_it_replaces() -> None:
    model, run = ran(GELU, **gelu_feeds())
    assert [k.op_type for k in run.kernels] == ["MatMul", "Gelu"]
    by_type = {k.op_type: {n.name for n in covered(model, run.optimized)[k.name]} for k in run.kernels}
    assert by_type == {"MatMul": {"first"}, "Gelu": {"divided", "erf", "plus", "times", "last"}}


def test_every_node_of_a_convolution_net_is_found_and_layout_kernels_stand_for_none() -> None:
    text = f"""{HEADER} g (float[1,3,32,32] x) => (float[1,1024,16] y) {{
      [conv] c = Conv<pads = [1,1,1,1]>(x, k)
      [relu] r = Relu(c)
      [shape] s = Constant<value = int64[3] {{1,16,1024}}>()
      [flat] f = Reshape(r, s)
      [last] y = Transpose<perm = [0,2,1]>(f)
    }}"""
    proto = parser.parse_model(text)
    weights = np.random.default_rng(0).random((16, 3, 3, 3), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    model = io.load(proto)
    feeds = {"x": np.ones((1, 3, 32, 32), np.float32)}
    run = run_profiled({"m": model}, feeds, Setting(threads=1), seconds=0.05)["m"]
    stands_for = covered(model, run.optimized)
    found = [n.name for k in run.kernels for n in stands_for[k.name]]
    assert sorted(found) == ["conv", "flat", "last", "relu"]
    assert all(not stands_for[k.name] for k in run.kernels if k.op_type == "ReorderOutput")


def test_a_loop_runs_its_kernels_several_times() -> None:
    _, run = ran(LOOP, "disabled", x=np.ones((64, 64), np.float32))
    calls = {k.name: k.calls for k in run.kernels}
    assert calls == {"loop": 1, "on": 5, "inside": 5}
    inside = next(k for k in run.kernels if k.name == "inside")
    assert inside.work.flops == 5 * 64 * 64


def test_profiles_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ran(GELU, **gelu_feeds())
    assert os.listdir(tmp_path) == []


def test_rules_are_traced_back_to_the_nodes_they_rewrote() -> None:
    original = io.load(parser.parse_model(GELU))
    result = apply(original, check="off", only=["gelu"])
    rules = rules_by_node(original, result.model, result.trace)
    assert "first" not in rules
    assert all("gelu-erf" in rules[name] for name in ("divided", "erf", "plus", "times", "last"))
    made = next(n for g in scopes(result.model) for n in g if n.op_type == "Gelu")
    assert set(origins(made)) == {"divided", "erf", "plus", "times", "last"}


def test_what_nobody_reads_any_more_went_with_its_readers() -> None:
    text = f"""{HEADER} g (float[2,3] x) => (float[2,3] y) {{
      [gone] s = Shape(x)
      [same] r = Reshape(x, s)
      [last] y = Relu(r)
    }}"""
    original = io.load(parser.parse_model(text))
    result = apply(original, check="off", only=["reshape-to-own-shape"])
    assert set(rules_by_node(original, result.model, result.trace)) == {"gone", "same"}


def test_what_is_constant_belongs_to_no_kernel() -> None:
    text = f"""{HEADER} g (float[2,3] x) => (float[2,3] y) <float[2,3] c = {{1, 2, 3, 4, 5, 6}}> {{
      [folded] w = Exp(c)
      [last] y = Add(x, w)
    }}"""
    model, run = ran(text, x=np.ones((2, 3), np.float32))
    assert {k: [n.name for n in of] for k, of in covered(model, run.optimized).items()} == {"last": ["last"]}
    model, run = ran(text, "disabled", x=np.ones((2, 3), np.float32))
    assert {k.name for k in run.kernels} == {"folded", "last"}
    assert [n.name for n in covered(model, run.optimized)["folded"]] == ["folded"]


def test_weights_that_an_old_model_lists_as_inputs_are_constant() -> None:
    proto = parser.parse_model("""<ir_version: 3, opset_import: ["": 8]>
    g (float[2,3] x, float[2,3] c) => (float[2,3] y) {
      [folded] w = Exp(c)
      [last] y = Add(x, w)
    }""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((2, 3), np.float32), "c"))
    model = io.load(proto)
    run = run_profiled({"m": model}, {"x": np.ones((2, 3), np.float32)}, Setting(threads=1), seconds=0.05)["m"]
    assert {k: [n.name for n in of] for k, of in covered(model, run.optimized).items()} == {"last": ["last"]}
