"""What training and compression left in weights, and what it brings here."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from onnxrewrite.suite.weights import weight_gains
from onnxrewrite.suite.weights.weight_gains import measured, weight_report
from onnxrewrite.suite.weights.weight_structure import Structure, structures, weights_of


def dense(*shape: int) -> Any:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def model(*weights: Any, op_type: str = "MatMul", **attributes: Any) -> ir.Model:
    """A node for each weight, named by its number."""
    nodes, inputs, outputs, tensors = [], [], [], []
    for n, weight in enumerate(weights):
        nodes.append(helper.make_node(op_type, [f"x{n}", f"w{n}"], [f"y{n}"], name=f"n{n}", **attributes))
        tensors.append(numpy_helper.from_array(weight, f"w{n}"))
        inputs.append(helper.make_tensor_value_info(f"x{n}", 1, None))
        outputs.append(helper.make_tensor_value_info(f"y{n}", 1, None))
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def found(*weights: Any, **options: Any) -> list[Structure]:
    return structures(list(weights_of(model(*weights, **options))))


def pruned(weight: Any, n: int, m: int, axis: int = 0) -> Any:
    """All but the n largest of each m along an axis are zero."""
    groups = np.moveaxis(weight, axis, 0).reshape(-1, m, weight.size // weight.shape[axis])
    order = np.argsort(-np.abs(groups), axis=1)
    kept = np.zeros_like(groups)
    np.put_along_axis(kept, order[:, :n], np.take_along_axis(groups, order[:, :n], axis=1), axis=1)
    return np.moveaxis(kept.reshape(np.moveaxis(weight, axis, 0).shape), 0, axis).copy()


def test_dense_weights_are_plain() -> None:
    assert found(dense(64, 128), dense(128, 128)) == []
    assert len(list(weights_of(model(dense(64, 128), dense(8, 8))))) == 1  # small ones are not looked at


@pytest.mark.parametrize(("n", "m"), [(1, 4), (2, 4), (4, 8)])
def test_patterns_along_the_sum(n: int, m: int) -> None:
    (one,) = found(pruned(dense(64, 128), n, m))
    assert (one.pattern, one.zeros) == (f"{n}:{m}", 1 - n / m)
    across = found(pruned(dense(64, 128), n, m, axis=1))
    assert [each.pattern for each in across] == [""]  # along outputs it is none


def test_zeros_without_a_pattern(rng: np.random.Generator) -> None:
    weight = dense(64, 128)
    weight[rng.random(weight.shape) < 0.6] = 0
    (one,) = found(weight)
    assert one.pattern == ""
    assert one.zeros == pytest.approx(0.6, abs=0.05)
    assert one.rank is None


def test_turned_weights_and_images() -> None:
    (gemm,) = found(pruned(dense(128, 64), 2, 4, axis=1), op_type="Gemm", transB=1)
    assert (gemm.weight.matrix.shape, gemm.weight.shape, gemm.pattern) == ((64, 128), (64, 128), "2:4")
    weight = dense(32, 16, 3, 3)
    weight[::4] = 0
    weight[:, 5] = 0
    (conv,) = found(weight, op_type="Conv")
    assert conv.weight.matrix.shape == conv.weight.shape == (144, 32)
    assert conv.empty == (8, 9)


def test_low_rank_where_it_pays() -> None:
    (one,) = found(dense(256, 12) @ dense(12, 256))
    assert one.rank == 12
    assert found(dense(256, 120) @ dense(120, 256)) == []  # two products would take nearly as long
    (zero,) = found(np.zeros((64, 128), np.float32))
    assert (zero.rank, zero.empty) == (None, (128, 64))


@pytest.mark.slow
def test_weights_of_a_shared_factor() -> None:
    factor, other = dense(256, 8), dense(8, 256).T
    ones = found(factor @ dense(8, 128), factor @ dense(8, 64), other @ dense(8, 128))
    assert [each.shares for each in ones] == [("n1",), ("n0",), ()]


def test_a_weight_is_told_once() -> None:
    shared = model(pruned(dense(64, 128), 2, 4), dense(64, 128))
    nodes = list(shared.graph)
    nodes[1].replace_input_with(1, nodes[0].inputs[1])
    assert [each.name for each in weights_of(shared)] == ["n0"]


def test_what_is_no_number_has_no_rank() -> None:
    for value in (np.inf, np.nan):
        weight = dense(64, 4) @ dense(4, 128)
        weight[3, 4] = value
        assert found(weight) == []


def test_numbers_are_not_kept() -> None:
    """Those of a model of billions of weights do not fit into memory in float64."""
    weights = model(*(pruned(dense(128, 128), 2, 4) for _ in range(4)))
    tracemalloc.start()
    try:
        kept = structures(list(weights_of(weights)))
        assert len(kept) == 4
        assert tracemalloc.get_traced_memory()[0] < 2 * 128 * 128 * 8
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_gains_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thin products are a fraction of one; zeros bring nothing that this would notice."""
    monkeypatch.setattr(weight_gains, "_SECONDS", 0.1)
    low, holes = dense(1024, 16) @ dense(16, 1024), dense(1024, 1024)
    holes[:, 128:] = 0
    gains = {gain.what: gain.ratio for gain in measured(found(low, holes))}
    assert set(gains) == {"zeros as they are", "without empty inputs and outputs", "two products of rank 16"}
    assert gains["two products of rank 16"].median < 0.5
    assert gains["without empty inputs and outputs"].median < 0.6
    assert gains["zeros as they are"].median > 0.6


