"""Shape inference of operators whose result has a shape of its own: Reshape, Expand, MatMul, Split, Loop, If.

Like ``symbolic_elements.py``, it replaces what the library gets wrong: a size that is only likely is unknown here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import onnx_ir as ir

from onnxrewrite.ir import dims, symbolic_elements
from onnxrewrite.ir.bodies.contributed import as_read
from onnxrewrite.ir.dims import UNKNOWN, Dim
from onnxrewrite.ir.einsum import einsum_labels
from onnxrewrite.ir.graph import dense_tensor
from onnxrewrite.ir.symbolic_elements import Infer, known, length_of, set_shape

if TYPE_CHECKING:
    from onnx_shape_inference import ShapeInferenceContext as Context
else:
    Context: TypeAlias = Any


def _reshape(context: Context, node: ir.Node) -> None:
    """Reshape: a size is taken as it stands, 0 copies (unless ``allowzero``), -1 is what is left.

    A symbolic size that turns out zero copies, too.  What the node then computes has this shape, or it does not run,
    or it has another one, of no elements: see ``rewrite.reshape.takes_sizes_as_told``.
    """
    data = node.inputs[0]
    if data is None:
        return
    if "shape" in node.attributes:
        target: Sequence[Dim] | None = node.attributes["shape"].as_ints()
    else:
        target = known(context, node.inputs[1]) if len(node.inputs) > 1 else None
    output = node.outputs[0]
    if target is None:
        rank = length_of(node.inputs[1]) if len(node.inputs) > 1 else None
        set_shape(context, output, None if rank is None else [UNKNOWN] * rank, data.dtype)
        return
    source = data.shape.dims if data.shape is not None else None
    set_shape(context, output, reshaped(source, target, allows_zero(node)), data.dtype)
    values = known(context, data)
    if values is not None:
        context.set_symbolic_value(output, values)


def allows_zero(node: ir.Node) -> bool:
    """True if a 0 in the target of a Reshape means zero, not a copied dimension."""
    return bool(node.attributes.get_int("allowzero", 0))


def reshaped(source: Sequence[Dim] | None, target: Sequence[Dim], allowzero: bool) -> list[Dim]:
    """The shape that a Reshape from ``source`` to ``target`` makes, unknown dimensions included."""
    result: list[Dim] = []
    for place, size in enumerate(target):
        if size == 0 and not allowzero:
            result.append(source[place] if source is not None and place < len(source) else UNKNOWN)
        else:
            result.append(UNKNOWN if size == -1 or _negative(size) else size)
    missing = [place for place, d in enumerate(result) if not dims.is_known(d)]
    if len(missing) != 1 or source is None:
        return result
    (place,) = missing
    others = [d for d in result if dims.is_known(d)]
    # Where the other sizes may make up zero, -1 does not run, but an unknown size could be any.
    if (target[place] == -1 and not any(d == 0 for d in others)) or all(dims.at_least(d) > 0 for d in others):
        result[place] = dims.quotient(dims.product(source), dims.product(others))
    return result


def _negative(dim: Dim) -> bool:
    """True if a dimension is the expression of a negated size."""
    return str(dim).startswith("-") and not dims.is_size(dim)


def _expand(context: Context, node: ir.Node) -> None:
    data, target = node.inputs
    output = node.outputs[0]
    if data is None or target is None:
        return
    set_shape(context, output, None, data.dtype)
    wanted = known(context, target)
    rank = length_of(target)
    if data.shape is None:
        return
    if wanted is None:
        set_shape(context, output, None if rank is None else [UNKNOWN] * max(len(data.shape), rank), data.dtype)
        return
    result = dims.broadcast([data.shape.dims, wanted])
    set_shape(context, output, result, data.dtype)
    values = known(context, data)
    if values is not None and len(values) == 1 and len(result) == 1:
        _repeat(context, output, values[0], result[0])


def _constant(context: Context, node: ir.Node) -> None:
    tensor, sparse = dense_tensor(node.outputs[0]), node.attributes.get("sparse_value")
    if tensor is not None:
        set_shape(context, node.outputs[0], list(tensor.shape.numpy()), tensor.dtype)
    elif sparse is not None:
        set_shape(context, node.outputs[0], list(sparse.value.dims), sparse.value.values.dtype)


def _constant_of_shape(context: Context, node: ir.Node) -> None:
    (target,) = node.inputs
    wanted, rank = known(context, target), length_of(target)
    output = node.outputs[0]
    fill = node.attributes["value"].as_tensor() if "value" in node.attributes else None
    result: list[Dim] | None = None if rank is None else [UNKNOWN] * rank
    if wanted is not None:
        result = [d if dims.is_size(d) else UNKNOWN for d in wanted]
    set_shape(context, output, result, fill.dtype if fill is not None else ir.DataType.FLOAT)
    if result is not None and len(result) <= 1 and fill is not None and fill.dtype.is_integer():
        _repeat(context, output, int(fill.numpy().item()), result[0] if result else 1)


def _repeat(context: Context, output: ir.Value, element: Dim, times: Dim) -> None:
    if isinstance(times, int) and times <= symbolic_elements.LIMIT:
        context.set_symbolic_value(output, [element] * times)


def _matmul(context: Context, node: ir.Node) -> None:
    a, b = node.inputs[0], node.inputs[1]
    if a is None or b is None:
        return
    if node.op_type == "MatMulInteger":
        dtype: ir.DataType | None = ir.DataType.INT32
    elif node.op_type in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
        dtype = node.inputs[2].dtype if node.inputs[2] is not None else None  # that of the scale
    else:
        dtype = a.dtype or b.dtype
    set_shape(context, node.outputs[0], None, dtype)
    if a.shape is None or b.shape is None or not len(a.shape) or not len(b.shape):
        return
    given = node.attributes.get_int
    left, right = as_read(a.shape.dims, "A", given), as_read(b.shape.dims, "B", given)
    result = dims.broadcast([left[:-2], right[:-2]])
    result += [left[-2]] if len(left) > 1 else []
    result += [right[-1]] if len(right) > 1 else []
    set_shape(context, node.outputs[0], result, dtype)


def _einsum(context: Context, node: ir.Node) -> None:
    """The library takes a label's size from where it is first used; a size of 1 gives way to any other."""
    output = node.outputs[0]
    ranks = [len(i.shape) for i in node.inputs if i is not None and i.shape is not None]
    found = None
    if len(ranks) == len(node.inputs):
        found = einsum_labels(node.attributes["equation"].as_string(), ranks)
    if found is None:
        if output.shape is not None:
            output.shape = ir.Shape([None] * len(output.shape))
        return
    terms, right = found
    met: dict[str, list[Dim]] = {}
    for labels, value in zip(terms, node.inputs, strict=True):
        for label, size in zip(labels, value.shape.dims, strict=True):  # type: ignore[union-attr]
            met.setdefault(label, []).append(size)
    result = [dims.broadcast([[d] for d in met[label]])[0] for label in right]
    set_shape(context, output, result, node.inputs[0].dtype)  # type: ignore[union-attr]


