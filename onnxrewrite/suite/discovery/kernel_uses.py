"""The ways in which a kernel could stand for a region: its operator on the region's operands, with attributes that are
found in the region.

An operator is tried that the target has a kernel for and that is defined: by simpler ones, in ``ir/bodies/`` or by a
function body of the standard, or as one of the standard's elementwise or linear ones.  Which operand goes where, and
which attributes it gets, is enumerated within limits.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.bodies import BODIES
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.schema import Formal, Schema
from onnxrewrite.ir.target import Target, type_string
from onnxrewrite.suite.discovery.attribute_origins import numbers, parameters
from onnxrewrite.suite.discovery.enumeration import uses_of_operands
from onnxrewrite.suite.discovery.sampled_region import Operand, SampledRegion
from onnxrewrite.suite.discovery.substitute import ROWS, Inner, Operator, Parameter, Read, Substitute, results_of
from onnxrewrite.system.arrays import Array

ASSIGNMENTS = 24
"""So many ways to give a kernel the operands are tried."""

VARIATIONS = 64
"""So many choices of attributes are tried for each of them."""

_MOVES = frozenset(operators("view permute select repeat join"))
"""Operators that only move data."""

_COMPUTING = frozenset(operators("broadcast linear", but="images"))
"""Operators of the standard that are what others are defined by; the float64 reference takes them as they are."""


@dataclass(frozen=True)
class Kernel:
    """An operator that a target runs.

    Attributes:
        domain: Its domain.
        op_type: Its name.
        schema: Its schema.
        is_plain: True if others are defined by it, rather than it by others.
    """

    domain: str
    op_type: str
    schema: Schema
    is_plain: bool


@cache
def kernels(target: Target, opset: int) -> tuple[Kernel, ...]:
    """The operators with a definition that a target has a kernel for, or runs by their function body."""
    found = []
    named = {*BODIES, *(("", name) for name in schema.known_operators(""))}
    for domain, op_type in sorted(named, key=lambda each: (not each[0], each)):  # what replaces most comes first
        known = schema.schema(domain, op_type, opset if not domain else None)
        if known is None or not known.deterministic or op_type in _MOVES or not known.inputs:
            continue
        is_plain = (domain, op_type) not in BODIES and not schema.has_body(known)
        if is_plain and op_type not in _COMPUTING:
            continue
        if target.has_kernel(domain, op_type) and (domain or target.kernel_version(op_type, opset)):
            found.append(Kernel(domain, op_type, known, is_plain))
    return tuple(found)


def is_movement(node: ir.Node) -> bool:
    """True if a node only moves data."""
    return not node.domain and node.op_type in _MOVES


def uses(kernel: Kernel, region: SampledRegion) -> Iterator[list[Substitute]]:
    """Ways to use a kernel for a region: a list for each choice of operands, all with other attributes."""
    wanted = _results(kernel.schema, region)
    choices = list(itertools.islice(parameters(kernel.schema, region), VARIATIONS))
    if wanted is None or not choices:
        return
    for ahead, inputs in itertools.islice(_reads(kernel, region), ASSIGNMENTS):
        yield [
            Substitute(
                (*ahead, Operator(kernel.domain, kernel.op_type, inputs, given, max(places) + 1)),
                tuple(Inner(len(ahead), place) for place in places),
            )
            for places in wanted
            for given in choices
        ]


def by_numbers(kernel: Kernel, use: Substitute, region: SampledRegion) -> Iterator[Substitute]:
    """A use of a kernel with a number of the region for an attribute that has none of its own there, and on which its
    results depend."""
    *ahead, node = use.nodes
    given = dict(node.parameters)

    def with_number(name: str, number: Parameter) -> Substitute:
        parameters = tuple(sorted({**given, name: number}.items()))
        return replace(use, nodes=(*ahead, replace(node, parameters=parameters)))

    for name, formal in sorted(kernel.schema.attributes.items()):
        if formal.type != ir.AttributeType.FLOAT or (name in given and given[name].origin.kind == "number"):
            continue
        one, other = (results_of(with_number(name, Parameter(n)), region) for n in _UNLIKELY)
        if one is not None and other is not None and not all(map(np.array_equal, one, other)):
            yield from (with_number(name, number) for number in numbers(region))


_UNLIKELY = (0.37, 0.73)
"""Numbers for an attribute, to see whether it counts."""


Ahead = tuple[Operator, ...]
"""What computes a constant of constants before a kernel reads it."""


def _reads(kernel: Kernel, region: SampledRegion) -> Iterator[tuple[Ahead, tuple[Read, ...]]]:
    """Operands for the inputs of a kernel; for an operator that the region has, too, one may be computed of two."""
    in_order = _as_used(kernel.schema, region)
    if in_order is not None:
        yield (), in_order
    yield from (((), inputs) for inputs in assignments(kernel.schema, region.operands) if inputs != in_order)
    if any((n.domain, n.op_type) == (kernel.domain, kernel.op_type) for n in region.region.nodes):
        for ahead, operands, places in _folded(region):
            for inputs in assignments(kernel.schema, operands):
                yield ahead, tuple(None if i is None else places[i] for i in inputs)
    if "transA" in kernel.schema.attributes and "transBatchA" not in kernel.schema.attributes:  # it takes matrices only
        for view, operands, places in _flattened(region):
            for inputs in assignments(kernel.schema, operands):
                yield (view,), tuple(None if i is None else places[i] for i in inputs)


def _as_used(found: Schema, region: SampledRegion) -> tuple[int, ...] | None:
    """The operands in the order of their uses, those that are used again again; None where the inputs do not fit."""
    number = {o.value: i for i, o in enumerate(region.operands)}
    chosen = tuple(number[v] for v in uses_of_operands(region.region))
    formals = _formals(found, len(chosen))
    types: dict[str, ir.DataType | None] = {}
    for formal, dtype in zip(formals, (region.operands[i].value.dtype for i in chosen), strict=False):
        if dtype is None or type_string(dtype) not in formal.types or types.setdefault(formal.type_var, dtype) != dtype:
            return None
    return chosen if found.min_inputs <= len(chosen) <= len(formals) else None


def _folded(region: SampledRegion) -> Iterator[tuple[Ahead, list[Operand], list[Read]]]:
    """Two constants as one, of the shape of the first: what computes it, the operands with it at the end, in place of
    both, and what each of these is.  A constant may be one for each row of the first."""
    constant = [i for i, o in enumerate(region.operands) if _is_number(region.facts.tensor(o.value))]
    for op_type, (first, second) in itertools.product(_FOLDS, itertools.permutations(constant, 2)):
        one, other = (region.operands[i] for i in (first, second))
        rest = [i for i in range(len(region.operands)) if i not in (first, second)]
        for column, array in _in_shape(second, other.array, one.array.shape):
            is_again = array.shape == one.array.shape and first > second and op_type != "Div"  # both orders are one
            if one.value.dtype != other.value.dtype or is_again:
                continue
            with np.errstate(all="ignore"):
                made = replace(one, name="", array=_FOLDS[op_type](one.array, array), is_constant=False)
            ahead = (*column, Operator("", op_type, (first, Inner(0) if column else second), is_ahead=True))
            yield ahead, [*(region.operands[i] for i in rest), made], [*rest, Inner(len(column))]


def _in_shape(number: int, array: Array, shape: tuple[int, ...]) -> Iterator[tuple[Ahead, Array]]:
    """A constant operand as it is broadcast to a shape, and as a column of it."""
    if _fits_into(array.shape, shape):
        yield (), array
    if array.ndim == 1 and len(shape) == 2 and _fits_into((len(array), 1), shape):
        yield (Operator("", "Unsqueeze", (number,), (("axes", Parameter((1,))),), is_ahead=True),), array[:, None]


def _flattened(region: SampledRegion) -> Iterator[tuple[Operator, list[Operand], list[Read]]]:
    """An operand of more axes as a matrix of its rows, likewise."""
    for place, operand in enumerate(region.operands):
        if operand.array.ndim > 2 and operand.is_required:
            rows = replace(operand, array=operand.array.reshape(-1, operand.array.shape[-1]))
            view = Operator("", ROWS, (place,), (("axis", Parameter(operand.array.ndim - 1)),), is_ahead=True)
            operands, places = list(region.operands), list[Read](range(len(region.operands)))
            operands[place], places[place] = rows, Inner(0)
            yield view, operands, places


_FOLDS: Mapping[str, np.ufunc] = {"Mul": np.multiply, "Add": np.add, "Div": np.divide}
"""The operators that make one constant of two."""


def _is_number(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and tensor.dtype.is_floating_point()


def _fits_into(shape: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    """True if a tensor of a shape is broadcast to a larger one."""
    try:
        return np.broadcast_shapes(shape, larger) == larger
    except ValueError:
        return False


def _results(found: Schema, region: SampledRegion) -> list[tuple[int, ...]] | None:
    """The outputs of the operator that may stand for those of the region, in their order."""
    count = len(region.results)
    if count > found.max_outputs:
        return None
    if count == 1:
        return [(0,)]
    most = min(found.max_outputs, 5)
    return list(itertools.permutations(range(most), count)) if most >= count else None


# ----------------------------------------------------------------------------------------------------- operands


def assignments(found: Schema, operands: Sequence[Operand]) -> Iterator[tuple[int | None, ...]]:
    """Operands for the inputs of an operator, those first that keep the order in which the region reads them.

    Every operand that the region depends on is read, once; a constant may be read again and again, or not at all.
    """
    required = frozenset(i for i, o in enumerate(operands) if o.is_required)
    formals = _formals(found, len(operands))
    if len(required) <= len(formals):
        yield from _Places(formals, found.min_inputs, operands).assigned(required, (), {})


def _formals(found: Schema, count: int) -> list[Formal]:
    """The inputs; a variadic one as often as there are operands."""
    made = list(found.inputs)
    if made and made[-1].variadic:
        made += [made[-1]] * max(0, count - len(made))
    return made


@dataclass(frozen=True)
class _Places:
    """The inputs of an operator, of which some are required, and the operands that are to take their places."""

    formals: Sequence[Formal]
    least: int
    operands: Sequence[Operand]

    def assigned(
        self, missing: frozenset[int], chosen: tuple[int | None, ...], types: Mapping[str, ir.DataType]
    ) -> Iterator[tuple[int | None, ...]]:
        """The ways to go on from what is chosen, where some operands are missing and some type variables are known."""
        place = len(chosen)
        if not self._has_room(place, missing):
            return
        if not missing and place >= self.least:
            yield _trimmed(chosen)
        if place == len(self.formals):
            return
        variable = self.formals[place].type_var
        for i in self._choices(place, chosen, is_free=bool(missing)):
            if i is None:
                yield from self.assigned(missing, (*chosen, None), types)
                continue
            dtype = self.operands[i].value.dtype
            if dtype in self._taken[place] and types.get(variable, dtype) == dtype:
                yield from self.assigned(missing - {i}, (*chosen, i), {**types, variable: dtype})

    def _choices(self, place: int, chosen: tuple[int | None, ...], *, is_free: bool) -> list[int | None]:
        """The operands for a place, the likeliest first; None, where it may be free, rather than a number, which seldom
        is an operand."""
        last = max((i for i in chosen if i is not None), default=-1)
        open_ones = [i for i, o in enumerate(self.operands) if i not in chosen or o.is_constant]
        order = sorted(open_ones, key=lambda i: (not self.operands[i].is_required, i in chosen, i < last, i))
        required: list[int | None] = [i for i in order if self.operands[i].is_required]
        none: list[int | None] = [None] * (self.formals[place].optional and is_free)
        return [*required, *none, *order[len(required) :]]

    @cached_property
    def _taken(self) -> list[frozenset[ir.DataType]]:
        """The dtypes of operands that each input takes."""
        dtypes = {o.value.dtype for o in self.operands} - {None}
        return [frozenset(d for d in dtypes if d is not None and type_string(d) in f.types) for f in self.formals]

    def _has_room(self, place: int, missing: frozenset[int]) -> bool:
        """True if of each dtype no more operands are missing than inputs from a place on take.

        Else all orders of the operands for the first inputs are gone through before the last of them is seen to be one
        too many.
        """
        counts = Counter(self.operands[i].value.dtype for i in missing)
        left = self._taken[place:]
        return len(missing) <= len(left) and all(sum(d in t for t in left) >= n for d, n in counts.items())


def _trimmed(chosen: tuple[int | None, ...]) -> tuple[int | None, ...]:
    while chosen and chosen[-1] is None:
        chosen = chosen[:-1]
    return chosen
