"""A replacement may not ask of its operands what the original does not."""

from __future__ import annotations

import pytest

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.rewrite.fitting import misfit

GIVEN = "float[n,4] a; float[m,4] b; float[k,4] c; float[4] v; float[4,n] t; bool[1] is_on;"

SHOWN = [
    ("p = Add(a, b)", "y = Mul(b, a)"),
    ("p = Add(a, b)  q = Add(p, c)", "s = Add(b, c)  y = Add(a, s)"),  # all three meet along one axis
    ("p = Add(a, b)  q = Relu(p)  r = Add(q, c)", "y = Add(a, c)"),
    ("p = Relu(a)", "y = Add(a, v)"),
    ("p = MatMul(a, t)", "y = MatMul(a, t)"),
    ("p = Relu(a)", "y = MatMul(t, a)"),  # both are n
    ("p = Relu(a)", "y = Where(is_on, a, v)"),
    ("p = MatMul(a, t, t)", "y = MatMul(a, t, t)"),  # which legality refuses, and tells
    ("p = Gemm(a, t, b)", "s = MatMul(a, t)  y = Add(s, b)"),  # what Gemm asks is not known here
]

NOT_SHOWN = [
    ("p = Relu(a)", "y = Add(a, b)", "Add takes sizes that are not shown to fit: n and m"),
    ("i = Shape(t)  p = Reshape(a, i)", "y = Add(a, b)", "Add takes sizes that are not shown to fit: n and m"),
    ("p = Relu(a)", "y = MatMul(a, c)", "MatMul takes sizes that are not shown to fit: 4 and k"),
    ("p = Add(a, b)  q = Add(b, c)", "y = Add(a, c)", "Add takes sizes that are not shown to fit: n and k"),
    ("p = Relu(a)", "r = Relu(b)  s = Add(r, v)  y = Mul(a, s)", "Mul takes sizes that are not shown to fit: n and m"),
    ("p = Relu(a)", "s = Concat<axis=0>(a, a)  y = Add(a, s)", "Add takes sizes that are not shown to fit: n and 2*n"),
]


def told(before: str, after: str) -> str | None:
    nodes = [*(model := text.parse(f"{GIVEN} {before}  {after}", opset=18)).graph]
    facts = Facts(model.graph, dict(model.opset_imports))
    for node in nodes:
        facts.infer(node)
    count = before.count(" = ")
    return misfit(nodes[:count], nodes[count:], facts)


@pytest.mark.parametrize(("before", "after"), SHOWN)
def test_sizes_that_fit_in_the_original_fit(before: str, after: str) -> None:
    assert told(before, after) is None


@pytest.mark.parametrize(("before", "after", "expected"), NOT_SHOWN)
def test_other_sizes_have_to_be_shown_to_fit(before: str, after: str, expected: str) -> None:
    assert told(before, after) == expected
