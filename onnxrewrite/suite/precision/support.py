"""Support for half precision: the inputs and outputs of a node that its schema allows, and the kernels of a target."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from onnxrewrite.ir.graph import subgraphs
from onnxrewrite.ir.schema import Formal, schema
from onnxrewrite.ir.target import Target, type_string
from onnxrewrite.runtime.session import open_session


@dataclass(frozen=True)
class Places:
    """The inputs and outputs of a node that can be of half precision.

    Attributes:
        inputs: Positions of inputs.
        outputs: Positions of outputs.
        dtypes: The dtypes of its type variables then.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtypes: Mapping[str, ir.DataType | None]


def is_float(value: ir.Value | None) -> bool:
    """True if a value is a tensor of float32."""
    return value is not None and isinstance(value.type, ir.TensorType) and value.dtype == ir.DataType.FLOAT


def places(node: ir.Node, version: int, half: ir.DataType) -> Places | str:
    """The inputs and outputs of a node that can be of half precision, or the reason why there are none.

    A type variable becomes half if a float32 input binds it and the schema allows it.  One that only an output has,
    such as that of the statistics of a LayerNormalization, stays as it is; so does a node with graphs of its own.
    """
    found = schema(node.domain, node.op_type, version)
    if found is None:
        return f"{node.op_type} has no schema"
    if subgraphs(node):
        return f"{node.op_type} has graphs of its own"
    if any(isinstance(v.type, (ir.SequenceType, ir.OptionalType)) for v in (*node.inputs, *node.outputs) if v):
        return f"{node.op_type} has inputs or outputs that are no tensors"
    if node.op_type != "Cast" and "dtype" in found.attributes:
        return f"{node.op_type} says of which dtype its result is"
    given = [(i, v, f) for i, v in enumerate(node.inputs) if v is not None and (f := _formal(found.inputs, i))]
    made = [(i, v, f) for i, v in enumerate(node.outputs) if v.name and (f := _formal(found.outputs, i))]
    variables = {f.type_var for _, v, f in given if is_float(v) and type_string(half) in f.types}
    if node.op_type == "Cast" and is_float(node.outputs[0]):
        variables |= {f.type_var for _, _, f in made}
    if not variables:
        return f"{found.op_type} of opset {found.since_version} takes no {half.name.lower()}"
    dtypes = {f.type_var: half if is_float(v) and f.type_var in variables else v.dtype for _, v, f in (*given, *made)}
    return Places(
        tuple(i for i, v, f in given if is_float(v) and f.type_var in variables),
        tuple(i for i, v, f in made if is_float(v) and f.type_var in variables),
        {var: dtype for var, dtype in dtypes.items() if not var.startswith(("tensor(", "seq("))},
    )


def _formal(formals: tuple[Formal, ...], index: int) -> Formal | None:
    if index < len(formals):
        return formals[index]
    return formals[-1] if formals and formals[-1].variadic else None


def refusal(node: ir.Node, version: int, where: Places, half: ir.DataType, target: Target, *, native: bool) -> str:
    """The reason why a target does not run a node in half precision; empty if it does.

    Args:
        node: The node; its attributes count.
        version: Of its operator.
        where: The inputs and outputs of half precision.
        half: The dtype.
        target: The target that is to run it; one without a provider runs what the schema allows.
        native: Count only kernels of that precision.  Otherwise ONNX Runtime tries to open a model of this one node:
            it runs many operators in float32 between Casts of its own.
    """
    reason = target.refuses(node.domain, node.op_type, version, where.dtypes)
    if reason is None:
        return ""
    if native or target.provider != "CPUExecutionProvider":
        return reason
    probe = _probe(node, version, where, half)
    return "" if probe is not None and _opens(probe) else reason


def _probe(node: ir.Node, version: int, where: Places, half: ir.DataType) -> bytes | None:
    """A model of this node alone, equal for equal nodes; None where the type of something is not known."""
    proto = ir.to_proto(node)
    proto.ClearField("name")
    proto.ClearField("metadata_props")
    inputs, outputs = {}, {}
    for index, value in enumerate(node.inputs):
        dtype = half if index in where.inputs else value.dtype if value is not None else None
        if value is None:
            continue
        if dtype is None:
            return None
        proto.input[index] = f"i{index}"
        inputs[f"i{index}"] = dtype
    for index, value in enumerate(node.outputs):
        dtype = half if index in where.outputs else value.dtype
        if value.name and dtype is not None:
            proto.output[index] = f"o{index}"
            outputs[f"o{index}"] = dtype
    if node.op_type == "Cast" and 0 in where.outputs:
        next(a for a in proto.attribute if a.name == "to").i = int(half)
    given, made = (
        [onnx.helper.make_tensor_value_info(name, int(dtype), None) for name, dtype in each.items()]
        for each in (inputs, outputs)
    )
    domains = {node.domain: version, **({"": 17} if node.domain else {})}
    imports = [onnx.helper.make_opsetid(domain, number) for domain, number in domains.items()]
    graph = onnx.helper.make_graph([proto], "probe", given, made)
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
    return bytes(model.SerializeToString(deterministic=True))


@functools.lru_cache(maxsize=4096)
def _opens(model: bytes) -> bool:
    return not isinstance(open_session(onnx.load_from_string(model)), str)
