"""Folders of models to sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sweep_works import write


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.chdir(tmp_path)

    def made(*names: str) -> Path:
        for name in names:
            write(Path("zoo", f"{name}.onnx"))
        return Path("zoo")

    return made
