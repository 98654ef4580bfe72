"""Tokens and perplexity of a decoder on texts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxrewrite.suite.quality.closeness import Closeness
from onnxrewrite.suite.quality.gate import Gate, Quality
from onnxrewrite.suite.quality.texts import TextGauge, TextParts, TextQuality

PARTS = TextParts("ids", "mask", "logits")


def scores(*rows: list[float]) -> dict[str, np.ndarray]:
    """The logits of one text, as logarithms of probabilities."""
    return {"logits": np.log(np.array([rows], np.float32))}


def test_what_the_next_token_is_and_how_likely() -> None:
    gauge = TextGauge(PARTS)
    text = {"ids": np.array([[0, 1, 2]]), "mask": np.ones((1, 3))}
    gauge.add(
        text,
        scores([0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [1.0, 1.0, 1.0]),
        scores([0.2, 0.5, 0.3], [0.6, 0.2, 0.2], [9.0, 1.0, 1.0]),  # nothing comes after the last
    )
    found = gauge.quality
    assert found is not None
    assert found.tokens == 2
    assert found.agreement == 0.5
    assert found.baseline == pytest.approx(math.exp(-(math.log(0.5) + math.log(0.8)) / 2))
    assert found.perplexity == pytest.approx(math.exp(-(math.log(0.5) + math.log(0.2)) / 2))
    assert found.growth == pytest.approx(2.0)


def test_padding_and_words_beyond_the_last_do_not_count() -> None:
    gauge = TextGauge(PARTS)
    text = {"ids": np.array([[7, 1, 2, 1]]), "mask": np.array([[9, 9, 9, 0, 1, 1, 1]])}  # after three others
    same = scores([1.0, 1.0, 9.0], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [1.0, 1.0, 1.0])
    gauge.add(text, same, same)
    assert gauge.quality is not None
    assert gauge.quality.tokens == 2
    none = TextGauge(TextParts("ids", None, "logits"))
    none.add({"ids": np.array([[0, -1]])}, scores([1.0, 1.0], [1.0, 1.0]), scores([1.0, 1.0], [1.0, 1.0]))
    assert none.quality is None


def test_logits_of_the_last_token_alone_tell_nothing() -> None:
    gauge = TextGauge(TextParts("ids", None, "logits"))
    last = scores([0.2, 0.5, 0.3])
    gauge.add({"ids": np.array([[0, 1, 2]])}, last, last)
    assert gauge.quality is None
    gauge.add({"ids": np.array([[0, 1]])}, scores([0.5, 0.5], [1, 1]), scores([0.5, 0.5]))  # told as broken elsewhere
    assert gauge.quality is None


def test_what_is_no_number_is_infinitely_unlikely() -> None:
    gauge = TextGauge(TextParts("ids", None, "logits"))
    gauge.add({"ids": np.array([[0, 1]])}, scores([0.5, 0.5], [1, 1]), {"logits": np.full((1, 2, 2), np.nan)})
    assert gauge.quality is not None
    assert gauge.quality.perplexity == math.inf
    assert gauge.quality.to_json()["perplexity"] is None


def test_tokens_and_perplexity_decide_for_a_decoder() -> None:
    far = {"logits": Closeness(cosine=0.5)}
    good = TextQuality(0.99, 10.05, 10.0, 100)
    assert Gate().refuses(Quality(far, text=good)) == ""
    assert Gate().refuses(Quality(far)).startswith("the cosine similarity")
    few = Gate().refuses(Quality({}, text=TextQuality(0.97, 10.0, 10.0, 100)))
    assert few == "97.0% of greedy tokens are the original's, fewer than 98.0%"
    worse = Gate().refuses(Quality({}, text=TextQuality(1.0, 10.2, 10.0, 100)))
    assert worse == "the perplexity is 10.2, more than 1.01 times the original's 10"
    assert Gate(max_perplexity=1.03, min_tokens=0.9).refuses(Quality({}, text=TextQuality(0.9, 10.2, 10.0, 100))) == ""
    assert "not finite" in Gate().refuses(Quality({"logits": Closeness(broken=1)}, text=good))
    assert Gate().refuses(Quality({}, metric=0.5, baseline=0.9, text=good)).startswith("the metric is")
