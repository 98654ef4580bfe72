"""What a node has been through."""

from __future__ import annotations

import pytest

from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.explanation.history import Story, story
from onnxrewrite.ir import schema, text
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver

GELU = "float[n,8] x; d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)"


def told(graph: str, name: str) -> Story:
    model = text.parse(graph, opset=17)
    schema.date(model)
    original = io.load(model)
    driver = Driver(io.load(original), list(registry.load(plugins=False)), target("onnxruntime-cpu"))
    return story(original, driver.model, driver.run(), name)


def test_a_node_that_rules_made() -> None:
    found = told(GELU, "y")
    assert (found.operator, found.is_there, found.rules) == ("Gelu", True, ("gelu-erf", "gelu-lower"))
    assert len(found.origin) == 5
    assert [s.rule for s in found.steps] == ["gelu-erf", "gelu-lower"]


def test_a_node_that_a_rule_took() -> None:
    found = told(GELU, "e")
    assert (found.operator, found.is_there) == ("Erf", False)
    assert [(s.rule, s.made, s.after) for s in found.steps] == [("gelu-erf", False, ("Gelu",))]


def test_a_node_that_a_rule_refused() -> None:
    found = told(f"{GELU}  z = Relu(e)", "y")
    assert found.steps == ()
    assert "is also used by Relu" in found.refused["gelu-erf"]


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(UsageError, match="no node and no value is called 'nobody'"):
        told(GELU, "nobody")
