"""Random relative perturbations of one or two units roundoff, to see how much a model amplifies its own
rounding.

After Vignes, "A stochastic arithmetic for reliable scientific computation" (CESTAC), 1993: the spread of
results under random last-digit changes estimates the rounding error of a computation whose exact result is
not known.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxrewrite.reference.tolerance import TOLERANCES
from onnxrewrite.runtime.references import array_of, referred
from onnxrewrite.runtime.session import ModelLike, as_proto, message_bytes
from onnxrewrite.system.arrays import Array, Feeds, Outputs, is_tensor

WEIGHT_LIMIT = 400_000_000
_QUANTIZERS = {"QuantizeLinear", "DynamicQuantizeLinear"}
_NARROW = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
_GRID = {
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "QGemm",
}


def perturbed(value: Array, rng: np.random.Generator, units: float = 1.0) -> Array:
    """Each element times 1 + δ, |δ| ≤ ``units`` roundoffs of its dtype; other dtypes unchanged.

    float64 arrays that hold float32 data (reference feeds) are moved by float32's roundoff by their caller.
    """
    if value.dtype not in TOLERANCES:
        return value
    unit = TOLERANCES[value.dtype].unit
    wide = value.astype(np.float64) * (1.0 + units * unit * rng.choice((-2.0, 2.0), value.shape))
    return wide.astype(value.dtype)


def perturbed_feeds(feeds: Feeds, seed: int, units: float = 1.0) -> Outputs:
    """Float inputs perturbed, a function of the seed."""
    rng = np.random.default_rng([seed, 4711])
    return {name: perturbed(value, rng, units) if is_tensor(value) else value for name, value in feeds.items()}


def perturbed_model(model: ModelLike, seed: int) -> onnx.ModelProto | None:
    """A copy with every float weight perturbed, quantization scales excepted, and with what is about to be rounded to
    fewer digits; None if there is nothing of the kind."""
    if message_bytes(model) > WEIGHT_LIMIT:
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(as_proto(model))
    grid = {name for node in copy.graph.node if node.op_type in _GRID for name in node.input[1:]}
    exact = {each.name for each in (*copy.graph.initializer, *copy.graph.input)}
    rng = np.random.default_rng([seed, 4712])
    changed, steps, added = False, list[onnx.NodeProto](), list[onnx.TensorProto]()
    for i, tensor in enumerate(copy.graph.initializer):
        is_float = helper.tensor_dtype_to_np_dtype(tensor.data_type) in TOLERANCES
        if tensor.name in grid or int(np.prod(tensor.dims)) < 2 or not is_float:
            continue
        value = array_of(tensor)
        if referred(tensor) is not None:
            steps += _moved_weight(tensor, value, rng, added)
        else:
            copy.graph.initializer[i].CopyFrom(numpy_helper.from_array(perturbed(value, rng), tensor.name))
            changed = True
    changed = _perturbed_steps(copy, exact, rng) or changed
    if steps:
        nodes = [*steps, *map(_copied, copy.graph.node)]
        del copy.graph.node[:]
        copy.graph.node.extend(nodes)
        copy.graph.initializer.extend(added)
    return copy if changed or steps else None


def _moved_weight(
    tensor: onnx.TensorProto, value: Array, rng: np.random.Generator, added: list[onnx.TensorProto]
) -> list[onnx.NodeProto]:
    """Nodes that make a weight, which becomes another one's name, times 1 ± 2u: the sign is a product of signs, one for
    each index of each axis, so that no array of the weight's size is held."""
    name, unit, narrow = tensor.name, TOLERANCES[value.dtype].unit, value.dtype == np.float16
    tensor.name = f"{name}::still"
    wide = np.float32 if narrow else value.dtype
    signs = [rng.choice((-1.0, 1.0), (size,) + (1,) * (value.ndim - axis - 1)) for axis, size in enumerate(value.shape)]
    constants = [*signs[:-1], 2.0 * unit * signs[-1], np.ones(())]
    names = [f"{name}::{place}" for place in range(len(constants))]
    added += [numpy_helper.from_array(np.asarray(c, wide), n) for c, n in zip(constants, names, strict=True)]
    nodes, product = list[onnx.NodeProto](), names[-2]
    for each in reversed(names[:-2]):
        nodes.append(helper.make_node("Mul", [each, product], [f"{each}::product"]))
        product = f"{each}::product"
    nodes.append(helper.make_node("Add", [names[-1], product], [f"{name}::factor"]))
    still = tensor.name
    if narrow:
        nodes.append(helper.make_node("Cast", [still], [f"{name}::wide"], to=onnx.TensorProto.FLOAT))
        still = f"{name}::wide"
    moved = f"{name}::moved" if narrow else name
    nodes.append(helper.make_node("Mul", [still, f"{name}::factor"], [moved]))
    if narrow:
        nodes.append(helper.make_node("Cast", [moved], [name], to=onnx.TensorProto.FLOAT16))
    return nodes


def _perturbed_steps(model: onnx.ModelProto, exact: Container[str], rng: np.random.Generator) -> bool:
    """Multiply what a quantizer or a Cast rounds by 1 ± 16u, unless it is ``exact``; True if there is any.

    Such a model amplifies numbers near the middle of two.  A sum of n products in another order differs by about √n·u
    (Higham §2.8): that is n = 256.
    """
    scales: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if _rounds(node) and node.input[0] not in exact:
            name = f"onnxrewrite.perturbed.{len(scales)}"
            factor = np.float32(1.0 + 2.0**-20 * rng.choice((-1.0, 1.0)))
            scales.append(numpy_helper.from_array(np.asarray(factor), f"{name}.factor"))
            if node.op_type == "Cast":  # of whatever dtype
                nodes.append(helper.make_node("Cast", [node.input[0]], [f"{name}.float"], to=onnx.TensorProto.FLOAT))
                node.input[0] = f"{name}.float"
            nodes.append(helper.make_node("Mul", [node.input[0], f"{name}.factor"], [name]))
            node.input[0] = name
        nodes.append(node)
    if scales:
        kept = [_copied(n) for n in nodes]
        del model.graph.node[:]
        model.graph.node.extend(kept)
        model.graph.initializer.extend(scales)
    return bool(scales)


def _rounds(node: onnx.NodeProto) -> bool:
    """True if a node rounds floats to fewer digits, as far as can be told without its input's dtype."""
    if node.op_type == "Cast":
        return any(a.name == "to" and a.i in _NARROW for a in node.attribute)
    return node.op_type in _QUANTIZERS and bool(node.input)


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy
