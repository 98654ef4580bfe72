"""Every rule of the library up the ladder."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from library import LIBRARY, RULES, seeds_of

from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.fuzz import fuzz, starts
from onnxrewrite.runtime.installed import saturates

COUNT = 8
"""Fewer graphs than ``onnxrewrite verify`` tries."""


INEXACT = {"gelu-six-digits", "quantized-table", "relu-into-quantize"}
"""Of a number that is only nearly what is meant, of the range of an integer, and of what rounding makes of each integer,
exact arithmetic has nothing to say."""


def multiplies_bytes(node: ir.Node) -> bool:
    """Whether a kernel adds up products of uint8 and int8, in 16 bits where there are no 8-bit dot products."""
    dtypes = {v.dtype for v in node.inputs if v is not None}
    return "Quantize" not in node.op_type.removeprefix("Dynamic") and dtypes >= {ir.DataType.UINT8, ir.DataType.INT8}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_climbs_the_ladder(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "each_seed", lambda rule, library: seeds_of(rule.name))  # which are the same
    verdict = fuzz(rule, LIBRARY, count=COUNT)
    found = verdict.counterexample
    if found is not None and saturates() and any(map(multiplies_bytes, found.after.graph)):
        pytest.skip(f"products of uint8 and int8 saturate on this processor, as they do here: {found.reason}")
    assert verdict.passed, found.reason if found is not None else verdict
    assert verdict.exact or rule.name in INEXACT, "some instance of every rule is equal in exact arithmetic"
