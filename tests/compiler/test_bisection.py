"""Bisection over runs that leave rewrites out."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from onnxrewrite.compiler.bisection import bisect
from onnxrewrite.rewrite.trace import Key

KEYS = [("rule", f"v{n}") for n in range(20)]


@given(st.integers(1, 20), st.sets(st.integers(0, 19), min_size=1))
def test_one_of_the_guilty_is_found_in_few_runs(count: int, guilty: set[int]) -> None:
    applied, wrong, runs = KEYS[:count], {KEYS[n % count] for n in guilty}, []

    def attempt(quarantine: set[Key]) -> tuple[bool, list[Key]]:
        runs.append(quarantine)
        return wrong <= quarantine, [k for k in applied if k not in quarantine]

    assert bisect(applied, (), attempt) in wrong
    assert len(runs) <= 1 + math.ceil(math.log2(count))


def test_what_takes_the_place_of_a_suspect_is_one_too() -> None:
    first, second = KEYS[:2]

    def attempt(quarantine: set[Key]) -> tuple[bool, list[Key]]:
        remaining = [k for k in (first, second) if k not in quarantine][:1]
        return not remaining, remaining

    assert bisect([first], (), attempt) in (first, second)


def test_there_may_be_none() -> None:
    assert bisect(KEYS[:3], (), lambda quarantine: (False, [])) is None
    assert bisect([], (), lambda quarantine: (True, [])) is None


def test_what_was_left_out_stays_so() -> None:
    runs = []

    def attempt(quarantine: set[Key]) -> tuple[bool, list[Key]]:
        runs.append(quarantine)
        return KEYS[2] in quarantine, []

    assert bisect(KEYS[1:4], {KEYS[0]}, attempt) == KEYS[2]
    assert all(KEYS[0] in quarantine for quarantine in runs)
