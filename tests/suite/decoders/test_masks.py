"""Masks are understood by what they compute, and left alone where they do something else."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from suite.decoders.decoder_models import NAMES, decoder

from onnxrewrite import io
from onnxrewrite.io.inlining import inlined
from onnxrewrite.suite.decoders.contract import under_contract
from onnxrewrite.suite.decoders.decoder_interface import find_interface
from onnxrewrite.suite.decoders.masks import CAUSAL, Masks, spell_out, take_out
from onnxrewrite.suite.decoders.probe import full, padded


def taken_out(model: onnx.ModelProto) -> tuple[Masks, list[str | None]]:
    loaded = inlined(io.load(model)).model
    made, face = under_contract(loaded, find_interface(loaded))
    found = take_out(made, face, 64)
    inputs = [value.name for value in made.graph.inputs]
    spell_out(made, face, found)
    assert CAUSAL not in [value.name for value in made.graph.inputs]
    assert isinstance(io.to_proto(made), onnx.ModelProto)
    return found, inputs


@pytest.mark.parametrize("name", NAMES)
def test_a_causal_mask_is_understood(name: str) -> None:
    found, inputs = taken_out(decoder(name))
    assert found.windows == {0: None, 1: None}
    assert not found.unknown
    assert inputs[-1] == CAUSAL


def test_a_mask_that_hides_a_token_from_itself_is_not() -> None:
    model = decoder("llama_past")
    changed = 0
    for node in model.graph.node:
        if node.op_type == "LessOrEqual":
            node.op_type = "Less"
            changed += 1
    assert changed
    found, inputs = taken_out(model)
    assert not found.windows
    assert CAUSAL not in inputs
    assert len(found.unknown) == 2


def test_a_bias_that_hides_nothing_stays() -> None:
    model = decoder("llama_past")
    nodes = list(model.graph.node)
    del model.graph.node[:]
    make = onnx.helper.make_node
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.1), "slope"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 2]), "heads_and_queries"))
    model.graph.node.append(make("Cast", ["attention_mask"], ["counts"], to=1))
    model.graph.node.append(make("Unsqueeze", ["counts", "heads_and_queries"], ["by_key"]))
    model.graph.node.append(make("Mul", ["by_key", "slope"], ["bias"]))
    for node in nodes:
        if node.op_type == "Softmax":
            biased = f"{node.input[0]}/biased"
            model.graph.node.append(make("Add", [node.input[0], "bias"], [biased]))
            node.input[0] = biased
        model.graph.node.append(node)
    found, inputs = taken_out(model)
    assert found.windows == {0: None, 1: None}
    assert inputs[-1] == CAUSAL


def test_masked_scores_that_are_read_elsewhere_stay_masked() -> None:
    model = decoder("llama_past")
    scores = [node.input[0] for node in model.graph.node if node.op_type == "Softmax"]
    shown = onnx.helper.make_tensor_value_info("shown", 1, None)
    model.graph.node.append(onnx.helper.make_node("ReduceMax", [scores[0]], ["shown"], keepdims=0))
    model.graph.output.append(shown)
    found, _ = taken_out(model)
    assert list(found.windows.values()) == [None], "that of the other layer"


def test_steps() -> None:
    step = padded(0, 4, right=1)
    assert step.counts.tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert step.positions.tolist() == [[0, 1, 2, 2], [0, 1, 2, 3]]
    assert step.visible[0].tolist() == [*np.tril(np.ones((4, 4), bool))[:, :4].tolist()[:3], [True, True, True, False]]
    assert full(1, 2, 1).past == 2
