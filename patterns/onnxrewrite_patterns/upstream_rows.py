"""Rows that nobody reads: one token of each sequence is picked before anything is computed of it, not afterwards.

Where it comes from: ``hidden[arange(batch), position]``, as text encoders (CLIP), rerankers and classifiers by decoders
have it that read the last token which is no padding.  PyTorch's exporters write GatherND, or Flatten and Gather.

Why: see ``upstream_picks``.  Here a row of one place along all axes but the last one is picked, so what it moves above
computes rows: normalizations, products with weights, and what is computed element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from onnxrewrite.rules import *

x, places = Var("x", dtype=FLOATS), Var("places")
by_tuples = op.GatherND(x, places, batch_dims=0)
flat = op.Flatten(x, axis=Attr[int]("axis", default=1))
by_number = op.Gather(flat, places, axis=0)
picked = any_of(by_tuples, by_number)

_ROWS = "float[b,s,8] x; int64[b,2] i;"


@rule(
    "pick-rows-upstream",
    RAISE,
    picked,
    assumes=(Assumption.NOT_EMPTY, Assumption.IN_RANGE),
    examples=(
        Rewrites(
            f"{_ROWS} float[8] w; n = LayerNormalization(x, w)  y = GatherND(n, i)",
            to=f"{_ROWS} float[8] w; t = GatherND(x, i)  y = LayerNormalization<axis=1>(t, w)",
        ),
        Rewrites(
            f"{_ROWS} float[8,4] w; float[b,s,4] z; p = MatMul(x, w)  a = Add(z, p)  y = GatherND(a, i)",
            to=f"{_ROWS} float[8,4] w; float[b,s,4] z; u = GatherND(z, i)  t = GatherND(x, i)  p = MatMul(t, w)"
            "y = Add(u, p)",
        ),
        Rewrites(
            "float[b,s,8] x; int64[b] i; float[8] c; a = Mul(x, c)  f = Flatten<axis=2>(a)  y = Gather(f, i)",
            to="float[b,s,8] x; int64[b] i; float[8] c; f = Flatten<axis=2>(x)  t = Gather(f, i)  y = Mul(t, c)",
        ),
        Rewrites(
            f"{_ROWS} n = Clip(x, , 2.0)  y = GatherND(n, i)", to=f"{_ROWS} t = GatherND(x, i)  y = Clip(t, , 2.0)"
        ),
        Rewrites(
            f"{_ROWS} n = Softmax(x)  y = GatherND(n, i)", to=f"{_ROWS} t = GatherND(x, i)  y = Softmax<axis=1>(t)"
        ),
        Rejects(
            f"{_ROWS} float[8] w; n = LayerNormalization(x, w)  t = GatherND(n, i)  r = Relu(n)"
            "s = ReduceMax<axes=[1], keepdims=0>(r)  y = Add(s, t)",
            because="read elsewhere",
        ),
        Rejects(f"{_ROWS} n = CumSum(x, 2)  y = GatherND(n, i)", because="may need more"),
        Rejects(f"{_ROWS} float[s,8] w; n = Mul(x, w)  y = GatherND(n, i)", because="neither a row nor all"),
        Rejects(
            f"{_ROWS} float[s,8] w; n = LayerNormalization<axis=1>(x, w)  y = GatherND(n, i)", because="several axes"
        ),
        Rejects("float[b,s,8] x; int64[m,2] i; n = Relu(x)  y = GatherND(n, i)", because="not known to be few"),
        Rejects("float[b,s,8] x; int64[b,1] i; n = Relu(x)  y = GatherND(n, i)", because="no rows"),
        Rejects("float[b,s,8] x; int64[b] i; a = Relu(x)  f = Flatten<axis=1>(a)  y = Gather(f, i)", because="no rows"),
    ),
)
def pick_rows_upstream(m: Match, build: Builder) -> Value:
    """f(x)[i, j] ⟶ f(x[i, j]), where f computes rows, each of one row."""
    rank, numbers = m.rank(x) or 0, m.shape(places) or ()
    m.require(rank > 1 and bool(numbers), "the rank is not known", at=x)
    tuples = by_tuples in m
    rows = numbers[-1] == rank - 1 if tuples else m.axis(m.node(flat), rank) == rank - 1
    m.require(rows, "what is picked are no rows", at=places)
    few = len(numbers) == 1 + tuples and rank > 2 and same_dim(numbers[0], m.dim(x, 0) or 0)
    m.require(few, "what is picked is not known to be few", at=places)
    maker = made_by(m[x], *_BY_ROW)
    if maker is None:
        m.refuse("what is picked from may need more than the rows that are picked", at=x)
    m.require(is_read_once(m[x]), "what is picked from is read elsewhere, too", at=x)
    read = _BY_ROW[maker.op_type](m, maker)
    m.cover(maker)

    def pick(value: Value) -> Value:
        rows: Value = value if tuples else build.Flatten(value, axis=rank - 1)
        result: Value = build.GatherND(rows, m[places]) if tuples else build.Gather(rows, m[places])
        return result

    operands = [input_of(maker, i) for i in range(max(read) + 1)]  # others stay where they are
    inputs = [pick(v) if i in read and v is not None else v for i, v in enumerate(operands)]
    along = {"axis": 1} if TRAITS[maker.op_type].kind in ("normalize", "softmax") else {}
    return build.again(maker, *inputs, **along)[0]


def _first(m: Match, node: ir.Node) -> set[int]:
    return {0}


def _last_axis(m: Match, node: ir.Node) -> set[int]:
    """Of what is computed along the last axis alone."""
    m.require(m.axis(node, m.rank(x)) == (m.rank(x) or 0) - 1, "it is computed along several axes", at=x)
    return {0}


def _rows(m: Match, node: ir.Node) -> set[int]:
    """Of operands that are broadcast: those of all rows; others are one row, or a number."""
    read = set()
    for index, value in enumerate(inputs_of(node)):
        shape = m.shape(value)
        whole = same_shape(shape and shape[:-1], (m.shape(x) or ())[:-1])
        m.require(
            whole or (shape is not None and len(shape) < 2), "an operand is neither a row nor all of them", at=value
        )
        read |= {index} if whole else set()
    return read


def _product(m: Match, node: ir.Node) -> set[int]:
    m.require(
        m.rank(m.operand(node, 1)) == 2 and m.rank(m.operand(node)) == m.rank(x), "it is no product of rows", at=x
    )
    return {0}


_BY_ROW: Mapping[str, Callable[[Match, ir.Node], set[int]]] = {
    **dict.fromkeys(operators("pointwise"), _first),
    **dict.fromkeys(operators("broadcast"), _rows),
    **dict.fromkeys(operators("softmax", but="Hardmax"), _last_axis),
    "LayerNormalization": _last_axis,
    "MatMul": _product,
    "RMSNormalization": _last_axis,
}
"""Operators that compute rows, and the inputs of which a row is needed for one."""
