"""Reading samples: files, folders, functions, rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnxruntime import InferenceSession

from onnxrewrite.errors import UsageError
from onnxrewrite.suite.quality.data import GENERATED, Sample, load_data


def of_inputs(**inputs: tuple[int, list[int | str | None]]) -> ModelProto:
    """A model with inputs of these dtypes and shapes."""
    made = model()
    del made.graph.input[:]
    made.graph.input.extend(helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items())
    made.graph.node[0].input[0] = next(iter(inputs))
    return made


def model(
    shape: list[int | str | None] | None = None, *, dtype: int = TensorProto.FLOAT, more: bool = False
) -> ModelProto:
    inputs = [helper.make_tensor_value_info("x", dtype, shape if shape is not None else ["batch", 3])]
    if more:
        inputs.append(helper.make_tensor_value_info("n", TensorProto.INT64, ["batch"]))
    outputs = [helper.make_tensor_value_info("y", dtype, None)]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("shape", [["batch", 3], [None, 3], [1, 3]])
def test_each_row_is_a_sample(shape: list[int | str | None], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(12, dtype=np.float32).reshape(4, 3), labels=np.arange(4))
    found = load_data(tmp_path / "a.npz", model(shape))
    assert [s.inputs["x"].tolist() for s in found] == [[[3 * n, 3 * n + 1, 3 * n + 2]] for n in range(4)]
    assert [s.label for s in found] == [0, 1, 2, 3]
    assert not found.generated


def test_what_takes_no_batch_is_one_sample(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((4, 3), np.float32), labels=np.arange(4))
    found = load_data(tmp_path / "a.npz", model([4, 3]))
    assert [s.inputs["x"].shape for s in found] == [(4, 3)]
    assert found[0].label.tolist() == [0, 1, 2, 3]


def test_a_graph_of_nodes_and_edges_is_one_sample(tmp_path: Path) -> None:
    made = of_inputs(x=(TensorProto.FLOAT, ["nodes", 3]), edges=(TensorProto.INT64, [2, "edges"]))
    np.savez(tmp_path / "a.npz", x=np.ones((5, 3), np.float32), edges=np.zeros((2, 7), np.int64))
    assert [s.inputs["x"].shape for s in load_data(tmp_path / "a.npz", made)] == [(5, 3)]


def test_the_batch_may_be_any_axis_and_inputs_without_one_are_shared(tmp_path: Path) -> None:
    made = of_inputs(
        x=(TensorProto.FLOAT, ["batch", 3]),
        state=(TensorProto.FLOAT, [2, "batch", 3]),
        scale=(TensorProto.FLOAT, []),
        places=(TensorProto.INT64, [1, "length"]),
    )
    state = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    places = np.zeros((1, 7), np.int64)
    np.savez(tmp_path / "a.npz", x=np.ones((4, 3), np.float32), state=state, scale=np.float32(2), places=places)
    found = load_data(tmp_path / "a.npz", made)
    assert len(found) == 4
    assert found[3].inputs["state"].tolist() == state[:, 3:].tolist()
    assert found[3].inputs["scale"] == 2
    assert found[3].inputs["places"].shape == (1, 7)


def test_rows_are_run_in_batches_where_that_is_asked_for(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((5, 3), np.float32), label=np.arange(5))
    found = load_data(tmp_path / "a.npz", model(), batch=2)
    assert [len(s.inputs["x"]) for s in found] == [2, 2, 1]
    assert [s.label.tolist() for s in found] == [[0, 1], [2, 3], [4]]
    assert len(found.timed.inputs["x"]) == 2
    assert len(load_data(None, model(), batch=4)[0].inputs["x"]) == 4


@pytest.mark.parametrize(
    ("shape", "array", "message"),
    [
        (["batch", 3], (2, 3), "a.npz: holds 2 rows to run at once, fewer than the batch of 3"),
        ([1, 3], (9, 3), "a.npz: holds 1 row to run at once, fewer than the batch of 3"),
        (["batch", 3], (9, 2, 3), "a.npz: holds 1 row to run at once, fewer than the batch of 3"),
    ],
)
def test_a_batch_that_cannot_be_had(
    shape: list[int | str | None], array: tuple[int, ...], message: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones(array, np.float32))
    with pytest.raises(UsageError, match=message):
        load_data(tmp_path / "a.npz", model(shape), batch=3)


def test_a_batch_is_for_rows_of_files() -> None:
    with pytest.raises(UsageError, match="--data samples: gives whole runs; a batch is for rows of files"):
        load_data([{"x": np.ones((4, 3), np.float32)}], model(), batch=2)
    with pytest.raises(UsageError, match="batch must be 1 at least, not 0"):
        load_data(None, model(), batch=0)
    with pytest.raises(UsageError, match="--batch 2: the model has no named dimension for a batch"):
        load_data(None, model([1, 3]), batch=2)


TEXT: dict[str, tuple[int, list[int | str | None]]] = {
    name: (TensorProto.INT64, ["batch", "sequence"]) for name in ("input_ids", "attention_mask")
}


def texts(folder: Path, *lengths: int, first: int = 0) -> Path:
    """Rows of ones up to a length each, which the mask tells."""
    ids = np.zeros((len(lengths), 8), np.int64)
    for row, length in zip(ids, lengths, strict=True):
        row[first : first + length] = 1
    np.savez(folder / "texts.npz", input_ids=ids + 5, attention_mask=ids)
    return folder / "texts.npz"


@pytest.mark.parametrize("shape", [["batch", "sequence"], [None, None]])
def test_rows_are_as_long_as_their_mask_says(shape: list[int | str | None], tmp_path: Path) -> None:
    made = of_inputs(**{name: (dtype, shape) for name, (dtype, _) in TEXT.items()})
    found = load_data(texts(tmp_path, 8, 3, 5, 0), made)
    assert [s.inputs["input_ids"].shape for s in found] == [(1, 8), (1, 3), (1, 5), (1, 8)]
    assert all(s.inputs["attention_mask"].shape == s.inputs["input_ids"].shape for s in found)
    assert found.timed.inputs["input_ids"].shape == (1, 5)
    batches = load_data(texts(tmp_path, 2, 3, 5, 1), made, batch=2)
    assert [s.inputs["input_ids"].shape for s in batches] == [(2, 3), (2, 5)]


def test_what_is_padded_in_front_keeps_its_positions(tmp_path: Path) -> None:
    found = load_data(texts(tmp_path, 3, 5, first=3), of_inputs(**TEXT))
    assert [s.inputs["input_ids"].shape for s in found] == [(1, 6), (1, 8)]


def test_a_mask_of_past_positions_is_not_cut(tmp_path: Path) -> None:
    made = of_inputs(
        **TEXT,
        past_key=(TensorProto.FLOAT, ["batch", 2, "past", 4]),
        past_value=(TensorProto.FLOAT, ["batch", 2, "past", 4]),
    )
    path = texts(tmp_path, 3)
    past = np.ones((1, 2, 5, 4), np.float32)
    np.savez(path, **np.load(path), past_key=past, past_value=past)
    assert load_data(path, made)[0].inputs["input_ids"].shape == (1, 8)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_is_the_fault_of_the_data(wrong: float, tmp_path: Path) -> None:
    x = np.ones((4, 3), np.float32)
    x[2, 1] = wrong
    np.savez(tmp_path / "a.npz", x=x)
    with pytest.raises(UsageError, match=r"a\.npz: sample 2, input x: 1 of 3 numbers are NaN or infinite"):
        load_data(tmp_path / "a.npz", model())


def test_masks_may_be_infinite_and_some_models_ask_for_nan() -> None:
    masked = of_inputs(mask=(TensorProto.FLOAT, ["batch", 3]))
    assert load_data([{"mask": np.full((1, 3), -np.inf)}], masked)
    asks = model()
    asks.graph.node.append(helper.make_node("IsNaN", ["x"], ["missing"]))
    assert load_data([{"x": np.full((1, 3), np.nan)}], asks)


def test_labels_and_rows_go_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((4, 3), np.float32), labels=np.arange(3))
    with pytest.raises(UsageError, match=r"a\.npz: holds 3 labels for 4 samples; give one for each"):
        load_data(tmp_path / "a.npz", model())


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


def test_made_up_samples_are_such_as_the_model_runs_on() -> None:
    """Nothing tells that the integers are rows of a table: they are multiplied first."""
    made = of_inputs(x=(TensorProto.INT64, ["batch"]))
    table = helper.make_node("ConstantOfShape", ["shape"], ["table"])
    made.graph.initializer.append(helper.make_tensor("shape", TensorProto.INT64, [1], [2]))
    made.graph.node[0].CopyFrom(table)
    made.graph.node.append(helper.make_node("Mul", ["x", "x"], ["squares"]))
    made.graph.node.append(helper.make_node("Gather", ["table", "squares"], ["y"]))
    session = InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for sample in load_data(None, made):
        session.run(None, sample.inputs)
