"""Texts as data of a decoder, and its weights in few bits, judged by tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from suite.decoders.decoder_models import GOLDEN, without_past

from golden_models.speaking import run as speaking
from onnxrewrite import io
from onnxrewrite.errors import CheckError, UsageError
from onnxrewrite.suite.decoders.decoder_weights import WeightSettings
from onnxrewrite.suite.decoders.genai_config import Special
from onnxrewrite.suite.decoders.genai_conversion import GenaiSettings, genai
from onnxrewrite.suite.decoders.text_data import decoder_of
from onnxrewrite.suite.quality.gate import Gate
from onnxrewrite.suite.quantization import workbench
from onnxrewrite.suite.quantization.accuracy_levels import Levels
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.quantizer import quantize
from onnxrewrite.suite.quantization.workbench import Work


def texts(path: Path, count: int = 8, length: int = 48) -> Path:
    np.save(path, speaking.held_out()[: count * length].reshape(count, length))
    return path


def test_ids_alone_are_enough(tmp_path: Path) -> None:
    decoder = decoder_of(io.load(speaking.MODEL))
    assert decoder is not None
    (_, second) = decoder.completed(texts(tmp_path / "t.npy", 2, 8))
    wanted = speaking.feeds(speaking.held_out()[8:16])
    assert second.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(second[name], array)
        assert np.asarray(second[name]).dtype == array.dtype
    padded = {"input_ids": np.array([[5, 6, 7, 0], [5, 6, 0, 0]]), "attention_mask": [[1, 1, 1, 0], [1, 1, 0, 0]]}
    np.savez(tmp_path / "p.npz", **padded)
    assert [each["input_ids"].shape[1] for each in decoder.completed(tmp_path / "p.npz")] == [3, 2]
    whole = [wanted]
    assert decoder.completed(whole) is whole
    np.save(tmp_path / "wrong.npy", np.zeros(3))
    with pytest.raises(UsageError, match=r"texts must be integers \[texts, tokens\], not float64 \[3\]"):
        decoder.completed(tmp_path / "wrong.npy")


@pytest.mark.slow
def test_texts_that_are_none(tmp_path: Path) -> None:
    decoder = decoder_of(io.load(speaking.MODEL))
    assert decoder is not None
    ids = np.zeros((2, 3), np.int64)
    for wrong in (ids[0], ids.astype(np.float32)):
        with pytest.raises(UsageError, match="texts must be integers"):
            decoder.completed([{"input_ids": wrong}])
    with pytest.raises(UsageError, match=r"attention_mask is \[2, 2\], and input_ids \[2, 3\]"):
        decoder.completed([{"input_ids": ids, "attention_mask": ids[:, :2]}])
    np.savez(tmp_path / "whole.npz", input_ids=ids)
    whole = (tmp_path / "whole.npz").read_bytes()
    for name, damaged in (("a.npz", b""), ("b.npz", whole[:90]), ("c.npy", b"")):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(UsageError, match=f"{name}: holds no arrays, or is damaged"):
            quantize(speaking.MODEL, QuantizeSettings(mode="weights"), data=tmp_path / name)


def test_what_is_no_decoder() -> None:
    assert decoder_of(io.load(GOLDEN / "bert" / "model.onnx")) is None  # states, and none of them logits
    assert decoder_of(io.load(without_past())) is not None
    assert decoder_of(io.load(without_past(seen="GreaterOrEqual(keys, zero)"))) is None  # it sees later tokens


@pytest.mark.slow
def test_where_every_level_is_taken_back_nothing_is_called_quantized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = Levels({}, flipped=1.0, lost=1.0, back=9)
    monkeypatch.setattr(workbench, "chosen_levels", lambda *given: every)
    settings = QuantizeSettings(mode="weights", weights="int8")
    with Work(speaking.MODEL, texts(tmp_path / "t.npy", 2, 8), threads=1) as work:
        work.read_data([settings])
        made = work.unfused(settings)
    assert not any(node.op_type == "MatMulNBits" for node in made.model.graph)
    assert (made.selection.chosen, made.forms) == ({}, {})


@pytest.mark.slow
def test_tokens_decide(tmp_path: Path) -> None:
    data, settings = texts(tmp_path / "t.npy"), QuantizeSettings(mode="weights", weights="int4", block_size=128)
    given = {"data": data, "threads": 1, "lower": "fused"}
    with pytest.raises(CheckError, match=r"of greedy tokens are the original's, fewer than 98\.0%"):
        quantize(speaking.MODEL, settings, **given)
    gate = Gate(max_drop=0.0, min_tokens=0.5, max_perplexity=1.5)
    found = quantize(speaking.MODEL, settings, gate=gate, **given)
    assert found.quality is not None
    assert found.quality.text is not None
    assert 0.5 < found.quality.text.agreement < 0.98
    assert found.quality.text.tokens == 2 * 47  # every fourth text is judged on
    assert any("accuracy level 4 flips" in note for note in found.notes)


@pytest.mark.slow
def test_weights_that_are_fitted_to_the_data_keep_more_tokens(tmp_path: Path) -> None:
    """Of those that are held out; four bits in blocks of 128 otherwise lose one in ten."""
    found = {}
    for algorithm in ("nearest", "gptq"):
        settings = QuantizeSettings(mode="weights", weights="int4", block_size=128, algorithm=algorithm, rows=1)
        with Work(speaking.MODEL, texts(tmp_path / "t.npy", 32, 96), threads=1) as work:
            work.read_data([settings])
            found[algorithm] = work.quality(work.unfused(settings)).outputs["logits"].divergence
    assert found["gptq"] < 0.7 * found["nearest"]


@pytest.mark.slow
def test_a_folder_with_weights_in_few_bits(tmp_path: Path) -> None:
    weights = WeightSettings(data=texts(tmp_path / "t.npy"), gate=Gate(min_tokens=0.5, max_perplexity=1.5), threads=1)
    settings = GenaiSettings(special=Special(context=64, eos=(0,)), weights=weights, tokens=8)
    found = genai(speaking.MODEL, tmp_path / "ready", settings)
    assert found.weights is not None
    assert found.weights.quality.text is not None
    assert found.weights.size[1] < 0.4 * found.weights.size[0]
    assert found.attentions == {"GroupQueryAttention": 6}
    assert found.check.error < 1e-4
    kinds = {node.op_type for node in io.load(tmp_path / "ready" / "model.onnx").graph}
    assert {"MatMulNBits", "GatherBlockQuantized"} <= kinds
    strict = WeightSettings(data=tmp_path / "t.npy", threads=1)
    with pytest.raises(CheckError, match="of greedy tokens"):
        genai(speaking.MODEL, tmp_path / "again", GenaiSettings(special=Special(context=64, eos=(0,)), weights=strict))
    assert not (tmp_path / "again").exists()


@pytest.mark.slow
def test_a_decoder_without_past_in_few_bits(tmp_path: Path) -> None:
    weights = WeightSettings(gate=None, threads=1)
    settings = GenaiSettings(special=Special(context=32, eos=(2,)), weights=weights, tokens=8)
    found = genai(without_past(), tmp_path / "ready", settings)
    assert found.weights is not None
    assert found.weights.quality.text is None  # the texts are made up
    assert found.attentions == {"GroupQueryAttention": 2}


def test_only_weights_are_in_few_bits() -> None:
    with pytest.raises(UsageError, match="by mode weights, not dynamic"):
        WeightSettings(quantize=QuantizeSettings())
