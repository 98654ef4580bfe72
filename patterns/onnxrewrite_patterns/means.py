"""Means: a sum divided by its count, a product with a column of equal parts, a pooling, all as ReduceMean.

Why: the rules about normalizations know the mean as ReduceMean, and ONNX Runtime has one kernel for it; a
GlobalAveragePool stays where it pools a picture, for there it runs in the blocked layout of the convolutions before it,
and a mean over a picture's axes becomes one, the view after it besides.
"""

from __future__ import annotations

import math

from onnxrewrite.rules import *

x = Var("x", dtype=FLOATS)
part = Scalar("one part")
total = AnyNode(op_types=("ReduceSum", "ReduceSumSquare"))
mean_of_sum = total * part


@rule(
    "mean-of-sum",
    RAISE,
    mean_of_sum,
    examples=(
        Rewrites(
            "float[n,4] x; s = ReduceSum(x, {1})  y = Div(s, 4.0)", to="float[n,4] x; y = ReduceMean<axes=[1]>(x)"
        ),
        Rewrites(
            "float[n,2,4] x; s = ReduceSum<keepdims=0>(x, {-1, 1})  y = Mul(s, 0.125)",
            to="float[n,2,4] x; y = ReduceMean<axes=[1,2], keepdims=0>(x)",
        ),
        Rewrites(
            "float[n,4] x; s = ReduceSum<keepdims=0>(x, {1})  y = Div(s, 4.0)",
            to="float[n,4] x; y = ReduceMean<axes=[1], keepdims=0>(x)",
        ),
        Rewrites(
            "float[n,4] x; s = ReduceSumSquare<axes=[1]>(x)  y = Div(s, 4.0)",
            to="float[n,4] x; q = Mul(x, x)  y = ReduceMean<axes=[1]>(q)",
        ),
        Rejects("float[n,4] x; s = ReduceSum(x, {1})  y = Div(s, 3.0)", because="not the part of one of 4"),
        Rejects("float[n,4] x; s = ReduceSum(x, {0})  y = Div(s, 4.0)", because="is not known how many"),
        Rejects(
            "float[n,4] x; s = ReduceSum(x, {1})  y = Div(s, float[1,1,1] {4.0})",
            because="more dimensions than the sum",
        ),
        Rejects("int32[n,4] x; s = ReduceSum(x, {1})  y = Div(s, 4)", because="expected a product"),
    ),
)
def mean_from_sum(m: Match, build: Builder) -> Value:
    """ReduceSum(x)/n ⟶ ReduceMean(x), where n elements are added up, and ReduceSumSquare(x)/n ⟶ ReduceMean(x·x)."""
    found = reduce_of(m.facts, m.node(total))
    if isinstance(found, str):
        m.refuse(found)
    dtype = m.dtype(found.source)
    m.require(dtype in FLOATS, "what is added up is no float", at=found.source)
    m.require(m.rank(m.anchor) == m.rank(total), "the divisor has more dimensions than the sum")
    require_part(m, found.source, found.axes, m[part])
    is_of_squares = m.node(total).op_type == "ReduceSumSquare"
    source = build.Mul(found.source, found.source) if is_of_squares else found.source
    return mean(m, build, source, found.axes, found.keepdims)


def require_part(m: Match, source: Value, axes: tuple[int, ...], share: float) -> None:
    """Refuse unless ``share`` is one by the number of elements along these axes, which has to be known."""
    shape = m.shape(source) or ()
    sizes = [d for a in axes if isinstance(d := shape[a], int)]
    count = math.prod(sizes)
    m.require(axes and len(sizes) == len(axes) and count, "it is not known how many are added up", at=source)
    dtype = m.dtype(source)
    assert dtype is not None
    m.require(abs(share * count - 1) <= epsilon(dtype), f"{share:g} is not the part of one of {count}")