def _loop(context: Context, node: ir.Node) -> None:
    """The outputs of a Loop: carried values keep the sizes that no iteration changes; the trip count is unknown."""
    body = node.attributes["body"].as_graph()
    carried = len(node.inputs) - 2
    for place, output in enumerate(node.outputs):
        inner = body.outputs[place + 1] if place + 1 < len(body.outputs) else None
        if inner is None or output.shape is None:
            continue
        if place >= carried:
            kept = [d if isinstance(d, int) else UNKNOWN for d in inner.shape.dims] if inner.shape is not None else None
            set_shape(context, output, None if kept is None else [UNKNOWN, *kept], None)
            continue
        start = node.inputs[place + 2]
        if start is None or start.shape is None or inner.shape is None or len(start.shape) != len(inner.shape):
            output.shape = None
            continue
        pairs = zip(start.shape.dims, inner.shape.dims, strict=True)
        set_shape(context, output, [a if dims.same_dim(a, b) else UNKNOWN for a, b in pairs], None)


def _if(context: Context, node: ir.Node) -> None:
    """A branch of unknown shape makes the result's unknown, unless the condition is constant."""
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    decided = known(context, node.inputs[0])
    if decided is not None and len(decided) == 1 and isinstance(decided[0], int):
        branch = branches[0 if decided[0] else 1]
        for output, inner in zip(node.outputs, branch.outputs, strict=True):
            output.shape = None
            set_shape(context, output, inner.shape.dims if inner.shape is not None else None, inner.dtype)
        return
    for place, output in enumerate(node.outputs):
        if any(place >= len(g.outputs) or g.outputs[place].shape is None for g in branches):
            output.shape = None


