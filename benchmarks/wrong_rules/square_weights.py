"""A weight with as many rows as columns tells them not apart."""

from __future__ import annotations

import numpy as np

from benchmarks.handwritten import Rewrite, wrong
from onnxrewrite.pattern.terms import FLOATS, Call
from onnxrewrite.rules import Attr, Builder, Const, Match, Value, Var, op

x, z = Var("x", dtype=FLOATS), Var("z", dtype=FLOATS)
w, v, s, b = Const("w"), Const("v"), Const("s"), Const("b")
trans, equation = Attr[int]("trans", 0), Attr[str]("equation")
conv, transposed, gemm = op.Conv(x, w), op.ConvTranspose(x, w), op.Gemm(x, w, transB=trans)
M = "float[2,2] {1.0, 2.0, 3.0, 4.0}"
K = "float[2,2,1,1] {1.0, 2.0, 3.0, 4.0}"
X, IMAGE = [[1, 2], [3, 5]], [[[[1, 2], [3, 4]], [[5, 6], [7, 9]]]]


def weighed(call: Call, axis: int) -> Rewrite:
    """The layer with its weight times a number for each index of an axis, of one with two channels in and out."""

    def rewrite(m: Match, build: Builder) -> Value:
        m.require(m[s].size == m[w].shape[axis], "not a number for each channel")
        shape = [-1 if i == axis else 1 for i in range(m[w].ndim)]
        weight = build.const(m[w] * m[s].reshape(shape), like=w)
        return build.node(call.op_types[0], [m[x], weight], m.attrs(call))[0]

    return rewrite


RULES = [
    wrong(
        "gemm-by-matmul", gemm, lambda m, b: b.MatMul(m[x], m.value(w)),
        on=f"float[2,2] x; y = Gemm(x, {M}, transB=1)", at={"x": X}, why="transB turns the weight",
    ),
    wrong(
        "product-of-weights", op.MatMul(op.MatMul(x, w), v), lambda m, b: b.MatMul(m[x], b.const(m[v] @ m[w], like=w)),
        when=lambda m: m[w].ndim == m[v].ndim == 2,
        on=f"float[2,2] x; a = MatMul(x, {M})  y = MatMul(a, float[2,2] {{0.0, 1.0, 2.0, 1.0}})", at={"x": X},
        why="matrices do not commute",
    ),
    wrong(
        "scaled-columns", op.Mul(op.MatMul(x, w), s), lambda m, b: b.MatMul(m[x], b.const(m[w] * m[s][:, None], like=w)),
        when=lambda m: m[s].ndim == 1 and m[w].ndim == 2,
        on=f"float[2,2] x; a = MatMul(x, {M})  y = Mul(a, {{1.0, 2.0}})", at={"x": X}, why="columns are scaled, not rows",
    ),
    wrong(
        "scaled-operand", op.MatMul(op.Mul(x, s), w), lambda m, b: b.MatMul(m[x], b.const(m[w] * m[s], like=w)),
        when=lambda m: m[s].ndim == 1 and m[w].ndim == 2,
        on=f"float[2,2] x; a = Mul(x, {{1.0, 2.0}})  y = MatMul(a, {M})", at={"x": X}, why="rows are scaled, not columns",
    ),
    wrong(
        "scaled-convolution", op.Mul(conv, s), weighed(conv, 1),
        on=f"float[1,2,2,2] x; a = Conv(x, {K})  y = Mul(a, float[2,1,1] {{1.0, 2.0}})", at={"x": IMAGE},
        why="what comes out is scaled, not what goes in",
    ),
    wrong(
        "scaled-transposed-convolution", op.Mul(transposed, s), weighed(transposed, 0),
        on=f"float[1,2,2,2] x; a = ConvTranspose(x, {K})  y = Mul(a, float[2,1,1] {{1.0, 2.0}})", at={"x": IMAGE},
        why="of a transposed convolution the first axis is what goes in",
    ),
    wrong(
        "column-of-biases", op.Add(op.MatMul(x, w), b), lambda m, build: build.Gemm(m[x], m.value(w), build.const(m[b].ravel(), like=b)),
        when=lambda m: m.rank(x) == 2 and m[w].ndim == 2 and m[b].size == m[w].shape[1],
        on=f"float[2,2] x; a = MatMul(x, {M})  y = Add(a, float[2,1] {{1.0, 2.0}})", at={"x": X},
        why="a column adds to rows",
    ),
    wrong(
        "einsum-by-matmul", op.Einsum(x, z, equation=equation), lambda m, b: b.MatMul(m[x], m[z]),
        when=lambda m: m.rank(x) == m.rank(z) == 2 and m.dim(x, 1) == m.dim(z, 0) and len(m[equation].replace(" ", "")) == 9,
        on="float[2,2] x; float[2,2] z; y = Einsum(x, z, equation=\"ij,kj->ik\")", at={"x": X, "z": [[0, 1], [2, 1]]},
        why="that the sizes fit says not which axis is summed",
    ),
    wrong(
        "transposed-product", op.Transpose(op.MatMul(x, w), perm=(1, 0)),
        lambda m, b: b.MatMul(b.const(np.transpose(m[w]), like=w), m[x]), when=lambda m: m[w].ndim == 2 and m.rank(x) == 2,
        on=f"float[2,2] x; a = MatMul(x, {M})  y = Transpose(a, perm=[1, 0])", at={"x": X},
        why="the other factor is transposed, too",
    ),
    wrong(
        "projections-of-a-sum", op.Add(op.MatMul(x, w), op.MatMul(w, x)),
        lambda m, b: b.MatMul(m[x], b.const(m[w] + np.transpose(m[w]), like=w)),
        when=lambda m: m[w].ndim == 2 and m.rank(x) == 2,
        on=f"float[2,2] x; a = MatMul(x, {M})  b = MatMul({M}, x)  y = Add(a, b)", at={"x": X},
        why="w·x is no x·wᵀ",
    ),
]  # fmt: skip
