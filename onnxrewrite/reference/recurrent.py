"""LSTM, GRU and Resize in double precision.

Recurrences become a Scan a direction; an interpolation becomes one small matrix an axis, which ORT's own
float Resize makes from the unit matrix, so that only the weights are rounded, exactly as in the original.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from onnxrewrite.ir.bodies.emitter import Attributes, Emit, Unsupported
from onnxrewrite.reference.expand import DOUBLE, expands


def _argument(node: onnx.NodeProto, index: int) -> str:
    return node.input[index] if index < len(node.input) else ""


def _plain(node: onnx.NodeProto, attrs: Attributes, activations: list[bytes]) -> int:
    """The number of directions; Unsupported for the options that few models use."""
    directions = 2 if attrs.given("direction", b"forward") == b"bidirectional" else 1
    given = [a.lower() for a in attrs.given("activations", list[bytes]())]
    if given not in ([], [a.lower() for a in activations * directions]):
        raise Unsupported("other activations")
    if attrs.given("layout", 0) or attrs.get("clip") or attrs.given("input_forget", 0):
        raise Unsupported("layout, clip or input_forget")
    if _argument(node, 4) or _argument(node, 7):
        raise Unsupported("sequence_lens or peepholes")
    return directions


def _pick(e: Emit, x: str, direction: int) -> str:
    return str(e.op("Gather", x, e.const(direction, np.int64), axis=0))


def _start(e: Emit, given: str, direction: int, x: str, hidden: int) -> str:
    """The initial state (batch, hidden): given, or zeros."""
    if given:
        return _pick(e, given, direction)
    batch = e.op("Slice", e.op("Shape", x), e.ints([1]), e.ints([2]))
    shape = e.op("Concat", batch, e.ints([hidden]), axis=0)
    return str(e.op("Expand", e.const([0.0]), shape))


def _scan(
    e: Emit, body: Emit, states: list[str], gates: str, inner: list[str], outer: list[str], reverse: bool
) -> list[str]:
    """Run a body over the first axis of ``gates``; final states, then the sequence of hidden states."""
    kind = helper.make_tensor_type_proto(DOUBLE, None)
    inputs = [helper.make_value_info(n, kind) for n in inner]
    outputs = [helper.make_value_info(n, kind) for n in outer]
    graph = helper.make_graph(body.nodes, body.prefix, inputs, outputs)
    way = [1 if reverse else 0]
    made = e.op(
        "Scan", *states, gates, outputs=len(outer), body=graph, num_scan_inputs=1,
        scan_input_directions=way, scan_output_directions=way,
    )  # fmt: skip
    return list(made)


def _gates(e: Emit, x: str, w: str, bias: str, direction: int, gates: int, hidden: int) -> tuple[str, str]:
    """x·Wᵀ + Wb for all steps at once, and Rb."""
    product = e.op("MatMul", x, e.op("Transpose", _pick(e, w, direction), perm=[1, 0]))
    if not bias:
        return product, e.const(np.zeros(gates * hidden))
    both = _pick(e, bias, direction)
    size = gates * hidden
    return e.add(product, e.slice(both, [0], [size], [0], [1])), e.slice(both, [size], [2 * size], [0], [1])


def _reverses(attrs: Attributes, direction: int) -> bool:
    return direction == 1 or attrs.given("direction", b"forward") == b"reverse"


def _split(e: Emit, x: str, parts: int, hidden: int) -> list[str]:
    return [e.slice(x, [i * hidden], [(i + 1) * hidden], [-1], [1]) for i in range(parts)]


def _join(e: Emit, parts: list[str], axis: int) -> str:
    wide = [e.unsqueeze(p, [axis]) for p in parts]
    return wide[0] if len(wide) == 1 else str(e.op("Concat", *wide, axis=axis))


@expands("LSTM")
def _lstm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    hidden: int = attrs["hidden_size"]
    x, w, r = node.input[:3]
    found = []
    for d in range(_plain(node, attrs, [b"Sigmoid", b"Tanh", b"Tanh"])):
        gates, recurrent_bias = _gates(e, x, w, _argument(node, 3), d, 4, hidden)
        weight = e.op("Transpose", _pick(e, r, d), perm=[1, 0])
        body = Emit(e.opset, f"{e.prefix}.lstm{d}", {})
        h, c, step = (f"{body.prefix}.{n}" for n in ("h", "c", "x"))
        total = body.add(step, body.op("MatMul", h, weight), recurrent_bias)
        i, o, f, g = _split(body, total, 4, hidden)
        kept = body.mul(body.op("Sigmoid", f), c)
        c_next = body.add(kept, body.mul(body.op("Sigmoid", i), body.op("Tanh", g)))
        h_next = body.mul(body.op("Sigmoid", o), body.op("Tanh", c_next))
        shown = body.op("Identity", h_next)
        starts = [_start(e, _argument(node, k), d, x, hidden) for k in (5, 6)]
        found.append(_scan(e, body, starts, gates, [h, c, step], [h_next, c_next, shown], _reverses(attrs, d)))
    last_h, last_c, sequence = (list(part) for part in zip(*found, strict=True))
    return [_join(e, sequence, 1), _join(e, last_h, 0), _join(e, last_c, 0)]


@expands("GRU")
def _gru(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    hidden: int = attrs["hidden_size"]
    x, w, r = node.input[:3]
    found = []
    for d in range(_plain(node, attrs, [b"Sigmoid", b"Tanh"])):
        gates, recurrent_bias = _gates(e, x, w, _argument(node, 3), d, 3, hidden)
        weights = e.op("Transpose", _pick(e, r, d), perm=[1, 0])
        body = Emit(e.opset, f"{e.prefix}.gru{d}", {})
        h, step = (f"{body.prefix}.{n}" for n in ("h", "x"))
        h_next = _gru_step(body, h, step, weights, recurrent_bias, hidden, bool(attrs.given("linear_before_reset", 0)))
        shown = body.op("Identity", h_next)
        start = _start(e, _argument(node, 5), d, x, hidden)
        found.append(_scan(e, body, [start], gates, [h, step], [h_next, shown], _reverses(attrs, d)))
    last, sequence = (list(part) for part in zip(*found, strict=True))
    return [_join(e, sequence, 1), _join(e, last, 0)]


def _gru_step(b: Emit, h: str, step: str, weights: str, bias: str, hidden: int, linear: bool) -> str:
    """One step; ``linear``: the reset gate acts after the recurrent product, bias included."""
    xz, xr, xh = _split(b, step, 3, hidden)
    wz, wr, wh = _split(b, weights, 3, hidden)
    bz, br, bh = _split(b, bias, 3, hidden)
    update = b.op("Sigmoid", b.add(xz, b.op("MatMul", h, wz), bz))
    reset = b.op("Sigmoid", b.add(xr, b.op("MatMul", h, wr), br))
    if linear:
        inner = b.mul(reset, b.add(b.op("MatMul", h, wh), bh))
    else:
        inner = b.add(b.op("MatMul", b.mul(reset, h), wh), bh)
    candidate = b.op("Tanh", b.add(xh, inner))
    fresh = b.mul(b.op("Sub", b.const(1.0), update), candidate)
    return b.add(fresh, b.mul(update, h))


_PASSED = (
    "mode",
    "coordinate_transformation_mode",
    "nearest_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "antialias",
)


@expands("Resize", "Upsample")
def _resize(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """X multiplied by one matrix along every spatial axis."""
    x = node.input[0]
    shape = e.shapes.get(x)
    by_size = node.op_type == "Resize" and bool(_argument(node, 3))
    target = _argument(node, 3) if by_size else node.input[2 if node.op_type == "Resize" else 1]
    if (
        shape is None
        or len(shape) < 3
        or not target
        or attrs.get("axes")
        or attrs.given("keep_aspect_ratio_policy", b"stretch") != b"stretch"
    ):
        raise Unsupported("Resize of unknown rank, or of chosen axes")
    if attrs.given("coordinate_transformation_mode", b"") in (b"tf_crop_and_resize", b"half_pixel_symmetric"):
        raise Unsupported("this coordinate transformation")
    known = e.shapes.get(target)
    if known not in ((len(shape),), None):
        raise Unsupported("Resize of chosen axes")
    passed = Attributes({k: v for k, v in attrs.items() if k in _PASSED})
    for axis in range(2, len(shape)):
        x = _resize_axis(e, x, axis, len(shape), target, by_size, passed)
    return [x]


def _resize_axis(e: Emit, x: str, axis: int, rank: int, target: str, by_size: bool, passed: Attributes) -> str:
    """Transpose the axis to the end, multiply, transpose back."""
    size = e.op("Slice", e.op("Shape", x), e.ints([axis]), e.ints([axis + 1]))
    square = e.op("Expand", e.const([[0.0]], np.float32), e.op("Concat", size, size, axis=0))
    unit = e.unsqueeze(e.op("EyeLike", square), [0, 1])
    wanted = e.op("Slice", target, e.ints([axis]), e.ints([axis + 1]))
    if by_size:
        wanted = e.op("Concat", e.ints([1, 1]), size, wanted, axis=0)
        made = e.op("Resize", unit, "", "", wanted, **passed)
    else:
        wanted = e.op(
            "Concat",
            e.const([1.0, 1.0, 1.0], np.float32),
            e.op("Cast", wanted, to=onnx.TensorProto.FLOAT),
            axis=0,
        )
        made = e.op("Resize", unit, "", wanted, **passed)
    matrix = e.op(
        "Cast",
        e.op("Gather", e.op("Gather", made, e.const(0, np.int64), axis=0), e.const(0, np.int64), axis=0),
        to=DOUBLE,
    )
    order = [i for i in range(rank) if i != axis] + [axis]
    moved = e.op("MatMul", e.op("Transpose", x, perm=order), matrix)
    return str(e.op("Transpose", moved, perm=[order.index(i) for i in range(rank)]))