def _quantized(first: int, second: int, *more: int) -> Infer:
    """A quantized operator that broadcasts these of its inputs."""

    def infer(context: Context, node: ir.Node) -> None:
        values = [node.inputs[i] for i in (first, second, *more)]
        if all(v is not None and v.shape is not None for v in values):
            shapes = [v.shape.dims for v in values if v is not None and v.shape is not None]
            set_shape(context, node.outputs[0], dims.broadcast(shapes), None)

    return infer


def _rescaled(dtype_of: int) -> Infer:
    """An operator that changes the dtype alone, to that of an input; to the standard's default without it."""

    def infer(context: Context, node: ir.Node) -> None:
        data, like = (node.inputs[i] if i < len(node.inputs) else None for i in (0, dtype_of))
        if data is not None:
            dtype = ir.DataType.UINT8 if like is None else like.dtype
            set_shape(context, node.outputs[0], None if data.shape is None else data.shape.dims, dtype)

    return infer


def _qlinear_matmul(context: Context, node: ir.Node) -> None:
    a, b = node.inputs[0], node.inputs[3]
    if a is not None and b is not None and a.shape is not None and b.shape is not None:
        left, right = a.shape.dims, b.shape.dims
        if len(left) > 1 and len(right) > 1:
            set_shape(
                context,
                node.outputs[0],
                [*dims.broadcast([left[:-2], right[:-2]]), left[-2], right[-1]],
                None,
            )


def _qgemm(context: Context, node: ir.Node) -> None:
    """A product of matrices, of floats unless a zero is given for the result."""
    a, b = node.inputs[0], node.inputs[3]
    zero = node.inputs[8] if len(node.inputs) > 8 else None
    shape: list[Dim] | None = None
    if a is not None and b is not None and a.shape is not None and b.shape is not None:
        rows, columns = (node.attributes.get_int(f"trans{which}", 0) for which in "AB")
        shape = [a.shape.dims[1 if rows else 0], b.shape.dims[0 if columns else 1]]
    set_shape(context, node.outputs[0], shape, ir.DataType.FLOAT if zero is None else zero.dtype)


def _gather_quantized(context: Context, node: ir.Node) -> None:
    """The gathered slices of a table, as floats; if several numbers share a byte, only the table's rank is known."""
    table, indices, scales = node.inputs[:3]
    shape: list[Dim] | None = None
    if table is not None and indices is not None and table.shape is not None and indices.shape is not None:
        sizes, axis = list(table.shape.dims), node.attributes.get_int("gather_axis", 0)
        if table.dtype == ir.DataType.UINT8 and node.attributes.get_int("bits", 4) != 8:
            sizes = [UNKNOWN] * len(sizes)
        axis %= len(sizes)
        shape = [*sizes[:axis], *indices.shape.dims, *sizes[axis + 1 :]]
    set_shape(context, node.outputs[0], shape, None if scales is None else scales.dtype)


def _global_pool(context: Context, node: ir.Node) -> None:
    """One number for each channel, which may be the last axis."""
    shape: list[Dim] | None = None
    if node.inputs[0] is not None and node.inputs[0].shape is not None:
        sizes = list(node.inputs[0].shape.dims)
        ones: list[Dim] = [1] * (len(sizes) - 2)
        last = node.attributes.get_int("channels_last", 0)
        shape = [sizes[0], *ones, sizes[-1]] if last else [*sizes[:2], *ones]
    set_shape(context, node.outputs[0], shape, None if node.inputs[0] is None else node.inputs[0].dtype)


