"""``onnxrewrite genai``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import pytest
from suite.decoders.decoder_models import decoder, without_output

from onnxrewrite.cli.genai import Bits, Padding
from onnxrewrite.suite.decoders import grouped_query
from onnxrewrite.suite.quantization.quantize_settings import Weights


@pytest.fixture
def net(tmp_path: Path) -> Path:
    onnx.save(decoder("gpt2_past"), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_the_options_are_those_of_the_library() -> None:
    assert [each.value for each in Padding] == [each.value for each in grouped_query.Padding]
    assert {each.value for each in Bits} < set(get_args(Weights))


@pytest.mark.slow
def test_weights_in_few_bits_are_judged_by_tokens(cli: Callable, net: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "texts.npy", np.random.default_rng(0).integers(3, 96, (8, 12)))
    arguments = ("--context", 64, "--eos", 2, "--tokens", 4, "--weights", "int4", "--threads", 1)
    arguments += ("--block-size", 16, "--data", tmp_path / "texts.npy")
    done = cli("genai", net, "-o", tmp_path / "out", *arguments, "--min-tokens", 0, "--max-perplexity", 2)
    assert done.code == 0, done.err
    assert re.search(r"Quality +[\d.]+% of 22 greedy tokens are the original's; perplexity [\d.]+, the", done.out)
    refused = cli("genai", net, "-o", tmp_path / "no", *arguments, "--min-tokens", 1, "--max-perplexity", 0.5)
    assert refused.code == 1
    assert not (tmp_path / "no").exists()


@pytest.mark.slow
def test_a_folder_and_its_report(cli: Callable, net: Path, tmp_path: Path) -> None:
    done = cli("genai", net, "-o", tmp_path / "out", "--context", 64, "--eos", 2, "--tokens", 4)
    assert (done.code, done.err) == (0, "")
    assert "2 × GroupQueryAttention; past and present share a buffer" in done.out
    assert "shorter texts of a batch are padded on the right" in done.out
    assert (tmp_path / "out" / "genai_config.json").exists()


@pytest.mark.slow
def test_json(cli: Callable, net: Path, tmp_path: Path) -> None:
    arguments = ("--context", 64, "--eos", 2, "--tokens", 4, "--json", "-")
    told = json.loads(cli("genai", net, "-o", tmp_path / "out", *arguments).out)
    assert told["attentions"] == {"GroupQueryAttention": 2}
    assert told["inputs"]["positions"] == "position_ids"


def test_bad_arguments(cli: Callable, net: Path, tmp_path: Path) -> None:
    out, text = tmp_path / "out", ("--context", 64, "--eos", 2)
    for arguments, said in (
        ((tmp_path / "none.onnx", "-o", out), "none.onnx"),
        ((net, "-o", net), "is no folder"),
        ((net, "-o", tmp_path), "is not empty"),
        ((net, "-o", tmp_path / "a" / "b"), "there is no folder"),
        ((net, "-o", out, "--tokenizer", tmp_path / "none"), "--tokenizer"),
        ((net, "-o", out, "--data", tmp_path / "t.npy"), "--data: says what --weights loses, and nothing without it"),
        ((net, "-o", out, "--positions", "where"), "--positions where: the model has no such input"),
    ):
        done = cli("genai", *arguments, *text)
        assert done.code == 2
        assert said in done.err
        assert done.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def test_one_line_and_nothing_written(cli: Callable, net: Path, tmp_path: Path) -> None:
    onnx.save(without_output(decoder("gpt2_past"), "present.0.key"), net)
    done = cli("genai", net, "-o", tmp_path / "out", "--context", 64, "--eos", 2)
    assert done.code == 2
    assert done.err == (
        "onnxrewrite: the past past_key_values.0.key has no present: no output gives it with the new keys or values\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
