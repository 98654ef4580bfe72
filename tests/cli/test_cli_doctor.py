"""``onnxrewrite doctor``."""

import json

import pytest

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


@pytest.mark.parametrize("option", ["--top", "model.onnx"])
def test_it_takes_no_model(refused, option):
    refused("doctor", option)
