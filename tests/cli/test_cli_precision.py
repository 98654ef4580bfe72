"""``onnxrewrite half`` and ``onnxrewrite sensitivity``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import pytest
from onnx.numpy_helper import to_array
from suite.precision.graphs import mlp

from onnxrewrite.cli import options
from onnxrewrite.cli.half import Dtype
from onnxrewrite.cli.sensitivity import Method
from onnxrewrite.suite.precision import node_sensitivity as library
from onnxrewrite.suite.precision.formats import FORMATS
from onnxrewrite.suite.quantization import quantize_settings


@pytest.fixture
def net(tmp_path: Path) -> Path:
    onnx.save(mlp(scopes=True), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_the_options_are_those_of_the_library() -> None:
    assert {m.value for m in Method} == set(get_args(library.Method))
    assert {m.value for m in options.Mode} == set(get_args(quantize_settings.Mode))
    assert {d.value for d in Dtype} == set(FORMATS)


def test_half_writes_beside_the_model(cli: Callable, net: Path) -> None:
    done = cli("half", net, "--keep", "block.1")
    assert (done.code, done.err) == (0, "")
    assert "6 of 8 nodes to float16" in done.out
    assert "asked for (block.1)" in done.out
    made = onnx.load(net.with_name("net.float16.onnx"))
    assert onnx.TensorProto.FLOAT16 in {t.data_type for t in made.graph.initializer}


def test_half_in_json_and_quiet(cli: Callable, net: Path, tmp_path: Path) -> None:
    done = cli("half", net, "-o", tmp_path / "h.onnx", "--dtype", "bfloat16", "--target", "onnx", "--json", "-")
    told = json.loads(done.out)
    assert len(told["converted"]) == 8
    assert told["notes"]
    done = cli("half", net, "-o", tmp_path / "h.onnx", "--quiet")
    assert done.out == f"{tmp_path / 'h.onnx'}\n"


def test_half_that_is_not_close_is_not_written(cli: Callable, net: Path) -> None:
    done = cli("half", net, "--max-drop", "0")
    assert done.code == 1
    assert "is not close enough" in done.err
    assert not net.with_name("net.float16.onnx").exists()


def test_half_of_rubbish(refused: Callable, net: Path, tmp_path: Path) -> None:
    assert "no such file" in refused("half", tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("hello")
    assert "text file" in refused("half", tmp_path / "text.onnx")
    assert "the nearest is block.1" in refused("half", net, "--keep", "blok.1")
    assert "no such dimension" in refused("half", net, "--dim", "height=3")
    assert "there is no folder" in refused("half", net, "-o", tmp_path / "no" / "h.onnx")


def test_sensitivity(cli: Callable, net: Path, tmp_path: Path) -> None:
    data = {"x": np.random.default_rng(0).normal(size=(6, 3, 32)).astype(np.float32)}
    np.savez(tmp_path / "d.npz", **data)
    done = cli("sensitivity", net, "--data", tmp_path / "d.npz", "--json", tmp_path / "s.json", "--top", "2")
    assert (done.code, done.err) == (0, "")
    assert "2 more, see --top" in done.out
    assert "d.npz" in done.out
    told = json.loads((tmp_path / "s.json").read_text())
    assert len(told["nodes"]) == 4
    assert told["output"] is None


def test_sensitivity_with_weights_of_seven_bits(cli: Callable, net: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    done = cli("sensitivity", net, "--mode", "static", "--reduce-range", "-o", out, "--json", "-")
    assert json.loads(done.out)["settings"]["reduce_range"] is True
    weights = [to_array(t) for t in onnx.load(out).graph.initializer if t.data_type == onnx.TensorProto.INT8]
    assert max(np.abs(w).max() for w in weights) in range(60, 65)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_sensitivity_draws(cli: Callable, net: Path, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"plot{suffix}"
    assert cli("sensitivity", net, "--method", "local", "--plot", path).code == 0
    assert path.stat().st_size > 5000


def test_sensitivity_writes_what_it_leaves_in_float(cli: Callable, net: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    done = cli("sensitivity", net, "--exclude-top", "1", "--exclude", "block.0", "-o", out, "--json", "-")
    told = json.loads(done.out)
    assert told["excluded"] == [told["nodes"][0]["name"]]
    assert told["result"]["worst"] == "y"
    products = {n.name for n in onnx.load(out).graph.node if n.op_type == "MatMul"}
    assert products == {"/net/block.0/fc/MatMul", *told["excluded"]}


def test_sensitivity_of_rubbish(refused: Callable, net: Path, relu: Path, tmp_path: Path) -> None:
    assert "give -o OUT" in refused("sensitivity", net, "--exclude-top", "2")
    assert "nothing to quantize" in refused("sensitivity", relu)
    assert "no such file or folder" in refused("sensitivity", net, "--data", tmp_path / "none.npz")
    assert "must end in" in refused("sensitivity", net, "--plot", tmp_path / "plot.txt")
    assert "weights must be" in refused("sensitivity", net, "--weights", "int3")
