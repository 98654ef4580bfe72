"""Linear layers with what stands around them in ONNX Runtime's own operators: FusedMatMul, FusedGemm, FusedConv.

FusedMatMul reads its operands transposed and scales its result; FusedGemm and FusedConv apply an activation function
to what they have just computed, and FusedConv adds another tensor before that; MatMulNBits has a bias.

Why: transposing, scaling, adding and activating are a pass over memory each.  ONNX Runtime fuses some of it by itself
when it opens a model, and on some processors lays convolutions out anew, so whether it pays is measured at each place.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.31): which functions there are,
that FusedConv does not broadcast what it adds; that FusedMatMul takes batches in the middle only of equal ranks, and
that its result is whatever lies in memory where the sum is over nothing.
"""

from __future__ import annotations

import math

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.linear_layers import STEPS, require_unquantized
from onnxrewrite_patterns.transpose_frames import Perm, compose

# -- MatMul ----------------------------------------------------------------------------------------------------


def products(left: Term, right: Term) -> tuple[Call, Call]:
    """A product of matrices, as MatMul and as FusedMatMul."""
    return op.MatMul(left, right), microsoft.FusedMatMul(left, right)


a, b, perm = Var("a", dtype=FLOATS), Var("b", dtype=FLOATS), Attr[Perm]("perm", default=())
turned_a = any_of(*products(op.Transpose(a, perm=perm), b))
turned_b = any_of(*products(a, op.Transpose(b, perm=perm)))
turned = any_of(turned_a, turned_b)


def reading(rank: int, swaps: int, batches: int) -> Perm:
    """The permutation of an operand in FusedMatMul: the first axis goes behind the batches, then the last two swap."""
    axes = (*range(1, rank - 1), 0, rank - 1) if batches and rank > 2 else tuple(range(rank))
    return (*axes[:-2], axes[-1], axes[-2]) if swaps else axes


_TO_SOFTMAX = frozenset((*operators("view broadcast", but="comparison logic bits"), "Cast"))


def require_free(m: Match, build: Builder, call: Call) -> None:
    """Leave what has kernels of its own, and the scores of an attention that the lower stage has yet to find."""
    require_unquantized(m, *inputs_of(m.node(call)), m[a], m[b])
    below = readers(m[call], through=_TO_SOFTMAX, within=STEPS)
    is_score = build.opset >= 23 and any(n.op_type == "Softmax" for n in below)
    m.require(not is_score, "these are the scores of an attention", at=call)


