"""A convolution of width one over a sequence as the linear layer that it is.

Where it comes from: GPT-2 in its first form, speech models and detectors write linear layers as Conv1D, between two
Transposes that move the channels to the front and back.

Why: the Transposes are two passes over memory, and rules about linear layers, attention among them, know MatMul.
"""

from __future__ import annotations

from onnxrewrite.rules import *

x = Var("x", dtype=FLOATS, rank=3)
w, b = Const("w"), Const("b", default=None)
TURN = (0, 2, 1)
after, before = op.Conv(op.Transpose(x, perm=TURN), w, b), op.Conv(x, w, b)
beside = any_of(after, op.Transpose(before, perm=TURN))

_X = "float[n,s,2] x; t = Transpose<perm=[0,2,1]>(x)"


@rule(
    "conv-of-sequence",
    RAISE,
    beside,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            f"{_X} c = Conv(t, float[2,2,1] {{1.0, 2.0, 3.0, 4.0}}, {{5.0, 6.0}})  y = Transpose<perm=[0,2,1]>(c)",
            to="float[n,s,2] x; p = MatMul(x, float[2,2] {1.0, 3.0, 2.0, 4.0})  a = Add(p, {5.0, 6.0})"
            "  c = Transpose<perm=[0,2,1]>(a)  y = Transpose<perm=[0,2,1]>(c)",
        ),
        Rewrites(
            f"{_X} y = Conv(t, float[1,2,1] {{1.0, 2.0}})",
            to="float[n,s,2] x; p = MatMul(x, float[2,1] {1.0, 2.0})  y = Transpose<perm=[0,2,1]>(p)",
        ),
        Rewrites(
            "float[n,2,s] x; c = Conv(x, float[1,2,1] {1.0, 2.0}, {3.0})  y = Transpose<perm=[0,2,1]>(c)",
            to="float[n,2,s] x; t = Transpose<perm=[0,2,1]>(x)  p = MatMul(t, float[2,1] {1.0, 2.0})"
            "  y = Add(p, {3.0})",
        ),
        Rejects("float[n,2,s] x; y = Conv(x, float[1,2,1] {1.0, 2.0})", because="expected"),
        Rejects(f"{_X} y = Conv(t, float[1,2,2] {{1.0, 2.0, 3.0, 4.0}})", because="several positions"),
        Rejects(f"{_X} y = Conv<strides=[2]>(t, float[1,2,1] {{1.0, 2.0}})", because="strides"),
        Rejects(f"{_X} y = Conv<pads=[1,0]>(t, float[1,2,1] {{1.0, 2.0}})", because="pads"),
        Rejects(f"{_X} y = Conv<group=2>(t, float[2,1,1] {{1.0, 2.0}})", because="group"),
    ),
)
def conv_of_sequence(m: Match, build: Builder) -> Value:
    """Conv(Transpose(x), w, b) of width one ⟶ Transpose(x·w + b), and likewise Transpose(Conv(x, w, b))."""
    shape, conv = m.shape(w) or (), after if after in m else before
    m.require(len(shape) == 3 and shape[2] == 1, "the convolution is one of several positions", at=w)
    m.require(m.attr(conv, "group") == 1, "it is one by group", at=w)
    usual = {"strides": ((), None, (1,)), "pads": ((), None, (0, 0)), "auto_pad": ("NOTSET", "VALID")}
    for name, values in usual.items():
        m.require(m.attr(conv, name) in values, f"it has {name}")
    m.attr(conv, "dilations"), m.attr(conv, "kernel_shape")  # of one position
    source = m[x] if conv is after else build.Transpose(m[x], perm=TURN)
    made = build.MatMul(source, build.const(m[w][:, :, 0].T, like=w))
    if b in m:
        made = build.Add(made, m.value(b))
    return build.Transpose(made, perm=TURN) if conv is after else made
