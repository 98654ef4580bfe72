"""Angles become tables where each token takes the row of its position, and nowhere else."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from suite.decoders.decoder_models import decoder

from onnxrewrite import apply, io
from onnxrewrite.suite.decoders.angles import tabulate
from onnxrewrite.suite.decoders.contract import under_contract
from onnxrewrite.suite.decoders.decoder_interface import Interface, find_interface


@pytest.fixture(scope="module")
def rotated() -> tuple[ir.Model, Interface]:
    """A decoder with rotary embeddings as operators."""
    loaded = io.load(decoder("llama_past"))
    model, face = under_contract(loaded, find_interface(loaded))
    return apply(model, lower="fused", opset=23, check="off").model, face


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in apply(model, lower="fused", check="off").model.graph]


def test_tables(rotated: tuple[ir.Model, Interface]) -> None:
    model, face = rotated
    made = io.load(model)
    assert "Cos" in operators(made)
    assert tabulate(made, face, 64, counted=False) == 4
    assert "Cos" not in operators(made)
    tables = {tuple(v.const_value.shape) for n, v in made.graph.initializers.items() if "table" in n}  # type: ignore[union-attr]
    assert {tuple(map(int, shape)) for shape in tables} == {(64, 4)}


@pytest.mark.slow
def test_angles_that_depend_on_the_length_of_a_text_stay(rotated: tuple[ir.Model, Interface]) -> None:
    """Dynamic scaling: the longer a text, the slower its angles."""
    model, face = rotated
    proto = io.to_proto(model)
    made = onnx.helper.make_node
    nodes = [made("Shape", ["attention_mask"], ["all"], start=1, end=2), made("Cast", ["all"], ["many"], to=1)]
    for node in proto.graph.node:
        if node.op_type in ("Cos", "Sin"):
            nodes.append(made("Mul", [node.input[0], "many"], [f"{node.output[0]}/longer"]))
            node.input[0] = f"{node.output[0]}/longer"
        nodes.append(node)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    assert tabulate(io.load(proto), face, 64, counted=False) == 0
