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
from onnxrewrite.runtime.session import open_session
from onnxrewrite.suite.quality.data import Data, Sample
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.quantizer import quantize
from onnxrewrite.system.arrays import Outputs

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


def test_it_speaks_as_it_did() -> None:
    run = runner(speaking.MODEL)
    assert speaking.perplexity(run, TEXTS) == pytest.approx(EXPECTED["perplexity"], rel=1e-3)
    assert EXPECTED["perplexity"] < 40  # by chance it would be 1,024
    assert speaking.greedy(run, TEXTS[0][:16], 32) == EXPECTED["greedy"]


def test_rewritten_it_says_the_same() -> None:
    found = rw.apply(speaking.MODEL, lower="fused")
    assert sum("Attention" in node.op_type for node in found.model.graph) == 6
    assert found.trace.counts()["rotary"] == 12
    run = runner(found.model)
    assert speaking.perplexity(run, TEXTS) == pytest.approx(EXPECTED["perplexity"], rel=1e-4)
    assert speaking.greedy(run, TEXTS[0][:16], 128) == speaking.greedy(runner(speaking.MODEL), TEXTS[0][:16], 128)


@pytest.mark.slow
def test_in_few_bits_it_says_almost_the_same() -> None:
    data = Data([Sample(speaking.feeds(text)) for text in TEXTS[:8]], "tokens held out")
    settings = QuantizeSettings(mode="weights", weights="mixed", max_divergence=0.005, min_agreement=0.95, rows=1)
    found = quantize(speaking.MODEL, settings, data=data, gate=None, threads=1)
    run = runner(io.load(found.model))
    assert found.forms
    assert speaking.perplexity(run, TEXTS[8:]) < 1.02 * speaking.perplexity(runner(speaking.MODEL), TEXTS[8:])
