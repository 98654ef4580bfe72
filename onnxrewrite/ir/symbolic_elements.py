"""Shape inference where the library is unsound or silent: broadcasting, and the elements of shape tensors.

The library assumes two different dimensions that meet in a broadcast to be equal; here neither is taken for
the other, for either of them may be 1.  It takes slices for long enough, loops for run, and elements that it
does not know for sizes.  It also gives up where exporters test a shape tensor against -1 (``Where(shape ==
-1, 1, shape)``, which TorchScript writes before every Expand); dimensions are never negative, so that is
decided here.

What is known of a shape tensor is a list of its elements, each a number, a symbol or ``UNKNOWN``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import dims
from onnxrewrite.ir.dims import UNKNOWN, Dim
from onnxrewrite.ir.graph import dense_tensor
from onnxrewrite.ir.operators import operators

if TYPE_CHECKING:
    from onnx_shape_inference import ShapeInferenceContext as Context
else:
    Context: TypeAlias = Any

Infer: TypeAlias = Callable[[Context, ir.Node], None]

LIMIT = 256
"""Shape tensors are short; longer ones are data."""


def set_shape(context: Context, output: ir.Value, shape: Iterable[Dim] | None, dtype: ir.DataType | None) -> None:
    """Give ``output`` its shape, with a new symbol for every unknown dimension, and its dtype."""
    if dtype is not None:
        output.dtype = dtype
    if shape is not None:
        output.shape = ir.Shape([d if dims.is_known(d) else context.new_symbolic_dim() for d in shape])


def known(context: Context, value: ir.Value | None) -> list[Dim] | None:
    """The elements of a short tensor of rank 0 or 1, some of which may be unknown; None where all are."""
    if value is None:
        return None
    found: list[Dim] | None = context.get_symbolic_value(value)
    return found


def numbers(context: Context, value: ir.Value | None) -> list[int] | None:
    """The elements of a shape tensor if all of them are numbers."""
    found = known(context, value)
    ints = [e for e in found or () if isinstance(e, int)]
    return ints if found is not None and len(ints) == len(found) else None


def parameter(context: Context, node: ir.Node, name: str, index: int) -> tuple[bool, list[int] | None]:
    """A list of ints, an attribute in one opset and an input in another: is it there, and its value."""
    if name in node.attributes:
        return True, list(node.attributes[name].as_ints())
    if index < len(node.inputs) and node.inputs[index] is not None:
        return True, numbers(context, node.inputs[index])
    return False, None


def length_of(value: ir.Value | None) -> int | None:
    """The length of a tensor of rank 1; None when unknown."""
    if value is None or value.shape is None or len(value.shape) != 1:
        return None
    length = value.shape[0]
    return length if isinstance(length, int) else None


def _aligned(context: Context, inputs: Sequence[ir.Value | None]) -> list[tuple[Dim, ...]] | None:
    """The elements of several short tensors, side by side after broadcasting those of one element."""
    columns = []
    for value in inputs:
        column = known(context, value)
        if column is None:
            return None
        columns.append(column)
    length = max((len(c) for c in columns if len(c) != 1), default=1)
    if any(len(c) not in (1, length) for c in columns):
        return None
    return list(zip(*[c * length if len(c) == 1 else c for c in columns], strict=True))


# -- elementwise ---------------------------------------------------------------------------------------------


def elementwise(context: Context, node: ir.Node) -> None:
    """Any operator that broadcasts its inputs."""
    shapes = [i.shape.dims if i.shape is not None else None for i in node.inputs if i is not None]
    dtype = next((i.dtype for i in node.inputs if i is not None and i.dtype is not None), None)
    output = node.outputs[0]
    whole = all(s is not None for s in shapes)
    result = dims.broadcast([s for s in shapes if s is not None]) if whole and shapes else None
    set_shape(context, output, result, dtype if output.dtype is None else None)


def _arithmetic(combine: Callable[[Dim, Dim], Dim]) -> Infer:
    """A binary or variadic operator on shape tensors, element by element."""

    def infer(context: Context, node: ir.Node) -> None:
        elementwise(context, node)
        rows = _aligned(context, node.inputs)
        if rows is None:
            return
        result = []
        for first, *rest in rows:
            for other in rest:
                first = combine(first, other) if dims.is_known(first) and dims.is_known(other) else UNKNOWN
            result.append(dims.plain(first))
        context.set_symbolic_value(node.outputs[0], result)

    return infer


def _divide(a: Dim, b: Dim) -> Dim:
    """Division of integers rounds towards zero, which is down where nothing is negative."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if isinstance(b, int) and b > 0 and dims.is_size(a):
        return a // b
    return UNKNOWN


