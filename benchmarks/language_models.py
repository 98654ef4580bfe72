"""Transformers of real sizes, spelled out as exporters spell them, with random weights: an encoder and two decoders.

Weights are drawn from one pool of random numbers, another stretch of it for each tensor, and written one by one:
a model of 14 GB is made in little memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import helper, numpy_helper

_POOL = 2**22
_HEAD = 64
"""Elements of a head."""


@dataclass
class _Writer:
    """Nodes and initializers of one model; large weights go to the data file."""

    file: BinaryIO
    dtype: type
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    scope: str = ""
    count: int = 0

    def __post_init__(self) -> None:
        self.pool: np.ndarray[Any, Any] = (
            np.random.default_rng(0).standard_normal(_POOL, dtype=np.float32).astype(self.dtype)
        )

    def __call__(self, op_type: str, *inputs: str | float | list[int], **attributes: Any) -> str:
        """The output of a new node; numbers become constants."""
        self.count += 1
        name = f"{self.scope}/{op_type}_{self.count}"
        operands = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(helper.make_node(op_type, operands, [name], name=name, **attributes))
        return name

    def constant(self, value: float | list[int]) -> str:
        """A small initializer: a float32 scalar or a vector of int64."""
        self.count += 1
        name = f"{self.scope}/constant_{self.count}"
        array = np.asarray(value, np.int64 if isinstance(value, list) else np.float32)
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, *shape: int, scale: float = 0.02, mean: float = 0.0) -> str:
        """A random weight; one that is stored in float16 is cast where it is used."""
        name = f"{self.scope}/{name}"
        start = self.file.seek(-(-self.file.tell() // 4096) * 4096)
        size, written, turn = math.prod(shape), 0, (start // 4096 * 7919) % _POOL
        numbers = np.roll(self.pool, -turn) * self.dtype(scale) + self.dtype(mean)
        while written < size:
            written += self.file.write(numbers[: size - written].tobytes()) // numbers.itemsize
        dtype = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        tensor = onnx.TensorProto(name=name, data_type=dtype, dims=shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, entry in (
            ("location", Path(self.file.name).name),
            ("offset", start),
            ("length", size * numbers.itemsize),
        ):
            tensor.external_data.add(key=key, value=str(entry))
        self.initializers.append(tensor)
        return name if self.dtype is np.float32 else self("Cast", name, to=onnx.TensorProto.FLOAT)


@contextmanager
def _model(
    path: Path, dtype: type, inputs: list[onnx.ValueInfoProto]
) -> Iterator[tuple[_Writer, list[onnx.ValueInfoProto]]]:
    """A writer, and a list to fill with the outputs; the model is written afterwards."""
    outputs: list[onnx.ValueInfoProto] = []
    with open(f"{path}.data", "wb") as file:
        writer = _Writer(file, dtype)
        yield writer, outputs
    graph = helper.make_graph(writer.nodes, path.stem, inputs, outputs, writer.initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _value(name: str, dtype: int, *shape: str | int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _dense(draw: _Writer, x: str, name: str, inputs: int, outputs: int, *, bias: bool = False) -> str:
    product = draw("MatMul", x, draw.weight(f"{name}.weight", inputs, outputs))
    return draw("Add", draw.weight(f"{name}.bias", outputs), product) if bias else product


def _layer_norm(draw: _Writer, x: str, name: str, size: int) -> str:
    centred = draw("Sub", x, draw("ReduceMean", x, axes=[-1]))
    variance = draw("ReduceMean", draw("Pow", centred, 2.0), axes=[-1])
    scaled = draw("Div", centred, draw("Sqrt", draw("Add", variance, 1e-5)))
    return draw(
        "Add", draw("Mul", scaled, draw.weight(f"{name}.scale", size, mean=1.0)), draw.weight(f"{name}.bias", size)
    )


def _rms_norm(draw: _Writer, x: str, name: str, size: int) -> str:
    mean = draw("ReduceMean", draw("Pow", x, 2.0), axes=[-1])
    scaled = draw("Mul", x, draw("Reciprocal", draw("Sqrt", draw("Add", mean, 1e-5))))
    return draw("Mul", draw.weight(f"{name}.scale", size, mean=1.0), scaled)


def _heads(draw: _Writer, x: str, perm: list[int], heads: int) -> str:
    return draw("Transpose", draw("Reshape", x, [0, 0, heads, _HEAD]), perm=perm)


def _merged(draw: _Writer, x: str, size: int) -> str:
    return draw("Reshape", draw("Transpose", x, perm=[0, 2, 1, 3]), [0, 0, size])


def encoder(path: Path, *, layers: int = 12, size: int = 768, words: int = 30522) -> None:
    """An encoder like BERT base: LayerNormalization, GELU by Erf, a mask of -10000."""
    long, heads = onnx.TensorProto.INT64, size // _HEAD
    inputs = [_value(name, long, "batch", "sequence") for name in ("input_ids", "attention_mask")]
    with _model(path, np.float32, inputs) as (draw, outputs):
        x = _layer_norm(draw, draw("Gather", draw.weight("words", words, size, scale=1.0), "input_ids"), "norm", size)
        mask = draw("Cast", draw("Unsqueeze", "attention_mask", [1, 2]), to=onnx.TensorProto.FLOAT)
        bias = draw("Mul", draw("Sub", 1.0, mask), -10000.0)
        for number in range(layers):
            draw.scope = f"/layer.{number}"
            q, k, v = (
                _heads(draw, _dense(draw, x, name, size, size, bias=True), perm, heads)
                for name, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
            )
            scores = draw("Add", draw("Div", draw("MatMul", q, k), math.sqrt(_HEAD)), bias)
            attended = _merged(draw, draw("MatMul", draw("Softmax", scores, axis=-1), v), size)
            x = _layer_norm(draw, draw("Add", _dense(draw, attended, "out", size, size, bias=True), x), "norm1", size)
            inner = _dense(draw, x, "up", size, 4 * size, bias=True)
            erf = draw("Add", draw("Erf", draw("Div", inner, math.sqrt(2))), 1.0)
            gelu = draw("Mul", draw("Mul", inner, erf), 0.5)
            x = _layer_norm(draw, draw("Add", _dense(draw, gelu, "down", 4 * size, size, bias=True), x), "norm2", size)
        draw.nodes.append(helper.make_node("Identity", [x], ["hidden"]))
        outputs.append(_value("hidden", onnx.TensorProto.FLOAT, "batch", "sequence", size))


def gpt2(path: Path, *, layers: int = 12, size: int = 768, words: int = 50257, positions: int = 1024) -> None:
    """A decoder like GPT-2 with past keys and values: flat Gemms, one projection that is split, GELU by Tanh, a causal
    mask that is sliced and chosen by; the head's weight stands by itself, as in a file of the exporter's."""
    long, real, heads = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, size // _HEAD
    inputs = [_value("input_ids", long, "batch", "sequence"), _value("positions", long, "batch", "sequence")]
    for kind in ("key", "value"):
        inputs += [_value(f"past.{i}.{kind}", real, "batch", heads, "past", _HEAD) for i in range(layers)]
    with _model(path, np.float32, inputs) as (draw, outputs):
        triangle = np.tril(np.ones((positions, positions), np.bool_))[None, None]
        draw.initializers.append(numpy_helper.from_array(triangle, "triangle"))
        ids = draw("Reshape", "input_ids", [0, -1])
        place = draw("Gather", draw.weight("places", positions, size), "positions")
        x = draw("Add", draw("Gather", draw.weight("words", words, size), ids), place)
        new = draw("Gather", draw("Shape", "input_ids"), [1], axis=0)
        whole = draw("Add", draw("Gather", draw("Shape", "past.0.key"), [2], axis=0), new)
        rows = draw("Slice", "triangle", draw("Sub", whole, new), whole, [2])
        causal = draw("Slice", rows, [0], whole, [3])
        for number in range(layers):
            draw.scope = f"/h.{number}"
            normed = _layer_norm(draw, x, "ln_1", size)
            split = draw("Split", _flat(draw, normed, "c_attn", size, 3 * size), axis=2)
            draw.nodes[-1].output[:] = parts = [f"{split}.{part}" for part in "qkv"]
            q, k, v = (_heads(draw, part, [0, 2, 1, 3], heads) for part in parts)
            for kind, each in (("key", k), ("value", v)):
                present = f"present.{number}.{kind}"
                draw.nodes.append(helper.make_node("Concat", [f"past.{number}.{kind}", each], [present], axis=2))
                outputs.append(_value(present, real, "batch", heads, "past + sequence", _HEAD))
            turned = draw("Transpose", f"present.{number}.key", perm=[0, 1, 3, 2])
            scores = draw("Div", draw("MatMul", q, turned), math.sqrt(_HEAD))
            scores = draw("Softmax", draw("Where", causal, scores, float(np.finfo(np.float32).min)), axis=-1)
            attended = _merged(draw, draw("MatMul", scores, f"present.{number}.value"), size)
            x = draw("Add", _flat(draw, attended, "c_proj", size, size), x)
            inner = _flat(draw, _layer_norm(draw, x, "ln_2", size), "c_fc", size, 4 * size)
            cubic = draw(
                "Mul", draw("Add", inner, draw("Mul", draw("Pow", inner, 3.0), 0.044715)), math.sqrt(2 / math.pi)
            )
            gelu = draw("Mul", draw("Mul", inner, 0.5), draw("Add", draw("Tanh", cubic), 1.0))
            x = draw("Add", x, _flat(draw, gelu, "c_out", 4 * size, size))
        draw.scope = ""
        logits = _dense(draw, _layer_norm(draw, x, "ln_f", size), "head", size, words)
        draw.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
        outputs.insert(0, _value("logits", real, "batch", "sequence", words))


def _flat(draw: _Writer, x: str, name: str, inputs: int, outputs: int) -> str:
    """A layer with bias as a Gemm of two dimensions between Reshapes, as GPT-2's is exported."""
    flat = draw("Reshape", x, [-1, inputs])
    shape = draw("Concat", draw("Slice", draw("Shape", x), [0], [2]), [outputs], axis=0)
    product = draw("Gemm", flat, draw.weight(f"{name}.weight", inputs, outputs), draw.weight(f"{name}.bias", outputs))
    return draw("Reshape", product, shape)


