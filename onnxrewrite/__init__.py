"""onnxrewrite: a rewriting compiler for ONNX graphs whose every rewrite is checked.

The public face: ``apply`` a set of rules to a model, and the pieces that rules are written with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_FACE = {
    "apply": "onnxrewrite.pipeline",
    "check": "onnxrewrite.pipeline",
    "Result": "onnxrewrite.pipeline",
    "OnnxRewriteError": "onnxrewrite.errors",
    "AnyNode": "onnxrewrite.pattern.terms",
    "Facts": "onnxrewrite.ir.facts",
    "Attr": "onnxrewrite.pattern.terms",
    "Const": "onnxrewrite.pattern.terms",
    "Each": "onnxrewrite.pattern.terms",
    "FLOATS": "onnxrewrite.pattern.terms",
    "INTS": "onnxrewrite.pattern.terms",
    "Operators": "onnxrewrite.pattern.terms",
    "SQRT2": "onnxrewrite.pattern.terms",
    "Scalar": "onnxrewrite.pattern.terms",
    "Term": "onnxrewrite.pattern.terms",
    "Var": "onnxrewrite.pattern.terms",
    "any_of": "onnxrewrite.pattern.terms",
    "microsoft": "onnxrewrite.pattern.terms",
    "op": "onnxrewrite.pattern.terms",
    "Match": "onnxrewrite.pattern.match",
    "Builder": "onnxrewrite.rewrite.build",
    "Rejects": "onnxrewrite.rewrite.rule",
    "Rewrites": "onnxrewrite.rewrite.rule",
    "Rule": "onnxrewrite.rewrite.rule",
    "Stage": "onnxrewrite.rewrite.rule",
    "Value": "onnx_ir",
}

__all__ = sorted(_FACE)  # noqa: PLE0605

if TYPE_CHECKING:
    from onnx_ir import Value

    from onnxrewrite.errors import OnnxRewriteError
    from onnxrewrite.ir.facts import Facts
    from onnxrewrite.pattern.match import Match
    from onnxrewrite.pattern.terms import (
        FLOATS,
        INTS,
        SQRT2,
        AnyNode,
        Attr,
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
    from onnxrewrite.pipeline import Result, apply, check
    from onnxrewrite.rewrite.build import Builder
    from onnxrewrite.rewrite.rule import Rejects, Rewrites, Rule, Stage


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``onnxrewrite --help`` answers at once."""
    if name not in _FACE:
        raise AttributeError(f"module 'onnxrewrite' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_FACE[name]), name)
    globals()[name] = value
    return value
