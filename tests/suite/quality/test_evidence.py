"""Doubts about data: each way in which they can be bad is told, and good ones are not doubted."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from onnxrewrite.inputs.bindings import InputSpec
from onnxrewrite.suite.quality.data import Data, Sample
from onnxrewrite.suite.quality.evidence import doubts

IMAGE = InputSpec("x", TensorProto.FLOAT, ("batch", 3, 8, 8))


def images(count: int = 12, *, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((1, 3, 8, 8)).astype(np.float32) for _ in range(count)]


def doubted(arrays: list[np.ndarray], **more: Any) -> list[str]:
    """With outputs that tell the images apart, unless others are given."""
    outputs = more.pop("outputs", [{"y": a.reshape(1, -1)[:, :5]} for a in arrays])
    data = Data([Sample({"x": a}) for a in arrays], "images", **more)
    return doubts(data, outputs, [IMAGE], ["y"])


def test_good_data_are_not_doubted() -> None:
    assert doubted(images()) == []
    assert doubted([np.rint(a * 40 + 128) for a in images()]) == [], "a model may take pixels as they are"


def test_nothing_is_said_of_what_was_made_up() -> None:
    assert doubted([a / 50 for a in images(1)], generated=True) == []


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ([a / 50 for a in images()], "lies within ±0.07.*, which is little for images: were they scaled twice"),
        ([a * 50.5 for a in images()], "reaches 1.*, which is much for normalized images: were they normalized"),
        ([0 * a for a in images()], "input x is -?0 throughout"),
        (images(1) * 12, "all 12 samples are equal"),
        (images(3), "judged on 3 samples only"),
        (images(1), "judged on 1 sample only"),
    ],
)
def test_bad_data_are_doubted(arrays: list[np.ndarray], said: str) -> None:
    assert [line for line in doubted(arrays) if re.search(said, line)]


def test_outputs_that_are_all_alike_are_no_evidence() -> None:
    alike = [{"y": np.array([[1.0, 2.0, 3.0]], np.float32) + np.float32(1e-3 * n)} for n in range(12)]
    found = doubted(images(), outputs=alike)
    assert "output y hardly differs between samples (0.2% of it), so closeness says little" in found
    assert "all 12 rows of y have the same first class, 2: give data of every class" in found


def test_a_score_of_one_number_has_no_classes() -> None:
    scores = [{"y": np.array([[np.float32(n)]])} for n in range(12)]
    assert doubted(images(), outputs=scores) == []


def test_rows_that_run_at_once_count_as_samples() -> None:
    assert doubted(images(2), batch=64) == []


def test_few_data_are_calibrated_and_judged_on_alike_and_that_is_told() -> None:
    few = Data([Sample({"x": a}) for a in images(7)], "images")
    calibrated, judged = few.parted()
    assert calibrated.samples == judged.samples == few.samples
    assert "the same data" in judged.doubt


def test_every_fourth_sample_is_kept_from_calibration() -> None:
    data = Data([Sample({"x": np.full((1, 3, 8, 8), n)}) for n in range(10)], "images")
    calibrated, judged = data.parted()
    assert [int(s.inputs["x"][0, 0, 0, 0]) for s in judged] == [3, 7]
    assert [int(s.inputs["x"][0, 0, 0, 0]) for s in calibrated] == [0, 1, 2, 4, 5, 6, 8, 9]
    assert judged.source == "images (2 of 10 samples, kept from calibration)"
    assert not judged.doubt
