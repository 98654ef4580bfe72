"""What was documented under another name is found there, with a warning."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest

from onnxrewrite._moved import MOVED


def forget() -> None:
    """The old names have never been imported, as far as Python knows."""
    for name in MOVED:
        sys.modules.pop(f"onnxrewrite.{name}", None)
        folder, _, last = f"onnxrewrite.{name}".rpartition(".")
        if folder in sys.modules:
            vars(sys.modules[folder]).pop(last, None)


@pytest.fixture
def imported_anew() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", sorted(set(MOVED) - {"frameworks.torch"}))
def test_a_module_has_what_it_has_under_its_new_name(name: str, imported_anew: None) -> None:
    now = importlib.import_module(f"onnxrewrite.{MOVED[name]}")
    old = importlib.import_module(f"onnxrewrite.{name}")
    assert all(getattr(old, each) is value for each, value in vars(now).items() if not each.startswith("__"))
    assert now.__name__ == f"onnxrewrite.{MOVED[name]}"
    assert now.__spec__ is not None
    assert now.__spec__.name == now.__name__


def test_the_new_name_is_told(imported_anew: None) -> None:
    with pytest.warns(DeprecationWarning, match=r"onnxrewrite\.ir\.io is onnxrewrite\.io now"):
        from onnxrewrite.ir import io  # type: ignore[attr-defined]
    import onnxrewrite.io

    assert io.load is onnxrewrite.io.load


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"onnxrewrite\.never"):
        importlib.import_module("onnxrewrite.never")
