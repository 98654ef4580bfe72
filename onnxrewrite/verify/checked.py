"""What a check of a whole model ran, and what it found: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from onnxrewrite.verify.numeric import Comparison
from onnxrewrite.verify.session import Outputs

ORIGINAL = "original"
"""What an output was measured against that is so near the original that no reference could object."""

ROUNDED = "the number that was rounded"
"""The same for integers that a quantizer made."""


@dataclass(frozen=True)
class Run:
    """One set of inputs: where they came from, and what the original made of them."""

    binding: dict[str, int]
    sample: int
    special: str
    """What is special about the inputs; empty where nothing is."""
    feeds: Mapping[str, Any] = field(repr=False)
    outputs: Outputs = field(repr=False)

    @property
    def size(self) -> int:
        """Elements of all inputs together."""
        return sum(int(np.size(value)) for value in self.feeds.values())

    def describe(self) -> str:
        """For a failure's line."""
        sizes = " ".join(f"{k}={v}" for k, v in self.binding.items())
        parts = [f"sample {self.sample}", sizes, self.special]
        return " ".join(p for p in parts if p)


@dataclass
class OutputCheck:
    """The worst comparison of one output over all runs."""

    name: str
    comparison: Comparison
    reference: str
    run: str = ""
    equality: str = ""
    """``BITWISE`` or ``IN_VALUE`` where the output is equal to the original's in all runs."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass
class ModelCheck:
    """Whether a candidate computes what the original computes, and how that was found out."""

    ok: bool
    reference: str
    tolerance: str
    outputs: list[OutputCheck] = field(default_factory=list)
    bindings: list[dict[str, int]] = field(default_factory=list)
    samples: int = 0
    runs: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: str | None = None

    @property
    def identical(self) -> bool:
        """Whether outputs were compared, and all of them are equal to the original's in all runs."""
        return bool(self.outputs) and all(o.equality for o in self.outputs)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)
