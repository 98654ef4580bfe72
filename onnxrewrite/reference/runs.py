"""A run of a model: its inputs, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from onnxrewrite.inputs.classes import CLASSES
from onnxrewrite.system.arrays import Feeds, Outputs, element_count


@dataclass(frozen=True, eq=False)
class Run:
    """One run of the original: its inputs, and what it made of them."""

    binding: dict[str, int]
    label: str
    """A sample or a class of values."""
    feeds: Feeds = field(repr=False)
    outputs: Outputs = field(repr=False)
    values: str = CLASSES[0]
    """The class of values, see ``inputs.classes``."""

    @cached_property
    def size(self) -> int:
        """Elements of all inputs together."""
        return element_count(self.feeds)

    def describe(self) -> str:
        """For a failure's line."""
        sizes = " ".join(f"{k}={v}" for k, v in self.binding.items())
        return f"{self.label}{' at ' + sizes if sizes else ''}"
