"""Both ways of saying which sizes are dynamic come to the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnxrewrite.errors import UsageError
from onnxrewrite.suite.frameworks.dynamic import from_axes, from_shapes

RANKS = {"x": 2, "y_0": 3}
X, Y = np.zeros((2, 3)), np.zeros((2, 3, 4))
ARGUMENTS = {"x": X, "y": [Y, 1.0], "flag": True}
NAMES = {id(X): "x", id(Y): "y_0"}


class Named:
    """As ``torch.export.Dim`` is."""

    def __init__(self, name: str):
        self.__name__ = name


def hint(name: str) -> Any:
    """As ``torch.export.Dim.AUTO`` is."""
    return SimpleNamespace(type=SimpleNamespace(name=name))


def test_axes_by_name() -> None:
    assert from_axes({"x": {0: "batch", -1: "width"}, "y_0": [2, 0]}, RANKS) == {
        "x": {0: "batch", 1: "width"},
        "y_0": {0: "y_0_dim0", 2: "y_0_dim2"},
    }
    assert from_axes({"out": {0: "batch"}}, RANKS, ["out"]) == {}
    assert from_axes({}, RANKS) == {}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"z": [0]}, "dynamic_axes: the module has no input 'z'; it has x, y_0"),
        ({"x": [2]}, "input 'x' has 2 axes, none is 2"),
        ({"x": {"0": "batch"}}, "none is '0'"),
        ({"x": 0}, "x must have a mapping of axes to names or a list of axes, not 0"),
    ],
)
def test_axes_that_are_none(given: Any, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        from_axes(given, RANKS)


BOTH = {"x": {0: "batch"}, "y_0": {0: "batch", 2: "y_0_dim2"}}


@pytest.mark.parametrize(
    "given",
    [
        {"x": {0: Named("batch")}, "y": [{0: Named("batch"), 2: hint("AUTO"), 1: hint("STATIC")}, None], "flag": None},
        {"x": {0: "batch", 1: None}, "y": [{0: "batch", 2: hint("DYNAMIC"), 1: 3}]},
        ({0: "batch"}, ({0: "batch", 2: hint("AUTO")},)),
        [("batch", None), [["batch", None, hint("AUTO")], None], None],
    ],
)
def test_shapes_by_structure(given: Any) -> None:
    assert from_shapes(given, ARGUMENTS, NAMES, RANKS) == BOTH


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"z": {0: "batch"}}, "dynamic_shapes: there is no argument 'z'; there are x, y, flag"),
        ({"y": {0: "batch"}}, r"dynamic_shapes\['y'\] must be a mapping or a sequence|has not the structure"),
        ({"x": "batch"}, "must be a mapping or a sequence, not 'batch'"),
        ({"x": {5: "batch"}}, "none is 5"),
        ((None, None, None, {0: "batch"}), "dynamic_shapes has not the structure of the arguments"),
        ("batch", "must be a mapping or a sequence"),
    ],
)
def test_shapes_that_do_not_fit(given: Any, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        from_shapes(given, ARGUMENTS, NAMES, RANKS)
