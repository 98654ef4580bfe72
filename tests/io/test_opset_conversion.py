"""Another opset: what changes, what must not, and what is refused."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.io.opset_conversion import to_opset
from onnxrewrite.ir import text


def converted(source: str, version: int, opset: int = 17) -> ir.Model:
    return to_opset(io.load(text.parse(source, opset=opset)), version)


def test_up_and_down() -> None:
    source = "float[2,3] x; y = ReduceMean<axes=[0]>(x)"
    up = converted(source, 18)
    assert up.opset_imports == {"": 18}
    assert [n.op_type for n in up.graph] == ["Constant", "ReduceMean"]
    down = converted("float[2,3] x; y = Sigmoid(x)", 13)
    assert down.opset_imports == {"": 13}


def test_operators_of_newer_opsets_that_onnx_runtime_knew_before_stay() -> None:
    """Its transformers optimizer writes LayerNormalization in opset 14, of which the converter has no idea."""
    model = text.parse("float[2,3] x; y = ReduceSum(x)", opset=14)
    node = ir.node("LayerNormalization", [model.graph.inputs[0], model.graph.inputs[0]], {"axis": -1})
    node.outputs[0].name = "z"
    model.graph.append(node)
    up = to_opset(io.load(model), 17)
    assert [(n.domain, n.op_type) for n in up.graph] == [("", "ReduceSum"), ("", "LayerNormalization")]
    assert up.opset_imports == {"": 17}


def test_the_source_stays_as_it_is() -> None:
    model = io.load(text.parse("float[2,3] x; y = ReduceMean<axes=[0]>(x)"))
    before = io.to_bytes(model)
    to_opset(model, 18)
    assert io.to_bytes(model) == before


def test_semantics_that_changed_between_opsets() -> None:
    """Softmax flattened its input before opset 13; in subgraphs too."""
    branches = "then_branch = () => (p) { p = Softmax(x) }, else_branch = () => (q) { q = Neg(x) }"
    for source in ("float[2,3,4] x; y = Softmax(x)", f"float[2,3,4] x; bool c; y = If<{branches}>(c)"):
        model = converted(source, 13, opset=12)
        ops = [n.op_type for n in model.graph.all_nodes()]
        assert "Flatten" in ops
        assert "Reshape" in ops


def test_interface_and_metadata_are_kept() -> None:
    model = text.parse("float[n,3] x; input w = float[3] {1.0, 2.0, 3.0}; a = my.own.Op(x, w)  y = Relu(a)")
    model.graph.outputs[0].shape = ir.Shape(["n", 3])
    model.metadata_props["author"] = "me"
    model.graph.doc_string = "doc"
    for node in model.graph:
        node.metadata_props["exporter"] = node.op_type
    before = io.to_proto(io.load(model))
    after = io.to_proto(to_opset(io.load(model), 18))
    assert list(after.graph.input) == list(before.graph.input)
    assert list(after.graph.output) == list(before.graph.output)
    assert list(after.graph.initializer) == list(before.graph.initializer)
    assert after.metadata_props == before.metadata_props
    assert after.graph.doc_string == "doc"
    assert [n.metadata_props[0].value for n in after.graph.node] == ["Op", "Relu"]


@pytest.mark.parametrize("version", [6, 0, -1, 99])
def test_versions_that_do_not_exist(version: int) -> None:
    with pytest.raises(UsageError, match=f"opset {version}: must lie between 7 and "):
        converted("float[2] x; y = Relu(x)", version)


def test_what_the_converter_cannot_do_is_one_line() -> None:
    with pytest.raises(UsageError, match="opset 13: the model cannot be converted from opset 17: ") as raised:
        converted("float[2,3] x; y = LayerNormalization(x, {1.0, 1.0, 1.0})", 13)
    assert "\n" not in str(raised.value)


def test_functions_would_be_lost() -> None:
    source = '(float[2] x) => (y) { y = own.F(x) } <domain: "own", opset_import: ["": 17]> F (p) => (q) { q = Neg(p) }'
    with pytest.raises(UsageError, match="functions of its own"):
        converted(source, 18)
