"""Verdicts on what a replacement makes where the original overflows."""

from __future__ import annotations

import numpy as np
import pytest

from onnxrewrite.ir.text import parse
from onnxrewrite.reference.judgement import Judge
from onnxrewrite.runtime.session import as_proto, open_session

SQUARES = "float[2] x;  float[2] z;  p = Mul(x, x)  q = Mul(z, z)"


def difference(before: str, after: str, x: float, z: float) -> str | None:
    """At one number that overflows, beside one that does not."""
    old, new = (as_proto(parse(lines, opset=17)) for lines in (before, after))
    session = open_session(old, threads=1)
    assert not isinstance(session, str)
    feeds = {"x": np.array([x, 3.0], np.float32), "z": np.array([z, 1.0], np.float32)}
    return Judge(old, session).difference(open_session(new, threads=1), feeds)


@pytest.mark.parametrize(
    ("instead", "x", "z", "is_right"),
    [
        ("{-inf}", 1e30, 1e29, True),  # the truth is beyond float32, and the sign of it unknown to the kernel
        ("{-inf}", 1e30, 1e30, True),  # the truth is zero
        ("{0.0}", 1e30, 1e30, True),
        ("{5.0}", 1e30, 1e29, False),
    ],
)
def test_an_infinity_is_no_worse_than_nan(instead: str, x: float, z: float, is_right: bool) -> None:
    before = f"{SQUARES}  y = Sub(p, q)"
    after = f"{SQUARES}  d = Sub(p, q)  i = IsNaN(d)  y = Where(i, {instead}, d)"
    assert (difference(before, after, x, z) is None) == is_right


def test_nan_is_worse_than_an_infinity() -> None:
    before = f"{SQUARES}  y = Identity(p)"
    after = f"{SQUARES}  i = IsInf(p)  y = Where(i, {{nan}}, p)"
    assert difference(before, after, 1e30, 0.0)
