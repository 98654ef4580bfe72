"""Redundant Transposes: pairs become one, identities vanish, and the others move until they meet.

Why: a Transpose is a pass over memory that computes nothing, and it hides what is on its other side from all
other rules.  How they move, and why that ends: ``transpose_region.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_heads import HEADS
from onnxrewrite_patterns.transpose_frames import Perm, compose, inverse, is_identity, layout_of, price, reshaped
from onnxrewrite_patterns.transpose_operators import frame_of
from onnxrewrite_patterns.transpose_region import FEW, MANY, Region, feeds_heads, is_of_heads
from onnxrewrite_patterns.transpose_sinking import Turning

x = Var("x")
perm, next_perm = Attr[Perm]("perm", default=()), Attr[Perm]("next_perm", default=())
turn = op.Transpose(x, perm=perm)
pair = op.Transpose(turn, perm=next_perm)


def _reversal(m: Match, given: Perm, rank: int | None) -> Perm:
    """The permutation of a Transpose, which reverses the axes where it has none."""
    m.require(given or rank is not None, "the rank is unknown, and the Transpose has no perm")
    return given or tuple(reversed(range(rank or 0)))


@rule(
    "transpose-transpose",
    CANONICALIZE,
    pair,
    benefit=30,
    allow_shared=True,
    examples=(
        Rewrites(
            "t = Transpose<perm=[0,2,3,1]>(x)  r = Relu(t)  u = Transpose<perm=[0,3,1,2]>(t)  y = Conv(u, w)",
            to="t = Transpose<perm=[0,2,3,1]>(x)  r = Relu(t)  y = Conv(x, w)",
        ),
        Rewrites(
            "t = Transpose<perm=[1,2,0]>(x)  y = Transpose<perm=[1,2,0]>(t)",
            to="y = Transpose<perm=[2,0,1]>(x)",
        ),
        Rewrites("t = Transpose(x)  u = Transpose(t)  y = Relu(u)", to="y = Relu(x)"),
        Rewrites("t = Transpose(x)  y = Transpose(t)", to="y = Identity(x)"),
        Rejects(
            "t = Transpose<perm=[1,0]>(x)  r = Relu(t)  y = Transpose<perm=[1,0]>(r)",
            because="expected Transpose, found",
        ),
    ),
)
def transpose_transpose(m: Match, build: Builder) -> Value:
    """Transpose(Transpose(x, p), q) ⟶ Transpose(x, p∘q), or x where that moves nothing."""
    if m[perm] == m[next_perm] == ():
        return m[x]
    rank = len(m[perm] or m[next_perm])
    both = compose(_reversal(m, m[perm], rank), _reversal(m, m[next_perm], rank))
    return m[x] if is_identity(both) else build.Transpose(m[x], perm=both)


@rule(
    "transpose-identity",
    CANONICALIZE,
    turn,
    benefit=40,
    examples=(
        Rewrites("t = Transpose<perm=[0,1,2]>(x)  y = Relu(t)", to="y = Relu(x)"),
        Rewrites("float[3] x; t = Transpose(x)  y = Relu(t)", to="float[3] x; y = Relu(x)"),
        Rewrites("float[1,1,c] x; t = Transpose<perm=[1,0,2]>(x)  y = Relu(t)", to="float[1,1,c] x; y = Relu(x)"),
        Rejects("float[n,1,c] x; t = Transpose<perm=[1,0,2]>(x)  y = Relu(t)", because="not known to have size 1"),
        Rejects("t = Transpose(x)  y = Relu(t)", because="the rank is unknown"),
    ),
)
def transpose_identity(m: Match, build: Builder) -> Value:
    """Transpose(x) that moves nothing ⟶ x."""
    own = _reversal(m, m[perm], m.rank(x))
    m.require(price(m.shape(x), own) == 0, "it moves an axis that is not known to have size 1")
    return m[x]


def _tokens_first(node: ir.Node, made: Value, read: Value, own: Perm) -> list[tuple[Value, Perm, int]]:
    """The value on the other side of a Transpose beside Attention that does more than swap heads and tokens, the layout
    of it that leaves no more to be done, and how far to look."""
    if len(own) != len(HEADS) or own == HEADS or not is_of_heads(node):
        return []
    if feeds_heads(made):
        return [(read, compose(own, HEADS), MANY)]
    return [(made, compose(inverse(own), HEADS), MANY)]


def _is_fixed(value: Value, graph: ir.Graph) -> bool:
    """True if a value is needed as it is: as a graph output, or by a node of another graph."""
    return value.is_graph_output() or any(n.graph is not graph for n in readers(value, within=1))


def _for(stops: dict[str, None], kept: dict[str, None]) -> str:
    needs = f", for {' and '.join(stops)} must have their operands as they are" if stops else ""
    return f"{needs}{', and' if stops else ', for'} {' and '.join(kept)} must stay" if kept else needs


@rule(
    "transpose-motion",
    CANONICALIZE,
    turn,
    assumes=(Assumption.FINITE,),
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,8,h,w] x; t = Transpose<perm=[0,2,3,1]>(x)  a = Add(t, {1., 2., 3., 4., 5., 6., 7., 8.})"
            "  r = Relu(a)  y = Transpose<perm=[0,3,1,2]>(r)",
            to="float[n,8,h,w] x; a = Add(x, float[8,1,1] {1., 2., 3., 4., 5., 6., 7., 8.})  y = Relu(a)",
        ),
        Rewrites(
            "float[n,8,h,w] x; t = Transpose<perm=[0,2,3,1]>(x)  y = ReduceMean<axes=[1,2], keepdims=0>(t)",
            to="float[n,8,h,w] x; y = ReduceMean<axes=[2,3], keepdims=0>(x)",
        ),
        Rewrites(
            "float[n,c,h,w] a; float[n,c,h,w] b; s = Transpose<perm=[0,2,3,1]>(a)"
            "  t = Transpose<perm=[0,2,3,1]>(b)  y = Concat<axis=3>(s, t)",
            to="float[n,c,h,w] a; float[n,c,h,w] b; u = Concat<axis=1>(a, b)  y = Transpose<perm=[0,2,3,1]>(u)",
        ),
        Rewrites(
            "float[n,h,w,c] x; p = Pad(x, {0, 1, 1, 0, 0, 1, 1, 0})  t = Transpose<perm=[0,3,1,2]>(p)  y = Conv(t, k)",
            to="float[n,h,w,c] x; t = Transpose<perm=[0,3,1,2]>(x)  p = Pad(t, {0, 0, 1, 1, 0, 0, 1, 1})"
            "  y = Conv(p, k)",
        ),
        Rewrites(
            "float[n,2] x; t = Transpose(x)  r = Relu(t)  y = Gemm<transA=1>(r, float[2,1] {1., 2.})",
            to="float[n,2] x; r = Relu(x)  y = Gemm<transA=0>(r, float[2,1] {1., 2.})",
        ),
        Rewrites(
            "float[1,4,3] x; c = Concat<axis=2>(float[1,4,1] {1., 2., 3., 4.}, x)  y = Transpose<perm=[0,2,1]>(c)",
            to="float[1,4,3] x; t = Transpose<perm=[0,2,1]>(x)  y = Concat<axis=1>(float[1,1,4] {1., 2., 3., 4.}, t)",
        ),
        Rewrites(
            "float[n,4,3] x; s = Shape<start=0, end=1>(x)  k = Concat<axis=0>(s, {4, 1})"
            "  e = Expand(float[1,4,1] {1., 2., 3., 4.}, k)  c = Concat<axis=2>(e, x)"
            "  y = Transpose<perm=[0,2,1]>(c)",
            to="float[n,4,3] x; t = Transpose<perm=[0,2,1]>(x)  s = Shape<start=0, end=1>(x)"
            "  k = Concat<axis=0>(s, {4, 1})  j = Gather<axis=0>(k, {0, 2, 1})"
            "  e = Expand(float[1,1,4] {1., 2., 3., 4.}, j)  y = Concat<axis=1>(e, t)",
        ),
        Rewrites(
            "float[b,s,h,d] x; t = Transpose<perm=[0,2,1,3]>(x)  s = Mul(t, 0.125)"
            "  u = Transpose<perm=[0,1,3,2]>(s)  y = MatMul(q, u)",
            to="float[b,s,h,d] x; s = Mul(x, 0.125)  u = Transpose<perm=[0,2,3,1]>(s)  y = MatMul(q, u)",
        ),
        Rewrites(
            "float[s,b,24] x; float[24,24] w; t = Transpose<perm=[1,0,2]>(x)  p = MatMul(t, w)"
            "  h = Reshape(p, {0, 0, 3, 8})  u = Transpose<perm=[0,2,1,3]>(h)  y = MatMul(q, u)",
            to="float[s,b,24] x; float[24,24] w; p = MatMul(x, w)  h = Reshape(p, {0, 0, 3, 8})"
            "  u = Transpose<perm=[1,2,0,3]>(h)  y = MatMul(q, u)",
        ),
        Rewrites(
            "float[s,b,8] x; float[8] w; t = Transpose<perm=[1,0,2]>(x)  n = LayerNormalization(t, w)  r = Relu(n)"
            "  y = Transpose<perm=[1,0,2]>(r)",
            to="float[s,b,8] x; float[8] w; n = LayerNormalization(x, w)  y = Relu(n)",
        ),
        Rewrites(
            "float[s,b,3,8] x; float[b,s,24] z; t = Transpose<perm=[1,0,2,3]>(x)  r = Reshape(t, {0, 0, 24})"
            "  y = Transpose<perm=[1,0,2]>(r)",
            to="float[s,b,3,8] x; float[b,s,24] z; y = Reshape(x, {0, 0, 24})",
        ),
        Rewrites(
            "float[s,b,24] x; float[b,3,t,8] k; float[b,3,t,8] v; r = Relu(x)  h = Reshape(r, {0, 0, 3, 8})"
            "  q = Transpose<perm=[1,2,0,3]>(h)  y = Attention(q, k, v)",
            to="float[s,b,24] x; float[b,3,t,8] k; float[b,3,t,8] v; t = Transpose<perm=[1,0,2]>(x)  r = Relu(t)"
            "  h = Reshape(r, {0, 0, 3, 8})  q = Transpose<perm=[0,2,1,3]>(h)  y = Attention(q, k, v)",
            opset=23,
        ),
        Rejects(
            "float[1,4,3] x; t = Transpose<perm=[0,2,1]>(x)  y = Concat<axis=1>(float[1,1,4] {1., 2., 3., 4.}, t)",
            because="leaves as many Transposes",
        ),
        Rejects(
            "float[n,c,h,w] x; t = Transpose<perm=[0,2,3,1]>(x)  y = Reshape(t, {0, -1})",
            because="as many Transposes, for Reshape must have",
        ),
        Rejects(
            "float[n,s,3,8] x; p = Slice(x, {0}, {1}, {2})  q = Slice(x, {1}, {2}, {2})  z = Slice(x, {2}, {3}, {2})"
            "  s = Transpose<perm=[1,0,2,3]>(p)  t = Transpose<perm=[1,0,2,3]>(q)"
            "  y = Reshape(s, {0, -1})  w = Reshape(t, {0, -1})",
            because="would move more data",
        ),
        Rejects(
            "float[n,c,h,w] x; t = Transpose<perm=[0,2,3,1]>(x)  r = Relu(t)  u = Transpose<perm=[0,3,1,2]>(r)"
            "  v = Transpose<perm=[0,1,3,2]>(u)  y = Conv(u, k)  z = Conv(v, k)",
            because="become one with others first",
        ),
        Rejects(
            "float[n,c,h,w] x; float[n,h,w,c] z; t = Transpose<perm=[0,2,3,1]>(x)  y = Add(t, z)",
            because="leaves as many Transposes",
        ),
        Rejects(
            "float[b,s,h,d] x; t = Transpose<perm=[0,2,1,3]>(x)  s = Mul(t, 0.125)"
            "  u = Transpose<perm=[0,2,1,3]>(s)  y = MatMul(q, u)",
            because="leaves as many Transposes",
        ),
    ),
)
def transpose_motion(m: Match, build: Builder) -> Sequence[Value]:
    """f(Transpose(x), ...), a region of nodes that do not care about layout ⟶ the same in the other layout.

    Only where fewer Transposes are left, or as many that are better placed: away from convolutions, or where there is
    less to move.
    """
    node, own = m.node(turn), _reversal(m, m[perm], m.rank(x))
    graph, stops, kept, read = node.graph, dict[str, None](), dict[str, None](), node.inputs[0]
    assert graph is not None
    assert read is not None
    for seed, layout, few in ((m[turn], inverse(own), FEW), (read, own, FEW), *_tokens_first(node, m[turn], read, own)):
        region = Region(m.facts, graph, seed, layout)
        nodes = region.cheapest(few)
        stops.update(region.stops)
        kept.update((f"`{v.name}`", None) for v in region.layouts if _is_fixed(v, graph))
        if nodes:
            turning = Turning(region, nodes, build)
            m.require(not any(map(region.is_met, turning.covered())), "Transposes become one with others first")
            replaced = turning.run()
            m.require(replaced and turning.gain(replaced) > 0, "moving it saves nothing after all")
            m.require(not turning.moves_more(replaced), "fewer Transposes would move more data")
            m.widen(turning.covered(), list(replaced))
            return list(replaced.values())
    m.refuse(f"moving it by perm={list(own)} leaves as many Transposes{_for(stops, kept)}")
    raise AssertionError


reduction = AnyNode(op_types=tuple(operators("reduce")))


@rule(
    "reduce-of-transpose",
    CANONICALIZE,
    reduction,
    assumes=(Assumption.FINITE,),
    examples=(
        Rewrites(
            "float[n,c,h,w] x; t = Transpose<perm=[0,2,3,1]>(x)  r = ReduceMean<axes=[1,2], keepdims=0>(t)"
            "  y = Reshape(t, {0, -1})",
            to="float[n,c,h,w] x; t = Transpose<perm=[0,2,3,1]>(x)  r = ReduceMean<axes=[2,3], keepdims=0>(x)"
            "  y = Reshape(t, {0, -1})",
        ),
        Rejects(
            "float[n,c,h,w] x; t = Transpose<perm=[0,2,3,1]>(x)  r = ReduceMax<axes=[1,2]>(t)", because="laid out by it"
        ),
        Rejects(
            "float[n,c,h,w] x; t = Transpose<perm=[3,2,1,0]>(x)  r = ReduceMax<axes=[1,2], keepdims=0>(t)",
            because="laid out by it",
        ),
        Rejects("float[n,c,h,w] x; r = ReduceMax<axes=[1,2], keepdims=0>(x)", because="no Transpose"),
        Rejects(
            "int64[n,c,h,w] x; t = Transpose<perm=[0,2,3,1]>(x)  r = ReduceMean<axes=[1,2], keepdims=0>(t)",
            because="integers",
        ),
    ),
)
def reduce_of_transpose(m: Match, build: Builder) -> Value:
    """Reduce(Transpose(x)) ⟶ Reduce(x) along the axes that these were, where those that are left keep their order.

    Also where others read the Transpose: what is left is one that fewer wait for.
    """
    node = m.node(reduction)
    source = m.operand(node)
    above = m.made_by(source, "Transpose", because="it reads no Transpose")
    m.require(m.dtype(source) in FLOATS, "where a sum of integers runs over, a kernel's result hangs on its order")
    found, frame = permutation(m.facts, above), frame_of(node, m.facts)
    if frame is None or isinstance(found, str):
        m.refuse("it is not known which axes are which")
    order = frame.order(frame.inputs[0], inverse(tuple(found)))
    m.require(is_identity(layout_of(frame.outputs[0], order)), "the result is laid out by it as well")
    return frame.emit(build, [input_of(above), *node.inputs[1:]], order)[0]


@rule(
    "transpose-of-ones",
    LOWER,
    turn,
    examples=(
        Rewrites(
            "float[n,1,1,8] x; t = Transpose<perm=[0,3,1,2]>(x)  y = Conv(t, w)",
            to="float[n,1,1,8] x; t = Reshape(x, {0, 8, 1, 1})  y = Conv(t, w)",
        ),
        Rejects("float[n,1,2,8] x; t = Transpose<perm=[0,3,1,2]>(x)  y = Conv(t, w)", because="it moves data"),
        Rejects("float[n,1,m] x; t = Transpose<perm=[0,2,1]>(x)  y = Relu(t)", because="cannot be written"),
    ),
)
def transpose_of_ones(m: Match, build: Builder) -> Value:
    """Transpose(x) that moves only dimensions of size 1 ⟶ Reshape(x).

    Last of all: until then the Transpose tells the axes apart, for attention in models of sequence length 1.
    """
    target = reshaped(m.shape(x), _reversal(m, m[perm], m.rank(x)))
    m.require(target is not None, "it moves data, or the shape cannot be written down")
    return build.Reshape(m[x], np.array(target, dtype=np.int64))


a, b, c = Var("a"), Var("b"), Var("c", default=None)
turn_a, turn_b = op.Transpose(a, perm=perm), op.Transpose(b, perm=perm)
gemm_a, gemm_b = op.Gemm(turn_a, b, c), op.Gemm(a, turn_b, c)
gemm = any_of(gemm_a, gemm_b)


@rule(
    "transpose-into-gemm",
    CANONICALIZE,
    gemm,
    benefit=20,
    allow_shared=True,
    examples=(
        Rewrites("t = Transpose(a)  y = Gemm(t, b, c)", to="y = Gemm<transA=1>(a, b, c)"),
        Rewrites(
            "t = Transpose<perm=[1,0]>(b)  y = Gemm<alpha=0.5, transB=1>(a, t)",
            to="y = Gemm<alpha=0.5, transB=0>(a, b)",
        ),
        Rejects("t = Transpose<perm=[0,1]>(a)  y = Gemm(t, b, c)", because="it swaps nothing"),
    ),
)
def transpose_into_gemm(m: Match, build: Builder) -> Value:
    """Gemm(Transpose(a), b, c) ⟶ Gemm(a, b, c, transA=1), and the same for b."""
    m.require(m[perm] in ((), (1, 0)), "it swaps nothing")
    call, name = (gemm_a, "transA") if m.alternative(gemm) is gemm_a else (gemm_b, "transB")
    attributes = m.attrs(call) | {name: 1 - bool(m.attr(call, name))}
    return build.node("Gemm", [m[a], m[b], m.value(c)], attributes)[0]


p, q = Var("p", dtype=FLOATS, rank=2), Var("q", dtype=FLOATS, rank=2)
product_p, product_q = op.MatMul(op.Transpose(p, perm=perm), q), op.MatMul(p, op.Transpose(q, perm=perm))
product = any_of(product_p, product_q)


@rule(
    "transpose-into-matmul",
    LOWER,
    product,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[m,k] p; float[n,k] q; t = Transpose(q)  y = MatMul(p, t)",
            to="float[m,k] p; float[n,k] q; y = Gemm<transA=0, transB=1>(p, q)",
        ),
        Rejects(
            "float[m,k] p; float[n,k] q; t = Transpose<perm=[0,1]>(q)  y = MatMul(p, t)",
            because="it swaps nothing",
        ),
        Rejects("float[k,m,b] p; float[k,n] q; t = Transpose(p)  y = MatMul(t, q)", because="p must have rank 2"),
    ),
)
def transpose_into_matmul(m: Match, build: Builder) -> Value:
    """MatMul(Transpose(p), q) ⟶ Gemm(p, q, transA=1) for matrices, and the same for q."""
    m.require(m[perm] in ((), (1, 0)), "it swaps nothing")
    first = m.alternative(product) is product_p
    return build.Gemm(m[p], m[q], transA=int(first), transB=int(not first))
