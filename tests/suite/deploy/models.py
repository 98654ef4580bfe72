"""Small models and stages for the tests of pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxrewrite.suite.deploy.artifact import Artifact
from onnxrewrite.suite.deploy.stage import Context, NothingToDo, Stage

WIDTH = 64


def chain(length: int = 12, *, noise: float = 0.0, name: str = "chain") -> onnx.ModelProto:
    """Products of [batch, 64] with square weights: as long as wished, and as wrong."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for number in range(length):
        weight = (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
        weight += np.float32(noise) * rng.standard_normal(weight.shape).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [f"h{number}" if number else "x", f"w{number}"], [f"h{number + 1}"]))
    nodes.append(helper.make_node("Identity", [f"h{length}"], ["y"]))
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WIDTH])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def saved(folder: Path, model: onnx.ModelProto, name: str = "model.onnx") -> Path:
    onnx.save(model, folder / name)
    return folder / name


def slow(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same, with a large sum beside it whose result is added as zero."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    zero, shape = (
        numpy_helper.from_array(np.zeros((), np.float32), "zero"),
        numpy_helper.from_array(np.array([1500, 1500]), "much"),
    )
    made.graph.initializer.extend([zero, shape])
    made.graph.node.pop()
    last = made.graph.node[-1].output[0]
    made.graph.node.extend(
        [
            helper.make_node("ReduceSum", ["x"], ["one"], keepdims=0),
            helper.make_node("Expand", ["one", "much"], ["large"]),
            helper.make_node("ReduceMax", ["large"], ["sum"], keepdims=0),
            helper.make_node("Mul", ["sum", "zero"], ["nothing"]),
            helper.make_node("Add", [last, "nothing"], ["y"]),
        ]
    )
    return made


@dataclass(frozen=True, kw_only=True)
class Gives(Stage):
    """Proposes models that were made before."""

    name: ClassVar[str] = "gives"
    files: tuple[str, ...] = ()

    def run(self, given: Artifact, context: Context) -> Iterator[Artifact]:
        if not self.files:
            raise NothingToDo("there is nothing to give")
        for file in self.files:
            yield replace(given, path=Path(file), how=Path(file).stem)


@dataclass(frozen=True, kw_only=True)
class Lossy(Gives):
    """The same, said to be lossy."""

    name: ClassVar[str] = "lossy"
    lossy: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Raises(Stage):
    """A stage of somebody else's that fails."""

    name: ClassVar[str] = "raises"

    def run(self, given: Artifact, context: Context) -> Iterator[Artifact]:
        raise ZeroDivisionError("a mistake of mine")
