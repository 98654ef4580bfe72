"""What was measured is remembered; what cannot be is measured again."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

import pytest
from measured_rows import row

from onnxrewrite.errors import ModelError
from onnxrewrite.measure.database import store
from onnxrewrite.measure.database.store import Kept, Store

ROW = row()


@pytest.fixture(autouse=True)
def as_in_a_process_of_its_own() -> None:
    store._left_alone.clear()


def add(found: Store, median: float = 0.5) -> None:
    found.add([Kept(row(median=median))])


def medians(found: Store) -> list[float]:
    return [each.row.figures.ratios["after/before"].median for each in found.answers(ROW.asked)]


def test_rows_are_found_by_another_process_and_never_changed(tmp_path: Path) -> None:
    assert Store(tmp_path).add([Kept(row(median=0.5))]) == 1
    assert Store(tmp_path).add([Kept(row(median=0.7)), Kept(row(median=0.5))]) == 1
    assert medians(Store(tmp_path)) == [0.7, 0.5]
    assert Store(tmp_path).answers(row("b").asked) == []
    Store(tmp_path).forget([Kept(row(median=0.7))])
    assert medians(Store(tmp_path)) == [0.5]


def test_rows_of_a_source_in_quarantine_are_no_answer(tmp_path: Path) -> None:
    found = Store(tmp_path)
    found.add([Kept(row(median=0.7), "key", "{}"), Kept(row(median=0.5))])
    found.quarantine("key", "it lies")
    assert medians(found) == [0.5]
    assert found.quarantined() == {"key": "it lies"}
    found.release("key")
    assert medians(found) == [0.5, 0.7]


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    found = Store(tmp_path)
    found.path.write_bytes(b"this is no database" * 100)
    add(found)
    assert medians(found) == []


def filled(folder: Path, *statements: str) -> Store:
    """A file that another program, or somebody else, has made."""
    found = Store(folder)
    with contextlib.closing(sqlite3.connect(found.path)) as file, file:
        for statement in statements:
            file.execute(statement)
    return found


LAYOUTS = {
    "other columns": ("CREATE TABLE measured (name TEXT, value REAL)",),
    "that of before": ("PRAGMA user_version = 1", "CREATE TABLE measured (key TEXT PRIMARY KEY, data TEXT NOT NULL)"),
    "columns too few": ("PRAGMA user_version = 2", "CREATE TABLE measured (digest TEXT)"),
    "a view": ("CREATE VIEW measured AS SELECT 'a' AS digest, '{}' AS data",),
    "a view that never ends": (
        "PRAGMA user_version = 2",
        "CREATE TABLE quarantine (source TEXT)",
        "CREATE VIEW measured AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i AS asked, '' AS source, '' AS data, '' AS envelope, 1 AS rowid FROM n",
    ),
    "an index": ("CREATE TABLE t (i)", "CREATE INDEX measured ON t (i)"),
    "another version": ("PRAGMA user_version = 77", "CREATE TABLE measured (key TEXT, data TEXT)"),
    "no table, though it says so": ("PRAGMA user_version = 2",),
}


@pytest.mark.parametrize("statements", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_another_layout_is_replaced(tmp_path: Path, statements: tuple[str, ...]) -> None:
    found = filled(tmp_path, *statements)
    start = time.monotonic()
    assert medians(found) == []
    for _ in range(3):
        add(found)
        store._left_alone.clear()  # another process
    assert medians(found) == [0.5]
    assert time.monotonic() - start < 3


VALUES = [
    b"null",
    b"1",
    b"[]",
    b"{}",
    b'{"format":1}',
    b"no JSON",
    b"",
    b"[" * 100_000,
    b"\xff\x00",
    "text",
    5,
    0.5,
    None,
]


@pytest.mark.parametrize("value", VALUES, ids=[repr(v)[:40] for v in VALUES])
def test_what_is_no_row_is_no_answer(tmp_path: Path, value: object) -> None:
    found = Store(tmp_path)
    add(found)
    with contextlib.closing(sqlite3.connect(found.path)) as file, file:
        told = (ROW.asked, value if value is not None else b"")
        file.execute("INSERT INTO measured VALUES ('d', '', ?, ?, '')", told)
    assert medians(found) == [0.5]


def test_a_locked_file_costs_a_moment_once(tmp_path: Path) -> None:
    found = Store(tmp_path)
    add(found)
    with contextlib.closing(sqlite3.connect(found.path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        start = time.monotonic()
        for _ in range(100):
            assert medians(Store(tmp_path)) == []
            add(Store(tmp_path), 0.7)
        assert time.monotonic() - start < 1
        other.rollback()
    store._left_alone.clear()
    assert medians(Store(tmp_path)) == [0.5]


@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "loop"])
def test_what_is_no_file_is_left_alone(tmp_path: Path, kind: str) -> None:
    found = Store(tmp_path)
    {
        "fifo": lambda: os.mkfifo(found.path),
        "folder": found.path.mkdir,
        "device": lambda: found.path.symlink_to("/dev/zero"),
        "loop": lambda: found.path.symlink_to(found.path),
    }[kind]()
    add(found)
    assert medians(found) == []
    assert found.problem
    with pytest.raises(ModelError, match="the database cannot be used"):
        found.require()
    assert os.path.lexists(found.path)


def test_where_nothing_can_be_written_nothing_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = Store(tmp_path / "file")
    add(found)
    assert medians(found) == []
    assert found.problem
    with pytest.raises(ModelError, match="the database cannot be used"):
        found.require()
