"""Functions of what is reduced: left out where a norm does not need them, or computed of the few that are left.

Where it comes from: detectors take the largest of all probabilities, Sigmoid before ReduceMax; losses and
normalizations write norms in parts.

Why: what comes after a reduction has fewer elements.  These were found by ``onnxrewrite discover --by identities``;
what it found besides, such as ReduceSumSquare for the sum of x·x, is slower where there is much to add up.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.rules import *

norm = AnyNode(op_types=operators("reduce", marks="nonnegative"))
EXTREMA = ("ReduceMax", "ReduceMin")
extremum = AnyNode(op_types=EXTREMA)
root = op.Sqrt(squares := AnyNode(op_types=("ReduceSumSquare",)))


def _require_reduced(m: Match, reduction: AnyNode) -> None:
    """Without axes, it may be the operand itself that is handed on: that is neither squared nor without its sign."""
    idle = m.node(reduction).attributes.get_int("noop_with_empty_axes", 0)
    m.require(not idle, "it may reduce nothing", at=m.operand(m.node(reduction)))


def _function(m: Match, reduction: AnyNode, *op_types: str) -> ir.Node:
    """The function that makes what is reduced, and nothing else; refuses any but these."""
    operand = m.operand(m.node(reduction))
    maker = made_by(operand, *op_types)
    if maker is None or m.dtype(operand) not in FLOATS or not is_read_once(operand):
        m.refuse("what is reduced is made by another operator, no float, or read elsewhere", at=operand)
    m.cover(maker)
    return maker


@rule(
    "norm-of-signed",
    CANONICALIZE,
    norm,
    examples=(
        Rewrites("float[n,8] x; a = Abs(x)  y = ReduceL1<axes=[1]>(a)", to="float[n,8] x; y = ReduceL1<axes=[1]>(x)"),
        Rewrites(
            "float[n,8] x; a = Neg(x)  y = ReduceSumSquare(a, {1})",
            to="float[n,8] x; y = ReduceSumSquare(x, {1})",
            opset=18,
        ),
        Rejects("float[n,8] x; a = Relu(x)  y = ReduceL1<axes=[1]>(a)", because="another operator"),
        Rejects(
            "float[n,8] x; a = Neg(x)  y = ReduceL1<noop_with_empty_axes=1>(a)", because="may reduce nothing", opset=18
        ),
        Rejects("int32[n,8] x; a = Neg(x)  y = ReduceL1<axes=[1]>(a)", because="no float"),
        Rejects("float[n,8] x; a = Abs(x)  s = ReduceL2<axes=[1]>(a)  y = Add(a, s)", because="read elsewhere"),
    ),
)
def norm_of_signed(m: Match, build: Builder) -> Value:
    """‖-x‖ ⟶ ‖x‖, and ‖|x|‖ ⟶ ‖x‖: signs make no difference to a norm, or to a sum of squares."""
    _require_reduced(m, norm)
    return build.again(m.node(norm), m.operand(_function(m, norm, "Neg", "Abs")))[0]


@rule(
    "root-of-squares",
    LOWER,
    root,
    examples=(
        Rewrites(
            "float[n,8] x; s = ReduceSumSquare<keepdims=0>(x, {1})  y = Sqrt(s)",
            to="float[n,8] x; y = ReduceL2<keepdims=0>(x, {1})",
            opset=18,
        ),
        Rejects("float[n,8] x; s = ReduceSumSquare(x, {1})  y = Exp(s)", because="expected ReduceSumSquare", opset=18),
    ),
)
def root_of_squares(m: Match, build: Builder) -> Value:
    """Sqrt(ReduceSumSquare(x)) ⟶ ReduceL2(x)."""
    _require_reduced(m, squares)
    return build.node("ReduceL2", inputs_of(m.node(squares)), m.attrs(squares))[0]


@rule(
    "extremum-of-increasing",
    LOWER,
    extremum,
    needs_speedup=True,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "float[n,8] x; s = Sigmoid(x)  y = ReduceMax<axes=[1]>(s)",
            to="float[n,8] x; m = ReduceMax<axes=[1]>(x)  y = Sigmoid(m)",
        ),
        Rejects("float[n,8] x; s = Sin(x)  y = ReduceMax<axes=[1]>(s)", because="another operator"),
        Rejects("float[n,8] x; s = Sigmoid(x)  m = ReduceMax<axes=[1]>(s)  y = Sub(s, m)", because="read elsewhere"),
    ),
)
def extremum_of_increasing(m: Match, build: Builder) -> Value:
    """Largest f(x) ⟶ f(largest x), and likewise the least, of an f that grows."""
    maker = _function(m, extremum, *operators("pointwise", marks="increasing"))
    (most,) = build.again(m.node(extremum), m.operand(maker))
    return build.again(maker, most)[0]


@rule(
    "extremum-of-negative",
    LOWER,
    extremum,
    needs_speedup=True,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "float[n,8] x; a = Neg(x)  y = ReduceMax<axes=[1]>(a)",
            to="float[n,8] x; m = ReduceMin<axes=[1]>(x)  y = Neg(m)",
        ),
        Rejects("float[n,8] x; a = Abs(x)  y = ReduceMax<axes=[1]>(a)", because="another operator"),
        Rejects("float[n,8] x; a = Neg(x)  y = ReduceSum<axes=[1]>(a)", because="expected", opset=11),
        Rejects("int32[n,8] x; a = Neg(x)  y = ReduceMax<axes=[1]>(a)", because="no float"),
    ),
)
def extremum_of_negative(m: Match, build: Builder) -> Value:
    """Largest -x ⟶ -(least x), and the other way.  Not so a sum: what cancels is 0, and not -0, whatever the signs."""
    node, maker = m.node(extremum), _function(m, extremum, "Neg")
    (opposite,) = {*EXTREMA} - {node.op_type}
    result: Value = build.Neg(build.node(opposite, [m.operand(maker), *inputs_of(node)[1:]], m.attrs(extremum))[0])
    return result
