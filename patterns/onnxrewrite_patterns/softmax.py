"""Softmax spelled out, exp(x - max(x)) / Σ exp(x - max(x)), and Softmax of what was shifted by its maximum before.

Why: JAX, Keras and older TensorFlow exporters write the five operators, of which each reads and writes all the scores;
and Softmax subtracts the maximum itself.   Goodfellow et al., Deep Learning, 2016, section 4.1.
"""

from __future__ import annotations

from onnxrewrite import FLOATS, Attr, Builder, Match, Rejects, Rewrites, Rule, Stage, Value, Var, op

x = Var("x", dtype=FLOATS)
top_axes, sum_axes = Attr[tuple[int, ...]]("axes of the maximum"), Attr[tuple[int, ...]]("axes of the sum")
shifted = op.Sub(x, op.ReduceMax(x, axes=top_axes, keepdims=1))
powers = op.Exp(shifted)
spelled = powers / op.ReduceSum(powers, axes=sum_axes, keepdims=1)
again = op.Softmax(shifted, axis=Attr[int]("axis", default=-1))


def to_softmax(m: Match, build: Builder) -> Value:
    """exp(x - max(x)) / Σ exp(x - max(x)) ⟶ Softmax(x)."""
    axis, rank = _axis(m, m[sum_axes]), m.rank(x) or 0
    m.require(axis == _axis(m, m[top_axes]), "the sum runs along another axis than the maximum", at=spelled)
    is_last = axis == rank - 1
    m.require(is_last or build.opset >= 13, "before opset 13 Softmax runs over all axes from one on", at=spelled)
    return build.Softmax(m[x], axis=-1 if build.opset >= 13 and is_last else axis)


def unshifted(m: Match, build: Builder) -> Value:
    """Softmax(x - max(x)) ⟶ Softmax(x)."""
    rank, axis = m.rank(x), m.attr(again, "axis")
    m.require(rank is not None, "the rank is not known", at=x)
    same = axis % (rank or 1) == _axis(m, m[top_axes])
    m.require(same, "Softmax runs along another axis than the maximum", at=again)
    m.require(build.opset >= 13 or axis in (-1, (rank or 0) - 1), "Softmax runs over more than one axis", at=again)
    return build.Softmax(m[x], axis=axis)


def _axis(m: Match, axes: object) -> int:
    """The one axis that is reduced, counted from the front."""
    rank = m.rank(x)
    given = (axes,) if isinstance(axes, int) else axes
    if rank is None or not isinstance(given, tuple) or len(given) != 1:
        m.refuse("it is not one known axis that is reduced", at=x)
    return int(given[0]) % rank


_SPELLED = "t = ReduceMax<axes=[{0}]>(x)  s = Sub(x, t)  e = Exp(s)  n = ReduceSum(e, {{{1}}})  y = Div(e, n)"

SOFTMAX = Rule(
    name="softmax",
    stage=Stage.CANONICALIZE,
    pattern=spelled,
    rewrite=to_softmax,
    examples=(
        Rewrites(f"float[b,s,l] x; {_SPELLED.format(-1, 2)}", to="float[b,s,l] x; y = Softmax<axis=-1>(x)"),
        Rewrites(f"float[b,s,l] x; {_SPELLED.format(1, 1)}", to="float[b,s,l] x; y = Softmax<axis=1>(x)"),
        Rejects(f"float[b,s,l] x; {_SPELLED.format(-1, 1)}", because="another axis than the maximum"),
        Rejects(f"float[b,s,l] x; {_SPELLED.format('1,2', '1, 2')}", because="not one known axis"),
        Rejects(
            "float[b,s,l] x; t = ReduceMax<axes=[1]>(x)  s = Sub(x, t)  e = Exp(s)  n = ReduceSum<axes=[1]>(e)"
            "y = Div(e, n)",
            because="before opset 13",
            opset=11,
        ),
    ),
)

SHIFTED = Rule(
    name="softmax-of-shifted",
    stage=Stage.CANONICALIZE,
    pattern=again,
    rewrite=unshifted,
    examples=(
        Rewrites(
            "float[b,l] x; t = ReduceMax<axes=[1]>(x)  s = Sub(x, t)  y = Softmax<axis=-1>(s)",
            to="float[b,l] x; y = Softmax<axis=-1>(x)",
        ),
        Rejects(
            "float[b,l] x; t = ReduceMax<axes=[0]>(x)  s = Sub(x, t)  y = Softmax<axis=-1>(s)",
            because="another axis than the maximum",
        ),
        Rejects(
            "float[b,s,l] x; t = ReduceMax<axes=[1]>(x)  s = Sub(x, t)  y = Softmax<axis=1>(s)",
            because="more than one axis",
            opset=11,
        ),
    ),
)

RULES = (SOFTMAX, SHIFTED)
