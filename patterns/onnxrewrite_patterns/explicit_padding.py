"""A Pad before a convolution or a pooling becomes its own padding.

Where it comes from: TensorFlow's networks pad by hand before every stride above one, and so do ports of them.
A convolution pads with zeros; an average counts its padding if told to; a maximum pads with minus infinity.

Why: Pad copies the whole tensor to add a frame that the kernel after it can imagine.
"""

from __future__ import annotations

import math

from onnxrewrite.rules import *

x, w, b = Var("x", dtype=FLOATS), Var("w"), Var("b", default=None)
z = Var("z", dtype=FLOATS)
floor = Attr[float]("floor")
positive = op["Relu", "Sigmoid", "HardSigmoid", "Softplus", "Abs", "Exp"](z)
ceiling = Attr[float | None]("ceiling", None)
clipped = op.Clip(z, min=floor, max=ceiling)
padded = any_of(positive, clipped, x)
"""The padded value: one that is known not to be negative, or any other."""

pads, axes = Attr[tuple[int, ...]]("pads"), Attr[tuple[int, ...] | None]("axes", None)
mode = Attr[str]("mode", "constant")
filling, old_filling = Attr[float]("constant_value", 0.0), Attr[float]("value", 0.0)
told = {"pads": pads, "axes": axes, "mode": mode, "constant_value": filling, "value": old_filling}
pad, pad_before_max = op.Pad(x, **told), op.Pad(padded, **told)

conv = op.Conv(pad, w, b)
scale, own_scale = Const("scale"), Const("own scale")
zero, own_zero = Const("zero", default=0), Const("own zero", default=0)
rounded = op.QuantizeLinear(pad, scale, zero)
back = op.DequantizeLinear(rounded, own_scale, own_zero)
conv_of_back = op.Conv(back, w, b)
average = op.AveragePool(pad)
maximum = op.MaxPool(pad_before_max)


def _fills_with(m: Match, number: float) -> bool:
    """True if Pad fills with this number, in the spelling of older or newer opsets."""
    m.require(m[mode] == "constant", f"Pad is in {m[mode]} mode")
    given = m[filling] if filling in m else m[old_filling]
    return (given[0] if isinstance(given, tuple) else given) == number


def _pool(m: Match, call: Call) -> tuple[int, ...]:
    """The pads of a pooling that looks at nothing beyond them, with those of Pad before it."""
    kernel = m.attr(call, "kernel_shape")
    m.require(not m.attr(call, "ceil_mode"), "with ceil_mode the last window looks beyond the padding")
    m.require(set(m.attr(call, "dilations") or (1,)) == {1}, "a dilated window may see nothing but padding")
    total = _total(m, call, len(kernel) + 2)
    m.require(all(p < k for p, k in zip(total, kernel * 2, strict=True)), "a window would see nothing but padding")
    return total


def _total(m: Match, call: Call, rank: int) -> tuple[int, ...]:
    """The pads of Pad and of the node after it, begins and then ends, for each spatial axis."""
    along = m[axes] or tuple(range(rank))
    both = [[0] * rank, [0] * rank]
    fits = len(m[pads]) == 2 * len(along) and all(-rank <= axis < rank for axis in along)
    m.require(fits, "Pad is of another rank")
    for side, amounts in zip(both, (m[pads][: len(along)], m[pads][len(along) :]), strict=True):
        for axis, amount in zip(along, amounts, strict=True):
            side[axis] += amount
    m.require(all(p >= 0 for side in both for p in side), "negative pads crop")
    m.require(not any(p for side in both for p in side[:2]), "it pads the batch or the channels")
    m.require(m.attr(call, "auto_pad") in ("NOTSET", "VALID"), "auto_pad depends on the padded size")
    new = (*both[0][2:], *both[1][2:])
    own = m.attr(call, "pads") if m.attr(call, "auto_pad") == "NOTSET" else None
    return tuple(n + o for n, o in zip(new, own or (0,) * len(new), strict=True))


def _unpadded(m: Match, call: Call) -> dict[str, object]:
    """The attributes of a node but for its padding."""
    return {name: value for name, value in m.attrs(call).items() if name not in ("auto_pad", "pads")}


