"""onnxrewrite: a rewriting compiler for ONNX graphs whose every rewrite is checked.

The public face: ``apply`` a set of rules to a model, and the pieces that rules are written with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxrewrite import _moved
from onnxrewrite.system.versions import VERSION

__version__ = VERSION

_moved.install()

_FACE = {
    "apply": "onnxrewrite.api.application",
    "check": "onnxrewrite.api.application",
    "explain": "onnxrewrite.api.explanations",
    "capture": "onnxrewrite.authoring.captured_rule",
    "mine": "onnxrewrite.authoring.mining",
    "Pipeline": "onnxrewrite.suite.deploy.pipeline",
    "Gate": "onnxrewrite.suite.quality.gate",
    "quantize": "onnxrewrite.suite.quantization.quantizer",
    "QuantizeSettings": "onnxrewrite.suite.quantization.quantize_settings",
    "export": "onnxrewrite.suite.frameworks.torch",
    "machine": "onnxrewrite.runtime.machine",
    "Machine": "onnxrewrite.runtime.machine",
    "to_half": "onnxrewrite.suite.precision.half_precision",
    "sensitivity": "onnxrewrite.suite.precision.node_sensitivity",
    "exclusion": "onnxrewrite.suite.precision.exclude",
    "within_latency": "onnxrewrite.suite.precision.exclude",
    "mixed_precision": "onnxrewrite.suite.precision.mixed",
    "search_precision": "onnxrewrite.suite.precision.search",
    "session": "onnxrewrite.runtime.opening",
    "CachedSession": "onnxrewrite.runtime.cached",
    "Deployment": "onnxrewrite.runtime.deployment",
    "read_options": "onnxrewrite.runtime.deployment",
    "write_options": "onnxrewrite.runtime.deployment",
    "sweep": "onnxrewrite.suite.sweeping.zoo",
    "Result": "onnxrewrite.api.application",
    "OnnxRewriteError": "onnxrewrite.errors",
    "AnyNode": "onnxrewrite.pattern.terms",
    "Dim": "onnxrewrite.ir.dims",
    "at_least": "onnxrewrite.ir.dims",
    "is_cut_to": "onnxrewrite.ir.dims",
    "same_dim": "onnxrewrite.ir.dims",
    "Facts": "onnxrewrite.ir.facts",
    "Target": "onnxrewrite.ir.target",
    "TRAITS": "onnxrewrite.ir.operators",
    "operators": "onnxrewrite.ir.operators",
    "Attr": "onnxrewrite.pattern.terms",
    "Call": "onnxrewrite.pattern.terms",
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
    "einsum_labels": "onnxrewrite.ir.einsum",
    "epsilon": "onnxrewrite.pattern.numbers",
    "Cut": "onnxrewrite.ir.min_cut",
    "CustomOp": "onnxrewrite.ir.custom",
    "use_custom_ops": "onnxrewrite.ir.custom",
    "microsoft": "onnxrewrite.pattern.terms",
    "op": "onnxrewrite.pattern.terms",
    "same_shape": "onnxrewrite.ir.facts",
    "parameter": "onnxrewrite.ir.views",
    "passed": "onnxrewrite.pattern.look",
    "resolve": "onnxrewrite.pattern.look",
    "Match": "onnxrewrite.pattern.match",
    "Builder": "onnxrewrite.rewrite.build",
    "Assumption": "onnxrewrite.rewrite.rule",
    "Rejects": "onnxrewrite.rewrite.rule",
    "Rewrites": "onnxrewrite.rewrite.rule",
    "Rule": "onnxrewrite.rewrite.rule",
    "Stage": "onnxrewrite.rewrite.rule",
    "RuleSet": "onnxrewrite.rewrite.ruleset",
    "Value": "onnx_ir",
}

__all__ = [*_FACE]

if TYPE_CHECKING:
    from onnx_ir import Value as Value

    from onnxrewrite.api.application import Result as Result
    from onnxrewrite.api.application import apply as apply
    from onnxrewrite.api.application import check as check
    from onnxrewrite.api.explanations import explain as explain
    from onnxrewrite.authoring.captured_rule import capture as capture
    from onnxrewrite.authoring.mining import mine as mine
    from onnxrewrite.errors import OnnxRewriteError as OnnxRewriteError
    from onnxrewrite.ir.custom import CustomOp as CustomOp
    from onnxrewrite.ir.custom import use_custom_ops as use_custom_ops
    from onnxrewrite.ir.dims import Dim as Dim
    from onnxrewrite.ir.dims import at_least as at_least
    from onnxrewrite.ir.dims import is_cut_to as is_cut_to
    from onnxrewrite.ir.dims import same_dim as same_dim
    from onnxrewrite.ir.einsum import einsum_labels as einsum_labels
    from onnxrewrite.ir.facts import Facts as Facts
    from onnxrewrite.ir.facts import same_shape as same_shape
    from onnxrewrite.ir.min_cut import Cut as Cut
    from onnxrewrite.ir.operators import TRAITS as TRAITS
    from onnxrewrite.ir.operators import operators as operators
    from onnxrewrite.ir.target import Target as Target
    from onnxrewrite.ir.views import parameter as parameter
    from onnxrewrite.pattern.look import passed as passed
    from onnxrewrite.pattern.look import resolve as resolve
    from onnxrewrite.pattern.match import Match as Match
    from onnxrewrite.pattern.numbers import epsilon as epsilon
    from onnxrewrite.pattern.terms import FLOATS as FLOATS
    from onnxrewrite.pattern.terms import INTS as INTS
    from onnxrewrite.pattern.terms import SQRT2 as SQRT2
    from onnxrewrite.pattern.terms import AnyNode as AnyNode
    from onnxrewrite.pattern.terms import Attr as Attr
    from onnxrewrite.pattern.terms import Call as Call
    from onnxrewrite.pattern.terms import Const as Const
    from onnxrewrite.pattern.terms import Each as Each
    from onnxrewrite.pattern.terms import Operators as Operators
    from onnxrewrite.pattern.terms import Scalar as Scalar
    from onnxrewrite.pattern.terms import Term as Term
    from onnxrewrite.pattern.terms import Var as Var
    from onnxrewrite.pattern.terms import any_of as any_of
    from onnxrewrite.pattern.terms import microsoft as microsoft
    from onnxrewrite.pattern.terms import op as op
    from onnxrewrite.rewrite.build import Builder as Builder
    from onnxrewrite.rewrite.rule import Assumption as Assumption
    from onnxrewrite.rewrite.rule import Rejects as Rejects
    from onnxrewrite.rewrite.rule import Rewrites as Rewrites
    from onnxrewrite.rewrite.rule import Rule as Rule
    from onnxrewrite.rewrite.rule import Stage as Stage
    from onnxrewrite.rewrite.ruleset import RuleSet as RuleSet
    from onnxrewrite.runtime.cached import CachedSession as CachedSession
    from onnxrewrite.runtime.deployment import Deployment as Deployment
    from onnxrewrite.runtime.deployment import read_options as read_options
    from onnxrewrite.runtime.deployment import write_options as write_options
    from onnxrewrite.runtime.machine import Machine as Machine
    from onnxrewrite.runtime.machine import machine as machine
    from onnxrewrite.runtime.opening import session as session
    from onnxrewrite.suite.deploy.pipeline import Pipeline as Pipeline
    from onnxrewrite.suite.frameworks.torch import export as export
    from onnxrewrite.suite.precision.exclude import exclusion as exclusion
    from onnxrewrite.suite.precision.exclude import within_latency as within_latency
    from onnxrewrite.suite.precision.half_precision import to_half as to_half
    from onnxrewrite.suite.precision.mixed import mixed_precision as mixed_precision
    from onnxrewrite.suite.precision.node_sensitivity import sensitivity as sensitivity
    from onnxrewrite.suite.precision.search import search_precision as search_precision
    from onnxrewrite.suite.quality.gate import Gate as Gate
    from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings as QuantizeSettings
    from onnxrewrite.suite.quantization.quantizer import quantize as quantize
    from onnxrewrite.suite.sweeping.zoo import sweep as sweep


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``onnxrewrite --help`` answers at once."""
    if name not in _FACE:
        raise AttributeError(f"module 'onnxrewrite' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_FACE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_FACE})
