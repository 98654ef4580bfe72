"""A function of PyTorch as models: called once for each example, by both exporters.  Imports torch."""

from __future__ import annotations

import contextlib
import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch.utils import _pytree as tree

from onnxrewrite.authoring.function_pattern import Spelling
from onnxrewrite.errors import CheckError, ModelError, UsageError, one_line
from onnxrewrite.suite.frameworks.torch import Exporter, export
from onnxrewrite.suite.frameworks.torch_calls import to_array

_EXPORTERS = [name for name in get_args(Exporter) if name != "auto"]


class _Calls(torch.nn.Module):  # type: ignore[misc]
    """Calls of a function, one after the other; the tensors among their arguments are its own."""

    def __init__(self, function: Callable[..., object], examples: Sequence[Mapping[str, object]]):
        super().__init__()
        self.function = function
        self._examples = examples
        self.tensors: dict[str, torch.Tensor] = {}
        for number, example in enumerate(examples):
            for argument, value in example.items():
                name = _called(argument, number)
                if isinstance(value, torch.nn.Parameter):
                    self.register_parameter(f"weight_{name}", value)
                elif isinstance(value, torch.Tensor):
                    self.tensors[name] = value

    def forward(self, given: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        made = list[torch.Tensor]()
        for number, example in enumerate(self._examples):
            arguments = {a: self._argument(given, _called(a, number), value) for a, value in example.items()}
            made += _tensors(self.function(**arguments))
        return tuple(made)

    def _argument(self, given: Mapping[str, torch.Tensor], name: str, value: object) -> object:
        return getattr(self, f"weight_{name}") if isinstance(value, torch.nn.Parameter) else given.get(name, value)


def _called(argument: str, number: int) -> str:
    return argument if number == 0 else f"{argument}_{number + 1}"


def _tensors(made: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]


def _sizes(calls: _Calls) -> dict[str, dict[int, str]]:
    """Names for the sizes of tensors that no weight has."""
    fixed = {1, *(size for weight in calls.parameters() for size in weight.shape)}
    return {n: {a: f"size_{s}" for a, s in enumerate(t.shape) if s not in fixed} for n, t in calls.tensors.items()}


@contextlib.contextmanager
def spellings(
    function: object, examples: Sequence[Mapping[str, object]], *, dynamic: bool | Mapping[str, Mapping[int, str]]
) -> Iterator[tuple[list[Spelling], list[str]]]:
    """The models that the exporters make of the calls, each compared with the function, and why others failed.

    Sizes that are equal in an example are one, and those of weights are fixed.  The models live in the context.

    Raises:
        UsageError: The examples do not fit.
        ModelError: There is none.
    """
    if not callable(function):
        raise UsageError(f"trace a function, not {type(function).__name__}")
    for example in examples:
        try:
            inspect.signature(function).bind(**example)
        except TypeError as error:
            raise UsageError(f"the example does not fit {getattr(function, '__name__', function)}: {error}") from None
    calls = _Calls(function, examples).eval()
    try:
        count = len(_tensors(function(**examples[0])))
    except Exception as error:  # a function may raise anything
        called = getattr(function, "__name__", type(function).__name__)
        raise ModelError(f"{called} does not run on the example: {one_line(error)}") from error
    outputs = [f"result_{number}" for number in range(count * len(examples))]
    weights = {a: to_array(v.detach()) for a, v in examples[0].items() if isinstance(v, torch.nn.Parameter)}
    arguments = {a: a for a in examples[0] if a in calls.tensors}
    named = _sizes(calls) if isinstance(dynamic, bool) else dynamic
    found, failed = list[Spelling](), list[str]()
    with tempfile.TemporaryDirectory(prefix="onnxrewrite-") as folder:
        for exporter in _EXPORTERS:
            for axes in (None, named) if dynamic else (None,):
                path = Path(folder, f"{exporter}{len(found)}{len(failed)}.onnx")
                how: dict[str, Any] = {"exporter": exporter, "dynamic_axes": axes, "output_names": outputs}
                try:
                    export(
                        calls,
                        (calls.tensors,),
                        path,
                        input_names=list(calls.tensors),
                        optimize=False,
                        **how,
                    )
                except (ModelError, CheckError, UsageError) as error:
                    failed.append(f"{exporter}, sizes {'named' if axes else 'fixed'}: {error}")
                else:
                    found.append(Spelling(path, arguments, tuple(outputs[:count]), weights))
        if not found:
            raise ModelError(failed[0])
        yield found, failed
