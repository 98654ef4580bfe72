"""Zeros, n:m patterns, empty channels and low rank in the weights of products and convolutions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.views import input_of
from onnxrewrite.system.arrays import Array, Floats

SMALLEST = 4096
"""Elements of a weight that is looked at."""

SPARSE = 0.3
"""Share of zeros from which on a weight counts as pruned."""

PATTERNS = ((1, 4), (2, 4), (4, 8))
"""n of m that are not zero, the strictest first: 2:4 is that of GPUs' sparse tensor cores."""

_LARGEST_RANK = 1024
"""Ranks above this are not looked for: a decomposition takes the cube of it."""

_WORTH = 0.8
"""Of the multiplications: what two products of low rank have to stay below."""

_SEED = 0


@dataclass(frozen=True)
class Weight:
    """A weight as a matrix: what is summed over down, outputs across.

    Attributes:
        name: The name of its node, or of itself where that has none.
        operator: The operator that reads it.
        tensor: The weight as it is stored: floats, or integers.
        zero: Of integers what stands for zero: one number, or one for each index of the first or last axis.
        is_turned: True if outputs are down: in a convolution, or a transposed matrix.
    """

    name: str
    operator: str
    tensor: ir.TensorProtocol = field(repr=False)
    zero: ir.TensorProtocol | None = field(default=None, repr=False)
    is_turned: bool = False

    @property
    def matrix(self) -> Floats:
        """The numbers, those of integers without their scale; made anew each time, for those of all weights may not fit
        into memory."""
        array = np.asarray(self.tensor.numpy(), np.float64)
        rows = array.reshape(len(array), -1)
        if self.zero is not None:
            zero = np.asarray(self.zero.numpy(), np.float64).ravel()
            rows = rows - (zero[:, None] if zero.size == len(rows) and self.is_turned else zero)
        return rows.T if self.is_turned else rows

    @property
    def shape(self) -> tuple[int, int]:
        """That of the matrix."""
        first, *rest = map(int, self.tensor.shape.numpy())
        inner = math.prod(rest)
        return (inner, first) if self.is_turned else (first, inner)


@dataclass(frozen=True)
class Structure:
    """The structure of a weight.

    Attributes:
        weight: The weight.
        zeros: Share of zeros.
        pattern: ``2:4``: of each four along the sum at most two are not zero; empty for none.
        empty: Outputs, and inputs, that are all zero.
        rank: Its rank, where two products of this rank would take fewer multiplications; else None.
        shares: Names of weights of the same inputs that the same first product of this rank would do for.
    """

    weight: Weight
    zeros: float
    pattern: str
    empty: tuple[int, int]
    rank: int | None
    shares: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """True if there is nothing to tell of it."""
        return self.zeros < SPARSE and not any(self.empty) and self.rank is None


_STORED = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT8, ir.DataType.UINT8})


def weights_of(model: ir.Model) -> Iterator[Weight]:
    """The constant weights of products and convolutions, floats or integers of 8 bits, each once."""
    met: set[int] = set()
    for graph in scopes(model):
        for node in graph:
            value, zero, is_turned = _stored(*_read(node))
            tensor = value.const_value if value is not None else None
            if tensor is None or value is None or id(value) in met or tensor.size < SMALLEST:
                continue
            rank, is_image = len(tensor.shape), "Conv" in node.op_type
            if tensor.dtype not in _STORED or not (rank > 2 if is_image else rank == 2):
                continue
            met.add(id(value))
            is_turned ^= is_image or bool(node.attributes.get_int("transB", 0))
            yield Weight(
                node.name or value.name or "", node.op_type, tensor, zero.const_value if zero else None, is_turned
            )


def _read(node: ir.Node) -> tuple[ir.Value | None, ir.Value | None]:
    """The weight that a product or a convolution reads; and its zero, as the schema of one of integers names it."""
    if node.op_type in ("MatMul", "Gemm", "Conv"):
        return input_of(node, 1), None
    known = schema.schema(node.domain, node.op_type, None) if re.search("MatMul|Gemm|Conv", node.op_type) else None
    names = [formal.name.lower() for formal in known.inputs] if known is not None else []
    for name in ("b", "w"):
        if name in names and f"{name}_zero_point" in names:
            return input_of(node, names.index(name)), input_of(node, names.index(f"{name}_zero_point"))
    return None, None


def _stored(value: ir.Value | None, zero: ir.Value | None) -> tuple[ir.Value | None, ir.Value | None, bool]:
    """A weight as it is stored, its zero, and whether it is transposed: behind DequantizeLinear and Transpose."""
    is_turned = False
    while (node := value.producer() if value is not None else None) is not None:
        if node.op_type == "Transpose" and len(node.attributes.get_ints("perm", [1, 0])) == 2:
            is_turned = not is_turned
        elif node.op_type == "DequantizeLinear":
            zero = input_of(node, 2)
        elif node.op_type != "Identity":
            break
        value = input_of(node, 0)
    return value, zero, is_turned


def structures(weights: Sequence[Weight]) -> list[Structure]:
    """The structure of each weight of which there is something to tell, in their order."""
    found = [each for each in map(structure, weights) if not each.is_plain]
    low = [each for each in found if each.rank is not None]
    shares = {id(each): _sharing(each, low) for each in low}
    return [
        each if not shares.get(id(each)) else Structure(**{**vars(each), "shares": shares[id(each)]}) for each in found
    ]


def structure(weight: Weight) -> Structure:
    """The structure of one weight."""
    matrix = weight.matrix
    zero = matrix == 0
    share = float(zero.mean())
    empty = int(zero.all(axis=0).sum()), int(zero.all(axis=1).sum())
    pattern = next((f"{n}:{m}" for n, m in PATTERNS if _follows(zero, n, m)), "") if share >= SPARSE else ""
    return Structure(weight, share, pattern, empty, _low_rank(matrix))


def _follows(zero: Array, most: int, of: int) -> bool:
    """True if of each group of consecutive elements of a sum at most so many are not zero."""
    rows = len(zero) // of * of
    groups = zero[:rows].reshape(rows // of, of, -1)
    return rows > 0 and bool(((~groups).sum(axis=1) <= most).all())


def _low_rank(matrix: Floats) -> int | None:
    """The rank, if two products of it would take fewer multiplications by enough."""
    rows, columns = matrix.shape
    most = int(_WORTH * rows * columns / (rows + columns))
    if most < 1 or not matrix.any() or not np.isfinite(matrix).all():
        return None
    seen = min(most + 1, _LARGEST_RANK, rows, columns)
    sketch = matrix @ np.random.default_rng(_SEED).standard_normal((columns, seen)) if seen < columns else matrix
    rank = _rank(sketch)
    return rank if rank <= most and rank < seen else None


def _rank(matrix: Floats) -> int:
    """The number of singular values above what rounding to float32 makes of zeros."""
    values = np.linalg.svd(matrix, compute_uv=False)
    least = values[0] * max(matrix.shape) * np.finfo(np.float32).eps
    return int((values > least).sum())


def _sharing(one: Structure, others: Sequence[Structure]) -> tuple[str, ...]:
    """Weights whose columns lie in the same space."""
    assert one.rank is not None
    found = []
    for other in others:
        if other is one or other.weight.shape[0] != one.weight.shape[0] or other.rank is None:
            continue
        both = np.concatenate([one.weight.matrix, other.weight.matrix], axis=1)
        if other.rank <= one.rank and _rank(both) == one.rank:
            found.append(other.weight.name)
    return tuple(found)


__all__ = ["PATTERNS", "SMALLEST", "SPARSE", "Structure", "Weight", "structure", "structures", "weights_of"]
