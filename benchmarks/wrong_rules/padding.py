"""Padding: its contents, its side, and whether it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from benchmarks.handwritten import Rewrite, wrong
from onnxrewrite.pattern.terms import FLOATS, Call
from onnxrewrite.rules import Attr, Builder, Const, Match, Scalar, Value, Var, op

x, w, b, c = Var("x", dtype=FLOATS), Const("w"), Const("b", default=None), Scalar("c")
pads, pads2 = Attr[Any]("pads"), Attr[Any]("pads2")
mode, value, value2, counted, axes = (
    Attr[Any]("mode", "constant"),
    Attr[Any]("value", 0.0),
    Attr[Any]("value2", 0.0),
    Attr[Any]("counted", 0),
    Attr[Any]("axes"),
)
auto = Attr[Any]("auto_pad")
pad = op.Pad(x, pads=pads, mode=mode, constant_value=value)
IMAGE = [[[[1, 2], [3, 5]]]]
ONES = "float[1,1,2,2] {1.0, 2.0, 3.0, 4.0}"
of_padded = op.Conv(pad, w)
automatic = op.Conv(x, w, auto_pad=auto)
shifted = op.Conv(op.Add(x, c), w)
average = op.AveragePool(op.Add(x, c), kernel_shape=Attr[Any]("kernel"))


Order: TypeAlias = Callable[[Sequence[int], Sequence[int]], Iterable[int]]


def spatial(m: Match, order: Order) -> list[int]:
    """The padding of a Pad as that of a Conv, in the order that its author has in mind."""
    half = len(m[pads]) // 2
    m.require(half > 2 and not any((*m[pads][:2], *m[pads][half : half + 2])), "it pads channels")
    m.require(min(m[pads]) >= 0, "it crops")
    begin, end = m[pads][2:half], m[pads][half + 2 :]
    return list(order(begin, end))


def plain(m: Match, call: Call) -> None:
    """Require that a layer pads nothing itself."""
    m.require(not any(m.attr(call, "pads") or ()) and m.attr(call, "auto_pad") == "NOTSET", "it pads itself")


def into_conv(call: Call, order: Order) -> Rewrite:
    """Conv(Pad(x), w) ⟶ Conv(x, w, pads)."""

    def rewrite(m: Match, build: Builder) -> Value:
        plain(m, call)
        return build.node("Conv", [m[x], m.value(w)], {**m.attrs(call), "pads": spatial(m, order)})[0]

    return rewrite


def explicit(m: Match, build: Builder) -> Value:
    """Conv(x, w, auto_pad=SAME_…) ⟶ Conv(x, w, pads), as many before as after."""
    m.require(m[auto] in ("SAME_UPPER", "SAME_LOWER") and m[w].ndim == 4, "not the same size")
    kept = {n: a for n, a in m.attrs(automatic).items() if n != "auto_pad"}
    m.require(not kept.get("dilations") and not kept.get("strides"), "windows that are further apart")
    totals = [k - 1 for k in m[w].shape[2:]]
    return build.node(
        "Conv", [m[x], m.value(w)], {**kept, "pads": [t // 2 for t in totals] + [t - t // 2 for t in totals]}
    )[0]


def shifted_bias(m: Match, build: Builder) -> Value:
    """Conv(x + c, w) ⟶ Conv(x, w, c·Σw)."""
    bias = m[c] * m[w].sum(axis=tuple(range(1, m[w].ndim)))
    return build.node("Conv", [m[x], m.value(w), build.const(bias, like=w)], m.attrs(shifted))[0]


def moved_shift(m: Match, build: Builder) -> Value:
    """AveragePool(x + c) ⟶ AveragePool(x) + c."""
    pooled = build.node("AveragePool", [m[x]], m.attrs(average))[0]
    return build.Add(pooled, build.const(m[c], like=x))


def padded(m: Match, build: Builder) -> Value:
    """Pad(x), as what is found is padded."""
    return build.Pad(m[x], build.const(np.asarray(m[pads])), build.const(m[value], like=x), mode=m[mode])


RULES = [
    wrong(
        "any-pad-into-conv", of_padded, into_conv(of_padded, lambda begin, end: (*begin, *end)), when=lambda m: m[value] == 0,
        on=f"float[1,1,2,2] x; p = Pad(x, {{0, 0, 1, 1, 0, 0, 1, 1}}, mode=\"edge\")  y = Conv(p, {ONES})", at={"x": IMAGE},
        why="the edge is repeated, and a convolution pads with zeros",
    ),
    wrong(
        "pad-into-conv-reversed", of_padded, into_conv(of_padded, lambda begin, end: (*end, *begin)),
        when=lambda m: m[value] == 0 and m[mode] == "constant",
        on=f"float[1,1,2,2] x; p = Pad(x, {{0, 0, 1, 1, 0, 0, 0, 0}})  y = Conv(p, {ONES})", at={"x": IMAGE},
        why="what stands before comes after",
    ),
    wrong(
        "explicit-padding", automatic, explicit,
        on=f"float[1,1,2,2] x; y = Conv(x, {ONES}, auto_pad=\"SAME_LOWER\")", at={"x": IMAGE},
        why="an odd number is not shared out alike by SAME_LOWER",
    ),
    wrong(
        "shift-into-conv", shifted, shifted_bias,
        on=f"float[1,1,2,2] x; a = Add(x, 1.0)  y = Conv(a, {ONES}, pads=[1, 1, 1, 1])", at={"x": IMAGE},
        why="the padding is not shifted",
    ),
    wrong(
        "shift-after-average", average, moved_shift,
        on="float[1,1,2,2] x; a = Add(x, 1.0)  y = AveragePool(a, kernel_shape=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)",
        at={"x": IMAGE}, why="the padding counts and is not shifted",
    ),
    wrong(
        "any-pad-of-pad", op.Pad(pad, pads=pads2, mode=mode, constant_value=value2),
        lambda m, b: b.Pad(m[x], b.const(np.add(m[pads], m[pads2])), b.const(m[value], like=x), mode=m[mode]),
        when=lambda m: m[value] == m[value2] and min(*m[pads], *m[pads2]) >= 0,
        on="float[1,3] x; p = Pad(x, {0, 1, 0, 1}, mode=\"reflect\")  y = Pad(p, {0, 1, 0, 1}, mode=\"reflect\")",
        at={"x": [[1, 2, 4]]}, why="what was reflected is reflected again",
    ),
    wrong(
        "pad-of-shifted", op.Pad(op.Add(x, c), pads=pads, mode=mode, constant_value=value),
        lambda m, b: b.Add(padded(m, b), b.const(m[c], like=x)),
        on="float[1,2] x; a = Add(x, 1.0)  y = Pad(a, {0, 1, 0, 1})", at={"x": [[1, 2]]}, why="the padding is not shifted",
    ),
    wrong(
        "pad-of-sigmoid", op.Pad(op.Sigmoid(x), pads=pads, mode=mode, constant_value=value), lambda m, b: b.Sigmoid(padded(m, b)),
        on="float[1,2] x; a = Sigmoid(x)  y = Pad(a, {0, 1, 0, 1})", at={"x": [[1, 2]]}, why="the sigmoid of zero is a half",
    ),
    wrong(
        "sum-of-padded", op.ReduceSum(pad, axes=axes, keepdims=0), lambda m, b: b.ReduceSum(m[x], axes=m[axes], keepdims=0),
        on="float[1,3] x; p = Pad(x, {0, -1, 0, 0})  y = ReduceSum<keepdims=0>(p, {1})", at={"x": [[1, 2, 4]]},
        when=lambda m: m[mode] == "constant" and m[value] == 0, why="what is padded by less than nothing is cut off",
    ),
    wrong(
        "largest-of-padded", op.ReduceMax(pad, axes=(-1,), keepdims=0), lambda m, b: b.ReduceMax(m[x], axes=(-1,), keepdims=0),
        on="float[1,2] x; p = Pad(x, {0, 1, 0, 1})  y = ReduceMax(p, axes=[-1], keepdims=0)", at={"x": [[-1, -2]]},
        why="zero is more than what is negative", when=lambda m: m[mode] == "constant" and m[value] == 0 and min(m[pads]) >= 0,
    ),
]  # fmt: skip
