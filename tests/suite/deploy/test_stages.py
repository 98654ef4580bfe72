"""The stages that come with the project, each on a small model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from suite.deploy.models import WIDTH, chain, saved

from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.runtime.installed import saturates
from onnxrewrite.runtime.opening import session_options
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.deploy import acceptance
from onnxrewrite.suite.deploy import stage as stages
from onnxrewrite.suite.deploy.artifact import Artifact
from onnxrewrite.suite.deploy.emit import deployment, program
from onnxrewrite.suite.deploy.outcome import Outcome
from onnxrewrite.suite.deploy.pipeline import Pipeline
from onnxrewrite.suite.deploy.stages import startup_stage
from onnxrewrite.suite.deploy.stages.half_stage import Half
from onnxrewrite.suite.deploy.stages.mixed_stage import Mixed
from onnxrewrite.suite.deploy.stages.quantize_stage import Quantize
from onnxrewrite.suite.deploy.stages.rewrite_stage import Rewrite
from onnxrewrite.suite.deploy.stages.session_stage import Session
from onnxrewrite.suite.deploy.stages.startup_stage import Memory, Startup
from onnxrewrite.suite.quality.gate import Gate
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.quantizer import quantize

NARROW: dict[str, Any] = {"reduce-range": saturates()}
"""What this processor needs to be exact in 8 bits."""

QUICK: dict[str, Any] = {"seconds": 0.1, "memory": False, "samples": 2, "threads": 1}


def run(folder: Path, *given: stages.Stage, model: onnx.ModelProto | None = None) -> Outcome:
    """All that is smaller and good enough is kept, so that nothing depends on time."""
    path = saved(folder, model if model is not None else chain())
    return Pipeline(stages=given, objective="size", **QUICK).run(path, folder / "out")


def operators(outcome: Outcome) -> set[str]:
    return {n.op_type for n in onnx.load(outcome.files["model"]).graph.node}


def test_the_default_ones() -> None:
    assert stages.defaults()[:3] == ["rewrite", "quantize", "session"]
    assert {"mixed", "half"} <= set(stages.known()) - set(stages.defaults())


@pytest.mark.slow
def test_quantize_proposes_each_mode(tmp_path: Path) -> None:
    outcome = run(tmp_path, Rewrite(lower="fused"), Quantize(settings=NARROW))
    proposals = [t.artifact.how.split()[0] for t in outcome.steps[1].trials]
    assert proposals == ["dynamic", "static"]
    kept = outcome.steps[1].kept
    assert kept is not None
    assert kept.metrics.size < 0.3 * outcome.baseline.metrics.size
    assert kept.metrics.quality.worst.score > 0.98
    assert "DynamicQuantizeMatMul" in operators(outcome) or "QLinearMatMul" in operators(outcome)


def test_quantize_says_why_there_is_nothing(tmp_path: Path) -> None:
    model = chain(1)
    model.graph.node[0].op_type = "Add"
    model.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(model.graph.initializer[0])[0], "w0")
    )
    outcome = run(tmp_path, Quantize(modes=("dynamic",)), model=model)
    assert outcome.steps[0].state == "taken back"
    assert outcome.steps[0].reason.startswith("dynamic: nothing to quantize: the model has no")


@pytest.mark.slow
def test_what_is_quantized_already_is_deployed_without_quantizing(tmp_path: Path) -> None:
    out = tmp_path / "quantized.onnx"
    quantize(chain(2), QuantizeSettings(mode="static"), gate=None, prepare=False, out=out)
    outcome = run(tmp_path, Rewrite(), Quantize(), model=onnx.load(out))
    assert outcome.steps[1].state == "taken back"
    assert outcome.steps[1].reason.startswith("the model is quantized already: node ")
    assert "give the float model" not in outcome.steps[1].reason
    assert Path(outcome.files["model"]).is_file()


def test_settings_of_a_stage_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such setting: per_chanel"):
        run(tmp_path, Quantize(settings={"per-chanel": True}))


def test_half(tmp_path: Path) -> None:
    outcome = run(tmp_path, Half())
    assert outcome.steps[0].state == "kept"
    assert outcome.final.metrics.size < 0.6 * outcome.baseline.metrics.size
    weights = {w.data_type for w in onnx.load(outcome.files["model"]).graph.initializer}
    assert onnx.TensorProto.FLOAT16 in weights


@pytest.mark.slow
def test_a_precision_map(tmp_path: Path) -> None:
    outcome = run(tmp_path, Mixed(precision={"*": "float32", "op:MatMul": "int8"}, settings=NARROW))
    assert outcome.steps[0].state == "kept", outcome.steps[0].reason
    assert outcome.final.metrics.size < 0.4 * outcome.baseline.metrics.size


@pytest.mark.slow
def test_a_search(tmp_path: Path) -> None:
    outcome = run(tmp_path, Mixed(seconds=1.0, mode="dynamic"), model=chain(3))
    step = outcome.steps[0]
    assert step.state == "kept" or step.reason == "the model in float is the fastest", step.reason


def test_session_tries_each_combination(tmp_path: Path) -> None:
    outcome = run(tmp_path, Session(levels=("all", "basic")))
    assert [t.artifact.setting.level for t in outcome.steps[0].trials] == ["basic"]
    assert outcome.steps[0].trials[0].artifact.path == outcome.baseline.artifact.path


def test_session_has_nothing_to_try(tmp_path: Path) -> None:
    assert run(tmp_path, Session(levels=("all",))).steps[0].reason == "there are no other options to try"


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever opens at all is kept, so that nothing depends on time."""
    monkeypatch.setattr(acceptance, "OPENS", 1e9)
    monkeypatch.setattr(acceptance, "is_slower", lambda step: False)


