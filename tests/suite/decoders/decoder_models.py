"""Decoders to try: the golden ones, as they are, under other names, and broken in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser

LAYER = """
  q{0} = MatMul(x{0}, wq{0})  k{0} = MatMul(x{0}, wk{0})  v{0} = MatMul(x{0}, wv{0})
  qr{0} = Reshape(q{0}, by_head)  kr{0} = Reshape(k{0}, by_head)  vr{0} = Reshape(v{0}, by_head)
  qh{0} = Transpose<perm=[0,2,1,3]>(qr{0})  vh{0} = Transpose<perm=[0,2,1,3]>(vr{0})
  kt{0} = Transpose<perm=[0,2,3,1]>(kr{0})  qk{0} = MatMul(qh{0}, kt{0})  scaled{0} = Mul(qk{0}, quarter)
  masked{0} = Add(scaled{0}, bias)  weights{0} = Softmax<axis=-1>(masked{0})  a{0} = MatMul(weights{0}, vh{0})
  at{0} = Transpose<perm=[0,2,1,3]>(a{0})  ar{0} = Reshape(at{0}, flat)  o{0} = MatMul(ar{0}, wo{0})
  x{1} = Add(x{0}, o{0})
"""
"""A layer of attention without past."""

GOLDEN = Path(__file__).resolve().parents[3] / "golden_models"
NAMES = ("llama_past", "gpt2_past")


def decoder(name: str) -> onnx.ModelProto:
    """A golden decoder with past."""
    return onnx.load(GOLDEN / name / "model.onnx")


BY_PLACE = "rows = Gather(places, keys)  row = Unsqueeze(rows, axis0)"
"""A row of a table for each place of a text."""


def without_past(
    *, rows: str = BY_PLACE, between: str = "x1 = Identity(y1)", seen: str = "LessOrEqual(keys, queries)"
) -> onnx.ModelProto:
    """A decoder of two layers without past, whose positions are rows of a table.

    Args:
        rows: What computes ``row`` [batch, sequence, 64], which is added to the embeddings.
        between: What computes ``x1``, which the second layer reads, from ``y1``, which the first gives: of shape
            [batch, sequence, 64].
        seen: The places of ``keys`` [sequence] that ``queries`` [sequence, 1] see.
    """
    model = onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["": 18]>
    decoder (int64[batch,sequence] tokens, int64[batch,sequence] keep)
      => (float[batch,sequence,96] scores, float[batch,4,sequence,16] spare)
    <int64[4] by_head = {{0, 0, 4, 16}}, int64[3] flat = {{0, 0, 64}}, float quarter = {{0.25}}, int64 zero = {{0}},
     int64 one = {{1}}, float no = {{0}}, float lowest = {{-3.4e38}}, int64[1] axis0 = {{0}}, int64[1] axis1 = {{1}},
     int64[2] axes = {{1, 2}}>
    {{
      words0 = Gather(words, tokens)
      length1 = Shape<start=1, end=2>(tokens)  length = Squeeze(length1, axis0)  keys = Range(zero, length, one)
      {rows}  x0 = Add(words0, row)
      queries = Unsqueeze(keys, axis1)  seen = {seen}  counts = Cast<to=9>(keep)  kept = Unsqueeze(counts, axes)
      visible = And(seen, kept)  bias = Where(visible, no, lowest)
      {LAYER.format(0, 1).replace("x1 =", "y1 =")} {between} {LAYER.format(1, 2)}
      scores = MatMul(x2, head)  spare = Identity(vh1)
    }}
    """)
    rng = np.random.default_rng(0)
    shapes = {"words": (96, 64), "places": (64, 64), "head": (64, 96), "taps": (64, 1, 3)}
    shapes |= {f"w{part}{layer}": (64, 64) for part in "qkvo" for layer in range(2)}
    for name, shape in shapes.items():
        weight = (rng.standard_normal(shape) / 4).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return model


def renamed(model: onnx.ModelProto, names: Callable[[str], str]) -> tuple[onnx.ModelProto, Mapping[str, str]]:
    """The model with inputs and outputs of other names."""
    graph = model.graph
    found = {value.name: names(value.name) for value in (*graph.input, *graph.output)}
    for value in (*graph.input, *graph.output):
        value.name = found[value.name]
    for node in graph.node:
        node.input[:] = [found.get(name, name) for name in node.input]
        node.output[:] = [found.get(name, name) for name in node.output]
    return model, found


