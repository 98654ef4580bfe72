"""Reading samples: files, folders, functions, rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from onnxrewrite.errors import UsageError
from onnxrewrite.suite.quality.data import GENERATED, Sample, load_data


def model(
    shape: list[int | str | None] | None = None, *, dtype: int = TensorProto.FLOAT, more: bool = False
) -> ModelProto:
    inputs = [helper.make_tensor_value_info("x", dtype, shape if shape is not None else ["batch", 3])]
    if more:
        inputs.append(helper.make_tensor_value_info("n", TensorProto.INT64, ["batch"]))
    outputs = [helper.make_tensor_value_info("y", dtype, None)]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_an_npz_file_is_one_sample(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((4, 3), np.float32), labels=np.arange(4))
    found = load_data(tmp_path / "a.npz", model())
    assert [s.inputs["x"].shape for s in found] == [(4, 3)]
    assert found[0].label.tolist() == [0, 1, 2, 3]
    assert not found.generated


def test_one_axis_more_is_one_sample_a_row(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(24, dtype=np.float32).reshape(4, 2, 3), label=np.arange(4))
    found = load_data(tmp_path / "a.npz", model())
    assert len(found) == 4
    assert found[3].inputs["x"].tolist() == [[18, 19, 20], [21, 22, 23]]
    assert found[3].label == 3


def test_rows_beyond_a_batch_of_one_are_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(6, dtype=np.float32).reshape(2, 3))
    found = load_data(tmp_path / "a.npz", model([1, 3]))
    assert [s.inputs["x"].tolist() for s in found] == [[[0, 1, 2]], [[3, 4, 5]]]


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        np.save(tmp_path / f"{number}.npy", np.full((1, 3), number, np.float32))
    found = load_data(tmp_path, model(), most=2)
    assert [s.inputs["x"][0, 0] for s in found] == [0, 1]


def test_a_function_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef samples():\n    for n in range(5):\n        yield {'x': np.full((1, 3), n, 'f4')}, n\n"
    )
    found = load_data(f"{tmp_path / 'mine.py'}:samples", model())
    assert [s.label for s in found] == [0, 1, 2, 3, 4]


def test_nothing_given_is_made_up_and_says_so() -> None:
    found = load_data(None, model(), seed=3)
    assert found.generated
    assert len(found) == GENERATED
    assert found.digest == load_data(None, model(), seed=3).digest
    assert found.digest != load_data(None, model(), seed=4).digest
    assert not np.array_equal(found[0].inputs["x"], found[1].inputs["x"])


def test_doubles_are_rounded_to_what_the_model_takes() -> None:
    assert load_data([{"x": np.ones((1, 3))}], model())[0].inputs["x"].dtype == np.float32


def test_a_slice_of_data_is_data() -> None:
    found = load_data([Sample({"x": np.ones((1, 3), np.float32)}) for _ in range(3)], model())
    assert len(found[:2]) == 2
    assert found[:2].source == found.source


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "holds no samples"),
        ([{"y": np.ones(3)}], "sample 0 lacks input x; it has y"),
        ([{"x": np.ones((2, 4), np.float32)}], "sample 0, input x: has shape [2, 4], the model wants [batch, 3]"),
        ([{"x": np.ones((2, 3), complex)}], "holds complex128, the model wants float32"),
        ([3], "sample 0 is int; give a dict of arrays by name"),
        ("missing.npz", "missing.npz: no such file or folder"),
        ("no.such.module:samples", "no.such.module cannot be imported"),
        ("json:nothing", "json has no function nothing"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(given: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_data(given, model())  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_arrays(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_text("rubbish")
    with pytest.raises(UsageError, match="holds no arrays, or is damaged"):
        load_data(tmp_path / "a.npz", model())
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match=r"holds no \.npz and no \.npy files"):
        load_data(empty, model())
    np.save(tmp_path / "b.npy", np.ones((1, 3), np.float32))
    with pytest.raises(UsageError, match=r"a \.npy file is one input; the model has x, n"):
        load_data(tmp_path / "b.npy", model(more=True))


def test_a_generator_that_fails_is_named() -> None:
    def samples() -> object:
        yield {"x": np.ones((1, 3), np.float32)}
        raise RuntimeError("the disk is gone")

    with pytest.raises(UsageError, match="samples: the disk is gone"):
        load_data(samples, model())  # type: ignore[arg-type]
