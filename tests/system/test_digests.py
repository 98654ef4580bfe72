"""Digests of files: side by side, or one after the other where there is no memory for threads."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from onnxrewrite.errors import ModelError
from onnxrewrite.system.digests import sha256_of


@pytest.mark.parametrize("threads", [True, False])
def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: bool) -> None:
    def start(self: object) -> None:
        raise RuntimeError("can't start new thread")

    if not threads:
        monkeypatch.setattr("threading.Thread.start", start)
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text(path.name)
    assert sha256_of(iter(paths)) == [hashlib.sha256(path.name.encode()).hexdigest() for path in paths]
    with pytest.raises(ModelError, match="no: cannot be read: No such file"):
        sha256_of([tmp_path / "no"])