def without_output(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model without one of its outputs."""
    kept = [value for value in model.graph.output if value.name != name]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    return model


def with_input_like(model: onnx.ModelProto, like: str, name: str) -> onnx.ModelProto:
    """The model with one more input, which is multiplied with another one by elements."""
    (given,) = (value for value in model.graph.input if value.name == like)
    more = onnx.ValueInfoProto()
    more.CopyFrom(given)
    more.name = name
    for node in model.graph.node:
        node.input[:] = ["both" if each == like else each for each in node.input]
    model.graph.node.insert(0, onnx.helper.make_node("Mul", [like, name], ["both"]))
    model.graph.input.append(more)
    return model


def without_mask(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a mask of ones in place of the input."""
    make = onnx.helper.make_node
    kept = [value for value in model.graph.input if value.name != "attention_mask"]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    ones = onnx.helper.make_tensor("one", 7, [1], [1])
    nodes = [
        make("Shape", ["input_ids"], ["texts"], start=0, end=1),
        make("Shape", ["input_ids"], ["new"], start=1, end=2),
        make("Shape", ["past_key_values.0.key"], ["before"], start=2, end=3),
        make("Add", ["before", "new"], ["all"]),
        make("Concat", ["texts", "all"], ["sizes"], axis=0),
        make("ConstantOfShape", ["sizes"], ["attention_mask"], value=ones),
    ]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    return model


def of_attentions(mask: str, *, is_causal: bool) -> onnx.ModelProto:
    """A decoder of two layers without past, whose attentions are the standard's operator.

    Args:
        mask: What they read as their mask: ``kept``, the tokens that count, ``visible``, those of them that are no
            later ones, ``bias``, the same as the former in numbers, or nothing, so that all tokens count.
        is_causal: True if they hide later tokens by themselves.
    """
    layer = """
      q{0} = MatMul(x{0}, wq{0})  k{0} = MatMul(x{0}, wk{0})  v{0} = MatMul(x{0}, wv{0})
      a{0} = Attention<q_num_heads=4, kv_num_heads=4, is_causal=CAUSAL>(q{0}, k{0}, v{0}MASK)
      o{0} = MatMul(a{0}, wo{0})  x{1} = Add(x{0}, o{0})
    """
    layer = layer.replace("CAUSAL", str(int(is_causal))).replace("MASK", f", {mask}" if mask else "")
    model = onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["": 23]>
    decoder (int64[batch,sequence] tokens, int64[batch,sequence] keep) => (float[batch,sequence,96] scores)
    <int64 zero = {{0}}, int64 one = {{1}}, float no = {{0}}, float lowest = {{-3.4e38}}, int64[1] axis0 = {{0}},
     int64[1] axis1 = {{1}}, int64[2] axes = {{1, 2}}>
    {{
      words0 = Gather(words, tokens)
      length1 = Shape<start=1, end=2>(tokens)  length = Squeeze(length1, axis0)  keys = Range(zero, length, one)
      rows = Gather(places, keys)  row = Unsqueeze(rows, axis0)  x0 = Add(words0, row)
      queries = Unsqueeze(keys, axis1)  seen = LessOrEqual(keys, queries)  later = Not(seen)
      any = Or(seen, later)  counts = Cast<to=9>(keep)  counted = Unsqueeze(counts, axes)  kept = And(counted, any)
      visible = And(kept, seen)  bias = Where(kept, no, lowest)
      {layer.format(0, 1)} {layer.format(1, 2)}
      scores = MatMul(x2, head)
    }}
    """)
    if not mask:
        del model.graph.input[1]
        unread = {"counts", "counted", "kept", "visible", "bias"}
        nodes = [node for node in model.graph.node if unread.isdisjoint(node.output)]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    rng = np.random.default_rng(0)
    shapes = {"words": (96, 64), "places": (64, 64), "head": (64, 96)}
    shapes |= {f"w{part}{layer}": (64, 64) for part in "qkvo" for layer in range(2)}
    for name, shape in shapes.items():
        weight = (rng.standard_normal(shape) / 4).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return model