@rule(
    "transpose-into-fused-matmul",
    LOWER,
    turned,
    assumes=(Assumption.NOT_EMPTY,),
    allow_shared=True,
    examples=(
        Rewrites(
            "float[2,m,k] a; float[2,n,k] b; t = Transpose<perm=[0,2,1]>(b)  y = MatMul(a, t)",
            to="float[2,m,k] a; float[2,n,k] b; y = com.microsoft.FusedMatMul<transB=1>(a, b)",
        ),
        Rewrites(
            "float[2,k,m] a; float[k,n] b; t = Transpose<perm=[0,2,1]>(a)  y = MatMul(t, b)",
            to="float[2,k,m] a; float[k,n] b; y = com.microsoft.FusedMatMul<transA=1>(a, b)",
        ),
        Rewrites(
            "float[k,2,m] a; float[2,k,n] b; t = Transpose<perm=[1,2,0]>(a)  y = MatMul(t, b)",
            to="float[k,2,m] a; float[2,k,n] b; y = com.microsoft.FusedMatMul<transA=1, transBatchA=1>(a, b)",
        ),
        Rewrites(
            "float[m,2,3,k] a; float[k,2,3,n] b; t = Transpose<perm=[1,2,3,0]>(a)"
            "  y = com.microsoft.FusedMatMul<alpha=3.0, transA=1, transBatchB=1>(t, b)",
            to="float[m,2,3,k] a; float[k,2,3,n] b;"
            "y = com.microsoft.FusedMatMul<alpha=3.0, transBatchA=1, transBatchB=1>(a, b)",
        ),
        Rewrites(
            "float[m,k] a; float[k,n] b; t = Transpose(a)  y = com.microsoft.FusedMatMul<alpha=3.0, transA=1>(t, b)",
            to="float[m,k] a; float[k,n] b; y = com.microsoft.FusedMatMul<alpha=3.0>(a, b)",
        ),
        Rejects("float[m,k] a; float[n,k] b; t = Transpose(b)  y = MatMul(a, t)", because="Gemm transposes"),
        Rejects("float[2,k,m] a; float[k] b; t = Transpose<perm=[0,2,1]>(a)  y = MatMul(t, b)", because="a vector"),
        Rejects(
            "float[k,m,3,2] a; float[2,3,k,n] b; t = Transpose(a)  y = MatMul(t, b)", because="moves more than the last"
        ),
        Rejects(
            "float[k,2,m] a; float[k,n] b; t = Transpose<perm=[1,2,0]>(a)  y = MatMul(t, b)", because="differ in rank"
        ),
        Rejects(
            "float[2,m,k] a; float[2,n,k] b; t = Transpose<perm=[0,2,1]>(b)  s = MatMul(a, t)  y = Softmax(s)",
            because="the scores of an attention",
            opset=23,
        ),
        Rejects(
            "float16[2,m,k] a; float16[2,n,k] b; t = Transpose<perm=[0,2,1]>(b)  y = MatMul(a, t)",
            because="no CPU kernel",
        ),
    ),
)
def transpose_into_fused_matmul(m: Match, build: Builder) -> Value:
    """MatMul(Transpose(a), b) ⟶ com.microsoft.FusedMatMul(a, b, transA=1), and likewise for b and whole batches."""
    which = m.alternative(turned)
    side, name = (a, "A") if which is turned_a else (b, "B")
    call = m.call(turned_a if which is turned_a else turned_b)
    ranks = m.rank(a), m.rank(b)
    m.require(None not in ranks and min(r or 0 for r in ranks) >= 2, "one of them may be a vector", at=side)
    m.require(ranks != (2, 2) or call.domain, "Gemm transposes matrices, too")
    require_free(m, build, call)
    attributes, rank = m.attrs(call), m.rank(side) or 0
    own = (attributes.get(f"trans{name}", 0), attributes.get(f"transBatch{name}", 0))
    order = m[perm] or tuple(reversed(range(rank)))
    m.require(len(order) == rank, "the Transpose has another number of axes", at=side)
    wanted = compose(order, reading(rank, *own))
    found = [f for f in ((0, 0), (1, 0), (0, 1), (1, 1)) if reading(rank, *f) == wanted]
    m.require(found, "the Transpose moves more than the last axes, or the first one behind the batches", at=side)
    swaps, batches = found[0]
    m.require(not batches or ranks[0] == ranks[1], "a and b differ in rank", at=side)
    attributes |= {f"trans{name}": swaps, f"transBatch{name}": batches}
    given = {key: value for key, value in attributes.items() if value or key == "alpha"}
    return build.microsoft.node("FusedMatMul", [m[a], m[b]], given)[0]


a_scale, b_scale, scale = Scalar("scale of a"), Scalar("scale of b"), Scalar("scale")
scaled_pairs = ((a * a_scale, b * b_scale), (a * a_scale, b), (a, b * b_scale))
of_scaled = any_of(*(call for pair in scaled_pairs for call in products(*pair)))
scaled_product = any_of(*products(a, b))


def rescaled(m: Match, build: Builder, call: Call, factor: float) -> Value:
    """The product of a and b times a factor, beside the one that it has."""
    require_free(m, build, call)
    attributes = m.attrs(call)
    alpha = attributes.pop("alpha", 1.0) * factor
    fits = 2.0**-126 <= abs(alpha) < 2.0**128
    m.require(fits, f"a scale of {alpha:g} is not a normal number", at=call)
    return build.microsoft.node("FusedMatMul", [m[a], m[b]], {"alpha": alpha, **attributes})[0]


