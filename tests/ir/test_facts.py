"""Facts never lie: what is inferred holds when the model is run, whatever the sizes of its inputs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Dim, Facts

CORPUS = Path("/work/shared/models")
PATHS = sorted(CORPUS.glob("*/*.onnx"))
BATCH = 96
"""So many inner values are made outputs at once."""

BINDINGS: tuple[dict[str, int], ...] = ({"batch": 1, "seq": 5}, {"batch": 3, "seq": 8})


def _inputs_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("corpus_inputs", CORPUS / "inputs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_all(model: ir.Model, inputs: dict[str, Any]) -> dict[str, Any]:
    """Every tensor of the main graph by name, as ONNX Runtime computes it."""
    proto = ir.to_proto(model)
    constant = {i.name for i in proto.graph.initializer}
    values = [v for n in model.graph for v in n.outputs if v.name and isinstance(v.type, ir.TensorType)]
    values = [v for v in values if v.dtype is not None and v.name not in constant]
    del proto.graph.value_info[:]
    results: dict[str, Any] = {}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    for start in range(0, len(values), BATCH):
        wanted = values[start : start + BATCH]
        del proto.graph.output[:]
        for value in wanted:
            assert value.dtype is not None
            proto.graph.output.append(onnx.helper.make_tensor_value_info(value.name, int(value.dtype), None))
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        fed = {i.name: inputs[i.name] for i in session.get_inputs() if i.name in inputs}
        results.update(zip([v.name for v in wanted], session.run(None, fed), strict=True))
    return results


class Truth:
    """What symbols stand for in one run; a symbol that inference made up takes its value where it is first seen."""

    def __init__(self, facts: Facts, bindings: dict[str, int]):
        self.facts = facts
        self.bindings = bindings

    def check(self, dim: Dim, actual: int) -> bool:
        """Whether ``dim`` is ``actual``, as far as it is known."""
        if isinstance(dim, int):
            return dim == actual
        if dim.value is None:
            return True
        free = dim.free_symbols()
        if free == {dim.value} and dim.value not in self.bindings:
            self.bindings[dim.value] = actual
        if not free <= self.bindings.keys():
            return True
        return int(dim.evaluate(self.bindings)) == actual


def lies(model: ir.Model, inputs: dict[str, Any], bindings: dict[str, int]) -> list[str]:
    """Every inferred dtype, dimension or element that a run of the model contradicts."""
    truth_of = run_all(model, inputs)
    for name in inputs:
        truth_of[name] = inputs[name]
    facts = Facts(model.graph, dict(model.opset_imports))
    truth = Truth(facts, dict(bindings))
    wrong = []
    for value in [*model.graph.inputs, *(v for n in model.graph for v in n.outputs)]:
        actual = truth_of.get(value.name or "")
        if actual is None or isinstance(actual, list):
            continue
        where = f"{value.producer().op_type if value.producer() else 'input'} `{value.name}`"
        if facts.dtype(value) is not None and facts.dtype(value) != ir.DataType.from_numpy(actual.dtype):
            wrong.append(f"{where}: dtype {facts.dtype(value)} is {actual.dtype}")
        shape = facts.shape(value)
        if shape is not None and (
            len(shape) != actual.ndim or not all(truth.check(d, a) for d, a in zip(shape, actual.shape, strict=True))
        ):
            wrong.append(f"{where}: shape {list(map(str, shape))} is {actual.shape}")
        known = facts.elements(value)
        if known is not None and (
            len(known) != actual.size
            or actual.ndim > 1
            or not all(truth.check(e, a) for e, a in zip(known, actual.ravel().tolist(), strict=True))
        ):
            wrong.append(f"{where}: elements {list(map(str, known))} are {actual.tolist()}")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_facts_never_lie_on_real_models(path: Path) -> None:
    module = _inputs_module()
    key = str(path.relative_to(CORPUS))
    entry = module.load_index()[key]
    for binding in BINDINGS:
        dims = {**entry["dims"], **{k: v for k, v in binding.items() if k in entry["dims"]}}
        inputs = module.gen_inputs(entry["inputs"], dims)
        symbols = {"past_plus_seq": dims["past"] + dims["seq"]} if {"past", "seq"} <= dims.keys() else {}
        assert lies(ir.load(path), inputs, {**dims, **symbols}) == []
        if not entry["dims"]:
            break
