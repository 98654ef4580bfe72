"""A float64 reference whose inner results are rounded at random, as the model's own dtypes would round them.

That an original computes something exactly can be luck: ``log(1 + exp(x))`` is exactly zero for x = -20 in single
precision, for 1 + 2·10⁻⁹ is 1.  What its own roundings can move the result by, no rewrite can be asked to keep to; a
perturbation of the inputs does not show it.  So each inner result moves by a random part of one rounding, u·|x|, and of
the least number of its dtype, which an underflow loses (Higham, *Accuracy and Stability*, 2nd ed., eq. 2.8).

After Vignes' CESTAC method, as ``perturbation``; there inputs and weights move, here what is computed of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnxrewrite.io import preserved
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.operators import operators
from onnxrewrite.reference.double import double_model
from onnxrewrite.reference.evaluation import widened
from onnxrewrite.reference.tolerance import TOLERANCES
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.system.arrays import Feeds, Outputs

NUMBERS, COUNT = "::numbers", 4099
"""The input of random numbers, and how many there are: a prime, so that equal rows do not get equal ones."""

_SEED, _PART = 4713, 0.58
"""A rounding is off by any part of a unit; this is the root of the mean of their squares, 1/√3."""

_SEEN = 4
"""So many times as far does a double move, for it to become another one."""

EXACT = frozenset(operators(marks="exact"))
"""Operators that round nothing, or nothing but what the graph asks for."""


class Shaken:
    """The reference of a model with random roundings.

    Args:
        model: The model.  Where it has no reference, this has no session.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._session: Session | str = "no reference"
        try:
            self._session = open_session(_shaken_model(model), threads=1)
        except Exception:  # as for the reference itself: inliner, converter and inference raise many classes
            return

    def run(self, feeds: Feeds, seed: int) -> Outputs | None:
        """The outputs with the roundings of a seed; None where it does not run."""
        if isinstance(self._session, str):
            return None
        numbers = np.random.default_rng([seed, _SEED]).choice((-_PART, _PART), COUNT)
        outputs = self._session.run({**widened(feeds), NUMBERS: numbers})
        return None if isinstance(outputs, str) else outputs


def _shaken_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """The double-precision copy with one input more: random parts of a rounding, of which each inner result takes its
    own."""
    doubled = double_model(model).model
    units = _of_inner(doubled, _units(model))
    nodes: list[onnx.NodeProto] = []
    for node in doubled.graph.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in units:
                node.output[place] = f"{name}::exact"
                nodes += _moved(f"{name}::exact", name, *units[name])
    kept = [_copied(n) for n in nodes]
    del doubled.graph.node[:]
    doubled.graph.node.extend(kept)
    doubled.graph.initializer.extend(
        [_number("::zero", np.int64(0)), _number("::one", np.int64(1)), _number("::count", np.int64(COUNT))]
    )
    doubled.graph.input.append(helper.make_tensor_value_info(NUMBERS, onnx.TensorProto.DOUBLE, [COUNT]))
    return doubled


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _units(model: onnx.ModelProto) -> Mapping[str | None, tuple[float, float]]:
    """Inner result to the unit roundoff and the least number of its dtype, of operators that round."""
    graph = preserved.deserialized(model).graph
    Facts(graph, dict(graph.opset_imports))
    found: dict[str | None, tuple[float, float]] = {}
    for node in graph:
        for output in node.outputs if node.op_type not in EXACT else ():
            row = TOLERANCES.get(output.dtype.numpy()) if output.dtype is not None and output.name else None
            if row is not None:
                unit = row.unit * (_SEEN if output.dtype == ir.DataType.DOUBLE else 1)
                found[str(output.name)] = (unit, row.least * (2 * row.unit))
    return found


def _of_inner(
    doubled: onnx.ModelProto, units: Mapping[str | None, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """The same for what an operator was expanded into, or written as: it is computed in the dtype of its result."""
    graph = preserved.deserialized(doubled).graph
    Facts(graph, dict(graph.opset_imports))
    found = {}
    for node in graph:
        for output in node.outputs:
            inner = None if node.op_type in EXACT else str(output.name).partition("::")[0]
            unit = units.get(str(output.name)) or units.get(inner)
            if unit is not None and output.dtype == ir.DataType.DOUBLE:
                found[str(output.name)] = unit
    return found


def _moved(exact: str, name: str, unit: float, least: float) -> list[onnx.NodeProto]:
    """X + r·(u·|x| + least), with an r for each element."""

    def at(part: str) -> str:
        return f"{name}::{part}"

    constants = {
        "unit": np.float64(unit),
        "least": np.float64(least),
        "first": np.int64(zlib.crc32(name.encode()) % COUNT),
    }
    return [
        *(helper.make_node("Constant", [], [at(n)], value=_number("", v)) for n, v in constants.items()),
        helper.make_node("Size", [exact], [at("elements")]),
        helper.make_node("Range", ["::zero", at("elements"), "::one"], [at("places")]),
        helper.make_node("Add", [at("places"), at("first")], [at("later")]),
        helper.make_node("Mod", [at("later"), "::count"], [at("index")]),
        helper.make_node("Gather", [NUMBERS, at("index")], [at("flat")]),
        helper.make_node("Shape", [exact], [at("shape")]),
        helper.make_node("Reshape", [at("flat"), at("shape")], [at("random")]),
        helper.make_node("Abs", [exact], [at("size")]),
        helper.make_node("Mul", [at("size"), at("unit")], [at("rounding")]),
        helper.make_node("Add", [at("rounding"), at("least")], [at("most")]),
        helper.make_node("Mul", [at("most"), at("random")], [at("moved")]),
        helper.make_node("Add", [exact, at("moved")], [name]),
    ]


def _number(name: str, number: np.generic) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(number), name)
