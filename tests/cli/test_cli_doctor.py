"""``onnxrewrite doctor``."""

import json

import numpy as np
import onnx

from onnxrewrite.measure import number_formats
from onnxrewrite.runtime.machine import machine


def test_what_there_is_and_what_follows(cli):
    done = cli("doctor")
    assert done.code == 0
    assert done.err == ""
    assert done.out.startswith(machine().processor.name)
    assert "What follows" in done.out
    assert f"intra-op threads: {machine().threads}" in done.out
    assert "CPUExecutionProvider: starts" in done.out
    assert max(map(len, done.out.splitlines())) <= 120


def test_verbose_names_entries(cli):
    done = cli("doctor", "-v")
    assert "session.intra_op.allow_spinning" in done.out


def test_json_goes_to_a_file_and_to_stdout(cli, tmp_path):
    done = cli("doctor", "--json", "-")
    data = json.loads(done.out)
    assert set(data) == set(machine().to_json())
    assert cli("doctor", "--json", tmp_path / "machine.json").code == 0
    again = json.loads((tmp_path / "machine.json").read_text(encoding="utf-8"))
    assert again["processor"] == data["processor"]


def test_a_report_that_cannot_be_written_is_one_line(refused, tmp_path):
    assert "there is no folder" in refused("doctor", "--json", tmp_path / "none" / "machine.json")


def test_formats_are_measured_against_float32(monkeypatch):
    monkeypatch.setattr(number_formats, "_SIDE", 64)
    found = number_formats.speeds(1, seconds=0.05)
    assert set(found) <= set(number_formats.FORMS) - {"float32"}
    assert {"uint8 x int8", "uint8 x uint8"} <= set(found)
    assert all(0 < each["low"] <= each["median"] <= each["high"] for each in found.values())


def test_measured_speeds_are_shown(cli, monkeypatch):
    monkeypatch.setattr(
        number_formats, "speeds", lambda threads: {"uint8 x int8": {"median": 5.0, "low": 4.0, "high": 6.0}}
    )
    assert "  uint8 x int8   5.00   4.00 to 6.00\n" in cli("doctor", "--measure").out


def test_what_it_does_not_take(refused, gelu):
    refused("doctor", "--top")
    assert "missing.onnx: no such file" in refused("doctor", "missing.onnx")
    assert "would overwrite" in refused("doctor", gelu, "--json", gelu)


def test_the_weights_of_a_model(cli, tmp_path):
    weight = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    weight[:, ::2] = 0
    graph = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 64] x) => (float[n, 128] y) <float[64, 128] w> '
    model = onnx.parser.parse_model(graph + "{ [product] y = MatMul(x, w) }")
    del model.graph.initializer[:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, str(tmp_path / "m.onnx"))
    done = cli("doctor", tmp_path / "m.onnx", "--json", tmp_path / "m.json")
    assert done.code == 0, done
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert any(line.startswith("product MatMul 64 × 128 50.0%") and "64 outputs, 0 inputs" in line for line in lines), (
        lines
    )
    assert any("Gain zeros as they are:" in line for line in lines)
    (row,) = json.loads((tmp_path / "m.json").read_text())["weights"]["structures"]
    assert (row["zeros"], row["empty_outputs"], row["rank"]) == (0.5, 64, None)
