"""Forms of a rule: the distinct graphs that the fuzzer stages and the rule rewrites, with names for their sizes.

A size is given a name wherever the rule still fires then: first every size its own, then equal ones the same, then
those that may have one, one after the other.  So a form whose sizes have names is proved for all sizes at which the
rule takes it, and a size that stays a number is one that the rule asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxrewrite.checks.likeness import structure
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.fuzz.instances import Instance, fitted, instances
from onnxrewrite.ruletest.fuzz.starts import starts
from onnxrewrite.ruletest.fuzz.variations import told, unveiled
from onnxrewrite.ruletest.metamorphic.firing import Trial
from onnxrewrite.ruletest.metamorphic.running import feeder, is_consistent, runnable


@dataclass(frozen=True)
class Form:
    """A graph that a rule rewrites.

    Attributes:
        before: The graph.
        after: The graph after the rule, before lowering.
        lowered: The graph as it is run.
        trial: The rule, and the target that it was asked to rewrite for.
        ranks: Of the inputs.
        dtypes: Of the inputs.
        named: The number of sizes that have names.
        numbers: The number of sizes that are numbers, but for those of 1.
    """

    before: ir.Model
    after: ir.Model
    lowered: ir.Model
    trial: Trial
    ranks: tuple[int, ...]
    dtypes: tuple[str, ...]
    named: int
    numbers: int


def forms(rule: Rule, library: Sequence[Rule], *, seed: int, count: int) -> Iterator[Form]:
    """Every distinct form among ``count`` graphs, each in the most general way in which the rule takes it."""
    seen: set[str] = set()
    parents: list[Instance] = []
    for instance in instances(starts(rule, library, seed), count, seed, parents):
        if not instance.fired:
            continue
        parents.append(instance)
        bare = unveiled(instance.before)
        if any(v.shape is None or not isinstance(v.type, ir.TensorType) for v in bare.graph.inputs):
            continue  # a proof is of a rank; other forms have one
        if not is_consistent(runnable(told(bare))) or feeder(bare) is None:
            continue
        found = most_general(instance.trial, bare)
        if found is None or found.raised is None:
            continue
        key = structure(found.before, found.raised)
        if key not in seen:
            seen.add(key)
            yield _form(found)


def _form(found: Instance) -> Form:
    assert found.raised is not None
    assert found.after is not None
    inputs = found.before.graph.inputs
    dims = [d for v in inputs if v.shape is not None for d in v.shape]
    return Form(
        found.before,
        found.raised,
        found.after,
        found.trial,
        tuple(sorted({len(v.shape) for v in inputs if v.shape is not None})),
        tuple(sorted({v.dtype.name.lower() for v in inputs if v.dtype is not None})),
        sum(not isinstance(d, int) for d in dims),
        sum(isinstance(d, int) and d != 1 for d in dims),
    )


Place = tuple[int, int]
"""An input, and an axis of it."""


def most_general(trial: Trial, model: ir.Model) -> Instance | None:
    """The graph with names for as many sizes as the rule lets have them; None where it does not fire at all."""
    plain = fitted(trial, model)
    if not plain.fired:
        return None
    sizes = {
        (k, axis): size
        for k, value in enumerate(model.graph.inputs)
        for axis, size in enumerate(value.shape or ())
        if isinstance(size, int) and size > 1
    }
    if not sizes:
        return plain
    made = _made(plain)
    for names in (_own(sizes), _alike(sizes)):
        found = _with(trial, model, names)
        if found is not None and _made(found) == made:
            return found
    best, kept = plain, dict[Place, str]()
    groups = [[p for p, s in sizes.items() if s == size] for size in sorted(set(sizes.values()))]
    for places in (*groups, *([p] for g in groups if len(g) > 1 for p in g)):
        more = {**kept, **{p: f"n{sizes[p]}" for p in places}}
        if len(more) == len(kept):
            continue
        found = _with(trial, model, more)
        if found is not None and _made(found) == made:
            best, kept = found, more
    return best


def _own(sizes: dict[Place, int]) -> dict[Place, str]:
    return {place: f"n{number}" for number, place in enumerate(sizes)}


def _alike(sizes: dict[Place, int]) -> dict[Place, str]:
    return {place: f"n{size}" for place, size in sizes.items()}


def _made(instance: Instance) -> list[str]:
    """The operators that are left, by which two results are told apart."""
    assert instance.raised is not None
    return sorted(n.op_type for n in instance.raised.graph)


def _with(trial: Trial, model: ir.Model, names: dict[Place, str]) -> Instance | None:
    """The graph with names for sizes, and nothing said of inner values; None where the rule does not take it."""
    copy = model.clone()
    for k, value in enumerate(copy.graph.inputs):
        if value.shape is not None:
            value.shape = ir.Shape([names.get((k, axis), d) for axis, d in enumerate(value.shape)])
    for node in copy.graph.all_nodes():
        for output in node.outputs:
            output.shape = None
    found = fitted(trial, copy)
    return found if found.fired else None
