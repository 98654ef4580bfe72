"""What was shipped, against what was recorded with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from suite.deploy.models import WIDTH, chain, saved

from onnxrewrite.cli import main
from onnxrewrite.errors import UsageError
from onnxrewrite.measure.timing import Interval
from onnxrewrite.suite.deploy import regression_check as recheck_module
from onnxrewrite.suite.deploy.pipeline import Pipeline
from onnxrewrite.suite.deploy.regression_check import recheck
from onnxrewrite.suite.deploy.shipped import Figures, kept, load_pairs, save_pairs
from onnxrewrite.suite.deploy.stages.rewrite_stage import Rewrite

QUICK: dict[str, Any] = {"seconds": 0.1, "memory": False, "samples": 3, "threads": 1}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shipped")
    data = [{"x": np.random.default_rng(n).standard_normal((4, WIDTH)).astype(np.float32)} for n in range(3)]
    Pipeline(stages=[Rewrite()], data=data, **QUICK).run(saved(folder, chain()), folder / "out")
    return folder / "out"


@pytest.fixture
def folder(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, whose times are as recorded whatever the machine does."""
    recorded = json.loads((shipped / "report.json").read_text())["shipped"]["figures"]
    monkeypatch.setattr(recheck_module, "figures", lambda *given, **options: figures_of(recorded))
    return Path(shutil.copytree(shipped, tmp_path / "deployed"))


def figures_of(plain: Any, **changes: Any) -> Figures:
    spans = {name: Interval(**plain[name]) for name in ("latency", "creation")}
    return Figures(**{**plain, **spans, **changes})


def edit(path: Path, change: Any) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.slow
def test_what_is_as_recorded(shipped: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads((shipped / "report.json").read_text())
    assert set(report["shipped"]["files"]) == {"model.onnx", "run.py", "reference.npz"}
    assert report["files"]["reference"].endswith("reference.npz")
    assert report["shipped"]["outputs"]["y"] > 1 - 1e-9
    assert 0 < report["shipped"]["figures"]["latency"]["low"] <= report["shipped"]["figures"]["latency"]["high"] < 100
    assert main(["recheck", str(folder), "--json", str(folder / "again.json")]) == 0
    found = json.loads((folder / "again.json").read_text())
    assert [row["name"] for row in found["figures"]] == ["closeness of y", "time of a run", "time to open"]
    assert found["regressions"] == found["drift"] == []
    assert capsys.readouterr().out.rstrip().endswith(f"{folder}: as recorded")


@pytest.mark.slow
def test_figures_are_measured(shipped: Path) -> None:
    """On this machine, at another moment: figures in yardsticks agree within what a busy machine does."""
    found = recheck(shipped, seconds=0.3)
    (time,) = (f for f in found.figures if f.name == "time of a run")
    assert time.now is not None
    assert 0.2 < time.now / time.recorded < 5


def test_a_changed_file_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.py").unlink()
    model = onnx.load(str(folder / "model.onnx"))
    model.doc_string = "touched"
    onnx.save(model, str(folder / "model.onnx"))
    assert main(["recheck", str(folder), "-q"]) == 1
    assert recheck(folder).regressions == ["model.onnx: is not the file that was shipped", "run.py: is missing"]
    assert capsys.readouterr().out == f"{folder}: 2 regressions\n"


def test_outputs_that_are_further_off_are_told(folder: Path) -> None:
    model = onnx.load(str(folder / "model.onnx"))
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.ndim == 2:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.round(values, 1), tensor.name))
            break
    onnx.save(model, str(folder / "model.onnx"))
    (closeness,) = (f for f in recheck(folder).figures if f.name.startswith("closeness"))
    assert closeness.now is not None
    assert closeness.now < 1 - 1e-4 < closeness.recorded
    edit(folder / "report.json", lambda d: d["gate"].update(max_drop=1e-5))
    regressions = recheck(folder).regressions
    assert any(line.startswith("closeness of y: 0.") for line in regressions)
    assert any("the cosine similarity of y is" in line for line in regressions)


@pytest.mark.slow
def test_a_model_that_does_not_run_is_told(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"damaged")
    regressions = recheck(folder).regressions
    assert regressions[0] == "model.onnx: is not the file that was shipped"
    assert regressions[1].startswith("model.onnx: the model does not open in ONNX Runtime")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"latency": Interval(1.3, 1.2, 1.4)}, ["time of a run: 1.30 times what was recorded"]),
        ({"latency": Interval(1.3, 1.05, 1.4)}, []),
        ({"creation": Interval(1.2, 1.2, 1.2)}, []),
        ({"creation": Interval(1.4, 1.3, 1.5)}, ["time to open: 1.40 times what was recorded"]),
        ({"memory": 2**28}, ["peak of memory: 2.56 times what was recorded"]),
        ({"memory": 2**27 - 2**25}, []),
        ({"latency": Interval(9, 9, 9), "processor": "another"}, []),
        ({"latency": Interval(9, 9, 9), "cores": 64}, []),
    ],
)
def test_figures_that_are_worse(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], expected: list[str]
) -> None:
    one = {"median": 1.0, "low": 1.0, "high": 1.0}
    plain = {"latency": one, "creation": one, "memory": 100 * 2**20, "processor": "this", "cores": 2}
    edit(folder / "report.json", lambda d: d["shipped"].update(figures=plain))
    monkeypatch.setattr(recheck_module, "figures", lambda *given, **options: figures_of(plain, **changes))
    found = recheck(folder)
    assert found.regressions == expected
    assert any("times are shown, not judged" in note for note in found.notes) == bool(
        {"processor", "cores"} & set(changes)
    )


