"""Benches: variants side by side, whatever becomes of single ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxrewrite import io
from onnxrewrite.errors import CheckError, ModelError, UsageError
from onnxrewrite.runtime.settings import Setting
from onnxrewrite.suite.bench.benchmark import Bench, Variant, bench
from onnxrewrite.suite.bench.peers import Peer

HEADER = '<ir_version: 8, opset_import: ["": 17]>'
RELU = "g (float[batch,8] x) => (float[batch,8] y) { y = Relu(x) }"
TWICE = "g (float[batch,8] x) => (float[batch,8] y) { h = Relu(x) y = Relu(h) }"
ABS = "g (float[batch,8] x) => (float[batch,8] y) { y = Abs(x) }"
OTHER = "g (float[batch,8] z) => (float[batch,8] y) { y = Relu(z) }"


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(f"{HEADER} {text}")


def written(path: Path, text: str) -> Path:
    onnx.save(model(text), path)
    return path


def quick(what: Any, **how: Any) -> Bench:
    """One level, no processes, as few rounds as there may be."""
    return bench(what, **{"levels": ["all"], "memory": False, "seconds": 0, "setting": Setting(threads=1), **how})


def test_each_level_of_onnx_runtime_is_a_variant() -> None:
    found = quick(model(TWICE), levels=["all", "disabled"])
    assert [v.name for v in found.variants] == ["original, disabled", "original, all"]
    assert all(v.timing is not None and v.creation is not None for v in found.variants)
    assert found["original, all"].ratio is not None
    assert found["original, all"].ratio.median == 1.0
    assert (found.binding, found.notes) == ({"batch": 1}, [])


def test_ours_is_told_beside_the_original() -> None:
    found = quick(model(TWICE), ours=lambda: io.load(model(RELU)))["ours"]
    assert (found.nodes, found.kind, found.level) == (1, "ours", "all")
    assert found.error is not None
    assert (found.error.largest, found.error.failure) == (0.0, "")
    assert found.timing is not None
    assert found.ratio is not None
    assert found.ratio.low <= found.ratio.median <= found.ratio.high
    assert found.optimization is not None


@pytest.mark.parametrize("error", [CheckError("the result is not equal"), ModelError("cannot be converted")])
def test_where_ours_fails_the_others_are_timed(error: Exception) -> None:
    def fail() -> Any:
        raise error

    found = quick(model(RELU), ours=fail)
    assert found["ours"].failure == str(error)
    assert [v.name for v in found.timed] == ["original, all"]


def test_a_wrong_use_of_ours_is_an_error() -> None:
    def fail() -> Any:
        raise UsageError("no such rule")

    with pytest.raises(UsageError, match="no such rule"):
        quick(model(RELU), ours=fail)


def test_files_are_variants(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files = [written(tmp_path / "same.onnx", RELU), written(tmp_path / "a" / "same.onnx", ABS)]
    files.append(written(tmp_path / "other.onnx", OTHER))
    found = quick(written(tmp_path / "model.onnx", TWICE), files=files)
    same, wrong, other = (found[name] for name in (str(files[0]), str(files[1]), "other.onnx"))
    assert (same.nodes, same.size) == (1, files[0].stat().st_size)
    assert same.error is not None
    assert same.error.failure == ""
    assert wrong.error is not None
    assert "error" in wrong.error.failure
    assert wrong.timing is not None
    assert "z" in other.failure
    assert other.timing is None


def test_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_text("hello", encoding="utf-8")
    with pytest.raises(ModelError, match=r"bad\.onnx"):
        quick(model(RELU), files=[tmp_path / "bad.onnx"])


def test_a_model_without_inputs() -> None:
    found = quick(model("g () => (float[3] y) <float[3] c = {1,2,3}> { y = Relu(c) }"), batches=[2])
    assert found.binding == {}
    assert len(found.timed) == 1
    assert found.notes == ["no throughput by batch size: the model has no symbolic batch dimension"]


def test_a_model_that_does_not_run_is_named() -> None:
    text = "named (float[2,3] x, float[4,5] w) => (y) { y = Concat <axis = 0> (x, w) }"
    with pytest.raises(ModelError, match=r"^named: the model does not open"):
        quick(model(text))


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_does_not_start_is_an_error() -> None:
    with pytest.raises(ModelError, match="no variant runs: CUDAExecutionProvider does not start on this machine"):
        quick(model(RELU), setting=Setting(provider="CUDAExecutionProvider"))


def test_no_level_is_an_error() -> None:
    with pytest.raises(UsageError, match="disabled, basic, extended, all"):
        quick(model(RELU), levels=[])


def test_throughput_by_batch_size() -> None:
    fixed = "g (float[1,8] x) => (float[1,8] y) { y = Relu(x) }"
    found = quick(model(RELU), ours=lambda: io.load(model(fixed)), batches=[1, 512])
    by_batch = found["original, all"].throughput
    assert list(by_batch) == [1, 512]
    assert by_batch[1].low <= by_batch[1].median <= by_batch[1].high
    assert by_batch[512].median > by_batch[1].median
    assert list(found["ours"].throughput) == [1]
    assert [n for n in found.notes if n.startswith("ours does not run at batch 512: ")]


def test_a_batch_that_the_given_inputs_rule_out_is_noted() -> None:
    given = {"x": np.ones((3, 8), np.float32)}
    found = quick(model("g (float[batch,8] x, float[batch,8] w) => (y) { y = Add(x, w) }"), inputs=given, batches=[4])
    assert found.binding == {"batch": 3}
    assert [n for n in found.notes if n.startswith("no throughput at batch 4: ")]


def test_sizes_are_kept() -> None:
    assert quick(model(RELU), dims={"batch": 5}).binding == {"batch": 5}


def test_peers_that_are_missing_are_noted() -> None:
    found = quick(model(RELU), peers=[Peer("nobody", "nobody", "nobody_has_this", lambda source, result: None)])
    assert found.notes == ["not installed: nobody"]
    assert [v.name for v in found.variants] == ["original, all"]


def test_plain_data() -> None:
    data = quick(model(RELU), ours=lambda: io.load(model(RELU)), batches=[1]).to_json()
    assert data == json.loads(json.dumps(data, allow_nan=False))
    assert set(data["variants"][0]) == set(Variant.__dataclass_fields__)
    assert data["reference"] == data["variants"][0]["name"]
