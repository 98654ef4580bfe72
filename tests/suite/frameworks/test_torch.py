"""PyTorch modules as models: both exporters, what they cannot do, and what they do wrong."""

from __future__ import annotations

import gc
import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'onnxrewrite[torch]'")

import onnxrewrite as rw  # noqa: E402
from onnxrewrite.errors import CheckError, ModelError, UsageError  # noqa: E402
from onnxrewrite.suite.frameworks import torch_exporters  # noqa: E402
from onnxrewrite.suite.frameworks.torch_calls import Call, evaluating, to_array, to_tensor  # noqa: E402

nn = torch.nn


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(32)

    def forward(self, x: Any) -> Any:
        return self.second(self.drop(nn.functional.gelu(self.norm(self.first(x)))))


class Nested(nn.Module):
    """Arguments that are nested, or no tensors; outputs by key, one of them nothing."""

    def forward(self, ids: Any, states: Any, flag: bool = True, *, scale: float) -> Any:
        total = states["a"] + states["b"][0] * scale
        return {"total": total if flag else states["a"], "twice": (ids * 2, None)}


class Add(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return a + b


class Of(nn.Module):
    """A function of one tensor."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


X = torch.linspace(-2, 2, 48).reshape(3, 16)
TRACED: dict[str, Any] = {"exporter": "torchscript", "optimize": False}


def ends(path: Path) -> tuple[list[str], list[str]]:
    graph = onnx.load(path).graph
    return [i.name for i in graph.input], [o.name for o in graph.output]


def dims(path: Path) -> list[Any]:
    return [d.dim_param or d.dim_value for d in onnx.load(path).graph.input[0].type.tensor_type.shape.dim]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A module exported as one does, which takes seconds the first time."""
    path = tmp_path_factory.mktemp("torch") / "mlp.onnx"
    module = Mlp().train()
    return rw.deploy.export(module, X[:1], path, dynamic_axes={"x": {0: "batch"}}, lower="fused"), path, module


def test_a_module_becomes_a_checked_model(exported: Any) -> None:
    made, path, module = exported
    assert made.path == path
    assert made.exporter == "dynamo"
    assert made.comparison.ok
    assert made.comparison.runs == 9
    assert made.comparison.reference == "float64"
    assert made.result.checks.model.ok
    assert ends(path) == (["x"], ["output"])
    assert dims(path) == ["batch", 16]
    module.eval()
    with torch.no_grad():
        wanted = module(X).numpy()
    np.testing.assert_allclose(rw.session(path).run(None, {"x": X.numpy()})[0], wanted, rtol=1e-4, atol=1e-5)
    module.train()
    assert set(made.to_json()) == {"path", "exporter", "comparison", "result", "outcome", "folder", "notes"}


def test_a_module_in_training_mode_is_put_back_part_by_part(exported: Any) -> None:
    made, _, _ = exported
    assert "the module was in training mode; it was exported in evaluation mode" in made.notes
    module = Mlp().train()
    module.norm.eval()  # frozen, as one does
    made = rw.deploy.export(module, X, **TRACED)
    assert [m.training for m in (module, module.norm, module.drop)] == [True, False, True]
    assert rw.deploy.export(Mlp().eval(), X, **TRACED).notes == ()
    with pytest.raises(RuntimeError), evaluating(module):
        raise RuntimeError
    assert module.training


def test_a_size_of_one_is_dynamic_all_the_same(exported: Any) -> None:
    made, _, _ = exported
    assert "exported at batch=2, for torch.export takes a size of 1 for fixed" in made.notes


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_nested_arguments_and_outputs(exporter: Any) -> None:
    states = {"a": X, "b": [X + 1]}
    shapes = {"ids": None, "states": {"a": {0: "n"}, "b": [{0: "n"}]}}
    made = rw.deploy.export(
        Nested(),
        (torch.arange(3), states),
        kwargs={"scale": 2.0},
        dynamic_shapes=shapes,
        exporter=exporter,
        optimize=False,
    )
    assert ends(made.path) == (["ids", "states_a", "states_b_0"], ["total", "twice_0"])
    feeds = {"ids": np.arange(3), "states_a": np.ones((5, 16), np.float32), "states_b_0": np.ones((5, 16), np.float32)}
    total, twice = rw.session(made.path).run(None, feeds)
    assert (total == 3).all()
    assert twice.tolist() == [0, 2, 4]


def test_names_are_those_of_forward_or_those_given() -> None:
    assert ends(rw.deploy.export(Add(), (X, X), **TRACED).path) == (["a", "b"], ["output"])
    assert ends(rw.deploy.export(Add(), {"b": X, "a": X}, **TRACED).path) == (["a", "b"], ["output"])
    made = rw.deploy.export(Add(), (X, X), input_names=["p", "q"], output_names=["r"], **TRACED)
    assert ends(made.path) == (["p", "q"], ["r"])
    assert ends(rw.deploy.export(Of(lambda x: (x + 1, x - 1)), X, **TRACED).path)[1] == ["output_0", "output_1"]


def test_axes_without_names_and_dimensions_of_torch() -> None:
    assert dims(rw.deploy.export(Mlp(), X, dynamic_axes={"x": [0]}, **TRACED).path) == ["x_dim0", 16]
    shapes = ({0: torch.export.Dim("rows", min=2, max=64)},)
    assert dims(rw.deploy.export(Mlp(), X, dynamic_shapes=shapes, **TRACED).path) == ["rows", 16]


def test_one_exporter_stands_in_for_the_other() -> None:
    def looks_at_its_values(x: Any) -> Any:
        return x * 2 if bool(x.abs().sum() >= 0) else x

    made = rw.deploy.export(Of(looks_at_its_values), X, optimize=False)
    assert made.exporter == "torchscript"
    assert any(note.startswith("not by dynamo: GuardOnDataDependent") for note in made.notes)
    assert any(note.startswith("the tracer warns: ") for note in made.notes)


def test_a_trace_that_holds_for_the_example_alone_is_refused(tmp_path: Path) -> None:
    branch = Of(lambda x: x * 2 if x.sum() > 0 else x - 1)
    path = tmp_path / "m.onnx"
    with pytest.raises(
        CheckError, match=r"no export computes what Of computes.*torchscript: its model is wrong: output"
    ):
        rw.deploy.export(branch, X.abs(), path, **TRACED)
    rows = Of(lambda x: sum(x[i] for i in range(len(x))))
    with pytest.raises(CheckError, match=r"its model is wrong: on sample 0 at batch=2 the export fails"):
        rw.deploy.export(rows, X, path, dynamic_axes={"x": {0: "batch"}}, **TRACED)
    assert list(tmp_path.iterdir()) == []
    assert rw.deploy.export(branch, X.abs(), path, check=False, **TRACED).comparison is None  # who asks for it gets it
    assert path.exists()


def test_what_neither_takes_is_told_of_both(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("onnxrewrite.test")
    eigenvalues = Of(lambda x: torch.linalg.eigvals(x).real)
    with pytest.raises(ModelError, match=r"^Of cannot be exported: dynamo: \w+: .*; torchscript: UnsupportedOperator"):
        rw.deploy.export(eigenvalues, torch.eye(3))
    assert capfd.readouterr() == ("", "")
    assert logger.isEnabledFor(logging.ERROR)
    with pytest.raises(ModelError, match=r"^Of cannot be exported: torchscript: "):
        rw.deploy.export(eigenvalues, torch.eye(3), **TRACED)


def test_nothing_is_printed_and_no_warning_is_left_over(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rw.deploy.export(Mlp().eval(), X, **TRACED)
    assert capfd.readouterr() == ("", "")


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no module": (len, {}, "export takes a torch.nn.Module, not builtin_function_or_method"),
    "arguments": (Add(), {}, "the example does not fit Add.forward: missing a required argument: 'b'"),
    "exporter": (Mlp(), {"exporter": "onnx"}, "exporter must be auto, dynamo, torchscript, not 'onnx'"),
    "axes": (Mlp(), {"dynamic_axes": {"y": [0]}}, "dynamic_axes: the module has no input 'y'; it has x"),
    "axis": (Mlp(), {"dynamic_axes": {"x": [2]}}, "input 'x' has 2 axes, none is 2"),
    "both": (Mlp(), {"dynamic_axes": {}, "dynamic_shapes": ()}, "give dynamic_axes or dynamic_shapes, not both"),
    "no mapping": (Mlp(), {"dynamic_axes": [0]}, "dynamic_axes must map names of inputs to axes"),
    "names": (Mlp(), {"input_names": ["a", "b"]}, "there are 2 input_names for 1 tensors: x"),
    "outputs": (Mlp(), {"output_names": ["a", "b"]}, "there are 2 output_names for 1 tensors: output"),
    "opset": (Mlp(), {"opset": 99}, "opset 99 is not one from 7 to"),
    "options": (Mlp(), {"optimize": False, "lower": "fused"}, "lower is an option of apply, which does not run here"),
}


@pytest.mark.parametrize(("module", "options", "line"), WRONG.values(), ids=list(WRONG))
def test_what_cannot_be_used_is_one_line(module: Any, options: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        rw.deploy.export(module, X, **options)


def test_places_are_looked_at_before_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxrewrite.suite.frameworks.torch.first_right", lambda *_: pytest.fail("it was exported"))
    module, x = torch.nn.Linear(3, 2), torch.zeros(1, 3)
    with pytest.raises(UsageError, match=f"there is no folder {tmp_path / 'no'}"):
        rw.deploy.export(module, x, tmp_path / "no" / "m.onnx")
    with pytest.raises(UsageError, match="--data nowhere: no such file or folder"):
        rw.deploy.export(module, x, tmp_path / "out", optimize=rw.deploy.Pipeline(data="nowhere"))


def test_a_module_that_does_not_run_is_one_line() -> None:
    with pytest.raises(
        ModelError, match=r"^Mlp does not run on the example: mat1 and mat2 shapes cannot be multiplied"
    ):
        rw.deploy.export(Mlp(), torch.ones(2, 3))
    with pytest.raises(UsageError, match="the example has no tensor"):
        rw.deploy.export(Add(), (1, 2))
    with pytest.raises(ModelError, match="Of returns no tensor"):
        rw.deploy.export(Of(lambda x: None), X)


def test_an_opset_is_kept_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = rw.deploy.export(Mlp(), X, opset=15, **TRACED)
    assert [i.version for i in onnx.load(made.path).opset_import if not i.domain] == [15]
    monkeypatch.setattr(torch_exporters.io, "opset", lambda model: 14)
    with pytest.raises(ModelError, match="it made a model of opset 14, not 15"):
        rw.deploy.export(Mlp(), X, opset=15, **TRACED)


def test_no_folder_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    rw.deploy.export(Mlp(), X, tmp_path / "m.onnx", **TRACED)
    assert list((tmp_path / "temporary").iterdir()) == []
    with pytest.raises(ModelError):
        rw.deploy.export(Of(lambda x: torch.linalg.eigvals(x).real), X, **TRACED)
    assert list((tmp_path / "temporary").iterdir()) == []
    result = rw.deploy.export(Mlp(), X, tmp_path / "m.onnx", exporter="torchscript", check=False, lower="fused").result
    assert result.certificate  # reads the original
    del result
    gc.collect()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_something_else_may_optimize(tmp_path: Path) -> None:
    seen: list[Path] = []

    def optimize(path: Path) -> Any:
        seen.append(path)
        return rw.apply(path, check="off")

    made = rw.deploy.export(Mlp(), X, tmp_path / "m.onnx", exporter="torchscript", optimize=optimize)
    assert made.result is not None
    assert len(seen) == 1
    assert seen[0] != made.path == tmp_path / "m.onnx"
    assert rw.session(made.path).run(None, {"x": X.numpy()})[0].shape == (3, 8)


def test_rewriting_comes_after_the_comparison() -> None:
    made = rw.deploy.export(Mlp(), X, exporter="torchscript", opset=17, lower="fused")
    assert made.result is not None
    assert made.result.trace.counts()
    assert made.comparison is not None
    assert made.comparison.ok
    assert made.path.exists()


def test_a_random_module_is_not_compared() -> None:
    made = rw.deploy.export(Of(lambda x: x + torch.rand_like(x)), X, **TRACED)
    assert "the module is random; nothing was compared" in made.notes


def test_random_numbers_of_the_caller_stay() -> None:
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    rw.deploy.export(Of(lambda x: x + torch.rand_like(x)), X, **TRACED)
    assert torch.equal(torch.rand(3), wanted)


def test_a_module_of_float32_at_heart_is_compared_with_itself() -> None:
    made = rw.deploy.export(Of(lambda x: x.to(torch.float32) @ torch.ones(16, 4)), X, **TRACED)
    assert made.comparison is not None
    assert made.comparison.reference == "float32"
    assert "the module does not run in float64: compared with its own float32" in made.notes


def test_a_wrong_constant_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an exporter may write it: Gelu by tanh, for the exact one."""
    real = torch.onnx.export

    def by_tanh(module: Any, args: Any, path: str, **options: Any) -> None:
        real(Of(lambda x: nn.functional.gelu(x, approximate="tanh")), args, path, **options)

    monkeypatch.setattr(torch.onnx, "export", by_tanh)
    with pytest.raises(CheckError, match=r"torchscript: its model is wrong: output output on the example: error"):
        rw.deploy.export(Of(nn.functional.gelu), X, **TRACED)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "bool", "uint8"])
def test_tensors_and_arrays(dtype: str) -> None:
    tensor = (torch.arange(6) % 2).reshape(2, 3).to(getattr(torch, dtype)).T
    array = to_array(tensor)
    assert str(array.dtype) == dtype
    assert array.shape == (3, 2)
    assert torch.equal(to_tensor(array, tensor), tensor)
    array[:] = 0  # an array of its own
    assert tensor.any()
    assert to_tensor(array, tensor, double=True).dtype == (torch.float64 if "float" in dtype else tensor.dtype)


def test_noise_is_a_unit_roundoff_or_two() -> None:
    module = Mlp().eval()
    call = Call.of(module, X, {})
    still, moved = call.run(call.feeds), call.disturbed(call.feeds, 1)
    assert moved is not None
    assert 0 < np.abs(still[0] - moved[0]).max() < 1e-5
    assert call.disturbed(call.feeds, 1)[0].tobytes() == moved[0].tobytes()
    assert torch.equal(call.tensors["x"], X)


def test_a_tensor_given_twice_is_two_inputs() -> None:
    made = rw.deploy.export(Add(), (X, X), dynamic_shapes=({0: "n"}, {0: "n"}), **TRACED)
    assert ends(made.path)[0] == ["a", "b"]
    assert made.comparison is not None
    assert made.comparison.runs == 9


def test_a_size_of_the_example_that_is_declared_and_not_kept_is_left_open(tmp_path: Path) -> None:
    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(8, 16, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.lstm(x)[0]

    axes = {"x": {0: "batch", 1: "time"}}
    path = tmp_path / "lstm.onnx"
    found = rw.deploy.export(
        Recurrent(), torch.randn(3, 7, 8), path, dynamic_axes=axes, exporter="dynamo", optimize=False
    )
    assert found.comparison is not None
    assert found.comparison.ok
    assert any("declares 7 for axis 1, which is" in note for note in found.notes), found.notes
    (output,) = onnx.load(path).graph.output
    assert [d.dim_value for d in output.type.tensor_type.shape.dim] == [0, 0, 16]
