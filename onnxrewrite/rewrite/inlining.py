"""Functions of a model, written out where they are called, so that patterns cross their borders."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir
import onnx_ir.passes.common as passes

from onnxrewrite import io
from onnxrewrite.io import preserved
from onnxrewrite.ir import custom
from onnxrewrite.pattern.terms import Call, walk
from onnxrewrite.rewrite.rule import Rule


def inlined(model: ir.Model, rules: Iterable[Rule]) -> ir.Model:
    """A copy of ``model`` in which calls are what they compute; ``model`` itself where no function can be inlined.

    A function stays that has the name of an operator that a rule asks for, or that is known, for a runtime may have a
    kernel for it; and one that is written for another opset than the model, for its nodes would mean something else.
    """
    asked = {(item.domain, name) for rule in rules for item in _calls(rule) for name in item.op_types}

    def is_taken(function: ir.Function) -> bool:
        key = function.domain, function.name
        fits = all(model.opset_imports.get(domain, v) == v for domain, v in function.opset_imports.items())
        is_known = preserved.is_shadowed(function.domain) or custom.declared(*key) is not None
        return fits and key not in asked and not is_known

    if not any(map(is_taken, model.functions.values())):
        return model
    copy = io.load(model)
    try:
        passes.InlinePass(criteria=is_taken)(copy)
    except ValueError:  # a call that the pass cannot write out, one with a graph as an attribute for instance
        return model
    return copy


def _calls(rule: Rule) -> Iterable[Call]:
    return (item for root in rule.outputs for item in walk(root) if isinstance(item, Call))
