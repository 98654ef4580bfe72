"""Advice for a machine, in plain lines, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from onnxrewrite.runtime.providers import PROVIDERS

if TYPE_CHECKING:
    from onnxrewrite.runtime.machine import Machine

EXTRAS: Mapping[str, tuple[str, str]] = {
    "torch": ("onnxrewrite[torch]", "to export PyTorch modules: onnxrewrite.deploy.export"),
    "matplotlib": ("onnxrewrite[plot]", "to draw: bench --plot"),
    "onnxruntime-extensions": ("onnxrewrite[prototypes]", "to run custom operators that are written in Python"),
    "onnxslim": ("onnxrewrite[peers]", "to compare with it: bench --peers"),
    "onnxsim": ("onnxrewrite[peers]", "to compare with it: bench --peers"),
    "onnxoptimizer": ("onnxrewrite[peers]", "to compare with it: bench --peers"),
    "dask": ("dask[distributed]", "to spread work over machines"),
}
"""Packages that the project can use but does not need: what installs them, and what for."""

_TIGHT = 0.25
"""Share of the machine's memory below which a limit is worth a word."""


@dataclass(frozen=True)
class Advice:
    """One thing to do, or to know: ``topic``, what it ``says``, ``because``."""

    topic: str
    says: str
    because: str

    def to_json(self) -> dict[str, str]:
        """Plain data."""
        return asdict(self)


def advice(machine: Machine) -> tuple[Advice, ...]:
    """The advice for a machine, in the order in which a user asks."""
    return (
        *_threads(machine),
        *_int8(machine),
        *_half(machine),
        *_providers(machine),
        *_memory(machine),
        *_packages(machine),
    )


def _threads(machine: Machine) -> Iterator[Advice]:
    cores, count = machine.cores, machine.threads
    says = f"intra-op threads: {count}"
    if cores.quota is not None and cores.quota < cores.allowed_physical:
        why = f"a control group allows the time of {cores.quota:g} of {_plural(cores.allowed_physical, 'core')}"
        yield Advice("threads", says, f"{why}; more threads are stopped in turn")
    elif cores.allowed < cores.logical:
        why = f"the affinity of this process allows {cores.allowed} of {_plural(cores.logical, 'hardware thread')}"
        yield Advice("threads", says, f"{why}, on {_plural(cores.allowed_physical, 'core')}")
    else:
        why = f"{_plural(count, 'core')}; more threads do not help"
        if cores.logical > cores.physical:
            why += ", not even on the second hardware thread of a core"
        yield Advice("threads", says, why)
    if count <= 2:
        yield Advice(
            "spinning",
            "with several sessions at a time, set session.intra_op.allow_spinning to 0",
            "threads that spin while they wait take the few cores from the others",
        )


def _int8(machine: Machine) -> Iterator[Advice]:
    found = machine.int8
    best = f"{found.best.activations} activations x {found.best.weights} weights"
    says = {"yes": f"int8 pays: {best}", "maybe": f"int8 may pay, measure it: {best}", "no": "int8 does not pay"}
    yield Advice("int8", says[found.best.pays], found.why)
    if found.reduce_range:
        why = "8-bit products saturate here; 7-bit weights do not, and uint8 weights are exact but slower"
        yield Advice("int8", "quantize with reduce_range, or set session.x64quantprecision to 1", why)


def _half(machine: Machine) -> Iterator[Advice]:
    if _on_gpu(machine):
        yield Advice("float16", "float16 pays on the GPU", "its matrix units are made for it")
    elif machine.processor.family == "aarch64" and machine.has("asimdhp"):
        yield Advice(
            "float16", "float16 may pay, measure it", "ONNX Runtime has some kernels for this processor's float16"
        )
    else:
        yield Advice(
            "float16", "float16 halves the file, not the time", "ONNX Runtime's CPU kernels compute it in float32 here"
        )
    if machine.processor.family == "aarch64" and machine.has("bf16"):
        entry = "mlas.enable_gemm_fastmath_arm64_bfloat16"
        yield Advice("bfloat16", f"{entry}: 1 may pay", "float32 products in bfloat16: faster, exact to 8 bits")


def _providers(machine: Machine) -> Iterator[Advice]:
    runtime = machine.runtime
    for name, reason in runtime.failed.items():
        yield Advice("provider", f"{_short(name)} is built in and does not start", reason)
    for name in runtime.started:
        known = PROVIDERS.get(name)
        if known is not None and known.options and known.on_request:
            yield Advice(
                "provider", f"{_short(name)} starts; ask for it: --provider {_short(name).lower()}", known.on_request
            )
    if not _on_gpu(machine):
        build = f"ONNX Runtime {runtime.version} has {', '.join(map(_short, runtime.providers))}"
        package, gpu = _for_a_gpu(machine)
        yield Advice("provider", f"no GPU provider in this build; for {gpu}: pip install {package}", build)
    if len(runtime.packages) > 1:
        names = ", ".join(runtime.packages)
        yield Advice(
            "provider", f"keep one of {names}", "they overwrite each other's files; pip uninstall all, install one"
        )


def _for_a_gpu(machine: Machine) -> tuple[str, str]:
    if machine.system == "Windows":
        return "onnxruntime-directml", "any GPU"
    if machine.system == "Darwin":
        return "onnxruntime-webgpu", "Apple's GPU beside CoreML"
    return "onnxruntime-gpu", "an NVIDIA GPU"


def _memory(machine: Machine) -> Iterator[Advice]:
    limit = machine.memory.limit
    if limit is not None and limit < _TIGHT * machine.memory.total:
        says = f"models and their values must fit into {limit / 2**30:.1f} GiB"
        yield Advice("memory", says, "a control group allows no more; the process is killed beyond")


def _packages(machine: Machine) -> Iterator[Advice]:
    by_install: dict[str, str] = {}
    for name, (install, what) in EXTRAS.items():
        if machine.packages.get(name) is None:
            by_install.setdefault(install, what)
    for install, what in by_install.items():
        yield Advice("package", f"pip install '{install}'", what)


def _on_gpu(machine: Machine) -> bool:
    return any(PROVIDERS[name].gpu for name in machine.runtime.started if name in PROVIDERS)


def _short(provider: str) -> str:
    return provider.removesuffix("ExecutionProvider")


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
