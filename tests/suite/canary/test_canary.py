"""Versions of ONNX Runtime compared on a model: what differs, which optimizer is the cause, and a small model of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxrewrite.cli import main
from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.suite.canary import ort_environments, version_comparison
from onnxrewrite.suite.canary.model_reduction import reduced, with_all_values
from onnxrewrite.suite.canary.optimizer_culprit import Culprit, culprit
from onnxrewrite.suite.canary.ort_environments import environments, load_arrays, save_arrays
from onnxrewrite.suite.canary.reproduction import write_report
from onnxrewrite.suite.canary.version_comparison import Canary, Shown, Version, canary

CAST = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 8] x, float[n, 8] w) => (float[n, 8] y, float[n, 8] z) {
  one = Constant <value_float = 1.0> ()
  a = Relu(x)  b = Sigmoid(a)  c = Mul(b, w)
  mid = Cast <to = 1> (c)
  d = Abs(w)  e = Add(d, one)
  r = Div(one, e)
  y = Mul(mid, r)
  f = Tanh(b)  z = Sub(f, w)
}"""
"""microsoft/onnxruntime #32416 between other nodes: DivMulFusion and CastElimination leave an input without a producer."""

GOOD = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 8] x) => (float[n, 8] y) { a = Relu(x)  y = Tanh(a) }"""


def saved(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), str(path))
    return path


# The culprit


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ([{"C"}], Culprit(("C",))),
        ([{"B"}, {"E"}], Culprit(("B",), ("E",))),
        ([{"B", "F"}], Culprit(("B", "F"))),
        ([{"A", "D", "G"}], Culprit(("A", "D", "G"))),
        ([{"X"}], Culprit(())),
    ],
)
def test_culprits(needs: list[set[str]], expected: Culprit) -> None:
    """``needs``: sets of optimizers of which one has to be disabled as a whole."""
    asked = []

    def is_right(without: tuple[str, ...]) -> bool:
        asked.append(without)
        return any(each <= set(without) for each in needs)

    found = culprit(list("ABCDEFGH"), is_right)
    assert (set(found.optimizers), set(found.others)) in (
        (set(expected.optimizers), set(expected.others)),
        (set(expected.others), set(expected.optimizers)),
    )
    assert len(asked) < 40


def test_a_transformer_of_many_rules_is_no_further_culprit() -> None:
    found = culprit(["CastElimination", "Level1_RuleBasedTransformer"], lambda without: bool(without))
    assert found == Culprit(("CastElimination",))
    assert str(found) == "CastElimination"
    assert str(Culprit(())) == "none that can be disabled by name"


# The small model


def test_a_model_is_reduced_to_the_nodes_that_matter() -> None:
    text = "a0 = Relu(x) " + " ".join(f"a{n} = Relu(a{n - 1})" for n in range(1, 40))
    text += " t = Tanh(a20) s = Sin(t) u = Add(s, w) "
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] a39, float[4] u) <float[4] w> {{ {text} }}'
    )
    model.graph.initializer.add().CopyFrom(numpy_helper.from_array(np.ones(4, np.float32), "w"))
    names = {v.name for v in with_all_values(model).graph.output}
    assert names == {"t", "s", "u", *(f"a{n}" for n in range(40))}
    values = dict.fromkeys([*names, "x"], np.ones(4, np.float32))
    tried = []

    def shows(part: onnx.ModelProto, feeds: Any) -> bool:
        tried.append(part)
        assert {i.name for i in part.graph.input} == set(feeds)
        return [n.op_type for n in part.graph.node if n.op_type != "Relu"][:2] == ["Tanh", "Sin"]

    found = reduced(model, values, shows, seconds=60)
    assert found is not None
    assert [n.op_type for n in found[0].graph.node] == ["Tanh", "Sin"]
    assert set(found[1]) == {"a20"}
    assert len(tried) < 120
    assert reduced(model, values, lambda part, feeds: False, seconds=60) is None


def test_what_a_subgraph_reads_is_an_input() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (bool c, float[4] x) => (float[4] y) {
          a = Relu(x)  b = Abs(x)
          y = If (c) <then_branch = t () => (float[4] p) { p = Neg(a) }, else_branch = e () => (float[4] q) { q = Neg(b) }>
        }"""
    )
    values = {"c": np.array(True), **dict.fromkeys("xaby", np.ones(4, np.float32))}
    found = reduced(model, values, lambda part, feeds: any(n.op_type == "If" for n in part.graph.node), seconds=60)
    assert found is not None
    assert [n.op_type for n in found[0].graph.node] == ["If"]
    assert set(found[1]) == {"c", "a", "b"}
    assert {i.name: i.type.tensor_type.elem_type for i in found[0].graph.input} == {"c": 9, "a": 1, "b": 1}


# Environments


