"""Graphs grown from a pattern alone: one node a term, at random where the pattern leaves a choice.

A sketch of the operators (``sketch``) gets dtypes that all schemas agree on (``dtypes``), then shapes, attributes and
constants that fit (``concretization``).  Nothing here knows what a guard asks for but the numbers that its code holds
(``hints``): what it refuses is thrown away, and another is grown.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import onnx_ir as ir

from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.pattern.terms import Term
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.fuzz import dtypes
from onnxrewrite.ruletest.fuzz.concretization import settle
from onnxrewrite.ruletest.fuzz.hints import hints
from onnxrewrite.ruletest.fuzz.sketch import OPSETS, CannotGrow, sketched
from onnxrewrite.ruletest.metamorphic.firing import Trial
from onnxrewrite.ruletest.metamorphic.running import is_consistent, runnable
from onnxrewrite.ruletest.metamorphic.seeds import Seed, seed_of

TARGET = "onnxruntime-cpu"

ATTEMPTS = 15
"""For each graph that is wanted so many are tried: most do not fit together, or are refused."""

PATIENCE, ENOUGH = 4, 12
"""So many times as many are tried, as long as there are not enough."""


def grown(rule: Rule, library: Sequence[Rule], wanted: int, seed: int = 0) -> Iterator[Seed]:
    """Up to ``wanted`` seeds from the pattern, each of a kind of its own, which ONNX Runtime runs; none for a pattern
    that says nothing."""
    trial = Trial.of(rule, library, TARGET)
    found, kinds = 0, set[Hashable]()
    for number, model in enumerate(attempts(rule, PATIENCE * wanted, seed)):
        if isinstance(model, str) or (kind := _kind(model)) in kinds or not trial.sites(model) or not _is_valid(model):
            continue
        kinds.add(kind)
        for made in seed_of(model, trial):
            if made.feeder is not None:
                found += 1
                yield made
        if found >= wanted or (number >= wanted * ATTEMPTS and found >= min(wanted, ENOUGH)):
            return


def _kind(model: ir.Model) -> Hashable:
    """The features that distinguish graphs of one pattern: operators, attributes, dtypes, lists of integers, and the
    sizes that are one, or the same; a rule that is wrong is so for a few of these together."""
    nodes = [(n.op_type, str(sorted((a.name, a.value) for a in n.attributes.values()))) for n in model.graph]
    sizes = [(v.dtype, *v.shape) for v in model.graph.inputs if v.shape is not None]
    order = list(dict.fromkeys(d for _, *dims in sizes for d in dims))
    inputs = [(dtype, *(d if d == 1 else -order.index(d) for d in dims)) for dtype, *dims in sizes]
    return (*nodes, *inputs, *(_contents(v.const_value) for v in model.graph.initializers.values()))


def _contents(tensor: ir.TensorProtocol | None) -> Hashable:
    """Integers as they are, of a number its sign, of other constants along which axes they vary."""
    if tensor is None:
        return None
    if tensor.dtype == ir.DataType.INT64:
        return str(tensor.numpy().tolist())
    return (tensor.numpy() < 0).item() if tensor.shape == () else tuple(d == 1 for d in tensor.shape)


def attempts(rule: Rule, wanted: int, seed: int = 0) -> Iterator[ir.Model | str]:
    """Candidates for ``grown``: graphs of the pattern, mostly refused by the rule, or why one does not fit together."""
    chosen, asked = Counter[tuple[Term, object]](), hints(rule)
    for number in range(ATTEMPTS * wanted):  # each has random numbers of its own, so that fewer are the first of more
        rng = random.Random(f"{seed}/grown/{number}")
        try:
            sketch = sketched(rule, OPSETS[number % len(OPSETS)], rng, chosen)
            dtypes.assign(sketch, rng, is_plain=number < len(OPSETS) or rng.random() < 0.5)
            yield settle(sketch, asked, rng, number)
        except CannotGrow as reason:
            yield f"no graph can be made of its pattern: {reason}"


def _is_valid(model: ir.Model) -> bool:
    try:
        return is_consistent(runnable(model))
    except OnnxRewriteError:
        return False
