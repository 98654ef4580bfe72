"""Kernels of ONNX Runtime's execution providers: those of the installed build, and recorded ones.

In a build with a provider whose libraries are missing (``onnxruntime-gpu`` without CUDA or TensorRT,
``onnxruntime-openvino`` without OpenVINO), ONNX Runtime ends the process when it is asked for its kernels.  A build
that has other providers than the CPU's is therefore asked in a process of its own.  What cannot be asked, and the
providers that the build lacks, are looked up in tables that were recorded from builds that have them:

    python -m onnxrewrite.ir.kernels PROVIDER > onnxrewrite/ir/recorded_kernels/PROVIDER.json
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final, TypeAlias, TypedDict

from onnxrewrite.ir.schema import normal_domain

_OPEN: Final = 2**31 - 1  # the end of a kernel's version range that has no end
_HARMLESS: Final = frozenset({"CPUExecutionProvider", "AzureExecutionProvider"})
_SECONDS: Final = 60.0
"""So long a build may take to list its kernels."""

Key: TypeAlias = tuple[str, str, str]
"""An execution provider, a domain and an operator."""

AVOIDED: Final[Mapping[Key, str]] = {
    ("CUDAExecutionProvider", "com.microsoft", "FusedConv"): "has no activation but Relu, and is slower than its parts",
}
"""Kernels that are not to be used, to what was found by running them (decision 47)."""

Row: TypeAlias = tuple[int, int, dict[str, int]]
"""A ``Kernel`` with the places of its sets of types in a table."""


class Table(TypedDict):
    """Kernels of one provider: ONNX Runtime's version, sets of types, and rows by domain and operator."""

    onnxruntime: str
    types: list[list[str]]
    kernels: dict[str, dict[str, list[Row]]]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of an operator.

    Attributes:
        first: The first version of the operator that it is for.
        last: The last one; 2³¹ - 1 where that is open.
        constraints: The types that it takes, by type variable or by the name of an input.
    """

    first: int
    last: int
    constraints: Mapping[str, frozenset[str]]

    def serves(self, since_version: int) -> bool:
        """ONNX Runtime's rule: an open-ended kernel serves only the schema version it was written for."""
        return self.first == since_version or (self.first < since_version <= self.last != _OPEN)


@functools.cache
def built_in() -> tuple[str, ...]:
    """Execution providers of the installed ONNX Runtime build, in its order of preference.

    Libraries of CUDA that pip has installed are loaded first, for ONNX Runtime does not look for them by itself.
    """
    import onnxruntime

    found = tuple(onnxruntime.get_available_providers())
    if "CUDAExecutionProvider" in found and hasattr(onnxruntime, "preload_dlls"):
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does not find
            onnxruntime.preload_dlls()
    return found


@functools.cache
def kernels() -> Mapping[Key, tuple[Kernel, ...]]:
    """Kernels by provider, domain and operator: the installed build's, and recorded ones of providers that it does not
    tell of."""
    installed = _installed()
    told = {provider for provider, *_ in installed}
    found = dict(installed)
    for provider, table in _recorded().items():
        if provider not in told:
            found.update(_rows(provider, table))
    return found


@functools.cache
def known_providers() -> frozenset[str]:
    """The providers of ``kernels``."""
    return frozenset(provider for provider, *_ in kernels())


def recorded_from(provider: str) -> str:
    """The version of ONNX Runtime that the kernels of a provider were recorded from; empty where they are the installed
    build's, or unknown."""
    table = _recorded().get(provider)
    told = table is None or any(each == provider for each, *_ in _installed())
    return "" if told or table is None else table["onnxruntime"]


def record(provider: str, version: str) -> Table:
    """The table of a provider's kernels, of this process' ONNX Runtime, whose version that is."""
    types = dict[tuple[str, ...], int]()
    found = dict[str, dict[str, list[Row]]]()
    for (_, domain, op_type), each in sorted(item for item in _listed().items() if item[0][0] == provider):
        for kernel in sorted(each, key=_sorted):
            sets = {var: tuple(sorted(allowed)) for var, allowed in sorted(kernel.constraints.items())}
            places = {var: types.setdefault(allowed, len(types)) for var, allowed in sets.items()}
            found.setdefault(domain, {}).setdefault(op_type, []).append((kernel.first, kernel.last, places))
    return {"onnxruntime": version, "types": [list(each) for each in types], "kernels": found}


def _sorted(kernel: Kernel) -> tuple[int, int, str]:
    types = {var: sorted(allowed) for var, allowed in kernel.constraints.items()}
    return kernel.first, kernel.last, str(sorted(types.items()))


@functools.cache
def _installed() -> Mapping[Key, tuple[Kernel, ...]]:
    if set(built_in()) <= _HARMLESS:
        return _listed()
    found = dict[Key, tuple[Kernel, ...]]()
    for provider, table in _told().items():
        found.update(_rows(provider, table))
    return found


def _told() -> Mapping[str, Table]:
    """Kernels of the build as another process tells them; none if it dies of it, or there can be none."""
    if not sys.executable:  # Python inside another program
        return {}
    paths = os.pathsep.join(each for each in sys.path if each)
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env={**os.environ, "PYTHONPATH": paths},
            check=True,
        )
        found: Mapping[str, Table] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return found


def _listed() -> Mapping[Key, tuple[Kernel, ...]]:
    from onnxruntime.capi import onnxruntime_pybind11_state as ort

    built_in()
    found: dict[Key, list[Kernel]] = {}
    for each in ort.get_all_opkernel_def():
        constraints = {var: frozenset(types) for var, types in each.type_constraints.items()}
        first, last = each.version_range
        key = (each.provider, normal_domain(each.domain), each.op_name)
        found.setdefault(key, []).append(Kernel(first, last, constraints))
    return {key: tuple(each) for key, each in found.items()}


def _rows(provider: str, table: Table) -> Mapping[Key, tuple[Kernel, ...]]:
    types = [frozenset(each) for each in table["types"]]
    return {
        (provider, domain, op_type): tuple(
            Kernel(first, last, {var: types[place] for var, place in sets.items()}) for first, last, sets in rows
        )
        for domain, operators in table["kernels"].items()
        for op_type, rows in operators.items()
    }


@functools.cache
def _recorded() -> Mapping[str, Table]:
    folder = resources.files("onnxrewrite.ir") / "recorded_kernels"
    files = (each for each in folder.iterdir() if each.name.endswith(".json"))
    return {each.name.removesuffix(".json"): json.loads(each.read_text(encoding="utf-8")) for each in files}


def _text(table: Table) -> str:
    """JSON with a line for each set of types and each operator."""
    types = ",\n".join(json.dumps(each) for each in table["types"])
    domains = (
        f"{json.dumps(domain)}: {{\n" + ",\n".join(f"{json.dumps(op)}: {json.dumps(rows)}" for op, rows in each.items())
        for domain, each in table["kernels"].items()
    )
    version, kernels = json.dumps(table["onnxruntime"]), "\n},\n".join(domains)
    return f'{{"onnxruntime": {version},\n"types": [\n{types}\n],\n"kernels": {{\n{kernels}\n}}}}}}'


def main(argv: Sequence[str]) -> None:
    """Print the table of one provider, or the tables of all of the installed build."""
    import onnxruntime

    version = str(onnxruntime.__version__)
    if argv:
        print(_text(record(argv[0], version)))
    else:
        print(json.dumps({each: record(each, version) for each in sorted({key[0] for key in _listed()})}))


if __name__ == "__main__":
    main(sys.argv[1:])
