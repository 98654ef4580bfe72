"""The 0/1 program of rewrites: no set that is possible gains more."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from onnxrewrite.measure.kernel_program import Part, Step, best


def step(*covers: Part, removes: bool = True, replaces: bool = False) -> Step:
    parts = frozenset(covers)
    return Step(parts, parts if removes else frozenset(), parts if replaces else frozenset())


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    found: list[Step] = []
    for number in range(draw(st.integers(1, 7))):
        built = [(n, place) for n in range(number) for place in range(2)]
        covers = draw(st.sets(st.sampled_from([*"abc", *built]), min_size=1, max_size=3))
        removes = draw(st.sets(st.sampled_from(sorted(covers, key=str))))
        replaces = removes if draw(st.integers(0, 5)) == 0 else set()
        found.append(Step(frozenset(covers), frozenset(removes), frozenset(replaces)))
    return found


def is_possible(steps: list[Step], chosen: tuple[int, ...]) -> bool:
    removed = [part for n in chosen for part in steps[n].removes]
    there = {part[0] for n in chosen for part in steps[n].covers if isinstance(part, tuple)}
    wanted = {part for s in steps for part in s.replaces if isinstance(part, str) or part[0] in chosen}
    replaced = {part for n in chosen for part in steps[n].replaces}
    return len(removed) == len(set(removed)) and there <= set(chosen) and wanted <= replaced


@given(programs(), st.data())
def test_it_is_as_good_as_the_best_of_all_sets(steps: list[Step], data: st.DataObject) -> None:
    gains = data.draw(st.lists(st.integers(-9, 9), min_size=len(steps), max_size=len(steps)))
    sets = itertools.chain.from_iterable(itertools.combinations(range(len(steps)), n) for n in range(len(steps) + 1))
    possible = [sum(gains[n] for n in chosen) for chosen in sets if is_possible(steps, chosen)]
    found = best(steps, [g * 1e-6 for g in gains])
    assert (found is None) == (not possible)
    if found is not None:
        assert is_possible(steps, tuple(found))
        assert sum(gains[n] for n in found) == max(possible)


def test_a_step_that_loses_is_taken_for_what_it_leads_to() -> None:
    steps = [step("a"), step((0, 0)), step("a")]
    assert best(steps, [-1e-6, 3e-6, 1e-6]) == {0, 1}
    assert best(steps, [-3e-6, 3e-6, 1e-6]) == {2}


def test_what_must_not_stay_is_replaced_at_any_price() -> None:
    assert best([step("a"), step("a", replaces=True)], [1e-6, -5e-6]) == {1}
    assert best([step("a"), step((0, 0), replaces=True)], [2e-6, -5e-6]) == frozenset()
    assert best([step("a", replaces=True), step("a", "b", replaces=True)], [-1e-6, 2e-6]) == {1}


def test_nothing_is_chosen_of_nothing(capfd) -> None:
    assert best([], []) == frozenset()
    assert best([step("a")], [1e-6]) == {0}
    assert capfd.readouterr() == ("", "")  # reports are written there
