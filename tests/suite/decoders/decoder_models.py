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