def _modulo(a: Dim, b: Dim) -> Dim:
    return a % b if isinstance(b, int) and b > 0 and dims.is_size(a) else UNKNOWN


def _compare(test: Callable[[Dim, Dim], bool | None]) -> Infer:
    """A comparison of two shape tensors."""

    def infer(context: Context, node: ir.Node) -> None:
        node.outputs[0].dtype = ir.DataType.BOOL
        elementwise(context, node)
        rows = _aligned(context, node.inputs)
        if rows is not None:
            decided = [test(a, b) for a, b in rows]
            context.set_symbolic_value(node.outputs[0], [UNKNOWN if d is None else int(d) for d in decided])

    return infer


def _equal(a: Dim, b: Dim) -> bool | None:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if dims.same_dim(a, b):
        return True
    return False if _less(a, b) or _less(b, a) else None


def _less(a: Dim, b: Dim) -> bool | None:
    """True if ``a < b``; None if that depends on the sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if isinstance(a, int) and dims.is_size(b) and a < dims.at_least(b):
        return True
    if isinstance(b, int) and dims.is_size(a) and b <= dims.at_least(a):
        return False
    return False if dims.same_dim(a, b) else None


def _not(decided: bool | None) -> bool | None:
    return None if decided is None else not decided


def _where(context: Context, node: ir.Node) -> None:
    condition, a, b = node.inputs
    if a is not None and b is not None:
        set_shape(context, node.outputs[0], None, a.dtype or b.dtype)
    elementwise(context, node)
    rows = _aligned(context, [condition, a, b])
    if rows is not None:
        context.set_symbolic_value(node.outputs[0], [_chosen(*row) for row in rows])


def _chosen(condition: Dim, a: Dim, b: Dim) -> Dim:
    if isinstance(condition, int):
        return a if condition else b
    return a if dims.same_dim(a, b) else UNKNOWN


def _negate(context: Context, node: ir.Node) -> None:
    elementwise(context, node)
    elements = known(context, node.inputs[0])
    if elements is not None:
        is_not = node.op_type == "Not"
        opposite = [(1 - e if is_not else -e) if dims.is_known(e) else UNKNOWN for e in elements]
        context.set_symbolic_value(node.outputs[0], [dims.plain(e) for e in opposite])


def _cast(context: Context, node: ir.Node) -> None:
    """A cast between integers keeps elements; numbers that a float holds exactly become integers."""
    data, output = node.inputs[0], node.outputs[0]
    like = node.inputs[1] if node.op_type == "CastLike" else None
    to = ir.DataType(node.attributes["to"].as_int()) if node.op_type == "Cast" else like.dtype if like else None
    if data is None or to is None:
        return
    set_shape(context, output, data.shape, to)
    elements = known(context, data)
    tensor = dense_tensor(data)
    if elements is None and tensor is not None and tensor.dtype.is_floating_point() and tensor.size <= 1:
        elements = [int(v) if float(v).is_integer() else UNKNOWN for v in tensor.numpy().ravel().tolist()]
    if elements is not None and to != ir.DataType.BOOL:
        context.set_symbolic_value(output, elements)


# -- building and taking apart -------------------------------------------------------------------------------


def _concat(context: Context, node: ir.Node) -> None:
    shapes = [i.shape for i in node.inputs if i is not None]
    dtype = next((i.dtype for i in node.inputs if i is not None and i.dtype is not None), None)
    set_shape(context, node.outputs[0], None, dtype)
    if any(s is None for s in shapes) or "axis" not in node.attributes:
        return
    given = [s for s in shapes if s is not None]
    rank = len(given[0])
    axis = node.attributes["axis"].as_int() % rank if rank else 0
    result: list[Dim] = []
    for place in range(rank):
        met = [s[place] for s in given]
        together = itertools.accumulate(met, lambda a, b: a + b)
        result.append(dims.plain(list(together)[-1]) if place == axis else _sharpest(met))
    set_shape(context, node.outputs[0], result, dtype)
    if rank != 1:
        return
    elements: list[Dim] = []
    for value in node.inputs:
        part, length = known(context, value), length_of(value)
        if (part is None and length is None) or len(elements) + (length or 0) > LIMIT:
            return
        elements += part if part is not None else [UNKNOWN] * (length or 0)
    context.set_symbolic_value(node.outputs[0], elements)


def _sharpest(met: Sequence[Dim]) -> Dim:
    """Of dimensions that must be equal, the one that says most."""
    return next((d for d in met if isinstance(d, int)), met[0])


def _gather(context: Context, node: ir.Node) -> None:
    data, indices = known(context, node.inputs[0]), numbers(context, node.inputs[1])
    if data is not None and indices is not None and all(-len(data) <= i < len(data) for i in indices):
        context.set_symbolic_value(node.outputs[0], [data[i] for i in indices])


def _slice(context: Context, node: ir.Node) -> None:
    """Slice of any opset: its bounds are attributes before opset 10, inputs since."""
    data, output = node.inputs[0], node.outputs[0]
    if data is None:
        return
    set_shape(context, output, None, data.dtype)
    if data.shape is None:
        return
    rank = len(data.shape)
    bounds = [_bounds(context, node, name, index) for index, name in enumerate(("starts", "ends"), 1)]
    has_axes, axes = parameter(context, node, "axes", 3)
    has_steps, steps = parameter(context, node, "steps", 4)
    count = next((len(b) for b in bounds if b is not None), None)
    if not has_axes and count is not None:
        axes = list(range(count))
    result: list[Dim] = [UNKNOWN] * rank
    if axes is not None and all(-rank <= a < rank for a in axes):
        result = list(data.shape.dims)
        starts, ends = (b if b is not None else [UNKNOWN] * len(axes) for b in bounds)
        strides: Sequence[int | None] = [1] * len(axes) if not has_steps else steps or [None] * len(axes)
        for axis, start, end, step in zip(axes, starts, ends, strides, strict=True):
            result[axis] = sliced(result[axis], start, end, step)
    set_shape(context, output, result, data.dtype)
    elements = known(context, data)
    if elements is not None and rank == 1 and axes in ([0], [-1]):
        _slice_elements(context, output, elements, bounds, steps if has_steps else [1])


def _bounds(context: Context, node: ir.Node, name: str, index: int) -> list[Dim] | None:
    if name in node.attributes:
        return list(node.attributes[name].as_ints())
    return known(context, node.inputs[index]) if index < len(node.inputs) else None


def sliced(size: Dim, start: Dim, end: Dim, step: int | None) -> Dim:
    """The number of elements that ``start:end:step`` takes of an axis; UNKNOWN if that cannot be written down."""
    if step is None or step == 0 or not dims.is_known(start) or not dims.is_known(end):
        return UNKNOWN
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(dims.sliced_places(range(size), start, end, step))
    if step < 0:
        return UNKNOWN
    if not isinstance(start, int) and dims.same_dim(size, dims.plain(start * -1)):
        start = 0  # all of n are the last n, where n is 0, too
    count = dims.between(size, start, end)
    return count if step == 1 or not dims.is_known(count) else dims.plain((count + (step - 1)) // step)


def _slice_elements(
    context: Context,
    output: ir.Value,
    elements: list[Dim],
    bounds: Sequence[list[Dim] | None],
    steps: list[int] | None,
) -> None:
    start, end = (b[0] if b else UNKNOWN for b in bounds)
    if isinstance(start, int) and isinstance(end, int) and steps and steps[0]:
        places = dims.sliced_places(range(len(elements)), start, end, steps[0])
        context.set_symbolic_value(output, [elements[place] for place in places])


def _same_elements(context: Context, node: ir.Node) -> None:
    """Operators that keep elements and their order: Identity, Squeeze, Unsqueeze, Flatten."""
    elements = known(context, node.inputs[0])
    if elements is not None:
        context.set_symbolic_value(node.outputs[0], elements)


def _squeeze(context: Context, node: ir.Node) -> None:
    """Squeeze without axes has a known rank only where every dimension is a number.

    With a list of none, ONNX Runtime does what it does without, where the standard does nothing.
    """
    data = node.inputs[0]
    has_axes, axes = parameter(context, node, "axes", 1)
    symbolic = data is not None and data.shape is not None and not all(isinstance(d, int) for d in data.shape)
    if (not has_axes and symbolic) or (has_axes and not axes):
        node.outputs[0].shape = None
    _same_elements(context, node)


def _range(context: Context, node: ir.Node) -> None:
    bounds = [known(context, i) for i in node.inputs]
    output = node.outputs[0]
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    if any(b is None or len(b) != 1 for b in bounds):
        if any(dense_tensor(i) is None for i in node.inputs if i is not None):
            set_shape(context, output, [UNKNOWN], dtype)
        return
    start, limit, step = (b[0] for b in bounds if b is not None)
    if isinstance(start, int) and isinstance(limit, int) and isinstance(step, int) and step:
        values = range(start, limit, step)
        set_shape(context, output, [len(values)], dtype)
        if len(values) <= LIMIT:
            context.set_symbolic_value(output, list(values))
    elif step == 1 and dims.is_known(start) and dims.is_known(limit):
        length = dims.plain(limit - start)
        set_shape(context, output, [length if dims.is_size(length) else UNKNOWN], dtype)
    else:
        set_shape(context, output, [UNKNOWN], dtype)


def _reduce(combine: Callable[[Dim, Dim], Dim], empty: int) -> Infer:
    """A reduction of a whole shape tensor, such as the product of all dimensions."""

    def infer(context: Context, node: ir.Node) -> None:
        data, output = node.inputs[0], node.outputs[0]
        elements = known(context, data)
        if elements is None or length_of(data) is None or output.shape is None or any(d != 1 for d in output.shape):
            return
        result: Dim = empty
        for element in elements:
            result = combine(result, element) if dims.is_known(result) and dims.is_known(element) else UNKNOWN
        context.set_symbolic_value(output, [dims.plain(result)])

    return infer


def _nonzero(context: Context, node: ir.Node) -> None:
    """As many columns as a constant has elements that are not zero, or as there are elements where none of them is."""
    data = node.inputs[0]
    if data is None or data.shape is None or not len(data.shape):
        return
    shape = data.shape.dims
    count: Dim = UNKNOWN
    if data.const_value is not None:
        count = int(np.count_nonzero(data.const_value.numpy()))
    elif all(map(dims.is_known, shape)) and _is_filled(data):
        count = dims.product(shape)
    set_shape(context, node.outputs[0], [len(shape), count], ir.DataType.INT64)


def _is_filled(value: ir.Value | None) -> bool:
    """True if a tensor was filled with a number that is not zero."""
    node = value.producer() if value is not None else None
    if node is None or node.domain or node.op_type != "ConstantOfShape":
        return False
    given = node.attributes.get("value")
    return given is not None and bool(given.as_tensor().numpy().any())


ELEMENTS: dict[str, Infer] = {
    **dict.fromkeys(operators("broadcast", but="PRelu"), elementwise),
    "Add": _arithmetic(lambda a, b: a + b),
    "Sum": _arithmetic(lambda a, b: a + b),
    "Sub": _arithmetic(lambda a, b: a - b),
    "Mul": _arithmetic(lambda a, b: a * b),
    "Div": _arithmetic(_divide),
    "Mod": _arithmetic(_modulo),
    "Min": _arithmetic(dims.minimum),
    "Max": _arithmetic(dims.maximum),
    "Equal": _compare(_equal),
    "Less": _compare(_less),
    "Greater": _compare(lambda a, b: _less(b, a)),
    "LessOrEqual": _compare(lambda a, b: _not(_less(b, a))),
    "GreaterOrEqual": _compare(lambda a, b: _not(_less(a, b))),
    "Where": _where,
    "Neg": _negate,
    "Not": _negate,
    "Cast": _cast,
    "CastLike": _cast,
    "Concat": _concat,
    "Gather": _gather,
    "Slice": _slice,
    "Identity": _same_elements,
    "Unsqueeze": _same_elements,
    "Squeeze": _squeeze,
    "NonZero": _nonzero,
    "Range": _range,
    "ReduceProd": _reduce(lambda a, b: a * b, 1),
    "ReduceSum": _reduce(lambda a, b: a + b, 0),
}
"""Operator of the standard domain to what is inferred after, and instead of, the library's word."""
