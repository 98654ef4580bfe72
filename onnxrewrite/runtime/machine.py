"""``machine``: this machine as one value, and what follows from it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from onnxrewrite.ir.target import targets
from onnxrewrite.runtime.advice import EXTRAS, Advice, advice
from onnxrewrite.runtime.features import FEATURES, Processor, processor
from onnxrewrite.runtime.installed import Runtime, runtime, saturates, versions_of
from onnxrewrite.runtime.int8 import Int8, int8_on
from onnxrewrite.system.plain import Json
from onnxrewrite.system.resources import Cores, Memory, cores, memory


@dataclass(frozen=True)
class Machine:
    """A machine, as far as it matters to how models run on it.

    Attributes:
        processor: Its name and features.
        cores: Of the machine, and those that this process may use.
        memory: In bytes.
        system: ``Linux``, ``Darwin``, ``Windows``.
        python: Its version.
        runtime: The installed ONNX Runtime.
        packages: Those that the project can use but does not need, to their versions; None where they are missing.
        saturates: True if products of uint8 and int8 were seen to saturate; None if not tried.
    """

    processor: Processor
    cores: Cores
    memory: Memory
    system: str
    python: str
    runtime: Runtime
    packages: Mapping[str, str | None]
    saturates: bool | None = None

    def has(self, feature: str) -> bool:
        """True if the processor has a feature: ``avx512_vnni``, ``vnni``, ``amx``, ``neon``, ``dotprod``, ``i8mm``, ...

        Raises:
            UsageError: There is no such feature.
        """
        return self.processor.has(feature)

    @property
    def threads(self) -> int:
        """The number of useful intra-op threads."""
        return self.cores.threads

    @cached_property
    def int8(self) -> Int8:
        """The forms of 8-bit arithmetic and which of them pay, with reasons."""
        return int8_on(self.processor, saturates=self.saturates)

    @property
    def providers(self) -> tuple[str, ...]:
        """Execution providers that a session gets where nothing else is said, the best first."""
        return self.runtime.preferred

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """The advice for this machine, in plain lines with their reasons."""
        return advice(self)

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        own = self.processor.family
        return {
            "processor": {
                **self.processor.to_json(),
                "known": {name: self.has(name) for name, (family, _) in FEATURES.items() if family == own},
            },
            "cores": self.cores.to_json(),
            "memory": self.memory.to_json(),
            "system": self.system,
            "python": self.python,
            "runtime": self.runtime.to_json(),
            "targets": {name: each.runs_on for name, each in targets().known.items()},
            "broken targets": list(targets().broken),
            "packages": dict(self.packages),
            "saturates": self.saturates,
            "int8": self.int8.to_json(),
            "advice": [each.to_json() for each in self.advice],
        }


def machine() -> Machine:
    """This machine, as it is now.

    The processor and ONNX Runtime are asked once a process, and so is whether 8-bit products saturate, by running one;
    cores and memory are read anew, for they may change.  Takes some tenths of a second the first time, more where the
    execution providers of a GPU are tried.
    """
    installed = versions_of(tuple(EXTRAS))
    return Machine(
        processor=processor(),
        cores=cores(),
        memory=memory(),
        system=platform.system(),
        python=platform.python_version(),
        runtime=runtime(),
        packages={name: installed.get(name) for name in EXTRAS},
        saturates=saturates(),
    )
