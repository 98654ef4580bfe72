"""What contradicts itself in a file is refused in one line, before anything is built from it."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
from onnx import AttributeProto, NodeProto, TensorProto, helper

from onnxrewrite.errors import ModelError
from onnxrewrite.io import fields

Change = Callable[[NodeProto], object]


def listed(**values: object) -> TensorProto:
    return TensorProto(name="w", **values)


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (listed(data_type=0, dims=[0]), "has dtype 0, which this onnx does not know"),
        (listed(data_type=99, dims=[1], float_data=[1.0]), "has dtype 99"),
        (listed(data_type=1, dims=[2], float_data=[1.0]), "has 1 elements, its shape needs 2"),
        (listed(data_type=1, dims=[1], int64_data=[1]), "has 0 elements, its shape needs 1"),
        (listed(data_type=8, dims=[1], float_data=[1.0]), "has 0 elements, its shape needs 1"),
        (listed(data_type=8, dims=[1], raw_data=b"text"), "has strings as raw bytes"),
        (listed(data_type=1, dims=[-1], float_data=[]), r"has the shape \[-1\], a size of which is negative"),
        (listed(data_type=1, dims=[2], raw_data=b"1234"), "has 4 bytes, its type and shape need 8"),
    ],
)
def test_tensors(tensor: TensorProto, says: str) -> None:
    with pytest.raises(ModelError, match=f"^m: w: {says}"):
        fields.check_tensor(tensor, None, "m: w")


@pytest.mark.parametrize(
    "tensor",
    [
        helper.make_tensor("w", TensorProto.FLOAT16, [2], [1.0, 2.0]),
        helper.make_tensor("w", TensorProto.COMPLEX64, [1], [1 + 2j]),
        helper.make_tensor("w", TensorProto.STRING, [2], ["a", "b"]),
        helper.make_tensor("w", TensorProto.INT4, [3], [1, 2, 3]),
        helper.make_tensor("w", TensorProto.BOOL, [], [True]),
        helper.make_tensor("w", TensorProto.UINT64, [0], []),
    ],
    ids=lambda t: TensorProto.DataType.Name(t.data_type),
)
def test_right_tensors(tensor: TensorProto) -> None:
    fields.check_tensor(tensor, None, "w")


def typed(kind: int, **values: object) -> AttributeProto:
    return AttributeProto(name="axis", type=kind, **values)


@pytest.mark.parametrize(
    ("op_type", "attributes", "says"),
    [
        ("Transpose", [helper.make_attribute("perm", "text")], "attribute 'perm' is STRING, must be INTS"),
        ("Softmax", [helper.make_attribute("axis", 1.0)], "attribute 'axis' is FLOAT, must be INT"),
        ("Softmax", [typed(2, i=1), typed(2, i=1)], "attribute 'axis' is listed twice"),
        ("Softmax", [AttributeProto()], "an attribute has no name"),
        ("Softmax", [typed(0)], "attribute 'axis' does not have one value of one type"),
        ("Softmax", [typed(0, i=1, f=1.0)], "attribute 'axis' does not have one value of one type"),
        ("Softmax", [typed(2, f=1.0)], "attribute 'axis' does not have one value of one type"),
        ("Constant", [], "must have one value, its attributes are none"),
        ("Constant", [helper.make_attribute("axis", 1)], "must have one value, its attributes are axis"),
        (
            "Constant",
            [helper.make_attribute("value_int", 1), helper.make_attribute("value_float", 1.0)],
            "must have one value, its attributes are value_int, value_float",
        ),
    ],
)
def test_attributes(op_type: str, attributes: list[AttributeProto], says: str) -> None:
    node = NodeProto(op_type=op_type, attribute=attributes)
    with pytest.raises(ModelError, match=f"^m: n: {says}"):
        fields.check_attributes(node, 17, "m: n")


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Softmax", [typed(0, i=1)]),
        ("Softmax", [typed(2)]),  # some writers leave out a zero
        ("Softmax", [AttributeProto(name="axis", type=2, ref_attr_name="outer")]),
        ("Softmax", [helper.make_attribute("unheard_of", "text")]),
        ("NoSuch", [helper.make_attribute("axis", "text")]),
    ],
)
def test_what_others_accept_is_accepted(op_type: str, attributes: list[AttributeProto]) -> None:
    fields.check_attributes(NodeProto(op_type=op_type, attribute=attributes), 17, "n")


def test_the_type_is_that_of_the_opset() -> None:
    """Cast's ``to`` was a text before opset 6."""
    node = onnx.helper.make_node("Cast", ["x"], ["y"], to="FLOAT")
    fields.check_attributes(node, 5, "n")
    with pytest.raises(ModelError, match="must be INT"):
        fields.check_attributes(node, 6, "n")
