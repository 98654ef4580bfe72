"""Cost models: the cost of a region or a whole graph as one number, by which ``apply`` chooses in place of the clock.

A cost model has one method, ``of``.  Those here count bytes or operations of ``runtime/kernel_work.py``, measure, or
are put together of others; ``cost_table.py`` has one that looks up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.errors import NOT_RUN
from onnxrewrite.inputs.bindings import input_specs, shape_of
from onnxrewrite.io import preserved
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import subgraphs
from onnxrewrite.ir.symbolic_elements import LIMIT
from onnxrewrite.measure.timing import FEWEST, interleave
from onnxrewrite.runtime.kernel_work import Tensor, flops, work
from onnxrewrite.runtime.session import skeleton
from onnxrewrite.runtime.settings import DEFAULT, Setting, open_runner
from onnxrewrite.system.arrays import Feeds


@dataclass(frozen=True)
class Call:
    """One node of a region, at the sizes at which the region is costed.

    Attributes:
        node: The node, with its attributes and bodies.
        op_type: Its operator.
        domain: Of the operator; empty for the standard's.
        inputs: The dtypes, by ONNX Runtime's names, and the shapes of the inputs that are there, in order.
        outputs: Likewise, of the outputs that are there.
    """

    node: ir.Node = field(repr=False)
    op_type: str
    domain: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Region:
    """A region of a model, or a whole one, to be costed; regions that are compared have equal inputs.

    Attributes:
        model: It as a message of its own, which refers to large weights.
        binding: The sizes of its named dimensions.
        draw: Makes its inputs; none are known where it gives none.
        told: Tells it in canonical text, and the dtypes and sizes of its inputs to a power of two.
    """

    model: onnx.ModelProto | str = field(repr=False)
    binding: Mapping[str, int]
    draw: Callable[[], Feeds] = field(repr=False)
    told: Callable[[], tuple[str, tuple[str, ...]]] = field(repr=False)

    @cached_property
    def feeds(self) -> Feeds:
        """Its inputs, by name."""
        return self.draw()

    @cached_property
    def calls(self) -> tuple[Call, ...] | None:
        """The nodes in the order of the graph, those of bodies left out; None where a dtype or a shape does not follow
        from the sizes."""
        made = self._at_sizes()
        if made is None:
            return None
        Facts(made.graph, made.opset_imports)
        calls = []
        for node in made.graph:
            inputs = [_tensor(value) for value in node.inputs if value is not None]
            outputs = [_tensor(value) for value in node.outputs if value.name]
            found = [tensor for tensor in (*inputs, *outputs) if tensor is not None]
            if len(found) != len(inputs) + len(outputs):
                return None
            sides = tuple(found[: len(inputs)]), tuple(found[len(inputs) :])
            calls.append(Call(node, node.op_type, node.domain, *sides))
        return tuple(calls)

    def _at_sizes(self) -> ir.Model | None:
        """The model with numbers for the sizes of its inputs; an input that may be a shape has its elements."""
        proto = onnx.ModelProto()
        proto.CopyFrom(skeleton(self.model))
        known = self.feeds
        for value, spec in zip(proto.graph.input, input_specs(proto), strict=True):
            named = [size for size in spec.dims or () if isinstance(size, str)]
            if not spec.tensor or spec.dims is None or not self.binding.keys() >= set(named):
                return None
            del value.type.tensor_type.shape.dim[:]
            for size in shape_of(spec, self.binding):
                value.type.tensor_type.shape.dim.add(dim_value=size)
        model = preserved.deserialized(proto)
        for given in model.graph.inputs:
            array = known.get(given.name or "")
            if isinstance(array, np.ndarray) and array.dtype.kind == "i" and array.ndim < 2 and array.size <= LIMIT:
                given.const_value = ir.tensor(array)
        return model


class Cost(Protocol):
    """A cost model."""

    def of(self, region: Region) -> float | None:
        """The cost of a region or of a whole graph: finite, and not negative; None where it is not known.

        Both sides of a rewrite are asked for, and the one that costs less is taken.  The same region must cost the
        same whenever it is asked for; a model that measures is the exception.
        """
        ...


@dataclass(frozen=True)
class Bytes:
    """Bytes read and written by all kernels, each of which reads its inputs and writes its outputs once.

    Not known where a shape does not follow from the sizes, and of a graph with bodies.
    """

    def of(self, region: Region) -> float | None:
        """See ``Cost``."""
        if not (calls := _plain(region)):
            return None if calls is None else 0.0
        return float(sum(work(c.op_type, c.inputs, c.outputs).bytes for c in calls))


@dataclass(frozen=True)
class Operations:
    """Floating-point operations; not known where ``Bytes`` is not, and of operators without a formula."""

    def of(self, region: Region) -> float | None:
        """See ``Cost``."""
        calls = _plain(region)
        counts = [flops(c.op_type, c.inputs, c.outputs) for c in calls] if calls is not None else [None]
        known = [count for count in counts if count is not None]
        return float(sum(known)) if len(known) == len(counts) else None


@dataclass(frozen=True)
class Clock:
    """Seconds on this machine, each region by itself; to be put together with others.

    ``apply`` times both sides by turns where it is left to the clock alone, which is more precise.  Not known where a
    region does not run, or its inputs are not known.
    """

    setting: Setting = DEFAULT
    seconds: float = 0.1

    def of(self, region: Region) -> float | None:
        """See ``Cost``."""
        try:
            run = open_runner(region.model, region.feeds, self.setting)
            timing = interleave({"": run}, seconds=self.seconds, least=FEWEST)[""]
        except NOT_RUN:
            return None
        return timing.seconds(of_processor=self.setting.is_serial)


@dataclass(frozen=True, init=False)
class WeightedSum:
    """The sum of costs, each with its weight; not known where one of them is not.

    Args:
        terms: Pairs of a weight, at least 0, and a cost model.
    """

    terms: tuple[tuple[float, Cost], ...]

    def __init__(self, *terms: tuple[float, Cost]):
        object.__setattr__(self, "terms", terms)

    def of(self, region: Region) -> float | None:
        """See ``Cost``."""
        total = 0.0
        for weight, cost in self.terms:
            if (found := cost.of(region)) is None:
                return None
            total += weight * found
        return total


@dataclass(frozen=True, init=False)
class FirstKnown:
    """The first cost that is known; all of them are in one unit, for the two sides of a rewrite may be known to others.

    Args:
        costs: Cost models, the most trusted one first.
    """

    costs: tuple[Cost, ...]

    def __init__(self, *costs: Cost):
        object.__setattr__(self, "costs", costs)

    def of(self, region: Region) -> float | None:
        """See ``Cost``."""
        return next((found for cost in self.costs if (found := cost.of(region)) is not None), None)


def name_of(cost: Cost) -> str:
    """A cost model in words: ``bytes``, ``operations``, ``WeightedSum(...)``, or the name of its class."""
    if isinstance(cost, Bytes | Operations):
        return type(cost).__name__.lower()
    return repr(cost) if type(cost).__repr__ is not object.__repr__ else type(cost).__name__


def _plain(region: Region) -> tuple[Call, ...] | None:
    """The calls of a region that has no bodies: how often these run does not follow from sizes."""
    calls = region.calls
    return None if calls is None or any(next(iter(subgraphs(c.node)), None) for c in calls) else calls


def _tensor(value: ir.Value) -> Tensor | None:
    shape = value.shape
    if value.dtype is None or shape is None or not all(isinstance(size, int) for size in shape):
        return None
    return Tensor(value.dtype.name.lower(), tuple(math.trunc(size) for size in shape if isinstance(size, int)))
