"""Decoders to try: the golden ones, as they are, under other names, and broken in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import onnx

GOLDEN = Path(__file__).resolve().parents[3] / "golden_models"
NAMES = ("llama_past", "gpt2_past")


def decoder(name: str) -> onnx.ModelProto:
    """A golden decoder with past."""
    return onnx.load(GOLDEN / name / "model.onnx")


def renamed(model: onnx.ModelProto, names: Callable[[str], str]) -> tuple[onnx.ModelProto, Mapping[str, str]]:
    """The model with inputs and outputs of other names."""
    graph = model.graph
    found = {value.name: names(value.name) for value in (*graph.input, *graph.output)}
    for value in (*graph.input, *graph.output):
        value.name = found[value.name]
    for node in graph.node:
        node.input[:] = [found.get(name, name) for name in node.input]
        node.output[:] = [found.get(name, name) for name in node.output]
    return model, found


def without_output(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model without one of its outputs."""
    kept = [value for value in model.graph.output if value.name != name]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    return model


def with_input_like(model: onnx.ModelProto, like: str, name: str) -> onnx.ModelProto:
    """The model with one more input, which is multiplied with another one by elements."""
    (given,) = (value for value in model.graph.input if value.name == like)
    more = onnx.ValueInfoProto()
    more.CopyFrom(given)
    more.name = name
    for node in model.graph.node:
        node.input[:] = ["both" if each == like else each for each in node.input]
    model.graph.node.insert(0, onnx.helper.make_node("Mul", [like, name], ["both"]))
    model.graph.input.append(more)
    return model


def without_mask(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a mask of ones in place of the input."""
    make = onnx.helper.make_node
    kept = [value for value in model.graph.input if value.name != "attention_mask"]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    ones = onnx.helper.make_tensor("one", 7, [1], [1])
    nodes = [
        make("Shape", ["input_ids"], ["texts"], start=0, end=1),
        make("Shape", ["input_ids"], ["new"], start=1, end=2),
        make("Shape", ["past_key_values.0.key"], ["before"], start=2, end=3),
        make("Add", ["before", "new"], ["all"]),
        make("Concat", ["texts", "all"], ["sizes"], axis=0),
        make("ConstantOfShape", ["sizes"], ["attention_mask"], value=ones),
    ]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    return model
