"""Past keys and values are added where attention is causal and nothing else mixes tokens; else one line says why not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from suite.decoders.decoder_models import of_attentions, without_past

from onnxrewrite import io
from onnxrewrite.deploy import GenaiSettings, Padding, Special, genai
from onnxrewrite.errors import ModelError
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.suite.decoders.decoder_interface import find_interface
from onnxrewrite.suite.decoders.greedy_generation import Side, forced, greedy

SPECIAL = Special(context=64, eos=(2,))
TAPS = "t1 = Transpose<perm=[0,2,1]>(y1)  t2 = Conv<group=64, pads=[{0}]>(t1, taps)  x1 = Transpose<perm=[0,2,1]>(t2)"


def made(model: onnx.ModelProto, folder: Path, padding: Padding = Padding.RIGHT) -> onnx.ModelProto:
    found = genai(model, folder / "out", GenaiSettings(special=SPECIAL, tokens=8, padding=padding))
    assert found.interface.caches == ()
    assert len(found.caches) == 2
    assert found.attentions == {"GroupQueryAttention": 2}
    assert found.shared
    return onnx.load(folder / "out" / "model.onnx")


@pytest.mark.parametrize("padding", Padding)
def test_past_is_added(padding: Padding, tmp_path: Path) -> None:
    written = made(without_past(), tmp_path, padding)
    pasts = [f"past_key_values.{layer}.{part}" for layer in range(2) for part in ("key", "value")]
    assert [value.name for value in written.graph.input] == ["input_ids", "attention_mask", *pasts]
    presents = [f"present.{layer}.{part}" for layer in range(2) for part in ("key", "value")]
    assert [value.name for value in written.graph.output] == ["logits", *presents], "what is spare is left out"
    config = json.loads((tmp_path / "out" / "genai_config.json").read_text(encoding="utf-8"))["model"]["decoder"]
    assert (config["num_hidden_layers"], config["num_key_value_heads"], config["head_size"]) == (2, 4, 16)


@pytest.mark.parametrize(("mask", "is_causal"), [("", True), ("kept", True), ("bias", True), ("visible", False)])
def test_an_attention_may_hide_later_tokens_by_itself(mask: str, is_causal: bool, tmp_path: Path) -> None:
    """The dtypes of masks are not in the file: inference tells truth values from numbers."""
    made(of_attentions(mask, is_causal=is_causal), tmp_path)


def test_a_step_reads_one_row_of_positions(tmp_path: Path) -> None:
    written = made(without_past(), tmp_path)
    assert "Range" not in {node.op_type for node in written.graph.node}, "positions come from the mask"
    assert "words" in {each.name for each in written.graph.initializer}


def test_a_window_is_kept(tmp_path: Path) -> None:
    seen = (
        "LessOrEqual(keys, queries)  apart = Sub(queries, keys)  near = Less(apart, window)  seen = And(causal, near)"
    )
    model = without_past(seen=seen)
    for node in model.graph.node:
        if node.op_type == "LessOrEqual":
            node.output[0] = "causal"
    model.graph.initializer.append(onnx.helper.make_tensor("window", 7, [], [5]))
    written = made(model, tmp_path)
    windows = [attribute.i for node in written.graph.node for attribute in node.attribute if "window" in attribute.name]
    assert windows == [5, 5]


@pytest.mark.parametrize(
    ("between", "said"),
    [
        (TAPS.format("2, 0"), "Conv"),
        ("x1 = CumSum(y1, one)", "CumSum"),
        ("t1 = ReduceMax<keepdims=1>(y1, axis1)  x1 = Add(y1, t1)", "depend on later tokens"),
        (TAPS.format("1, 1"), "depend on later tokens"),
    ],
    ids=["causal convolution", "sums", "pooling", "convolution"],
)
def test_what_mixes_tokens_is_named(between: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said):
        genai(without_past(between=between), tmp_path / "out", GenaiSettings(special=SPECIAL, tokens=4))
    assert not list(tmp_path.iterdir())


def test_attention_to_later_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="its logits for a token depend on later tokens"):
        genai(without_past(seen="GreaterOrEqual(keys, queries)"), tmp_path / "out", GenaiSettings(special=SPECIAL))


def test_a_mask_that_is_not_understood_is_refused(tmp_path: Path) -> None:
    seen = "LessOrEqual(keys, queries)  second = Equal(keys, one)  first = Not(second)  seen = And(causal, first)"
    model = without_past(seen=seen)
    for node in model.graph.node:
        if node.op_type == "LessOrEqual":
            node.output[0] = "causal"
    with pytest.raises(ModelError, match="none can be added: the attention of layer 0 is not causal: it hides other"):
        genai(model, tmp_path / "out", GenaiSettings(special=SPECIAL))


@pytest.mark.parametrize(
    ("between", "said"),
    [
        ("c1 = Cast<to=1>(length)  c2 = Log(c1)  x1 = Mul(y1, c2)", "depend on later tokens"),
        ("c1 = Greater(length, many)  c2 = Where(c1, quarter, no)  x1 = Add(y1, c2)", "depends on the length"),
        ("c1 = Greater(length, many)  c2 = Where(c1, row, no)  x1 = Add(y1, c2)", "depends on the length"),
    ],
    ids=["from the first token on", "for long texts", "by token, for long texts"],
)
def test_what_depends_on_the_length_is_refused(between: str, said: str, tmp_path: Path) -> None:
    model = without_past(between=between)
    model.graph.initializer.append(onnx.helper.make_tensor("many", 7, [], [32]))
    with pytest.raises(ModelError, match=said):
        genai(model, tmp_path / "out", GenaiSettings(special=SPECIAL))


def test_a_decoder_without_past_reads_all_again() -> None:
    loaded = io.load(without_past())
    session = open_session(loaded)
    assert isinstance(session, Session)
    side = Side(session, find_interface(loaded))
    text = greedy(side, [5, 17, 3], 4)
    again = forced(side, [5, 17, 3, *text.tokens[:2].tolist()], text.tokens[2:], 2)
    assert again.tokens.tolist() == text.tokens[2:].tolist()
    assert np.allclose(again.logits, text.logits[2:], atol=1e-5)
