"""The check of a decoder that is to replace another one: both write the same tokens.

Texts of several lengths are continued by both, one token at a time, each the most likely one; the replacement is given
the tokens of the original, so that one difference does not entail all that follow.  Several texts at once, filled up to
one length, must be continued as each by itself.

Two tokens are a *tie* where the original itself does not tell them apart by more than both differ in their logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxrewrite.errors import CheckError, ModelError
from onnxrewrite.suite.decoders.greedy_generation import Side, Text, forced, greedy
from onnxrewrite.system.arrays import Array

_LARGEST = {"tensor(float)": 1e-4, "tensor(double)": 1e-4, "tensor(float16)": 2e-2}
"""The largest difference of logits, as a part of the range that they span; rounding differs by order of sums."""

_LENGTHS = (1, 7, 19)
"""Tokens of the prompts."""


@dataclass
class TokenCheck:
    """A comparison of tokens.

    Attributes:
        tokens: The number of tokens that were compared.
        ties: Those that differ where the original does not tell them apart.
        error: The largest difference of logits, as a part of the range that they span.
        runs: What was run.
    """

    tokens: int = 0
    ties: int = 0
    error: float = 0.0
    runs: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"tokens": self.tokens, "ties": self.ties, "error": self.error, "runs": self.runs}


def largest(side: Side) -> float:
    """The largest difference of logits that rounding explains, as a part of the range that they span."""
    return _LARGEST.get(side.session.types[side.interface.logits], 2e-2)


def prompts(words: int, context: int, steps: int, seed: int) -> list[list[int]]:
    """Prompts of several lengths, of tokens at random."""
    rng = np.random.default_rng(seed)
    most = max(1, context - steps)
    return [rng.integers(0, words, min(length, most)).tolist() for length in _LENGTHS]


def check_tokens(
    original: Side, made: Side, texts: Sequence[Sequence[int]], steps: int, *, apart: bool, sides: Sequence[str]
) -> tuple[TokenCheck, list[Text]]:
    """Compare two decoders; also what the original wrote.

    Args:
        original: The original.
        made: Its replacement.
        texts: The prompts, two or more.
        steps: The number of tokens after each.
        apart: True if several texts at once are to be continued as each by itself, False if as the original does.
        sides: Where the shorter of several texts is filled up: ``right``, ``left``.

    Raises:
        CheckError: They write different tokens, or their logits differ by more than rounding explains.
        ModelError: One of them cannot be run.
    """
    found, written, most = TokenCheck(), list[Text](), largest(original)
    for prompt in texts:
        wanted = greedy(original, prompt, steps)
        actual = forced(made, prompt, wanted.tokens, steps)
        compare(found, wanted, actual.tokens, actual.logits, most, f"a prompt of {len(prompt)}")
        written.append(wanted)
    several, alone = (texts[1], texts[-1]), (written[1], written[-1])
    for side in sides:
        actuals = _together(made, several, alone, steps, side)
        wanteds = alone if apart else _together(original, several, alone, steps, side)
        for first, second in zip(wanteds, actuals, strict=True):
            compare(found, first, second.tokens, second.logits, most, f"two texts, padded on the {side}")
    return found, written


def compare(found: TokenCheck, wanted: Text, tokens: Array, logits: Array | None, most: float, what: str) -> None:
    """Compare a text with what was wanted; see ``check_tokens``.  ModelError if that is no number."""
    for step, (first, second) in enumerate(zip(wanted.tokens, tokens, strict=False)):
        scores = wanted.logits[step]
        if not np.isfinite(scores).all():
            raise ModelError(
                f"the model itself gives logits that are no finite numbers, for token {step + 1} of {what}; "
                "nothing was written"
            )
        span = float(np.ptp(scores)) or 1.0
        error = float(np.abs(scores - logits[step]).max()) / span if logits is not None else most
        if not error <= most:
            raise CheckError(
                f"the logits differ by {error:.2g} of their range at token {step + 1} of {what}; nothing was written"
            )
        found.tokens += 1
        found.error = max(found.error, error if logits is not None else 0.0)
        if first == second:
            continue
        gap = float(scores[first] - scores[second]) / span
        if not gap <= 2 * error:
            raise CheckError(
                f"the tokens differ: {int(second)} in place of {int(first)} at token {step + 1} of {what}; "
                "nothing was written"
            )
        found.ties += 1
        if logits is None:
            break  # what follows is another text
    if what not in found.runs:
        found.runs.append(what)


def furthest(side: Side, texts: Sequence[Sequence[int]], written: Sequence[Text]) -> float:
    """The largest difference of a decoder's logits from those of texts that were written, as a part of their range."""
    found = 0.0
    for prompt, wanted in zip(texts, written, strict=True):
        actual = forced(side, prompt, wanted.tokens, len(wanted.tokens))
        spans = np.ptp(wanted.logits, axis=-1)
        apart = np.abs(wanted.logits - actual.logits).max(axis=-1)
        found = max(found, float(np.max(apart / np.where(spans > 0, spans, 1.0))))
    return found


def _together(
    side: Side, texts: Sequence[Sequence[int]], written: Sequence[Text], steps: int, padded: str
) -> list[Text]:
    """Several texts continued at once, forced to what was written."""
    longest = max(map(len, texts))
    ids, mask = np.zeros((len(texts), longest), np.int64), np.zeros((len(texts), longest), np.int64)
    for row, text in enumerate(texts):
        place = slice(0, len(text)) if padded == "right" else slice(longest - len(text), longest)
        ids[row, place], mask[row, place] = text, 1
    last = [len(text) - 1 if padded == "right" else longest - 1 for text in texts]
    generator = side.start()
    logits = generator.step(ids, mask)
    last = last if logits.shape[1] > 1 else [0] * len(texts)  # it has those of the last token only
    scores = [logits[np.arange(len(texts)), last]]
    for step in range(steps - 1):
        ids = np.asarray([[text.tokens[step]] for text in written], np.int64)
        scores.append(generator.step(ids)[:, -1])
    return [Text(row.argmax(axis=1), row) for row in np.stack(scores, axis=1)]
