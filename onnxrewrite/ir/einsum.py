"""Equations of Einsum: what the axes of the operands and of the result are called."""

from __future__ import annotations

from collections.abc import Sequence

DOTS = "".join(map(chr, range(0x3B1, 0x3B1 + 16)))
"""Labels for the axes that an ellipsis stands for, the last of these for the last axis; no equation can have them."""


def einsum_labels(equation: str, ranks: Sequence[int]) -> tuple[list[str], str] | None:
    """The labels of each operand and of the result, one character an axis; None where they do not fit the ranks.

    Without an arrow the result has what an ellipsis stands for, then the labels that occur once, in order.
    """
    left, arrow, output = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        return None
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    if any(n < 0 or n > len(DOTS) or (n and "..." not in t) for n, t in zip(hidden, terms, strict=True)):
        return None
    dotted = [n for n, term in zip(hidden, terms, strict=True) if "..." in term]
    if not arrow:
        plain = left.replace("...", "").replace(",", "")
        output = "..." * bool(dotted) + "".join(sorted(label for label in set(plain) if plain.count(label) == 1))
    shown = [_shown(term, n) for term, n in zip(terms, hidden, strict=True)]
    return shown, _shown(output, max(dotted, default=0))


def _shown(term: str, hidden: int) -> str:
    return term.replace("...", DOTS[len(DOTS) - hidden :])
