"""The attributes that an operator could have in place of a region, each with where in the region it is from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TypeGuard

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.schema import Attribute, Schema
from onnxrewrite.suite.discovery.sampled_region import SampledRegion
from onnxrewrite.suite.discovery.substitute import Origin, Parameter

_POOL = 6
"""So many values are tried for an attribute."""


def parameters(wanted: Schema, region: SampledRegion) -> Iterator[tuple[tuple[str, Parameter], ...]]:
    """Attributes for an operator: those that nodes of the region have by the same name, then one other at a time.

    An attribute that has to be given gets each of the values that are found for it.
    """
    base: dict[str, Parameter] = {}
    pools: dict[str, list[Parameter]] = {}
    for name, formal in sorted(wanted.attributes.items()):
        inherited = _inherited(name, formal, region)
        pool = [p for p in (*inherited, *_pool(name, formal, region)) if _fits(p.value, formal)]
        pools[name] = list({p.value: p for p in reversed(pool)}.values())[::-1][:_POOL]
        if inherited:
            base[name] = inherited[0]
    needed = [n for n, f in wanted.attributes.items() if f.required and n not in base]
    if any(not pools[n] for n in needed):
        return
    made = [{**base, **dict(zip(needed, each, strict=True))} for each in itertools.product(*(pools[n] for n in needed))]
    yield from (tuple(sorted(given.items())) for given in made)
    for given, (name, pool) in itertools.product(made, pools.items()):
        default = wanted.attributes[name].default
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
            if name in schema.FLAGS:
                return
            yield from _attributes(region, ir.AttributeType.INT)
            yield from _counts(region)
        case ir.AttributeType.FLOAT:
            yield from numbers(region)
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


def numbers(region: SampledRegion) -> Iterator[Parameter]:
    """The numbers in the constants of one element, one divided by them, and the products of two."""
    found = {
        i: float(o.array.reshape(()))
        for i, o in enumerate(region.operands)
        if o.is_constant and o.array.size == 1 and o.array.dtype.kind == "f"
    }
    for number, value in found.items():
        yield Parameter(value, Origin("number", number))
        if value:
            yield Parameter(1 / value, Origin("number", number, inverse=True))
    for (one, value), (other, factor) in itertools.combinations(found.items(), 2):
        yield Parameter(value * factor, Origin("number", one, times=other))


def _counts(region: SampledRegion) -> Iterator[Parameter]:
    """Sizes that may count something: those of views, others inside of the region, and the elements of its constant
    shapes."""
    made = [(i, n, region.facts.shape(o) or ()) for i, n in enumerate(region.region.nodes) for o in n.outputs]
    for place, node, shape in made:
        if node.op_type == "Reshape":
            yield from (Parameter(d, Origin("size", place, axis=k)) for k, d in enumerate(shape) if _counts_some(d))
    sizes = [d for _, _, shape in made for d in shape]
    sizes += [int(e) for o in region.operands if o.is_constant and o.array.dtype.kind == "i" for e in o.array.ravel()]
    yield from (Parameter(d) for d in dict.fromkeys(sizes) if _counts_some(d))


def _counts_some(size: object) -> TypeGuard[int]:
    return isinstance(size, int) and 1 <= size <= 64


def _tuples(region: SampledRegion) -> Iterator[tuple[float, ...]]:
    """The numbers of each node together: its floating-point attributes, in the order of their names, or constants."""
    for node in region.region.nodes:
        known = schema.schema(node.domain, node.op_type, region.facts.version(node))
        names = sorted(known.attributes) if known is not None else ()
        given = [schema.attribute(node, name, region.facts.version(node)) for name in names]
        if any(isinstance(v, float) for v in given):
            yield tuple(v for v in given if isinstance(v, float))
    found = [p.value for p in numbers(region) if not p.origin.inverse and p.origin.times < 0]
    if found:
        yield tuple(v for v in found if isinstance(v, float))


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
