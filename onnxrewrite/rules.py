"""Everything that rules are written with: ``from onnxrewrite.rules import *`` is the one import of a rule file."""

from __future__ import annotations

from onnx_ir import Value

from onnxrewrite.ir.custom import CustomOp, use_custom_ops
from onnxrewrite.ir.dims import Dim, at_least, is_cut_to, same_dim
from onnxrewrite.ir.einsum import einsum_labels
from onnxrewrite.ir.facts import Facts, same_shape
from onnxrewrite.ir.min_cut import Cut
from onnxrewrite.ir.operators import TRAITS, operators
from onnxrewrite.pattern.look import parameter, passed, resolve
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.numbers import epsilon
from onnxrewrite.pattern.terms import (
    FLOATS,
    INTS,
    SQRT2,
    AnyNode,
    Attr,
    Call,
    Const,
    Each,
    Operators,
    Scalar,
    Term,
    Var,
    any_of,
    microsoft,
    op,
)
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rewrite.registry import rules_of
from onnxrewrite.rewrite.rule import (
    CANONICALIZE,
    LOWER,
    RAISE,
    Assumption,
    Rejects,
    Rewrites,
    Rule,
    Stage,
    rule,
)
from onnxrewrite.rewrite.ruleset import RuleSet

__all__ = [
    "CANONICALIZE",
    "FLOATS",
    "INTS",
    "LOWER",
    "RAISE",
    "SQRT2",
    "TRAITS",
    "AnyNode",
    "Assumption",
    "Attr",
    "Builder",
    "Call",
    "Const",
    "CustomOp",
    "Cut",
    "Dim",
    "Each",
    "Facts",
    "Match",
    "Operators",
    "Rejects",
    "Rewrites",
    "Rule",
    "RuleSet",
    "Scalar",
    "Stage",
    "Term",
    "Value",
    "Var",
    "any_of",
    "at_least",
    "einsum_labels",
    "epsilon",
    "is_cut_to",
    "microsoft",
    "op",
    "operators",
    "parameter",
    "passed",
    "resolve",
    "rule",
    "rules_of",
    "same_dim",
    "same_shape",
    "use_custom_ops",
]
