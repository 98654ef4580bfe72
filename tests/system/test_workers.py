"""Processes that may die of their work."""

from pathlib import Path

import pytest

from onnxrewrite.system.workers import Died, in_workers


def test_one_that_dies_is_replaced() -> None:
    tasks = ["1 + 1", "__import__('os').abort()", "2 + 2", "exit(3)", "3 + 3"]
    found = dict(in_workers(eval, tasks, 2))
    assert found == dict(zip(tasks, [2, Died("died of SIGABRT"), 4, Died("ended with status 3"), 6], strict=True))


def test_one_that_died_is_tried_again_before_the_others(tmp_path: Path) -> None:
    seen = str(tmp_path / "seen")
    dies_once = (
        f"7 if __import__('os').path.exists({seen!r}) else (open({seen!r}, 'w').close(), __import__('os').abort())"
    )
    dies_always = "__import__('os').abort()"
    tasks = [dies_always, dies_once, "1 + 1"]
    found = list(in_workers(eval, tasks, 1, tries=2))
    assert found == list(zip(tasks, [Died("died of SIGABRT"), 7, 2], strict=True))


def test_what_is_raised_there_is_raised_here() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        list(in_workers(int, ["1", "x"], 1))
    assert "Traceback" in caught.value.__notes__[0]


def test_what_cannot_be_sent_is_told() -> None:
    unreadable = "type('Odd', (Exception,), {})('boom')"
    with pytest.raises(RuntimeError, match="Odd: boom"):
        list(in_workers(eval, [f"(_ for _ in ()).throw({unreadable})"], 1))


def test_nothing_to_do() -> None:
    assert list(in_workers(eval, [], 2)) == []


def test_what_takes_too_long_is_given_up() -> None:
    task = "__import__('time').sleep(60)"
    assert list(in_workers(eval, [task], 1, limit=0.1)) == [(task, Died("took longer than 0.1 s"))]


def test_a_process_is_kept_for_the_next_task_unless_fresh_ones_are_wanted() -> None:
    tasks = ["__import__('os').getpid()", "__import__('os').getpid() + 0"]
    assert len({pid for _, pid in in_workers(eval, tasks, 1)}) == 1
    assert len({pid for _, pid in in_workers(eval, tasks, 1, fresh=True)}) == 2
