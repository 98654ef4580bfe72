"""``deploy.genai``: a folder that writes the model's tokens, or nothing at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from suite.decoders.decoder_models import NAMES, decoder, renamed, without_mask

from onnxrewrite import io
from onnxrewrite.deploy import GenaiSettings, Padding, Special, genai
from onnxrewrite.errors import CheckError, ModelError, UsageError
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.suite.decoders import genai_conversion, genai_run
from onnxrewrite.suite.decoders.decoder_interface import find_interface
from onnxrewrite.suite.decoders.greedy_generation import Side, Text
from onnxrewrite.suite.decoders.token_check import TokenCheck, compare

SPECIAL = Special(context=64, eos=(2,))


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_complete(name: str, tmp_path: Path) -> None:
    source, out = tmp_path / "model.onnx", tmp_path / "out"
    onnx.save(renamed(decoder(name), lambda given: f"my_{given}")[0], source)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    made = genai(source, out, GenaiSettings(special=SPECIAL, tokens=8))
    assert made.attentions == {"GroupQueryAttention": 2}
    assert sorted(path.name for path in out.iterdir()) == ["genai_config.json", "model.onnx", "tokenizer.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "out", "tokenizer.json"]
    config = json.loads((out / "genai_config.json").read_text(encoding="utf-8"))
    inputs = config["model"]["decoder"]["inputs"]
    named = {value.name for value in onnx.load(out / "model.onnx").graph.input}
    assert {inputs["input_ids"], inputs["attention_mask"], inputs["past_key_names"] % 1} <= named
    assert config["model"]["context_length"] == 64
    assert config["search"]["past_present_share_buffer"] == made.shared
    assert made.check.tokens == 8 * 5 + (8 * 3 if genai_run.is_installed() else 0)


@pytest.mark.slow
def test_padding_anywhere(tmp_path: Path) -> None:
    settings = GenaiSettings(special=SPECIAL, tokens=8, padding=Padding.ANY)
    made = genai(decoder("gpt2_past"), tmp_path / "out", settings)
    assert made.attentions == {"GroupQueryAttention": 2}
    assert "two texts, padded on the left" in made.check.runs
    assert not any("padded on the right" in each for each in made.assumes)


@pytest.mark.slow
def test_logits_of_the_last_token(tmp_path: Path) -> None:
    """One text and two, each with its own last token; the head and the last layer are computed for one."""
    settings = GenaiSettings(special=SPECIAL, tokens=2)
    genai(decoder("llama_past"), tmp_path / "last", settings)
    genai(decoder("llama_past"), tmp_path / "all", replace(settings, all_logits=True))
    opened = [open_session(tmp_path / name / "model.onnx") for name in ("all", "last")]
    ids, mask = np.array([[5, 17, 3, 9], [7, 2, 0, 0]]), np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    logits = []
    for session, name in zip(opened, ("all", "last"), strict=True):
        assert isinstance(session, Session)
        generator = Side(session, find_interface(io.load(tmp_path / name / "model.onnx")), 6).start()
        logits.append([generator.step(ids, mask), generator.step(np.array([[4], [4]]))])
    (whole, step), (last, next_step) = logits
    assert last.shape == (2, 1, whole.shape[2])
    assert np.allclose(last[:, 0], whole[[0, 1], [3, 1]], atol=1e-5)
    assert np.allclose(step, next_step, atol=1e-5)
    selected = [node for node in onnx.load(tmp_path / "last" / "model.onnx").graph.node if node.op_type == "GatherND"]
    assert len(selected) == 2, "the residual, and the result of the last attention"


@pytest.mark.slow
def test_a_model_without_mask_is_given_one(tmp_path: Path) -> None:
    made = genai(without_mask(decoder("gpt2_past")), tmp_path / "out", GenaiSettings(special=SPECIAL, tokens=8))
    assert made.interface.mask is None
    assert made.attentions == {"GroupQueryAttention": 2}
    assert made.shared
    assert "attention_mask" in {value.name for value in onnx.load(tmp_path / "out" / "model.onnx").graph.input}


@pytest.mark.slow
def test_a_mask_that_is_not_understood_stays(tmp_path: Path) -> None:
    model = decoder("llama_past")
    for node in model.graph.node:
        if node.op_type == "LessOrEqual":
            node.op_type = "Less"
    made = genai(model, tmp_path / "out", GenaiSettings(special=SPECIAL, tokens=4))
    assert "GroupQueryAttention" not in made.attentions
    assert not made.shared
    assert "layer 0: the mask stays: it hides other tokens" in made.notes[0]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"num_hidden_layers": 3}, "num_hidden_layers is 3, the graph has 2"),
        ({"vocab_size": 7}, "vocab_size is 7, the graph has"),
        ({"head_dim": 7}, "head_dim is 7, the graph has"),
        ({"num_attention_heads": 9}, "num_attention_heads is 9, the graph has"),
        ({"eos_token_id": 10**6}, "eos_token_id is 1000000, the graph has"),
    ],
    ids=str,
)
def test_a_config_that_contradicts_the_graph(entry: dict[str, int], said: str, tmp_path: Path) -> None:
    onnx.save(decoder("llama_past"), tmp_path / "model.onnx")
    told = {"max_position_embeddings": 64, "eos_token_id": 2} | entry
    (tmp_path / "config.json").write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ModelError, match=f"config.json contradicts the graph: {said}"):
        genai(tmp_path / "model.onnx", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tokens_that_there_are_not(tmp_path: Path) -> None:
    for special in (Special(context=64, eos=(10**6,)), Special(context=64, eos=(2,), pad=10**6)):
        with pytest.raises(UsageError, match=r"--(eos|pad) 1000000: the model has \d+ tokens"):
            genai(decoder("llama_past"), tmp_path / "out", GenaiSettings(special=special))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_token_that_fills_up_and_is_none_is_that_which_ends(tmp_path: Path) -> None:
    onnx.save(decoder("llama_past"), tmp_path / "model.onnx")
    told = {"max_position_embeddings": 64, "eos_token_id": 2, "pad_token_id": -1}
    (tmp_path / "config.json").write_text(json.dumps(told), encoding="utf-8")
    genai(tmp_path / "model.onnx", tmp_path / "out", GenaiSettings(tokens=2))
    config = json.loads((tmp_path / "out" / "genai_config.json").read_text(encoding="utf-8"))
    assert config["model"]["pad_token_id"] == 2


def test_a_layer_without_past(tmp_path: Path) -> None:
    """Its keys and values are those of new tokens alone."""
    model = decoder("llama_past")
    for value in list(model.graph.input):
        if value.name.startswith("past_key_values.1."):
            model.graph.input.remove(value)
    for node in model.graph.node:
        if node.op_type == "Concat" and node.input[0].startswith("past_key_values.1."):
            node.op_type = "Identity"
            del node.attribute[:]
            del node.input[0]
        node.input[:] = [name.replace("past_key_values.1.", "past_key_values.0.") for name in node.input]
    for value in list(model.graph.output):
        if value.name.startswith("present.1."):
            model.graph.output.remove(value)
    with pytest.raises(ModelError, match="2 attentions are masked, and 1 have a past"):
        genai(model, tmp_path / "out", GenaiSettings(special=SPECIAL))
    assert not list(tmp_path.iterdir())


def test_a_text_that_is_too_long_for_the_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"a text of 65 tokens is too long: the model has 64 positions"):
        genai(decoder("gpt2_past"), tmp_path / "out", GenaiSettings(special=Special(context=65, eos=(2,))))
    assert not list(tmp_path.iterdir())


def test_a_config_says_what_the_graph_cannot(tmp_path: Path) -> None:
    onnx.save(decoder("llama_past"), tmp_path / "model.onnx")
    said = {"num_hidden_layers": 2, "max_position_embeddings": 64, "eos_token_id": [2, 5], "pad_token_id": 0}
    (tmp_path / "config.json").write_text(json.dumps(said), encoding="utf-8")
    genai(tmp_path / "model.onnx", tmp_path / "out", GenaiSettings(tokens=2))
    config = json.loads((tmp_path / "out" / "genai_config.json").read_text(encoding="utf-8"))
    assert (config["model"]["eos_token_id"], config["model"]["pad_token_id"]) == ([2, 5], 0)


@pytest.mark.parametrize(
    ("special", "said"), [(Special(eos=(2,)), "--context"), (Special(context=64), "--eos")], ids=["context", "eos"]
)
def test_what_nothing_says_is_asked_for(special: Special, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        genai(decoder("llama_past"), tmp_path / "out", GenaiSettings(special=special))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="is not empty"):
        genai(decoder("llama_past"), tmp_path / "out", GenaiSettings(special=SPECIAL))
    assert (tmp_path / "out" / "mine").read_text(encoding="utf-8") == "mine"


@pytest.mark.slow
def test_nothing_is_written_where_tokens_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object, **__: object) -> None:
        raise CheckError("the tokens differ")

    monkeypatch.setattr(genai_conversion, "check_tokens", wrong)
    with pytest.raises(CheckError, match="the tokens differ"):
        genai(decoder("llama_past"), tmp_path / "out", GenaiSettings(special=SPECIAL))
    assert not list(tmp_path.iterdir())


def test_what_is_a_tie_and_what_is_not() -> None:
    scores = np.array([[0.0, 5.0, 5.0 - 1e-6, -5.0]])
    wanted, found = Text(np.array([1]), scores), TokenCheck()
    compare(found, wanted, np.array([2]), scores + np.array([0, -1e-6, 1e-6, 0]), 1e-4, "a prompt")
    assert (found.tokens, found.ties) == (1, 1)
    with pytest.raises(CheckError, match="3 in place of 1 at token 1 of a prompt"):
        compare(found, wanted, np.array([3]), scores, 1e-4, "a prompt")
    with pytest.raises(CheckError, match=r"the logits differ by 0\.1 "):
        compare(found, wanted, np.array([1]), scores + np.array([0, 0, -1.0, 0]), 1e-4, "a prompt")
    nothing = Text(np.array([1]), scores * np.nan)
    with pytest.raises(ModelError, match="the model itself gives logits that are no finite numbers, for token 1"):
        compare(found, nothing, np.array([1]), scores * np.nan, 1e-4, "a prompt")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_onnxruntime_genai_writes_the_same_tokens(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_genai")
    made = genai(decoder(name), tmp_path / "out", GenaiSettings(special=SPECIAL))
    assert "onnxruntime-genai, a prompt of 19" in made.check.runs
