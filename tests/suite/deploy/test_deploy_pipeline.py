"""A pipeline keeps what pays and passes the gate, takes back the rest, writes all or nothing, and goes on where it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from suite.deploy.models import Gives, Lossy, Raises, chain, saved, slow

from onnxrewrite.errors import CheckError, ModelError, UsageError
from onnxrewrite.suite.deploy import stage as stages
from onnxrewrite.suite.deploy.artifact import Artifact, Metrics
from onnxrewrite.suite.deploy.outcome import Outcome
from onnxrewrite.suite.deploy.pipeline import Pipeline
from onnxrewrite.suite.deploy.stage import Context
from onnxrewrite.suite.deploy.stages.rewrite_stage import Rewrite
from onnxrewrite.suite.deploy.stages.session_stage import Session
from onnxrewrite.suite.quality.gate import Gate

QUICK: dict[str, Any] = {"seconds": 0.1, "memory": False, "samples": 2, "threads": 1}


def run(out: Path, model: Path, *given: stages.Stage, **settings: Any) -> Outcome:
    return Pipeline(stages=given, **{**QUICK, **settings}).run(model, out)


def states(outcome: Outcome) -> list[tuple[str, str]]:
    return [(s.stage, s.state) for s in outcome.steps]


def test_what_is_faster_is_kept(tmp_path: Path) -> None:
    model, fast = saved(tmp_path, slow(chain())), saved(tmp_path, chain(), "fast.onnx")
    outcome = run(tmp_path / "out", model, Gives(files=(str(fast),)))
    assert states(outcome) == [("gives", "kept")]
    assert outcome.steps[0].reason.endswith("of the time")
    assert outcome.speedup > 1.1
    assert outcome.final.metrics.quality.worst.score > 0.9999
    names = {n.op_type for n in onnx.load(tmp_path / "out" / "model.onnx").graph.node}
    assert "Expand" not in names


@pytest.mark.slow
def test_all_that_is_told_of_the_result_comes_from_one_comparison(tmp_path: Path) -> None:
    model, fast = saved(tmp_path, slow(chain())), saved(tmp_path, chain(), "fast.onnx")
    outcome = run(tmp_path / "out", model, Gives(files=(str(fast),)), Session(levels=("basic",)))
    before, after = outcome.baseline.metrics, outcome.final.metrics
    assert before.ratio.median == 1
    assert after.latency.median / before.latency.median == pytest.approx(after.ratio.median, rel=0.3)
    assert outcome.speedup == 1 / after.ratio.median
    assert outcome.steps[0].kept in outcome.steps[0].trials
    for trial in outcome.steps[1].trials:
        if trial is not outcome.steps[1].kept:
            times = trial.metrics
            assert times.latency.median / before.latency.median == pytest.approx(times.ratio.median)
            assert times.throughput == pytest.approx(1 / times.latency.median)


@pytest.mark.slow
def test_what_is_slower_is_taken_back(tmp_path: Path) -> None:
    model, worse = saved(tmp_path, chain()), saved(tmp_path, slow(chain()), "slow.onnx")
    outcome = run(tmp_path / "out", model, Gives(files=(str(worse),)))
    assert states(outcome) == [("gives", "taken back")]
    assert "times as long" in outcome.steps[0].reason
    assert outcome.final is outcome.baseline


def test_what_brings_nothing_is_taken_back(tmp_path: Path) -> None:
    model = saved(tmp_path, chain(name="a"))
    outcome = run(tmp_path / "out", model, Gives(files=(str(saved(tmp_path, chain(name="b"), "b.onnx")),)))
    assert states(outcome) == [("gives", "taken back")]


def test_what_is_wrong_is_taken_back_however_fast_it_is(tmp_path: Path) -> None:
    model, wrong = saved(tmp_path, slow(chain())), saved(tmp_path, chain(noise=1.0), "wrong.onnx")
    outcome = run(tmp_path / "out", model, Gives(files=(str(wrong),)))
    assert states(outcome) == [("gives", "taken back")]
    assert outcome.steps[0].reason.startswith("the cosine similarity of y is ")


@pytest.mark.slow
def test_of_several_proposals_the_best_is_kept(tmp_path: Path) -> None:
    model = saved(tmp_path, slow(chain(40)))
    files = [saved(tmp_path, chain(noise=1.0), "wrong.onnx"), saved(tmp_path, chain(40), "right.onnx"), model]
    outcome = run(tmp_path / "out", model, Gives(files=tuple(map(str, files))))
    step = outcome.steps[0]
    assert [t.verdict.kept for t in step.trials] == [False, True, False]
    assert step.kept is step.trials[1]


@pytest.mark.slow
def test_a_stage_that_fails_costs_only_itself(tmp_path: Path) -> None:
    outcome = run(tmp_path / "out", saved(tmp_path, chain()), Raises(), Gives(), Rewrite(lower="fused"))
    assert [s.state for s in outcome.steps[:2]] == ["taken back", "taken back"]
    assert outcome.steps[0].reason == "it failed: ZeroDivisionError: a mistake of mine"
    assert outcome.steps[1].reason == "there is nothing to give"
    assert outcome.steps[2].trials


def test_a_required_stage_that_is_taken_back_fails_the_run(tmp_path: Path) -> None:
    model, wrong = saved(tmp_path, chain()), saved(tmp_path, chain(noise=1.0), "wrong.onnx")
    with pytest.raises(CheckError, match="stage gives is required and was taken back: the cosine"):
        run(tmp_path / "out", model, Gives(files=(str(wrong),), required=True))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_a_lossy_stage_is_left_out_once_the_target_is_met(tmp_path: Path) -> None:
    model, fast = saved(tmp_path, slow(chain())), str(saved(tmp_path, chain(), "fast.onnx"))
    faster = str(saved(tmp_path, chain(2), "faster.onnx"))
    outcome = run(tmp_path / "out", model, Gives(files=(fast,)), Lossy(files=(faster,)), target_speedup=1.05)
    assert states(outcome) == [("gives", "kept"), ("lossy", "skipped")]
    assert outcome.target_met
    assert outcome.steps[1].reason == "the target of 1.05 times is met without it"


def test_no_stage_is_begun_when_the_budget_is_spent(tmp_path: Path) -> None:
    outcome = run(tmp_path / "out", saved(tmp_path, chain()), Gives(), budget=0.0)
    assert states(outcome) == [("gives", "skipped")]
    assert "budget of 0 s is spent" in outcome.steps[0].reason


@pytest.mark.slow
def test_smaller_is_enough_where_size_is_asked_for(tmp_path: Path) -> None:
    small = onnx.load(saved(tmp_path, slow(chain())))
    large = onnx.load(saved(tmp_path, chain()))
    large.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(200_000, np.float32), "ballast"))
    model, other = saved(tmp_path, large, "large.onnx"), str(saved(tmp_path, small, "small.onnx"))
    assert states(run(tmp_path / "a", model, Gives(files=(other,)))) == [("gives", "taken back")]
    assert states(run(tmp_path / "b", model, Gives(files=(other,)), objective="size")) == [("gives", "kept")]


@pytest.mark.slow
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, fast = saved(tmp_path, slow(chain())), str(saved(tmp_path, chain(), "fast.onnx"))

    class Stopped(KeyboardInterrupt):
        pass

    def stop(self: object, *arguments: object) -> None:
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(Session, "run", stop)
        with pytest.raises(Stopped):
            run(tmp_path / "out", model, Gives(files=(fast,)), Session(levels=("basic",)))
    outcome = run(tmp_path / "out", model, Gives(files=(fast,)), Session(levels=("basic",)))
    assert [s.resumed for s in outcome.steps] == [True, False]
    assert outcome.steps[0].state == "kept"
    assert not (tmp_path / "out" / ".work").exists()


@pytest.mark.slow
def test_a_stage_that_was_interrupted_keeps_what_it_has_measured(tmp_path: Path) -> None:
    model = saved(tmp_path, slow(chain()))
    files = tuple(str(saved(tmp_path, chain(length), f"{length}.onnx")) for length in (12, 11))

    measured: list[str] = []
    stops = True

    class Stopping(Gives):
        def metrics(self, made: Artifact, before: Artifact, context: Context) -> Metrics:
            if stops and measured:
                raise KeyboardInterrupt
            measured.append(made.path.stem)
            return super().metrics(made, before, context)

    stage = Stopping(files=files)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", model, stage)
    stops = False
    outcome = run(tmp_path / "out", model, stage)
    assert measured == ["12", "11"]
    assert [t.artifact.how for t in outcome.steps[0].trials] == ["12", "11"]


@pytest.mark.slow
def test_a_changed_model_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    model = saved(tmp_path, chain())
    Pipeline(stages=[Gives()], **QUICK).run(model, tmp_path / "out", keep=True)
    saved(tmp_path, chain(noise=0.1))
    outcome = Pipeline(stages=[Gives()], **QUICK).run(model, tmp_path / "out", keep=True)
    assert not outcome.steps[0].resumed
    assert Pipeline(stages=[Gives()], **QUICK).run(model, tmp_path / "out", keep=True).steps[0].resumed
    assert not Pipeline(stages=[Gives()], **QUICK).run(model, tmp_path / "out", keep=True, fresh=True).steps[0].resumed


def test_a_damaged_record_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "out" / ".work").mkdir(parents=True)
    (tmp_path / "out" / ".work" / "known.json").write_text("{rubbish")
    assert run(tmp_path / "out", saved(tmp_path, chain()), Gives()).steps[0].state == "taken back"


def test_what_is_written_runs(tmp_path: Path) -> None:
    outcome = run(tmp_path / "out", saved(tmp_path, slow(chain())), Rewrite(lower="fused"))
    assert set(outcome.files) >= {"model", "report", "run"}
    assert json.loads(Path(outcome.files["report"]).read_text()) == json.loads(json.dumps(outcome.to_json()))
    done = subprocess.run(
        [sys.executable, outcome.files["run"]], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.startswith("y (")


def test_the_input_is_never_overwritten(tmp_path: Path) -> None:
    model = saved(tmp_path, slow(chain()))  # it would be OUT_DIR/model.onnx
    before = model.read_bytes()
    with pytest.raises(UsageError, match="the model itself lies there; give another folder"):
        run(tmp_path, model, Rewrite(lower="fused"))
    assert model.read_bytes() == before


@pytest.mark.slow
def test_weights_outside_the_model_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    onnx.save(chain(), folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    outcome = run(tmp_path / "out", folder / "m.onnx", Session(levels=("basic",)))
    assert outcome.baseline.metrics.size > 12 * 64 * 64 * 4
    ort.InferenceSession(outcome.files["model"])


@pytest.mark.slow
def test_data_and_metric_of_the_user_decide(tmp_path: Path) -> None:
    model, other = saved(tmp_path, slow(chain())), saved(tmp_path, chain(noise=1.0), "other.onnx")
    data = [({"x": np.ones((1, 64), np.float32)}, number) for number in range(3)]
    labels: list[Any] = []

    def metric(outputs: Any, samples: Any) -> float:
        labels[:] = [s.label for s in samples]
        return 0.5

    outcome = run(tmp_path / "out", model, Gives(files=(str(other),)), data=data, metric=metric, samples=None)
    assert states(outcome) == [("gives", "kept")]  # a metric that sees no difference allows it
    assert labels == [0, 1, 2]
    assert outcome.final.metrics.quality.drop == 0


def test_errors_of_the_user_stop_the_run(tmp_path: Path) -> None:
    model = saved(tmp_path, chain())
    with pytest.raises(UsageError, match="no such file"):
        run(tmp_path / "out", model, data="nowhere.npz")
    with pytest.raises(UsageError, match="no rule or rule set is called"):
        run(tmp_path / "out", model, Rewrite(only=("gelu-erff",)))
    with pytest.raises(ModelError):
        run(tmp_path / "out", tmp_path / "missing.onnx")
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot be made"):
        run(tmp_path / "file", model)


def test_a_negative_drop_refuses_everything_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match="the result does not pass the gate and nothing was written"):
        run(tmp_path / "out", saved(tmp_path, chain()), Gives(), gate=Gate(max_drop=-1.0))
    assert not list((tmp_path / "out").iterdir())


def test_the_stages_that_there_are() -> None:
    assert list(stages.known())[:1] == ["rewrite"]
    assert list(stages.known())[-3:] == ["session", "memory", "startup"]


def test_a_plugin_adds_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, value = "gives", "deploy.models:Gives"

        def load(self) -> object:
            return Gives

    monkeypatch.setattr(stages, "entry_points", lambda group: [Point()])
    assert stages.known()["gives"] is Gives
    assert stages.made("gives", {"files": ["a.onnx"]}, "config") == Gives(files=("a.onnx",))
    monkeypatch.setattr(Point, "load", lambda self: dict)
    with pytest.raises(UsageError, match=r"stage gives: deploy\.models:Gives is no Stage with a name"):
        stages.known()


def test_a_stage_of_one_name_with_another_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, value = "rewrite", "deploy.models:Other"

        def load(self) -> object:
            return type("Other", (Gives,), {"name": "rewrite"})

    monkeypatch.setattr(stages, "entry_points", lambda group: [Point()])
    with pytest.raises(UsageError, match="two stages are called rewrite"):
        stages.known()
