"""Nodes in normalized form: every spelling of parameters, attribute or input, and reasons for unknown ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxrewrite.ir import text, views
from onnxrewrite.ir.facts import Facts


def last(written: str, opset: int = 17) -> tuple[Facts, ir.Node]:
    """The node that computes the graph's first output."""
    model = text.parse(written, opset=opset)
    node = model.graph.outputs[0].producer()
    assert node is not None
    return Facts(model.graph, dict(model.opset_imports)), node


@pytest.mark.parametrize(
    ("written", "opset", "axes", "keepdims"),
    [
        ("float[2,3,4] x; y = ReduceSum<axes=[-1,0]>(x)", 11, (2, 0), True),
        ("float[2,3,4] x; y = ReduceSum<keepdims=0>(x, {-1})", 13, (2,), False),
        ("float[2,3,4] x; y = ReduceMean<axes=[1]>(x)", 17, (1,), True),
        ("float[2,3,4] x; y = ReduceMean(x, {1})", 18, (1,), True),
        ("float[2,3,4] x; y = ReduceMean(x)", 17, (0, 1, 2), True),
        ("float[2,3,4] x; y = ReduceSum(x)", 13, (0, 1, 2), True),
        ("float[2,3,4] x; y = ReduceSum<noop_with_empty_axes=1>(x)", 13, (), True),
        ("float[2,3,4] x; y = ArgMax<axis=-2, keepdims=0>(x)", 17, (1,), False),
        ("float[2,3,4] x; y = ArgMin(x)", 17, (0,), True),
    ],
)
def test_reductions(written: str, opset: int, axes: tuple[int, ...], keepdims: bool) -> None:
    found = views.reduce_of(*last(written, opset))
    assert isinstance(found, views.Reduce)
    assert (found.source.name, found.axes, found.keepdims) == ("x", axes, keepdims)


@pytest.mark.parametrize(
    ("written", "opset", "axes"),
    [
        ("float[2,1,1] x; y = Squeeze<axes=[-1,1]>(x)", 11, (1, 2)),
        ("float[2,1,1] x; y = Squeeze(x, {-1})", 13, (2,)),
        ("float[2,3] x; y = Unsqueeze<axes=[-1,0]>(x)", 11, (0, 3)),
        ("float[2,3] x; y = Unsqueeze(x, {-1})", 13, (2,)),
        ("float[2,3] x; y = Unsqueeze(x, -1)", 13, (2,)),
    ],
)
def test_axes_that_come_and_go(written: str, opset: int, axes: tuple[int, ...]) -> None:
    assert views.unit_axes(*last(written, opset)) == axes


@pytest.mark.parametrize(
    ("written", "perm"),
    [
        ("float[2,3,4] x; y = Transpose<perm=[1,0,2]>(x)", (1, 0, 2)),
        ("float[2,3,4] x; y = Transpose(x)", (2, 1, 0)),
    ],
)
def test_permutations(written: str, perm: tuple[int, ...]) -> None:
    assert views.permutation(*last(written)) == perm


def test_gathers() -> None:
    found = views.gather_of(*last("float[2,3] x; y = Gather<axis=-1>(x, {0, 2})"))
    assert isinstance(found, views.Gather)
    assert (found.source.name, found.axis) == ("x", 1)
    np.testing.assert_array_equal(found.indices, [0, 2])


@pytest.mark.parametrize(
    ("written", "opset", "spans"),
    [
        ("float[5,6] x; y = Slice<starts=[1], ends=[-1], axes=[-1]>(x)", 9, [(1, 1, -1, 1)]),
        ("float[5,6] x; y = Slice<starts=[1,2], ends=[3,4]>(x)", 9, [(0, 1, 3, 1), (1, 2, 4, 1)]),
        ("float[5,6] x; y = Slice(x, {1}, {5}, {-1}, {2})", 13, [(1, 1, 5, 2)]),
        ("float[5,6] x; y = Slice(x, {1}, {5})", 13, [(0, 1, 5, 1)]),
    ],
)
def test_slices(written: str, opset: int, spans: list[tuple[int, ...]]) -> None:
    found = views.slice_of(*last(written, opset))
    assert isinstance(found, views.Slice)
    assert [(s.axis, s.start, s.end, s.step) for s in found.spans] == spans


@pytest.mark.parametrize(
    ("written", "axis", "elements"),
    [
        ("float[5,6] x; a, b = Split<axis=-1>(x, {2, 4})  y = Concat<axis=1>(b, a)", 1, range(2, 6)),
        ("float[5,6] x; a, b = Split<axis=1>(x)  y = Sub(b, a)", 1, range(3, 6)),
        ("float[5,6] x; b = Slice(x, {-2}, {9}, {0})  y = Relu(b)", 0, range(3, 5)),
    ],
)
def test_pieces(written: str, axis: int, elements: range) -> None:
    facts, node = last(written)
    piece = views.input_of(node)
    assert piece is not None
    found = views.piece_of(facts, piece)
    assert isinstance(found, views.Piece)
    assert (found.axis, found.elements) == (axis, elements)


@pytest.mark.parametrize(
    ("view", "written", "reason"),
    [
        (views.reduce_of, "float[2,3] x; int64[1] a; y = ReduceSum(x, a)", "the axes are not constant"),
        (views.reduce_of, "float[2,3] x; y = ReduceSum(x, {2})", "[2] are not all among 2"),
        (views.reduce_of, "y = ReduceSum(x)", "the rank of what is reduced is unknown"),
        (views.unit_axes, "float[2,1] x; y = Squeeze(x)", "the axes of Squeeze are not given"),
        (views.unit_axes, "y = Squeeze(x, {-1})", "the rank is unknown"),
        (views.unit_axes, "float[2,1] x; int64[1] a; y = Unsqueeze(x, a)", "the axes are not constant"),
        (views.permutation, "y = Transpose(x)", "the rank is not known"),
        (views.gather_of, "float[2,3] x; int64[1] i; y = Gather(x, i)", "the indices are not constant"),
        (views.gather_of, "y = Gather<axis=-1>(x, {0})", "the rank is unknown"),
        (views.gather_of, "float[2] x; y = Gather<axis=1>(x, {0})", "[1] are not all among 1"),
        (views.slice_of, "float[5] x; int64[1] e; y = Slice(x, {0}, e)", "not constant"),
        (views.slice_of, "float[5] x; y = Slice(x, {0, 1}, {2, 3}, {0, 0})", "cut twice"),
    ],
)
def test_reasons(view: Callable[[Facts, ir.Node], Any], written: str, reason: str) -> None:
    found = view(*last(written))
    assert isinstance(found, str)
    assert reason in found


def test_inputs_by_the_schemas_name() -> None:
    facts, node = last("float[2,3] x; float z; y = Clip(x, z)", 13)
    low = views.named_input(facts, node, "min")
    assert low is not None
    assert low.name == "z"
    assert views.named_input(facts, node, "max") is None
    assert views.named_input(facts, node, "axis") is None
    assert [v.name for v in views.inputs_of(node)] == ["x", "z"]
    assert views.input_of(node, 2) is None
