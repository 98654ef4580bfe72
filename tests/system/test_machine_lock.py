"""A lock of the machine that cannot be had holds nobody up."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from onnxrewrite.system.machine_lock import machine_lock

fcntl = pytest.importorskip("fcntl", reason="there are no such locks here")


def test_it_is_held_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with machine_lock("here"):
        other = os.open(tmp_path / "onnxrewrite-here.lock", os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


def test_a_name_that_is_taken_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "onnxrewrite-here.lock").symlink_to("somewhere")
    with machine_lock("here"):
        assert not (tmp_path / "somewhere").exists()
