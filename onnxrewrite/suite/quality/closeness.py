"""Closeness of results to those of a reference, over all samples: the requirement on a quantized model.

Equality up to rounding is another question, see ``tolerance``.  This module knows neither models nor sessions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import cast

import numpy as np

from onnxrewrite.reference.tolerance import finite
from onnxrewrite.report.plain_reports import ClosenessRow
from onnxrewrite.system.arrays import Array, Floats, Held

TOP = 5
"""k of the top-k agreement."""


@dataclass(frozen=True)
class Closeness:
    """One output over all samples, all elements taken together.

    Attributes:
        cosine: x·y / (|x| |y|); 1 where both are zero throughout, 0 where one is not finite and the other is.
        snr: Signal-to-noise ratio 10 log10(|x|² / |x - y|²) in decibels; infinite where they are equal.
        largest: max |x - y|.
        mean: Mean of |x - y|.
        agreement: Fraction of equal elements of an output of integers, booleans or strings; None for numbers.
        top1: Fraction of rows whose largest element is the same; None where the output is no classification.
        topk: Mean overlap of the ``TOP`` largest elements of a row; likewise.
        divergence: Mean Kullback-Leibler divergence of the distributions that rows of scores stand for, in nats, the
            reference's being the true one: Σ p (log p - log q), p and q by Softmax; likewise.
        broken: Elements that are finite in one and not in the other.
    """

    cosine: float = 1.0
    snr: float = math.inf
    largest: float = 0.0
    mean: float = 0.0
    agreement: float | None = None
    top1: float | None = None
    topk: float | None = None
    divergence: float | None = None
    broken: int = 0

    @property
    def score(self) -> float:
        """The score for a gate: the cosine, or the agreement if there are no numbers; 0 if any element is broken."""
        if self.broken:
            return 0.0
        return self.cosine if self.agreement is None else self.agreement

    @property
    def distance(self) -> float:
        """The divergence; of an output that holds no scores the power of the error to that of the reference.

        Both grow with the square of a small error, so that those of several errors add up.
        """
        if self.broken:
            return math.inf
        return 10 ** (-self.snr / 10) if self.divergence is None else self.divergence

    def to_json(self) -> ClosenessRow:
        """Plain data; None for what is infinite."""
        plain = {name: finite(v) if isinstance(v, float) else v for name, v in asdict(self).items()}
        return cast(ClosenessRow, plain)


class Gauge:
    """Takes in one output, sample by sample.

    Args:
        classes: True if its last axis holds scores of classes.
    """

    def __init__(self, *, classes: bool = False):
        self._classes = classes
        self._dot = self._reference = self._other = self._noise = 0.0
        self._sum = self._largest = 0.0
        self._count = self._broken = 0
        self._equal: int | None = None
        self._rows = self._first = 0
        self._overlap = self._divergence = 0.0

    def add(self, reference: Held, value: Held) -> None:
        """One sample's output, and the reference's; another shape counts as broken throughout."""
        if isinstance(reference, list):  # a sequence: each of its tensors
            pairs: Iterable[tuple[Held, Held]] = ((np.ones(1), None),)
            if isinstance(value, list) and len(value) == len(reference):
                pairs = zip(reference, value, strict=True)
            for one, other in pairs:
                self.add(one, other)
            return
        x, y = np.asarray(reference), np.asarray(value)
        if x.shape != y.shape:
            self._broken += max(x.size, 1)
        elif x.dtype.kind in "biuOSU":
            self._equal = (self._equal or 0) + int(np.count_nonzero(x == y))
            self._count += x.size
        else:
            self._numbers(x.astype(np.float64), y.astype(np.float64))
            if self._classes and x.ndim and x.shape[-1] > 1:
                self._ranks(x.reshape(-1, x.shape[-1]), y.reshape(-1, x.shape[-1]))

    def _numbers(self, x: Floats, y: Floats) -> None:
        both = np.isfinite(x) & np.isfinite(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        self._broken += int(np.count_nonzero(~both & ~same))
        x, y = x[both], y[both]
        apart = np.abs(x - y)
        self._dot += float(np.dot(x, y))
        self._reference += float(np.dot(x, x))
        self._other += float(np.dot(y, y))
        self._noise += float(np.dot(apart, apart))
        self._sum += float(apart.sum())
        self._largest = max(self._largest, float(apart.max(initial=0.0)))
        self._count += x.size

    def _ranks(self, x: Array, y: Array) -> None:
        k = min(TOP, x.shape[-1])
        first, second = (np.argsort(-a.astype(np.float64), axis=-1, kind="stable")[:, :k] for a in (x, y))
        self._rows += len(x)
        self._first += int(np.count_nonzero(first[:, 0] == second[:, 0]))
        self._overlap += sum(len(np.intersect1d(a, b)) / k for a, b in zip(first, second, strict=True))
        with np.errstate(all="ignore"):  # what is no number in one of them alone is broken
            p, q = (_log_softmax(a.astype(np.float64)) for a in (x, y))
            apart = np.where(p > -math.inf, p - q, 0.0)  # what cannot be has no part in it
            self._divergence += float(np.nansum(np.exp(p) * apart))

    @property
    def closeness(self) -> Closeness:
        """The closeness over all samples so far."""
        agreement = None if self._equal is None else self._equal / max(self._count, 1)
        return Closeness(
            cosine=self._cosine(),
            snr=_decibels(self._reference, self._noise),
            largest=self._largest,
            mean=self._sum / max(self._count, 1),
            agreement=agreement,
            top1=self._first / self._rows if self._rows else None,
            topk=self._overlap / self._rows if self._rows else None,
            divergence=max(0.0, self._divergence / self._rows) if self._rows else None,
            broken=self._broken,
        )

    def _cosine(self) -> float:
        if self._noise == 0:
            return 1.0
        norms = math.sqrt(self._reference) * math.sqrt(self._other)
        return min(1.0, self._dot / norms) if norms else 0.0


def _log_softmax(rows: Floats) -> Floats:
    shifted = rows - rows.max(axis=-1, keepdims=True)
    return cast(Floats, shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def distance(found: Mapping[str, Closeness]) -> float:
    """The largest distance of the outputs that hold scores; of all outputs where none does."""
    scores = [each for each in found.values() if each.divergence is not None]
    return max((each.distance for each in scores or found.values()), default=0.0)


def agreement(found: Mapping[str, Closeness]) -> float:
    """The least share of rows of scores whose first class is the same; 1 where no output holds scores."""
    return min((each.top1 for each in found.values() if each.top1 is not None), default=1.0)


def worst(found: Mapping[str, Closeness]) -> str | None:
    """The output that is furthest off; None where there are none."""
    return min(found, key=lambda name: (found[name].score, found[name].snr), default=None)
