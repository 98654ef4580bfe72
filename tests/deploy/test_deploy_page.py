"""What ``emit`` writes beside the model: a report that a page can be made of again, and the page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from deploy.models import Gives, Lossy, chain, saved, slow

from onnxrewrite.deploy.outcome import Outcome
from onnxrewrite.deploy.pipeline import Pipeline
from onnxrewrite.quality.gate import Gate
from onnxrewrite.report.html.deployment import deployment_page

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
    }
    assert sorted(p.name for p in (folder / "out").iterdir()) == sorted(Path(p).name for p in outcome.files.values())


def test_the_page_can_be_made_of_the_report_again(outcome: Outcome) -> None:
    read = json.loads(Path(outcome.files["report"]).read_text(encoding="utf-8"))
    assert deployment_page(read) == Path(outcome.files["page"]).read_text(encoding="utf-8")


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


def test_a_notebook_shows_it(outcome: Outcome) -> None:
    shown = outcome._repr_html_()
    assert "times as fast" in shown
    assert "<script" not in shown


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