@rule(
    "scale-into-fused-matmul",
    LOWER,
    of_scaled,
    assumes=(Assumption.NOT_EMPTY,),
    allow_shared=True,
    examples=(
        Rewrites(
            "float[2,m,k] a; float[2,k,n] b; s = Mul(a, 3.0)  t = Div(b, 0.5)  y = MatMul(s, t)",
            to="float[2,m,k] a; float[2,k,n] b; y = com.microsoft.FusedMatMul<alpha=6.0>(a, b)",
        ),
        Rewrites(
            "float[2,m,k] a; float[2,n,k] b; s = Mul(a, 3.0)  y = com.microsoft.FusedMatMul<alpha=0.5, transB=1>(s, b)",
            to="float[2,m,k] a; float[2,n,k] b; y = com.microsoft.FusedMatMul<alpha=1.5, transB=1>(a, b)",
        ),
        Rejects("float[2,m,k] a; float[2,k,n] b; y = MatMul(a, b)", because="expected a product"),
        Rejects(
            "float[m,k] a; float[1,k,n] b; s = Mul(a, float[1,1,1] {3.0})  y = MatMul(s, b)", because="raises the rank"
        ),
        Rejects("float[2,m,k] a; float[2,k,n] b; s = Div(3.0, a)  y = MatMul(s, b)", because="expected"),
        Rejects("float[2,m,k] a; float[2,k,n] b; s = Mul(a, 0.0)  y = MatMul(s, b)", because="not a normal number"),
    ),
)
def scale_into_fused_matmul(m: Match, build: Builder) -> Value:
    """MatMul(α·a, β·b) ⟶ com.microsoft.FusedMatMul(a, b, alpha=α·β)."""
    call = m.call(of_scaled)
    before = [m.facts.rank(v) for v in inputs_of(m.node(call))]
    m.require(before == [m.rank(a), m.rank(b)], "the scale raises the rank of what it scales", at=call)
    return rescaled(m, build, call, math.prod(m[s] for s in (a_scale, b_scale) if s in m))


@rule(
    "scale-of-matmul",
    LOWER,
    scaled_product * scale,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "float[2,m,k] a; float[2,k,n] b; p = MatMul(a, b)  y = Mul(3.0, p)",
            to="float[2,m,k] a; float[2,k,n] b; y = com.microsoft.FusedMatMul<alpha=3.0>(a, b)",
        ),
        Rewrites(
            "float[2,m,k] a; float[2,n,k] b; p = com.microsoft.FusedMatMul<transB=1>(a, b)  y = Mul(p, 3.0)",
            to="float[2,m,k] a; float[2,n,k] b; y = com.microsoft.FusedMatMul<alpha=3.0, transB=1>(a, b)",
        ),
        Rejects(
            "float[2,m,k] a; float[2,k,n] b; p = MatMul(a, b)  y = Mul(p, 3.0)  z = Relu(p)", because="also used by"
        ),
        Rejects(
            "float[2,m,k] a; float[2,k,n] b; p = MatMul(a, b)  y = Mul(p, float[2,1,1] {3.0, 3.0})",
            because="expected a constant with one element for scale",
        ),
        Rejects("int32[m,k] a; int32[k,n] b; p = MatMul(a, b)  y = Mul(p, 3)", because="has dtype int32"),
    ),
)
def scale_of_matmul(m: Match, build: Builder) -> Value:
    """α·MatMul(a, b) ⟶ com.microsoft.FusedMatMul(a, b, alpha=α)."""
    return rescaled(m, build, m.call(scaled_product), m[scale])


# -- Gemm ------------------------------------------------------------------------------------------------------

c = Var("c", default=None)
gemm = op.Gemm(a, b, c)
of_gemm = op[operators(marks="FusedGemm")](gemm)


