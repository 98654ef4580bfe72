"""Checks of protobuf fields: tensors hold what they claim, attributes have the types of their operator.

A reader downstream trusts the fields, so contradictory ones are refused before anything is built.
This module must not know graphs.
"""

from __future__ import annotations

import math
from typing import Final

import onnx
import onnx_ir as ir
from onnx import AttributeProto, TensorProto

from onnxrewrite.errors import ModelError
from onnxrewrite.io import external
from onnxrewrite.ir.dims import MAX_RANK
from onnxrewrite.ir.names import repeated
from onnxrewrite.ir.schema import normal_domain, schema

_COMPLEX: Final = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)

_TYPE_OF: Final = {
    "f": AttributeProto.FLOAT,
    "i": AttributeProto.INT,
    "s": AttributeProto.STRING,
    "t": AttributeProto.TENSOR,
    "g": AttributeProto.GRAPH,
    "sparse_tensor": AttributeProto.SPARSE_TENSOR,
    "tp": AttributeProto.TYPE_PROTO,
    "floats": AttributeProto.FLOATS,
    "ints": AttributeProto.INTS,
    "strings": AttributeProto.STRINGS,
    "tensors": AttributeProto.TENSORS,
    "graphs": AttributeProto.GRAPHS,
    "sparse_tensors": AttributeProto.SPARSE_TENSORS,
    "type_protos": AttributeProto.TYPE_PROTOS,
}

_CONSTANTS: Final = frozenset(
    ("value", "value_float", "value_floats", "value_int", "value_ints", "value_string", "value_strings", "sparse_value")
)


# -- tensors -------------------------------------------------------------------------------------------------------


def check_tensor(tensor: TensorProto, folder: str | None, what: str) -> None:
    """ModelError unless a tensor holds as many elements, of its dtype, as its shape says, or says where they lie.

    Args:
        tensor: The tensor to check; external data are looked up, not read.
        folder: The folder of external data; None if unknown.
        what: Begins the message: the model and the tensor.
    """
    known = tensor.data_type in ir.DataType._value2member_map_ and tensor.data_type != TensorProto.UNDEFINED
    _check_rank(len(tensor.dims), what)
    if not known:
        raise ModelError(f"{what}: has dtype {tensor.data_type}, which this onnx does not know; export it again")
    if tensor.data_location == TensorProto.EXTERNAL:
        if folder is None:
            raise ModelError(f"{what}: has external data; give the path of the model instead")
        external.check(tensor, folder, what)
    elif tensor.HasField("raw_data"):
        expected, found = external.tensor_bytes(tensor.dims, tensor.data_type), len(tensor.raw_data)
        if expected is None:
            raise ModelError(f"{what}: has strings as raw bytes, which cannot be told apart; export it again")
        if expected != found:
            raise ModelError(f"{what}: has {found} bytes, its type and shape need {expected}")
    else:
        _check_elements(tensor, what)


def check_type(proto: onnx.TypeProto, what: str) -> None:
    """ModelError for a tensor of more axes than there can be, also inside of a sequence, a map or an optional."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        _check_rank(len(getattr(proto, kind).shape.dim), what)
    elif kind in ("sequence_type", "optional_type"):
        check_type(getattr(proto, kind).elem_type, what)
    elif kind == "map_type":
        check_type(proto.map_type.value_type, what)


def _check_rank(rank: int, what: str) -> None:
    if rank > MAX_RANK:
        raise ModelError(f"{what}: has {rank} axes; more than {MAX_RANK} are not supported")


def check_sparse(sparse: onnx.SparseTensorProto, folder: str | None, what: str) -> None:
    """``check_tensor`` of the values and of the places of a sparse tensor."""
    _check_rank(len(sparse.dims), what)
    check_tensor(sparse.values, folder, what)
    if sparse.HasField("indices"):
        check_tensor(sparse.indices, folder, f"{what}: its indices")


def _check_elements(tensor: TensorProto, what: str) -> None:
    """A tensor whose elements are listed one by one has as many as its shape says, in the list of its dtype; those of
    less than a byte may be packed."""
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{what}: has the shape {list(tensor.dims)}, a size of which is negative")
    found = len(getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type)))
    expected = math.prod(tensor.dims) * (2 if tensor.data_type in _COMPLEX else 1)
    if found != expected and not (_is_packed(ir.DataType(tensor.data_type)) and 0 < found <= expected):
        raise ModelError(f"{what}: has {found} elements, its shape needs {expected}")


def _is_packed(dtype: ir.DataType) -> bool:
    return dtype != ir.DataType.STRING and dtype.bitwidth < 8


# -- attributes ----------------------------------------------------------------------------------------------------


def filled(attr: AttributeProto) -> list[int]:
    """The types of the values that an attribute holds; one, in a file that is right."""
    return [_TYPE_OF[field.name] for field, _ in attr.ListFields() if field.name in _TYPE_OF]


def check_attributes(node: onnx.NodeProto, version: int | None, what: str) -> None:
    """ModelError unless every attribute has a name of its own, one value, and the type that its operator wants.

    Args:
        node: Its subgraphs are not looked at.
        version: The opset of the node's domain; None for the newest.
        what: Begins the message: the model and the node.
    """
    names = [attr.name for attr in node.attribute]
    twice = repeated(names)
    if twice is not None or "" in names:
        raise ModelError(
            f"{what}: " + (f"attribute '{twice}' is listed twice" if twice else "an attribute has no name")
        )
    is_constant = node.op_type == "Constant" and normal_domain(node.domain) == ""
    if is_constant and (len(names) != 1 or names[0] not in _CONSTANTS):
        raise ModelError(f"{what}: must have one value, its attributes are {', '.join(names) or 'none'}")
    formal = schema(node.domain, node.op_type, version) if names else None
    for attr in node.attribute:
        if attr.ref_attr_name:
            continue
        found = filled(attr)
        kind = attr.type or (found[0] if len(found) == 1 else AttributeProto.UNDEFINED)
        if kind == AttributeProto.UNDEFINED or any(each != kind for each in found):
            raise ModelError(f"{what}: attribute '{attr.name}' does not have one value of one type; export it again")
        wanted = formal.attributes.get(attr.name) if formal is not None else None
        if wanted is not None and kind != wanted.type.value:
            told = AttributeProto.AttributeType.Name(kind)
            raise ModelError(f"{what}: attribute '{attr.name}' is {told}, must be {wanted.type.name}; export it again")
