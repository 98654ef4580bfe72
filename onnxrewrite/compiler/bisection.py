"""Bisection for the rewrite that makes a right result wrong, over repeated runs that leave rewrites out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from onnxrewrite.rewrite.trace import Key

Attempt: TypeAlias = Callable[[set[Key]], tuple[bool, Sequence[Key]]]
"""Runs without certain rewrites: whether the result is right then, and which rewrites were applied."""


def bisect(applied: Sequence[Key], quarantine: Collection[Key], attempt: Attempt) -> Key | None:
    """The rewrite that makes a right result wrong; None if there is none: it is wrong without any rewrite too.

    At every step the result is wrong without the ``innocent`` rewrites, and right without the suspects as well.

    Args:
        applied: The rewrites of a run with a wrong result.
        quarantine: The rewrites that that run left out.
        attempt: Makes further runs.
    """
    innocent, suspects = set(quarantine), list(dict.fromkeys(applied))
    while True:
        is_right, remaining = attempt(innocent | set(suspects))
        if is_right:
            break
        others = [k for k in dict.fromkeys(remaining) if k not in suspects]
        if not others:
            return None
        suspects += others
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        is_right, _ = attempt(innocent | set(half))
        if is_right:
            suspects = half
        else:
            innocent |= set(half)
            suspects = suspects[len(half) :]
    return suspects[0] if suspects else None
