"""Graphs grown from patterns: whatever is drawn fits together, or is turned down with a reason."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from library import LIBRARY

from onnxrewrite.ir import text
from onnxrewrite.ruletest.fuzz.generation import attempts
from onnxrewrite.ruletest.fuzz.standard import is_standard
from onnxrewrite.ruletest.metamorphic.mutants import with_facts

SLICING = ("rotary", "slices-into-split", "pad-into-conv", "slice-of-slice", "transpose-motion")
"""Rules whose patterns cut and pad: the size of what comes of it can be anything."""

NAMED = {rule.name: rule for rule in LIBRARY}


@pytest.mark.slow
@pytest.mark.parametrize("name", SLICING)
def test_no_draw_breaks_off(name: str) -> None:
    """A slice or a padding of a negative size has no indices to gather, and is no graph."""
    made = list(attempts(NAMED[name], 100))
    graphs = [m for m in made if isinstance(m, ir.Model)]
    assert graphs
    assert all(isinstance(m, str) and m for m in made if not isinstance(m, ir.Model))
    sizes = [d for g in graphs for n in g.graph for o in n.outputs for d in o.shape or () if isinstance(d, int)]
    assert min(sizes) > 0


@pytest.mark.parametrize(
    ("graph", "allowed"),
    [
        ("float[2,5,6] q; y = Attention<q_num_heads=2, kv_num_heads=2>(q, q, q)", True),
        ("float[2,3,5,5] q; y = Attention(q, q, q)", True),
        ("float[2,3,5,5] q; y = Attention<q_num_heads=1, kv_num_heads=1>(q, q, q)", False),
        ("float[2,3,5,5] x; y = AveragePool<kernel_shape=[5, 5], strides=[2, 2]>(x)", True),
        ("float[2,3,5,5] x; y = AveragePool<kernel_shape=[1, 6], strides=[2, 2]>(x)", False),
        ("float[2,3,0,5] x; y = AveragePool<kernel_shape=[1, 1]>(x)", True),
    ],
)
def test_attributes_that_do_not_fit_an_operand_are_not_standard(graph: str, allowed: bool) -> None:
    assert is_standard(with_facts(text.parse(graph, opset=23))) == allowed
