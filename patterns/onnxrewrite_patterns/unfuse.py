"""Spellings that ONNX Runtime does not fuse, where its fusion is slower.

ONNX Runtime joins an Add with the LayerNormalization or the Gelu that alone reads it when it opens a model.  On a CPU
its SkipLayerNormalization takes up to four times as long as the two did (from ten rows on), and BiasGelu up to 1.4
times as long.  It looks for Add, so a Sum of two is left as it is.  Whether that pays is measured at each place.
"""

from __future__ import annotations

from onnxrewrite.rules import *

AHEAD = 30
"""Tried before what fuses the same nodes (``skip_norm.py``, ``bias_gelu.py``): that takes as long as before, for ONNX
Runtime would do it anyway, and so never looks slower."""

x, y = Var("x", dtype=FLOATS), Var("y", dtype=FLOATS)
total = op.Add(x, y)
norm = op.LayerNormalization(total, Var("scale"), Var("bias", default=None))
gelu = any_of(op.Gelu(total), microsoft["Gelu", "FastGelu"](total))


def of_sum(m: Match, build: Builder, call: Call) -> Value:
    """The node of ``call`` over a Sum in place of the Add."""
    return build.again(m.node(call), build.Sum(m[x], m[y]))[0]


@rule(
    "add-before-norm",
    LOWER,
    norm,
    benefit=AHEAD,
    needs_speedup=True,
    examples=(
        Rewrites(
            "float[b,s,8] x; float[b,s,8] y; a = Add(x, y)  z = LayerNormalization<axis=-1, epsilon=1e-12>(a, w, b)",
            to="float[b,s,8] x; float[b,s,8] y; a = Sum(x, y)  z = LayerNormalization<axis=-1, epsilon=1e-12>(a, w, b)",
        ),
        Rejects(
            "(float[b,s,8] x, float[b,s,8] y, float[8] w) => (z, u)"
            " { a = Add(x, y)  z = LayerNormalization(a, w)  u = Relu(a) }",
            because="also used by Relu",
        ),
        Rejects("float[b,s,8] x; a = Sub(x, y)  z = LayerNormalization(a, w)", because="expected"),
    ),
)
def add_before_norm(m: Match, build: Builder) -> Value:
    """LayerNormalization(x + y) ⟶ LayerNormalization(Sum(x, y)), which stays two nodes."""
    return of_sum(m, build, norm)


@rule(
    "add-before-gelu",
    LOWER,
    gelu,
    benefit=AHEAD,
    needs_speedup=True,
    examples=(
        Rewrites(
            "float[s,8] x; a = Add(x, b)  z = com.microsoft.Gelu(a)",
            to="float[s,8] x; a = Sum(x, b)  z = com.microsoft.Gelu(a)",
        ),
        Rewrites(
            'float[s,8] x; a = Add(b, x)  z = Gelu<approximate = "tanh">(a)',
            to='float[s,8] x; a = Sum(b, x)  z = Gelu<approximate = "tanh">(a)',
            opset=20,
        ),
        Rejects("float[s,8] x; a = Add(x, b)  z = Gelu(a)", because="lowered first"),
    ),
)
def add_before_gelu(m: Match, build: Builder) -> Value:
    """Gelu(x + y) ⟶ Gelu(Sum(x, y)), which stays two nodes."""
    call = m.alternative(gelu)
    assert isinstance(call, Call)
    m.require(not m.is_newer(call), "it has to be lowered first")
    return of_sum(m, build, call)
