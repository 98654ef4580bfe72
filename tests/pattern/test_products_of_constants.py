"""Constants that are the product of others, as the scale of a quantized bias is."""

from __future__ import annotations

import pytest

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.numbers import is_product


@pytest.mark.parametrize(
    ("whole", "one", "other", "expected"),
    [
        ("{0.25, 0.125}", "0.5", "{0.5, 0.25}", True),
        ("{0.25, 0.126}", "0.5", "{0.5, 0.25}", False),
        ("0.25", "0.5", "{0.5, 0.5}", False),  # one number for two
        ("{0.25, 0.25}", "{0.5, 0.5}", "{0.5, 0.5, 0.5}", False),  # shapes of which there is no product
        ("0.25", "s", "0.5", False),  # unknown
    ],
)
def test_a_product_of_two(whole: str, one: str, other: str, expected: bool) -> None:
    model = text.parse(f"float s; a = Add(s, {whole})  b = Add(s, {one})  c = Add(s, {other})", opset=17)
    constants = [node.inputs[1] for node in model.graph]
    assert is_product(Facts(model.graph, dict(model.opset_imports)), *constants) is expected
