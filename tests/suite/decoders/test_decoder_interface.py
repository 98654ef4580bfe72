"""The interface of a decoder is found by what it does, and what cannot be found is said in one line."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from suite.decoders.decoder_models import NAMES, decoder, renamed, with_input_like, without_output, without_past

from onnxrewrite import io
from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.suite.decoders.contract import under_contract
from onnxrewrite.suite.decoders.decoder_interface import find_interface


@pytest.mark.parametrize("name", NAMES)
def test_names_do_not_matter(name: str) -> None:
    expected = find_interface(io.load(decoder(name)))
    assert (expected.ids, expected.mask, expected.logits) == ("input_ids", "attention_mask", "logits")
    model, names = renamed(decoder(name), lambda given: f"v{abs(hash(given)) % 10**9}")
    found = find_interface(io.load(model))
    assert found.ids == names["input_ids"]
    assert found.mask == names["attention_mask"]
    assert found.positions == names.get("position_ids")
    assert found.logits == names["logits"]
    for layer, cache in enumerate(found.caches):
        assert cache.past_key == names[f"past_key_values.{layer}.key"]
        assert cache.past_value == names[f"past_key_values.{layer}.value"]
        assert cache.present_key == names[f"present.{layer}.key"]
        assert cache.present_value == names[f"present.{layer}.value"]


@pytest.mark.parametrize("name", NAMES)
def test_the_contract_gives_customary_names_and_one_past(name: str) -> None:
    model, _ = renamed(decoder(name), lambda given: f"my_{given}")
    loaded = io.load(model)
    made, face = under_contract(loaded, find_interface(loaded))
    assert [value.name for value in made.graph.inputs] == [value.name for value in decoder(name).graph.input]
    assert face.ids == "input_ids"
    pasts = {str(value.shape) for value in made.graph.inputs if "past" in (value.name or "")}
    assert len(pasts) == 1
    assert next(value.name for value in loaded.graph.inputs) == "my_input_ids", "the model given is not changed"


def test_no_decoder() -> None:
    x, y = (onnx.helper.make_tensor_value_info(name, 1, ["n", 4]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    with pytest.raises(ModelError, match="no decoder: no input of integers chooses rows"):
        find_interface(io.load(onnx.helper.make_model(graph, ir_version=10)))


def test_no_past() -> None:
    found = find_interface(io.load(without_past()))
    assert (found.ids, found.mask, found.positions, found.logits) == ("tokens", "keep", None, "scores")
    assert found.caches == ()


@pytest.mark.parametrize(
    "rows",
    [
        "shifted = Unsqueeze(order, last)  row = GatherND(places, shifted)",
        "shifted = Unsqueeze(order, last)  row_shape = Shape(words0)  index = Expand(shifted, row_shape)"
        "  table = Unsqueeze(places, axis0)  row = GatherElements<axis=1>(table, index)",
    ],
    ids=["GatherND", "GatherElements"],
)
def test_positions_choose_rows_in_any_way(rows: str) -> None:
    model = without_past(rows=rows)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "last"))
    order = onnx.helper.make_tensor_value_info("order", onnx.TensorProto.INT64, ["batch", "sequence"])
    model.graph.input.append(order)
    found = find_interface(io.load(model))
    assert (found.mask, found.positions, found.places) == ("keep", "order", 64)


def test_a_mask_that_positions_are_counted_by_is_no_position() -> None:
    counted = "sums = CumSum(keep, one)  own = Mul(sums, keep)  order = Sub(own, one)  row = Gather(places, order)"
    found = find_interface(io.load(without_past(rows=counted)))
    assert (found.mask, found.positions) == ("keep", None)


def test_a_past_without_present() -> None:
    model = without_output(decoder("llama_past"), "present.1.value")
    with pytest.raises(ModelError, match=r"the past past_key_values\.1\.value has no present"):
        find_interface(io.load(model))


def test_two_candidates_are_named_with_the_option_that_decides() -> None:
    model, _ = renamed(with_input_like(decoder("llama_past"), "attention_mask", "other"), lambda given: f"my_{given}")
    with pytest.raises(UsageError, match="mask could be my_attention_mask or my_other; say which with --mask"):
        find_interface(io.load(model))


def test_what_nobody_feeds_is_told() -> None:
    model = with_input_like(decoder("llama_past"), "attention_mask", "other")
    with pytest.raises(ModelError, match="nothing is known to feed to its input other"):
        find_interface(io.load(model))


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="--ids words: the model has no such input"):
        find_interface(io.load(decoder("llama_past")), {"ids": "words"})
