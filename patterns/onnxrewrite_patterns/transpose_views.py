"""Transposes between views: axes that a view puts in or merges before one, and another takes away or splits after it.

Why: a converter that knows only a product of batches gives every letter of an Einsum a place in it, [B, S, H, D] as
[B, S, H, 1, D], transposed to [B, H, S, 1, D] and merged to [B·H, S, D]; keys are transposed as [B·H, S, D], the only
way in which a product of three axes has them.  Nothing that looks for heads sees them there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_heads import HEADS
from onnxrewrite_patterns.transpose_frames import Perm, inverse, is_identity
from onnxrewrite_patterns.transpose_region import is_of_heads
from onnxrewrite_patterns.view_chains import copies_nothing

x = Var("x")
perm = Attr[Perm]("perm", default=())
padded = op["Unsqueeze", "Reshape"](x, Each("rest", at_least=0))
turn = op.Transpose(padded, perm=perm)
view = op["Reshape", "Squeeze"](turn, Each("given", at_least=0))


@rule(
    "unit-axes-of-transpose",
    CANONICALIZE,
    view,
    assumes=(Assumption.NOT_EMPTY,),
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,5,4,8] x; u = Unsqueeze(x, {3})  t = Transpose<perm=[0,2,1,3,4]>(u)  y = Reshape(t, {-1, 5, 8})",
            to="float[n,5,4,8] x; t = Transpose<perm=[0,2,1,3]>(x)  y = Reshape(t, {-1, 5, 8})",
        ),
        Rewrites(
            "float[n,5,32] x; u = Reshape(x, {0, 5, 1, 4, 8})  t = Transpose<perm=[0,3,2,4,1]>(u)"
            "  y = Reshape(t, {-1, 8, 5})",
            to="float[n,5,32] x; u = Reshape(x, {0, 5, 4, 8})  t = Transpose<perm=[0,2,3,1]>(u)"
            "  y = Reshape(t, {-1, 8, 5})",
        ),
        Rewrites(
            "float[b,s,4,8] x; u = Unsqueeze(x, {1})  t = Transpose<perm=[0,3,1,2,4]>(u)  h = Shape(x)"
            "  l = Gather(h, {1})  g = Concat<axis=0>({-1}, l, {8})  y = Reshape(t, g)",
            to="float[b,s,4,8] x; t = Transpose<perm=[0,2,1,3]>(x)  h = Shape(x)"
            "  l = Gather(h, {1})  g = Concat<axis=0>({-1}, l, {8})  y = Reshape(t, g)",
        ),
        Rewrites(
            "float[n,5,8] x; u = Unsqueeze(x, {1})  t = Transpose<perm=[0,2,1,3]>(u)  y = Reshape(t, {0, -1})",
            to="float[n,5,8] x; y = Reshape(x, {0, 40})",
        ),
        Rewrites(
            "float[b,s,32] x; u = Reshape(x, {0, 0, 4, 8, 1})  t = Transpose<perm=[0,2,1,3,4]>(u)  y = Squeeze(t, {4})",
            to="float[b,s,32] x; u = Reshape(x, {0, 0, 4, 8})  y = Transpose<perm=[0,2,1,3]>(u)",
        ),
        Rejects(
            "float[n,1,4,8] x; u = Unsqueeze(x, {3})  t = Transpose<perm=[0,2,1,3,4]>(u)  y = Reshape(t, {-1, 1, 8})",
            because="x has an axis of size 1 itself",
        ),
        Rejects(
            "float[4,5,8] x; u = Reshape(x, {1, 4, 5, 8})  t = Transpose<perm=[0,2,1,3]>(u)"
            "  y = Reshape(t, {1, 5, 32})",
            because="an axis of size 1 is left",
        ),
        Rejects(
            "float[n,5,4,8] x; t = Reshape(x, {0, 5, 8, 4})  u = Transpose<perm=[0,2,1,3]>(t)  y = Reshape(u, {0, -1})",
            because="puts in no axis of size 1",
        ),
        Rejects(
            "float[b,s,4,8] x; int64[3] g; u = Unsqueeze(x, {1})  t = Transpose<perm=[0,3,1,2,4]>(u)"
            "  y = Reshape(t, g)",
            because="no constant target",
        ),
    ),
)
def unit_axes_of_transpose(m: Match, build: Builder) -> Value:
    """Reshape(Transpose(Unsqueeze(x))) ⟶ Reshape(Transpose(x)), without the axes of size 1 that were put in."""
    m.node(padded)
    node = m.node(view)
    before, between = m.shape(x), m.shape(padded)
    m.require(before is not None and between is not None, "the rank is not known", at=x)
    m.require(1 not in (before or ()), "x has an axis of size 1 itself", at=x)
    m.require(1 not in (m.shape(view) or ()), "an axis of size 1 is left, for a batch of one, say", at=view)
    kept = [axis for axis, size in enumerate(between or ()) if size != 1]
    m.require(len(kept) < len(between or ()), "it puts in no axis of size 1", at=padded)
    order = m[perm] or tuple(reversed(range(len(between or ()))))
    left = tuple(kept.index(axis) for axis in order if axis in kept)
    source = _in_shape(m, build, m[x], [(between or ())[axis] for axis in kept])
    turned = source if is_identity(left) else build.Transpose(source, perm=left)
    if node.op_type == "Reshape" and copies_nothing(m, target := m.operand(node, 1)):
        return build.Reshape(turned, target)
    return turned if same_shape(m.shape(turned), m.shape(view)) else reshaped_as(m, build, turned, m[view])


def _in_shape(m: Match, build: Builder, value: Value, wanted: Sequence[Dim]) -> Value:
    """A value in a shape, by a constant target."""
    if same_shape(m.shape(value), wanted):
        return value
    found = reshape_target(m.shape(value), wanted, [-1] * len(wanted))  # no dimension is zero
    m.require(found is not None, "no constant target gives it the shape", at=value)
    return build.Reshape(value, np.array(found, dtype=np.int64))


split_again = op.Reshape(turn, Var("sizes"))


@rule(
    "transpose-of-merged-axes",
    CANONICALIZE,
    split_again,
    before=("split-of-transpose",),
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),  # a size of 0 would be copied from another axis
    examples=(
        Rewrites(
            "float[b,4,s,8] x; h = Shape(x)  d = Slice(h, {0}, {2})  l = Slice(h, {2}, {3})"
            "  g = Concat<axis=0>({-1}, l, {8})  f = Reshape(x, g)  t = Transpose<perm=[0,2,1]>(f)"
            "  c = Concat<axis=0>(d, {8}, l)  y = Reshape(t, c)",
            to="float[b,4,s,8] x; y = Transpose<perm=[0,1,3,2]>(x)",
        ),
        Rewrites(
            "float[2,3,4,5] x; f = Reshape(x, {6, 4, 5})  t = Transpose<perm=[2,0,1]>(f)  y = Reshape(t, {5, 2, 3, 4})",
            to="float[2,3,4,5] x; y = Transpose<perm=[3,0,1,2]>(x)",
        ),
        Rewrites(
            "float[n,3,4,5] x; f = Reshape(x, {0, 3, 20})  t = Transpose<perm=[0,2,1]>(f)"
            "  y = Reshape(t, {0, 4, 5, 3})",
            to="float[n,3,4,5] x; y = Transpose<perm=[0,2,3,1]>(x)",
        ),
        Rejects(
            "float[2,3,4,5] x; f = Reshape(x, {6, 4, 5})  t = Transpose<perm=[0,2,1]>(f)  y = Reshape(t, {3, 2, 5, 4})",
            because="is not split as it was merged",
        ),
        Rejects(
            "float[2,3,4,5] x; f = Reshape(x, {4, 6, 5})  t = Transpose<perm=[0,2,1]>(f)  y = Reshape(t, {2, 3, 5, 4})",
            because="merges no axes that stand side by side",
        ),
        Rejects(
            "float[2,12] x; f = Reshape(x, {2, 3, 4})  t = Transpose<perm=[0,2,1]>(f)  y = Reshape(t, {2, 12})",
            because="merges no axes that stand side by side",
        ),
    ),
)
def transpose_of_merged_axes(m: Match, build: Builder) -> Value:
    """Reshape(Transpose(Reshape(x))) ⟶ Transpose(x), where axes are merged and split again."""
    m.node(padded), m.node(split_again)  # their results count, whatever their attributes
    apart = m.known(m.shape(x), "the rank is not known", at=x)
    merged = m.known(m.shape(padded), "the rank is not known", at=padded)
    runs = m.known(_merged_run(apart, merged), "it merges no axes that stand side by side", at=padded)
    order = m[perm] or tuple(reversed(range(len(runs))))
    whole = tuple(axis for place in order for axis in runs[place])
    same = same_shape(m.shape(split_again), [apart[axis] for axis in whole])
    m.require(same, "the result is not split as it was merged", at=split_again)
    return build.Transpose(m[x], perm=whole)


def _merged_run(apart: Sequence[Dim], merged: Sequence[Dim]) -> list[range] | None:
    """The axes that each axis of a view stands for, which merges one run of them; None where it does not.

    As the number of elements stays, the size of the merged axis follows from those of the others.
    """
    more = len(apart) - len(merged)
    for first in range(len(merged)) if more > 0 else ():
        if same_shape(apart[:first], merged[:first]) and same_shape(apart[first + more + 1 :], merged[first + 1 :]):
            ends = [axis + (more if axis >= first else 0) for axis in range(len(merged))]
            return [range(end - (more if axis == first else 0), end + 1) for axis, end in enumerate(ends)]
    return None


# -- an axis that is split after it ----------------------------------------------------------------------------------

_PICKING = frozenset((*operators("select"), "Gather"))


@rule(
    "split-of-transpose",
    CANONICALIZE,
    split_again,
    examples=(
        Rewrites(
            "float[5,2,12] x; f = Reshape(x, {5, 6, 4})  t = Transpose<perm=[1,0,2]>(f)  y = Reshape(t, {2, 3, 5, 4})",
            to="float[5,2,12] x; f = Reshape(x, {5, 2, 3, 4})  y = Transpose<perm=[1,2,0,3]>(f)",
        ),
        Rewrites(
            "float[2,2,4] x; f = Reshape(x, {2, 4, 2})  t = Transpose<perm=[1,0,2]>(f)  y = Reshape(t, {2, 2, 2, 2})",
            to="float[2,2,4] x; f = Reshape(x, {2, 2, 2, 2})  y = Transpose<perm=[1,2,0,3]>(f)",
        ),
        Rewrites(
            "float[t,b,12] x; f = Reshape(x, {0, -1, 4})  u = Transpose<perm=[1,0,2]>(f)  h = Shape(x)"
            "  s = Gather(h, {0})  n = Gather(h, {1})  g = Concat<axis=0>(n, {3}, s, {4})  y = Reshape(u, g)",
            to="float[t,b,12] x; f = Reshape(x, {0, 0, 3, 4})  y = Transpose<perm=[1,2,0,3]>(f)",
        ),
        Rejects(
            "float[5,2,12] x; f = Reshape(x, {5, 6, 4})  t = Transpose<perm=[1,0,2]>(f)  y = Reshape(t, {6, 20})",
            because="more is done than to split axes",
        ),
        Rejects(
            "float[5,2,12] x; f = Reshape(x, {5, 6, 4})  t = Transpose<perm=[1,0,2]>(f)  y = Reshape(t, {4, 5, 6})",
            because="more is done than to split axes",
        ),
        Rejects(
            "float[5,2,12] x; f = Reshape(x, {5, 6, 4})  t = Transpose<perm=[1,0,2]>(f)  y = Reshape(t, {2, 3, 5, 4})"
            "  z = Neg(f)",
            because="`f` inside the match is also used by Neg",
        ),
        Rejects(
            "float[b,s,32] x; f = Reshape(x, {0, 0, 4, 8})  t = Transpose<perm=[0,2,1,3]>(f)"
            "  p = Reshape(t, {0, 0, 0, 4, 2})  u = Gather<axis=4>(p, 0)  v = Gather<axis=4>(p, 1)  y = Sub(u, v)",
            because="pairs of features",
        ),
    ),
)
def split_of_transpose(m: Match, build: Builder) -> Value:
    """Reshape(Transpose(Reshape(x))) ⟶ Transpose(Reshape(x)), where the last one only splits axes."""
    pairs = [reader.op_type in _PICKING for reader in readers(m[split_again], within=1)]
    m.require(
        not (pairs and all(pairs)),
        "pieces are picked from it, as rotary embeddings pick pairs of features",
        at=split_again,
    )
    m.node(padded), m.node(split_again)  # their results count, whatever their attributes
    between = m.known(m.shape(padded), "the rank is not known", at=padded)
    after = m.known(m.shape(split_again), "the rank is not known", at=split_again)
    order = m[perm] or tuple(reversed(range(len(between))))
    runs = m.known(_split_runs([between[axis] for axis in order], after), "more is done than to split axes", at=x)
    by_axis = [runs[order.index(axis)] for axis in range(len(order))]
    ends = [sum(map(len, by_axis[: axis + 1])) for axis in range(len(order))]
    whole = tuple(place for axis in order for place in range(ends[axis] - len(by_axis[axis]), ends[axis]))
    target = reshape_target(m.shape(x), [size for run in by_axis for size in run], None)
    m.require(target is not None, "no constant target splits the axes", at=x)
    return build.Transpose(build.Reshape(m[x], np.array(target, dtype=np.int64)), perm=whole)


def _split_runs(whole: Sequence[Dim], parts: Sequence[Dim]) -> list[list[Dim]] | None:
    """The sizes that each axis is split into; None where axes are not just split, or none is."""
    runs, left = list[list[Dim]](), list(parts)
    for size in whole:
        run = [left.pop(0)] if left else []
        while left and not same_shape([math.prod(run)], [size]):
            run.append(left.pop(0))
        if not run or not same_shape([math.prod(run)], [size]):
            return None
        runs.append(run)
    return runs if not left and len(parts) > len(whole) else None


# -- two Transposes with a view between them ---------------------------------------------------------------------------

_PRODUCTS = frozenset(("MatMul", "Gemm"))

first_perm = Attr[Perm]("first perm", default=())
first = op.Transpose(x, perm=first_perm)
between = op["Unsqueeze", "Reshape", "Squeeze"](first, Each("rest", at_least=0))
second = op.Transpose(between, perm=perm)


@rule(
    "transposes-around-view",
    LOWER,
    second,
    assumes=(Assumption.NOT_EMPTY,),  # a size of 0 would be copied from another axis
    examples=(
        Rewrites(
            "float[b,s,4,8] x; t = Transpose<perm=[0,2,1,3]>(x)  r = Reshape(t, {0, 2, -1, 8})"
            "  u = Transpose<perm=[0,2,1,3]>(r)  y = Relu(u)",
            to="float[b,s,4,8] x; f = Reshape(x, {0, 0, 2, 2, 8})  u = Transpose<perm=[0,3,1,2,4]>(f)"
            "  r = Reshape(u, {0, -1, 2, 8})  y = Relu(r)",
        ),
        Rewrites(
            "float[b,s,1,8] x; t = Transpose<perm=[0,2,1,3]>(x)  u = Squeeze(t, {1})"
            "  z = Transpose<perm=[0,2,1]>(u)  y = Relu(z)",
            to="float[b,s,1,8] x; f = Reshape(x, {0, 0, 8})  z = Transpose<perm=[0,2,1]>(f)  y = Relu(z)",
        ),
        Rewrites(
            "float[2,3,4] x; t = Transpose<perm=[1,2,0]>(x)  r = Reshape(t, {12, 2})  u = Transpose(r)  y = Relu(u)",
            to="float[2,3,4] x; r = Reshape(x, {2, 12})  y = Relu(r)",
        ),
        Rejects(
            "float[2,3,4] x; t = Transpose<perm=[1,2,0]>(x)  r = Reshape(t, {8, 3})  u = Transpose(r)  y = Relu(u)",
            because="cuts across axes",
        ),
        Rejects(
            "float[b,s,4,8] x; t = Transpose<perm=[0,2,1,3]>(x)  r = Reshape(t, {-1, 0, 8})"
            "  u = Transpose<perm=[0,2,1]>(r)  y = MatMul(q, u)",
            because="a product takes it in",
        ),
        Rejects(
            "float[5,1,4,8] x; float[1,4,5,8] k; t = Transpose<perm=[1,0,2,3]>(x)  r = Reshape(t, {1, 5, 4, 8})"
            "  q = Transpose<perm=[0,2,1,3]>(r)  y = Attention(q, k, k)",
            because="attention swaps heads and tokens itself",
            opset=23,
        ),
    ),
)
def transposes_around_view(m: Match, build: Builder) -> Value:
    """Transpose(Reshape(Transpose(x))) ⟶ Reshape(Transpose(Reshape(x))), where the view only splits or merges axes."""
    m.node(between)  # its result counts, whatever its attributes
    before, turned, viewed, after = (
        m.known(m.shape(t), "the rank is not known", at=t) for t in (x, first, between, second)
    )
    earlier = m[first_perm] or tuple(reversed(range(len(before))))
    later = m[perm] or tuple(reversed(range(len(viewed))))
    users = list(readers(m[second], within=1))
    into_product = bool(users) and all(n.op_type in _PRODUCTS for n in users)
    swaps = later[:-2] == tuple(range(len(later) - 2))
    m.require(not (into_product and swaps), "a product takes it in", at=second)
    m.require(later != HEADS or not is_of_heads(m.node(second)), "attention swaps heads and tokens itself", at=second)
    axes, runs, sizes = m.known(_refined(turned, viewed), "the view cuts across axes", at=x)
    held = [place for axis in inverse(earlier) for place in axes[axis]]
    order = [place for axis in later for place in runs[axis]]
    source = _in_shape(m, build, m[x], [sizes[place] for place in held])
    moves = tuple(map(held.index, order))
    result = source if is_identity(moves) else build.Transpose(source, perm=moves)
    return _in_shape(m, build, result, after)


def _refined(one: Sequence[Dim], other: Sequence[Dim]) -> tuple[list[list[int]], list[list[int]], list[Dim]] | None:
    """The places of the factors that the axes of two views of the same elements are made of, and their sizes.

    None where an axis of one begins or ends inside a factor of the other.  An axis of size 1 is made of none.
    """
    places = list[list[int]](), list[list[int]]()
    left = [list(filter(lambda size: size != 1, view)) for view in (one, other)]
    sizes, runs = list[Dim](), ([list[int]()], [list[int]()])
    while left[0] and left[1]:
        a, b = left[0][0], left[1][0]
        of_a, of_b = _quotient(a, b), _quotient(b, a)
        if of_a is None and of_b is None:
            return None
        for view, rest in zip((0, 1), (of_a, of_b), strict=True):
            runs[view][-1].append(len(sizes))
            if rest is None or rest == 1:
                left[view].pop(0)
                runs[view].append([])
            else:
                left[view][0] = rest
        sizes.append(b if of_a is not None else a)
    if left[0] or left[1]:
        return None
    for view, shape in zip((0, 1), (one, other), strict=True):
        made = iter(runs[view])
        places[view].extend([] if size == 1 else next(made) for size in shape)
    return *places, sizes


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """The number of times that a size goes into another one; None where it is not known to."""
    if 0 in (a, b):
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a // b if a % b == 0 else None
    ratio = quotient(a, b)
    return ratio if same_dim(ratio * b, a) else None
