"""``trace``: a function of PyTorch or ONNX as the pattern of a rule, which matches what exporters make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnxrewrite.authoring.function_pattern import Spelling, Traced, traced
from onnxrewrite.errors import UsageError
from onnxrewrite.ir.custom import function_proto
from onnxrewrite.ir.schema import latest_version

Example: TypeAlias = Mapping[str, object]
"""The arguments of a call by name."""

Axes: TypeAlias = Mapping[str, Mapping[int, str]]
"""Names of sizes by argument and axis."""


def trace(function: Callable[..., object] | object, *examples: Example, dynamic: bool | Axes = True) -> Traced:
    """The pattern of a function, as the left side of rules.

    A PyTorch function is exported by both exporters, with sizes fixed and, where it is ``dynamic``, named; each export
    is compared with the function.  The rules of the library bring them into a form of their own; equal forms are one.
    Tensors among the arguments are captured as ``Var``, ``torch.nn.Parameter`` as ``Const``; what is no tensor is a
    part of the function.  Numbers and sizes that differ among several ``examples`` are captured, too.

    Args:
        function: A function of PyTorch, or a module; or one of ONNX: onnxscript's, text, or ``onnx.FunctionProto``.
            Arguments of the latter are arrays, or ``onnx.TensorProto`` for constants, and attributes.
        examples: The arguments of a call, by name; further calls whose differences are captured.
        dynamic: True to export with named sizes, too: those that no weight has, equal ones by one name; or the names of
            sizes, as in ``{"x": {0: "batch"}}``.

    Raises:
        UsageError: There is no example, it does not fit, torch is missing, or the function is no pattern.
        ModelError: No exporter takes the function, or what they make of it computes something else.
    """
    if not examples:
        raise UsageError("give an example: the arguments of a call, by name")
    for example in examples:
        if not isinstance(example, Mapping):
            raise UsageError(f"an example maps names to arguments, and is no {type(example).__name__}")
    if isinstance(function, str | onnx.FunctionProto) or hasattr(function, "to_function_proto"):
        proto = function_proto(function, "trace")
        return traced(proto.name, [_spelling(proto, examples)])
    try:
        from onnxrewrite.suite.frameworks.torch_function import spellings
    except ImportError:
        raise UsageError("a function of PyTorch needs torch: pip install 'onnxrewrite[torch]'") from None
    name = getattr(function, "__name__", type(function).__name__)
    with spellings(function, examples, dynamic=dynamic) as (found, failed):
        return replace(traced(name, found), notes=tuple(failed))


def _spelling(function: onnx.FunctionProto, examples: tuple[Example, ...]) -> Spelling:
    """A model that calls a function of ONNX once for each example."""
    nodes, inputs, weights, outputs = [], [], [], []
    for number, example in enumerate(examples):
        given = {i: example[i] for i in function.input if example.get(i) is not None}
        names = {i: i if number == 0 else f"{i}_{number + 1}" for i in given}
        unknown = example.keys() - {*function.input, *function.attribute, *(a.name for a in function.attribute_proto)}
        if unknown:
            raise UsageError(f"{function.name} has no argument {min(unknown)}")
        absent = [i for i in function.input if i not in example]
        if absent:
            raise UsageError(f"{function.name} needs {absent[0]}; give it None to leave it out")
        attributes: dict[str, Any] = {k: v for k, v in example.items() if k not in function.input}
        results = [f"{o}_{number + 1}" for o in function.output]
        operands = [names.get(i, "") for i in function.input]
        nodes.append(helper.make_node(function.name, operands, results, domain=function.domain, **attributes))
        outputs += results
        for argument, name in names.items():
            value = example[argument]
            if isinstance(value, onnx.TensorProto):
                weights.append(onnx.TensorProto())
                weights[-1].CopyFrom(value)
                weights[-1].name = name
            else:
                array = np.asarray(value)
                dtype = ir.DataType.from_numpy(array.dtype)
                inputs.append(helper.make_tensor_value_info(name, dtype, array.shape))
    graph = helper.make_graph(
        nodes, "traced", inputs, [helper.make_empty_tensor_value_info(o) for o in outputs], weights
    )
    imports = {each.domain: each.version for each in function.opset_import}
    imports |= {"": imports.get("", latest_version()), function.domain: imports.get(function.domain, 1)}
    model = helper.make_model(
        graph,
        functions=[function],
        opset_imports=[helper.make_opsetid(*each) for each in imports.items()],
        ir_version=10,
    )
    constants = {k: numpy_helper.to_array(v) for k, v in examples[0].items() if isinstance(v, onnx.TensorProto)}
    arguments = {i.name: i.name for i in inputs if i.name in function.input}
    return Spelling(model, arguments, tuple(outputs[: len(function.output)]), constants)
