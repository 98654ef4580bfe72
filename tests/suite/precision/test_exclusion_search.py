"""The way on from a refused model: nodes are named, and as few as it takes are left in float."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from suite.precision.graphs import mlp

from onnxrewrite.errors import CheckError
from onnxrewrite.suite.precision.exclusion_search import settings_until
from onnxrewrite.suite.quality.gate import Gate
from onnxrewrite.suite.quantization.modes import single
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.workbench import Work

TENSOR = QuantizeSettings(per_channel=False, mode="static")
"""One scale for a whole weight, of which one layer has a channel that is a hundred times as large."""


def samples() -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    return [{"x": rng.normal(size=(4, 32)).astype(np.float32)} for _ in range(12)]


def test_a_refusal_names_the_nodes_that_are_furthest_off() -> None:
    with Work(mlp(outlier=2), samples()) as work, pytest.raises(CheckError) as raised:
        single(work, TENSOR, gate=Gate(max_drop=1e-5), seconds=0.01)
    assert "furthest off are MatMul fc2/MatMul" in str(raised.value) or "furthest off are MatMul fc3/" in str(
        raised.value
    )
    assert "--until" in str(raised.value)


def test_as_few_nodes_as_it_takes_stay_in_float() -> None:
    with Work(mlp(outlier=2), samples()) as work:
        work.read_data([TENSOR])
        whole = work.quality(work.make(TENSOR)).drop
        gate = Gate(max_drop=whole / 4)
        found = settings_until(work, TENSOR, gate)
        assert 1 <= len(found.exclude) <= 3
        made = single(work, found, gate=gate, seconds=0.01)
    assert made.quality is not None
    assert made.quality.drop <= whole / 4
    assert not set(found.exclude) & set(made.nodes)


def test_settings_that_pass_stay_as_they_are() -> None:
    with Work(mlp(), samples()) as work:
        work.read_data([TENSOR])
        assert settings_until(work, TENSOR, Gate(max_drop=0.5)) == TENSOR


@pytest.mark.slow
def test_where_nothing_passes_the_nearest_is_told() -> None:
    with Work(mlp(), samples()) as work:
        work.read_data([TENSOR])
        with pytest.raises(CheckError, match=r"the nearest comes to 0\.99\d+, with \d of \d nodes in float"):
            settings_until(work, TENSOR, Gate(max_drop=1e-12))


def test_products_of_dynamic_are_given_blocks_before_floats() -> None:
    settings = QuantizeSettings(smooth=True)
    with Work(mlp(outlier=2), samples()) as work:
        work.read_data([settings])
        names = list(work.chosen(settings)[1])
        none, every = (
            work.quality(work.unfused(replace(settings, in_blocks=tuple(named)))).drop for named in ([], names)
        )
        assert every < none
        gate = Gate(max_drop=(none + every) / 2)
        found = settings_until(work, settings, gate, fused=False, many=0)
        assert 1 <= len(found.in_blocks) <= len(names)
        assert not found.exclude
        assert work.quality(work.unfused(found)).drop <= gate.max_drop


@pytest.mark.slow
def test_a_budget_ends_the_search_for_a_closer_form() -> None:
    with Work(mlp(outlier=2), samples()) as work:
        work.read_data([TENSOR])
        whole = work.quality(work.make(TENSOR)).drop
        gate = Gate(max_drop=whole / 4)
        complete = settings_until(work, TENSOR, gate)
        with pytest.raises(CheckError, match="the budget was spent before a choice of nodes in float was good enough"):
            settings_until(work, TENSOR, Gate(max_drop=1e-12), left=lambda: 0.0)
        asked: list[int] = []

        def left() -> float:  # the doubling ends in time, the bisection is cut short
            asked.append(1)
            return 1.0 if len(asked) < 3 else 0.0

        found = settings_until(work, TENSOR, gate, left=left)
        assert work.quality(work.make(found)).drop <= gate.max_drop
        assert len(found.exclude) >= len(complete.exclude)
