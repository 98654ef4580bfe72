"""Judging a model against another, and the gate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.suite.quality.closeness import Closeness
from onnxrewrite.suite.quality.data import Sample, load_data
from onnxrewrite.suite.quality.gate import Gate, Judge, Quality


def linear(weight: np.ndarray, output: str = "logits") -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], [output])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(weight.astype(np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


WEIGHT = np.random.default_rng(0).standard_normal((4, 3))


def judge(metric: object = None) -> Judge:
    original = linear(WEIGHT)
    return Judge(original, load_data(None, original, most=4, dims={"batch": 8}), metric)  # type: ignore[arg-type]


def test_the_model_itself_is_equal() -> None:
    found = judge().quality(linear(WEIGHT))
    assert found.worst.score == 1
    assert found.worst.top1 == 1
    assert found.generated
    assert Gate().refuses(found) == ""


def test_noise_is_refused_with_its_output() -> None:
    found = judge().quality(linear(WEIGHT + 0.5 * np.random.default_rng(1).standard_normal((4, 3))))
    assert Gate(max_drop=0.5).refuses(found) == ""
    assert Gate(max_drop=1e-3).refuses(found).startswith("the cosine similarity of logits is 0.9")
    assert "signal-to-noise ratio of logits" in Gate(max_drop=0.5, min_snr=60).refuses(found)
    assert "the first class of logits" in Gate(max_drop=0.5, min_top1=1.0).refuses(found)
    assert "the largest error of logits" in Gate(max_drop=0.5, max_error=1e-3).refuses(found)


def test_the_metric_of_a_user_decides() -> None:
    def accuracy(outputs: Sequence[dict[str, np.ndarray]], samples: Sequence[Sample]) -> float:
        assert len(outputs) == len(samples) == 4
        return float(np.mean([o["logits"].argmax(-1) == 0 for o in outputs]))

    found = judge(accuracy).quality(linear(-WEIGHT))
    assert found.baseline is not None
    assert found.metric is not None
    assert found.drop == found.baseline - found.metric
    assert Gate(max_drop=1.0).refuses(found) == ""
    assert Gate(max_drop=-1.0).refuses(found).startswith("the metric is ")


def test_nan_is_refused_whatever_is_allowed() -> None:
    found = judge().quality(linear(WEIGHT * np.nan))
    assert "are not finite" in Gate(max_drop=10).refuses(found)
    assert "not finite" in Gate(max_drop=10).refuses(
        judge(lambda outputs, samples: 1.0).quality(linear(WEIGHT * np.nan))
    )


def test_a_metric_that_is_nan_is_refused() -> None:
    found = Quality({"y": Closeness()}, metric=float("nan"), baseline=1.0)
    assert Gate().refuses(found).startswith("the metric is nan")


def test_an_output_that_is_missing_is_refused() -> None:
    assert Gate(max_drop=1).refuses(judge().quality(linear(WEIGHT, "other")))


def test_a_metric_that_fails_is_told() -> None:
    with pytest.raises(UsageError, match="the metric fails: 'labels'"):
        judge(lambda outputs, samples: outputs[0]["labels"]).quality(linear(WEIGHT))


def test_a_model_that_does_not_open_is_told() -> None:
    broken = linear(WEIGHT)
    broken.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(ModelError, match="does not open"):
        judge().quality(broken)
