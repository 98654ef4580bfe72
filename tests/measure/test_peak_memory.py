"""Memory at its peak, in processes that may die."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxrewrite.measure.peak_memory import Use, Used, used
from onnxrewrite.runtime.settings import Setting
from onnxrewrite.suite.bench.benchmark import bench

HEADER = '<ir_version: 8, opset_import: ["": 17]>'
MEGABYTE = 10**6


def written(path: Path, text: str) -> Path:
    onnx.save(parser.parse_model(f"{HEADER} {text}"), path)
    return path


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the system does not tell")
def test_what_a_run_takes_is_seen_and_what_this_process_has_is_not(tmp_path: Path) -> None:
    """160 MB are made in the model, 240 MB here; both models stand in the same environment."""
    ballast = np.ones(240 * MEGABYTE, np.uint8)
    small = written(tmp_path / "small.onnx", "g (float[1] x) => (float[1] y) { y = Relu(x) }")
    text = "g (float[1] x) => (float[1] y) <int64[1] n = {40000000}> { h = Expand(x, n) y = ReduceMax(h) }"
    large = written(tmp_path / "large.onnx", text)
    feeds = {"x": np.ones(1, np.float32)}
    setting = Setting(level="disabled")  # or the constant would be made before the run
    found = {use.name: told for use, told in used([Use(p.stem, p, feeds, setting) for p in (small, large)])}
    assert found["small"].peak is not None
    assert found["large"].peak is not None
    assert found["small"].peak < 60 * MEGABYTE < ballast.nbytes
    assert found["large"].peak - found["small"].peak > 140 * MEGABYTE


def test_one_that_does_not_run_is_told(tmp_path: Path) -> None:
    """Its process is what ``system.workers`` watches over: here it is late."""
    good = written(tmp_path / "good.onnx", "g (float[1] x) => (float[1] y) { y = Relu(x) }")
    bad = written(tmp_path / "bad.onnx", "g (float[1] x) => (float[1] y) { y = Nonsense(x) }")
    feeds = {"x": np.ones(1, np.float32)}
    ((_, refused),) = used([Use("bad", bad, feeds, Setting())])
    assert "Nonsense" in refused.failure
    ((_, unfed),) = used([Use("good", good, {}, Setting())])
    assert "x" in unfed.failure
    ((_, late),) = used([Use("good", good, feeds, Setting())], limit=0.01)
    assert late == Used(failure="its process took longer than 0.01 s")


def test_a_bench_tells_it(tmp_path: Path) -> None:
    good = written(tmp_path / "good.onnx", "g (float[1] x) => (float[1] y) { y = Relu(x) }")
    (variant,) = bench(good, levels=["all"], seconds=0).variants
    assert variant.memory is not None or sys.platform == "win32"