def test_a_report_of_nothing() -> None:
    assert weight_report(model(dense(64, 128)), "m") == {"model": "m", "weights": 1, "structures": [], "gains": []}


def test_the_parts_compute_the_same() -> None:
    weight = dense(64, 4) @ dense(4, 128)
    u, s, v = np.linalg.svd(weight.astype(np.float64), full_matrices=False)
    made, rows = weight_gains._products([u[:, :4] * s[:4], v[:4]])
    assert rows == 64
    onnx.checker.check_model(made, full_check=True)
    from onnxrewrite.runtime.settings import open_runner

    x = dense(64, 64)
    assert np.allclose(np.asarray(open_runner(made, {"x": x})()[0]), x @ weight, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("is_transposed", [False, True])
def test_weights_behind_dequantize_linear(is_transposed: bool) -> None:
    """A model of training for few bits: the pattern is that of the numbers, not of what stands for zero."""
    matrix = np.round(20 * pruned(dense(64, 128), 2, 4)).astype(np.int8) + np.int8(3)
    stored = matrix.T.copy() if is_transposed else matrix
    steps = {"s": np.full(128, 0.1, np.float32), "z": np.full(128, 3, np.int8), "w": stored}
    made = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0 if is_transposed else 1)]
    made += [helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0])] * is_transposed
    made.append(helper.make_node("MatMul", ["x", "t" if is_transposed else "d"], ["y"], name="n"))
    values = [helper.make_tensor_value_info(name, 1, None) for name in "xy"]
    tensors = [numpy_helper.from_array(value, name) for name, value in steps.items()]
    graph = helper.make_graph(made, "g", values[:1], values[1:], tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (one,) = structures(list(weights_of(ir.from_proto(proto))))
    assert (one.pattern, one.weight.shape) == ("2:4", (64, 128))
    assert one.zeros >= 0.5


def test_weights_of_integer_products() -> None:
    stored = np.round(20 * pruned(dense(64, 128), 2, 4)).astype(np.int8)
    node = helper.make_node("MatMulIntegerToFloat", ["x", "w", "s", "s"], ["y"], name="n", domain="com.microsoft")
    values = [helper.make_tensor_value_info("x", 2, None), helper.make_tensor_value_info("y", 1, None)]
    tensors = [numpy_helper.from_array(stored, "w"), numpy_helper.from_array(np.float32(0.1), "s")]
    graph = helper.make_graph([node], "g", values[:1], values[1:], tensors)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=domains, ir_version=8)
    (one,) = structures(list(weights_of(ir.from_proto(proto))))
    assert (one.pattern, one.weight.operator) == ("2:4", "MatMulIntegerToFloat")
