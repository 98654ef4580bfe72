"""Graphs to make instances from: a rule's examples, those that it must reject, and graphs grown from its pattern.

A correct rule leaves a rejected graph alone, which costs one look.  A wrong one may rewrite it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema, text
from onnxrewrite.pattern.terms import INTS, AnyNode, AnyOf, Call, Term, walk
from onnxrewrite.rewrite import edit
from onnxrewrite.rewrite.rule import Rejects, Rewrites, Rule
from onnxrewrite.ruletest.fuzz.generation import attempts, grown
from onnxrewrite.ruletest.fuzz.variations import without_rank, without_sizes
from onnxrewrite.ruletest.metamorphic import Seed
from onnxrewrite.ruletest.metamorphic.covered import literals
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.ruletest.metamorphic.firing import Trial
from onnxrewrite.ruletest.metamorphic.mutations import become
from onnxrewrite.ruletest.metamorphic.operand_forms import BROADCASTING
from onnxrewrite.ruletest.metamorphic.seeds import each_seed, named, of_example, retyped, seed_of, with_shapes

FEW, MANY, MOST = 5, 24, 32
"""The number of graphs to grow from the pattern: of a rule that has examples, and of one that has none; at the most,
where there are alternatives."""

OTHERS = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.UINT8, ir.DataType.BOOL)
"""The dtypes that examples in float are turned into, for rules that do not restrict them."""

_RANGES = {ir.DataType.INT64: 2.0**31, ir.DataType.INT32: 2.0**31, ir.DataType.UINT8: 2.0**8, ir.DataType.BOOL: 0.0}
"""Below this are the constants that such an example may have."""

_WIDE, _ALIKE, _RESIZED, _FEW_OPERATORS = (3, 5), 4, 12, 3

_REFUSED, _HIDDEN = 24, 4
"""So many graphs that the rule refuses are looked at with their ranks, or sizes, hidden; so many to which it then
applies are enough."""

_NARROWED = 3
"""So many examples are looked at with inputs that are broadcast."""


def starts(rule: Rule, library: Sequence[Rule], seed: int = 0) -> Iterator[Seed]:
    """Every graph to start from on which the rule applies; to make one takes longer than to try the rule on it, so they
    are made as they are asked for."""
    found: list[Seed] = []
    made = itertools.chain(
        each_seed(rule, library), _rejected(rule, library), grown(rule, library, how_many(rule), seed)
    )
    for each in made:
        found.append(each)
        yield each
    for each in _otherwise(rule, tuple(found)):
        found.append(each)
        yield each
    for each in found:
        yield from _wider(each)
        yield from _other_dtypes(each)
    yield from _resized(rule, library)
    yield from _sizeless_weights(rule, library)
    yield from _unranked(rule, library)
    for hide in (without_rank, without_sizes):
        yield from itertools.islice(_refused_for_shapes(rule, library, seed, hide), _HIDDEN)


def how_many(rule: Rule) -> int:
    """The number of graphs to grow, so that each alternative has its turn."""
    terms = _terms(rule)
    ways = sum(len(t.alternatives) - 1 for t in terms if isinstance(t, AnyOf))
    ways += sum(len(t.op_types) - 1 for t in terms if isinstance(t, Call))
    return min((FEW if rule.examples else MANY) + ways, MOST)


def _resized(rule: Rule, library: Sequence[Rule]) -> Iterator[Seed]:
    """Examples at other sizes: all alike, or unknown, for there shapes do not tell that an axis is another one; with an
    axis more.  Where there are many examples, each is changed in some of these ways."""
    examples = [e for e in rule.examples if isinstance(e, Rewrites)]
    for number, example in enumerate(examples):
        model, trial = named(text.parse(example.graph, opset=example.opset)), Trial.of(rule, library, example.target)
        for way in range(number % len(_WAYS), number + len(_WAYS), -(-len(examples) * len(_WAYS) // _RESIZED) or 1):
            copy = model.clone()
            if _WAYS[way % len(_WAYS)](copy.graph.inputs):
                yield from (s for s in seed_of(copy, trial) if s.feeder is not None)


def _sizeless_weights(rule: Rule, library: Sequence[Rule]) -> Iterator[Seed]:
    """Examples of which no tensor of floats tells a size: each is an input, or of one number where all that read it
    broadcast, and of the inputs no size is known.  Beside weights an axis is as long as they are, and never empty."""
    for example in [e for e in rule.examples if isinstance(e, Rewrites)][:_RESIZED]:
        for broadcast in (False, True):
            draft = Draft(named(text.parse(example.graph, opset=example.opset)))
            weights = [v for v in draft.graph.initializers.values() if _is_weight(v)]
            narrow = [w for w in weights if _is_broadcast(w)] if broadcast else []
            for weight in weights:
                instead = _one_number(draft, weight) if weight in narrow else draft.add_input("weight", weight)
                edit.redirect(weight, instead)
            if (narrow if broadcast else weights) and _unknown(draft.graph.inputs):
                found = seed_of(draft.done(), Trial.of(rule, library, example.target))
                yield from (s for s in found if s.feeder is not None)


def _one_number(draft: Draft, weight: ir.Value) -> ir.Value:
    """The first number of a weight, to be broadcast along all of its axes."""
    assert weight.const_value is not None
    array = weight.const_value.numpy()
    return draft.constant(array[(slice(1),) * array.ndim], weight.const_value.dtype)


def _is_broadcast(weight: ir.Value) -> bool:
    return all(use.node.op_type in BROADCASTING and not use.node.domain for use in weight.uses())


def _is_weight(value: ir.Value) -> bool:
    """True if an initializer is a tensor of floats, of more than one element."""
    tensor = value.const_value
    return tensor is not None and tensor.dtype.is_floating_point() and tensor.size > 1


def _alike(inputs: Sequence[ir.Value]) -> bool:
    sizes = [d for v in inputs for d in v.shape or () if d != 1]
    size = max((d for d in sizes if isinstance(d, int)), default=_ALIKE)
    return _changed(inputs, lambda dims: [d if d == 1 else size for d in dims])


def _unknown(inputs: Sequence[ir.Value]) -> bool:
    return _changed(inputs, lambda dims: [d if d == 1 else f"size_{d}" for d in dims])


def _with_last(inputs: Sequence[ir.Value]) -> bool:
    return _changed(inputs, lambda dims: [*dims, "last"])


def _with_first(inputs: Sequence[ir.Value]) -> bool:
    return _changed(inputs, lambda dims: ["first", *dims])


_WAYS = (_alike, _with_last, _unknown, _with_first)

Dims = Sequence[int | ir.SymbolicDim]
Hide: TypeAlias = Callable[[Draft, ir.Node, ir.Value], ir.Value]


def _changed(inputs: Sequence[ir.Value], change: Callable[[Dims], Sequence[int | ir.SymbolicDim | str | None]]) -> bool:
    """Change the known shapes of inputs; True if one of them differs then."""
    differs = False
    for value in inputs:
        if value.shape is not None:
            old, value.shape = value.shape, ir.Shape(change(list(value.shape)))
            differs = differs or old != value.shape
    return differs


def _unranked(rule: Rule, library: Sequence[Rule]) -> Iterator[Seed]:
    """Examples of whose shapes less is said, with inputs that run and a rank that is not known before they do: those
    that say nothing of a shape, and all."""
    for example in rule.examples[:_RESIZED]:
        model = named(text.parse(example.graph, opset=example.opset))
        shaped = with_shapes(model)
        if shaped is None:
            continue
        bare = [v.name for v in model.graph.inputs if v.shape is None]
        every = [v.name for v in shaped.graph.inputs if v.shape]
        for names in (bare, every) if bare != every else (bare,):
            found = seed_of(_hidden(shaped, names), Trial.of(rule, library, example.target)) if names else ()
            yield from (s for s in found if s.feeder is not None)


def _refused_for_shapes(rule: Rule, library: Sequence[Rule], seed: int, hide: Hide) -> Iterator[Seed]:
    """Graphs that the rule refuses as they are and not where ranks or sizes are unknown, which is so where nothing but
    the shape of its result speaks against it: a wrong rule is found out there."""
    examples = [e for e in rule.examples if isinstance(e, Rewrites)][:_NARROWED]
    flat = (m for e in examples for m in _narrower(named(text.parse(e.graph, opset=e.opset))))
    made = (m for m in attempts(rule, how_many(rule), seed) if not isinstance(m, str))
    trial = Trial.of(rule, library, "onnxruntime-cpu")
    refused = (m for m in itertools.chain(flat, made) if rule.name in trial.drive(m).trace.refused)
    for model in itertools.islice(refused, _REFUSED):
        ranked = [v.name for v in model.graph.inputs if v.shape]
        for names in dict.fromkeys((tuple(ranked), *((name,) for name in ranked))):
            yield from (s for s in seed_of(_hidden(model, names, hide), trial) if s.feeder is not None)


def _narrower(model: ir.Model) -> Iterator[ir.Model]:
    """A model of which one input, or all others, have no first axis, or no size but one, so that they are broadcast."""
    shaped = [n for n, value in enumerate(model.graph.inputs) if value.shape]
    groups = dict.fromkeys(g for n in shaped for g in ((n,), tuple(k for k in shaped if k != n)) if g)
    for group, has_axis in itertools.product(groups, (False, True)):
        copy = model.clone()
        for value in (copy.graph.inputs[n] for n in group):
            dims = list(value.shape or ())
            value.shape = ir.Shape([1] * len(dims) if has_axis else dims[1:])
        yield copy


def _hidden(model: ir.Model, names: Collection[str | None], hide: Hide = without_rank) -> ir.Model:
    """The model with nothing told of the ranks, or of the sizes, of some of its inputs."""
    draft = Draft(model)
    for value in [v for v in draft.graph.inputs if v.name in names]:
        uses, first = tuple(value.uses()), next(iter(draft.graph))
        unknown = hide(draft, first, value)
        for node, index in uses:
            node.replace_input_with(index, unknown)
    return draft.done()


def _rejected(rule: Rule, library: Sequence[Rule]) -> Iterator[Seed]:
    """Seeds from the graphs that the rule claims to reject but rewrites."""
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


def _otherwise(rule: Rule, found: Sequence[Seed]) -> Iterator[Seed]:
    """For each operator that the pattern takes and no graph has, the first graph in which it can stand for another.

    Of a few operators also those that graphs have, for that may be in another place.
    """
    for op_types in dict.fromkeys(t.op_types or () for t in _terms(rule) if isinstance(t, Call | AnyNode)):
        had = {n.op_type for seed in found for n in _covered(seed.model, seed)}
        for op_type in op_types if had.intersection(op_types) else ():
            if op_type not in had or len(op_types) <= _FEW_OPERATORS:
                made = (m for seed in found for m in _with_operator(seed, op_types, op_type))
                yield from itertools.islice(made, 1)


def _with_operator(seed: Seed, op_types: Sequence[str], op_type: str) -> Iterator[Seed]:
    """The graph with ``op_type`` for one of ``op_types``, and again with sizes that fit it for those that are given."""
    for has_sizes in (False, True):
        draft = Draft(seed.model)
        node = next((n for n in _covered(draft.model, seed) if n.op_type in op_types and n.op_type != op_type), None)
        if node is None or (has_sizes and not _sized(draft, node)):
            return
        imports, opset = draft.model.opset_imports, draft.model.opset_imports.get(node.domain, 1)
        imports[node.domain] = schema.oldest_version(node.domain, op_type, opset) or opset
        become(node, op_type, imports[node.domain])
        yield from (s for s in seed_of(draft.done(), seed.trial) if s.feeder is not None)


def _sized(draft: Draft, node: ir.Node) -> bool:
    """Set the sizes that a node takes to those of its first operand, in reverse order; False if it takes none."""
    shape = node.inputs[0].shape if len(node.inputs) > 1 and node.inputs[0] is not None else None
    sizes = draft.tensor(node.inputs[1]) if shape is not None and shape.is_static() else None
    if sizes is None or shape is None or sizes.dtype != ir.DataType.INT64:
        return False
    node.replace_input_with(1, draft.constant(np.array(shape.numpy()[::-1]), ir.DataType.INT64))
    return True


def _covered(model: ir.Model, seed: Seed) -> list[ir.Node]:
    names = {name for place in seed.places for name in place.nodes}
    return [n for n in model.graph if n.name in names]


def _terms(rule: Rule) -> list[Term]:
    return list(dict.fromkeys(t for output in rule.outputs for t in walk(output)))


def _other_dtypes(seed: Seed) -> Iterator[Seed]:
    """The graph in integers, and in what is true or false, where that leaves nothing of a constant out; one that is in
    integers, in floats."""
    inputs = seed.model.graph.inputs
    for dtype in OTHERS if any(v.dtype == ir.DataType.FLOAT for v in inputs) else ():
        if _holds(dtype, seed.model):
            yield from seed_of(retyped(seed.model, dtype, literals(seed.trial.rule)), seed.trial)
    if inputs and all(v.dtype in INTS for v in inputs):
        model = _forgetful(seed.model)
        for value in model.graph.inputs:
            value.type = ir.TensorType(ir.DataType.FLOAT)
        yield from seed_of(model, seed.trial)


def _holds(dtype: ir.DataType, model: ir.Model) -> bool:
    """True if a dtype can hold all float constants of a model."""
    tensors = [t for v in model.graph.initializers.values() if (t := v.const_value) is not None]
    tensors += [a.as_tensor() for n in model.graph for a in n.attributes.values() if a.type == ir.AttributeType.TENSOR]
    arrays = [t.numpy() for t in tensors if t.dtype == ir.DataType.FLOAT]
    return all(
        ((a == np.round(a)) & (np.abs(a) < _RANGES[dtype]) & (dtype.is_signed() | (a >= 0))).all() for a in arrays
    )


def _forgetful(model: ir.Model) -> ir.Model:
    """A copy in which nothing is known of inner values."""
    copy = model.clone()
    for node in copy.graph.all_nodes():
        for output in node.outputs:
            output.type, output.shape = None, None
    return copy
