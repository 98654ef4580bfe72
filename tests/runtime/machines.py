"""Machines that are not this one."""

from __future__ import annotations

from typing import Any

from onnxrewrite.runtime.features import Processor
from onnxrewrite.runtime.installed import Runtime
from onnxrewrite.runtime.machine import Machine
from onnxrewrite.system.resources import Cores, Memory

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"


def a_machine(*features: str, family: str = "x86_64", **changes: Any) -> Machine:
    """A machine of eight cores with these features of its processor."""
    parts: dict[str, Any] = {
        "processor": Processor("a processor", family, features=features),  # type: ignore[arg-type]
        "cores": Cores(8, 8, 8, 8),
        "memory": Memory(2**34, 2**33),
        "system": "Linux",
        "python": "3.11",
        "runtime": Runtime("1.32", "a build", {"onnxruntime": "1.32"}, (CPU,)),
        "packages": {"torch": "2.13", "dask": None},
    }
    return Machine(**{**parts, **changes})
