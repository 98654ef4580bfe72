"""Classes of machines: those on which the same kernel is the faster one, as far as facts and three benchmarks tell."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Final

from pydantic import Field

from onnxrewrite.measure.peaks import Peaks, median_peaks
from onnxrewrite.runtime.features import processor
from onnxrewrite.runtime.settings import Setting
from onnxrewrite.system import resources

ALIKE: Final = 1.6
"""Peaks may differ by this factor.  With five processes on two cores, medians of three measurements lay within 1.5."""

_TIMES: Final = 3

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Fingerprint:
    """The peaks of one thread of a machine, see ``measure.peaks``: operations a second, bytes a second, seconds."""

    flops: Positive
    bandwidth: Positive
    dispatch: Positive

    def is_alike(self, other: Fingerprint) -> bool:
        """True if each differs by less than the factor."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(a < ALIKE * b and b < ALIKE * a for a, b in pairs)


@dataclass(frozen=True)
class Facts:
    """The facts that a machine tells of itself.

    Attributes:
        family: Of its instructions.
        features: The instruction sets that make a difference.
        caches: Their bytes by name, those of one core.
        cores: The number of useful threads.
    """

    family: str
    features: tuple[str, ...]
    caches: Mapping[str, int]
    cores: int


@dataclass(frozen=True)
class MachineClass:
    """The class of a machine: one of its members, to which others are alike.

    Attributes:
        facts: The facts that it tells of itself.
        fingerprint: Its fingerprint; None as long as nobody has compared the machine with another one.
    """

    facts: Facts
    fingerprint: Fingerprint | None

    def is_alike(self, other: MachineClass) -> bool:
        """True if what was measured on one machine holds for the other, as far as both have fingerprints."""
        if self.fingerprint is None or other.fingerprint is None:
            return False
        return self.facts == other.facts and self.fingerprint.is_alike(other.fingerprint)

    @property
    def name(self) -> str:
        """``x86_64-2-1f00c4``: the family, the cores, and a digest of the facts."""
        digest = hashlib.sha256(json.dumps(asdict(self.facts), sort_keys=True).encode()).hexdigest()
        return f"{self.facts.family}-{self.facts.cores}-{digest[:6]}"


@dataclass(frozen=True)
class Host:
    """A machine: what it says of itself, and a name that tells nothing else of it."""

    facts: Facts
    processor: str
    name: str = field(default_factory=lambda: hashlib.sha256(platform.node().encode()).hexdigest()[:12])


def host() -> Host:
    """This machine, as it is now."""
    found = processor()
    facts = Facts(found.family, found.features, resources.caches(), resources.cores().threads)
    return Host(facts, found.name)


def fingerprint() -> Fingerprint:
    """The fingerprint of this machine, measured now, in some seconds."""
    found: Peaks = median_peaks(Setting(threads=1), _TIMES)
    return Fingerprint(found.flops, found.bandwidth, found.dispatch)
