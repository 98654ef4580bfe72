"""Resize to a multiple of its own size, said as a factor.

Where it comes from: ``interpolate(x, size=(2 * h, 2 * w))``, whose sizes an exporter computes from those of x.

Why: a constant factor takes the place of the arithmetic with sizes.  The factor is a whole number, and so the same in
either spelling: ONNX divides the sizes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

x, roi, sizes = Var("x"), Var("roi", default=None), Var("sizes", rank=1)
resize = op.Resize(x, roi, None, sizes)

LARGEST = 16
"""No factor beyond this one is looked for."""


def _factor(own: Dim, wanted: Dim) -> int | None:
    """The whole factor by which a dimension is to grow; None if none is known."""
    if isinstance(own, int) and own > 0 and isinstance(wanted, int):
        return wanted // own if wanted % own == 0 and wanted >= own else None
    return next((k for k in range(1, LARGEST + 1) if same_dim(own * k, wanted)), None)


_SIZES = "s = Shape(x)  a = Slice(s, {0}, {2}, {0})  b = Slice(s, {2}, {4}, {0})  "
_TWICE = "c = Mul(b, {2, 2})  d = Concat<axis=0>(a, c)  "


@rule(
    "resize-by-factors",
    CANONICALIZE,
    resize,
    examples=(
        Rewrites(
            f'float[n,3,h,w] x; {_SIZES}{_TWICE} y = Resize<mode="linear">(x, , , d)',
            to='float[n,3,h,w] x; y = Resize<mode="linear">(x, , {1.0, 1.0, 2.0, 2.0})',
        ),
        Rejects(
            f"float[n,3,h,w] x; {_SIZES} c = Add(b, {{2, 2}})  d = Concat<axis=0>(a, c)  y = Resize(x, , , d)",
            because="not known to be multiples",
        ),
        Rejects("float[n,3,4,4] x; y = Resize(x, , , {1, 3, 8, 8})", because="constant already"),
        Rejects(
            f'float[n,3,h,w] x; {_SIZES}{_TWICE} y = Resize<keep_aspect_ratio_policy="not_larger">(x, , , d)',
            because="not every axis",
            opset=18,
        ),
    ),
)
def resize_by_factors(m: Match, build: Builder) -> Value:
    """Resize(x, sizes = k·shape(x)) ⟶ Resize(x, scales = k)."""
    m.require(m.facts.tensor(m[sizes]) is None, "the sizes are constant already", at=sizes)
    attributes = m.attrs(resize)
    m.require(attributes.get("coordinate_transformation_mode") != "tf_crop_and_resize", "it crops, too", at=resize)
    stretches = attributes.pop("keep_aspect_ratio_policy", "stretch") == "stretch" and not attributes.get("axes")
    m.require(stretches, "not every axis has a size of its own", at=resize)
    source, wanted = m.shape(x), m.facts.elements(m[sizes])
    if source is None or wanted is None or len(source) != len(wanted):
        m.refuse("the sizes are not known to be multiples of those of x", at=sizes)
    factors = [_factor(own, other) for own, other in zip(source, wanted, strict=True)]
    m.require(None not in factors, "the sizes are not known to be multiples of those of x", at=sizes)
    scales = build.const(np.array(factors, np.float64), like=ir.DataType.FLOAT)
    return build.node("Resize", [m[x], m.value(roi), scales], attributes)[0]
