"""Nodes by what a user calls them."""

from __future__ import annotations

import pytest
from suite.precision.graphs import mlp

from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.suite.precision.nodes import Named


@pytest.fixture(scope="module")
def named() -> Named:
    return Named(
        list(io.load(mlp(scopes=True)).graph), {"middle": {"/net/block.1/fc/MatMul", "/net/block.2/fc/MatMul"}}
    )


@pytest.mark.parametrize(
    ("key", "count", "kind"),
    [
        ("/net/block.1/fc/MatMul", 1, "name"),
        ("/net/block.?/fc/Relu", 4, "name"),
        ("block.1", 2, "scope"),
        ("net/block.1", 2, "scope"),
        ("net.block.*.fc", 8, "scope"),
        ("middle", 2, "region"),
        ("Relu", 4, "operator"),
    ],
)
def test_a_key(named: Named, key: str, count: int, kind: str) -> None:
    found = named.match(key, "keep")
    assert len(found) == count
    assert set(found.values()) == {kind}


def test_a_scope_is_matched_by_whole_steps(named: Named) -> None:
    with pytest.raises(
        UsageError, match=r"keep lock\.1: no node, scope or operator is called so; the nearest is block\.1"
    ):
        named.match("lock.1", "keep")


def test_what_is_near_nothing_names_nothing(named: Named) -> None:
    with pytest.raises(UsageError, match=r"called so$"):
        named.match("zzzzzzzzzzzzzzzz", "keep")


def test_brackets_in_a_name_are_no_pattern() -> None:
    model = mlp()
    model.graph.node[0].name = "fc[0]"
    assert Named(list(io.load(model).graph)).match("fc[0]", "keep") == {"fc[0]": "name"}
