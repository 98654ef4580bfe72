"""Graphs that ONNX Runtime takes, or would in a later opset, and that are not valid by the standard."""

from __future__ import annotations

import pytest

from onnxrewrite.ir import text
from onnxrewrite.ruletest.fuzz.standard import is_standard
from onnxrewrite.ruletest.metamorphic.mutants import with_facts


@pytest.mark.parametrize(
    ("graph", "opset"),
    [
        ("float[n] x; d, k = Dropout(x)  y = Cast<to=1>(k)", 9),
        ("float[n] x; d, k = Dropout(x)  y = Not(k)", 13),
        ("float[n] x; y = Clip<max=1.0>(x)", 10),
        ("float[n] x; y = Cast<to=17,saturate=0>(x)", 19),
        ("float[n,2,w] x; y = InstanceNormalization(x, {0.0, 1.0}, {0.0, 0.5})", 17),
    ],
)
def test_valid(graph: str, opset: int) -> None:
    assert is_standard(with_facts(text.parse(graph, opset=opset)))


@pytest.mark.parametrize(
    ("graph", "opset"),
    [
        ("float[n] x; d, k = Dropout(x)  y = Not(k)", 9),
        ("float[n] x; y = Clip<max=1.0>(x, -1.0)", 13),
        ("float[n] x; y = Cast<to=10,saturate=0>(x)", 19),
        ("float[n,2,w] x; y = InstanceNormalization(x, {0.0, 1.0}, float[1,2] {0.0, 0.5})", 17),
    ],
)
def test_not_valid(graph: str, opset: int) -> None:
    assert not is_standard(with_facts(text.parse(graph, opset=opset)))
