"""Both sides of a rewrite, run by ONNX Runtime without its own optimizations and judged against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime

from onnxrewrite import io
from onnxrewrite.ir import text
from onnxrewrite.ir.target import target
from onnxrewrite.reference.tolerance import compare
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.metamorphic.firing import why_not

Array = npt.NDArray[Any]
Formula = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]

SPECIAL = np.array(
    [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40, -1e-40, 1e37, -1e37, 1e13, -1e13, 90, -90, -15, -3, 3, -0.75],
    np.float32,
)


@dataclass
class Sides:
    """A model before and after its rewrite."""

    before: onnx.ModelProto
    after: onnx.ModelProto
    driver: Driver

    @property
    def operators(self) -> list[str]:
        """What is left, sorted."""
        nodes = self.driver.model.graph.all_nodes()
        return sorted(f"{n.domain}.{n.op_type}".lstrip(".") for n in nodes)

    def why_not(self, rule: Rule) -> str:
        """The nearest miss of a rule in what is left."""
        return why_not(rule, self.driver)

    def same(self, feeds: dict[str, Array], reference: Sequence[Array] | None = None) -> None:
        """Both sides compute the same: no worse against ``reference`` than the original, or else as stated."""
        old, new = run(self.before, feeds), run(self.after, feeds)
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            judged = compare(None if reference is None else reference[index], a, b)
            assert judged.accept, (self.operators, judged.reason)


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, {i.name: feeds[i.name] for i in session.get_inputs() if i.name in feeds}))


def rewrite(graph: str, rules: Sequence[Rule], *, opset: int = 17, runs_on: str = "onnxruntime-cpu") -> Sides:
    """Apply ``rules`` to a graph in text form."""
    original = ir.to_proto(text.parse(graph, opset=opset))
    model = io.load(original)
    driver = Driver(model, rules, target(runs_on))
    driver.run()
    return Sides(original, io.to_proto(model), driver)


def samples(*, size: int = 4000) -> dict[str, Array]:
    """Float32 vectors on which activations go wrong, by name."""
    normal = np.random.default_rng(0).standard_normal(size)
    classes = {
        "normal": normal,
        "wide": 4 * normal,
        "offset": 100 + normal,
        "negative offset": -100 + normal,
        "large": 1e4 * normal,
        "tiny": 1e-20 * normal,
        "zeros": 0 * normal,
        "empty": normal[:0],
    }
    return {name: values.astype(np.float32) for name, values in classes.items()}


def same_everywhere(sides: Sides, formula: Formula) -> None:
    """The one input ``x`` takes every class of values; the formula is evaluated in float64."""
    for x in samples().values():
        with np.errstate(all="ignore"):
            sides.same({"x": x}, [np.asarray(formula(x.astype(np.float64)))])
    (old,), (new,) = run(sides.before, {"x": SPECIAL}), run(sides.after, {"x": SPECIAL})
    np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5, equal_nan=True)
