"""Decoders timed at generation: with past and without, and in one buffer."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from suite.decoders.decoder_models import decoder, without_past

from onnxrewrite.deploy import GenaiSettings, Special, genai
from onnxrewrite.errors import ModelError
from onnxrewrite.runtime.settings import Setting
from onnxrewrite.suite.decoders.generation_times import generation_times

SETTING = Setting(threads=1)


@pytest.mark.slow
def test_decoders_by_turns(tmp_path: Path) -> None:
    onnx.save(without_past(), tmp_path / "model.onnx")
    genai(tmp_path / "model.onnx", tmp_path / "ready", GenaiSettings(special=Special(context=64, eos=(2,)), tokens=2))
    models = [tmp_path / "model.onnx", tmp_path / "ready"]
    found = generation_times(models, prompt=12, tokens=8, setting=SETTING, seconds=0.1, memory=False)
    plain, ready = found.decoders
    assert (plain.name, ready.name) == ("model.onnx", "ready")
    assert (plain.shared, ready.shared) == (False, True)
    assert (bool(plain.interface.caches), bool(ready.interface.caches)) == (False, True)
    assert plain.prompt_ratio.median == plain.step_ratio.median == 1
    told = found.to_json()["decoders"][1]
    assert told["tokens_a_second"] == pytest.approx(1 / ready.step.latency.median)
    assert told["memory"] is None


@pytest.mark.slow
def test_files_of_one_name_have_their_paths(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "model.onnx" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        onnx.save(decoder("gpt2_past"), path)
    found = generation_times(paths, prompt=4, tokens=2, setting=SETTING, seconds=0.01)
    assert [each.name for each in found.decoders] == [str(path) for path in paths]
    assert all(each.memory for each in found.decoders)


def test_no_room_for_the_text(tmp_path: Path) -> None:
    onnx.save(without_past(), tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="cannot read 65 tokens after 0") as told:
        generation_times([tmp_path / "model.onnx"], prompt=65, tokens=9, setting=SETTING, seconds=0.01)
    assert "\n" not in str(told.value)
