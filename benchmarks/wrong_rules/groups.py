"""Channels in groups: which of them belong together."""

from __future__ import annotations

import numpy as np

from benchmarks.handwritten import Rewrite, wrong
from onnxrewrite.pattern.terms import FLOATS, Call
from onnxrewrite.rules import Attr, Builder, Const, Match, Value, Var, op

x, z, k = Var("x", dtype=FLOATS), Var("z", dtype=FLOATS), Var("k", dtype=FLOATS, rank=4)
w, v, s, b, index = Const("w"), Const("v"), Const("s"), Const("b"), Const("index")
group, groups, shape, shape2, perm = (
    Attr[int]("group", 1),
    Attr[int]("groups"),
    Const("shape"),
    Const("shape2"),
    (0, 2, 1, 3, 4),
)
repeats = Const("repeats")
conv, other, third = op.Conv(x, w, group=group), op.Conv(x, v, group=group), op.Conv(z, v, group=group)
transposed = op.ConvTranspose(x, w, group=group)
W = "float[4,1,1,1] {1.0, 2.0, 3.0, 4.0}"
G = "float[4,2,1,1] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}"
H = "float[4,2,1,1] {0.0, 2.0, -3.0, 4.0, 5.0, -6.0, 7.0, 8.0}"
FOUR = [[[[1]], [[2]], [[4]], [[7]]]]
FLAT = "{0, 2, 2, 1, 1}"


def together(first: Call, second: Call, axis: int) -> Rewrite:
    """Two layers in one."""

    def rewrite(m: Match, build: Builder) -> Value:
        m.require(m[w].shape[1:] == m[v].shape[1:] and m[w].ndim == 4, "the weights do not fit")
        return build.const(np.concatenate([m[w], m[v]], axis=axis), like=w)

    return rewrite


def wider(m: Match, build: Builder) -> Value:
    """Concat(Conv(x, w), Conv(x, v)) ⟶ Conv(x, Concat(w, v))."""
    weight = together(conv, other, 0)(m, build)
    return build.node("Conv", [m[x], weight], m.attrs(conv))[0]


def deeper(m: Match, build: Builder) -> Value:
    """Conv(x, w) + Conv(z, v) ⟶ Conv(Concat(x, z), Concat(w, v))."""
    weight = together(conv, third, 1)(m, build)
    return build.node("Conv", [build.Concat(m[x], m[z], axis=1), weight], m.attrs(conv))[0]


def chosen(m: Match, build: Builder) -> Value:
    """Gather(Conv(x, w), index) ⟶ Conv(x, w[index])."""
    weight = build.const(np.take(m[w], m[index], axis=0), like=w)
    return build.node("Conv", [m[x], weight], m.attrs(conv))[0]


def first_half(m: Match, build: Builder) -> Value:
    """Slice(Conv(x, w), 0:2) ⟶ Conv(x, w[0:2])."""
    return build.node("Conv", [m[x], build.const(m[w][:2], like=w)], m.attrs(conv))[0]


def scaled(m: Match, build: Builder) -> Value:
    """ConvTranspose(x, w)·s ⟶ ConvTranspose(x, s·w)."""
    channels = m[w].shape[1]
    m.require(m[s].size % channels == 0 and m[s].ndim == 3, "not a number for each channel")
    weight = m[w] * m[s].reshape(-1)[:channels].reshape(1, -1, *[1] * (m[w].ndim - 2))
    return build.node("ConvTranspose", [m[x], build.const(weight, like=w)], m.attrs(transposed))[0]


def to_instance_norm(m: Match, build: Builder) -> Value:
    """GroupNormalization(x, s, b) ⟶ InstanceNormalization(x, s, b)."""
    return build.InstanceNormalization(m[x], m.value(s), m.value(b))


def instance_norm_of_all(m: Match, build: Builder) -> Value:
    """Reshape(InstanceNormalization(Reshape(x))) ⟶ InstanceNormalization(x), each group a channel."""
    m.require(np.all(m[s] == 1) and not np.any(m[b]), "scaled")
    channels = m.dim(x, 1)
    m.require(m.rank(x) == 4 and isinstance(channels, int), "the channels are unknown")
    ones, zeros = (build.const(np.full(channels, f), like=x) for f in (1.0, 0.0))
    return build.InstanceNormalization(m[x], ones, zeros)


def heads_expanded(m: Match, build: Builder) -> Value:
    """Tile(k, heads) ⟶ each head repeated."""
    n, h, length, size = sizes = m.shape(k) or ()
    count = int(m[repeats][1])
    m.require(m[repeats].tolist() == [1, count, 1, 1] and all(isinstance(d, int) for d in sizes), "not over heads")
    each = build.Expand(build.Unsqueeze(m[k], axes=(2,)), build.const([n, h, count, length, size]))
    return build.Reshape(each, build.const([n, h * count, length, size]))