def decoder(
    path: Path,
    *,
    layers: int,
    size: int,
    inner: int,
    words: int = 32000,
    dtype: type = np.float32,
    counted: bool = False,
) -> None:
    """A decoder like Llama with past keys and values: RMS norms, rotary embeddings, SwiGLU, a causal mask.

    ``dtype``: of the stored weights; it computes in float32.  ``counted``: it takes 1 for each token that counts, and
    makes its mask of that.
    """
    long, real, heads = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, size // _HEAD
    inputs = [_value("input_ids", long, "batch", "sequence"), _value("positions", long, "batch", "sequence")]
    mask = ("attention_mask", long, "batch") if counted else ("mask", real, "batch", 1, "sequence")
    inputs.append(_value(*mask, "past + sequence"))
    for kind in ("key", "value"):
        inputs += [_value(f"past.{i}.{kind}", real, "batch", heads, "past", _HEAD) for i in range(layers)]
    with _model(path, dtype, inputs) as (draw, outputs):
        x = draw("Gather", draw.weight("words", words, size), "input_ids")
        frequencies = (10000.0 ** -(np.arange(0, _HEAD, 2) / _HEAD)).astype(np.float32)
        draw.initializers.append(numpy_helper.from_array(frequencies, "frequencies"))
        angles = draw("Mul", draw("Cast", draw("Unsqueeze", "positions", [2]), to=real), "frequencies")
        doubled = draw("Unsqueeze", draw("Concat", angles, angles, axis=-1), [1])
        cos, sin = draw("Cos", doubled), draw("Sin", doubled)
        bias = _causal(draw) if counted else "mask"
        for number in range(layers):
            draw.scope = f"/layer.{number}"
            normed = _rms_norm(draw, x, "norm1", size)
            q, k, v = (
                _heads(draw, _dense(draw, normed, name, size, size), [0, 2, 1, 3], heads)
                for name in ("query", "key", "value")
            )
            q, k = (_rotated(draw, each, cos, sin) for each in (q, k))
            for kind, each in (("key", k), ("value", v)):
                present = f"present.{number}.{kind}"
                draw.nodes.append(helper.make_node("Concat", [f"past.{number}.{kind}", each], [present], axis=2))
                outputs.append(_value(present, real, "batch", heads, "past + sequence", _HEAD))
            turned = draw("Transpose", f"present.{number}.key", perm=[0, 1, 3, 2])
            scores = draw("Add", draw("Mul", draw("MatMul", q, turned), 1 / math.sqrt(_HEAD)), bias)
            attended = draw("MatMul", draw("Softmax", scores, axis=-1), f"present.{number}.value")
            x = draw("Add", x, _dense(draw, _merged(draw, attended, size), "out", size, size))
            normed = _rms_norm(draw, x, "norm2", size)
            gate = _dense(draw, normed, "gate", size, inner)
            up = draw("Mul", draw("Mul", gate, draw("Sigmoid", gate)), _dense(draw, normed, "up", size, inner))
            x = draw("Add", x, _dense(draw, up, "down", inner, size))
        draw.scope = ""
        logits = _dense(draw, _rms_norm(draw, x, "norm", size), "head", size, words)
        draw.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
        outputs.insert(0, _value("logits", real, "batch", "sequence", words))


def _causal(draw: _Writer) -> str:
    """What is added to scores: the lowest number for later tokens, and for those that do not count."""
    total, new = (
        draw("Squeeze", draw("Slice", draw("Shape", name), [1], [2]), [0]) for name in ("attention_mask", "input_ids")
    )
    zero, one = (draw("Squeeze", draw.constant([number]), [0]) for number in (0, 1))
    keys, queries = draw("Range", zero, total, one), draw("Range", draw("Sub", total, new), total, one)
    causal = draw("LessOrEqual", keys, draw("Unsqueeze", queries, [1]))
    kept = draw("Cast", draw("Unsqueeze", "attention_mask", [1, 2]), to=onnx.TensorProto.BOOL)
    return draw("Where", draw("And", causal, kept), 0.0, float(np.finfo(np.float32).min))


def _rotated(draw: _Writer, x: str, cos: str, sin: str) -> str:
    """The rotary embedding in halves."""
    first = draw("Slice", x, [0], [_HEAD // 2], [3])
    second = draw("Slice", x, [_HEAD // 2], [_HEAD], [3])
    turned = draw("Concat", draw("Neg", second), first, axis=-1)
    return draw("Add", draw("Mul", x, cos), draw("Mul", turned, sin))
