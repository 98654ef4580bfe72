"""A request says what is asked for, and refuses what nobody could do."""

from __future__ import annotations

from typing import Any

import pytest

from onnxrewrite.compiler.request import Request
from onnxrewrite.errors import UsageError
from onnxrewrite.rules import Rule, Stage, Var, op

RULE = Rule("a", Stage.CANONICALIZE, op.Neg(op.Neg(Var("x"))), lambda m, build: None)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"check": "some"}, "check must be full, fast or off, not 'some'"),
        ({"lower": "quick"}, "lower must be fastest, fused, portable, not 'quick'"),
    ],
)
def test_what_is_none_of_the_choices_is_refused(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Request(**asked)


def test_how_to_lower_is_read_from_the_environment_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXREWRITE_LOWER", "portable")
    asked = Request()
    monkeypatch.setenv("ONNXREWRITE_LOWER", "nonsense")
    assert asked.lowering == "portable"
    assert Request(lower="fused").lowering == "fused"
    with pytest.raises(UsageError, match="'nonsense'"):
        Request()
    monkeypatch.delenv("ONNXREWRITE_LOWER")
    assert Request().lowering == "fastest"


def test_files_and_packages_are_told_apart_from_rules() -> None:
    asked = Request(rules=iter(["a.py", RULE, "package"]))
    assert asked.sources == ["a.py", "package"]
    assert asked.rules == ("a.py", RULE, "package")
