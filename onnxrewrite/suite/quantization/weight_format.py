"""The forms in which weights of a product are stored in blocks, and the kernels that multiply by them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Final

import onnx_ir as ir

from onnxrewrite.errors import UsageError
from onnxrewrite.suite.quantization.quantize_settings import BLOCKS, Algorithm, QuantizeSettings, names

EXACT, FAST = 0, 4
"""Accuracy levels of com.microsoft.MatMulNBits: products of floats, and of 8-bit integers, which is what a CPU is fast
at."""

BITS: Final = {"int8": 8, "uint8": 8, "int4": 4, "uint4": 4, "mixed": 4}
"""Bits of a weight by its dtype; the fewest, of those that are mixed."""


@dataclass(frozen=True, order=True)
class WeightFormat:
    """One form.

    Attributes:
        bits: Of a weight.
        block: Weights along the inner dimension that share a scale.
        level: The accuracy level, ``EXACT`` or ``FAST``.
        algorithm: ``nearest``: the nearest of the steps between the extremes of a block.  ``k-quant``: steps that
            leave the least weighted square error, with a zero point; 4 bits only.  Both are onnxruntime.quantization's.
            ``gptq``: errors are made up for on what the product reads, see ``gptq``; 4 bits, with zero points.
        symmetric: True if zero is in the middle of the steps; else each block has a zero point.
    """

    bits: int
    block: int
    level: int = FAST
    algorithm: Algorithm = "nearest"
    symmetric: bool = True

    @property
    def kernel(self) -> WeightFormat:
        """Of those that run the same kernel on as many bytes the same one."""
        return WeightFormat(self.bits, self.block, self.level, "nearest", self.symmetric)

    @property
    def stored(self) -> WeightFormat:
        """Of those whose weights are stored alike, and which differ in how they are computed with, the same one."""
        return replace(self, level=FAST)

    @property
    def bits_per_weight(self) -> float:
        """Bits, a float32 scale and a zero point a block included."""
        return self.bits + (32 + (0 if self.symmetric else self.bits)) / self.block

    def fits(self, operator: str, sizes: tuple[int, ...]) -> bool:
        """True if weights of these sizes can be had in it, MatMul's or Gather's: blocks lie along the last but one axis
        of the former, along the last of the latter, which has 4 bits and ``nearest`` only.  The zero points of
        ``k-quant`` are packed in pairs, and it fails on one that is left over; ``gptq`` takes matrices."""
        if operator == "Gather":
            return self.block <= sizes[-1] and (self.bits, self.algorithm, self.level) == (4, "nearest", FAST)
        blocks = -(-sizes[-2] // self.block)
        alike = {"nearest": True, "k-quant": blocks % 2 == 0, "gptq": len(sizes) == 2}
        return self.block <= sizes[-2] and alike[self.algorithm]

    def __str__(self) -> str:
        words = [f"{self.bits} bits", f"blocks of {self.block}", f"level {self.level}", self.algorithm]
        return " ".join([*words] if self.symmetric else [*words, "zero points"])


def forms_by_settings(model: ir.Model, nodes: Container[str], settings: QuantizeSettings) -> dict[str, WeightFormat]:
    """The form that settings name, of products and tables; the nearest steps where the algorithm does not fit."""
    nearest = WeightFormat(BITS[settings.weights], settings.block_size, symmetric=settings.symmetric_weights)
    asked = replace(nearest, algorithm=settings.algorithm, symmetric=False)
    found: dict[str, WeightFormat] = {}
    for node in model.graph:
        name, weight = node.name or "", node.inputs[int(node.op_type != "Gather")] if len(node.inputs) > 1 else None
        if name in nodes:
            sizes = tuple(weight.const_value.shape.numpy()) if weight is not None and weight.const_value else ()
            fits = settings.algorithm != "nearest" and len(sizes) > 1 and asked.fits(node.op_type, sizes)
            found[name] = asked if fits else nearest
    return found


def closer_form(node: ir.Node) -> WeightFormat | None:
    """The form of a product that is closer than integers with one scale for all that it reads, and not much slower: 8
    bits in the largest blocks up to 128; None where its weights are no matrix, or too small."""
    weight = node.inputs[1].const_value if node.op_type == "MatMul" and node.inputs[1] is not None else None
    sizes = tuple(weight.shape.numpy()) if weight is not None else ()
    fitting = [WeightFormat(8, block) for block in BLOCKS if len(sizes) == 2 and block <= min(128, sizes[0])]
    return fitting[-1] if fitting else None


def forms_in_blocks(model: ir.Model, nodes: Container[str], settings: QuantizeSettings) -> dict[str, WeightFormat]:
    """The forms of those products that settings want in blocks.

    Raises:
        UsageError: The weights of one have no such form.
    """
    found: dict[str, WeightFormat] = {}
    for node in model.graph:
        name = node.name or ""
        if name in nodes and names(settings.in_blocks, name, node.op_type):
            form = closer_form(node)
            if form is None:
                raise UsageError(f"in_blocks: {node.op_type} {name}: its weights have no form in blocks")
            found[name] = form
    return found


def candidates() -> tuple[WeightFormat, ...]:
    """The forms that are tried for each product."""
    levels = (FAST, EXACT)
    four = [WeightFormat(4, block, level) for block in BLOCKS for level in levels]
    better = [WeightFormat(4, block, level, "k-quant", symmetric=False) for block in BLOCKS for level in levels]
    made_up = [WeightFormat(4, block, level, "gptq", symmetric=False) for block in (32, 128) for level in levels]
    eight = [WeightFormat(8, block, level) for block in (32, 128) for level in levels]
    return (*four, *better, *made_up, *eight)
