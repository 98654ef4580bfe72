"""Several ways side by side."""

from __future__ import annotations

import pytest
from suite.quantization.models import mlp, samples

from onnxrewrite.errors import CheckError, UsageError
from onnxrewrite.suite.quality.gate import Gate
from onnxrewrite.suite.quantization.modes import Candidate, candidates, compare
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.workbench import Work

FEW = [
    QuantizeSettings(),
    QuantizeSettings(mode="static"),
    QuantizeSettings(mode="static", format="qoperator"),
    QuantizeSettings(mode="weights", operators=("Conv",)),
]


def test_candidates_are_all_modes_and_calibrations() -> None:
    found = candidates(QuantizeSettings(exclude=("x",)))
    assert len(found) == len(set(found)) == 8
    assert {s.mode for s in found} == {"dynamic", "static", "weights"}
    assert {s.calibration for s in found} == {"minmax", "entropy", "percentile", "distribution"}
    assert {s.format for s in found} == {"qdq", "qoperator"}
    assert all(s.exclude == ("x",) for s in found)
    both = candidates(QuantizeSettings(), ["channels"])
    assert {s.per_channel for s in both} == {True, False}
    assert len(both) == 17
    assert {s.symmetric_activations for s in candidates(QuantizeSettings(), ["symmetry"]) if s.mode == "static"} == {
        True,
        False,
    }
    with pytest.raises(UsageError, match="--vary bits: must be channels, symmetry, range"):
        candidates(QuantizeSettings(), ["bits"])


def test_the_best_is_kept() -> None:
    with Work(mlp(), samples(mlp())) as work:
        found = compare(work, FEW, seconds=0.1)
    assert [c.settings for c in found.candidates] == FEW
    made = [c for c in found.candidates if c.quality is not None]
    assert len(made) == 3
    assert all(c.ratio is not None and c.size for c in made)
    assert found.candidates[3].failure == "nothing to quantize: the model has no Conv"
    assert found.best.settings in {c.settings for c in made}
    assert found.best.ratio is not None
    assert len(found.to_json()["candidates"]) == 4


def test_none_is_good_enough() -> None:
    with Work(mlp(), samples(mlp())) as work, pytest.raises(CheckError) as raised:
        compare(work, FEW[:2], gate=Gate(max_drop=1e-9), seconds=0.1)
    text = str(raised.value)
    assert text.startswith("none of 2 candidates is good enough, and nothing was written; the closest, ")
    assert "\n" not in text


def test_none_can_be_made() -> None:
    with Work(mlp(), samples(mlp())) as work, pytest.raises(CheckError, match="none of 1 candidates could be made"):
        compare(work, FEW[3:], seconds=0.1)


def test_a_candidate_is_plain_data() -> None:
    assert Candidate(QuantizeSettings(), failure="why").to_json()["failure"] == "why"
