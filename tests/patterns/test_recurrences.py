"""Recurrences and experts as both of PyTorch's exporters write them, and as hand-written graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnxrewrite_patterns.recurrences import scan_operands, unrolled_recurrence

import onnxrewrite as rw
from onnxrewrite.ir import text
from onnxrewrite.testing import assert_rejects, assert_rewrites

SEQUENCES = "float[n,3,2] d, float[n,2,5] h, float[1,1,2,5] t"
MADE = "d4 = Unsqueeze(d, {3})  e = Mul(t, d4)  a = Exp(e)"


def scanned(how: str, before: str = "") -> str:
    body = "body = b (float[n,2,5] s, float[n,2,5] i) => (float[n,2,5] o, float[n,2,5] w) { o = Mul(i, s)  w = Neg(o) }"
    return f"({SEQUENCES}) => (l, y) {{ {MADE}{before}  l, y = Scan<{body}, num_scan_inputs=1, {how}>(h, a) }}"


def test_outputs_that_are_joined_along_another_axis_are_moved_there() -> None:
    body = "step (float[n,2,5] s, float[n,2,1] i) => (float[n,2,5] o, float[n,2,5] w)"
    assert_rewrites(
        scan_operands,
        scanned("scan_input_axes=[1], scan_output_axes=[-3]"),
        to=f"({SEQUENCES}) => (l, y) {{ d4 = Unsqueeze(d, {{3}})  q = Squeeze(t, {{1}})"
        f"  l, p = Scan<body = {body} {{ x = Mul(q, i)  z = Exp(x)  o = Mul(z, s)  w = Neg(o) }},"
        " num_scan_inputs=1, scan_input_axes=[1]>(h, d4)  y = Transpose<perm=[1,0,2,3]>(p) }",
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes_that_are_not_computed_in_are_left_alone(dtype: str) -> None:
    graph = scanned("scan_input_axes=[1]").replace("float[", f"{dtype}[")
    assert_rejects(scan_operands, graph, because="another dtype than float or double")


def test_a_first_state_of_one_number_is_spread_without_what_is_to_go() -> None:
    """Its sizes are taken from what the sequences are computed of."""
    (spelled,) = [e.graph for e in unrolled_recurrence.examples[:1]]
    model = text.parse(spelled.replace("Mul(a0, h)", "Mul(a0, 0.0)"), opset=17)
    result = rw.apply(model, only=["unrolled-recurrence", "scan-operands"], lower="fused")
    operators = [n.op_type for n in result.model.graph]
    assert operators.count("Scan") == 1
    assert "Exp" not in operators
    assert result.checks.model is not None
    assert result.checks.model.ok


def test_the_last_state_that_is_needed_keeps_the_loop() -> None:
    (spelled,) = [e.graph for e in unrolled_recurrence.examples[:1]]
    assert_rejects(unrolled_recurrence, spelled.replace("=> (y)", "=> (y, h2)"), because="is a graph output")


# -- as exporters write them -------------------------------------------------------------------------------------------


def applied(path: Path, **options: object) -> rw.Result:
    result = rw.apply(path, lower="fused", **options)  # type: ignore[arg-type]
    assert result.checks.undone == {}
    assert result.checks.model is not None
    assert result.checks.model.ok
    return result


@pytest.mark.slow
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_an_unrolled_mamba_becomes_a_scan_that_computes_inside(exporter: str, tmp_path: Path) -> None:
    models = pytest.importorskip("benchmarks.layered_models", reason="torch is not installed")
    result = applied(models.mamba(tmp_path / "m.onnx", exporter, 16, 6))
    assert result.trace.counts()["unrolled-recurrence"] == result.trace.counts()["scan-operands"] == 1
    operators = [n.op_type for n in result.model.graph]
    assert operators.count("Scan") == 1
    assert "Gather" not in operators
    assert "Exp" not in operators
    (scan,) = [n for n in result.model.graph if n.op_type == "Scan"]
    assert "Exp" in [n.op_type for n in scan.attributes["body"].as_graph()]


@pytest.mark.slow
def test_a_mamba_as_scan_computes_inside(tmp_path: Path) -> None:
    models = pytest.importorskip("benchmarks.layered_models", reason="torch is not installed")
    result = applied(models.scanned_mamba(tmp_path / "m.onnx", 16, 6))
    assert result.trace.counts()["scan-operands"] == 1
    assert "Exp" not in [n.op_type for n in result.model.graph]


@pytest.mark.slow
@pytest.mark.parametrize("made", ["experts", "gathered_experts"])
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_experts_become_one_operator(exporter: str, made: str, tmp_path: Path) -> None:
    """Of one token and large experts there is no doubt that it is faster."""
    models = pytest.importorskip("benchmarks.layered_models", reason="torch is not installed")
    path = getattr(models, made)(tmp_path / "m.onnx", exporter, 128, 256, 1)
    result = rw.apply(path, lower="fastest", threads=1, dims={"batch": 1}, budget=60)
    assert result.trace.counts()[made.replace("_", "-")] == 1
    assert [n.op_type for n in result.model.graph].count("MoE") == 1
    assert result.speed.ratio is not None
    assert result.speed.ratio.high < 1
    result.save(tmp_path / "out.onnx")
    session, original = rw.session(tmp_path / "out.onnx"), rw.session(path)
    feeds = {original.get_inputs()[0].name: np.random.default_rng(0).normal(size=(1, 1, 128)).astype(np.float32)}
    assert np.allclose(session.run(None, feeds)[0], original.run(None, feeds)[0], atol=1e-5)
