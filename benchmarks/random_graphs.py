"""Valid graphs at random: dozens of operators, static and symbolic shapes, branches, constants in every spelling.

Every value is continuous in the float inputs, so that a rewrite may round differently and nothing else.  Everything is
drawn from the ``random.Random`` that is handed over.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape: TypeAlias = tuple[int | str, ...]

OPSETS = (13, 14, 17, 18, 20, 21)
UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "Softplus", "Identity", "Softsign", "LeakyRelu", "Elu", "Cos")
BINARY = ("Add", "Mul", "Sub", "Max", "Min")
FACTORS = (0.0, 1.0, 0.5, -1.0, 2.0, 3.0, 6.0, 1 / 6, 1.702, 1.41421356, 0.70710678, 0.044715, 0.79788456)
FLOATS: dict[int, Any] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT16: np.float16,
}


@dataclass(frozen=True)
class Drawn:
    """A float tensor of the graph: its name and its shape, the symbolic sizes by name."""

    name: str
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def fixed(self, *, least: int = 1) -> list[int]:
        """The axes whose size is a number."""
        return [i for i, d in enumerate(self.shape) if isinstance(d, int) and d >= least]


class Sketch:
    """A graph, or the branch of an If, while it is being drawn."""

    def __init__(self, dice: random.Random, dtype: int, opset: int, prefix: str = "", outer: Sequence[Drawn] = ()):
        self.dice, self.dtype, self.opset, self.prefix = dice, dtype, opset, prefix
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.values: list[Drawn] = list(outer)
        self.count = 0

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{self.prefix}{kind}_{self.count}"

    def constant(self, array: Any) -> str:
        """An initializer, or the output of a Constant node."""
        name = self.fresh("c")
        tensor = numpy_helper.from_array(np.asarray(array), name)
        if self.dice.random() < 0.5 and not self.prefix:
            self.weights.append(tensor)
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def number(self, value: float, beside: Drawn) -> str:
        """A constant of one element, as a scalar or, ``beside`` what has axes, as [1]."""
        shape = self.dice.choice(((), (1,))) if beside.rank else ()
        return self.constant(np.full(shape, value, FLOATS[self.dtype]))

    def weight(self, *shape: int) -> str:
        generator = np.random.default_rng(self.dice.randrange(2**32))
        return self.constant((0.5 * generator.standard_normal(shape)).astype(FLOATS[self.dtype]))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def node(self, op_type: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node; the name of its output, or a list of several."""
        names = [self.fresh(op_type.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, name=f"/{names[0]}", domain=domain, **attributes))
        return names if outputs > 1 else names[0]

    def pick(self, rank: int | None = None) -> Drawn | None:
        """A value, rather one of the last."""
        found = [v for v in self.values if rank is None or v.rank == rank]
        return self.dice.choice(found[-6:] if self.dice.random() < 0.7 else found) if found else None

    def add(self, name: str, shape: Shape) -> None:
        self.values.append(Drawn(name, shape))

    def reduced(self, op_type: str, value: str, axis: int, keepdims: int) -> str:
        if self.opset >= 18 or op_type == "ReduceSum":
            return str(self.node(op_type, [value, self.ints(axis)], keepdims=keepdims))
        return str(self.node(op_type, [value], axes=[axis], keepdims=keepdims))


Move: TypeAlias = Callable[[Sketch, Drawn], None]


# -- elementwise ---------------------------------------------------------------------------------------------------


def unary(draw: Sketch, x: Drawn) -> None:
    draw.add(draw.node(draw.dice.choice(UNARY), [x.name]), x.shape)


def with_number(draw: Sketch, x: Drawn) -> None:
    operands = [x.name, draw.number(draw.dice.choice(FACTORS), x)]
    op_type = draw.dice.choice(BINARY)
    if op_type != "Sub" and draw.dice.random() < 0.5:
        operands.reverse()
    draw.add(draw.node(op_type, operands), x.shape)


