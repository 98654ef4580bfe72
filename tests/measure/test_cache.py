"""What was measured is remembered; what cannot be is measured again."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

import pytest

from onnxrewrite.measure import cache
from onnxrewrite.measure.cache import Cache, key
from onnxrewrite.measure.timing import Interval
from onnxrewrite.runtime.settings import Setting


@pytest.fixture(autouse=True)
def as_in_a_process_of_its_own() -> None:
    cache._left_alone.clear()


def test_what_was_put_is_found_by_another_process(tmp_path: Path) -> None:
    Cache(tmp_path).put("a", {"ratio": 0.5})
    Cache(tmp_path).put("a", {"ratio": 0.7})
    assert Cache(tmp_path).get("a") == {"ratio": 0.7}
    assert Cache(tmp_path).get("b") is None


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    found = Cache(tmp_path)
    found.path.write_bytes(b"this is no database" * 100)
    found.put("a", {"ratio": 0.5})
    assert found.get("a") is None


def filled(folder: Path, *statements: str) -> Cache:
    """A file that another program, or somebody else, has made."""
    found = Cache(folder)
    with contextlib.closing(sqlite3.connect(found.path)) as file, file:
        for statement in statements:
            file.execute(statement)
    return found


LAYOUTS = {
    "other columns": ("CREATE TABLE measured (name TEXT, value REAL)",),
    "one column": ("CREATE TABLE measured (key TEXT)",),
    "columns too many": ("CREATE TABLE measured (key TEXT PRIMARY KEY, data TEXT, more TEXT NOT NULL)",),
    "a view": ("CREATE VIEW measured AS SELECT 'a' AS key, '{}' AS data",),
    "a view that never ends": (
        "PRAGMA user_version = 1",
        "CREATE VIEW measured AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i AS key, '{}' AS data FROM n",
    ),
    "an index": ("CREATE TABLE t (i)", "CREATE INDEX measured ON t (i)"),
    "another version": ("PRAGMA user_version = 77", "CREATE TABLE measured (key TEXT, data TEXT)"),
    "no table, though it says so": ("PRAGMA user_version = 1",),
    "a trigger": (
        "PRAGMA user_version = 1",
        "CREATE TABLE measured (key TEXT PRIMARY KEY, data TEXT NOT NULL)",
        "CREATE TRIGGER t BEFORE INSERT ON measured BEGIN SELECT RAISE(ABORT, 'no'); END",
    ),
}


@pytest.mark.parametrize("statements", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_another_layout_is_replaced(tmp_path: Path, statements: tuple[str, ...]) -> None:
    found = filled(tmp_path, *statements)
    start = time.monotonic()
    assert found.get("a") is None
    found.put("a", {"ratio": 0.5})
    cache._left_alone.clear()  # another process
    found.put("a", {"ratio": 0.7})
    assert found.get("a") in ({"ratio": 0.7}, None)
    cache._left_alone.clear()
    found.put("a", {"ratio": 0.7})
    assert found.get("a") == {"ratio": 0.7}
    assert time.monotonic() - start < 3


VALUES = [
    "null", "1", "[]", "{}", '"text"', "NaN", '{"ratio": 1}', '{"ratio": {}}', '{"ratio": {"median": 1}}', "no JSON", "",
    '{"ratio": {"median": "1", "low": 1, "high": 1}}', '{"ratio": {"median": -1, "low": 1, "high": 1}}', "[" * 100_000,
    '{"ratio": {"median": NaN, "low": 1, "high": 1}}', '{"ratio": {"median": 1e999, "low": 1, "high": 1}}',
    '{"ratio": {"median": 1, "low": 1, "high": 1, "more": 1}}', '{"ratio": {"median": true, "low": 1, "high": 1}}',
    5, 0.5, b"\xff\x00", None,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=[repr(v)[:40] for v in VALUES])
def test_what_no_measurement_is_is_measured_again(tmp_path: Path, value: object) -> None:
    found = filled(tmp_path, "PRAGMA user_version = 1", "CREATE TABLE measured (key PRIMARY KEY, data)")
    with contextlib.closing(sqlite3.connect(found.path)) as file, file:
        file.execute("INSERT INTO measured VALUES ('a', ?)", (value,))
    assert found.intervals("a", ["ratio"]) is None
    found.remember("a", {"ratio": Interval(1.0, 0.9, 1.1)})
    assert found.intervals("a", ["ratio"]) == {"ratio": Interval(1.0, 0.9, 1.1)}
    assert found.intervals("a", ["ratio", "basic"]) is None


def test_a_locked_file_costs_a_moment_once(tmp_path: Path) -> None:
    found = Cache(tmp_path)
    found.put("a", {"ratio": 0.5})
    with contextlib.closing(sqlite3.connect(found.path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        start = time.monotonic()
        for _ in range(100):
            assert Cache(tmp_path).get("a") is None
            Cache(tmp_path).put("b", {"ratio": 0.5})
        assert time.monotonic() - start < 1
        other.rollback()
    cache._left_alone.clear()
    assert Cache(tmp_path).get("a") == {"ratio": 0.5}


@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "loop"])
def test_what_is_no_file_is_left_alone(tmp_path: Path, kind: str) -> None:
    found = Cache(tmp_path)
    {
        "fifo": lambda: os.mkfifo(found.path),
        "folder": found.path.mkdir,
        "device": lambda: found.path.symlink_to("/dev/zero"),
        "loop": lambda: found.path.symlink_to(found.path),
    }[kind]()
    found.put("a", {"ratio": 0.5})
    assert found.get("a") is None
    assert os.path.lexists(found.path)


def test_where_nothing_can_be_written_nothing_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = Cache(tmp_path / "file")
    found.put("a", {"ratio": 0.5})
    assert found.get("a") is None


def test_a_figure_depends_on_how_it_was_run() -> None:
    settings = [Setting(), Setting(threads=1), Setting(level="basic"), Setting("CUDAExecutionProvider")]
    assert len({key("x", s) for s in settings} | {key("y", Setting())}) == 5
    assert key("x", Setting()) == key("x", Setting())
