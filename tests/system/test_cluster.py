"""Work on an executor that is somebody else's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from onnxrewrite.errors import UsageError
from onnxrewrite.system.cluster import Cluster, check_jobs, in_cluster


def square(number: int) -> int:
    if number < 0:
        raise ValueError("no root of it is real")
    return number * number


def here(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    return ((number, -1) for number in numbers)


class Silent(Executor):
    """It takes everything and answers nothing."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:  # type: ignore[override]
        return Future()


def test_every_task_comes_with_its_answer() -> None:
    notes: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        assert dict(in_cluster(square, range(100), Cluster(pool), here, notes)) == {n: n * n for n in range(100)}
    assert notes == []


def test_what_the_executor_fails_at_is_done_here_and_told() -> None:
    notes: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        assert dict(in_cluster(square, [2, -3, 4], Cluster(pool), here, notes)) == {2: 4, -3: -1, 4: 16}
    (note,) = notes
    assert note == "the executor failed (ValueError: no root of it is real): done here, one by one: 1 of 3 models"


def test_an_executor_that_is_gone_is_waited_for_no_more() -> None:
    notes: list[str] = []
    answers = ["", "no worker is left"]
    found = in_cluster(square, [2, 3], Cluster(Silent(), lambda: answers.pop(0)), here, notes)
    assert dict(found) == {2: -1, 3: -1}
    assert notes == ["the executor failed (no worker is left): done here, one by one: 2 of 2 models"]


def test_a_cluster_has_its_own_number_of_workers() -> None:
    check_jobs(None, 2)
    check_jobs("dask://local", 2)
    check_jobs("dask://here:1", 1)
    with pytest.raises(UsageError, match="for the cluster dask://here:1 to say"):
        check_jobs("dask://here:1", 2)
