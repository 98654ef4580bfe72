"""Both exporters of ``torch.onnx``, asked in the same way, and what they say told in a line.  Imports torch."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as tree

from onnxrewrite import io
from onnxrewrite.errors import ModelError, one_line
from onnxrewrite.suite.frameworks.torch_calls import Call

_SMALLEST = 2
"""Size that a dynamic dimension must have in an example for ``torch.export``, which takes 0 and 1 for fixed."""


class _Flat(torch.nn.Module):
    """A module whose arguments and outputs are tensors: nested ones, and what is no tensor, are dealt with inside."""

    def __init__(self, call: Call):
        super().__init__()
        self.module = call.module
        self._call = call

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = self._call.arguments(dict(zip(self._call.names, tensors, strict=True)))
        made = self.module(*args, **kwargs)
        return tuple(leaf for leaf in tree.tree_leaves(made) if isinstance(leaf, torch.Tensor))


def run_exporter(
    name: str,
    call: Call,
    axes: Mapping[str, Mapping[int, str]],
    output_names: Sequence[str],
    opset: int | None,
    path: Path,
) -> list[str]:
    """Export with one of both exporters; notes on what was not as asked.

    Raises:
        ModelError: The exporter does not take the module.
    """
    module = call.module if call.is_flat else _Flat(call).eval()
    tensors, notes = (call.tensors, []) if name == "torchscript" else _grown(call.tensors, axes)
    given: dict[str, Any] = {"input_names": list(call.names), "output_names": list(output_names)}
    given["opset_version"] = opset
    if name == "torchscript":
        given |= {"dynamo": False, "dynamic_axes": {n: dict(a) for n, a in axes.items()}}
    else:
        given |= {"dynamo": True, "verbose": False, "dynamic_shapes": _shapes(call, module, axes)}
    with _quietly() as said:
        try:
            torch.onnx.export(module, tuple(tensors.values()), str(path), **given)
        except Exception as error:  # both exporters raise whatever went wrong inside
            raise ModelError(_reason(error)) from error
    made = io.opset(io.load(path))
    if opset not in (None, made):
        raise ModelError(f"it made a model of opset {made}, not {opset}")
    return [*notes, *said]


def _shapes(call: Call, module: torch.nn.Module, axes: Mapping[str, Mapping[int, str]]) -> Any:
    """Dynamic sizes as ``torch.export`` takes them: what the user said where that fits, for it may say more."""
    if not axes:
        return None
    if call.shapes is not None and module is call.module:
        return call.shapes
    each = tuple(dict(axes[name]) if name in axes else None for name in call.names)
    return each if module is call.module else (each,)


def _grown(
    tensors: Mapping[str, torch.Tensor], axes: Mapping[str, Mapping[int, str]]
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The example with dynamic dimensions of size 1 repeated, which ``torch.export`` would take for fixed."""
    ones = {d for n, named in axes.items() for a, d in named.items() if tensors[n].shape[a] < _SMALLEST}
    ones -= {d for n, named in axes.items() for a, d in named.items() if tensors[n].shape[a] == 0}
    grown = {}
    for name, tensor in tensors.items():
        for axis, dim in axes.get(name, {}).items():
            if dim in ones:
                tensor = torch.cat([tensor] * _SMALLEST, dim=axis)
        grown[name] = tensor
    notes = [f"exported at {d}={_SMALLEST}, for torch.export takes a size of 1 for fixed" for d in sorted(ones)]
    return grown, notes


@contextlib.contextmanager
def _quietly() -> Iterator[list[str]]:
    """Nothing on the terminal; what the tracer says of itself is kept, shortened."""
    said: list[str] = []
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # of torch, of onnxscript, each with handlers of their own
    printer = getattr(torch._C, "_jit_onnx_log", None)  # prints graphs past Python, whatever it is told
    torch._C._jit_onnx_log = lambda *_: None
    nowhere = StringIO()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                yield said
        tracer = [w for w in caught if issubclass(w.category, torch.jit.TracerWarning)]
        if tracer:
            more = f", and {len(tracer) - 1} more" if len(tracer) > 1 else ""
            said.append(f"the tracer warns: {one_line(str(tracer[0].message), 160)}{more}")
    finally:
        torch._C._jit_onnx_log = printer
        logging.disable(disabled)


def _reason(error: BaseException) -> str:
    """The innermost cause in a line: what the exporters say around it is of steps and reports."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    first = re.split(r"\n\s*\n|\n(?=While executing|Original traceback|The error above)", text.strip())[0]
    return f"{type(error).__name__}: {one_line(first)}"