shuffled = op.Reshape(op.Transpose(op.Reshape(x, shape), perm=perm), shape2)

RULES = [
    wrong(
        "convolutions-side-by-side", op.Concat(conv, other, axis=1), wider,
        on=f"float[1,4,1,1] x; a = Conv(x, {G}, group=2)  b = Conv(x, {H}, group=2)  y = Concat(a, b, axis=1)", at={"x": FOUR},
        why="the outputs of the first make the first group, which reads the first inputs only",
    ),
    wrong(
        "convolutions-added", op.Add(conv, third), deeper,
        on=f"float[1,4,1,1] x; float[1,4,1,1] z; a = Conv(x, {G}, group=2)  b = Conv(z, {H}, group=2)  y = Add(a, b)",
        at={"x": FOUR, "z": FOUR}, why="the first group reads all of x and nothing of z",
    ),
    wrong(
        "channels-chosen", op.Gather(conv, index, axis=1), chosen,
        on=f"float[1,4,1,1] x; a = Conv(x, {W}, group=4)  y = Gather(a, {{3, 2, 1, 0}}, axis=1)", at={"x": FOUR},
        why="another place is another group", when=lambda m: m[index].ndim == 1,
    ),
    wrong(
        "first-channels", op.Slice(conv, starts=(0,), ends=(2,), axes=(1,)), first_half,
        on=f"float[1,4,1,1] x; a = Conv(x, {G}, group=2)  y = Slice(a, {{0}}, {{2}}, {{1}})", at={"x": FOUR},
        why="the first two are both of the first group",
    ),
    wrong(
        "scaled-transposed-groups", op.Mul(transposed, s), scaled,
        on=f"float[1,4,1,1] x; a = ConvTranspose(x, {G}, group=2)  y = Mul(a, float[4,1,1] {{1.0, 2.0, 3.0, 4.0}})",
        at={"x": FOUR}, why="the weight has the channels of one group",
    ),
    wrong(
        "group-norm-by-channel", op.GroupNormalization(x, s, b, num_groups=groups), to_instance_norm, opset=21,
        on="float[1,4,1,2] x; y = GroupNormalization(x, {1.0, 1.0, 1.0, 1.0}, {0.0, 0.0, 0.0, 0.0}, num_groups=2)",
        at={"x": [[[[1, 3]], [[2, 7]], [[4, 4]], [[7, 0]]]]}, why="a group of several channels has one mean",
    ),
    wrong(
        "instance-norm-of-groups", op.Reshape(op.InstanceNormalization(op.Reshape(x, shape), s, b), shape2), instance_norm_of_all,
        on="float[1,4,1,2] x; r = Reshape(x, {0, 2, -1})  n = InstanceNormalization(r, {1.0, 1.0}, {0.0, 0.0})"
        "  y = Reshape(n, {1, 4, 1, 2})",
        at={"x": [[[[1, 3]], [[2, 7]], [[4, 4]], [[7, 0]]]]}, why="a group of several channels has one mean",
    ),
    wrong(
        "heads-repeated", op.Tile(k, repeats), heads_expanded,
        on="float[1,2,1,1] x; y = Tile(x, {1, 2, 1, 1})", at={"x": [[[[1]], [[2]]]]},
        why="of two heads it makes 1 2 1 2, not 1 1 2 2",
    ),
    wrong(
        "channel-shuffle", shuffled, lambda m, b: m[x],
        on="float[1,4,1,1] x; r = Reshape(x, {1, 2, 2, 1, 1})  t = Transpose(r, perm=[0, 2, 1, 3, 4])"
        "  y = Reshape(t, {1, 4, 1, 1})",
        at={"x": FOUR}, why="one group, or as many as channels, is left as it is, and no other",
    ),
    wrong(
        "channel-shuffle-twice", op.Reshape(op.Transpose(op.Reshape(shuffled, shape), perm=perm), shape2), lambda m, b: m[x],
        on="float[1,6,1,1] x; r = Reshape(x, {1, 2, 3, 1, 1})  t = Transpose(r, perm=[0, 2, 1, 3, 4])"
        "  a = Reshape(t, {1, 6, 1, 1})  q = Reshape(a, {1, 2, 3, 1, 1})  u = Transpose(q, perm=[0, 2, 1, 3, 4])"
        "  y = Reshape(u, {1, 6, 1, 1})",
        at={"x": [[[[1]], [[2]], [[3]], [[4]], [[5]], [[6]]]]}, why="it undoes itself only where as many groups as channels of one",
    ),
]  # fmt: skip