def divided(draw: Sketch, x: Drawn) -> None:
    draw.add(draw.node("Div", [x.name, draw.number(draw.dice.choice(FACTORS[1:]), x)]), x.shape)


def binary(draw: Sketch, x: Drawn) -> None:
    others = [v for v in draw.values if v.shape == x.shape]
    draw.add(draw.node(draw.dice.choice(BINARY), [x.name, draw.dice.choice(others).name]), x.shape)


def with_channels(draw: Sketch, x: Drawn) -> None:
    """A number for each element of one axis."""
    axes = x.fixed()
    if axes:
        axis = draw.dice.choice(axes)
        size = x.shape[axis]
        assert isinstance(size, int)
        weight = draw.weight(size, *[1] * (x.rank - 1 - axis))
        draw.add(draw.node(draw.dice.choice(("Add", "Mul")), [x.name, weight]), x.shape)


def broadcast(draw: Sketch, x: Drawn) -> None:
    """X and its mean over one axis."""
    if x.rank:
        mean = draw.reduced("ReduceMean", x.name, draw.dice.randrange(x.rank) - x.rank, 1)
        draw.add(draw.node(draw.dice.choice(("Sub", "Add", "Mul")), [x.name, mean]), x.shape)


def square(draw: Sketch, x: Drawn) -> None:
    squared = draw.node("Pow", [x.name, draw.number(2.0, x)])
    draw.add(draw.node("Sqrt", [draw.node("Add", [squared, draw.number(1.0, x)])]), x.shape)


def clip(draw: Sketch, x: Drawn) -> None:
    low, high = draw.dice.choice(((0, 6), (-1, 1), (0, 1), (-3, 3)))
    bounds = [draw.constant(np.array(b, FLOATS[draw.dtype])) for b in (low, high)]
    draw.add(draw.node("Clip", [x.name, *bounds]), x.shape)


def gelu(draw: Sketch, x: Drawn) -> None:
    root = draw.node("Div", [x.name, draw.number(1.4142135623730951, x)])
    bell = draw.node("Add", [draw.node("Erf", [root]), draw.number(1.0, x)])
    product = draw.node("Mul", draw.dice.sample([x.name, bell], 2))
    if draw.dice.random() < 0.2:
        draw.add(bell, x.shape)
    draw.add(draw.node("Mul", [product, draw.number(0.5, x)]), x.shape)


def swish(draw: Sketch, x: Drawn) -> None:
    inner = draw.node("Mul", [x.name, draw.number(1.702, x)]) if draw.dice.random() < 0.5 else x.name
    draw.add(draw.node("Mul", draw.dice.sample([x.name, draw.node("Sigmoid", [inner])], 2)), x.shape)


def hard_swish(draw: Sketch, x: Drawn) -> None:
    bounds = [draw.constant(np.array(b, FLOATS[draw.dtype])) for b in (0, 6)]
    clipped = draw.node("Clip", [draw.node("Add", [x.name, draw.number(3.0, x)]), *bounds])
    product = draw.node("Mul", [x.name, clipped])
    draw.add(draw.node("Div", [product, draw.number(6.0, x)]), x.shape)


def there_and_back(draw: Sketch, x: Drawn) -> None:
    wide = draw.node("Cast", [x.name], to=TensorProto.DOUBLE)
    draw.add(draw.node("Cast", [wide], to=draw.dtype), x.shape)


def dropout(draw: Sketch, x: Drawn) -> None:
    draw.add(draw.node("Dropout", [x.name]), x.shape)


# -- products ------------------------------------------------------------------------------------------------------


def matmul(draw: Sketch, x: Drawn) -> None:
    last = x.shape[-1] if x.rank >= 2 else None
    if isinstance(last, int):
        size = draw.dice.choice((2, 3, 4))
        product = draw.node("MatMul", [x.name, draw.weight(last, size)])
        if draw.dice.random() < 0.5:
            product = draw.node("Add", draw.dice.sample([product, draw.weight(size)], 2))
        draw.add(product, (*x.shape[:-1], size))


