"""The processor: what it is called, and which of its instructions ONNX Runtime's kernels can use.

``archspec`` reads the processor's flags and spells them as Linux does, on every system.
"""

from __future__ import annotations

import contextlib
import functools
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from onnxrewrite.errors import UsageError
from onnxrewrite.system.plain import Json

Family: TypeAlias = Literal["x86_64", "aarch64", "other"]

FEATURES: Mapping[str, tuple[Family, str]] = {
    "avx2": ("x86_64", "256-bit vectors"),
    "fma": ("x86_64", "multiply and add in one instruction"),
    "avx512f": ("x86_64", "512-bit vectors"),
    "avx512_vnni": ("x86_64", "8-bit dot products, 512-bit"),
    "avx_vnni": ("x86_64", "8-bit dot products, 256-bit"),
    "avx512_bf16": ("x86_64", "bfloat16 dot products"),
    "avx512_fp16": ("x86_64", "float16 arithmetic"),
    "amx_int8": ("x86_64", "8-bit matrix tiles"),
    "amx_bf16": ("x86_64", "bfloat16 matrix tiles"),
    "asimd": ("aarch64", "NEON, 128-bit vectors"),
    "asimdhp": ("aarch64", "float16 arithmetic"),
    "asimddp": ("aarch64", "8-bit dot products"),
    "i8mm": ("aarch64", "8-bit matrix products"),
    "bf16": ("aarch64", "bfloat16 products"),
    "sve": ("aarch64", "scalable vectors"),
    "sve2": ("aarch64", "scalable vectors, second edition"),
    "sme": ("aarch64", "scalable matrix tiles"),
}
"""Features that make a difference: the family of processors that may have them, and what they are."""

ALIASES: Mapping[str, frozenset[str]] = {
    "vnni": frozenset({"avx512_vnni", "avx_vnni"}),
    "amx": frozenset({"amx_int8", "amx_bf16"}),
    "avx512": frozenset({"avx512f"}),
    "neon": frozenset({"asimd"}),
    "dotprod": frozenset({"asimddp"}),
}
"""Other names, by which any one of several features is meant."""

_FAMILIES: Mapping[str, Family] = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
}


@dataclass(frozen=True)
class Processor:
    """One kind of processor.

    Attributes:
        name: As its maker calls it; the architecture where the system does not tell.
        family: Of its instructions.
        model: Its microarchitecture, the newest of which it has all features; empty where that is not known.
        features: Those of ``FEATURES`` that it has, in that order.
    """

    name: str
    family: Family
    model: str = ""
    features: tuple[str, ...] = ()

    def has(self, feature: str) -> bool:
        """True if it has a feature, by its name on Linux or one of ``ALIASES``; ``-`` and capitals do not matter.

        Raises:
            UsageError: There is no such feature in ``FEATURES``, so that a misspelt one is not taken for missing.
        """
        plain = re.sub(r"[-. ]", "_", feature.strip().lower())
        wanted = ALIASES.get(plain, frozenset({plain}))
        if not wanted <= set(FEATURES):
            raise UsageError(f"no processor feature '{feature}' is known; known are {', '.join([*FEATURES, *ALIASES])}")
        return not wanted.isdisjoint(self.features)

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return {**asdict(self), "features": list(self.features)}


def family_of(machine: str) -> Family:
    """The family of a machine by the name that the system gives it: ``AMD64`` → ``x86_64``."""
    return _FAMILIES.get(machine.lower(), "other")


def relevant(flags: Iterable[str]) -> tuple[str, ...]:
    """Those of a processor's flags that make a difference."""
    found = set(flags)
    return tuple(name for name in FEATURES if name in found)


@functools.cache
def processor() -> Processor:
    """The processor of this machine; asked once a process."""
    model, flags = "", set[str]()
    with contextlib.suppress(Exception):  # a processor or a system that archspec does not know is no error of ours
        from archspec.cpu import detect, host

        known = host()
        model, flags = known.name, set(known.features) | set(detect.detected_info().features)
    return Processor(brand(), family_of(platform.machine()), model, relevant(flags))


@functools.cache
def brand() -> str:
    """The processor's name, as far as the system tells."""
    with contextlib.suppress(Exception):  # as above
        from archspec.cpu import brand_string

        found = brand_string()
        if found:
            return " ".join(found.split())
    return platform.processor() or platform.machine()
