"""The quality of a decoder on texts: the tokens that it would write next, and its perplexity.

This module knows neither models nor sessions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnxrewrite.reference.tolerance import finite
from onnxrewrite.report.plain_reports import TextRow
from onnxrewrite.system.arrays import Array, Feeds, Floats, Outputs

_MOST = 700.0
"""Nats of which exp is a number."""


@dataclass(frozen=True)
class TextParts:
    """The inputs and outputs of a decoder that hold texts.

    Attributes:
        ids: Token ids, [batch, tokens].
        mask: 1 for each token that counts, [batch, past + tokens]; None where all do.
        logits: [batch, tokens, words].
    """

    ids: str
    mask: str | None
    logits: str


@dataclass(frozen=True)
class TextQuality:
    """The quality of a decoder beside a reference, on the same texts.

    Attributes:
        agreement: The share of places where the most likely next token is the reference's.
        perplexity: exp of the mean of -log p of the next token of the text, in nats.
        baseline: That of the reference.
        tokens: The number of places.
    """

    agreement: float
    perplexity: float
    baseline: float
    tokens: int

    @property
    def growth(self) -> float:
        """The perplexity as a multiple of the reference's."""
        return self.perplexity / self.baseline

    def to_json(self) -> TextRow:
        """Plain data; None for what is not finite."""
        return {
            "agreement": self.agreement,
            "perplexity": finite(self.perplexity),
            "baseline": finite(self.baseline),
            "tokens": self.tokens,
        }


class TextGauge:
    """Takes in texts, one after the other.

    Args:
        parts: The inputs and outputs of the decoder.
    """

    def __init__(self, parts: TextParts):
        self._parts = parts
        self._places = self._equal = 0
        self._losses = np.zeros(2)

    def add(self, text: Feeds, reference: Outputs, outputs: Outputs) -> None:
        """The inputs of a run, a text or several of one length; what the reference gives for them, and the decoder.

        Logits of the last token alone tell nothing: no token of the text follows it.
        """
        theirs, ours = (np.asarray(each[self._parts.logits], np.float64) for each in (reference, outputs))
        texts = np.asarray(text[self._parts.ids])
        if theirs.shape != ours.shape or theirs.shape[:2] != texts.shape:
            return
        for row, ids in enumerate(texts):
            following, counts = ids[1:], _counting(self._parts, text, row)
            counts &= (following >= 0) & (following < ours.shape[-1])
            first, second = theirs[row, :-1][counts], ours[row, :-1][counts]
            self._places += len(first)
            self._equal += int((first.argmax(-1) == second.argmax(-1)).sum())
            self._losses += [float(_loss(each, following[counts]).sum()) for each in (second, first)]

    @property
    def quality(self) -> TextQuality | None:
        """The quality so far; None where no token has a next."""
        if not self._places:
            return None
        means = self._losses / self._places
        perplexity, baseline = (math.exp(mean) if mean < _MOST else math.inf for mean in means)
        return TextQuality(self._equal / self._places, perplexity, baseline, self._places)


def _counting(parts: TextParts, text: Feeds, row: int) -> Array:
    """True for each token but the last, where it counts and the next one does."""
    ids = np.asarray(text[parts.ids])[row]
    mask = np.asarray(text[parts.mask])[row][-len(ids) :] if parts.mask is not None else np.ones(len(ids))
    counts = mask.astype(bool)
    both: Array = counts[1:] & counts[:-1]
    return both


def _loss(scores: Floats, tokens: Array) -> Floats:
    """-log p of tokens [places] by their scores [places, words]; infinite where one is no number."""
    shifted = scores - scores.max(-1, keepdims=True, initial=-math.inf)
    with np.errstate(all="ignore"):
        loss = np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(scores)), tokens]
    made: Floats = np.where(np.isnan(loss), math.inf, loss)
    return made
