"""Decisions: what was chosen for a whole model, as it is remembered beside the measurements that it rests on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import cache
from typing import Final

import onnx_ir as ir
from pydantic import TypeAdapter, ValidationError

from onnxrewrite.ir import text
from onnxrewrite.measure.choice import Chooser, Weighed
from onnxrewrite.measure.database import rows
from onnxrewrite.measure.kernel_program import Part
from onnxrewrite.measure.timing import Interval
from onnxrewrite.rewrite.trace import Key

_FORMAT: Final = 1
"""Of a decision, and of the way in which it is found; those of another one are not asked for."""


@dataclass(frozen=True)
class Raced:
    """One way to lower a model.

    Attributes:
        rewrites: The number of rewrites of the lower stage.
        ratio: The time of the whole model to that of the original.
        taken: True for the one that was taken: the first that no other is clearly faster than.
        greedy: True for the one that takes what pays by itself, in the order in which it is met.
    """

    rewrites: int
    ratio: Interval
    taken: bool
    greedy: bool


@dataclass(frozen=True)
class Weighing:
    """A rewrite that was met, and what is known of its speed.

    Attributes:
        rule: The rule.
        value: The value that it computes.
        covers: The nodes that it matches, in order.
        weighed: Its time, or why it is not known.
    """

    rule: str
    value: str
    covers: tuple[Part, ...]
    weighed: Weighed | str


@dataclass(frozen=True)
class Decision:
    """What was chosen for a model.

    Attributes:
        met: The rewrites that were met, in the order of their numbers.
        taken: The numbers of those that were chosen.
        raced: The ways that were raced.
    """

    met: tuple[Weighing, ...]
    taken: tuple[int, ...]
    raced: tuple[Raced, ...]

    def written(self) -> str:
        """It in JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))


def read(told: str) -> Decision | None:
    """The decision that was ``written``; None if there is none, or it cannot be read."""
    try:
        return _adapter().validate_json(told)
    except ValidationError:
        return None


def subject(model: ir.Model, chooser: Chooser, without: Collection[Key]) -> str:
    """The digest of all that a decision depends on, but for what is measured: the raised model, the rules, the rewrites
    that are not to be made, the sizes and the settings."""
    rules = rows.digests(*chooser.rules.values())
    told = (_FORMAT, chooser.setting, sorted(chooser.dims.items()), sorted(rules.items()), sorted(without))
    return hashlib.sha256(f"{told}\n{text.print_model(model)}".encode()).hexdigest()


@cache
def _adapter() -> TypeAdapter[Decision]:
    return TypeAdapter(Decision)