def _split(context: Context, node: ir.Node) -> None:
    """Pieces whose sizes are an input: no more is known of these than of its elements.  Of a shape, they have its."""
    source, sizes = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    if source is None or not source.shape:
        return
    if sizes is not None:
        whole, axis = source.shape.dims, node.attributes.get_int("axis", 0) % len(source.shape)
        pieces = known(context, sizes) or [UNKNOWN] * len(node.outputs)
        for output, piece in zip(node.outputs, pieces, strict=False):
            set_shape(context, output, [*whole[:axis], piece, *whole[axis + 1 :]], source.dtype)
    elements, lengths = known(context, source), [length_of(o) for o in node.outputs]
    counts = [n for n in lengths if n is not None]
    if elements is not None and len(counts) == len(lengths) and sum(counts) == len(elements):
        for output, end, count in zip(node.outputs, itertools.accumulate(counts), counts, strict=True):
            context.set_symbolic_value(output, elements[end - count : end])


def _pool(context: Context, node: ir.Node) -> None:
    """A pool that rounds up leaves out a last window that would begin in the padding, which the library's formula of a
    named size does not say."""
    for output in node.outputs if node.attributes.get_int("ceil_mode", 0) else ():
        if output.shape is not None:
            sizes = [d if place < 2 or isinstance(d, int) else UNKNOWN for place, d in enumerate(output.shape.dims)]
            set_shape(context, output, sizes, output.dtype)


def _unique(context: Context, node: ir.Node) -> None:
    """The different slices along an axis, where there is one."""
    source, axis = node.inputs[0], node.attributes.get("axis")
    if axis is not None and source is not None and source.shape:
        sizes = list(source.shape.dims)
        sizes[axis.as_int()] = UNKNOWN
        set_shape(context, node.outputs[0], sizes, source.dtype)


def _array_features(context: Context, node: ir.Node) -> None:
    """The elements along the last axis at indices of any shape; of one row where there is no other axis."""
    source, indices = node.inputs[0], node.inputs[1]
    if source is None or source.shape is None or indices is None:
        return
    count = UNKNOWN if indices.shape is None else dims.product(indices.shape.dims)
    rows: list[Dim] = list(source.shape.dims[:-1]) if len(source.shape) > 1 else [1]
    set_shape(context, node.outputs[0], [*rows, count], source.dtype)


def _as_standard(op_type: str, operands: slice, dtype_of: int) -> Infer:
    """The shape that the standard's operator of this name makes of some operands, and the dtype of an input."""

    def infer(context: Context, node: ir.Node) -> None:
        import onnx_shape_inference as inference

        given = [v for v in node.inputs[operands] if v is not None]
        stands = [ir.Value(shape=v.shape, type=ir.TensorType(ir.DataType.FLOAT)) for v in given]
        twin = ir.Node("", op_type, stands, [a for a in node.attributes.values() if a.name != "channels_last"])
        standard = inference.registry.get("", op_type, version=_STANDARD)
        if standard is not None and not node.attributes.get_int("channels_last", 0):
            standard(context, twin)
            _pool(context, twin)
        shape, zero = twin.outputs[0].shape, node.inputs[dtype_of]
        set_shape(context, node.outputs[0], None if shape is None else shape.dims, None if zero is None else zero.dtype)

    return infer


_STANDARD = 21
"""The opset whose shapes the quantized operators have."""


def _presents(context: Context, node: ir.Node) -> None:
    """Keys and values (batch, heads, length, size) after the past ones."""
    inputs = dict(enumerate(node.inputs))
    for output, place, new in zip(node.outputs[1:3], (6, 7), (inputs.get(1), inputs.get(2)), strict=False):
        past = inputs.get(place)
        if past is None or past.shape is None or new is None or new.shape is None or len(new.shape) not in (3, 4):
            continue
        batch, heads, before, size = past.shape.dims
        added = new.shape.dims[-2]
        length = dims.plain(before + added) if dims.is_known(before) and dims.is_known(added) else UNKNOWN
        set_shape(context, output, [batch, heads, length, size], past.dtype)


