"""Fixtures of tests that time models."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxrewrite.measure import ab_timing


@pytest.fixture
def quick_timing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of its own, and little time for whole models."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(ab_timing, "SECONDS", 0.2)
