"""What the traps share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onnxrewrite.rewrite import registry


@pytest.fixture(autouse=True, scope="module")
def _plugins_are_found_once() -> Iterator[None]:
    """Looking for installed plugins takes longer than rewriting a small graph, and finds the same throughout a file."""
    found = list(registry._plugins())
    patch = pytest.MonkeyPatch()
    patch.setattr(registry, "_plugins", lambda: found)
    yield
    patch.undo()
