"""A counterexample made small: what can be left out, or made plain, while the rule stays wrong.

Greedy: each simplification is kept if the rule still fires and both sides still differ; until none is left to try.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rewrite import edit
from onnxrewrite.rewrite.rule import Assumption
from onnxrewrite.ruletest.fuzz.instances import Instance, fitted
from onnxrewrite.ruletest.fuzz.judge import Finding, differs_at, judged
from onnxrewrite.ruletest.fuzz.verdict import Counterexample
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.ruletest.metamorphic.mutants import with_facts
from onnxrewrite.system.arrays import Array, Outputs

SECONDS = 10.0
"""No simplification is begun after so long."""


def minimised(found: Instance, finding: Finding, assumes: Collection[Assumption] = (), seed: int = 0) -> Counterexample:
    """The smallest counterexample that was found below ``found``, on which both sides differ as ``finding`` says."""
    end = time.monotonic() + SECONDS
    improved = True
    while improved and time.monotonic() < end:
        improved = False
        for smaller in _simpler(found.before):
            if time.monotonic() > end:
                break
            instance = _attempted(found, smaller)
            verdict = judged(instance, assumes, seed) if instance is not None and instance.fired else None
            if instance is not None and verdict is not None and verdict.differs:
                found, finding, improved = instance, verdict, True
                break
    result = counterexample_of(found, finding)
    return replace(result, feeds=_plain_feeds(result)) if result.feeds else result


def counterexample_of(found: Instance, finding: Finding) -> Counterexample:
    """The counterexample that an instance is, as it is."""
    assert found.after is not None
    return Counterexample(
        found.before, found.after, finding.reason, found.variations, found.trial.target, finding.feeds
    )


def _attempted(found: Instance, smaller: ir.Model) -> Instance | None:
    try:
        return fitted(found.trial, smaller, found.variations)
    except (OnnxRewriteError, ValueError):  # what was left out was needed
        return None


# -- simpler graphs ------------------------------------------------------------------------------------------


def _simpler(model: ir.Model) -> Iterator[ir.Model]:
    """The model with one thing less, the largest things first."""
    known = with_facts(model)
    for name in [n.name for n in known.graph]:
        yield from _without_node(known, name)
    for place in range(len(known.graph.outputs) if len(known.graph.outputs) > 1 else 0):
        draft = Draft(known)
        gone = draft.graph.outputs.pop(place)
        producer = gone.producer()
        edit.sweep([producer] if producer is not None else [])
        yield _tidied(draft)
    for place in range(len(known.graph.outputs)):
        yield from _without_last(known, place)
    yield from _smaller_shapes(known)
    for node in known.graph:
        for attribute in [*node.attributes] if node.op_type != "Constant" else ():
            draft = Draft(known)
            del next(n for n in draft.graph if n.name == node.name).attributes[attribute]
            yield _tidied(draft)
    yield from _plain_constants(known)


def _without_node(known: ir.Model, name: str | None) -> Iterator[ir.Model]:
    """A node whose result is an input of the graph, or that passes its operand on."""
    node = next(n for n in known.graph if n.name == name)
    if len(node.outputs) != 1:
        return
    output = node.outputs[0]
    if output.type is not None and output.shape is not None and not output.is_graph_output():
        draft = Draft(known)
        value = draft.value(output.name or "")
        draft.replace(value, draft.add_input("cut", value))
        yield _tidied(draft)
    first = node.inputs[0] if node.inputs else None
    if first is not None and first.dtype == output.dtype and not output.is_graph_output():
        draft = Draft(known)
        value = draft.value(output.name or "")
        (operand, *_) = next(n for n in draft.graph if n.name == name).inputs
        assert operand is not None
        edit.redirect(value, operand)
        edit.sweep([n for n in draft.graph if n.name == name])
        yield _tidied(draft)


def _without_last(known: ir.Model, place: int) -> Iterator[ir.Model]:
    """The graph without its last node, once with each value that the node reads as the result."""
    draft = Draft(known)
    last = draft.graph.outputs[place].producer()
    for value in dict.fromkeys(last.inputs if last is not None else ()):
        if value is not None and value.producer() is not None and not value.is_graph_output():
            shorter = Draft(known)
            shorter.graph.outputs[place] = shorter.value(value.name or "")
            edit.sweep([n for n in shorter.graph if last is not None and n.name == last.name])
            yield _tidied(shorter)


def _smaller_shapes(known: ir.Model) -> Iterator[ir.Model]:
    for place, value in enumerate(known.graph.inputs):
        for axis, size in enumerate(value.shape or ()):
            for smaller in (1, 2):
                if size == smaller or (isinstance(size, int) and size < smaller):
                    continue
                draft = Draft(known)
                changed = draft.graph.inputs[place]
                changed.shape = ir.Shape([smaller if i == axis else d for i, d in enumerate(changed.shape or ())])
                yield _tidied(draft)


def _plain_constants(known: ir.Model) -> Iterator[ir.Model]:
    for name, value in known.graph.initializers.items():
        tensor = value.const_value
        if tensor is None or tensor.dtype not in FLOATS:
            continue
        array = tensor.numpy()
        for plain in (np.ones_like(array), np.zeros_like(array), np.round(array)):
            if not np.array_equal(plain, array):
                draft = Draft(known)
                draft.graph.initializers[name].const_value = ir.tensor(plain, dtype=tensor.dtype, name=name)
                yield _tidied(draft)


def _tidied(draft: Draft) -> ir.Model:
    """The model without inputs that nothing reads."""
    for value in tuple(draft.graph.inputs):
        if not value.uses() and not value.is_graph_output() and len(draft.graph.inputs) > 1:
            draft.graph.inputs.remove(value)
    return draft.done()


# -- simpler inputs ------------------------------------------------------------------------------------------


def _plain_feeds(found: Counterexample) -> Outputs:
    """Inputs that are zero, one or whole numbers where both sides still differ then."""
    feeds = dict(found.feeds or {})
    for name, value in feeds.items():
        for plain in _plain(np.asarray(value)):
            if differs_at(found.before, found.after, feeds | {name: plain}) is not None:
                feeds[name] = plain
                break
    return feeds


def _plain(array: Array) -> list[Array]:
    if array.dtype.kind not in "fV":
        return []
    return [np.ones_like(array), np.zeros_like(array), np.round(array.astype(np.float64)).astype(array.dtype)]
