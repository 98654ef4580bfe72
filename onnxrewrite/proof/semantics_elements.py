"""Operators on elements, those that broadcast among them: their table is ``ir.operators``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.operators import operators
from onnxrewrite.proof.index_terms import Index, Integer, Term, Unprovable, plain
from onnxrewrite.proof.tensors import Call, Encoding, Outputs, Tensor, means

D = ir.DataType

_TRUTH = frozenset((*operators(marks="comparison"), "IsNaN", "IsInf"))
"""Operators whose results are truth values, whatever the operands are."""

ELEMENTWISE = operators("pointwise broadcast", but="Where Cast CastLike Clip Identity")


@means(*ELEMENTWISE)
def _elementwise(e: Encoding, call: Call) -> Outputs:
    tensors = [t for t in call.inputs if t is not None]
    if len(tensors) != len(call.inputs) or not tensors:
        raise Unprovable(f"{call.op_type} with an operand that is absent")
    if call.version < 7 and len(tensors) > 1 and ("broadcast" in call.attributes or "axis" in call.attributes):
        raise Unprovable("broadcasting as it was before opset 7")
    if call.op_type in ("Div", "Mod") and tensors[0].dtype.is_integer() and not call.attribute("fmod", 0):
        e.divides(tensors[1])
    dtype = D.BOOL if call.op_type in _TRUTH else tensors[0].dtype
    return pointwise(e, call.op_type, parameters(call), tensors, dtype)


def parameters(call: Call) -> dict[str, Term]:
    """All attributes that the schema knows, with their defaults, so that it is the same to say one or not."""
    found = schema.schema(call.domain, call.op_type, call.version)
    names = found.attributes if found is not None else call.attributes
    if set(call.attributes) - set(names):
        raise Unprovable(f"an attribute that {call.op_type} has not got")
    known = {name: call.attribute(name) for name in names if name != "consumed_inputs"}
    return {name: value for name, value in known.items() if value is not None}


def pointwise(
    e: Encoding, op_type: str, given: dict[str, Term], tensors: Sequence[Tensor], dtype: ir.DataType
) -> Tensor:
    """An operator on the elements of tensors that are broadcast."""
    dims = e.broadcast([t.dims for t in tensors])

    def at(index: Index) -> Term:
        args = [(t.at(e.narrowed(index, t.dims, dims)), t.dtype) for t in tensors]
        return e.domain.pointwise(op_type, given, args, dtype)

    return e.tensor(dtype, dims, at)


@means("Cast")
def _cast(e: Encoding, call: Call) -> Outputs:
    return cast(e, call.tensor(), D(call.attribute("to")), saturates=bool(call.attribute("saturate", 1)))


@means("CastLike")
def _cast_like(e: Encoding, call: Call) -> Outputs:
    return cast(e, call.tensor(), call.tensor(1).dtype, saturates=bool(call.attribute("saturate", 1)))


def cast(e: Encoding, x: Tensor, dtype: ir.DataType, *, saturates: bool = True) -> Tensor:
    """A tensor in another dtype; to its own it is the tensor."""
    if x.dtype == dtype:
        return x
    given = {} if saturates else {"saturate": 0}
    return e.tensor(dtype, x.dims, lambda i: e.domain.pointwise("Cast", given, [(x.at(i), x.dtype)], dtype))


@means("Clip")
def _clip(e: Encoding, call: Call) -> Outputs:
    """Above the lower bound first, then below the upper one."""
    x = call.tensor()
    if call.version < 11:
        given = [_constant(e, x, call.attribute(name)) for name in ("min", "max")]
    else:
        given = [call.optional(1), call.optional(2)]
    if x.dtype.is_floating_point():  # the largest finite numbers stand for absent bounds: they cut infinities off
        ends = (float(x.dtype.min), float(x.dtype.max))
        given = [_constant(e, x, end) if g is None else g for g, end in zip(given, ends, strict=True)]
    return _clipped(e, x, *given)


def _constant(e: Encoding, x: Tensor, value: float | None) -> Tensor | None:
    if value is None:
        return None
    with np.errstate(over="ignore"):  # a float32 bound in half precision is none
        return e.constant(np.asarray(value).astype(x.dtype.numpy()), x.dtype)


def _clipped(e: Encoding, x: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    for bound in (low, high):
        if bound is not None and bound.rank and any(not isinstance(d, int) or d != 1 for d in bound.dims):
            raise Unprovable("a bound of Clip that is no number")

    def at(index: Index) -> Term:
        found = x.at(index)
        for op_type, bound in (("ClipLow", low), ("ClipHigh", high)):
            if bound is not None:
                place: tuple[Integer, ...] = (0,) * bound.rank
                found = e.domain.pointwise(op_type, {}, [(found, x.dtype), (bound.at(place), x.dtype)], x.dtype)
        return found

    return e.tensor(x.dtype, x.dims, at)


@means("QuantizeLinear", "DequantizeLinear")
def _quantize(e: Encoding, call: Call) -> Outputs:
    """Some function of an element, its scale and its zero; blocks are left out."""
    x, scale, zero = call.tensor(0), call.tensor(1), call.optional(2)
    given = {k: v for k, v in parameters(call).items() if k != "axis"}
    if given.get("block_size"):
        raise Unprovable("quantization in blocks")
    dtype = scale.dtype if call.op_type == "DequantizeLinear" else zero.dtype if zero is not None else D.UINT8
    if given.get("output_dtype"):
        dtype = D(given["output_dtype"])
    axis = call.axis(x.rank, 1) if scale.rank == 1 and x.rank else 0
    if scale.rank > 1 or (scale.rank == 1 and not _is_one(scale) and call.version < 13):
        raise Unprovable("the axis of a quantization")
    if scale.rank == 1 and not _is_one(scale):
        e.require(plain(scale.dims[0] == x.dims[axis]), "a scale for each piece")

    def at(index: Index) -> Term:
        args = [(x.at(index), x.dtype)]
        for each in (scale, zero):
            if each is not None:
                place = () if not each.rank else (0,) if _is_one(each) else (index[axis],)
                args.append((each.at(place), each.dtype))
        return e.domain.pointwise(call.op_type, given, args, dtype)

    return e.tensor(dtype, x.dims, at)


def _is_one(tensor: Tensor) -> bool:
    return tensor.rank == 1 and isinstance(tensor.dims[0], int) and tensor.dims[0] == 1