def started(outcome: Outcome) -> str:
    """What ``run.py`` prints."""
    line = [sys.executable, outcome.files["run"]]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "ort", "prepacked"])
@pytest.mark.usefixtures("lenient")
def test_a_file_that_opens_faster_is_shipped(tmp_path: Path, form: Any) -> None:
    outcome = run(tmp_path, Startup(forms=(form,)))
    (trial,) = outcome.steps[0].trials
    assert trial.artifact.session[1].level == "disabled"
    assert trial.metrics.quality.drop < 1e-6
    names = {"onnx": {"startup.onnx"}, "ort": {"startup.ort"}, "prepacked": {"startup.onnx", "startup.data"}}[form]
    assert {p.name for p in (tmp_path / "out").iterdir()} - {
        "model.onnx",
        "report.json",
        "report.html",
        "run.py",
        "reference.npz",
    } == names
    assert outcome.to_json()["final"]["opened_as"] in names  # type: ignore[index]
    program = Path(outcome.files["run"]).read_text()
    assert f"ort.__version__ == {ort.__version__!r}" in program
    with_it = started(outcome)
    Path(outcome.files["startup"]).write_bytes(b"damaged")
    with pytest.raises(subprocess.CalledProcessError):
        started(outcome)  # it is what was opened
    Path(outcome.files["startup"]).unlink()
    assert started(outcome) == with_it != ""


@pytest.mark.slow
@pytest.mark.usefixtures("lenient")
def test_files_of_an_earlier_run_that_open_faster_go(tmp_path: Path) -> None:
    run(tmp_path, Startup(forms=("prepacked",)))
    (tmp_path / "out" / "startup.ort").write_bytes(b"of the user")
    outcome = run(tmp_path, Startup(forms=("onnx",)))
    assert outcome.final.artifact.opened_as is not None
    assert {p.name for p in (tmp_path / "out").glob("startup*")} == {"startup.onnx", "startup.ort"}
    run(tmp_path, Session(levels=("all",)))
    assert {p.name for p in (tmp_path / "out").glob("startup*")} == {"startup.ort"}


@pytest.mark.slow
@pytest.mark.usefixtures("lenient")
def test_of_files_that_open_faster_the_fastest_is_kept(tmp_path: Path) -> None:
    outcome = run(tmp_path, Startup())
    trials = outcome.steps[0].trials
    assert [t.artifact.opened_as.name for t in trials if t.artifact.opened_as] == [
        "startup.onnx",
        "startup.ort",
        "startup.onnx",
    ]
    assert len({t.artifact.session for t in trials}) == 3
    unoptimized = Pipeline(stages=[Session(levels=("disabled",)), Startup()], objective="size", **QUICK)
    found = unoptimized.run(saved(tmp_path, chain()), tmp_path / "two")
    if found.steps[0].kept is not None:
        assert found.steps[1].reason == "no optimization is asked for, so there is none to save"


