"""The ranking, what is excluded by it, and the search."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from suite.precision.graphs import golden, mlp, parsed

from onnxrewrite.errors import CheckError, UsageError
from onnxrewrite.suite.precision import search as searching
from onnxrewrite.suite.precision.candidates import Candidates, candidates
from onnxrewrite.suite.precision.exclude import exclusion, within_latency
from onnxrewrite.suite.precision.node_sensitivity import Sensitivity, sensitivity
from onnxrewrite.suite.precision.search import assigned, search_precision
from onnxrewrite.suite.precision.teacher_forcing import node_errors
from onnxrewrite.suite.quality.gate import Gate
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings, excluding
from onnxrewrite.suite.quantization.quantizer import quantize

TENSOR = QuantizeSettings(per_channel=False)
"""One scale for a whole weight: a channel a hundred times as large as the others leaves these hardly any digits."""


def samples() -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    return [{"x": rng.normal(size=(4, 32)).astype(np.float32)} for _ in range(3)]


@pytest.fixture(scope="module")
def variants() -> Candidates:
    return candidates(mlp(outlier=2), TENSOR, data=samples())


@pytest.fixture(scope="module")
def ranked(variants: Candidates) -> Sensitivity:
    return sensitivity(variants)


def test_alone_is_what_quantizing_the_one_node_does(variants: Candidates, ranked: Sensitivity) -> None:
    others = [n for n in variants.nodes if n != ranked[0].name]
    assert ranked[0].snr == variants.judge.quality(variants.model(others)).worst.snr
    assert [n.snr for n in ranked] == sorted(n.snr for n in ranked)
    assert sorted(ranked.names) == sorted(ranked.order) == [f"fc{i}/MatMul" for i in range(4)]


def between() -> onnx.ModelProto:
    """Two convolutions with an activation between them, which static quantization takes along, and not alone."""
    made = parsed("""g (float[b, 3, 8, 8] x) => (float[b, 4, 4, 4] y) <float[4, 3, 3, 3] w, float[4, 4, 1, 1] v> {
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        h = LeakyRelu (c)
        p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (h)
        y = Conv (p, v)
    }""")
    rng = np.random.default_rng(4)
    shapes = {"w": (4, 3, 3, 3), "v": (4, 4, 1, 1)}
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name) for name, shape in shapes.items()
    )
    return made


def test_what_is_quantized_only_between_others_is_ranked_with_them() -> None:
    data = [{"x": np.random.default_rng(n).normal(size=(1, 3, 8, 8)).astype(np.float32)} for n in range(3)]
    found = sensitivity(between(), QuantizeSettings(mode="static"), data=data)
    assert list(found.order) == ["c", "h", "p", "y"]
    assert set(found.names) == set(found.order)
    assert all(math.isfinite(each.snr) for each in found if each.name != "p")  # which only selects numbers
    kept = quantize(between(), excluding(found.settings, ["c"]), data=data, prepare=False, gate=None)
    assert set(kept.nodes) == {"y"}, "nothing stands between float and integers"
    assert found.variants.quality(["c"]).worst == found.variants.judge.quality(kept.model).worst
    assert found.variants.quality(["c", "y"]).worst.snr > 100, "nothing is left to quantize"


@pytest.mark.slow
def test_search_goes_on_where_operators_between_are_ranked(monkeypatch: Any) -> None:
    monkeypatch.setattr(searching._Search, "_try_in_float", lambda *_: None)
    data = [{"x": np.random.default_rng(n).normal(size=(1, 3, 8, 8)).astype(np.float32)} for n in range(3)]
    static = QuantizeSettings(mode="static")
    all_quantized = candidates(between(), static, data=data).quality().worst.snr
    found = search_precision(between(), static, data=data, gate=Gate(min_snr=all_quantized + 0.5))
    assert found.floats
    assert found.quality.worst.snr >= all_quantized + 0.5


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_the_local_method_sees_which_node_makes_the_noise(mode: Any) -> None:
    found = sensitivity(mlp(outlier=2), replace(TENSOR, mode=mode), data=samples(), method="local")
    assert found.names[0][:3] in ("fc2", "fc3")  # the outlier's weights, or what it makes
    assert found[0].snr < found[-1].snr - 3


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_errors_accumulate_and_forced_inputs_stop_them(mode: Any) -> None:
    made = candidates(mlp(), replace(TENSOR, mode=mode), data=samples())
    own, running = node_errors(made), node_errors(made, forced=False)
    first, *_, last = made.nodes
    assert own[first].snr == pytest.approx(running[first].snr, abs=0.5), "nothing comes before the first"
    assert running[last].snr < own[last].snr - 2


def test_noises_add_up(ranked: Sensitivity) -> None:
    assert ranked.explained == pytest.approx(1, abs=0.6)


def test_the_metric_of_the_user_ranks() -> None:
    def metric(outputs: Any, _: Any) -> float:
        return -float(np.abs(outputs[0]["y"]).max())

    found = sensitivity(mlp(), TENSOR, data=samples(), metric=metric)
    assert [n.drop for n in found] == sorted((n.drop for n in found), reverse=True)


def test_json(ranked: Sensitivity) -> None:
    found = json.loads(json.dumps(ranked.to_json(), allow_nan=False))
    assert found["method"] == "alone"
    assert found["nodes"][0]["name"] == ranked.names[0]
    assert found["nodes"][0]["bytes"] == 32 * 32 * 3


def test_bad_method() -> None:
    with pytest.raises(UsageError, match="method must be alone, local, accumulated, not 'best'"):
        sensitivity(mlp(), method="best")  # type: ignore[arg-type]


def test_what_settings_exclude_is_no_candidate() -> None:
    made = candidates(mlp(scopes=True), QuantizeSettings(exclude=("block.0", "/net/block.3/fc/MatMul")), data=samples())
    assert list(made.nodes) == ["/net/block.1/fc/MatMul", "/net/block.2/fc/MatMul"]
    with pytest.raises(UsageError, match=r"exclude block\.9: no node"):
        candidates(mlp(scopes=True), QuantizeSettings(exclude=("block.9",)), data=samples())


def test_exclusion(ranked: Sensitivity) -> None:
    names = ranked.names
    assert exclusion(ranked, top=2) == tuple(names[:2])
    assert exclusion(ranked, min_snr=ranked[1].snr + 1e-6) == tuple(names[:2])
    assert exclusion(ranked, max_drop=ranked[2].drop) == tuple(n.name for n in ranked if n.drop > ranked[2].drop)
    assert exclusion(ranked, size=2 * 32 * 32 * 3 + 1) == tuple(names[:2])
    assert exclusion(ranked, first=1, last=1) == ("fc0/MatMul", "fc3/MatMul")
    assert exclusion(ranked) == ()
    with pytest.raises(UsageError, match="top must not be negative"):
        exclusion(ranked, top=-1)


def test_excluding_adds_to_what_is_excluded() -> None:
    assert excluding(QuantizeSettings(exclude=("a",)), ["b", "a"]).exclude == ("a", "b")


def test_within_latency_gives_back_all_where_time_does_not_matter(ranked: Sensitivity) -> None:
    assert within_latency(ranked, 1e9, seconds=0.01) == tuple(ranked.names)


@pytest.mark.slow
def test_giving_back_what_the_ranking_names_recovers_quality() -> None:
    found = sensitivity(golden("vit"))
    half = len(found) // 2
    best, worst = found.variants.quality(found.names[:half]), found.variants.quality(found.names[half:])
    assert best.worst.snr > worst.worst.snr + 2


@pytest.mark.slow
def test_search_keeps_as_few_in_float_as_pass(variants: Candidates, ranked: Sensitivity, monkeypatch: Any) -> None:
    monkeypatch.setattr(searching._Search, "_try_in_float", lambda *_: None)  # which is decided by timing
    quality = variants.quality(ranked.names[:2]).worst.snr
    gate = Gate(min_snr=quality - 0.01)
    found = search_precision(mlp(outlier=2), TENSOR, data=samples(), gate=gate)
    again = search_precision(mlp(outlier=2), TENSOR, data=samples(), gate=gate)
    assert found.floats == again.floats
    assert 1 <= len(found.floats) <= 2
    assert not gate.refuses(found.quality)
    assert found.steps[0].refused
    made = assigned(mlp(outlier=2), found, data=samples(), gate=gate)
    assert set(made.nodes) == set(found.quantized)


@pytest.mark.slow
def test_search_where_all_pass(monkeypatch: Any) -> None:
    monkeypatch.setattr(searching._Search, "_try_in_float", lambda *_: None)
    found = search_precision(mlp(), data=samples())
    assert found.floats == ()
    assert len(found.steps) == 1
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.slow
def test_search_leaves_in_float_what_is_faster_so(monkeypatch: Any) -> None:
    fast = type("Seen", (), {"high": 0.5, "median": 0.4})
    monkeypatch.setattr(searching._Search, "_against_best", lambda *_: fast)
    found = search_precision(mlp(), data=samples())
    assert found.quantized == ()
    assert math.isclose(found.quality.worst.cosine, 1)
    with pytest.raises(UsageError, match="nothing to quantize: the float model is faster"):
        assigned(mlp(), found)


def test_search_that_finds_nothing() -> None:
    with pytest.raises(CheckError, match="no node can be quantized within the gate"):
        search_precision(mlp(), data=samples(), gate=Gate(min_snr=200))


def test_search_without_time(monkeypatch: Any) -> None:
    assert not search_precision(mlp(), data=samples(), seconds=0).complete


def test_a_budget_ends_the_ranking() -> None:
    with pytest.raises(CheckError, match="the budget was spent while nodes were ranked"):
        search_precision(mlp(outlier=2), TENSOR, data=samples(), gate=Gate(max_drop=1e-4), left=lambda: 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("needed", "told"), [(1, ""), (3, "the budget was spent before a model passed; 2 nodes")])
def test_a_budget_ends_the_bisection(variants: Candidates, ranked: Sensitivity, needed: int, told: str) -> None:
    """What passes by then is taken; where nothing does, that is told."""
    gate = Gate(min_snr=variants.quality(ranked.names[:needed]).worst.snr - 0.01)
    tried: list[str] = []

    def search() -> searching.Found:
        return search_precision(
            mlp(outlier=2),
            TENSOR,
            data=samples(),
            gate=gate,
            left=lambda: 1.0 if tried.count("search") < 2 else 0.0,  # all quantized, and two nodes in float
            progress=lambda phase, done, left: tried.append(phase),
        )

    if told:
        with pytest.raises(CheckError, match=told):
            search()
        return
    found = search()
    assert len(found.steps) == 2
    assert len(found.floats) == 2  # one would do
    assert not found.complete
    assert not gate.refuses(found.quality)
