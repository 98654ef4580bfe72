"""Names, dtypes and dimensions under the contract; and lengths that nothing reads from a buffer."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from suite.decoders.decoder_models import decoder

from onnxrewrite import io
from onnxrewrite.errors import ModelError
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.suite.decoders.contract import under_contract, without_shapes_of_pasts
from onnxrewrite.suite.decoders.decoder_interface import find_interface
from onnxrewrite.suite.decoders.greedy_generation import Side, greedy
from onnxrewrite.suite.decoders.token_counts import spell_counts

PROMPT = [3, 7, 11]


def tokens(model: onnx.ModelProto | ir.Model) -> list[int]:
    loaded = io.load(model)
    session = open_session(io.to_proto(loaded))
    assert isinstance(session, Session), session
    return greedy(Side(session, find_interface(loaded)), PROMPT, 6).tokens.tolist()


def with_mask(dtype: int, *, rank: int = 2) -> onnx.ModelProto:
    """A decoder whose mask is of another dtype or rank."""
    model = decoder("llama_past")
    (mask,) = (value for value in model.graph.input if value.name == "attention_mask")
    mask.name, mask.type.tensor_type.elem_type = "counts", dtype
    nodes = [helper.make_node("Cast", ["counts"], ["whole" if rank == 3 else "attention_mask"], to=7)]
    if rank == 3:
        mask.type.tensor_type.shape.dim.insert(1, onnx.TensorShapeProto.Dimension(dim_value=1))
        model.graph.initializer.append(helper.make_tensor("middle", 7, [1], [1]))
        nodes.append(helper.make_node("Squeeze", ["whole", "middle"], ["attention_mask"]))
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    return model


@pytest.mark.parametrize("dtype", [onnx.TensorProto.BOOL, onnx.TensorProto.INT32, onnx.TensorProto.FLOAT])
def test_inputs_are_of_one_dtype(dtype: int) -> None:
    given = with_mask(dtype)
    loaded = io.load(given)
    made, face = under_contract(loaded, find_interface(loaded))
    assert {str(value.dtype) for value in made.graph.inputs if "past" not in (value.name or "")} == {"INT64"}
    assert face.mask == "attention_mask"
    assert tokens(made) == tokens(given) == tokens(decoder("llama_past"))


def test_a_mask_of_another_rank_is_refused() -> None:
    loaded = io.load(with_mask(onnx.TensorProto.INT64, rank=3))
    with pytest.raises(ModelError, match=r"input counts has rank 3, and is given as \[batch, tokens\]"):
        under_contract(loaded, find_interface(loaded))


def test_no_shape_of_a_past_is_read() -> None:
    loaded = io.load(decoder("llama_past"))
    made, face = under_contract(loaded, find_interface(loaded))
    assert any(node.op_type == "Shape" and "past" in (node.inputs[0].name or "") for node in made.graph)  # type: ignore[union-attr]
    without_shapes_of_pasts(made, face)
    assert not any(node.op_type == "Shape" and "past" in (node.inputs[0].name or "") for node in made.graph)  # type: ignore[union-attr]
    assert tokens(made) == tokens(decoder("llama_past"))


@pytest.mark.parametrize(("bound", "count"), [(64, 1), (3, 0)])
def test_a_bound_that_never_counts(bound: int, count: int) -> None:
    """The number of new tokens, and no more than ``bound``."""
    model = decoder("llama_past")
    model.graph.initializer.append(helper.make_tensor("bound", 7, [], [bound]))
    model.graph.initializer.append(helper.make_tensor("first", 7, [], [1]))
    model.graph.output.append(helper.make_tensor_value_info("least", 7, []))
    for node in (
        helper.make_node("Shape", ["input_ids"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "first"], ["new"]),
        helper.make_node("Min", ["new", "bound"], ["fewest"]),
        helper.make_node("Neg", ["fewest"], ["least"]),
    ):
        model.graph.node.append(node)
    loaded = io.load(model)
    made, face = under_contract(loaded, find_interface(loaded))
    assert spell_counts(made, face, 64) == count