@rule(
    "gemm-activation",
    LOWER,
    of_gemm,
    examples=(
        Rewrites(
            "g = Gemm<transB=1>(a, b, c)  y = Relu(g)",
            to='y = com.microsoft.FusedGemm<transB=1, activation="Relu">(a, b, c)',
        ),
        Rewrites(
            "g = Gemm<alpha=0.5>(a, b)  y = LeakyRelu(g)",
            to='y = com.microsoft.FusedGemm<alpha=0.5, activation="LeakyRelu", activation_alpha=0.01>(a, b)',
        ),
        Rewrites(
            "g = Gemm(a, b)  y = HardSigmoid<beta=0.25>(g)",
            to="y = com.microsoft.FusedGemm"
            '<activation="HardSigmoid", activation_alpha=0.2, activation_beta=0.25>(a, b)',
        ),
        Rejects("g = Gemm(a, b)  y = Relu(g)  z = Abs(g)", because="also used by Abs"),
        Rejects("g = Gemm(a, b)  y = Erf(g)", because="expected"),
        Rejects("double a; double b; g = Gemm(a, b)  y = Relu(g)", because="no CPU kernel"),
    ),
)
def gemm_activation(m: Match, build: Builder) -> Value:
    """Relu(Gemm(a, b, c)) ⟶ com.microsoft.FusedGemm(a, b, c, activation="Relu"), and other functions."""
    require_unquantized(m, m[a], m[b])
    function = m.node(of_gemm).op_type
    own = {f"activation_{name}": m.attr(of_gemm, name) for name in m.attribute_names(of_gemm)}
    attributes = m.attrs(gemm) | {"activation": function} | own
    return build.microsoft.node("FusedGemm", [m[a], m[b], m.value(c)], attributes)[0]


# -- Conv ------------------------------------------------------------------------------------------------------

x, w, bias = Var("x"), Var("w"), Var("b", default=None)
z = Var("z")
conv = op.Conv(x, w, bias)
added = op.Add(conv, z)

IMAGE = "float[n,2,5,5] x; float[3,2,3,3] w; "


@rule(
    "conv-sum",
    LOWER,
    added,
    examples=(
        Rewrites(
            IMAGE + "float[3] b; float[n,3,3,3] z; c = Conv(x, w, b)  y = Add(z, c)",
            to=IMAGE + "float[3] b; float[n,3,3,3] z; y = com.microsoft.FusedConv(x, w, b, z)",
        ),
        Rejects(
            IMAGE + "float[1,3,1,1] z; c = Conv(x, w)  y = Add(c, z)",
            because="not shown to have the shape",
        ),
    ),
)
def conv_sum(m: Match, build: Builder) -> Value:
    """Conv(x, w, b) + z ⟶ com.microsoft.FusedConv(x, w, b, z)."""
    require_unquantized(m, m[x], m[w])
    m.require(same_shape(m.shape(z), m.shape(conv)), "what is added is not shown to have the shape of the result", at=z)
    return build.microsoft.node("FusedConv", [m[x], m[w], m.value(bias), m[z]], m.attrs(conv))[0]


LARGEST = float(np.finfo(np.float32).max)  # what a Clip without a bound has for one: of infinity, it makes this
low, high = Attr[float]("low", default=-LARGEST), Attr[float]("high", default=LARGEST)
fused = microsoft.FusedConv(x, w, bias, (summand := Var("z", default=None)))
linear = any_of(conv, fused)
_OF_CONV = operators(marks="FusedConv")
of_conv, clipped = op[_OF_CONV](linear), op.Clip(linear, min=low, max=high)
activation = any_of(of_conv, clipped)