@rule(
    "pad-into-conv",
    CANONICALIZE,
    conv,
    examples=(
        Rewrites(
            "p = Pad(x, {0, 0, 1, 2, 0, 0, 3, 4})  y = Conv(p, float[1,1,1,1] {2}, pads=[1, 1, 1, 1])",
            to="y = Conv(x, float[1,1,1,1] {2}, pads=[2, 3, 4, 5])",
        ),
        Rewrites(
            'p = Pad(x, {1, 2}, 0.0, {-1})  y = Conv(p, float[1,1,1] {2}, strides=[2], auto_pad="VALID")',
            to="y = Conv(x, float[1,1,1] {2}, strides=[2], pads=[1, 2])",
            opset=18,
        ),
        Rewrites(
            "p = Pad(x, pads=[0, 0, 1, 0, 0, 1])  y = Conv(p, float[1,1,3] {2, -1, 3}, dilations=[2])",
            to="y = Conv(x, float[1,1,3] {2, -1, 3}, dilations=[2], pads=[1, 1])",
            opset=9,
        ),
        Rewrites(
            "p = Pad(x, {0, 0, 1, 0, 0, 1})  y = Conv(p, float[2,1,2] {2, 3, 4, 5}, group=2)",
            to="y = Conv(x, float[2,1,2] {2, 3, 4, 5}, group=2, pads=[1, 1])",
        ),
        Rejects("p = Pad(x, {0, 0, 1, 0, 0, 1}, 3.0)  y = Conv(p, float[1,1,1] {2})", because="pads with zeros"),
        Rejects('p = Pad(x, {0, 0, 1, 0, 0, 1}, mode="edge")  y = Conv(p, float[1,1,1] {2})', because="edge mode"),
        Rejects("p = Pad(x, {0, 1, 1, 0, 0, 1})  y = Conv(p, float[1,1,1] {2})", because="the channels"),
        Rejects("p = Pad(x, {0, 0, -1, 0, 0, 1})  y = Conv(p, float[1,1,1] {2})", because="negative pads"),
        Rejects(
            'p = Pad(x, {0, 0, 1, 0, 0, 1})  y = Conv(p, float[1,1,1] {2}, auto_pad="SAME_UPPER")',
            because="auto_pad depends",
        ),
    ),
)
def pad_into_conv(m: Match, build: Builder) -> Value:
    """Conv(Pad(x, p)) ⟶ Conv(x, pads=p)."""
    return _padding_conv(m, build, conv, m[x])


def _padding_conv(m: Match, build: Builder, call: Call, of: Value) -> Value:
    """The convolution of what is not padded, with the pads of Pad."""
    rank = m.rank(w)
    m.require(rank is not None, "the rank is unknown", at=w)
    m.require(_fills_with(m, 0.0), "Conv pads with zeros")
    return build.Conv(of, m[w], m.value(b), **{**_unpadded(m, call), "pads": _total(m, call, rank or 0)})


_ROUND_TRIP = "q = QuantizeLinear(p, 0.5, uint8 3)  d = DequantizeLinear(q, 0.5, uint8 3)"


@rule(
    "pad-into-quantized-conv",
    CANONICALIZE,
    conv_of_back,
    examples=(
        Rewrites(
            f"p = Pad(x, {{0, 0, 1, 2, 0, 0, 3, 4}})  {_ROUND_TRIP}  y = Conv(d, float[1,1,1,1] {{2}})",
            to="q = QuantizeLinear(x, 0.5, uint8 3)  d = DequantizeLinear(q, 0.5, uint8 3)"
            "  y = Conv(d, float[1,1,1,1] {2}, pads=[1, 2, 3, 4])",
        ),
        Rejects(
            "p = Pad(x, {0, 0, 1, 0, 0, 1})  q = QuantizeLinear(p, 0.5, uint8 3)"
            "  d = DequantizeLinear(q, 0.5, uint8 4)  y = Conv(d, float[1,1,1] {2})",
            because="zero is not zero",
        ),
        Rejects(
            "p = Pad(x, {0, 0, 1, 0, 0, 1})  q = QuantizeLinear(p, 0.0)  d = DequantizeLinear(q, 0.5)"
            "  y = Conv(d, float[1,1,1] {2})",
            because="a scale is no positive number",
        ),
        Rejects(
            "p = Pad(x, {0, 0, 1, 0, 0, 1}, 3.0)  q = QuantizeLinear(p, 0.5)  d = DequantizeLinear(q, 0.5)"
            "  y = Conv(d, float[1,1,1] {2})",
            because="pads with zeros",
        ),
    ),
)
def pad_into_quantized_conv(m: Match, build: Builder) -> Value:
    """Conv(DequantizeLinear(QuantizeLinear(Pad(x, p)))) ⟶ Conv(DequantizeLinear(QuantizeLinear(x)), pads=p)."""
    steps, zeros = [m[scale], m[own_scale]], [m[zero], m[own_zero]]
    m.require(all(each.size == 1 for each in (*steps, *zeros)), "there is a scale for each channel", at=scale)
    m.require(zeros[0].item() == zeros[1].item(), "zero is not zero any more", at=own_zero)
    m.require(all(0 < step.item() < math.inf for step in steps), "a scale is no positive number", at=scale)
    (integers,) = build.again(m.node(rounded), m[x])
    return _padding_conv(m, build, conv_of_back, build.again(m.node(back), integers)[0])