def mean(m: Match, build: Builder, source: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """A ReduceMean."""
    return build.node("ReduceMean", [source], {"axes": sorted(axes)} | ({} if keepdims else {"keepdims": 0}))[0]


column = Const("column")
product = op.MatMul(x, column)


@rule(
    "mean-of-product",
    RAISE,
    product,
    assumes=(Assumption.IN_RANGE,),  # a mean divides after the sum
    examples=(
        Rewrites(
            "float[b,n,4] x; y = MatMul(x, float[4,1] {0.25, 0.25, 0.25, 0.25})",
            to="float[b,n,4] x; y = ReduceMean<axes=[2]>(x)",
        ),
        Rejects("float[n,2] x; y = MatMul(x, float[2,1] {0.5, 0.6})", because="not equal parts"),
        Rejects("float[n,2] x; y = MatMul(x, float[2,1] {0.25, 0.25})", because="not the part of one of 2"),
        Rejects("float[n,1] x; y = MatMul(x, float[1,1] {1.0})", because="not a column of several"),
        Rejects("float[n,2] x; y = MatMul(x, float[2,2] {0.5, 0.5, 0.5, 0.5})", because="not a column"),
    ),
)
def mean_from_product(m: Match, build: Builder) -> Value:
    """MatMul(x, {1/n, …, 1/n}) ⟶ ReduceMean(x) along the last axis."""
    shape, rank = m.shape(column) or (), m.rank(x)  # first, for a large weight is not to be read
    m.require(len(shape) == 2 and shape[1] == 1 and shape[0] not in (0, 1), "it is not a column of several", at=column)
    weight = m[column]
    m.require((weight == weight[0]).all(), "they are not equal parts", at=column)
    m.require(rank is not None and rank > 1, "x is not shown to be a matrix", at=x)
    assert rank is not None
    require_part(m, m[x], (rank - 1,), float(weight[0, 0]))
    return mean(m, build, m[x], (rank - 1,), keepdims=True)


pool = op.GlobalAveragePool(x)


@rule(
    "mean-of-pool",
    RAISE,
    pool,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites("float[b,n,4] x; y = GlobalAveragePool(x)", to="float[b,n,4] x; y = ReduceMean<axes=[2]>(x)"),
        Rewrites(
            "float[b,n,4,4] x; p = GlobalAveragePool(x)  y = Sub(x, p)",
            to="float[b,n,4,4] x; p = ReduceMean<axes=[2,3]>(x)  y = Sub(x, p)",
        ),
        Rejects("float[b,n,4,4] x; y = GlobalAveragePool(x)", because="it pools a picture"),
    ),
)
def mean_from_pool(m: Match, build: Builder) -> Value:
    """GlobalAveragePool(x) ⟶ ReduceMean(x) of one axis, or where a normalization needs it."""
    rank = m.rank(x)
    m.require(rank == 3 or (rank == 4 and is_of_normalization(m[x], m.anchor)), "it pools a picture", at=x)
    return mean(m, build, m[x], tuple(range(2, rank or 0)), keepdims=True)


def is_of_normalization(source: Value, average: Value) -> bool:
    """True for a mean that what it is of is centred by, or that is one of squares."""
    centred = (n for n in readers(average, within=1) if n.op_type == "Sub" and source in inputs_of(n))
    square = made_by(source, "Mul", "Pow")
    is_square = square is not None and (square.op_type == "Pow" or len(set(inputs_of(square))) == 1)
    return is_square or next(centred, None) is not None


of_picture = AnyNode(op_types=("ReduceMean",))


@rule(
    "pool-of-picture",
    RAISE,
    of_picture,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites("float[b,n,4,4] x; y = ReduceMean<axes=[-1,-2]>(x)", to="float[b,n,4,4] x; y = GlobalAveragePool(x)"),
        Rewrites(
            "float[b,n,4,4] x; y = ReduceMean<axes=[2,3], keepdims=0>(x)",
            to="float[b,n,4,4] x; p = GlobalAveragePool(x)  y = Squeeze(p, {2, 3})",
        ),
        Rejects("float[b,n,4,4] x; m = ReduceMean<axes=[2,3]>(x)  y = Sub(x, m)", because="belongs to a normalization"),
        Rejects("float[b,n,4,4] x; y = ReduceMean<axes=[1,2]>(x)", because="not those of a picture"),
        Rejects("float[b,n,4] x; y = ReduceMean<axes=[2]>(x)", because="not those of a picture"),
    ),
)
def pool_from_mean(m: Match, build: Builder) -> Value:
    """ReduceMean(x, axes={2, 3}) ⟶ GlobalAveragePool(x) of a picture."""
    found = reduce_of(m.facts, m.node(of_picture))
    if isinstance(found, str):
        m.refuse(found)
    m.require(m.dtype(found.source) in FLOATS, "x is no float", at=found.source)
    m.require(m.rank(found.source) == 4 and sorted(found.axes) == [2, 3], "the axes are not those of a picture")
    m.require(not is_of_normalization(found.source, m.anchor), "it belongs to a normalization", at=found.source)
    made: Value = build.GlobalAveragePool(found.source)
    return made if found.keepdims else build.Squeeze(made, axes=(2, 3))
