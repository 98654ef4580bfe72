"""Running one node of constants."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from onnxrewrite.ir import text
from onnxrewrite.runtime.constants import evaluate


def result(source: str, opset: int = 17, **options: Any) -> list[np.ndarray]:
    model = text.parse(source, opset=opset)
    *_, node = model.graph
    return evaluate(node, dict(model.opset_imports), **options)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("y = Add({1.0, 2.0}, 0.5)", np.array([1.5, 2.5], np.float32)),
        ("y = Add(int64[2] {1, 2}, int64 3)", np.array([4, 5])),
        ("y = Cast<to=10>({1.0, 2.0})", np.array([1, 2], np.float16)),
        ("y = Shape(float[2,3] ~)", np.array([2, 3])),
        ("y = Add(double 1.0, double 0.1)", np.array(1.1)),
        ("y = Not(bool[2] {true, false})", np.array([False, True])),
        ("y = Constant<value_floats = [1.0, 2.0]>()", np.array([1, 2], np.float32)),
        ("y = Clip({-1.0, 5.0}, , 3.0)", np.array([-1, 3], np.float32)),
        ("y = Concat<axis=0>(float[0] {}, {1.0})", np.array([1], np.float32)),
    ],
)
def test_values(source: str, expected: np.ndarray) -> None:
    (found,) = result(source)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("opset", "share"), [(12, 1 / 8), (13, 1 / 4)])
def test_the_models_own_opset_says_what_an_operator_means(opset: int, share: float) -> None:
    (found,) = result("y = Softmax<axis=1>(float[1,4,2] {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0})", opset)
    assert found[0, 0, 0] == share


def test_nodes_written_for_a_newer_opset() -> None:
    model = text.parse("y = Gelu({0.0, 1.0})")
    (node,) = model.graph
    node.version = 20
    (found,) = evaluate(node, {"": 17})
    np.testing.assert_allclose(found, [0, 0.8413447], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_floats(dtype: str) -> None:
    (found,) = result(f"y = Add({dtype}[2] {{1.0, 2.0}}, {dtype} 0.5)")
    assert found.dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16)
    assert found.astype(np.float32).tolist() == [1.5, 2.5]


def test_several_outputs() -> None:
    a, b = result("a, b = Split<axis=0>({1.0, 2.0, 3.0}, {1, 2})")
    assert [a.tolist(), b.tolist()] == [[1], [2, 3]]
    values, indices = result("v, i = TopK({1.0, 3.0, 2.0}, {2})")
    assert [values.tolist(), indices.tolist()] == [[3, 2], [1, 2]]


def test_contrib_operators() -> None:
    (found,) = result("y = com.microsoft.QuickGelu({0.0, 1.0})")
    np.testing.assert_allclose(found, [0, 1 / (1 + np.exp(-1.702))], rtol=1e-6)


@pytest.mark.parametrize(
    "source",
    [
        "float[2] x; y = Neg(x)",
        "y = my.own.Op({1.0})",
        "y = MatMul({1.0, 2.0}, {1.0, 2.0, 3.0})",
        "y = Reshape({1.0, 2.0}, {3})",
    ],
)
def test_what_cannot_be_run_raises(source: str) -> None:
    with pytest.raises(Exception, match=r"."):
        result(source)


def test_values_of_the_same_name_inside_a_subgraph_are_not_mixed_up() -> None:
    """A branch reads ``v0`` from outside; the node is cut out into a model whose values are called so, too."""
    model = text.parse(
        "(bool[1] v0) => (bool[1] y) <bool k = {true}> { y = If<then_branch = () => (bool[1] p) { p = Not(v0) }, "
        "else_branch = () => (bool[1] q) { q = Not(v0) }>(k) }"
    )
    with pytest.raises(ValueError, match="reads from outside"):
        evaluate(next(iter(model.graph)), {"": 17})


def test_a_branch_of_constants_only_can_be_run() -> None:
    source = (
        "(bool c) => (float y) <bool k = {true}> { y = If<then_branch = () => (float p) <float w = {2.0}> { p = Neg(w) }, "
        "else_branch = () => (float q) <float u = {3.0}> { q = Neg(u) }>(k) }"
    )
    assert result(source)[0] == -2


def test_the_graph_is_not_touched() -> None:
    model = text.parse("float[2] x; a = Add({1.0, 2.0}, 0.5)  y = Mul(a, x)")
    before = text.print_model(model)
    node = next(iter(model.graph))
    evaluate(node, {"": 17})
    assert text.print_model(model) == before
    assert all(len(i.uses()) == 1 for i in node.inputs if isinstance(i, ir.Value))
