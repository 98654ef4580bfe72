"""The gain that structure in weights brings on this machine, measured: the largest weight of each kind of structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnxrewrite import io
from onnxrewrite.measure.model_times import model_times
from onnxrewrite.measure.timing import Interval
from onnxrewrite.report.plain_reports import StructureRow, WeightsReport
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.weights.weight_structure import Structure, structures, weights_of
from onnxrewrite.system.arrays import Floats

_ROWS = 64
"""Rows of the input of a product that is timed."""

_SECONDS = 0.5
"""To time two products by turns."""

_SETTING = Setting(threads=1)


@dataclass(frozen=True)
class Gain:
    """A way to use structure.

    Attributes:
        of: The name of the node.
        what: In a few words.
        ratio: Its time to that of the same product of a dense weight.
    """

    of: str
    what: str
    ratio: Interval


def weight_report(model: ir.Model, name: str) -> WeightsReport:
    """The structure of a model's weights, and what it brings here.

    Args:
        model: The model.
        name: Its name, for the report.

    Raises:
        ModelError: A product cannot be run.
    """
    weights = list(weights_of(model))
    found = structures(weights)
    gains = measured(found)
    return {
        "model": name,
        "weights": len(weights),
        "structures": [_row(each) for each in found],
        "gains": [{"of": gain.of, "what": gain.what, "ratio": gain.ratio.to_json()} for gain in gains],
    }


def _row(found: Structure) -> StructureRow:
    rows, columns = found.weight.shape
    return {
        "name": found.weight.name,
        "operator": found.weight.operator,
        "shape": [rows, columns],
        "zeros": found.zeros,
        "pattern": found.pattern,
        "empty_outputs": found.empty[0],
        "empty_inputs": found.empty[1],
        "rank": found.rank,
        "shares": list(found.shares),
    }


def measured(found: Sequence[Structure]) -> list[Gain]:
    """The gain of each kind of structure, of the largest weight that has it, as a product of ``_ROWS`` rows in one
    thread: the zeros as they are, without empty inputs and outputs, as two products of low rank."""
    by_size = sorted(found, key=lambda each: -each.weight.tensor.size)
    gains = []
    pruned = next((each for each in by_size if each.zeros > 0), None)
    if pruned is not None:
        gains.append(_gain(pruned, "zeros as they are", [pruned.weight.matrix]))
    hollow = next((each for each in by_size if any(each.empty)), None)
    if hollow is not None:
        matrix = hollow.weight.matrix
        rest = matrix[matrix.any(axis=1)][:, matrix.any(axis=0)]
        if rest.size:
            gains.append(_gain(hollow, "without empty inputs and outputs", [rest]))
    low = next((each for each in by_size if each.rank is not None), None)
    if low is not None and low.rank is not None:
        u, s, v = np.linalg.svd(low.weight.matrix, full_matrices=False)
        factors = [u[:, : low.rank] * s[: low.rank], v[: low.rank]]
        gains.append(_gain(low, f"two products of rank {low.rank}", factors))
    return gains


def _gain(found: Structure, what: str, factors: Sequence[Floats]) -> Gain:
    rng = np.random.default_rng(0)
    dense = rng.standard_normal(found.weight.shape)
    models = {"dense": _products([dense]), "this": _products(factors)}
    feeds = {n: {"x": rng.standard_normal((_ROWS, rows)).astype(np.float32)} for n, (_, rows) in models.items()}
    openers = {n: partial(open_runner, model, feeds[n], _SETTING) for n, (model, _) in models.items()}
    times = model_times(openers, [_SETTING], seconds=_SECONDS)
    return Gain(found.weight.name, what, times["this"].ratio(times["dense"]))


def _products(factors: Sequence[Floats]) -> tuple[onnx.ModelProto, int]:
    """A model of products one after the other, and the columns of its input."""
    names = ["x", *(f"y{n}" for n in range(len(factors)))]
    nodes = [helper.make_node("MatMul", [names[n], f"w{n}"], [names[n + 1]]) for n in range(len(factors))]
    weights = [numpy_helper.from_array(f.astype(np.float32), f"w{n}") for n, f in enumerate(factors)]
    sides = (("x", factors[0].shape[0]), (names[-1], factors[-1].shape[1]))
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [_ROWS, size]) for name, size in sides]
    graph = helper.make_graph(nodes, "products", values[:1], values[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8), factors[0].shape[0]


def report_of(path: str) -> WeightsReport:
    """The same of a file.

    Raises:
        ModelError: It cannot be read.
    """
    return weight_report(io.load(path), path)
