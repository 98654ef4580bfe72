"""Graphs to start from: a rule's examples as they are written, with shapes at which they run, in other dtypes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema, text
from onnxrewrite.rewrite import edit
from onnxrewrite.rewrite.rule import Example, Rewrites, Rule
from onnxrewrite.ruletest.metamorphic.chains import meant
from onnxrewrite.ruletest.metamorphic.covered import Covered, covered, literals
from onnxrewrite.ruletest.metamorphic.firing import Trial
from onnxrewrite.ruletest.metamorphic.running import Feeder, feeder

D = ir.DataType

DTYPES = (D.FLOAT16, D.BFLOAT16, D.DOUBLE)
"""The dtypes that float examples are turned into."""

_NEW = 23
"""An opset at which raised operators are the standard's own."""

STANDARD = "onnx"
"""The target at which an operator needs no kernel: for dtypes that ONNX Runtime does not take."""

_TRIES = 400

_EQUAL: tuple[list[int], ...] = (
    *([2, 3], [2, 3, 4], [2, 3, 5, 5], [3], [2, 2, 5, 5]),
    *([2, 1], [2, 1, 5], [2, 1, 5, 5], [3, 3], []),
)


@dataclass(frozen=True)
class Seed:
    """A graph to which a rule applies, and where.

    Attributes:
        model: Its nodes and values have names, and their facts are known.
        trial: The rule, and the target that it applies for.
        places: The places where it applies, one or more.
        feeder: Feeds the model; None where it does not run.
    """

    model: ir.Model
    trial: Trial
    places: tuple[Covered, ...]
    feeder: Feeder | None


def seeds(rule: Rule, library: Sequence[Rule]) -> list[Seed]:
    """Every example of a rule in every form in which it still applies."""
    return list(each_seed(rule, library))


def each_seed(rule: Rule, library: Sequence[Rule]) -> Iterator[Seed]:
    """``seeds``, made as they are asked for."""
    return (s for e in rule.examples if isinstance(e, Rewrites) for s in of_example(rule, e, library))


def of_example(rule: Rule, example: Example, library: Sequence[Rule]) -> Iterator[Seed]:
    """One example of a rule in every form in which it applies, also one that the rule should reject."""
    trial = Trial.of(rule, library, example.target)
    written = named(text.parse(example.graph, opset=example.opset))
    yield from seed_of(written, trial)
    shaped = with_shapes(written)
    if shaped is not None and shaped is not written:
        yield from seed_of(shaped, trial)
    base = shaped or written
    numbers = literals(rule)
    for dtype in DTYPES if _has_floats(base) else ():
        narrow = retyped(base, dtype, numbers)
        newer = narrow.clone()
        newer.opset_imports[""] = max(newer.opset_imports.get("", 1), _NEW)
        tries = ((narrow, example.target), (newer, example.target), (newer, STANDARD))
        found = (next(seed_of(model, Trial.of(rule, library, target)), None) for model, target in tries)
        yield from itertools.islice((seed for seed in found if seed is not None), 1)


def seed_of(model: ir.Model, trial: Trial) -> Iterator[Seed]:
    """The model as a seed, if the rule applies to it."""
    model = model.clone()
    schema.date(model)
    sites = trial.sites(model)
    if sites:
        yield Seed(model, trial, tuple(covered(trial.rule, model, s) for s in sites.values()), feeder(model))


def named(model: ir.Model) -> ir.Model:
    """A copy of which every node has a name of its own."""
    copy = model.clone()
    names = edit.Names(copy)
    for node in copy.graph.all_nodes():
        if not node.name:
            node.name = names.fresh(f"{node.op_type}_0")
    return copy


# -- shapes --------------------------------------------------------------------------------------------------


def with_shapes(model: ir.Model) -> ir.Model | None:
    """The model with shapes at which it runs for the inputs that have none; None where none are found."""
    bare = [v.name for v in model.graph.inputs if isinstance(v.type, ir.TensorType) and v.shape is None]
    if not bare:
        return model if feeder(model) is not None else None
    sizes = [d for v in model.graph.inputs if v.shape is not None for d in v.shape if isinstance(d, int)]
    for shapes in itertools.islice(_proposals(len(bare), sizes), _TRIES):
        copy = model.clone()
        given = dict(zip(bare, shapes, strict=True))
        for value in copy.graph.inputs:
            if value.name in given:
                value.shape = ir.Shape(given[value.name])
        if feeder(copy) is not None:
            return copy
    return None


def _proposals(count: int, known: Sequence[int]) -> Iterator[list[list[int]]]:
    """Shapes for so many inputs: all of them equal, then all sorts, also of sizes that the model mentions."""
    yield from ([shape] * count for shape in _EQUAL)
    rng = random.Random(0)
    sizes = (1, 1, 2, 3, 5, *dict.fromkeys(known))
    while True:
        rank = rng.randint(1, 4)
        yield [[rng.choice(sizes) for _ in range(rank)] for _ in range(count)]


# -- dtypes --------------------------------------------------------------------------------------------------


def _has_floats(model: ir.Model) -> bool:
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    return any(v.dtype == D.FLOAT for v in values)


def retyped(model: ir.Model, dtype: ir.DataType, numbers: Sequence[float]) -> ir.Model:
    """The model with ``dtype`` for float32 everywhere; constants that stand for one of ``numbers`` are rounded anew."""
    copy = model.clone()
    for value in (*copy.graph.inputs, *copy.graph.initializers.values()):
        if value.dtype == D.FLOAT and isinstance(value.type, ir.TensorType):
            value.type = ir.TensorType(dtype)
        if value.const_value is not None:
            value.const_value = _tensor(value.const_value, dtype, numbers)
    for node in copy.graph.all_nodes():
        for output in node.outputs:
            output.type, output.shape, output.const_value = None, None, None
        for attribute in list(node.attributes.values()):
            if attribute.type == ir.AttributeType.TENSOR:
                tensor = _tensor(attribute.as_tensor(), dtype, numbers)
                node.attributes[attribute.name] = ir.AttrTensor(attribute.name, tensor)
            elif attribute.name in ("to", "dtype") and attribute.value == int(D.FLOAT):
                node.attributes[attribute.name] = ir.AttrInt64(attribute.name, int(dtype))
    return copy


def _tensor(tensor: ir.TensorProtocol, dtype: ir.DataType, numbers: Sequence[float]) -> ir.TensorProtocol:
    if tensor.dtype != D.FLOAT:
        return tensor
    array = tensor.numpy()
    exact = np.array([meant(float(c), D.FLOAT, numbers) for c in array.ravel()]).reshape(array.shape)
    with np.errstate(over="ignore"):
        return ir.tensor(exact.astype(dtype.numpy()), dtype=dtype, name=tensor.name)