def gram(draw: Sketch, x: Drawn) -> None:
    """softmax(x·xᵀ)·x, what attention is made of."""
    if x.rank < 3:
        return
    swapped = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    scores = draw.node("MatMul", [x.name, draw.node("Transpose", [x.name], perm=swapped)])
    if draw.dice.random() < 0.5:
        scores = draw.node("Mul", [scores, draw.number(0.5, x)])
    draw.add(draw.node("MatMul", [draw.node("Softmax", [scores], axis=-1), x.name]), x.shape)


def conv(draw: Sketch, x: Drawn) -> None:
    if x.rank != 4 or not isinstance(x.shape[1], int):
        return
    channels, made = x.shape[1], draw.dice.choice((2, 3, 4))
    inputs = [x.name, draw.weight(made, channels, 3, 3)]
    if draw.dice.random() < 0.5:
        inputs.append(draw.weight(made))
    y = draw.node("Conv", inputs, pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    if draw.dice.random() < 0.6:
        statistics = [draw.weight(made), draw.weight(made), draw.weight(made)]
        variance = draw.constant(np.linspace(0.5, 1.5, made).astype(FLOATS[draw.dtype]))
        y = draw.node("BatchNormalization", [y, *statistics, variance], epsilon=1e-3)
    draw.add(y, (x.shape[0], made, *x.shape[2:]))


def pool(draw: Sketch, x: Drawn) -> None:
    if x.rank == 4:
        op_type = draw.dice.choice(("MaxPool", "AveragePool"))
        value = x.name
        if draw.dice.random() < 0.4:
            value = draw.node("Pad", [value, draw.ints(0, 0, 1, 1, 0, 0, 1, 1)])
            draw.add(draw.node(op_type, [value], kernel_shape=[3, 3]), x.shape)
        else:
            draw.add(draw.node(op_type, [value], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), x.shape)


def softmax(draw: Sketch, x: Drawn) -> None:
    if x.rank:
        draw.add(draw.node("Softmax", [x.name], axis=draw.dice.randrange(-x.rank, x.rank)), x.shape)


def reduce(draw: Sketch, x: Drawn) -> None:
    if x.rank:
        axis, keep = draw.dice.randrange(x.rank), draw.dice.randrange(2)
        shape = (*x.shape[:axis], *([1] if keep else []), *x.shape[axis + 1 :])
        draw.add(draw.reduced(draw.dice.choice(("ReduceMean", "ReduceMax", "ReduceSum")), x.name, axis, keep), shape)


# -- layout --------------------------------------------------------------------------------------------------------


def transpose(draw: Sketch, x: Drawn) -> None:
    if not x.rank:
        return
    perm = draw.dice.sample(range(x.rank), x.rank)
    draw.add(draw.node("Transpose", [x.name], perm=perm), tuple(x.shape[p] for p in perm))


def unsqueeze(draw: Sketch, x: Drawn) -> None:
    if x.rank < 5:
        axis = draw.dice.randint(0, x.rank)
        shape = (*x.shape[:axis], 1, *x.shape[axis:])
        draw.add(draw.node("Unsqueeze", [x.name, draw.ints(axis)]), shape)


def squeeze(draw: Sketch, x: Drawn) -> None:
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    if ones:
        axis = draw.dice.choice(ones)
        draw.add(draw.node("Squeeze", [x.name, draw.ints(axis)]), (*x.shape[:axis], *x.shape[axis + 1 :]))


def reshape(draw: Sketch, x: Drawn) -> None:
    """Two neighbouring axes become one, the target being a constant."""
    if x.rank < 2:
        return
    axis = draw.dice.randrange(x.rank - 1)
    a, b = x.shape[axis : axis + 2]
    size = a * b if isinstance(a, int) and isinstance(b, int) else f"{a}*{b}"
    if (x.fixed() and len(x.fixed()) == x.rank - 1) or isinstance(size, str):
        target = [0] * axis + [-1] + [d if isinstance(d, int) else -2 for d in x.shape[axis + 2 :]]
        if -2 in target or (isinstance(a, str) and isinstance(b, str)):
            return
    else:
        target = [0] * axis + [size] + [d if isinstance(d, int) else -1 for d in x.shape[axis + 2 :]]
        if target.count(-1) > 1:
            return
    draw.add(draw.node("Reshape", [x.name, draw.ints(*target)]), (*x.shape[:axis], size, *x.shape[axis + 2 :]))


def reshape_computed(draw: Sketch, x: Drawn) -> None:
    """To its own shape and one axis more, the sizes taken from the tensor as exporters do."""
    if not 1 <= x.rank <= 4:
        return
    shape = draw.node("Shape", [x.name])
    sizes = [draw.node("Gather", [shape, draw.constant(np.int64(i))], axis=0) for i in range(x.rank)]
    parts = [draw.node("Unsqueeze", [s, draw.ints(0)]) for s in sizes]
    target = draw.node("Concat", [*parts, draw.ints(1)], axis=0)
    draw.add(draw.node("Reshape", [x.name, target]), (*x.shape, 1))


def concat(draw: Sketch, x: Drawn) -> None:
    others = [v for v in draw.values if v.shape == x.shape]
    axes = x.fixed()
    if axes:
        axis, count = draw.dice.choice(axes), draw.dice.randint(1, 3)
        size = x.shape[axis]
        assert isinstance(size, int)
        if size * count <= 8:
            names = [draw.dice.choice(others).name for _ in range(count)]
            shape = (*x.shape[:axis], size * count, *x.shape[axis + 1 :])
            draw.add(draw.node("Concat", names, axis=axis), shape)


def split(draw: Sketch, x: Drawn) -> None:
    axes = x.fixed(least=2)
    if axes:
        axis = draw.dice.choice(axes)
        size = x.shape[axis]
        assert isinstance(size, int)
        first = draw.dice.randint(1, size - 1)
        names = draw.node("Split", [x.name, draw.ints(first, size - first)], 2, axis=axis)
        for name, part in zip(names, (first, size - first), strict=True):
            draw.add(name, (*x.shape[:axis], part, *x.shape[axis + 1 :]))
        if draw.dice.random() < 0.4:
            draw.add(draw.node("Concat", names, axis=axis), x.shape)


def slice_(draw: Sketch, x: Drawn) -> None:
    axes = x.fixed(least=1)
    if axes:
        axis = draw.dice.choice(axes)
        size = x.shape[axis]
        assert isinstance(size, int)
        start = draw.dice.randrange(size)
        end = draw.dice.choice((size, 2**31 - 1)) if draw.dice.random() < 0.5 else draw.dice.randint(start + 1, size)
        limits = [draw.ints(v) for v in (start, end, axis)]
        shape = (*x.shape[:axis], min(end, size) - start, *x.shape[axis + 1 :])
        draw.add(draw.node("Slice", [x.name, *limits]), shape)


def gather(draw: Sketch, x: Drawn) -> None:
    axes = x.fixed()
    if axes:
        axis = draw.dice.choice(axes)
        size = x.shape[axis]
        assert isinstance(size, int)
        picked = [draw.dice.randrange(-size, size) for _ in range(draw.dice.randint(1, 3))]
        if draw.dice.random() < 0.4:
            index, shape = draw.constant(np.int64(picked[0])), (*x.shape[:axis], *x.shape[axis + 1 :])
        else:
            index, shape = draw.ints(*picked), (*x.shape[:axis], len(picked), *x.shape[axis + 1 :])
        draw.add(draw.node("Gather", [x.name, index], axis=axis), shape)


def expand(draw: Sketch, x: Drawn) -> None:
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    if ones:
        axis = draw.dice.choice(ones)
        target = [1] * x.rank
        target[axis] = 3
        draw.add(draw.node("Expand", [x.name, draw.ints(*target)]), (*x.shape[:axis], 3, *x.shape[axis + 1 :]))


def where(draw: Sketch, x: Drawn) -> None:
    others = [v for v in draw.values if v.shape == x.shape]
    condition = draw.dice.choice(("flag", draw.constant(np.array(draw.dice.random() < 0.5))))
    draw.add(draw.node("Where", [condition, x.name, draw.dice.choice(others).name]), x.shape)


def branches(draw: Sketch, x: Drawn) -> None:
    """An If whose branches read values from outside."""
    if draw.prefix.count("/") >= 2:
        return
    made = []
    for side in ("then", "else"):
        inner = Sketch(draw.dice, draw.dtype, draw.opset, f"{draw.prefix}{draw.fresh(side)}/", [x])
        for _ in range(draw.dice.randint(0, 4)):
            draw.dice.choice(ELEMENTWISE)(inner, inner.values[-1])
        if not inner.nodes or inner.values[-1] is x:
            inner.add(inner.node("Identity", [x.name]), x.shape)
        typed = helper.make_tensor_value_info(inner.values[-1].name, draw.dtype, None)
        made.append(helper.make_graph(inner.nodes, side, [], [typed]))
    condition = draw.dice.choice(("flag", draw.constant(np.array(draw.dice.random() < 0.5))))
    draw.add(draw.node("If", [condition], then_branch=made[0], else_branch=made[1]), x.shape)


ELEMENTWISE: tuple[Move, ...] = (
    *(unary, unary, unary, with_number, with_number, divided, binary, binary, with_channels, broadcast, square),
    *(clip, gelu, swish, hard_swish, there_and_back, dropout, where),
)
MOVES: tuple[Move, ...] = (
    *(*ELEMENTWISE, matmul, matmul, gram, conv, conv, pool, softmax, reduce, transpose, transpose, transpose),
    *(unsqueeze, squeeze, reshape, reshape_computed, concat, split, slice_, gather, expand, branches),
)

INPUTS: tuple[Shape, ...] = (("n", 3, 4), (2, 4), ("n", 2, 5, 5), (1, "m", 4), (4,), ("n", "m", 4), (2, 3, 4, 4))


def random_model(dice: random.Random, moves: int = 30) -> onnx.ModelProto:
    """A valid model of about two nodes a move.

    Its inputs are one to three float tensors and ``flag``, a bool; its outputs are up to four values, dead nodes
    included among the others.
    """
    dtype = dice.choices(list(FLOATS), [8, 1, 1])[0]
    draw = Sketch(dice, dtype, dice.choice(OPSETS))
    inputs = [helper.make_tensor_value_info("flag", TensorProto.BOOL, [])]
    for i in range(dice.randint(1, 3)):
        shape = dice.choice(INPUTS)
        inputs.append(helper.make_tensor_value_info(f"x{i}", dtype, shape))
        draw.add(f"x{i}", shape)
    for _ in range(moves):
        value = draw.pick()
        assert value is not None
        dice.choice(MOVES)(draw, value)
    made = [v for v in draw.values if not any(v.name == i.name for i in inputs)]
    chosen = list(dict.fromkeys([*made[-1:], *dice.choices(made, k=dice.randint(0, 3))])) if made else []
    if not chosen:
        unary(draw, draw.values[0])
        chosen = draw.values[-1:]
    outputs = [helper.make_tensor_value_info(v.name, dtype, [_named(d) for d in v.shape]) for v in chosen]
    graph = helper.make_graph(draw.nodes, "random", inputs, outputs, draw.weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", draw.opset)])


def _named(dim: int | str) -> int | str | None:
    return dim if isinstance(dim, int) or dim.isidentifier() else None
