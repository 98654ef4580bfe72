"""A convolution of width one over a sequence as the linear layer that it is.

Where it comes from: GPT-2 in its first form, speech models and detectors write linear layers as Conv1D, between two
Transposes that move the channels to the front and back.

Why: the Transposes are two passes over memory, and rules about linear layers, attention among them, know MatMul.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.rules import *

x = Var("x", dtype=FLOATS, rank=3)
w, b = Const("w"), Const("b", default=None)
TURN = (0, 2, 1)
BROADCAST = frozenset(operators("broadcast"))
turned = op.Transpose(x, perm=TURN)
after, before = op.Conv(turned, w, b), op.Conv(x, w, b)
beside = any_of(after, op.Transpose(before, perm=TURN))

_X = "float[n,s,2] x; t = Transpose<perm=[0,2,1]>(x)"


@rule(
    "conv-of-sequence",
    RAISE,
    beside,
    assumes=(Assumption.NOT_EMPTY,),
    allow_shared=True,
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
        Rewrites(
            f"{_X} c = Conv(t, float[2,2,1] {{1.0, 2.0, 3.0, 4.0}})  y = Add(c, t)",
            to=f"{_X} p = MatMul(x, float[2,2] {{1.0, 3.0, 2.0, 4.0}})  c = Transpose<perm=[0,2,1]>(p)  y = Add(c, t)",
        ),
        Rejects(
            f"{_X} y = Conv(t, float[1,2,1] {{1.0, 2.0}})  z = Conv(t, float[1,2,2] {{1.0, 2.0, 3.0, 4.0}})",
            because="needed by Conv in this layout",
        ),
        Rejects(
            "float[n,2,s] x; c = Conv(x, float[1,2,1] {1.0, 2.0})  y = Transpose<perm=[0,2,1]>(c)  z = Relu(c)",
            because="needed by Relu in this layout",
        ),
        Rejects("float[n,2,s] x; y = Conv(x, float[1,2,1] {1.0, 2.0})", because="expected"),
        Rejects(f"{_X} y = Conv(t, float[1,2,2] {{1.0, 2.0, 3.0, 4.0}})", because="several positions"),
        Rejects(f"{_X} y = Conv<strides=[2]>(t, float[1,2,1] {{1.0, 2.0}})", because="strides"),
        Rejects(f"{_X} y = Conv<pads=[1,0]>(t, float[1,2,1] {{1.0, 2.0}})", because="pads"),
        Rejects(f"{_X} y = Conv<group=2>(t, float[2,1,1] {{1.0, 2.0}})", because="group"),
        Rejects(
            f"{_X} c = Conv<group=2>(t, float[2,1,1] {{1.0, 2.0}})  d = Conv(t, float[2,2,1] {{1.0, 2.0, 3.0, 4.0}})"
            "  y = Mul(c, d)",
            because="needed by Conv in this layout",
        ),
    ),
)
def conv_of_sequence(m: Match, build: Builder) -> Value:
    """Conv(Transpose(x), w, b) of width one ⟶ Transpose(x·w + b), and likewise Transpose(Conv(x, w, b)).

    What else reads the transposed sequence may be like it, or a residual sum: those do as well without the Transpose.
    """
    shape, conv = m.shape(w) or (), after if after in m else before
    inner = m[turned] if conv is after else m[conv]
    others = [n for n in readers(inner, within=1) if n not in m.nodes]
    needing = next((n.op_type for n in others if conv is before or not _is_of_any_layout(m, n)), None)
    needing = "the caller" if inner.is_graph_output() else needing
    m.require(needing is None, f"it is needed by {needing} in this layout", at=inner)
    m.require(len(shape) == 3 and shape[2] == 1, "the convolution is one of several positions", at=w)
    for name, values in _USUAL.items():
        m.require(m.attr(conv, name) in values, f"it has {name}")
    m.attr(conv, "dilations"), m.attr(conv, "kernel_shape")  # of one position
    source = m[x] if conv is after else build.Transpose(m[x], perm=TURN)
    made = build.MatMul(source, build.const(m[w][:, :, 0].T, like=w))
    if b in m:
        made = build.Add(made, m.value(b))
    return build.Transpose(made, perm=TURN) if conv is after else made


_USUAL: dict[str, tuple[object, ...]] = {
    "group": (None, 1),
    "strides": (None, (), (1,)),
    "pads": (None, (), (0, 0)),
    "auto_pad": (None, "NOTSET", "VALID"),
}
"""The attributes of a convolution of width one that is a linear layer."""


def _is_of_any_layout(m: Match, node: ir.Node) -> bool:
    """True for a sum or the like, and for a convolution that becomes a linear layer itself."""
    if node.op_type != "Conv":
        return not node.domain and node.op_type in BROADCAST
    kernel = m.facts.constant(m.operand(node, 1))
    given = {name: node.attributes[name].value for name in _USUAL if name in node.attributes}
    usual = all((v if isinstance(v, int | str) else tuple(v)) in _USUAL[name] for name, v in given.items())
    return usual and kernel is not None and kernel.shape[2:] == (1,)
