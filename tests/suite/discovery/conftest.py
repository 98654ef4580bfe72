"""What tests of discovery share."""

import pytest

from onnxrewrite.suite.discovery import candidate_trial


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes is not timed."""
    monkeypatch.setattr(candidate_trial, "times", lambda *_, **__: [])
