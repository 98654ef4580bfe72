"""What ``emit`` writes beside the model: a report that a page can be made of again, and the page."""

from __future__ import annotations

import json
import math
import os
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from suite.deploy.models import WIDTH, Gives, Lossy, chain, saved, slow

from onnxrewrite.ir import custom
from onnxrewrite.report.html.deploy_page import deployment_page
from onnxrewrite.runtime.deployment import write_options
from onnxrewrite.runtime.opening import session
from onnxrewrite.runtime.settings import Setting, options_of
from onnxrewrite.suite.deploy.artifact import Artifact
from onnxrewrite.suite.deploy.emit import MODEL, RUN, deployment, program
from onnxrewrite.suite.deploy.outcome import Outcome
from onnxrewrite.suite.deploy.pipeline import Pipeline
from onnxrewrite.suite.quality.gate import Gate

SPIN = "session.intra_op.allow_spinning"

QUICK: dict[str, Any] = {"seconds": 0.1, "memory": False, "samples": 2, "threads": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deployed")


@pytest.fixture(scope="module")
def outcome(folder: Path) -> Outcome:
    model, fast = saved(folder, slow(chain())), saved(folder, chain(), "fast.onnx")
    wrong = saved(folder, chain(noise=1.0), "wrong.onnx")
    return Pipeline([Gives(files=(str(fast),)), Lossy(files=(str(wrong),))], **QUICK).run(model, folder / "out")


def test_all_files_are_named_and_there(outcome: Outcome, folder: Path) -> None:
    assert {name: Path(path).name for name, path in outcome.files.items()} == {
        "model": "model.onnx",
        "report": "report.json",
        "page": "report.html",
        "run": "run.py",
        "reference": "reference.npz",
    }
    assert sorted(p.name for p in (folder / "out").iterdir()) == sorted(Path(p).name for p in outcome.files.values())


def test_the_page_can_be_made_of_the_report_again(outcome: Outcome) -> None:
    read = json.loads(Path(outcome.files["report"]).read_text(encoding="utf-8"))
    assert deployment_page(read) == Path(outcome.files["page"]).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_report_holds_what_the_page_shows(outcome: Outcome) -> None:
    read = json.loads(Path(outcome.files["report"]).read_text(encoding="utf-8"))
    assert read["program"] == Path(outcome.files["run"]).read_text(encoding="utf-8")
    assert {"Expand", "MatMul"} <= {p["operator"] for p in read["operators"]["before"]}
    assert "Expand" not in {p["operator"] for p in read["operators"]["after"]}
    assert set(read["operators"]["before"][0]) == {"operator", "kernels", "seconds"}
    assert "onnxruntime" in read["versions"]
    page = Path(outcome.files["page"]).read_text(encoding="utf-8")
    for words in ("gives", "lossy", "of the time", "the cosine similarity of y is", "made up", "Expand"):
        assert words in page


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_both_ways_to_run_it_have_the_options_of_the_measuring_but_for_spinning(tmp_path: Path, threads: int) -> None:
    final = Artifact(saved(tmp_path, chain(1), MODEL), Setting(threads=threads, level="extended"), "as it was")
    write_options(final.path, deployment(final))
    (tmp_path / RUN).write_text(program(final, {"x": np.zeros((1, WIDTH), np.float32)}), encoding="utf-8")
    ran = runpy.run_path(str(tmp_path / RUN))
    measured, *found = (options_of(final.setting), ran["options"], session(final.path).get_session_options())
    for each in found:
        assert each.graph_optimization_level == measured.graph_optimization_level
        assert each.intra_op_num_threads == measured.intra_op_num_threads
        assert _spinning(each) is None
    assert _spinning(measured) == "0"
    assert (SPIN in ran["__doc__"]) == (threads != 1)


def test_the_program_loads_the_kernels_that_were_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    final = Artifact(saved(tmp_path, chain(1), MODEL), Setting(), "as it was")
    assert "register_custom_ops_library" not in program(final, {})
    monkeypatch.setenv(custom.VARIABLE, os.pathsep.join(["one.so", "other.so"]))
    made = program(final, {})
    assert made.index("'one.so'") < made.index("'other.so'") < made.index("InferenceSession")
    compile(made, RUN, "exec")


def _spinning(options: ort.SessionOptions) -> str | None:
    """What options say of it, None for nothing."""
    try:
        return options.get_session_config_entry(SPIN)
    except RuntimeError:  # it has no such entry
        return None


def test_a_notebook_shows_it(outcome: Outcome) -> None:
    shown = outcome._repr_html_()
    assert "times as fast" in shown
    assert "<script" not in shown


@pytest.mark.slow
def test_numbers_that_are_none(tmp_path: Path) -> None:
    """JSON has no word for them, and a metric may return any."""
    model, other = saved(tmp_path, slow(chain())), saved(tmp_path, chain(), "fast.onnx")
    says = iter([1.0, 1.0, math.nan, 1.0])  # of the original unoptimized and optimized, the proposal, the result
    gate = Gate(max_drop=math.inf)
    plan = Pipeline([Gives(files=(str(other),))], gate=gate, metric=lambda outputs, given: next(says), **QUICK)
    found = plan.run(model, tmp_path / "out")
    read = json.loads(Path(found.files["report"]).read_text(encoding="utf-8"))
    assert read["steps"][0]["state"] == "taken back"
    assert read["gate"]["max_drop"] is None
    assert read["steps"][0]["trials"][0]["metrics"]["quality"]["drop"] is None
