"""The ways in which a kernel could stand for a region: its operator on the region's operands, with attributes that are
found in the region.

An operator is tried that the target has a kernel for and that is defined: by simpler ones, in ``ir/bodies/`` or by a
function body of the standard, or as one of the standard's elementwise or linear ones.  Which operand goes where, and
which attributes it gets, is enumerated within limits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.bodies import BODIES
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.schema import Attribute, Formal, Schema
from onnxrewrite.ir.target import Target, type_string
from onnxrewrite.suite.discovery.sampled_region import Operand, SampledRegion
from onnxrewrite.suite.discovery.substitute import Inner, Operator, Origin, Parameter, Substitute

ASSIGNMENTS = 24
"""So many ways to give a kernel the operands are tried."""

VARIATIONS = 24
"""So many choices of attributes are tried for each of them."""

_MOVES = frozenset(operators("view permute select repeat join"))
"""Operators that only move data."""

_COMPUTING = frozenset(operators("broadcast linear", but="images"))
"""Operators of the standard that are what others are defined by; the float64 reference takes them as they are."""

_POOL = 6
"""So many values are tried for an attribute."""


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
    choices = list(itertools.islice(parameters(kernel, region), VARIATIONS))
    if wanted is None or not choices:
        return
    for inputs in itertools.islice(assignments(kernel.schema, region.operands), ASSIGNMENTS):
        yield [
            Substitute((Operator(kernel.domain, kernel.op_type, inputs, given, max(places) + 1),), _inners(places))
            for places in wanted
            for given in choices
        ]


def _inners(places: Sequence[int]) -> tuple[Inner, ...]:
    return tuple(Inner(0, place) for place in places)


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
    if len(required) > len(formals):
        return
    yield from _assigned(formals, found.min_inputs, operands, required, (), {})


def _formals(found: Schema, count: int) -> list[Formal]:
    """The inputs; a variadic one as often as there are operands."""
    made = list(found.inputs)
    if made and made[-1].variadic:
        made += [made[-1]] * max(0, count - len(made))
    return made


def _assigned(
    formals: Sequence[Formal],
    least: int,
    operands: Sequence[Operand],
    missing: frozenset[int],
    chosen: tuple[int | None, ...],
    types: Mapping[str, ir.DataType],
) -> Iterator[tuple[int | None, ...]]:
    place = len(chosen)
    if len(formals) - place < len(missing) or not _can_take(formals[place:], operands, missing):
        return
    if not missing and place >= least:
        yield _trimmed(chosen)
    if place == len(formals):
        return
    formal = formals[place]
    last = max((i for i in chosen if i is not None), default=-1)
    order = sorted(range(len(operands)), key=lambda i: (i in chosen, i < last, i))
    for i in order:
        dtype = operands[i].value.dtype
        if i in chosen and not operands[i].is_constant:
            continue
        if dtype is None or type_string(dtype) not in formal.types or types.get(formal.type_var, dtype) != dtype:
            continue
        known = {**types, formal.type_var: dtype}
        yield from _assigned(formals, least, operands, missing - {i}, (*chosen, i), known)
    if formal.optional and missing:
        yield from _assigned(formals, least, operands, missing, (*chosen, None), types)


def _can_take(formals: Sequence[Formal], operands: Sequence[Operand], missing: frozenset[int]) -> bool:
    """True if for every operand that is missing there is an input of its dtype left."""
    return all(
        any(dtype is not None and type_string(dtype) in f.types for f in formals)
        for dtype in (operands[i].value.dtype for i in missing)
    )


def _trimmed(chosen: tuple[int | None, ...]) -> tuple[int | None, ...]:
    while chosen and chosen[-1] is None:
        chosen = chosen[:-1]
    return chosen


# --------------------------------------------------------------------------------------------------- attributes


def parameters(kernel: Kernel, region: SampledRegion) -> Iterator[tuple[tuple[str, Parameter], ...]]:
    """Attributes for an operator: those that nodes of the region have by the same name, then one other at a time.

    An attribute that has to be given gets each of the values that are found for it.
    """
    base: dict[str, Parameter] = {}
    pools: dict[str, list[Parameter]] = {}
    for name, formal in sorted(kernel.schema.attributes.items()):
        inherited = _inherited(name, formal, region)
        pool = [p for p in (*inherited, *_pool(name, formal, region)) if _fits(p.value, formal)]
        pools[name] = list({p.value: p for p in reversed(pool)}.values())[::-1][:_POOL]
        if inherited:
            base[name] = inherited[0]
    needed = [n for n, f in kernel.schema.attributes.items() if f.required and n not in base]
    if any(not pools[n] for n in needed):
        return
    made = [{**base, **dict(zip(needed, each, strict=True))} for each in itertools.product(*(pools[n] for n in needed))]
    yield from (tuple(sorted(given.items())) for given in made)
    for given, (name, pool) in itertools.product(made, pools.items()):
        default = kernel.schema.attributes[name].default
        for value in pool if name not in needed else ():
            if value.value != (given[name].value if name in given else default):
                yield tuple(sorted({**given, name: value}.items()))


def _inherited(name: str, formal: Attribute, region: SampledRegion) -> list[Parameter]:
    """The values that nodes of the region have for an attribute of this name, defaults too."""
    found = []
    for number, node in enumerate(region.region.nodes):
        known = schema.schema(node.domain, node.op_type, region.facts.version(node))
        own = known.attributes.get(name) if known is not None else None
        if own is None or own.type != formal.type:
            continue
        value = schema.attribute(node, name, region.facts.version(node))
        if _fits(value, formal):
            found.append(Parameter(value, Origin("attribute", number, name)))
    return found


def _pool(name: str, formal: Attribute, region: SampledRegion) -> Iterator[Parameter]:
    """Further values: numbers and names that are found in the region, and what a flag may be."""
    match formal.type:
        case ir.AttributeType.INT:
            if formal.default in (0, 1) or name in schema.FLAGS:
                yield Parameter(1 - int(formal.default == 1))
            yield from _attributes(region, ir.AttributeType.INT)
            yield from (Parameter(size) for size in _counts(region))
        case ir.AttributeType.FLOAT:
            yield from _numbers(region)
            yield from _attributes(region, ir.AttributeType.FLOAT)
            yield Parameter(1.0)
        case ir.AttributeType.STRING:
            yield from (Parameter(n.op_type) for n in region.region.nodes)
            yield from _attributes(region, ir.AttributeType.STRING)
        case ir.AttributeType.FLOATS:
            yield from (Parameter(v) for v in _tuples(region))


def _attributes(region: SampledRegion, kind: ir.AttributeType) -> Iterator[Parameter]:
    """The values of all attributes of one type, whatever their names."""
    for number, node in enumerate(region.region.nodes):
        known = schema.schema(node.domain, node.op_type, region.facts.version(node))
        for name, formal in known.attributes.items() if known is not None else ():
            value = schema.attribute(node, name, region.facts.version(node))
            if formal.type == kind and value is not None:
                yield Parameter(value, Origin("attribute", number, name))


def _numbers(region: SampledRegion) -> Iterator[Parameter]:
    """The numbers in the constants of one element, and one divided by them."""
    for number, operand in enumerate(region.operands):
        if operand.is_constant and operand.array.size == 1 and operand.array.dtype.kind == "f":
            value = float(operand.array.reshape(()))
            yield Parameter(value, Origin("number", number))
            if value:
                yield Parameter(1 / value, Origin("number", number, inverse=True))


def _counts(region: SampledRegion) -> list[int]:
    """Sizes that may count something: those inside of the region, and the elements of its constant shapes."""
    sizes = [d for n in region.region.nodes for o in n.outputs for d in region.facts.shape(o) or ()]
    sizes += [int(e) for o in region.operands if o.is_constant and o.array.dtype.kind == "i" for e in o.array.ravel()]
    return list(dict.fromkeys(d for d in sizes if isinstance(d, int) and 1 <= d <= 64))


def _tuples(region: SampledRegion) -> Iterator[tuple[float, ...]]:
    """The numbers of each node together: its floating-point attributes, in the order of their names, or constants."""
    for node in region.region.nodes:
        known = schema.schema(node.domain, node.op_type, region.facts.version(node))
        names = sorted(known.attributes) if known is not None else ()
        given = [schema.attribute(node, name, region.facts.version(node)) for name in names]
        if any(isinstance(v, float) for v in given):
            yield tuple(v for v in given if isinstance(v, float))
    numbers = [p.value for p in _numbers(region) if not p.origin.inverse]
    if numbers:
        yield tuple(v for v in numbers if isinstance(v, float))


def _fits(value: object, formal: Attribute) -> bool:
    kinds: dict[ir.AttributeType, type] = {
        ir.AttributeType.INT: int,
        ir.AttributeType.FLOAT: float,
        ir.AttributeType.STRING: str,
        ir.AttributeType.INTS: tuple,
        ir.AttributeType.FLOATS: tuple,
    }
    kind = kinds.get(formal.type)
    return kind is not None and isinstance(value, kind)
