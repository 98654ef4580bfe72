"""Limits on computing with constants: bytes and work, estimated before anything is computed.

A file of 200 bytes can ask for a constant of any size, and for any amount of work to compute it.  A node refused here
stays in the model as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import onnx_ir as ir

from onnxrewrite.ir.einsum import einsum_labels
from onnxrewrite.ir.facts import Facts
from onnxrewrite.runtime.kernel_work import Tensor, flops

RESULT_BYTES: Final = 4 * 2**20
"""A constant of more bytes than this is computed only if it is no larger than what it is made of."""

GROWTH_BYTES: Final = 2**28
"""All rewrites of a model together may add so many bytes of constants to those that it has."""

FILL_BYTES: Final = 2**16
"""One number throughout is written out up to so many bytes.  Rules know more of them, too, for what they are."""

WORK_BYTES: Final = 2**30
"""The memory that the computation of one node may take, its results included."""

OPERATIONS: Final = 2**35
"""Operations on numbers: about a second of one thread."""

SECONDS: Final = 2.0
"""The time limit for the computation of one node within the other limits."""


def refusal(node: ir.Node, facts: Facts) -> str | None:
    """The reason not to compute a node of constants; None if nothing known speaks against it."""
    sizes = (facts.nbytes(o) for o in node.outputs)
    too_large = refusal_of(node, facts, [size for size in sizes if size is not None])
    work = _operations(node, facts)
    return too_large or (f"it would take {work:.1e} operations" if work > OPERATIONS else None)


def refusal_of(node: ir.Node, facts: Facts, sizes: Iterable[int]) -> str | None:
    """The reason not to keep results of these sizes, in bytes, as constants; None if they may be kept."""
    tensors = {id(t): t for v in node.inputs if v is not None and (t := facts.tensor(v)) is not None}
    read = sum(t.nbytes for t in tensors.values())
    most = FILL_BYTES if node.op_type == "ConstantOfShape" else min(max(RESULT_BYTES, read), WORK_BYTES)
    largest = max(sizes, default=0)
    return f"the constant would take {largest} bytes" if largest > most else None


def _operations(node: ir.Node, facts: Facts) -> int:
    """Operations on numbers, at the most; of shapes that are not known, nothing is counted."""
    inputs, outputs = (_tensors(values, facts) for values in (node.inputs, node.outputs))
    if node.op_type == "Einsum":
        return _of_einsum(node, inputs)
    known = flops(node.op_type, inputs, outputs)
    if known is not None:
        return known
    factors = (abs(n) for a in node.attributes.values() for n in _numbers(a))
    return sum(t.size for t in (*inputs, *outputs)) * math.prod(max(1, n) for n in factors)


def _of_einsum(node: ir.Node, inputs: list[Tensor]) -> int:
    """The product of all sizes, whatever their order."""
    found = einsum_labels(node.attributes["equation"].as_string(), [len(t.shape) for t in inputs])
    terms = found[0] if found is not None else []
    sizes = {
        label: size for term, t in zip(terms, inputs, strict=False) for label, size in zip(term, t.shape, strict=True)
    }
    return math.prod(sizes.values())


def _tensors(values: Iterable[ir.Value | None], facts: Facts) -> list[Tensor]:
    """Those of known shape."""
    shapes = (facts.shape(v) for v in values if v is not None)
    return [
        Tensor("float", tuple(int(d) for d in shape))  # type: ignore[arg-type]
        for shape in shapes
        if shape is not None and all(isinstance(d, int) for d in shape)
    ]


def _numbers(attribute: ir.Attr) -> Iterable[int]:
    """The integers of an attribute: kernels, windows and counts multiply the work, and no more is known of them."""
    if attribute.is_ref():
        return ()
    if attribute.type == ir.AttributeType.INT:
        return (attribute.as_int(),)
    return attribute.as_ints() if attribute.type == ir.AttributeType.INTS else ()
