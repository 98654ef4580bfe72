"""Kernels in Python for operators of one's own, run by onnxruntime-extensions where that is installed.

They are for trying out what a kernel is to compute before it is compiled: checks run them in place of the body, in this
process and in float32 only; no model that is written needs them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.ir.custom import CustomOp, equip, every, has_kernel
from onnxrewrite.ir.protos import nested

if TYPE_CHECKING:
    import onnxruntime

_KINDS = {ir.AttributeType.FLOAT: "dt_float", ir.AttributeType.INT: "dt_int64", ir.AttributeType.STRING: "dt_string"}
"""The attributes that a kernel in Python can have, and their names in onnxruntime-extensions."""


def in_python(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with kernels in Python in place of function bodies; None where there are none to use."""
    ops = {op.key: op for op in every() if _registered(op)}
    used = {(n.domain, n.op_type) for n in nested(model.graph.node)} & ops.keys()
    if not used:
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [f for f in copy.functions if (f.domain, f.name) not in used]
    del copy.functions[:]
    copy.functions.extend(kept)
    for node in nested(copy.graph.node):
        if (node.domain, node.op_type) in used:
            given = {a.name for a in node.attribute}
            node.attribute.extend(
                a for a in ops[node.domain, node.op_type].proto.attribute_proto if a.name not in given
            )
    return copy


def equipped(options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    """Session options that know the kernels in Python, besides what ``equip`` gives them."""
    found = extensions()
    if found is not None:
        options.register_custom_ops_library(found.get_library_path())
    return equip(options)


@functools.cache
def extensions() -> ModuleType | None:
    """onnxruntime-extensions, if it is installed."""
    try:
        import onnxruntime_extensions
    except ImportError:
        return None
    module: ModuleType = onnxruntime_extensions
    return module


_KNOWN: dict[tuple[str, str], Callable[..., object]] = {}
"""The kernel registered under a name: looked up when it runs, for a name cannot be registered anew."""


def _registered(op: CustomOp) -> bool:
    """True if an operator has a usable kernel in Python, which is then registered, and no compiled one."""
    found = extensions()
    if op.kernel is None or found is None or has_kernel(op):
        return False
    attributes = op.signature.attributes.values()
    if not all(a.type in _KINDS for a in attributes):
        return False
    if op.key not in _KNOWN:
        kinds, is_float = found.PyCustomOpDef, found.PyCustomOpDef.dt_float
        found.onnx_op(
            op_type=f"{op.domain}::{op.name}",
            inputs=[is_float] * len(op.proto.input),
            outputs=[is_float] * len(op.proto.output),
            attrs={a.name: getattr(kinds, _KINDS[a.type]) for a in attributes},
        )(lambda *inputs, **given: _called(op.key, inputs, given))
    _KNOWN[op.key] = op.kernel
    return True


def _called(key: tuple[str, str], inputs: tuple[object, ...], given: dict[str, Any]) -> object:
    """The results of a kernel, as arrays of float32."""
    results = _KNOWN[key](*inputs, **given)
    if isinstance(results, tuple):
        return tuple(np.asarray(r, np.float32) for r in results)
    return np.asarray(results, np.float32)
