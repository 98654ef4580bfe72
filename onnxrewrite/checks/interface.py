"""The interface of a model: names, order and dtypes of its inputs and outputs."""

from __future__ import annotations

import onnx


def interface_problems(before: onnx.ModelProto, after: onnx.ModelProto) -> list[str]:
    """Changes in names, order and dtypes of inputs and outputs, and lost defaults of inputs."""
    problems = []
    for kind in ("input", "output"):
        old, new = (_interface(m, kind) for m in (before, after))
        if old != new:
            lost = [n for n, _ in old if n not in dict(new)][:5]
            added = [n for n, _ in new if n not in dict(old)][:5]
            what = f"lost {lost}" if lost else f"added {added}" if added else "other order or dtypes"
            problems.append(f"the {kind}s changed: {what}")
    defaults = {t.name for t in before.graph.initializer} & {n for n, _ in _interface(before, "input")}
    missing = sorted(defaults - {t.name for t in after.graph.initializer})
    return problems + ([f"defaults of inputs lost: {missing}"] if missing and not problems else [])


def _interface(model: onnx.ModelProto, kind: str) -> list[tuple[str, int]]:
    """Names and dtypes; before IR version 4 an input with an initializer is a constant."""
    constants = {t.name for t in model.graph.initializer} if kind == "input" and model.ir_version < 4 else set()
    return [(v.name, _elem_type(v)) for v in getattr(model.graph, kind) if v.name not in constants]


def _elem_type(value: onnx.ValueInfoProto) -> int:
    return value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else -1
