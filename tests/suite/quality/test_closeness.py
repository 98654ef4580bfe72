"""The measures of closeness, against their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from onnxrewrite.suite.quality.closeness import Closeness, Gauge, agreement, distance, worst


def gauged(*pairs: tuple[object, object], classes: bool = False) -> Closeness:
    gauge = Gauge(classes=classes)
    for reference, value in pairs:
        gauge.add(reference, value)
    return gauge.closeness


numbers = arrays(np.float32, (2, 6), elements=st.floats(-100, 100, width=32))


@given(numbers, numbers, numbers, numbers)
def test_samples_count_as_if_they_were_one(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> None:
    found = gauged((a, b), (c, d))
    x, y = (np.concatenate(p).astype(float).ravel() for p in ((a, c), (b, d)))
    assert found.largest == pytest.approx(np.abs(x - y).max())
    assert found.mean == pytest.approx(np.abs(x - y).mean())
    if np.abs(x - y).max() > 0 and x.any() and y.any():
        assert found.cosine == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
        assert found.snr == pytest.approx(20 * math.log10(np.linalg.norm(x) / np.linalg.norm(x - y)))


@given(numbers)
def test_equal_is_one(a: np.ndarray) -> None:
    found = gauged((a, a.copy()))
    assert (found.cosine, found.largest, found.mean, found.snr, found.score) == (1.0, 0.0, 0.0, math.inf, 1.0)


def test_nothing_against_something_is_zero() -> None:
    found = gauged((np.zeros(3), np.ones(3)))
    assert found.cosine == 0
    assert found.snr == -math.inf


def test_a_number_that_became_nan_is_broken() -> None:
    found = gauged((np.array([1.0, 2.0, np.nan]), np.array([1.0, np.nan, np.nan])))
    assert found.broken == 1
    assert found.score == 0


def test_the_same_infinities_are_equal() -> None:
    found = gauged((np.array([1.0, np.inf]), np.array([1.0, np.inf])), (np.array([-np.inf]), np.array([-np.inf])))
    assert found.broken == 0
    assert found.score == 1


def test_another_shape_is_broken() -> None:
    assert gauged((np.ones((2, 3)), np.ones((3, 2)))).broken == 6
    assert gauged((np.ones((0, 3)), np.ones((1, 3)))).broken == 1
    assert gauged((np.ones(2), None)).broken == 2


def test_integers_agree_or_do_not() -> None:
    found = gauged((np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])), (np.array([True]), np.array([True])))
    assert found.agreement == pytest.approx(0.8)
    assert found.score == pytest.approx(0.8)


def test_strings_agree() -> None:
    assert gauged((np.array(["a", "b"], object), np.array(["a", "c"], object))).agreement == 0.5


def test_the_first_class() -> None:
    x = np.array([[0.1, 0.9, 0.0], [0.8, 0.1, 0.1]])
    y = np.array([[0.2, 0.7, 0.1], [0.1, 0.8, 0.1]])
    found = gauged((x, y), classes=True)
    assert found.top1 == 0.5
    assert found.topk == 1.0  # there are only three


def test_a_sequence_is_each_of_its_tensors() -> None:
    ones = np.ones(3)
    assert gauged(([ones, ones], [ones, ones])).score == 1
    assert gauged(([ones, ones], [ones])).broken == 1


def test_an_empty_output_is_equal() -> None:
    assert gauged((np.ones((0, 3)), np.ones((0, 3)))).score == 1


def test_the_worst_is_the_one_furthest_off() -> None:
    assert worst({"a": Closeness(cosine=0.9), "b": Closeness(cosine=0.8), "c": Closeness()}) == "b"
    assert worst({}) is None


def test_what_is_infinite_is_none_in_json() -> None:
    assert Closeness().to_json()["snr"] is None


@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.floats(0.001, 3))
def test_divergence_is_that_of_the_distributions(seed: int, classes: int, apart: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(5, classes))
    y = x + apart * rng.normal(size=x.shape)
    gauge = Gauge(classes=True)
    for one, other in zip(x, y, strict=True):
        gauge.add(one[None], other[None])
    p, q = (np.exp(a) / np.exp(a).sum(-1, keepdims=True) for a in (x, y))
    expected = float((p * np.log(p / q)).sum(-1).mean())
    assert gauge.closeness.divergence == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert gauge.closeness.distance == gauge.closeness.divergence


def test_divergence_where_scores_are_infinite() -> None:
    masked = np.array([[0.0, 1.0, -np.inf]])
    gauge = Gauge(classes=True)
    gauge.add(masked, masked)
    assert gauge.closeness.divergence == 0
    gauge.add(masked, np.array([[0.0, np.nan, -np.inf]]))
    assert gauge.closeness.distance == np.inf


def test_distance_of_what_holds_no_scores_is_the_power_of_the_error() -> None:
    gauge = Gauge()
    gauge.add(np.array([3.0, 4.0]), np.array([3.0, 4.5]))
    assert gauge.closeness.divergence is None
    assert gauge.closeness.distance == pytest.approx(0.25 / 25)
    scores = Closeness(divergence=0.5)
    assert distance({"logits": scores, "present": gauge.closeness}) == 0.5
    assert distance({"present": gauge.closeness}) == gauge.closeness.distance
    assert agreement({"logits": Closeness(top1=0.9), "more": Closeness(top1=0.8), "present": Closeness()}) == 0.8
