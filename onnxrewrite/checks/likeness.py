"""Likeness of sites, and of models: sites that are the same but for names and weights are checked, and timed, once.

A weight is a constant of more than a few floating-point numbers, neither all equal nor all integers: nobody chose its
elements one by one.  Two of them are alike if they have the same dtype and shape, and numbers of the same signs and
magnitudes; for folding what is negative, zero or tiny is another case.  The numbers of every layer are compared where
the whole model is, or its segments.
"""

from __future__ import annotations

import json
import math
import re
import weakref
from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.graph import ELEMENTS, with_inner
from onnxrewrite.ir.operators import TRAITS
from onnxrewrite.ir.text.printer import Printer, model_header
from onnxrewrite.system.arrays import Array

_FEW = 16
"""Constants of no more elements are told by these."""

_SAMPLE, _STRETCHES = 2**16, 16
"""Of more elements so many are looked at, in so many stretches of the weight."""

_LARGE, _SMALL = 4, 8
"""The powers of two by which the largest and the smallest magnitude of like weights may differ, about."""

_MADE_UP = re.compile(r"\b_d\d+\b")
"""The names that shape inference gives to sizes; what numbers they bear depends on all that stands before."""

_KINDS: weakref.WeakKeyDictionary[ir.TensorProtocol, str] = weakref.WeakKeyDictionary()
"""Tensors do not change, and a weight is looked at for each rewrite that reads it."""


def structure(before: ir.Model, after: ir.Model, *, by_kind: bool = True) -> str:
    """Two sides in text, and what is known of shape tensors: equal for sites that are the same but for names, weights
    (unless these are not to be told by kind), and opsets that have the same operators."""
    numbers: dict[str, int] = {}
    lines = [json.dumps([v.metadata_props.get(ELEMENTS) for v in before.graph.inputs])]
    for side in (before, after):
        printer = _Printer(side, numbers) if by_kind else Printer(True, side.opset_imports)
        lines += [written_for(side.graph, side.opset_imports), *printer.graph(side.graph)]
        for function in sorted(side.functions.values(), key=lambda each: each.identifier()):
            lines += Printer(True, function.opset_imports).function(function)
    names: dict[str, str] = {}
    return _MADE_UP.sub(lambda found: names.setdefault(found[0], f"_d{len(names)}"), "\n".join(lines))


def written_for(nodes: Iterable[ir.Node], opset_imports: Mapping[str, int]) -> str:
    """The operators of nodes, each with the opset since which it computes what it does: equal in opsets between which
    none of them has changed.  Where a node is newer than its opset, and will be lowered, the opsets as well."""
    told, is_newer = set[tuple[str, str, int]](), False
    for node in with_inner(nodes):
        opset = opset_imports.get(node.domain, 1)
        version = node.version if node.version is not None else opset
        standard = TRAITS.get(node.op_type) if not node.domain else None
        changes = standard.changed if standard is not None else (version,)
        told.add((node.domain, node.op_type, max((c for c in changes if c <= version), default=0)))
        is_newer |= version > opset
    return json.dumps([sorted(told), sorted(opset_imports.items()) if is_newer else []])


def outline(model: ir.Model) -> str:
    """A model in text, its names too: equal for models that are the same but for weights."""
    functions = sorted(model.functions.values(), key=lambda each: each.identifier())
    lines = [model_header(model, False), *_Outline(False, model.opset_imports).graph(model.graph)]
    return "\n".join([*lines, *(line for f in functions for line in _Outline(False, f.opset_imports).function(f))])


class _Outline(Printer):
    """Tells weights by their kinds: of large ones little is read."""

    def values(self, tensor: ir.TensorProtocol, *, braces: bool) -> str:
        kind = weight_kind(tensor)
        return f"~{kind}" if kind else super().values(tensor, braces=braces)


class _Printer(Printer):
    """Tells weights by their kinds, and by numbers which of them are the same one, on either side."""

    def __init__(self, side: ir.Model, numbers: dict[str, int]) -> None:
        super().__init__(True, side.opset_imports)
        self._numbers = numbers

    def constant(self, value: ir.Value, tensor: ir.TensorProtocol) -> str:
        told = super().constant(value, tensor)
        kind = weight_kind(tensor)
        if not kind:
            return told
        name, _, elements = told.partition(" = ")
        return f"{name} = ~{self._numbers.setdefault(elements, len(self._numbers))} {kind}"


def weight_kind(tensor: ir.TensorProtocol) -> str:
    """The signs and magnitudes of a weight in words; empty for a constant that is none."""
    if tensor.size <= _FEW or not tensor.dtype.is_floating_point():
        return ""
    known = _KINDS.get(tensor)
    if known is None:
        known = _KINDS[tensor] = _kind(_looked_at(tensor.numpy()))
    return known


def _looked_at(array: Array) -> Array:
    """The elements of an array, or some stretches of it, in at least single precision."""
    flat = array.reshape(-1)
    if flat.size > _SAMPLE:
        length = _SAMPLE // _STRETCHES
        starts = np.linspace(0, flat.size - length, _STRETCHES).astype(int)
        flat = np.concatenate([flat[start : start + length] for start in starts])
    return flat if flat.dtype == np.float64 else flat.astype(np.float32)


def _kind(numbers: Array) -> str:
    magnitudes = np.abs(numbers)
    if not np.isfinite(numbers).all() or (numbers == numbers[0]).all() or (numbers == np.rint(numbers)).all():
        return ""
    signs = "".join(s for s, has in (("-", numbers < 0), ("0", numbers == 0), ("+", numbers > 0)) if has.any())
    largest, smallest = float(magnitudes.max()), float(magnitudes[magnitudes > 0].min())
    return f"{signs} 2^{math.frexp(largest)[1] // _LARGE * _LARGE} 2^{math.frexp(smallest)[1] // _SMALL * _SMALL}"