def test_versions_that_changed_are_told(folder: Path) -> None:
    edit(folder / "report.json", lambda d: d["versions"].update(onnxruntime="1.2.3", numpy="1.0"))
    found = recheck(folder)
    assert [(name, old) for name, old, _ in found.drift] == [("onnxruntime", "1.2.3"), ("numpy", "1.0")]
    assert any("onnxrewrite canary" in note for note in found.notes)


def test_a_file_that_opens_faster_is_what_is_run(folder: Path) -> None:
    shutil.copy(folder / "model.onnx", folder / "startup.onnx")
    edit(folder / "report.json", lambda d: d["final"].update(opened_as="startup.onnx"))
    (folder / "model.onnx").write_bytes(b"not opened")
    assert recheck(folder).regressions == ["model.onnx: is not the file that was shipped"]
    edit(folder / "report.json", lambda d: d["versions"].update(onnxruntime="1.2.3"))
    found = recheck(folder)
    assert any(line.startswith("model.onnx: the model does not open") for line in found.regressions)
    assert any(note.startswith("startup.onnx belongs to another version") for note in found.notes)


@pytest.mark.parametrize("damage", [None, "{", "[]", "{}", '{"shipped": {"figures": 3}}'])
def test_folders_without_a_record(folder: Path, damage: str | None) -> None:
    (folder / "report.json").unlink()
    if damage is not None:
        (folder / "report.json").write_text(damage)
    with pytest.raises(UsageError, match="name a folder that optimize wrote" if damage is None else "holds nothing to"):
        recheck(folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d["shipped"].update(files=["model.onnx"]),
        lambda d: d["shipped"].update(outputs={"y": "near"}),
        lambda d: d["final"].update(setting={"level": 7}),
        lambda d: d["final"].update(opened_as=3),
        lambda d: d["final"].update(metrics=None),
        lambda d: d.update(versions=[]),
        lambda d: d.update(gate=[]),
    ],
)
def test_records_with_something_else_in_them(folder: Path, damage: Any) -> None:
    edit(folder / "report.json", damage)
    with pytest.raises(UsageError, match="holds nothing to compare with; run optimize again"):
        recheck(folder)


@pytest.mark.slow
def test_weights_beside_a_model_are_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxrewrite.io.models.needs_external_data", lambda model: True)
    data = [{"x": np.zeros((4, WIDTH), np.float32)}]
    Pipeline(stages=[Rewrite()], data=data, **QUICK).run(saved(tmp_path, chain()), tmp_path / "out")
    files = json.loads((tmp_path / "out" / "report.json").read_text())["shipped"]["files"]
    assert {p.name for p in (tmp_path / "out").iterdir()} - set(files) == {"report.json", "report.html"}
    assert len(files) == 4


def test_a_report_over_what_was_shipped(folder: Path) -> None:
    before = (folder / "run.py").read_bytes()
    assert main(["recheck", str(folder), "--json", str(folder / "run.py")]) == 2
    assert (folder / "run.py").read_bytes() == before


def test_damaged_samples_are_told(folder: Path) -> None:
    whole = (folder / "reference.npz").read_bytes()
    for damaged in (b"PK damaged", b"", whole[:200], whole.replace(b"\x00\x00\x80", b"\x01\x02\x03")):
        (folder / "reference.npz").write_bytes(damaged)
        regressions = recheck(folder).regressions
        assert regressions[0] == "reference.npz: is not the file that was shipped"
        assert regressions[1].startswith("reference.npz: is damaged: ")
        assert len(regressions) == 2
    (folder / "reference.npz").unlink()
    found = recheck(folder)
    assert found.regressions == ["reference.npz: is missing"]
    assert found.figures == []
    assert found.notes == ["the samples cannot be read, so outputs and times are not compared"]


def test_pairs_come_back_and_are_few(tmp_path: Path) -> None:
    pairs = [({"a b": np.full(3, n)}, {"y": np.ones((2, 2), np.float16), "z": np.array(True)}) for n in range(20)]
    few = kept(iter(pairs))
    assert len(few) == 8
    save_pairs(tmp_path / "r.npz", few)
    first = (tmp_path / "r.npz").read_bytes()
    save_pairs(tmp_path / "r.npz", few)
    assert (tmp_path / "r.npz").read_bytes() == first
    for (inputs, outputs), (other, others) in zip(few, load_pairs(tmp_path / "r.npz"), strict=True):
        assert {n: v.tolist() for n, v in inputs.items()} == {n: v.tolist() for n, v in other.items()}
        assert {n: (v.dtype, v.tolist()) for n, v in outputs.items()} == {
            n: (v.dtype, v.tolist()) for n, v in others.items()
        }
    assert kept(iter([({"a": np.array(["text"])}, {})])) == []
    assert len(kept(iter([({"a": np.zeros(2**24, np.uint8)}, {})] * 9))) == 4
