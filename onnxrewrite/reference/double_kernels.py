"""Double-precision kernels of ORT's CPU provider, and the types in ORT's schemas.

Asks ORT's own registries, so nothing here goes stale when a kernel is added.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from onnxruntime.capi import onnxruntime_pybind11_state as capi

from onnxrewrite.ir.kernels import Kernel, kernels
from onnxrewrite.ir.schema import normal_domain


@dataclass(frozen=True)
class Parameter:
    """A formal input or output: its type variable (or type), and whether it may be double, or any float."""

    variable: str
    double: bool
    floating: bool


REFUSES_DOUBLE = {("", "GRU"), ("", "LSTM"), ("com.microsoft", "AttnLSTM")}
"""Kernels registered for double that raise "does not support double yet" when they run (ORT 1.31)."""

INEXACT = {("", "Sigmoid")}
"""Kernels for double that are not as exact as that: of -50 it gives zero, where the value is 2e-22 (ORT 1.32)."""


@cache
def _schemas() -> dict[tuple[str, str], list[capi.schemadef.OpSchema]]:
    table: dict[tuple[str, str], list[capi.schemadef.OpSchema]] = defaultdict(list)
    for schema in capi.get_all_operator_schema():
        table[normal_domain(schema.domain), schema.name].append(schema)
    return {key: sorted(found, key=lambda s: int(s.since_version)) for key, found in table.items()}


def _kernels(domain: str, op: str, since: int) -> list[Kernel]:
    """The CPU provider's kernels of an operator, of the version that it has since an opset."""
    found = kernels().get(("CPUExecutionProvider", normal_domain(domain), op), ())
    return [kernel for kernel in found if kernel.first <= since <= kernel.last]


@cache
def schema(domain: str, op: str, opset: int) -> capi.schemadef.OpSchema | None:
    """ORT's schema of an operator at an opset, None when ORT does not know it."""
    found = [s for s in _schemas().get((normal_domain(domain), op), []) if s.since_version <= opset]
    return found[-1] if found else None


@cache
def parameters(domain: str, op: str, opset: int) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    """The formal inputs and outputs of an operator; empty when ORT does not know it."""
    found = schema(domain, op, opset)
    if found is None:
        return (), ()
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in found.type_constraints}

    def describe(formal: capi.schemadef.OpSchema.FormalParameter) -> Parameter:
        types = allowed.get(formal.typeStr, {formal.typeStr})
        double = any("tensor(double)" in t for t in types)
        return Parameter(formal.typeStr, double, double or any("float" in t for t in types))

    return tuple(map(describe, found.inputs)), tuple(map(describe, found.outputs))


@cache
def has_double_kernel(domain: str, op: str, opset: int) -> bool:
    """True if some CPU kernel of this operator computes in double, and exactly, wherever it would compute in float."""
    key = (normal_domain(domain), op)
    found = schema(*key, opset)
    if key in REFUSES_DOUBLE | INEXACT or found is None:
        return False
    if not _takes_double(*parameters(domain, op, opset)):
        return False
    since = int(found.since_version)
    variables = {p.typeStr for p in [*found.inputs, *found.outputs[:1]]}
    return any(_in_double(kernel, variables) for kernel in _kernels(*key, since))


def _takes_double(inputs: tuple[Parameter, ...], outputs: tuple[Parameter, ...]) -> bool:
    """True if the schema has double for one of its floats, or no floats: some kernels serve what no model may have."""
    floats = [p for p in (*inputs, *outputs[:1]) if p.floating]
    return not floats or any(p.double for p in floats)


def _in_double(kernel: Kernel, variables: set[str]) -> bool:
    """Mean and deviation of LayerNormalization stay float, so only inputs and the first output count."""
    sets = [types for name, types in kernel.constraints.items() if name in variables]
    admits = any("tensor(double)" in types for types in sets)
    everywhere = all("tensor(double)" in types for types in sets if "tensor(float)" in types)
    return (admits and everywhere) or not sets


def has_kernel(domain: str, op: str, opset: int) -> bool:
    """True if the CPU provider has any kernel of this operator at this opset."""
    found = schema(domain, op, opset)
    return bool(_kernels(domain, op, int(found.since_version) if found is not None else 0))