@rule(
    "conv-activation",
    LOWER,
    activation,
    examples=(
        Rewrites(
            IMAGE + "float[3] b; c = Conv<pads=[1,1,1,1]>(x, w, b)  y = Relu(c)",
            to=IMAGE + 'float[3] b; y = com.microsoft.FusedConv<pads=[1,1,1,1], activation="Relu">(x, w, b)',
        ),
        Rewrites(
            IMAGE + "float[n,3,3,3] z; c = com.microsoft.FusedConv(x, w, , z)  y = LeakyRelu<alpha=0.5>(c)",
            to=IMAGE + "float[n,3,3,3] z;"
            'y = com.microsoft.FusedConv<activation="LeakyRelu", activation_params=[0.5]>(x, w, , z)',
        ),
        Rewrites(
            IMAGE + "c = Conv(x, w)  y = Clip(c, 0.0, 6.0)",
            to=IMAGE + 'y = com.microsoft.FusedConv<activation="Clip", activation_params=[0.0, 6.0]>(x, w)',
        ),
        Rejects(IMAGE + "c = Conv(x, w)  y = Clip(c, low)", because="expected a constant for min"),
        Rejects(IMAGE + "c = Conv(x, w)  y = Relu(c)  u = Abs(c)", because="also used by Abs"),
        Rejects(
            IMAGE + 'c = com.microsoft.FusedConv<activation="Relu">(x, w)  y = Tanh(c)',
            because="there is a function already",
        ),
        Rejects("float16[n,2,5,5] x; float16[3,2,3,3] w; c = Conv(x, w)  y = Relu(c)", because="no CPU kernel"),
        Rejects(
            "float[n,2,5,5] x; w = DequantizeLinear(int8[1,2,1,1] {1, 2}, 0.5, int8 0)  c = Conv(x, w)  y = Relu(c)",
            because="quantized operands",
        ),
    ),
)
def conv_activation(m: Match, build: Builder) -> Value:
    """Relu(Conv(x, w, b)) ⟶ com.microsoft.FusedConv(x, w, b, activation="Relu"), and other functions."""
    call = m.call(linear)
    attributes = m.attrs(call)
    require_unquantized(m, m[x], m[w])
    m.require("activation" not in attributes, "there is a function already", at=call)
    if clipped in m:
        function: str = "Clip"
        own: tuple[float, ...] = (m[low], m[high])
    else:
        function = m.node(of_conv).op_type
        own = tuple(m.attr(of_conv, name) for name in m.attribute_names(of_conv))
    attributes |= {"activation": function} | ({"activation_params": own} if own else {})
    inputs = [m[x], m[w], m.value(bias), m.value(summand) if fused in m else None]
    return build.microsoft.node("FusedConv", inputs, attributes)[0]


# -- MatMulNBits -----------------------------------------------------------------------------------------------

packed, scales, zeros, order = Var("B"), Var("scales"), Var("zero points", default=None), Var("order", default=None)
quantized = microsoft.MatMulNBits(x, packed, scales, zeros, order)
addend = Var("bias", rank=1)


@rule(
    "matmulnbits-bias",
    LOWER,
    op.Add(quantized, addend),
    examples=(
        Rewrites(
            "float[m,32] x; uint8[2,1,16] w; float[2] s; float[2] b;"
            "p = com.microsoft.MatMulNBits<K=32, N=2, bits=4, block_size=32>(x, w, s)  y = Add(b, p)",
            to="float[m,32] x; uint8[2,1,16] w; float[2] s; float[2] b;"
            "y = com.microsoft.MatMulNBits<K=32, N=2, bits=4, block_size=32>(x, w, s, , , b)",
        ),
        Rejects(
            "float[m,32] x; uint8[2,1,16] w; float[2] s; float[1] b;"
            "p = com.microsoft.MatMulNBits<K=32, N=2, bits=4, block_size=32>(x, w, s)  y = Add(b, p)",
            because="not one number by channel",
        ),
        Rejects(
            "float[m,32] x; uint8[2,1,16] w; float[2] s; float[2] z; b = Relu(z)"
            "p = com.microsoft.MatMulNBits<K=32, N=2, bits=4, block_size=32>(x, w, s)  y = Add(b, p)",
            because="may not know its shape",
        ),
    ),
)
def matmulnbits_bias(m: Match, build: Builder) -> Value:
    """MatMulNBits(x, w, ...) + b ⟶ MatMulNBits(x, w, ..., b)."""
    m.require(m.shape(addend) == (m.attr(quantized, "N"),), "what is added is not one number by channel", at=addend)
    told = m.facts.tensor(m[addend]) is not None or m[addend].is_graph_input()
    m.require(told, "ONNX Runtime may not know its shape, which it asks for", at=addend)
    inputs = [m[x], m[packed], m[scales], m.value(zeros), m.value(order), m[addend]]
    return build.microsoft.node("MatMulNBits", inputs, m.attrs(quantized))[0]