@pytest.mark.slow
def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    model = saved(tmp_path / "m.onnx", GOOD)
    feeds = tmp_path / "feeds.npz"
    save_arrays(feeds, {"x": np.ones((2, 8), np.float32), "text": np.array(["no"], object)})
    with environments(["installed"]) as (here,):
        assert here.version.count(".") == 2
        assert {"CastElimination", "DivMulFusion", "ConstantFolding", "GemmActivationFusion"} <= set(here.optimizers)
        assert here._process is not None
        here._process.kill()
        here._process.wait()
        opened = here.opened(model, feeds, outputs=tmp_path / "out.npz")
        assert not opened.failure
        assert load_arrays(tmp_path / "out.npz")["y"].shape == (2, 8)
        assert "none.onnx" in here.opened(tmp_path / "none.onnx", feeds).failure
        process = here._process
    assert process.poll() is not None


@pytest.mark.parametrize("version", ["1", "latest", "1.31; rm", "../1.2", "", "1.31,"])
def test_versions_that_are_none(version: str) -> None:
    with pytest.raises(UsageError, match=r"write versions such as 1\.31"):
        ort_environments.python_with(version)


@pytest.mark.slow
def test_an_index_that_cannot_be_reached_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        UsageError, match=r"^--ort 1\.31: the package index cannot be reached, from which pip gets onnx"
    ):
        ort_environments.python_with("1.31")
    left = list((tmp_path / "onnxrewrite" / "onnxruntime").iterdir())
    assert left == []


# The whole


def test_a_fault_of_optimizers_is_found_and_shown(tmp_path: Path) -> None:
    model = saved(tmp_path / "cast.onnx", CAST)
    found = canary(model, ["installed"], seconds=0.1, search=60)
    (version,) = found.versions
    assert "mid" in version.failure
    assert version.unoptimized == ""
    assert version.culprit is not None
    assert {*version.culprit.optimizers, *version.culprit.others} == {"CastElimination", "DivMulFusion"}
    (shown,) = found.shown
    assert sorted(n.op_type for n in shown.model.graph.node) == ["Cast", "Constant", "Div", "Mul"]
    lines = write_report(tmp_path / "report", found, shown)
    assert len(lines) <= 10
    assert "a valid model does not run with graph optimizations" in lines[0]
    assert "Invalid model" in lines[2]
    onnx.checker.check_model(onnx.load(str(tmp_path / "report" / "model.onnx")), full_check=True)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "report" / "reproduce.py")], capture_output=True, text=True, check=True
    )
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines()[1:])
    assert "Invalid model" in said["all optimizations"]
    assert said["no optimization"][:3] == said["all but the culprit"][:3] == "[[" + said["no optimization"][2]


@pytest.mark.slow
def test_a_model_without_drift(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved(tmp_path / "good.onnx", GOOD)
    assert (
        main(["canary", str(model), "--ort", "installed", "--seconds", "0.1", "--json", str(tmp_path / "r.json")]) == 0
    )
    data = json.loads((tmp_path / "r.json").read_text())
    (version,) = data["versions"]
    assert version["operators"] == {"Relu": 1, "Tanh": 1}
    assert version["ratio"]["median"] == 1
    assert 0 < version["latency"]["median"] < 1
    assert 0 < version["creation"]["median"] < 10
    assert version["memory"] > 0
    assert "no drift" in capsys.readouterr().out
    assert not (tmp_path / "good.onnx.canary").exists()


SEQUENCE = GOOD.replace("float[n, 8] y)", "seq(float[n, 8]) s)").replace(
    "Tanh(a)", "Tanh(a)  s = SequenceConstruct(a, y)"
)


@pytest.mark.slow
def test_sequences_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(tmp_path / "s.onnx", SEQUENCE)
    save_arrays(tmp_path / "feeds.npz", {"x": np.ones((2, 8), np.float32)})
    with environments(["installed"]) as (here,):
        assert not here.opened(model, tmp_path / "feeds.npz", outputs=tmp_path / "out.npz").failure
    assert {name: value.shape for name, value in load_arrays(tmp_path / "out.npz").items()} == {
        "s[0]": (2, 8),
        "s[1]": (2, 8),
    }
    found = canary(model, ["installed"], seconds=0.1)
    assert (found.regressions, found.notes) == ([], [])
    arrays = iter([{"s[0]": np.zeros(3), "s[1]": np.zeros(3)}, {"s[0]": np.zeros(3), "s[1]": np.ones(3)}])
    monkeypatch.setattr(version_comparison, "load_arrays", lambda path: next(arrays, {"s[0]": np.zeros(3)}))
    (version,) = canary(model, ["installed"], seconds=0.1, search=0).versions
    assert version.difference.startswith("s[1]: ")


@pytest.mark.slow
def test_outputs_that_are_not_compared_are_told(tmp_path: Path) -> None:
    text = 't = Constant <value = string[1] {"a"}> ()'
    both = saved(tmp_path / "b.onnx", GOOD.replace("y)", "y, string[1] t)").replace("Tanh(a)", f"Tanh(a)  {text}"))
    found = canary(both, ["installed"], seconds=0.1)
    assert found.notes == ["not compared, for numpy has no numbers like them: t"]
    alone = saved(tmp_path / "a.onnx", GOOD.replace("float[n, 8] y)", "string[1] t)").replace("y = Tanh(a)", text))
    with pytest.raises(ModelError, match="none of its outputs can be compared: t"):
        canary(alone, ["installed"])


@pytest.mark.slow
def test_a_model_that_cannot_be_saved_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = ort_environments.Environment.opened

    def unsaved(self: Any, *given: Any, **options: Any) -> Any:
        if "optimized" in options:
            options["optimized"] = tmp_path / "no folder" / "m.onnx"
        return opened(self, *given, **options)

    monkeypatch.setattr(ort_environments.Environment, "opened", unsaved)
    (version,) = canary(saved(tmp_path / "m.onnx", GOOD), ["installed"], seconds=0.1).versions
    assert (version.fault, version.operators) == ("", {})


@pytest.mark.slow
def test_two_names_of_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort_environments, "python_with", lambda version: Path(sys.executable))
    with pytest.raises(UsageError, match=r"--ort 1\.2,1\.2\.0: these are"):
        canary(saved(tmp_path / "m.onnx", GOOD), ["1.2", "1.2.0"])


