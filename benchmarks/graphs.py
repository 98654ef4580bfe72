"""Graphs by code, of about as many nodes as asked for, in the spellings that exporters write.

What they compute means nothing: hidden sizes are tiny, so that 100,000 nodes cost the rewriter what 100,000 nodes cost
and the memory little.  Every node is read by something, every name is unique, and the same seed gives the same graph.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

OPSET = 17
HIDDEN, HEADS = 8, 2
CHANNELS = 4

Generator: TypeAlias = Callable[..., ir.Model]


class _Sketch:
    """A graph while it is being drawn: ``sketch("Add", x, 1.0)`` adds a node and returns its first output."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.nodes: list[ir.Node] = []
        self.weights: list[ir.Value] = []
        self.scope = ""

    def input(self, name: str, shape: Sequence[int | str], dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
        """An input of the graph."""
        return ir.Value(name=name, shape=ir.Shape(list(shape)), type=ir.TensorType(dtype))

    def weight(self, *shape: int) -> ir.Value:
        """An initializer of its own, with numbers that no rule takes for neutral ones."""
        return self.constant(0.1 + 0.8 * self.random.random(shape, np.float32))

    def constant(self, array: Any) -> ir.Value:
        """An initializer; a Python number is a float32 scalar, a list of integers an int64 tensor."""
        data = np.asarray(array, np.float32 if isinstance(array, float) else None)
        value = ir.Value(
            name=f"{self.scope}/constant_{len(self.weights)}",
            shape=ir.Shape(data.shape),
            type=ir.TensorType(ir.DataType.from_numpy(data.dtype)),
            const_value=ir.Tensor(data),
        )
        self.weights.append(value)
        return value

    def __call__(self, op_type: str, *operands: Any, **attributes: Any) -> ir.Value:
        inputs = [o if isinstance(o, ir.Value) or o is None else self.constant(o) for o in operands]
        name = f"{self.scope}/{op_type}_{len(self.nodes)}"
        node = ir.Node("", op_type, inputs, [_attribute(*each) for each in attributes.items()], name=name)
        node.outputs[0].name = f"{name}_output_0"
        self.nodes.append(node)
        return node.outputs[0]

    def model(self, inputs: Sequence[ir.Value], output: ir.Value, shape: Sequence[int | str | None]) -> ir.Model:
        """The finished model, which has one output."""
        output.shape, output.type = ir.Shape(list(shape)), ir.TensorType(ir.DataType.FLOAT)
        graph = ir.Graph(
            inputs,
            [output],
            nodes=self.nodes,
            initializers=self.weights,
            opset_imports={"": OPSET},
            name="main",
        )
        return ir.Model(graph, ir_version=8)


def _attribute(name: str, value: int | float | list[int]) -> ir.Attr:
    if isinstance(value, list):
        return ir.AttrInt64s(name, value)
    return ir.AttrInt64(name, value) if isinstance(value, int) else ir.AttrFloat32(name, value)


# -- transformer -----------------------------------------------------------------------------------------------------


def transformer(nodes: int, seed: int = 0) -> ir.Model:
    """An encoder as TorchScript exports it: batch and sequence stay symbolic, so shapes are computed in the graph."""
    draw = _Sketch(seed)
    x = hidden = draw.input("hidden", ["batch", "seq", HIDDEN])
    mask = draw.input("mask", ["batch", 1, 1, "seq"])
    layer = 0
    while len(draw.nodes) < nodes:
        draw.scope = f"/encoder/layer.{layer}/attention"
        attended = _linear(draw, _attention(draw, x, mask), HIDDEN, HIDDEN)
        x = _layer_norm(draw, draw("Add", attended, x))
        draw.scope = f"/encoder/layer.{layer}/feed_forward"
        wide = _gelu(draw, _linear(draw, x, HIDDEN, 2 * HIDDEN))
        x = _layer_norm(draw, draw("Add", _linear(draw, wide, 2 * HIDDEN, HIDDEN), x))
        layer += 1
    return draw.model([hidden, mask], x, ["batch", "seq", HIDDEN])


def _linear(draw: _Sketch, x: ir.Value, inputs: int, outputs: int) -> ir.Value:
    return draw("Add", draw.weight(outputs), draw("MatMul", x, draw.weight(inputs, outputs)))


def _attention(draw: _Sketch, x: ir.Value, mask: ir.Value) -> ir.Value:
    size = HIDDEN // HEADS
    split = _sizes(draw, x, [HEADS, size])
    q, k, v = (draw("Reshape", _linear(draw, x, HIDDEN, HIDDEN), split) for _ in range(3))
    q, v = (draw("Transpose", each, perm=[0, 2, 1, 3]) for each in (q, v))
    scores = draw("Div", draw("MatMul", q, draw("Transpose", k, perm=[0, 2, 3, 1])), math.sqrt(size))
    context = draw("MatMul", draw("Softmax", draw("Add", scores, mask), axis=-1), v)
    context = draw("Transpose", context, perm=[0, 2, 1, 3])
    return draw("Reshape", context, _sizes(draw, context, [HIDDEN]))


def _sizes(draw: _Sketch, x: ir.Value, last: list[int]) -> ir.Value:
    """The shape tensor [batch, seq, *last], from that of x."""
    first = (draw("Gather", draw("Shape", x), np.array(axis), axis=0) for axis in (0, 1))
    return draw("Concat", *(draw("Unsqueeze", each, [0]) for each in first), last, axis=0)


def _layer_norm(draw: _Sketch, x: ir.Value) -> ir.Value:
    centered = draw("Sub", x, draw("ReduceMean", x, axes=[-1]))
    variance = draw("ReduceMean", draw("Pow", centered, 2.0), axes=[-1])
    normal = draw("Div", centered, draw("Sqrt", draw("Add", variance, 1e-5)))
    return draw("Add", draw("Mul", normal, draw.weight(HIDDEN)), draw.weight(HIDDEN))


def _gelu(draw: _Sketch, x: ir.Value) -> ir.Value:
    bell = draw("Add", draw("Erf", draw("Div", x, math.sqrt(2))), 1.0)
    return draw("Mul", draw("Mul", x, bell), 0.5)


# -- convolutional network -------------------------------------------------------------------------------------------


def cnn(nodes: int, seed: int = 0) -> ir.Model:
    """Residual blocks, squeeze-and-excitation, hard swishes, and branches that a Concat joins; no layout changes."""
    draw = _Sketch(seed)
    image = draw.input("image", ["batch", CHANNELS, 32, 32])
    x, block = image, 0
    kinds = (_residual, _squeeze_excite, _branches, _separable)
    while len(draw.nodes) < nodes:
        draw.scope = f"/blocks.{block}"
        x = kinds[block % len(kinds)](draw, x)
        block += 1
    pooled = draw("Flatten", draw("GlobalAveragePool", x), axis=1)
    logits = draw("Gemm", pooled, draw.weight(10, CHANNELS), draw.weight(10), transB=1)
    return draw.model([image], logits, ["batch", 10])


def _conv(draw: _Sketch, x: ir.Value, kernel: int, inputs: int = CHANNELS, group: int = 1) -> ir.Value:
    pads, shape = [kernel // 2] * 4, [kernel, kernel]
    weight = draw.weight(CHANNELS, inputs // group, kernel, kernel)
    y = draw("Conv", x, weight, kernel_shape=shape, pads=pads, strides=[1, 1], dilations=[1, 1], group=group)
    return draw("BatchNormalization", y, *(draw.weight(CHANNELS) for _ in range(4)), epsilon=1e-5)


def _residual(draw: _Sketch, x: ir.Value) -> ir.Value:
    y = _conv(draw, draw("Relu", _conv(draw, x, 3)), 3)
    return draw("Relu", draw("Add", y, x))


def _squeeze_excite(draw: _Sketch, x: ir.Value) -> ir.Value:
    y = draw("GlobalAveragePool", x)
    for activation in ("Relu", "Sigmoid"):
        y = draw("Conv", y, draw.weight(CHANNELS, CHANNELS, 1, 1), draw.weight(CHANNELS), kernel_shape=[1, 1])
        y = draw(activation, y)
    return draw("Mul", x, y)


def _branches(draw: _Sketch, x: ir.Value) -> ir.Value:
    pooled = draw("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    a, b = draw("Relu", _conv(draw, x, 1)), draw("Relu", _conv(draw, pooled, 3))
    return draw("Relu", _conv(draw, draw("Concat", a, b, axis=1), 1, inputs=2 * CHANNELS))


def _separable(draw: _Sketch, x: ir.Value) -> ir.Value:
    y = _conv(draw, x, 3, group=CHANNELS)
    y = draw("Mul", y, draw("Div", draw("Clip", draw("Add", y, 3.0), 0.0, 6.0), 6.0))
    y = _conv(draw, y, 1)
    return draw("Add", x, draw("Mul", y, draw("Sigmoid", y)))


# -- random graph ----------------------------------------------------------------------------------------------------

_UNARY = "Relu Sigmoid Tanh Exp Neg Abs Sqrt Erf Softmax Transpose Reshape ReduceMean LeakyRelu Identity".split()
_BINARY = "Add Mul Sub Div MatMul Max Pow".split()
_SIZE = 4
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Softmax": {"axis": -1},
    "Transpose": {"perm": [0, 2, 1]},
    "ReduceMean": {"axes": [-1], "keepdims": 1},
    "LeakyRelu": {"alpha": 0.1},
}


def random_graph(nodes: int, seed: int = 0) -> ir.Model:
    """Operators at random, on operands from near and far and on constants; every value has the shape [batch, 4, 4],
    or [batch, 4, 1]."""
    draw = _Sketch(seed)
    draw.scope = "/random"
    dice = draw.random
    inputs = [draw.input(f"x{i}", ["batch", _SIZE, _SIZE]) for i in range(3)]
    values, unread = list(inputs), list(inputs)

    def operand() -> ir.Value:
        """Mostly what nothing reads yet, so that little is left over at the end; now and then something old."""
        if unread and dice.random() < 0.7:
            return unread.pop(int(dice.integers(len(unread))))
        return values[int(dice.integers(max(0, len(values) - 200), len(values)))]

    while len(draw.nodes) + len(unread) < nodes:
        if dice.random() < 0.5:
            op_type = str(dice.choice(_UNARY))
            operands: list[Any] = [operand()]
            if op_type == "ReduceMean":  # what reads it broadcasts it back
                operands = [draw(op_type, *operands, **_ATTRIBUTES[op_type]), operand()]
                op_type = "Sub"
            elif op_type == "Reshape":
                operands.append([0, _SIZE, _SIZE])
        else:
            op_type = str(dice.choice(_BINARY))
            operands = [operand(), _second(draw, op_type) if dice.random() < 0.4 or op_type == "Pow" else operand()]
        value = draw(op_type, *operands, **_ATTRIBUTES.get(op_type, {}))
        values.append(value)
        unread.append(value)
    while len(unread) > 1:
        unread.append(draw("Add", unread.pop(0), unread.pop(0)))
    return draw.model(inputs, unread[0], ["batch", _SIZE, _SIZE])


def _second(draw: _Sketch, op_type: str) -> Any:
    """A constant operand: a matrix, the square, or one of the numbers that formulas are made of."""
    if op_type == "MatMul":
        return draw.weight(_SIZE, _SIZE)
    if op_type == "Pow":
        return 2.0
    return float(draw.random.choice([0.5, 0.25, 2.0, 3.0, 6.0, 0.125, 1.702, 0.7978846, math.sqrt(2)]))


KINDS: dict[str, Generator] = {"transformer": transformer, "cnn": cnn, "random": random_graph}


# -- sites -----------------------------------------------------------------------------------------------------------

_BLOCK = 40
"""Nodes between one site and the next."""


def sites(count: int, nodes: int, seed: int = 0, *, spoilt: bool = False) -> ir.Model:
    """A deep residual chain of operators that no rule wants, with ``count`` sites spread over it: by turns
    log(softmax(x)) and x / (1 + |x|).

    ``spoilt`` sites have the same nodes but another axis or constant, so that nothing applies: what the same graph
    costs without rewrites.
    """
    draw = _Sketch(seed)
    draw.scope = "/sites"
    x = given = draw.input("x", ["batch", HIDDEN])
    done = 0
    while len(draw.nodes) < nodes or done < count:
        for _ in range(max(1, min(_BLOCK, nodes // max(1, count) - 4) // 3)):
            x = draw("Add", x, draw("Tanh", draw("MatMul", x, draw.weight(HIDDEN, HIDDEN))))
        if done * nodes < count * len(draw.nodes):
            x = _site(draw, x, done, spoilt)
            done += 1
    return draw.model([given], x, ["batch", HIDDEN])


def _site(draw: _Sketch, x: ir.Value, number: int, spoilt: bool) -> ir.Value:
    if number % 2:
        return draw("Log", draw("Softmax", x, axis=0 if spoilt else 1))
    return draw("Div", x, draw("Add", draw("Abs", x), 1.5 if spoilt else 1.0))


def large(folder: str, megabytes: int) -> str:
    """A model on disk with so many megabytes of external data, a sparse file of zeros, and GELUs to rewrite; its path.

    Zeros cost no disk.  Nothing may look at them: whether a rewriter reads weights that it does not need is the point.
    """
    size = 4096 if megabytes >= 1024 else 512
    layer = 4 * size * size
    count = max(1, megabytes * 2**20 // layer)
    path = os.path.join(folder, "large.onnx")
    with open(f"{path}.data", "wb") as file:
        file.truncate(count * layer)
    draw = _Sketch(0)
    x = given = draw.input("x", ["batch", size])
    for number in range(count):
        draw.scope = f"/layer.{number}"
        tensor = ir.ExternalTensor(
            "large.onnx.data",
            number * layer,
            layer,
            ir.DataType.FLOAT,
            shape=ir.Shape([size, size]),
            name=f"weight.{number}",
            base_dir=folder,
        )
        weight = ir.Value(
            name=f"weight.{number}", shape=tensor.shape, type=ir.TensorType(ir.DataType.FLOAT), const_value=tensor
        )
        draw.weights.append(weight)
        x = _gelu(draw, draw("MatMul", x, weight))
    ir.save(draw.model([given], x, ["batch", size]), path)
    return path
