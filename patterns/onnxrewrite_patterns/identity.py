"""Nodes that change nothing: their readers read what they read.

Why: every such node is a pass over memory, and hides what lies behind it from other patterns.  What counts as
nothing is strict: dtype and shape provably the same, every element the same to the bit, NaN, infinities and
the sign of zero included.  So ``x + 0.0``, which turns -0.0 into 0.0, goes only where nobody can tell; ``x - 0.0`` and
``x + (-0.0)`` go.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

# -- by definition -------------------------------------------------------------------------------------------

identity = AnyNode(op_types=("Identity",))


@rule(
    "identity",
    CANONICALIZE,
    identity,
    benefit=80,
    examples=(
        Rewrites("i = Identity(x)  y = Relu(i)", to="y = Relu(x)"),
        Rejects("y = Identity(x)", because="gives a graph output its name"),
    ),
)
def drop_identity(m: Match, build: Builder) -> Value:
    """Identity(x) ⟶ x."""
    return m.operand(m.node(identity))


reshape = AnyNode(op_types=(*operators("view repeat"), "CenterCropPad"))


@rule(
    "reshape-to-own-shape",
    CANONICALIZE,
    reshape,
    benefit=80,
    examples=(
        Rewrites("float[n,4] x; r = Reshape(x, {0, 4})  y = Relu(r)", to="float[n,4] x; y = Relu(x)"),
        Rewrites("float[n,4] x; s = Shape(x)  e = Expand(x, s)  y = Relu(e)", to="float[n,4] x; y = Relu(x)"),
        Rewrites("float[n,4] x; f = Flatten<axis=-1>(x)  y = Relu(f)", to="float[n,4] x; y = Relu(x)"),
        Rewrites("float[n,4] x; t = Tile(x, {1, 1})  y = Relu(t)", to="float[n,4] x; y = Relu(x)"),
        Rejects("float[n,4] x; float[m,4] z; s = Shape(z)  r = Reshape(x, s)  y = Relu(r)", because="not shown"),
        Rejects("t = Tile(x, {1, 1})  y = Relu(t)", because="unknown"),
        Rejects("float[n,m,4] x; f = Flatten(x)  y = Relu(f)", because="not shown"),
    ),
)
def reshape_to_own_shape(m: Match, build: Builder) -> Value:
    """Reshape(x, shape of x) ⟶ x, and likewise Flatten, Squeeze, Unsqueeze, Expand and Tile."""
    source = m.operand(m.node(reshape))
    m.require_same_shape(m[reshape], source)
    return source


single = AnyNode(
    op_types=operators(marks="variadic"),
    where=lambda found, _: len(inputs_of(found)) == 1 or "it has several operands",
)


@rule(
    "single-operand",
    CANONICALIZE,
    single,
    benefit=80,
    examples=(
        Rewrites("c = Concat<axis=0>(x)  y = Relu(c)", to="y = Relu(x)"),
        Rewrites("c = Max(x)  y = Relu(c)", to="y = Relu(x)"),
        Rejects("y = Sum(x, z)", because="several operands"),
    ),
)
def single_operand(m: Match, build: Builder) -> Value:
    """Concat(x) ⟶ x, and likewise the Sum, Max, Min or Mean of one operand."""
    return m.operand(m.node(single))


split = AnyNode(op_types=("Split",))


@rule(
    "split-into-one",
    CANONICALIZE,
    split,
    benefit=80,
    allow_shared=True,
    examples=(
        Rewrites("float[4] x; s = Split(x, {4})  y = Relu(s)", to="float[4] x; y = Relu(x)"),
        Rejects("float[4] x; a, b = Split(x, {1, 3})  y = Relu(a)", because="2 outputs"),
    ),
)
def split_into_one(m: Match, build: Builder) -> Value:
    """Split(x) into one ⟶ x."""
    node = m.node(split)
    pieces = len(node.outputs)
    m.require(pieces == 1, f"Split has {pieces} outputs")
    return m.operand(node)


# -- by parameters -------------------------------------------------------------------------------------------

slice_ = AnyNode(op_types=("Slice",))


@rule(
    "slice-of-everything",
    CANONICALIZE,
    slice_,
    benefit=80,
    examples=(
        Rewrites(
            "float[n,4] x; s = Slice(x, {0}, {9223372036854775807}, {0})  y = Relu(s)",
            to="float[n,4] x; y = Relu(x)",
        ),
        Rewrites("float[n,4] x; s = Slice(x, {-4}, {7}, {-1})  y = Relu(s)", to="float[n,4] x; y = Relu(x)"),
        Rejects("float[n,4] x; s = Slice(x, {-1}, {-5}, {1}, {-1})  y = Relu(s)", because="reverses"),
        Rejects("float[n,4] x; s = Slice(x, {0}, {5}, {0})  y = Relu(s)", because="not shown"),
    ),
)
def slice_of_everything(m: Match, build: Builder) -> Value:
    """x[:, 0:] ⟶ x."""
    node = m.node(slice_)
    steps = parameter(m.facts, node, "steps")
    steps = (steps,) if isinstance(steps, int) else steps
    forward = steps is None or (isinstance(steps, tuple) and all(s > 0 for s in steps))
    m.require(forward, "a step is, or may be, negative: that reverses the axis")
    m.require_same_shape(m[slice_], m.operand(node))
    return m.operand(node)


pad = AnyNode(op_types=("Pad",))


@rule(
    "pad-by-nothing",
    CANONICALIZE,
    pad,
    benefit=80,
    examples=(
        Rewrites('p = Pad<mode="reflect">(x, {0, 0, 0, 0})  y = Relu(p)', to="y = Relu(x)"),
        Rewrites("p = Pad<pads=[0,0]>(x)  y = Relu(p)", to="y = Relu(x)", opset=10),
        Rejects("float[4] x; y = Pad(x, {1, -1})", because="the pads are (1, -1)"),
        Rejects("int64[4] p; y = Pad(x, p)", because="the pads are not constant"),
    ),
)
def pad_by_nothing(m: Match, build: Builder) -> Value:
    """Pad(x, zeros) ⟶ x."""
    node = m.node(pad)
    name = "paddings" if "paddings" in node.attributes else "pads"
    pads = parameter(m.facts, node, name)
    m.require(
        isinstance(pads, tuple) and not any(pads),
        f"the pads are {pads!r}" if isinstance(pads, tuple) else "the pads are not constant",
    )
    return m.operand(node)


resize = AnyNode(op_types=("Resize", "Upsample"))


@rule(
    "resize-to-own-size",
    CANONICALIZE,
    resize,
    benefit=80,
    examples=(
        Rewrites(
            "float[n,3,h,w] x; r = Resize(x, , {1.0, 1.0, 1.0, 1.0})  y = Relu(r)",
            to="float[n,3,h,w] x; y = Relu(x)",
        ),
        Rewrites(
            "float[n,3,h,w] x; s = Shape(x)  r = Resize(x, , , s)  y = Relu(r)",
            to="float[n,3,h,w] x; y = Relu(x)",
        ),
        Rejects("float[n,3,h,w] x; y = Resize(x, , {1.0, 1.0, 2.0, 2.0})", because="the scales are"),
        Rejects(
            "float[n,3,h,w] x; float[n,3,k,l] z; s = Shape(z)  y = Resize(x, , , s)",
            because="not shown to be the same",
        ),
        Rejects(
            'float[1,3,4,4] x; y = Resize<coordinate_transformation_mode="tf_crop_and_resize">'
            "(x, {0.0,0.0,0.2,0.2,1.0,1.0,0.8,0.8}, {1.0,1.0,1.0,1.0})",
            because="crops",
        ),
    ),
)
def resize_to_own_size(m: Match, build: Builder) -> Value:
    """Resize(x, scales = 1) ⟶ x."""
    node = m.node(resize)
    crops = parameter(m.facts, node, "coordinate_transformation_mode") == "tf_crop_and_resize"
    m.require(not crops, "it crops a region of interest")
    scales = parameter(m.facts, node, "scales")
    scales = scales if isinstance(scales, tuple) else ()
    if not scales or any(s != 1 for s in scales):
        m.require(not scales, f"the scales are {scales}")
        m.require_same_shape(m[resize], m.operand(node))
    return m.operand(node)


dropout = AnyNode(op_types=("Dropout",))


@rule(
    "dropout-in-inference",
    CANONICALIZE,
    dropout,
    benefit=80,
    allow_shared=True,
    examples=(
        Rewrites("d = Dropout(x, 0.3)  y = Relu(d)", to="y = Relu(x)"),
        Rewrites("d = Dropout<ratio=0.3>(x)  y = Relu(d)", to="y = Relu(x)", opset=10),
        Rewrites(
            "(float x) => (y, z) { d, k = Dropout(x)  y = Relu(d)  z = Not(k) }",
            to="(float x) => (y, z) { d, k = Dropout(x)  y = Relu(x)  z = Not(k) }",
        ),
        Rejects("(float[n] x) => (z) { d, k = Dropout(x)  z = Relu(k) }", because="this is the mask", opset=9),
        Rejects("y = Dropout(x, 0.3, bool 1)", because="training"),
        Rejects("bool t; y = Dropout(x, 0.3, t)", because="training"),
    ),
)
def dropout_in_inference(m: Match, build: Builder) -> Value:
    """Dropout(x) in inference ⟶ x."""
    node = m.node(dropout)
    m.require(m[dropout].index() == 0, "this is the mask")
    m.require(m.facts.is_deterministic(node), "it is in training mode, or may be", at=m[dropout])
    return m.operand(node)


# -- by the other operand ------------------------------------------------------------------------------------

_Test = Callable[[np.ndarray], bool]


def _is_one(c: np.ndarray) -> bool:
    return bool((c == 1).all())


def _is_zero(c: np.ndarray) -> bool:
    """Zero, and minus zero for floats: the one that leaves both zeros alone."""
    is_integer = c.dtype.kind in "iu"
    return bool((c == 0).all()) and (is_integer or bool(np.signbit(c.astype(np.float64)).all()))


def _is_plus_zero(c: np.ndarray) -> bool:
    return bool((c == 0).all()) and (c.dtype.kind in "iu" or not np.signbit(c.astype(np.float64)).any())


def _is_all_bits(c: np.ndarray) -> bool:
    return bool((~c == 0).all()) if c.dtype.kind in "iu" else False


_NEUTRAL: dict[str, tuple[str, _Test]] = {
    "-0": ("the constant is not -0.0, for adding 0.0 turns -0.0 into 0.0", _is_zero),
    "0": ("the constant is not 0", _is_plus_zero),
    "1": ("the constant is not 1", _is_one),
    "true": ("the constant is not true", lambda c: bool(c.all())),
    "false": ("the constant is not false", lambda c: not c.any()),
    "ones": ("the constant is not all ones", _is_all_bits),
}
"""Neutral element to the reason given if the constant operand is not that, and the test of the operand."""


def split_operands(node: ir.Node, facts: Facts) -> tuple[Value, Value] | None:
    """The operand of a binary operator that could be kept, and the constant that could be neutral."""
    if len(inputs_of(node)) != 2:
        return None
    a, b = inputs_of(node)
    if facts.tensor(b) is not None:
        return a, b
    return (b, a) if node.op_type in operators(marks="commutative") and facts.tensor(a) is not None else None


def changes_nothing(op_type: str, constant: Array | None) -> bool | str:
    """True, or the reason why not: the constant is the neutral element of a binary operator."""
    reason, test = _NEUTRAL[TRAITS[op_type].neutral]
    return (constant is not None and constant.size > 0 and test(constant)) or reason


def is_neutral(node: ir.Node, facts: Facts) -> bool | str:
    """True, or the reason why not: one operand is constant and changes nothing."""
    operands = split_operands(node, facts)
    if operands is None:
        return "no operand that could be neutral is constant"
    return changes_nothing(node.op_type, facts.constant(operands[1]))


neutral = AnyNode(op_types=operators(marks="neutral"), where=is_neutral)


@rule(
    "neutral-operand",
    CANONICALIZE,
    neutral,
    benefit=80,
    examples=(
        Rewrites("m = Mul(1.0, x)  y = Relu(m)", to="y = Relu(x)"),
        Rewrites("float[n,4] x; m = Div(x, {1.0})  y = Relu(m)", to="float[n,4] x; y = Relu(x)"),
        Rewrites("p = Pow(x, 1.0)  y = Relu(p)", to="y = Relu(x)"),
        Rewrites("s = Sub(x, 0.0)  y = Relu(s)", to="y = Relu(x)"),
        Rewrites("int64 x; s = Add(0, x)  y = Neg(s)", to="int64 x; y = Neg(x)"),
        Rewrites("bool x; s = And(x, true)  y = Not(s)", to="bool x; y = Not(x)"),
        Rejects("y = Add(x, 0.0)", because="turns -0.0 into 0.0"),
        Rejects("double x; y = Mul(x, 1.000009)", because="is not 1"),
        Rejects("float[n] x; y = Mul(x, float[1,1] {1.0})", because="not shown to be the same"),
        Rejects("y = Div(1.0, x)", because="constant"),
        Rejects("float c; y = Mul(x, c)", because="no operand that could be neutral is constant"),
    ),
)
def neutral_operand(m: Match, build: Builder) -> Value:
    """x·1 ⟶ x, and likewise x/1, x¹, x-0, x+(-0), x∧true, x∨false, x⊕false."""
    operands = split_operands(m.node(neutral), m.facts)
    assert operands is not None
    kept, other = operands
    if m.facts.rank(other):
        m.require_same_shape(m[neutral], kept)
    return kept


ONE_ZERO = frozenset(operators("linear attention softmax shape", but="Det Einsum RotaryEmbedding"))
"""Readers to which both zeros are one: a sum of products begins with 0.0."""

_KINDS = "view permute select repeat gather join pad reduce pool cumulate normalize pointwise broadcast"
KEEPS_ZEROS = frozenset((*operators(_KINDS, but="tiny"), "RotaryEmbedding"))
"""Readers whose results differ in the sign of zeros at most where those of their operands do."""

_MOST_BELOW = 64
"""Of so many readers not all are looked at."""


def _keeps_zeros(node: ir.Node) -> bool:
    is_text = node.attributes.get_int("to", 0) == ir.DataType.STRING
    return node.op_type in KEEPS_ZEROS and not node.domain and not is_text


def _adds_zero(node: ir.Node, facts: Facts) -> bool | str:
    """True, or the reason why not: one operand is constant and 0.0."""
    operands = split_operands(node, facts)
    constant = facts.constant(operands[1]) if operands is not None else None
    return (constant is not None and constant.size > 0 and _is_plus_zero(constant)) or "the constant is not 0"


added = AnyNode(op_types=("Add",), where=_adds_zero)


@rule(
    "plus-zero",
    CANONICALIZE,
    added,
    benefit=80,
    examples=(
        Rewrites("q = Add(x, 0.0)  y = MatMul(q, w)", to="y = MatMul(x, w)"),
        Rewrites(
            "float[b,s,4] x; q = Mul(x, 0.5)  p = Add(q, {0.0})  t = Transpose<perm=[0,2,1]>(p)  y = MatMul(w, t)",
            to="float[b,s,4] x; q = Mul(x, 0.5)  t = Transpose<perm=[0,2,1]>(q)  y = MatMul(w, t)",
        ),
        Rewrites("z = Add(0.0, x)  s = Add(w, z)  y = Softmax(s)", to="s = Add(w, x)  y = Softmax(s)"),
        Rejects("q = Add(x, 0.0)  y = Reciprocal(q)", because="Reciprocal may tell 0.0 from -0.0"),
        Rejects("q = Add(x, 0.0)  y = Transpose(q)", because="a graph output"),
        Rejects("float[n] x; q = Add(x, float[1,1] {0.0})  y = Exp(q)", because="not shown to be the same"),
    ),
)
def plus_zero(m: Match, build: Builder) -> Value:
    """Adding 0.0, which makes 0.0 of -0.0, where no reader can tell these apart: x + 0.0 ⟶ x."""
    operands = split_operands(m.node(added), m.facts)
    assert operands is not None
    kept, zero = operands
    if m.facts.rank(zero):
        m.require_same_shape(m.anchor, kept)
    below = list(islice(readers(m.anchor, through=_keeps_zeros), _MOST_BELOW))
    m.require(len(below) < _MOST_BELOW, "too much is computed of it")
    teller = next((n for n in below if not _keeps_zeros(n) and (n.domain or n.op_type not in ONE_ZERO)), None)
    m.require(teller is None, f"{teller and teller.op_type} may tell 0.0 from -0.0", at=m.anchor)
    passing = [m.node(added), *filter(_keeps_zeros, below)]
    m.require(not any(leaks(passing, below)), "a graph output may be -0.0 then")
    return kept
