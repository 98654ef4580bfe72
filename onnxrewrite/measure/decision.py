"""Decisions: what was chosen for a whole model, as it is remembered beside the measurements that it rests on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Final

import onnx_ir as ir
from pydantic import TypeAdapter, ValidationError

from onnxrewrite.checks.likeness import outline
from onnxrewrite.measure.choice import Weighed
from onnxrewrite.measure.database import rows
from onnxrewrite.measure.database.known import Known
from onnxrewrite.measure.kernel_program import Part
from onnxrewrite.measure.timing import Interval
from onnxrewrite.rewrite.rule import Rule

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
    """The choice for a model.

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


def subject(model: ir.Model, rules: Iterable[Rule], without: Collection[Hashable], *told: object) -> str:
    """The digest of all that a decision depends on, but for measurements and weights: a model, the rules, those and the
    rewrites that take no part, and what else is ``told``."""
    parts = (_FORMAT, told, sorted(rows.digests(*rules).items()), sorted(map(repr, without)))
    return hashlib.sha256(f"{parts}\n{outline(model)}".encode()).hexdigest()


@dataclass(frozen=True)
class OpsetMemory:
    """Remembers what models were given a newer opset for; see ``compiler/opsets.py``.

    Attributes:
        known: Where it is remembered.
        rules: All rules.
        told: What else it depends on: the target, and what is asked for.
    """

    known: Known
    rules: tuple[Rule, ...]
    told: tuple[object, ...] = ()

    def needed(self, model: ir.Model, without: Collection[Hashable], told: object) -> dict[str, int]:
        """The operators that were needed, and their opsets."""
        about = subject(model, self.rules, without, *self.told, told)
        try:
            return _NEEDED.validate_json(self.known.decision(about) or "{}")
        except ValidationError:
            return {}

    def keep(self, model: ir.Model, without: Collection[Hashable], told: object, needed: Mapping[str, int]) -> None:
        """Remember them."""
        self.known.decide(subject(model, self.rules, without, *self.told, told), json.dumps(needed))


_NEEDED: Final = TypeAdapter(dict[str, int])


@cache
def _adapter() -> TypeAdapter[Decision]:
    return TypeAdapter(Decision)
