"""Einsum of one or two operands as Transpose, ReduceSum, Mul and MatMul.

A label that both operands and the result have counts batches, one that only the operands have is summed over, the
others are rows and columns: that is MatMul, with Transposes and Reshapes that put the labels in its order.

Why: ONNX Runtime's Einsum does the same, but its Transposes are its own, where no other rule finds them; and no rule
knows Einsum: projections into heads ("bsd,dhk->bshk") and scores ("bqhd,bkhd->bhqk") are spelled so.
On one core these took 0.82 and 0.46 of Einsum's time, in other equations it was 0.73 to 0.95.
A sum over nothing, which is zero, stops the process in ONNX Runtime's Einsum (1.31).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxrewrite.rules import *

operands, equation = Each[Value]("operands"), Attr[str]("equation")
einsum = op.Einsum(operands, equation=equation)


@dataclass(frozen=True)
class Labelled:
    """A tensor, and what its axes are called."""

    value: Value
    labels: str


def parsed(m: Match) -> tuple[list[Labelled], str]:
    """The operands with their labels, and the labels of the result."""
    m.require(len(m[operands]) <= 2, f"it has {len(m[operands])} operands")
    ranks = [rank for value in m[operands] if (rank := m.rank(value)) is not None]
    found = einsum_labels(m[equation], ranks)
    if found is None:
        m.refuse(f"{m[equation]} does not fit the ranks of the operands, as far as they are known")
    terms, output = found
    for term in (*terms, output):
        m.require(len(set(term)) == len(term), f"a label occurs twice in {term}: that is a diagonal")
    return [Labelled(v, t) for v, t in zip(m[operands], terms, strict=True)], output


def sizes_of(m: Match, inputs: Sequence[Labelled]) -> dict[str, Dim]:
    """Label to size."""
    sizes: dict[str, Dim] = {}
    for each in inputs:
        for label, size in zip(each.labels, m.shape(each.value) or (), strict=True):
            known = sizes.setdefault(label, size)
            same = known is size or same_dim(known, size)
            m.require(same, f"dimension {label} is {known} and {size}: one may be broadcast", at=each.value)
    return sizes


def unshared(inputs: Sequence[Labelled], each: Labelled, output: str) -> str:
    """The labels that only one operand has."""
    others = "".join(i.labels for i in inputs if i is not each) + output
    return "".join(label for label in each.labels if label not in others)


def without(build: Builder, each: Labelled, labels: str) -> Labelled:
    """An operand summed over some of its axes."""
    if not labels:
        return each
    axes = tuple(each.labels.index(label) for label in labels)
    rest = "".join(label for label in each.labels if label not in labels)
    return Labelled(build.ReduceSum(each.value, axes=axes, keepdims=0), rest)


def permuted(build: Builder, each: Labelled, labels: str) -> Labelled:
    """The same with its axes in another order."""
    perm = tuple(each.labels.index(label) for label in labels)
    value = each.value if perm == tuple(range(len(perm))) else build.Transpose(each.value, perm=perm)
    return Labelled(value, labels)


def aligned(build: Builder, each: Labelled, output: str) -> Value:
    """An operand that broadcasts against the result: its axes in that order, with axes of size 1 in between."""
    moved = permuted(build, each, "".join(label for label in output if label in each.labels))
    first = min((output.index(label) for label in moved.labels), default=len(output))
    missing = tuple(i for i, label in enumerate(output[first:]) if label not in moved.labels)
    return build.Unsqueeze(moved.value, axes=missing) if missing else moved.value


def in_order(pair: Sequence[Labelled], output: str) -> tuple[Labelled, Labelled]:
    """The operands in the order in which their own labels occur in the result."""
    a, b = pair
    rows, columns = (
        [i for i, label in enumerate(output) if label in x.labels and label not in y.labels]
        for x, y in ((a, b), (b, a))
    )
    return (b, a) if rows and columns and rows[-1] > columns[-1] else (a, b)


def matmul(
    m: Match, build: Builder, a: Labelled, b: Labelled, inner: str, output: str, sizes: dict[str, Dim]
) -> Labelled:
    """The product: batches, then the rows of a, then the columns of b, as the result or else the operands have them."""
    batch = "".join(label for label in output if label in a.labels and label in b.labels)
    rows, columns = (
        "".join(label for label in output if label in each.labels and label not in batch) for each in (a, b)
    )
    if batch + rows + columns != output:  # it is transposed anyway, and the operands need not be
        rows, columns = (
            "".join(label for label in each.labels if label in own) for each, own in ((a, rows), (b, columns))
        )
    if batch and len(rows) > len(inner) == len(columns) == 1 and not _merges(batch, rows, columns, sizes):
        return spread(build, permuted(build, a, batch + rows + inner), permuted(build, b, batch + inner + columns))
    # Without batches MatMul takes any number of rows, or none of either.
    before = [*batch, *([rows] if batch else rows)]
    after = [columns] if columns or batch else []
    left = grouped(m, build, permuted(build, a, batch + rows + inner), [*before, inner], sizes)
    right = grouped(m, build, permuted(build, b, batch + inner + columns), [*batch, inner, *after], sizes)
    return ungrouped(m, build, build.MatMul(left, right), [*before, *after], sizes)


def _merges(batch: str, rows: str, columns: str, sizes: dict[str, Dim]) -> bool:
    """True if constant targets merge the rows of the one operand, and take those of the product apart."""
    apart = [sizes[label] for label in batch + rows + columns]
    one = functools.reduce(operator.mul, (sizes[label] for label in rows))
    merged = [*apart[: len(batch)], one, *apart[len(batch + rows) :]]
    return reshape_target(apart, merged, None) is not None and reshape_target(merged, apart, None) is not None


def spread(build: Builder, a: Labelled, b: Labelled) -> Labelled:
    """The product of an operand with several labels of rows: the other is broadcast along all but the last."""
    axes = tuple(range(len(b.labels) - 2, len(a.labels) - 2))
    product = build.MatMul(a.value, build.Unsqueeze(b.value, axes=axes))
    return Labelled(product, a.labels[:-1] + b.labels[-1])


def grouped(m: Match, build: Builder, each: Labelled, groups: Sequence[str], sizes: dict[str, Dim]) -> Value:
    """An operand with one axis for each group of labels, of size 1 where the group has none."""
    value, empty = each.value, tuple(i for i, group in enumerate(groups) if not group)
    if any(len(group) > 1 for group in groups):
        merged = [functools.reduce(operator.mul, (sizes[label] for label in group)) for group in groups if group]
        value = reshaped(m, build, value, merged)
    return build.Unsqueeze(value, axes=empty) if empty else value


def ungrouped(m: Match, build: Builder, value: Value, groups: Sequence[str], sizes: dict[str, Dim]) -> Labelled:
    """The result with one axis for each label."""
    labels, empty = "".join(groups), tuple(i for i, group in enumerate(groups) if not group)
    value = build.Squeeze(value, axes=empty) if empty else value
    if any(len(group) > 1 for group in groups):
        value = reshaped(m, build, value, [sizes[label] for label in labels])
    return Labelled(value, labels)


def reshaped(m: Match, build: Builder, value: Value, wanted: Sequence[Dim]) -> Value:
    """A value in another shape."""
    found = reshape_target(m.shape(value), wanted, None)
    if found is None:
        m.refuse(f"no constant target gives [{', '.join(map(str, wanted))}]", at=einsum)
    return build.Reshape(value, np.array(found, np.int64))


@rule(
    "einsum",
    CANONICALIZE,
    einsum,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            'float[m,k] a; float[k,n] b; y = Einsum<equation="ik,kj->ij">(a, b)',
            to="float[m,k] a; float[k,n] b; y = MatMul(a, b)",
        ),
        Rewrites(
            'float[m,k] a; float[n,k] b; y = Einsum<equation="ik, jk -> ij">(a, b)',
            to="float[m,k] a; float[n,k] b; t = Transpose<perm=[1,0]>(b)  y = MatMul(a, t)",
        ),
        Rewrites(
            'float[m,k] a; float[k,n] b; y = Einsum<equation="ik,kj->ji">(a, b)',
            to="float[m,k] a; float[k,n] b; s = Transpose<perm=[1,0]>(b)  t = Transpose<perm=[1,0]>(a)"
            "  y = MatMul(s, t)",
        ),
        Rewrites(
            'float[b,q,h,d] a; float[b,k,h,d] c; y = Einsum<equation="bqhd,bkhd->bhqk">(a, c)',
            to="float[b,q,h,d] a; float[b,k,h,d] c; s = Transpose<perm=[0,2,1,3]>(a)"
            "  t = Transpose<perm=[0,2,3,1]>(c)  y = MatMul(s, t)",
        ),
        Rewrites(
            'float[b,s,6] a; float[6,2,3] w; y = Einsum<equation="bsd,dhk->bshk">(a, w)',
            to="float[b,s,6] a; float[6,2,3] w; v = Reshape(w, {6, 6})  p = MatMul(a, v)  y = Reshape(p, {0, 0, 2, 3})",
        ),
        Rewrites(
            'float[b,s,2,3] a; float[2,3,6] w; y = Einsum<equation="bshk,hkd->bsd">(a, w)',
            to="float[b,s,2,3] a; float[2,3,6] w; u = Reshape(a, {0, 0, 6})  v = Reshape(w, {6, 6})  y = MatMul(u, v)",
        ),
        Rewrites(
            'float[b,i] a; float[b,i,j] c; y = Einsum<equation="bi,bij->bj">(a, c)',
            to="float[b,i] a; float[b,i,j] c; r = Unsqueeze(a, {1})  p = MatMul(r, c)  y = Squeeze(p, {1})",
        ),
        Rewrites(
            'float[h,w,c] a; float[c,h] b; y = Einsum<equation="hwc,ch->hwc">(a, b)',
            to="float[h,w,c] a; float[c,h] b; t = Transpose<perm=[1,0]>(b)  u = Unsqueeze(t, {1})  y = Mul(a, u)",
        ),
        Rewrites(
            'float[n,c,h] x; y = Einsum<equation="nch->hn">(x)',
            to="float[n,c,h] x; r = ReduceSum<keepdims=0>(x, {1})  y = Transpose<perm=[1,0]>(r)",
        ),
        Rewrites('float[n,c] x; y = Einsum<equation="ba">(x)', to="float[n,c] x; y = Transpose<perm=[1,0]>(x)"),
        Rewrites(
            'float[b,m,k] a; float[k,n] c; y = Einsum<equation="...k,kn">(a, c)',
            to="float[b,m,k] a; float[k,n] c; y = MatMul(a, c)",
        ),
        Rewrites(
            'float[b,k,g,t,s] p; float[b,s,k,h] v; y = Einsum<equation="bkgts,bskh->btkgh">(p, v)',
            to="float[b,k,g,t,s] p; float[b,s,k,h] v; u = Transpose<perm=[0,2,1,3]>(v)  w = Unsqueeze(u, {2})"
            "  a = MatMul(p, w)  y = Transpose<perm=[0,3,1,2,4]>(a)",
        ),
        Rejects('float[n,n] x; y = Einsum<equation="ii->i">(x)', because="that is a diagonal"),
        Rejects('float[m,1] a; float[k,n] b; y = Einsum<equation="ik,kj->ij">(a, b)', because="k is 1 and k"),
        Rejects('y = Einsum<equation="ik,kj->ij">(a, b)', because="does not fit the ranks"),
        Rejects(
            'float[m,k] a; float[k,n] b; float[n,o] c; y = Einsum<equation="ik,kj,jo->io">(a, b, c)',
            because="3 operands",
        ),
        Rewrites(
            'float[b,m,l,k] a; float[b,k,n] c; y = Einsum<equation="bmlk,bkn->bmln">(a, c)',
            to="float[b,m,l,k] a; float[b,k,n] c; u = Unsqueeze(c, {1})  y = MatMul(a, u)",
        ),
        Rewrites(
            'float[b,h,i,d] q; float[b,j,d] k; y = Einsum<equation="bhid,bjd->bhij">(q, k)',
            to="float[b,h,i,d] q; float[b,j,d] k; t = Transpose<perm=[0,2,1]>(k)  u = Unsqueeze(t, {1})"
            "  y = MatMul(q, u)",
        ),
    ),
)
def spelled_out(m: Match, build: Builder) -> Value:
    """Einsum("bqhd,bkhd->bhqk", a, b) ⟶ MatMul(Transpose(a), Transpose(b)), and other equations of up to two."""
    inputs, output = parsed(m)
    sizes = sizes_of(m, inputs)
    summed = [without(build, each, unshared(inputs, each, output)) for each in inputs]
    if len(summed) == 1:
        return permuted(build, summed[0], output).value
    inner = [label for label in summed[0].labels if label in summed[1].labels and label not in output]
    if not inner:
        a, b = (aligned(build, each, output) for each in summed)
        return build.Mul(a, b)
    product = matmul(m, build, *in_order(summed, output), "".join(inner), output, sizes)
    return permuted(build, product, output).value
