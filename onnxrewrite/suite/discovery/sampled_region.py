"""A region as a function: what it reads and what it computes of that, at sizes and numbers that are made up.

The same seed gives the same numbers, and operands of one dtype and shape get the same ones in every region.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.authoring.region import Region
from onnxrewrite.checks.site_inputs import elements_of, note_elements, site_feeds
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.inputs.bindings import Binding
from onnxrewrite.inputs.sample import Sampler
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import extract
from onnxrewrite.reference.evaluation import build_reference, quantized_ops
from onnxrewrite.runtime.session import as_proto, open_session
from onnxrewrite.suite.discovery.arithmetic_profile import spelled_out
from onnxrewrite.suite.discovery.enumeration import operands
from onnxrewrite.suite.discovery.smaller_sizes import Smaller, smaller_sizes
from onnxrewrite.system.arrays import Array, Feeds, Outputs, is_tensor
from onnxrewrite.system.digests import array_digest

FEW = 16
"""Constants of so many elements are part of what a region is; larger ones are weights, which it is fed."""

_BINDINGS = 6
"""So many choices of sizes are tried."""

_MOST = 2**22
"""Elements of an operand or a result: at larger sizes nothing is compared."""


@dataclass(frozen=True)
class Operand:
    """A value that a region reads.

    Attributes:
        value: The value.
        name: Its name where it is fed: the same in all regions for the first of its dtype and shape.
        array: What it is fed, or the constant.
        is_constant: True if it is a constant that belongs to the region, a number or a shape.
        is_size: True if shape arithmetic computes it, so that a substitute need not read it.
    """

    value: ir.Value
    name: str
    array: Array = field(repr=False)
    is_constant: bool
    is_size: bool

    @property
    def is_required(self) -> bool:
        """True if what the region computes depends on it, as far as can be told: a substitute has to read it."""
        return not self.is_constant and not self.is_size

    @cached_property
    def digest(self) -> str:
        """The same for equal arrays."""
        return array_digest(self.array)


@dataclass(frozen=True)
class SampledRegion:
    """A region with operands, and the results that it has at these.

    Attributes:
        region: The region.
        facts: The facts about its graph.
        operands: In the order of their first use.
        results: In double, in the order of the region's outputs; integers and truth values as they are.
        dtypes: The dtypes of the results.
    """

    region: Region
    facts: Facts
    operands: tuple[Operand, ...]
    results: tuple[Array, ...] = field(repr=False)
    dtypes: tuple[ir.DataType | None, ...]

    @property
    def opset(self) -> int:
        """The version of the standard operators of the model."""
        return self.facts.opset_imports.get("", 1)


def sampled(region: Region, facts: Facts, seed: int = 0) -> SampledRegion | None:
    """A region at the first sizes at which it runs; None where it runs at none that were tried."""
    read = operands(region)
    if any(facts.shape(v) is None or facts.dtype(v) in (None, ir.DataType.STRING) for v in read):
        return None
    fed = [v for v in read if not _belongs(v, facts)]
    sampler = Sampler(as_proto(_cut(region, facts, fed)), seed=seed)
    for binding in _bindings(sampler):
        for smaller in smaller_sizes(region, facts, fed, binding.values()):
            found = _at(region, facts, read, binding, smaller, seed)
            if found is not None:
                return found
    return None


def evaluated(model: onnx.ModelProto, feeds: Feeds) -> Outputs | None:
    """The outputs of a model, in double where it has a reference; in its own dtypes where it rounds to a grid; None
    where it cannot be run.

    No kernel of ONNX Runtime's own operators is run, only what they are defined by: some kernels end the process where
    an operand is not as they expect it.
    """
    reference = build_reference(model, threads=1)
    if reference.trusted:
        return reference.run(feeds)
    spelled = spelled_out(model) if quantized_ops(model) else None
    if spelled is None:
        return None
    session = open_session(spelled, threads=1)
    outputs = session if isinstance(session, str) else session.run(feeds)
    return None if isinstance(outputs, str) else outputs


def _belongs(value: ir.Value, facts: Facts) -> bool:
    """True for a constant that is a part of the region."""
    tensor = facts.tensor(value)
    return tensor is not None and tensor.size <= FEW


def _cut(region: Region, facts: Facts, fed: list[ir.Value]) -> ir.Model:
    """The region as a model that is fed these values."""
    model = extract(region.nodes, fed, region.outputs, facts.opset_imports)
    for value, copied in zip(fed, model.graph.inputs, strict=True):
        note_elements(value, copied, facts)
    return model


def _bindings(sampler: Sampler) -> Iterator[Binding]:
    """Sizes to try, those first of which none is one: at these, more is equal than should be."""
    found = list(sampler.candidates(_BINDINGS))
    yield from sorted(found, key=lambda b: sum(size < 2 for size in b.values()))


def _at(
    region: Region,
    facts: Facts,
    read: tuple[ir.Value, ...],
    binding: Mapping[str, int],
    smaller: Smaller,
    seed: int,
) -> SampledRegion | None:
    fed = [v for v in read if not _belongs(v, facts)]
    model = _cut(region, facts, fed)
    elements = elements_of(model)
    sizes_of = {name: smaller.size(size) for name, size in binding.items()}
    counts: Counter[str] = Counter()
    for copied in model.graph.inputs:
        assert copied.shape is not None
        named = {str(d): sizes_of.get(str(d)) for d in copied.shape}
        sizes = [smaller.size(d) if isinstance(d, int) else named[str(d)] for d in copied.shape]
        if any(size is None for size in sizes):
            return None
        copied.shape = ir.Shape([size or 0 for size in sizes])
        kind = f"{copied.dtype.name.lower() if copied.dtype else ''}_{'x'.join(map(str, sizes))}"
        known = elements.pop(copied.name or "", None)
        copied.name = f"{kind}_{counts[kind]}"
        counts[kind] += 1
        if known is not None:
            elements[copied.name] = known
    for constant in model.graph.initializers.values():
        if constant.const_value is not None:
            constant.const_value = smaller.constant(constant.const_value)
    proto = as_proto(model)
    try:
        feeds = site_feeds(Sampler(proto, seed=seed), elements, sizes_of)
        feeds |= _integers(fed, model, facts)
        outputs = evaluated(proto, feeds)
    except (OnnxRewriteError, ValueError):
        return None
    results = [] if outputs is None else [outputs.get(o.name) for o in proto.graph.output]
    if not results or not all(is_tensor(r) and 0 < r.size <= _MOST and is_finite(r) for r in results):
        return None
    names = {v: c.name or "" for v, c in zip(fed, model.graph.inputs, strict=True)}
    made = tuple(_operand(v, names, feeds, facts, region, smaller) for v in read)
    return SampledRegion(region, facts, made, tuple(map(np.asarray, results)), tuple(map(facts.dtype, region.outputs)))


def _integers(fed: list[ir.Value], model: ir.Model, facts: Facts) -> Outputs:
    """The weights that are integers, as they are, or the first of them: they may be places in a table."""
    made: Outputs = {}
    for value, copied in zip(fed, model.graph.inputs, strict=True):
        tensor = facts.tensor(value)
        if tensor is not None and not tensor.dtype.is_floating_point():
            sizes = (d for d in copied.shape or () if isinstance(d, int))
            made[copied.name or ""] = tensor.numpy()[tuple(map(slice, sizes))]
    return made


def _operand(
    value: ir.Value, names: Mapping[ir.Value, str], feeds: Feeds, facts: Facts, region: Region, smaller: Smaller
) -> Operand:
    tensor = facts.tensor(value)
    if value in names:
        return Operand(value, names[value], np.asarray(feeds[names[value]]), False, value in region.sizes)
    assert tensor is not None
    array = smaller.constant(tensor).numpy()
    return Operand(value, f"constant_{array_digest(array)[:16]}", array, True, False)


def is_finite(array: Array) -> bool:
    """True if an array is one of numbers or truth values, none of which is infinite or no number."""
    is_float = array.dtype.kind == "f" or array.dtype == np.dtype(ml_dtypes.bfloat16)
    return array.dtype.kind in "iub" or (is_float and bool(np.isfinite(array.astype(np.float64)).all()))
