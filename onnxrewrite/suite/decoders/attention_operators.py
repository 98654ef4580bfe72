"""The operators that attention consists of, and those that are attention: which input is what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PRODUCTS: Final = frozenset({"MatMul", "Einsum", "FusedMatMul"})
"""Products of two computed values, as scores and results of attention are."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of an attention by index.

    Attributes:
        parts: Keys and values.
        pasts: The past of each; outputs 1 and 2 are the presents.
        mask: The first that a mask, or what is made of it, goes into.
    """

    parts: tuple[int, int]
    pasts: tuple[int, int]
    mask: int


ATTENTIONS: Final[Mapping[str, Inputs]] = {
    "Attention": Inputs((1, 2), (4, 5), 3),
    "MultiHeadAttention": Inputs((1, 2), (6, 7), 5),
    "GroupQueryAttention": Inputs((1, 2), (3, 4), 5),
}
