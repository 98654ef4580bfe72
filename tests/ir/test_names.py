"""Names that are not in use yet."""

from __future__ import annotations

import pytest

from onnxrewrite.ir.names import Names


def test_fresh_names_are_numbered():
    names = Names(["a"])
    assert [names.fresh("a"), names.fresh("a"), names.fresh("b")] == ["a_1", "a_2", "b"]


@pytest.mark.parametrize(
    ("base", "made"),
    [("y", "y/Add"), ("y/Add", "y/Add"), ("y/Add_7", "y/Add"), ("y/Address", "y/Address/Add"), ("Add", "Add/Add")],
)
def test_names_do_not_grow(base: str, made: str):
    assert Names().within(base, "Add") == made