def test_what_cannot_be_saved_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> Path:
        raise ModelError("ONNX Runtime cannot save it: disk full")

    monkeypatch.setattr(startup_stage, "saved", refuse)
    outcome = run(tmp_path, Startup(forms=("ort",)))
    assert outcome.notes == ["startup: ort: ONNX Runtime cannot save it: disk full"]
    assert outcome.final is outcome.baseline


@pytest.mark.slow
@pytest.mark.usefixtures("lenient")
def test_options_of_memory(tmp_path: Path) -> None:
    outcome = run(tmp_path, Memory())
    trials = outcome.steps[0].trials
    assert [sorted(t.artifact.setting.to_json())[:2] for t in trials] == [
        ["arena", "level"],
        ["level", "memory_pattern"],
        ["level", "provider"],
        ["bound", "level"],
    ]
    assert all(t.metrics.quality.drop == 0 for t in trials)
    assert outcome.steps[0].kept is not None
    assert started(outcome).startswith("y (")


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (Setting(arena=False), "options.enable_cpu_mem_arena = False"),
        (Setting(memory_pattern=False), "options.enable_mem_pattern = False"),
        (Setting(shrinks=True), "run.add_run_config_entry('memory.enable_memory_arena_shrinkage', 'cpu:0')"),
        (Setting(bound=True), "session.run_with_iobinding(binding)"),
    ],
)
def test_the_program_runs_with_options_of_memory(tmp_path: Path, setting: Setting, line: str) -> None:
    path = saved(tmp_path, chain(2))
    artifact = Artifact(path, setting)
    text = program(artifact, {"x": np.ones((4, WIDTH), np.float32)})
    assert line in text
    (tmp_path / "run.py").write_text(text)
    done = subprocess.run([sys.executable, tmp_path / "run.py"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("y (")
    plain, own = (open_runner(path, {"x": np.ones((4, WIDTH), np.float32)}, s) for s in (Setting(), setting))
    for _ in range(3):
        assert np.array_equal(np.asarray(plain()[0]), np.asarray(own()[0]))
    other = {"x": np.full((2, WIDTH), 2, np.float32)}
    assert np.array_equal(np.asarray(plain.on(other)()[0]), np.asarray(own.on(other)()[0]))
    stored = deployment(artifact)
    assert (stored.arena, stored.memory_pattern) == (
        None if setting.arena else False,
        None if setting.memory_pattern else False,
    )
    assert session_options(stored).enable_cpu_mem_arena == setting.arena
    assert session_options(stored).enable_mem_pattern == setting.memory_pattern


def uneven() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A chain of products that reads a channel a hundred times as large as the others, and samples of it."""
    samples = [{"x": np.random.default_rng(n).standard_normal((4, WIDTH)).astype(np.float32)} for n in range(12)]
    for sample in samples:
        sample["x"][:, 3] *= 100
    model = chain(2)
    first = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
    first[3] /= 100
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(first, "w0"))
    return model, samples


@pytest.mark.slow
def test_on_data_of_the_user_quantize_smooths_where_that_is_closer(tmp_path: Path) -> None:
    model, samples = uneven()
    plan = Pipeline(
        stages=[Quantize(modes=("dynamic",), plain=False)],
        objective="size",
        data=samples,
        gate=Gate(max_drop=0.005),
        **{**QUICK, "samples": None},
    )
    (trial,) = plan.run(saved(tmp_path, model), tmp_path / "out").steps[0].trials
    assert trial.artifact.how == "dynamic per channel smooth"
    assert trial.metrics.quality.drop <= 0.005


def test_what_is_hopeless_is_told_and_not_timed(tmp_path: Path) -> None:
    path = saved(tmp_path, chain(2))
    stage = Quantize(modes=("dynamic", "static"), settings=NARROW)
    outcome = Pipeline(stages=[stage], gate=Gate(max_drop=1e-9), **QUICK).run(path, tmp_path / "out")
    assert outcome.steps[0].trials == []
    assert outcome.steps[0].reason.startswith("dynamic: the cosine similarity of y is 0.9")


def test_a_first_look_leaves_out_what_seldom_wins() -> None:
    plan = Pipeline(seconds=5.0).quick()
    assert [stage.name for stage in plan.stages] == ["rewrite", "quantize"]
    assert plan.stages[1] == Quantize(modes=("dynamic",), plain=False)
    assert (plan.seconds, plan.memory) == (0.3, False)


def test_a_first_look_at_no_stage_is_refused() -> None:
    with pytest.raises(UsageError, match="takes none of the stages"):
        Pipeline(stages=[Session()]).quick()
