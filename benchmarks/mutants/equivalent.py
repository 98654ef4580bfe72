"""Mutants in which the change makes no difference, and why: they were looked at one by one."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {
    "gelu-lower: term 1, x: of any dtype": "Gelu itself takes no other dtype",
    "swish: term 2, x: of any dtype": "Sigmoid takes no other dtype",
    "pad-into-max-pool: term 5, Clip(z, min=floor, max=ceiling): operand 0 need not be the same z": "z stands in alternatives, of which one matches",
    'gelu-lower: without gelu.to_microsoft_gelu: m.require(m.is_newer(gelu), "the model\'s own opset has Gelu")': "a guard of taste: either operator is right",
    "extremum-of-extremum: without clamps.one_extremum: m.require(merged.nbytes <= max(m[c].nbytes, m[d].nbytes, 4096), 'the constant would be larger than both')": "a guard of taste: it keeps constants small",
    "squeeze-unsqueeze: built Unsqueeze: axes in reverse order": "the axes of Unsqueeze are a set",
}
"""A mutant's name to the reason."""
