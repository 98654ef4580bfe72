"""The pytest plugin: ``--update-golden``, and the fixture that tells of it."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our option to pytest's."""
    group = parser.getgroup("onnxrewrite")
    group.addoption("--update-golden", action="store_true", help="renew the expectations of golden models")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """True if expectations are to be renewed rather than compared."""
    return bool(request.config.getoption("--update-golden"))
