"""Shape inference where the library is unsound or silent: broadcasting, and shape tensors built element by element.

The library assumes two different dimensions that meet in a broadcast to be equal; here neither is taken for the
other, for either of them may be 1.  It also gives up where exporters test a shape tensor against -1 (``Where(shape ==
-1, 1, shape)``, which TorchScript writes before every Expand); dimensions are never negative, so that is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from onnx_shape_inference import ShapeInferenceContext as Context
else:
    Context: TypeAlias = Any

Dim: TypeAlias = int | ir.SymbolicDim

_LIMIT = 64
"""Shape tensors are short; longer ones are data."""


def broadcast(shapes: Sequence[Sequence[Dim]]) -> list[Dim | None]:
    """The dimensions that result from multidirectional broadcasting; None where two different symbols meet."""
    rank = max((len(s) for s in shapes), default=0)
    dims: list[Dim | None] = []
    for axis in range(1, rank + 1):
        met: list[Dim] = []
        for shape in shapes:
            if axis <= len(shape) and shape[-axis] != 1 and shape[-axis] not in met:
                met.append(shape[-axis])
        numbers = [d for d in met if isinstance(d, int)]
        if numbers:
            dims.append(numbers[0])
        elif len(met) <= 1:
            dims.append(met[0] if met else 1)
        else:
            dims.append(_bounded(met))
    return dims[::-1]


def _bounded(met: Sequence[Dim]) -> Dim | None:
    """``a`` where ``a`` meets ``Min(c, a)`` (a table cut to the length of the input): neither is 1 unless both are."""
    for dim in met:
        others = [o for o in met if o is not dim]
        if all(str(o).startswith("Min(") and str(o).endswith(f", {dim})") for o in others):
            return dim
    return None


def _set(context: Context, output: ir.Value, dims: Sequence[Dim | None]) -> None:
    """Give ``output`` its dimensions; one that is not certain keeps the symbol it had, or gets a new one."""
    old = output.shape if output.shape is not None and len(output.shape) == len(dims) else [None] * len(dims)
    kept = [o if n is None else n for n, o in zip(dims, old, strict=True)]
    output.shape = ir.Shape([context.new_symbolic_dim() if d is None else d for d in kept])


def _elementwise(context: Context, node: ir.Node) -> None:
    shapes = [i.shape for i in node.inputs if i is not None]
    if all(s is not None for s in shapes):
        _set(context, node.outputs[0], broadcast([s for s in shapes if s is not None]))


def _expand(context: Context, node: ir.Node) -> None:
    data, target = node.inputs
    output = node.outputs[0]
    if data is None or target is None:
        return
    if data.dtype is not None:
        output.dtype = data.dtype
    dims = context.get_symbolic_value(target)
    if dims is not None and data.shape is not None:
        result = broadcast([data.shape, dims])
        _set(context, output, result)
        known = context.get_symbolic_value(data)
        if known is not None and len(known) == 1 and len(result) == 1 and result[0] is not None:
            _repeat(context, output, known[0], result[0])
    elif data.shape is not None and target.shape is not None and isinstance(target.shape[0], int):
        _set(context, output, [None] * max(len(data.shape), target.shape[0]))


def _constant_of_shape(context: Context, node: ir.Node) -> None:
    (shape,) = node.inputs
    if shape is None:
        return
    output = node.outputs[0]
    dims = context.get_symbolic_value(shape)
    if dims is not None:
        _set(context, output, dims)
    elif shape.shape is not None and isinstance(shape.shape[0], int):
        _set(context, output, [None] * shape.shape[0])
    if dims is not None and len(dims) <= 1 and output.dtype in (ir.DataType.INT64, ir.DataType.INT32):
        fill = node.attributes["value"].as_tensor().numpy().item()
        _repeat(context, output, int(fill), dims[0] if dims else 1)


def _repeat(context: Context, output: ir.Value, element: Dim, times: Dim) -> None:
    if isinstance(times, int) and times <= _LIMIT:
        context.set_symbolic_value(output, [element] * times)


def _range(context: Context, node: ir.Node) -> None:
    bounds = [context.get_symbolic_value(i) for i in node.inputs if i is not None]
    if len(bounds) == 3 and all(b is not None and len(b) == 1 and isinstance(b[0], int) for b in bounds):
        values = list(range(*[b[0] for b in bounds]))
        if len(values) <= _LIMIT:
            context.set_symbolic_value(node.outputs[0], values)


def _compare(test: Callable[[Dim, Dim], bool | None]) -> Callable[[Context, ir.Node], None]:
    """A comparison of two shape tensors, where every element of it is decided."""

    def infer(context: Context, node: ir.Node) -> None:
        _elementwise(context, node)
        node.outputs[0].dtype = ir.DataType.BOOL
        pairs = _aligned(context, node.inputs)
        decided = [test(*pair) for pair in pairs] if pairs is not None else [None]
        if all(d is not None for d in decided):
            context.set_symbolic_value(node.outputs[0], [int(bool(d)) for d in decided])

    return infer


def _equal(a: Dim, b: Dim) -> bool | None:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if isinstance(a, ir.SymbolicDim) and isinstance(b, ir.SymbolicDim):
        return True if a.value is not None and a.value == b.value else None
    number, symbol = (a, b) if isinstance(a, int) else (b, a)
    return False if isinstance(number, int) and number < 0 and _is_size(symbol) else None


def _is_size(dim: Dim) -> bool:
    """Whether an expression is certainly a size, that is not negative: it has no minus in it."""
    return isinstance(dim, ir.SymbolicDim) and dim.value is not None and "-" not in dim.value


def _where(context: Context, node: ir.Node) -> None:
    _elementwise(context, node)
    triples = _aligned(context, node.inputs)
    if triples is not None and all(isinstance(t[0], int) for t in triples):
        context.set_symbolic_value(node.outputs[0], [a if c else b for c, a, b in triples])


def _aligned(context: Context, inputs: Sequence[ir.Value | None]) -> list[tuple[Dim, ...]] | None:
    """The known elements of several short tensors, side by side after broadcasting those of one element."""
    columns = [_known(context, i) for i in inputs]
    if any(c is None for c in columns):
        return None
    lists = [c for c in columns if c is not None]
    length = max(len(c) for c in lists)
    if any(len(c) not in (1, length) for c in lists):
        return None
    return list(zip(*[c * length if len(c) == 1 else c for c in lists], strict=True))


def _known(context: Context, value: ir.Value | None) -> list[Dim] | None:
    if value is None:
        return None
    known: list[Dim] | None = context.get_symbolic_value(value)
    if known is None:
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None and tensor.dtype == ir.DataType.BOOL and tensor.size <= _LIMIT:
            known = [int(b) for b in np.atleast_1d(tensor.numpy()).ravel()]
    return known


_BROADCASTING = (
    "Add Sub Mul Div Pow Mod And Or Xor BitShift BitwiseAnd BitwiseOr BitwiseXor Min Max Mean Sum "
    "Less Greater LessOrEqual GreaterOrEqual"
).split()

REPLACED = frozenset((*_BROADCASTING, "Equal", "Where", "Expand"))
"""Operators whose shape by the library is not believed."""

RULES: dict[str, Callable[[Context, ir.Node], None]] = {
    **dict.fromkeys(_BROADCASTING, _elementwise),
    "Equal": _compare(_equal),
    "Where": _where,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
}
"""Operator of the standard domain to what is inferred after, and instead of, the library's word."""
