"""Tasks with labels, drawn anew from a seed: shapes in noise, texts of several subjects, tastes, and boxes.

Each is a function of a number of samples and a seed.  It gives inputs, arrays [samples, ...] by name, and labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

SIDE, SHAPES = 32, 8
"""Of an image, in pixels; the number of kinds of shapes."""
WORDS, LENGTH, SUBJECTS = 256, 48, 6
"""Of texts."""
USERS, ITEMS, TRAITS = 600, 800, 8
"""Of tastes."""

Arrays = Mapping[str, np.ndarray]


def shapes(count: int, seed: int) -> tuple[Arrays, np.ndarray]:
    """Images [count, 3, 32, 32] of a shape before a noisy ground, and its kind."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, SHAPES, count)
    return {"image": np.stack([_drawn(rng, kind)[0] for kind in kinds])}, kinds


def boxes(count: int, seed: int) -> tuple[Arrays, np.ndarray]:
    """The same images, and where the shape is: the middle and half the side, [count, 3], parts of the image's side."""
    rng = np.random.default_rng(seed)
    drawn = [_drawn(rng, int(rng.integers(0, SHAPES))) for _ in range(count)]
    return {"image": np.stack([image for image, _ in drawn])}, np.stack([where for _, where in drawn])


def _drawn(rng: np.random.Generator, kind: int) -> tuple[np.ndarray, np.ndarray]:
    radius = rng.uniform(5, 10)
    y, x = rng.uniform(radius, SIDE - radius, 2)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    dy, dx = (rows - y) / radius, (columns - x) / radius
    far, wide = np.hypot(dy, dx), np.maximum(abs(dy), abs(dx))
    inside = (
        far < 1,
        wide < 0.85,
        (wide < 1) & (abs(dx) < (dy + 1) / 2),
        (wide < 1) & (np.minimum(abs(dy), abs(dx)) < 0.3),
        (far < 1) & (far > 0.6),
        (wide < 1) & (np.floor(3 * dy) % 2 == 0),
        (wide < 1) & (np.floor(3 * dx) % 2 == 0),
        abs(dy) + abs(dx) < 1,
    )[kind]
    ground, color = rng.normal(0, 0.4, 3), rng.normal(0, 1, 3)
    color += np.sign(color) * 0.6
    image = ground[:, None, None] + np.where(inside, color[:, None, None], 0) + rng.normal(0, 0.5, (3, SIDE, SIDE))
    return image.astype(np.float32), np.array([y, x, radius], np.float32) / SIDE


def texts(count: int, seed: int) -> tuple[Arrays, np.ndarray]:
    """Texts [count, 48] of words, of which each subject has its own, and the subject; 0 fills them up."""
    own = np.random.default_rng(0).integers(1, WORDS, (SUBJECTS, 24))
    rng = np.random.default_rng(seed + 1)
    kinds = rng.integers(0, SUBJECTS, count)
    words = rng.integers(1, WORDS, (count, LENGTH))
    told = own[kinds[:, None], rng.integers(0, own.shape[1], words.shape)]
    words = np.where(rng.random(words.shape) < 0.2, told, words)
    mask = (np.arange(LENGTH) < rng.integers(LENGTH // 2, LENGTH + 1, count)[:, None]).astype(np.int64)
    return {"input_ids": words * mask, "attention_mask": mask}, kinds


def tastes(count: int, seed: int) -> tuple[Arrays, np.ndarray]:
    """Pairs of a user and an item [count], and whether the one likes the other, which eight hidden traits decide."""
    hidden = np.random.default_rng(0)
    users, items = hidden.normal(size=(USERS, TRAITS)), hidden.normal(size=(ITEMS, TRAITS))
    rng = np.random.default_rng(seed + 1)
    user, item = rng.integers(0, USERS, count), rng.integers(0, ITEMS, count)
    likes = (users[user] * items[item]).sum(-1) + rng.normal(0, 0.5, count) > 0
    return {"user": user, "item": item}, likes.astype(np.int64)


def first_class(outputs: np.ndarray, labels: np.ndarray) -> float:
    """The share of rows [count, classes] whose largest score is that of the label."""
    return float((outputs.argmax(-1) == labels).mean())


def overlap(outputs: np.ndarray, labels: np.ndarray) -> float:
    """The share of boxes that cover the true one, and it them, by more than half of both together."""
    corners = [(b[:, :2] - b[:, 2:], b[:, :2] + b[:, 2:]) for b in (outputs, labels)]
    low, high = np.maximum(corners[0][0], corners[1][0]), np.minimum(corners[0][1], corners[1][1])
    shared = np.clip(high - low, 0, None).prod(-1)
    whole = sum(np.clip(b[:, 2], 0, None) ** 2 * 4 for b in (outputs, labels))
    return float((shared / (whole - shared) > 0.5).mean())


@dataclass(frozen=True)
class Task:
    """One of them.

    Attributes:
        drawn: Gives samples and labels.
        score: Of outputs, by the labels; larger is better, 1 at most.
    """

    drawn: Callable[[int, int], tuple[Arrays, np.ndarray]]
    score: Callable[[np.ndarray, np.ndarray], float]


TASKS = {
    "shapes": Task(shapes, first_class),
    "boxes": Task(boxes, overlap),
    "texts": Task(texts, first_class),
    "tastes": Task(tastes, first_class),
}
