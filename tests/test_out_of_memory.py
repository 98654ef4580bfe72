"""A lack of memory is told as one, and never as a bug, wherever it is met."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from google.protobuf.message import EncodeError

from onnxrewrite.errors import IncompleteError, Rest, is_out_of_memory
from onnxrewrite.runtime.session import weight_bytes

LACKS = [MemoryError(), EncodeError("Failed to serialize proto")]


@pytest.mark.parametrize("error", LACKS, ids=["python", "protobuf"])
def test_a_part_that_lacks_memory_is_no_bug(error: Exception) -> None:
    assert is_out_of_memory(error)
    rest = Rest("out.onnx was written")
    with rest.part("its certificate"):
        raise error
    with pytest.raises(
        IncompleteError, match=r"its certificate was not written: memory does not suffice; out\.onnx"
    ) as told:
        rest.end()
    assert told.value.exit_code == 2


@pytest.mark.parametrize("error", LACKS, ids=["python", "protobuf"])
def test_a_command_that_lacks_memory_ends_with_2(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from onnxrewrite.cli import main

    def load(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("onnxrewrite.io.load", load)
    assert main(["inspect", "model.onnx"]) == 2
    assert capsys.readouterr().err.startswith("onnxrewrite: out of memory; nothing was written")


def test_the_size_of_weights_is_told_without_a_copy() -> None:
    raw = onnx.numpy_helper.from_array(np.zeros((3, 5), np.float16), "raw")
    listed = onnx.helper.make_tensor("listed", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
    graph = onnx.helper.make_graph([], "g", [], [], [raw, listed])
    assert weight_bytes(onnx.helper.make_model(graph)) == 30 + listed.ByteSize()
    graph.initializer[0].external_data.add(key="length", value="of a file that nobody asked for")
    assert weight_bytes(onnx.helper.make_model(graph)) == 30 + listed.ByteSize()