def _skip_norm(context: Context, node: ir.Node) -> None:
    """Mean and deviation of each row, for which nobody asks."""
    source = node.inputs[0]
    rows = None if source is None or source.shape is None else [*source.shape.dims[:-1], 1]
    for output in node.outputs[1:3]:
        set_shape(context, output, rows, ir.DataType.FLOAT)


RULES: dict[tuple[str, str], Infer] = {
    **{("", op_type): infer for op_type, infer in symbolic_elements.ELEMENTS.items()},
    ("", "Reshape"): _reshape,
    ("", "Expand"): _expand,
    ("", "ConstantOfShape"): _constant_of_shape,
    ("", "Constant"): _constant,
    ("", "MatMul"): _matmul,
    ("", "MatMulInteger"): _matmul,
    ("", "QLinearMatMul"): _qlinear_matmul,
    ("", "Einsum"): _einsum,
    ("", "Loop"): _loop,
    ("", "If"): _if,
    ("", "Split"): _split,
    ("", "Unique"): _unique,
    **{("", op_type): _pool for op_type in ("AveragePool", "LpPool", "MaxPool")},
    ("ai.onnx.ml", "ArrayFeatureExtractor"): _array_features,
    ("com.microsoft", "FusedMatMul"): _matmul,
    ("com.microsoft", "MatMulIntegerToFloat"): _matmul,
    ("com.microsoft", "DynamicQuantizeMatMul"): _matmul,
    ("com.microsoft", "GatherBlockQuantized"): _gather_quantized,
    ("com.microsoft", "QuantizeLinear"): _rescaled(2),
    ("com.microsoft", "DequantizeLinear"): _rescaled(1),
    ("com.microsoft", "QLinearAdd"): _quantized(0, 3),
    ("com.microsoft", "QLinearMul"): _quantized(0, 3),
    ("com.microsoft", "QLinearWhere"): _quantized(0, 1, 4),
    ("com.microsoft", "QGemm"): _qgemm,
    ("com.microsoft", "FusedConv"): _as_standard("Conv", slice(2), 0),
    ("com.microsoft", "FusedGemm"): _as_standard("Gemm", slice(2), 0),
    ("com.microsoft", "MultiHeadAttention"): _presents,
    ("com.microsoft", "QLinearAveragePool"): _as_standard("AveragePool", slice(1), 0),
    ("com.microsoft", "QLinearGlobalAveragePool"): _global_pool,
    ("com.microsoft", "QLinearConcat"): _as_standard("Concat", slice(2, None, 3), 1),
    ("com.microsoft", "SkipLayerNormalization"): _skip_norm,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): _skip_norm,
}
"""(domain, operator) to what is inferred after, and instead of, the library's word."""

NOT_BELIEVED = frozenset(RULES) - {
    ("", "Gather"),
    ("", "Identity"),
    ("", "Unsqueeze"),
    ("", "Squeeze"),
    ("", "Range"),
    ("", "ReduceProd"),
    ("", "ReduceSum"),
    ("", "QLinearMatMul"),
    ("", "Einsum"),
    ("", "Loop"),
    ("", "If"),
    ("", "Split"),
    ("", "Unique"),
    ("", "AveragePool"),
    ("", "LpPool"),
    ("", "MaxPool"),
    ("com.microsoft", "QLinearAdd"),
    ("com.microsoft", "QLinearMul"),
    ("com.microsoft", "QLinearWhere"),
    ("com.microsoft", "MultiHeadAttention"),
    ("com.microsoft", "SkipLayerNormalization"),
    ("com.microsoft", "SkipSimplifiedLayerNormalization"),
}
"""Operators for which the library is not asked at all."""
