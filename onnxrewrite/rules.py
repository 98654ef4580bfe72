"""Everything that rules are written with: ``from onnxrewrite.rules import *`` is the one import of a rule file."""

from __future__ import annotations

from onnx_ir import Value

from onnxrewrite.ir.custom import CustomOp, use_custom_ops
from onnxrewrite.ir.dims import FAR, Dim, at_least, is_cut_to, is_one_of, is_window_to, quotient, same_dim, size_where
from onnxrewrite.ir.einsum import einsum_labels
from onnxrewrite.ir.facts import Facts, same_shape
from onnxrewrite.ir.graph import topological
from onnxrewrite.ir.min_cut import Cut
from onnxrewrite.ir.operators import TRAITS, operators
from onnxrewrite.ir.splat import fill_of, uniform
from onnxrewrite.ir.views import (
    END,
    Gather,
    Piece,
    Reduce,
    Slice,
    Span,
    axes_of,
    axis_of,
    gather_of,
    input_of,
    inputs_of,
    named_input,
    parameter,
    permutation,
    piece_of,
    reduce_of,
    slice_of,
    unit_axes,
)
from onnxrewrite.pattern.blocks import Body, Outer, Repeat
from onnxrewrite.pattern.look import passed, resolve
from onnxrewrite.pattern.magnitude import magnitude, nonnegative_by
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.numbers import epsilon, is_product
from onnxrewrite.pattern.paths import (
    NodePath,
    is_read_once,
    leaks,
    made_by,
    need_outside,
    needed_for,
    only_reader,
    path,
    path_through,
    readers,
    siblings,
    upstream,
)
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
from onnxrewrite.rewrite.reshape import new_axes, reshape_target, reshaped_as, reshaped_to
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
from onnxrewrite.rewrite.trace import written_by
from onnxrewrite.system.arrays import Array

__all__ = [
    "CANONICALIZE",
    "END",
    "FAR",
    "FLOATS",
    "INTS",
    "LOWER",
    "RAISE",
    "SQRT2",
    "TRAITS",
    "AnyNode",
    "Array",
    "Assumption",
    "Attr",
    "Body",
    "Builder",
    "Call",
    "Const",
    "CustomOp",
    "Cut",
    "Dim",
    "Each",
    "Facts",
    "Gather",
    "Match",
    "NodePath",
    "Operators",
    "Outer",
    "Piece",
    "Reduce",
    "Rejects",
    "Repeat",
    "Rewrites",
    "Rule",
    "RuleSet",
    "Scalar",
    "Slice",
    "Span",
    "Stage",
    "Term",
    "Value",
    "Var",
    "any_of",
    "at_least",
    "axes_of",
    "axis_of",
    "einsum_labels",
    "epsilon",
    "fill_of",
    "gather_of",
    "input_of",
    "inputs_of",
    "is_cut_to",
    "is_one_of",
    "is_product",
    "is_read_once",
    "is_window_to",
    "leaks",
    "made_by",
    "magnitude",
    "microsoft",
    "named_input",
    "need_outside",
    "needed_for",
    "new_axes",
    "nonnegative_by",
    "only_reader",
    "op",
    "operators",
    "parameter",
    "passed",
    "path",
    "path_through",
    "permutation",
    "piece_of",
    "quotient",
    "readers",
    "reduce_of",
    "reshape_target",
    "reshaped_as",
    "reshaped_to",
    "resolve",
    "rule",
    "rules_of",
    "same_dim",
    "same_shape",
    "siblings",
    "size_where",
    "slice_of",
    "topological",
    "uniform",
    "unit_axes",
    "upstream",
    "use_custom_ops",
    "written_by",
]
