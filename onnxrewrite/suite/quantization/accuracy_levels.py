"""Accuracy levels by tokens: products are computed on 8-bit integers unless a decoder then writes other tokens.

Level 4 of com.microsoft.MatMulNBits rounds what a product reads, which is two to nine times as fast as level 0, and
flips tokens of some models (microsoft/onnxruntime #29849).  Most flips are between tokens that are as likely as each
other, to the original's and back.  So the share of the original's tokens that are kept is compared, all products at
level 4 and all at level 0.  If it falls by more than the limit, each product is tried alone at level 4; those that
disturb the output most are taken back, as few as it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.runtime.session import referred
from onnxrewrite.suite.quality.closeness import Closeness, agreement, distance
from onnxrewrite.suite.quality.gate import Judge
from onnxrewrite.suite.quantization.bit_trials import Formats
from onnxrewrite.suite.quantization.block_weights import at_levels
from onnxrewrite.suite.quantization.weight_format import EXACT, FAST

Progress: TypeAlias = Callable[[int, int], None]
"""Told what is done, and what remains."""

_WIDE = 8
"""Bits of which level 0 takes eight times as long as level 4."""

_SHARE = 0.25
"""The part of the tokens that may be lost at all, which the level may lose."""

_TEXTS = 4
"""So many texts at most are run with each product alone."""


@dataclass(frozen=True)
class Levels:
    """The outcome.

    Attributes:
        forms: The form of each product that has one.
        flipped: The share of tokens that differ between all products at level 4 and all at level 0.
        lost: The share of the original's tokens that level 4 loses; negative where it finds more.
        back: The number of products whose level was taken back.
    """

    forms: Formats
    flipped: float
    lost: float
    back: int = 0

    def __str__(self) -> str:
        loses = f"loses {self.lost:.2%}" if self.lost > 0 else "loses none"
        told = f"accuracy level 4 flips {self.flipped:.2%} of tokens and {loses} of the original's"
        return f"{told}; taken back for {self.back} products" if self.back else told


def chosen_levels(model: ir.Model, forms: Formats, original: Judge, min_agreement: float, tell: Progress) -> Levels:
    """The levels of products: 4, taken back for as few as it takes.

    Weights of 8 bits, with which level 0 is slower than floats are, become floats where it is taken back.

    Args:
        model: The model with its weights in blocks.
        forms: The forms of its products and tables, by name.
        original: Judges beside the original, on texts.
        min_agreement: The share of tokens that must stay the same.
        tell: Called with the number of products that were tried alone, and of those that remain.
    """
    names = [node.name or "" for node in model.graph if node.op_type == "MatMulNBits" and node.name in forms]
    allowed = (1 - min_agreement) * _SHARE
    exact = at_levels(model, dict.fromkeys(names, EXACT))
    best = agreement(_close(exact, (), original))

    def lost(fast: Iterable[str]) -> float:
        return best - agreement(_close(exact, fast, original))

    whole = lost(names)
    with referred(exact) as reference:
        flipped = 1 - agreement(_close(exact, names, Judge(reference, original.data)))
        if whole <= allowed:
            return Levels(forms, flipped, whole)
        few, moved = Judge(reference, original.data[:_TEXTS]), {}
        for number, name in enumerate(names):
            tell(number, len(names) - number)
            moved[name] = distance(_close(exact, (name,), few))
    names.sort(key=lambda name: -moved[name])
    count = _fewest(len(names), lambda count: lost(names[count:]) <= allowed)
    back = {name: replace(forms[name], level=EXACT) for name in names[:count]}
    kept = {name: back.get(name, form) for name, form in forms.items() if name not in back or form.bits < _WIDE}
    return Levels(kept, flipped, whole, count)


def _close(exact: ir.Model, fast: Iterable[str], judge: Judge) -> Mapping[str, Closeness]:
    """The closeness with these products at level 4, and the others at level 0."""
    with referred(at_levels(exact, dict.fromkeys(fast, FAST))) as opened:
        return judge.quality(opened).outputs


def _fewest(most: int, is_enough: Callable[[int], bool]) -> int:
    """The least count from 1 to ``most`` that is enough, found by halving: if some are enough, more are."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle + 1
    return low
