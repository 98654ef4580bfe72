"""What a user is told where torch is missing, which is where continuous integration runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import onnxrewrite as rw
from onnxrewrite.errors import UsageError


def test_a_missing_torch_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"^exporting needs torch.*: pip install 'onnxrewrite\[torch\]'$"):
        rw.deploy.export(object(), ())


@pytest.mark.slow
def test_nothing_imports_torch_before_it_is_needed() -> None:
    code = "import sys, onnxrewrite as rw; rw.deploy.export, rw.session, rw.sessions.machine(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
