"""What instances are made from: a rule's examples, what it must reject, and graphs grown from its pattern.

A rejected graph is one that a rule which is right leaves alone: it costs one look.  One that is wrong may rewrite it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import text
from onnxrewrite.pattern.terms import AnyOf, Call, walk
from onnxrewrite.rewrite.rule import Rejects, Rule
from onnxrewrite.verify.ladder.grown import grown
from onnxrewrite.verify.respell import Seed, seeds
from onnxrewrite.verify.respell.covered import literals
from onnxrewrite.verify.respell.firing import Trial
from onnxrewrite.verify.respell.seeds import named, of_example, retyped, seed_of

FEW, MANY, MOST = 2, 6, 8
"""How many graphs to grow from the pattern: of a rule that has examples, and of one that has none; at the most, where
there are alternatives."""

INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)
"""What examples in float are turned into, for rules that do not ask."""

_WIDE = (3, 5)


def starts(rule: Rule, library: Sequence[Rule], seed: int = 0) -> list[Seed]:
    """Every graph to start from on which the rule applies."""
    found = [*seeds(rule, library), *_rejected(rule, library), *grown(rule, library, how_many(rule), seed)]
    return [*found, *(s for each in found for s in (*_wider(each), *_integers(each)))]


def how_many(rule: Rule) -> int:
    """How many graphs to grow, so that each alternative has its turn."""
    terms = {t for output in rule.outputs for t in walk(output)}
    ways = sum(len(t.alternatives) - 1 for t in terms if isinstance(t, AnyOf))
    ways += sum(len(t.op_types) - 1 for t in terms if isinstance(t, Call))
    return min((FEW if rule.examples else MANY) + ways, MOST)


def _rejected(rule: Rule, library: Sequence[Rule]) -> Iterator[Seed]:
    """What the rule says it rejects, where it does not."""
    for example in rule.examples:
        if isinstance(example, Rejects):
            model = named(text.parse(example.graph, opset=example.opset))
            if any(seed_of(model, Trial.of(rule, library, example.target))):
                yield from of_example(rule, example, library)


def _wider(seed: Seed) -> Iterator[Seed]:
    """The graph with tensors for scalars: of one number a run says little."""
    if any(v.shape is None or len(v.shape) for v in seed.model.graph.inputs):
        return
    model = _forgetful(seed.model)
    for value in model.graph.inputs:
        value.shape = ir.Shape(_WIDE)
    yield from seed_of(model, seed.trial)


def _integers(seed: Seed) -> Iterator[Seed]:
    """The graph in integers, where that leaves no fraction out."""
    if any(v.dtype != ir.DataType.FLOAT for v in seed.model.graph.inputs) or not _is_whole(seed.model):
        return
    for dtype in INTEGERS:
        yield from seed_of(retyped(seed.model, dtype, literals(seed.trial.rule)), seed.trial)


def _is_whole(model: ir.Model) -> bool:
    """Whether all constants in float are integers that 32 bits hold."""
    tensors = [t for v in model.graph.initializers.values() if (t := v.const_value) is not None]
    tensors += [a.as_tensor() for n in model.graph for a in n.attributes.values() if a.type == ir.AttributeType.TENSOR]
    arrays = [t.numpy() for t in tensors if t.dtype == ir.DataType.FLOAT]
    return all(((a == np.round(a)) & (np.abs(a) < 2.0**31)).all() for a in arrays)


def _forgetful(model: ir.Model) -> ir.Model:
    """A copy in which nothing is known of inner values."""
    copy = model.clone()
    for node in copy.graph.all_nodes():
        for output in node.outputs:
            output.type, output.shape = None, None
    return copy