@rule(
    "pad-into-average-pool",
    CANONICALIZE,
    average,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "p = Pad(x, {0, 0, 1, 0, 0, 1})  y = AveragePool(p, kernel_shape=[2])",
            to="y = AveragePool(x, kernel_shape=[2], pads=[1, 1], count_include_pad=1)",
        ),
        Rejects(
            "p = Pad(x, {0, 0, 1, 0, 0, 0})  y = AveragePool(p, kernel_shape=[3], pads=[1, 1])",
            because="but not its own",
        ),
        Rejects(
            "p = Pad(x, {0, 0, 2, 0, 0, 0})  y = AveragePool(p, kernel_shape=[2])",
            because="nothing but padding",
        ),
        Rejects(
            "p = Pad(x, {0, 0, 1, 0, 0, 0})  y = AveragePool(p, kernel_shape=[2], ceil_mode=1)",
            because="ceil_mode",
        ),
    ),
)
def pad_into_average_pool(m: Match, build: Builder) -> Value:
    """AveragePool(Pad(x, p)) ⟶ AveragePool(x, pads=p, count_include_pad=1)."""
    total = _pool(m, average)
    m.require(_fills_with(m, 0.0), "AveragePool pads with zeros")
    counts = m.attr(average, "count_include_pad")
    m.require(counts is not None, "this opset cannot count the padding")
    m.require(counts or not any(m.attr(average, "pads") or ()), "it counts the zeros of Pad, but not its own")
    return build.AveragePool(m[x], **{**_unpadded(m, average), "pads": total, "count_include_pad": 1})


@rule(
    "pad-into-max-pool",
    CANONICALIZE,
    maximum,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    examples=(
        Rewrites(
            "r = Relu(x)  p = Pad(r, {0, 0, 1, 0, 0, 1})  y = MaxPool(p, kernel_shape=[2])",
            to="r = Relu(x)  y = MaxPool(r, kernel_shape=[2], pads=[1, 1])",
        ),
        Rewrites(
            "float[2,3,5] x; r = Relu(x)  p = Pad(r, {0, 0, 1, 0, 0, 1})"
            "  y = MaxPool(p, kernel_shape=[2], strides=[2])",
            to="float[2,3,5] x; r = Relu(x)  y = MaxPool(r, kernel_shape=[2], strides=[2], pads=[1, 1])",
        ),
        Rewrites(
            "float[2,3,4] x; r = Relu(x)  p = Pad(r, {0, 0, 1, 0, 0, 1})"
            "  y = MaxPool(p, kernel_shape=[3], strides=[2])",
            to="float[2,3,4] x; r = Relu(x)  y = MaxPool(r, kernel_shape=[3], strides=[2], pads=[1, 1])",
        ),
        Rewrites(
            "r = Clip(x, 0.0, 6.0)  p = Pad(r, {0, 0, 1, 0, 0, 1})  y = MaxPool(p, kernel_shape=[2])",
            to="r = Clip(x, 0.0, 6.0)  y = MaxPool(r, kernel_shape=[2], pads=[1, 1])",
        ),
        Rejects(
            "r = Relu(x)  p = Pad(r, {0, 1, 1, 0, 0, 1})  y = MaxPool(p, kernel_shape=[2])",
            because="the channels",
        ),
        Rejects("p = Pad(x, {0, 0, 1, 0, 0, 1})  y = MaxPool(p, kernel_shape=[2])", because="x may be negative"),
        Rejects(
            "float[n,c,l] x; r = Relu(x)  p = Pad(r, {0, 0, 1, 0, 0, 1})"
            "  y = MaxPool(p, kernel_shape=[2], strides=[2], ceil_mode=1)",
            because="with ceil_mode the last window looks beyond the padding",
        ),
        Rejects(
            "r = Clip(x, -1.0, 6.0)  p = Pad(r, {0, 0, 1, 0, 0, 1})  y = MaxPool(p, kernel_shape=[2])",
            because="x may be negative",
        ),
        Rejects(
            "r = Clip(x, 0.0, -1.0)  p = Pad(r, {0, 0, 1, 0, 0, 1})  y = MaxPool(p, kernel_shape=[2])",
            because="x may be negative",
        ),
        Rejects(
            "r = Relu(x)  p = Pad(r, {0, 0, 1, 0, 0, 1}, 1.0)  y = MaxPool(p, kernel_shape=[2])",
            because="pads with -inf",
        ),
    ),
)
def pad_into_max_pool(m: Match, build: Builder) -> Value:
    """MaxPool(Pad(x, p, -inf)) ⟶ MaxPool(x, pads=p), also with zeros where x ≥ 0."""
    total = _pool(m, maximum)
    if x in m:
        m.require(_fills_with(m, -math.inf), "MaxPool pads with -inf, and x may be negative")
        return build.MaxPool(m[x], **{**_unpadded(m, maximum), "pads": total})
    bounds = (m[floor], m[ceiling]) if clipped in m else ()  # where they cross, the ceiling wins
    m.require(all(b is None or b >= 0 for b in bounds), "MaxPool pads with -inf, and x may be negative")
    m.require(_fills_with(m, 0.0) or _fills_with(m, -math.inf), "MaxPool pads with -inf")
    call = clipped if clipped in m else positive
    source = m.node(call).outputs[0]
    return build.MaxPool(source, **{**_unpadded(m, maximum), "pads": total})
