"""Strings that are no text: comments are repaired, names are refused, wherever they stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.errors import ModelError
from onnxrewrite.ir import text

GRAPH = "float[n,4] x; t = Mul(x, {1.0, 2.0, 3.0, 4.0})  u = Identity(t)  y = Relu(u)"

MARK = "stray"
"""Stands for the bytes that are no text, of the same length."""

BYTES = b"st\xe1\xffy"

Change = Callable[[onnx.ModelProto], None]


def spoiled(change: Change) -> onnx.ModelProto:
    """A model of which a string is no text, as only a file can hold it."""
    model = onnx.ModelProto()
    model.CopyFrom(io.to_proto(text.parse(GRAPH, opset=17)))
    change(model)
    read = onnx.ModelProto()
    read.ParseFromString(model.SerializeToString().replace(MARK.encode(), BYTES))
    return read


def _metadata(model: onnx.ModelProto) -> None:
    model.graph.node[1].metadata_props.add(key="source", value=f"line {MARK}")


def _tensor(model: onnx.ModelProto) -> None:
    constants = [*model.graph.initializer, *(a.t for n in model.graph.node for a in n.attribute if a.HasField("t"))]
    constants[0].doc_string = MARK


COMMENTS: dict[str, Change] = {
    "of the model": lambda m: m.metadata_props.append(onnx.StringStringEntryProto(key=MARK, value="1")),
    "of a node": _metadata,
    "the graph's": lambda m: setattr(m.graph, "doc_string", MARK),
    "an input's": lambda m: setattr(m.graph.input[0], "doc_string", MARK),
    "a tensor's": _tensor,
}

NAMES: dict[str, Change] = {
    "domain": lambda m: setattr(m.graph.node[0], "domain", MARK),
    "overload": lambda m: setattr(m.graph.node[0], "overload", MARK),
    "dim param": lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", MARK),
    "denotation": lambda m: setattr(m.graph.input[0].type, "denotation", MARK),
    "producer name": lambda m: setattr(m, "producer_name", MARK),
    "output": lambda m: m.graph.node[0].output.__setitem__(0, MARK),
    "key": lambda m: (
        m.graph.quantization_annotation.add(tensor_name="x").quant_parameter_tensor_names.add(key=MARK) and None
    ),
}


@pytest.mark.parametrize("change", COMMENTS.values(), ids=COMMENTS)
@pytest.mark.parametrize("check", ["full", "off"])
def test_a_comment_is_repaired(change: Change, check: str, tmp_path: Path) -> None:
    """Whether what it belongs to is rewritten or stays."""
    path = tmp_path / "model.onnx"
    path.write_bytes(spoiled(change).SerializeToString())
    result = rw.apply(path, check=check, lower="fused")
    result.save(tmp_path / "out.onnx")
    onnx.load(tmp_path / "out.onnx")
    assert any("is no text in UTF-8" in each for each in result.notes), result.notes


@pytest.mark.parametrize(("name", "change"), NAMES.items(), ids=NAMES)
def test_a_name_is_refused(name: str, change: Change) -> None:
    with pytest.raises(ModelError, match=rf"^model: the {name} b'.*' is no text in UTF-8$"):
        io.load(spoiled(change))
