"""The inputs of the decoder that speaks, and its perplexity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx

MODEL = Path(__file__).parent / "decoder.onnx"
LENGTH = 256
"""Tokens of a piece of text, as in training."""

Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Runs the decoder: inputs by name to outputs by name."""


def held_out() -> np.ndarray:
    """Tokens, int64 [count], of texts that it was not trained on."""
    return np.load(Path(__file__).parent / "held_out.npy").astype(np.int64)


def pieces(tokens: np.ndarray) -> list[np.ndarray]:
    """Texts of ``LENGTH`` tokens, one after the other; what is left over is left out."""
    return list(tokens[: len(tokens) // LENGTH * LENGTH].reshape(-1, LENGTH))


def cache_sizes() -> dict[str, tuple[int, int]]:
    """Names of keys and values that are past to their numbers of heads and sizes."""
    inputs = onnx.load(MODEL, load_external_data=False).graph.input
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in inputs}
    return {name: (shape[1], shape[3]) for name, shape in shapes.items() if len(shape) == 4}


def feeds(tokens: np.ndarray, past: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """The inputs for tokens [sequence] that come after a past, which is empty without one."""
    empty = {name: np.zeros((1, heads, 0, size), np.float32) for name, (heads, size) in cache_sizes().items()}
    known = dict(past) if past is not None else empty
    before = next(iter(known.values())).shape[2]
    after = before + len(tokens)
    return {
        "input_ids": tokens[None].astype(np.int64),
        "attention_mask": np.ones((1, after), np.int64),
        "position_ids": np.arange(before, after, dtype=np.int64)[None],
        **known,
    }


def made_up_past(length: int) -> dict[str, np.ndarray]:
    """Keys and values of so many tokens, drawn at random."""
    rng = np.random.default_rng(0)
    return {n: rng.normal(size=(1, heads, length, size)).astype(np.float32) for n, (heads, size) in cache_sizes().items()}


def loss(logits: np.ndarray, tokens: np.ndarray) -> float:
    """The mean of -log p of the next token, in nats: logits [sequence, words] of tokens [sequence]."""
    scores = logits[:-1].astype(np.float64)
    shifted = scores - scores.max(-1, keepdims=True)
    return float(np.mean(np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(scores)), tokens[1:]]))


def perplexity(run: Run, texts: Iterable[np.ndarray]) -> float:
    """exp of the mean loss over texts of equal lengths."""
    return math.exp(float(np.mean([loss(run(feeds(text))["logits"][0], text) for text in texts])))

