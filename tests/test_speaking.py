"""The decoder that speaks: what it says, and what rewriting and few bits leave of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import onnxrewrite as rw
from golden_models.speaking import run as speaking
from onnxrewrite import io
from onnxrewrite.deploy import GenaiSettings, Special
from onnxrewrite.runtime.session import open_session
from onnxrewrite.suite.decoders.decoder_interface import find_interface
from onnxrewrite.suite.decoders.greedy_generation import Side, greedy
from onnxrewrite.suite.quality.data import Data, Sample
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.quantizer import quantize
from onnxrewrite.system.arrays import Outputs

pytestmark = pytest.mark.skipif(not speaking.MODEL.exists(), reason="a source distribution holds no models")
EXPECTED = tomllib.loads((speaking.MODEL.parent / "said.toml").read_text())
TEXTS = speaking.pieces(speaking.held_out())


def runner(model: ir.Model | Path) -> speaking.Run:
    session = open_session(io.to_proto(io.load(model)))
    assert not isinstance(session, str), session

    def run(feeds: Mapping[str, np.ndarray]) -> Outputs:
        found = session.run(feeds)
        assert not isinstance(found, str), found
        return found

    return run


def said(model: ir.Model | Path, count: int) -> list[int]:
    """The tokens that follow the first 16 of a text, each the likeliest."""
    loaded = io.load(model)
    session = open_session(io.to_proto(loaded))
    assert not isinstance(session, str), session
    return greedy(Side(session, find_interface(loaded)), TEXTS[0][:16].tolist(), count).tokens.tolist()


def test_it_speaks_as_it_did() -> None:
    run = runner(speaking.MODEL)
    assert speaking.perplexity(run, TEXTS) == pytest.approx(EXPECTED["perplexity"], rel=1e-3)
    assert EXPECTED["perplexity"] < 40  # by chance it would be 1,024
    assert said(speaking.MODEL, 32) == EXPECTED["greedy"]


@pytest.mark.slow
def test_rewritten_it_says_the_same() -> None:
    found = rw.apply(speaking.MODEL, lower="fused")
    assert found.trace.counts()["rotary"] == 12
    assert len(found.model.graph) < 300
    run = runner(found.model)
    assert speaking.perplexity(run, TEXTS) == pytest.approx(EXPECTED["perplexity"], rel=1e-4)
    assert said(found.model, 128) == said(speaking.MODEL, 128)


@pytest.mark.slow
def test_for_a_generator_every_attention_is_one_operator(tmp_path: Path) -> None:
    settings = GenaiSettings(special=Special(context=2048, eos=(0,), bos=0))
    found = rw.deploy.genai(speaking.MODEL, tmp_path / "folder", settings)
    assert found.attentions == {"GroupQueryAttention": 6}
    assert found.shared


@pytest.mark.slow
def test_in_few_bits_it_says_almost_the_same() -> None:
    data = Data([Sample(speaking.feeds(text)) for text in TEXTS[:8]], "tokens held out")
    settings = QuantizeSettings(mode="weights", weights="mixed", max_divergence=0.005, min_agreement=0.95, rows=1)
    found = quantize(speaking.MODEL, settings, data=data, gate=None, threads=1)
    run = runner(io.load(found.model))
    assert found.forms
    assert speaking.perplexity(run, TEXTS[8:]) < 1.02 * speaking.perplexity(runner(speaking.MODEL), TEXTS[8:])
