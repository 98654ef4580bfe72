"""Reasons why what ONNX Runtime's test expects of a model is not asked for: each is a question about the model.

No case is excused by its name: a reason that holds no longer, because a rule reaches what it excuses, shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnxrewrite.ir.random_operators import draws, stochastic_ops
from onnxrewrite.ir.target import target

_NARROWED = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16}


@dataclass(frozen=True)
class Asked:
    """A model, and the operators that a test asks for.

    Attributes:
        model: The model.
        fused: Those that should appear.
        gone: Those of which fewer should be left.
    """

    model: onnx.ModelProto
    fused: Collection[str]
    gone: Collection[str]

    @cached_property
    def nodes(self) -> dict[str, list[onnx.NodeProto]]:
        """The nodes of each operator."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.model.graph.node:
            found.setdefault(node.op_type, []).append(node)
        return found

    @cached_property
    def dtypes(self) -> dict[str, int]:
        """The element type of each value of which it is known."""
        graph = onnx.shape_inference.infer_shapes(self.model).graph
        known = {v.name: v.type.tensor_type.elem_type for v in (*graph.value_info, *graph.input, *graph.output)}
        return known | {t.name: t.data_type for t in graph.initializer}

    @cached_property
    def constants(self) -> dict[str, np.ndarray]:
        """The initializers."""
        return {t.name: numpy_helper.to_array(t) for t in self.model.graph.initializer}

    @cached_property
    def readers(self) -> dict[str, list[onnx.NodeProto]]:
        """The nodes that read each value."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.model.graph.node:
            for name in node.input:
                found.setdefault(name, []).append(node)
        return found

    def computes(self, op_type: str, dtype: int) -> bool:
        """True if there are nodes of an operator, and all of them compute this dtype."""
        nodes = self.nodes.get(op_type, [])
        return bool(nodes) and all(self.dtypes.get(n.output[0]) == dtype for n in nodes)

    def is_dead(self, node: onnx.NodeProto) -> bool:
        """True if nothing reads what a node computes."""
        read = {*self.readers, *(o.name for o in self.model.graph.output)}
        return read.isdisjoint(node.output)


def _is_defined_twice(asked: Asked) -> bool:
    names = [o for n in asked.model.graph.node for o in n.output if o]
    return len(names) != len(set(names))


_FUSED_INTO = {"Relu": ("Conv", "FusedConv"), "Transpose": ("MatMul", "FusedMatMul")}
"""An operator that goes, to what takes it in, and what that becomes."""


def _is_half_without_kernel(asked: Asked) -> bool:
    """True if what goes would go into an operator that has no kernel for float16, which the model computes with."""
    half = {"T": ir.DataType.FLOAT16}
    return any(
        asked.computes(layer, onnx.TensorProto.FLOAT16)
        and target("onnxruntime-cpu").refuses("com.microsoft", fused, 1, half) is not None
        for layer, fused in (_FUSED_INTO[o] for o in asked.gone if o in _FUSED_INTO)
    )


def _is_approximation(asked: Asked) -> bool:
    """True if a GELU by tanh is asked for, and the model has no tanh."""
    by_tanh = any(a.name == "approximate" and a.s == b"tanh" for n in asked.nodes.get("Gelu", ()) for a in n.attribute)
    return "com.microsoft.FastGelu" in asked.fused and "Tanh" not in asked.nodes and not by_tanh


def _is_for_lack_of_kernel(asked: Asked) -> bool:
    return "STFT" in asked.gone and target("onnxruntime-cpu").has_kernel("", "STFT")


def _is_random(asked: Asked) -> bool:
    drawn = draws(asked.model)
    return bool(stochastic_ops(asked.model)) if drawn is None else bool(drawn)


def _adds_positive_zero(asked: Asked) -> bool:
    added = (asked.constants.get(i) for n in asked.nodes.get("Add", ()) for i in n.input)
    return list(asked.gone) == ["Add"] and any(c is not None and c.dtype.kind == "f" and not c.any() for c in added)


REASONS: dict[str, Callable[[Asked], bool]] = {
    "the model is not valid: a value is defined twice": _is_defined_twice,
    "its results are random": _is_random,
    "the fused operator has no CPU kernel for float16": _is_half_without_kernel,
    "another formula: the result changes by 1e-4, and ONNX Runtime does it only if asked": _is_approximation,
    "it has a kernel; ONNX Runtime takes it apart only for providers that have none": _is_for_lack_of_kernel,
    "x + 0.0 is not x where that is -0.0; ONNX Runtime does not reach it either": _adds_positive_zero,
}
"""Each to whether it holds."""


def excuse(asked: Asked) -> str:
    """The first reason that holds; empty where none does."""
    lacking = [o for o in asked.fused if not target("onnxruntime-cpu").has_kernel(*o.rpartition(".")[::2])]
    if lacking:
        return f"no CPU kernel of {', '.join(lacking)}"
    return next((reason for reason, holds in REASONS.items() if holds(asked)), "")


def moves_casts(asked: Asked) -> bool:
    """True if Casts between float and float16 are to go that stand beside what computes: moved across it, which is
    optional in ONNX Runtime and mostly changes results.  Of constants and before Shape they go for free."""
    if list(asked.gone) != ["Cast"]:
        return False
    return any(
        {asked.dtypes.get(n.input[0]), asked.dtypes.get(n.output[0])} <= _NARROWED
        and n.input[0] not in asked.constants
        and any(r.op_type != "Shape" for r in asked.readers.get(n.output[0], ()))
        for n in asked.nodes.get("Cast", ())
    )


def _of_dead_readers(asked: Asked) -> Iterator[str]:
    sums = {n.output[0] for n in asked.nodes.get("Add", ())}
    if any(asked.is_dead(n) and not sums.isdisjoint(n.input) for n in asked.model.graph.node):
        yield "com.microsoft.SkipLayerNormalization"


def allowed(asked: Asked) -> set[str]:
    """Operators that may be there although the test forbids them: what else reads the sum that they add up is dead."""
    return set(_of_dead_readers(asked))
