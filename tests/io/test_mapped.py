"""Model files whose weights stay where they are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from corpus import GOLDEN_FILES
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxrewrite import io
from onnxrewrite.errors import ModelError
from onnxrewrite.io import mapped
from onnxrewrite.io.statistics import stored_bytes

WIDE = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 64] x) => (float[n, 64] y)'
    f"<float[64, 64] w = {{{','.join(str(i % 7) for i in range(4096))}}}, float[64] b = {{{','.join(['0.5'] * 64)}}}>"
    "{ m = MatMul(x, w) y = Add(m, b) }"
)


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "LEAST", 0)


def raw(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as exporters write it: numbers as bytes."""
    for i, tensor in enumerate(model.graph.initializer):
        model.graph.initializer[i].CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
        )
    return model


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(raw(onnx.parser.parse_model(WIDE)), path)
    return path


def test_a_file_may_say_that_its_numbers_lie_in_it(file: Path) -> None:
    """onnx.save after onnx.load of external data does."""
    model = onnx.load(file)
    for tensor in model.graph.initializer:
        tensor.data_location = onnx.TensorProto.DEFAULT
    onnx.save(model, file)
    weights = io.load(file).graph.initializers
    assert isinstance(weights["w"].const_value, mapped.MappedTensor)
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL  # and numbers, too
    file.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError):
        io.load(file)


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda p: p.parent.name)
def test_the_model_is_the_same(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = io.load(path)
    assert any(isinstance(v.const_value, mapped.MappedTensor) for v in read.graph.initializers.values())
    io.save(read, tmp_path / "m.onnx")
    monkeypatch.setattr(mapped, "LEAST", 2**40)
    written = (tmp_path / "m.onnx").read_bytes()
    assert written == io.to_bytes(io.load(path)) == io.to_bytes(read)
    assert len(written) == stored_bytes(read)


def test_nothing_is_copied(file: Path) -> None:
    tensor = io.load(file).graph.initializers["w"].const_value
    assert isinstance(tensor, mapped.MappedTensor)
    assert not tensor.numpy().flags.owndata
    place = mapped.place_of(tensor)
    assert place is not None
    assert place[0] == os.path.realpath(file)
    assert file.read_bytes()[place[1] :].startswith(tensor.numpy().tobytes())


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_file_is_read_as_before(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever byte is wrong, and wherever the file ends: the same model, or the same error."""
    path = tmp_path_factory.mktemp("damaged") / "m.onnx"
    whole = raw(onnx.parser.parse_model(WIDE)).SerializeToString()
    damaged = bytearray(whole)
    heads = [i for i in range(len(whole)) if i < 60 or whole[max(i - 24, 0) : i + 24].strip(b"\0\x80?@")]
    for place in data.draw(st.lists(st.sampled_from(heads), max_size=3)):
        damaged[place] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged[: data.draw(st.sampled_from([len(whole), len(whole) - 1, len(whole) // 2, 40]))])

    def outcome(least: int) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mapped, "LEAST", least)
            try:
                return io.to_bytes(io.load(path))
            except ModelError as error:
                return str(error)

    assert outcome(0) == outcome(2**40)


def test_a_file_that_another_one_replaces_stays(file: Path, tmp_path: Path) -> None:
    model = io.load(file)
    before = io.to_bytes(model)
    (tmp_path / "other").write_bytes(b"other")
    os.replace(tmp_path / "other", file)
    io.save(model, file)
    assert file.read_bytes() == before
    tensor = model.graph.initializers["w"].const_value
    assert tensor is not None
    assert mapped.place_of(tensor) is None


def test_a_file_that_is_written_over_is_found(file: Path, tmp_path: Path) -> None:
    model, content = io.load(file), bytearray(file.read_bytes())
    content[-1] ^= 1
    with open(file, "r+b") as stream:
        stream.write(content)
    os.utime(file, ns=(1, 1))
    with pytest.raises(ModelError, match="was changed after it was read"):
        io.save(model, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_links_are_followed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    shutil.move(file, tmp_path / "store" / "blob")
    file.symlink_to(tmp_path / "store" / "blob")
    tensor = io.load(file).graph.initializers["w"].const_value
    assert tensor is not None
    assert mapped.place_of(tensor) == (str(tmp_path / "store" / "blob"), mapped.place_of(tensor)[1])  # type: ignore[index]


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.INT4, ir.DataType.UINT8])
def test_weights_of_any_dtype(dtype: ir.DataType, tmp_path: Path) -> None:
    width = 8192
    proto = onnx.TensorProto(name="w", data_type=dtype, dims=[width], raw_data=bytes(width * dtype.bitwidth // 8))
    node = onnx.helper.make_node("Identity", ["w"], ["y"])
    output = onnx.helper.make_tensor_value_info("y", dtype, [width])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [output], [proto]), ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    io.save(io.load(tmp_path / "m.onnx"), tmp_path / "n.onnx")
    assert onnx.load(tmp_path / "n.onnx").graph.initializer[0].raw_data == proto.raw_data


def test_an_old_model_is_written_as_before(file: Path, tmp_path: Path) -> None:
    """Until IR version 3 each initializer is an input, and what is none becomes a Constant."""
    old = onnx.load(file)
    old.ir_version = 3
    old.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in old.graph.initializer
    )
    onnx.save(old, file)
    model = io.load(file)
    io.save(model, tmp_path / "same.onnx")
    assert (tmp_path / "same.onnx").read_bytes() == io.to_bytes(model)
    weight = model.graph.initializers["w"]
    model.graph.initializers["w2"] = ir.Value(name="w2", const_value=weight.const_value, type=weight.type)
    model.graph.node(0).replace_input_with(1, model.graph.initializers["w2"])
    io.save(model, tmp_path / "other.onnx")
    assert (tmp_path / "other.onnx").read_bytes() == io.to_bytes(model)
    onnx.checker.check_model(tmp_path / "other.onnx")


def test_another_opset_keeps_weights_where_they_are(file: Path) -> None:
    from onnxrewrite.io.opset_conversion import to_opset

    model = to_opset(io.load(file), 21)
    assert io.opset(model) == 21
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, mapped.MappedTensor)
    np.testing.assert_array_equal(tensor.numpy().ravel(), np.arange(4096) % 7)
    assert [v.name for v in model.graph.inputs] == ["x"]
