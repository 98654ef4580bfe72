"""Redundant Transposes: pairs become one, identities vanish, and the others move until they meet.

Why: a Transpose is a pass over memory that computes nothing, and it hides what is on its other side from every other
rule.  How they move, and why that ends: ``transpose_motion.py``.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite import FLOATS, Attr, Builder, Call, Match, Rejects, Rewrites, Rule, Stage, Value, Var, any_of, op, same_shape
from onnxrewrite_patterns.transpose_frames import Perm, compose, inverse, is_identity, perm_of
from onnxrewrite_patterns.transpose_motion import Region, Turning, reshaped

x = Var("x")
inner = op.Transpose(x)
outer = op.Transpose(inner)