def test_reports_are_whole_or_not_there(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(GOOD.replace("x)", "file)"))
    shown = Shown("1.2.3", model, {"file": np.ones((1, 8), np.float32), "a/b": np.zeros(2)})
    result = Canary("m", {}, 1, versions=[Version("1.2.3", failure="no")])
    write_report(tmp_path / "r", result, shown)
    first = (tmp_path / "r" / "inputs.npz").read_bytes()
    with np.load(tmp_path / "r" / "inputs.npz") as arrays:
        assert {name: arrays[name].shape for name in arrays.files} == {"file": (1, 8), "a/b": (2,)}
    write_report(tmp_path / "r", result, shown)
    assert (tmp_path / "r" / "inputs.npz").read_bytes() == first
    (tmp_path / "taken").touch()
    with pytest.raises(ModelError, match=r"-o .*: cannot be written: Not a directory"):
        write_report(tmp_path / "taken" / "r", result, shown)


def test_a_model_that_runs_nowhere_is_told(tmp_path: Path) -> None:
    model = saved(tmp_path / "odd.onnx", GOOD)
    proto = onnx.load(str(model))
    proto.graph.node[0].op_type = "NoSuchOperator"
    onnx.save(proto, str(model))
    with pytest.raises(ModelError):
        canary(model, ["installed"])
    with pytest.raises(UsageError, match="each once"):
        canary(model, ["installed", "installed"])


def test_regressions() -> None:
    from onnxrewrite.measure.timing import Interval

    first = Version("1.31.0", latency=Interval(1, 1, 1), memory=100_000_000)
    slower = Version("1.32.0", ratio=Interval(1.3, 1.2, 1.4), memory=300_000_000)
    noisy = Version("1.33.0", ratio=Interval(1.3, 0.9, 1.4), memory=101_000_000)
    wrong = Version("1.34.0", difference="y: error 3")
    assert Canary("m", {}, 1, [first, slower, noisy, wrong]).regressions == [
        "1.34.0: y: error 3",
        "1.32.0: 1.30 times the time of 1.31.0",
        "1.32.0: 3.00 times the memory of 1.31.0",
    ]


@pytest.mark.slow
def test_versions_of_the_package_index(tmp_path: Path) -> None:
    model = saved(tmp_path / "cast.onnx", CAST)
    try:
        found = canary(model, ["1.31", "installed"], seconds=0.1, search=60)
    except UsageError as error:
        if "package index" in str(error):
            pytest.skip(str(error))
        raise
    old, new = found.versions
    assert old.name.startswith("1.31.")
    assert new.name.endswith("(installed)")
    assert old.culprit is not None
    assert {*old.culprit.optimizers, *old.culprit.others} == {"CastElimination", "DivMulFusion"}
    assert len(found.shown) == 1  # of the newest; the report says that the other has it, too
    assert any("1.31" in line and "has it, too" in line for line in write_report(tmp_path / "r", found, found.shown[0]))
    good = canary(saved(tmp_path / "good.onnx", GOOD), ["1.31", "installed"], seconds=0.5)
    assert [version.fault for version in good.versions] == ["", ""]
    assert good.versions[1].ratio is not None
