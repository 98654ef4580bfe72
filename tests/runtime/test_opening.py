"""Sessions open with what is stored, with what is said, and with what this machine has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import onnxrewrite as rw
from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.runtime import opening as room
from onnxrewrite.runtime.deployment import SESSION_KEY, Deployment, write_options
from onnxrewrite.system.resources import Cores

CPU = "CPUExecutionProvider"
SPIN = "session.intra_op.allow_spinning"
LEVELS = ort.GraphOptimizationLevel


@pytest.fixture
def model(tmp_path: Path) -> Path:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 4]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def runs(opened: ort.InferenceSession, batch: int = 2) -> bool:
    x = np.ones([batch, 4], np.float32)
    return bool((opened.run(None, {"x": x})[0] == x).all())


@pytest.mark.filterwarnings("error")
def test_what_is_stored_is_used(model: Path) -> None:
    write_options(
        model,
        Deployment(
            level="basic",
            threads=1,
            inter_threads=2,
            mode="parallel",
            providers={"cpu": {}},
            spinning=False,
            entries={"session.dynamic_block_base": "4"},
            dims={"batch": 3},
        ),
    )
    opened = rw.session(model)
    found = opened.get_session_options()
    assert found.graph_optimization_level == LEVELS.ORT_ENABLE_BASIC
    assert (found.intra_op_num_threads, found.inter_op_num_threads) == (1, 2)
    assert found.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert found.get_session_config_entry(SPIN) == "0"
    assert found.get_session_config_entry("session.dynamic_block_base") == "4"
    assert opened.get_providers() == [CPU]
    assert opened.get_inputs()[0].shape == [3, 4]
    assert runs(opened, 3)


@pytest.mark.filterwarnings("error")
def test_arguments_overrule_a_deployment_and_that_what_is_stored(model: Path) -> None:
    write_options(model, Deployment(level="basic", threads=1, spinning=False))
    found = rw.session(model, deployment=Deployment(level="extended", threads=3)).get_session_options()
    assert (found.graph_optimization_level, found.intra_op_num_threads) == (LEVELS.ORT_ENABLE_EXTENDED, 3)
    assert found.get_session_config_entry(SPIN) == "0"
    found = rw.session(model, threads=2, deployment=Deployment(threads=3)).get_session_options()
    assert found.intra_op_num_threads == 2
    found = rw.session(model, provider="cpu", graph_optimization_level=LEVELS.ORT_DISABLE_ALL).get_session_options()
    assert found.graph_optimization_level == LEVELS.ORT_DISABLE_ALL
    assert rw.session(model, threads=0).get_session_options().intra_op_num_threads == 0


@pytest.mark.parametrize(
    ("cores", "threads"),
    [(Cores(8, 4, 8, 4), 0), (Cores(8, 4, 8, 4, 2.0), 2), (Cores(8, 4, 2, 1), 1)],
)
def test_threads_are_left_to_onnxruntime_unless_cores_are_withheld(
    model: Path, monkeypatch: pytest.MonkeyPatch, cores: Cores, threads: int
) -> None:
    monkeypatch.setattr(room, "cores", lambda: cores)
    assert rw.session(model).get_session_options().intra_op_num_threads == threads


def test_a_stored_provider_that_is_not_here_falls_back(model: Path) -> None:
    absent = next(each for each in ort.get_all_providers() if each not in ort.get_available_providers())
    write_options(model, Deployment(providers={absent: {}}, level="basic"))
    with pytest.warns(UserWarning, match="which this build of ONNX Runtime .* CPUExecutionProvider is taken"):
        opened = rw.session(model)
    assert opened.get_providers() == [CPU]
    assert opened.get_session_options().graph_optimization_level == LEVELS.ORT_ENABLE_BASIC
    write_options(model, Deployment(providers={"no such": {}, absent: {}, "cpu": {}}))
    assert runs(rw.session(model))


def test_a_provider_that_was_asked_for_must_start(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unknown provider 'fpga'"):
        rw.session(model, provider="fpga")
    monkeypatch.setattr(room, "why_not_started", lambda name: "no driver")
    with pytest.raises(UsageError, match="provider 'cpu' does not start on this machine: no driver"):
        rw.session(model, provider="cpu")
    with pytest.raises(UsageError, match="provider_options need a provider"):
        rw.session(model, provider_options={"device_id": 0})


def test_stored_options_that_do_not_work_are_given_up(model: Path) -> None:
    write_options(model, Deployment(entries={"session.intra_op_thread_affinities": "rubbish"}, threads=3))
    with pytest.warns(UserWarning, match="the stored session options do not work here and are ignored"):
        opened = rw.session(model)
    assert runs(opened)


def test_a_model_that_does_not_open_is_one_line(model: Path) -> None:
    proto = onnx.load(model)
    proto.graph.node[0].op_type = "NoSuchOperator"
    onnx.save(proto, model)
    for stored in (Deployment(), Deployment(level="basic")):
        write_options(model, stored)
        with pytest.raises(ModelError, match=r"ONNX Runtime refuses it: .*NoSuchOperator"):
            rw.session(model)
    with pytest.raises(ModelError, match="no such file"):
        rw.session(model.parent / "none.onnx")


def test_a_model_from_anybody_writes_no_file(model: Path) -> None:
    target = model.parent / "written.onnx"
    write_options(model, Deployment(entries={"session.optimized_model_filepath": str(target)}))
    with pytest.warns(UserWarning, match="entry session.optimized_model_filepath is not taken from a model"):
        opened = rw.session(model)
    assert not target.exists()
    assert runs(opened)


def test_damaged_options_are_warned_of(model: Path) -> None:
    proto = onnx.load(model)
    proto.metadata_props.add(key=SESSION_KEY, value='{"level": "??", "threads": 1}')
    onnx.save(proto, model)
    with pytest.warns(UserWarning, match="level must be one of"):
        opened = rw.session(model)
    assert opened.get_session_options().intra_op_num_threads == 1
