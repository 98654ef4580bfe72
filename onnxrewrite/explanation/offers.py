"""Offers: the rules that would apply under an assumption about the data that no rule makes unasked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Assumption, Rule


class OfferRow(TypedDict):
    """An assumption, its name for ``--assume``, and its gain, see ``Offer``."""

    assumption: str
    option: str
    rules: dict[str, int]
    before: int
    after: int


@dataclass(frozen=True)
class Offer:
    """The gain of an assumption for a model.

    Attributes:
        assumption: The assumption.
        rules: The rules that would apply more often, to how much more often.
        before: Nodes of the result without it.
        after: Nodes of the result with it.
    """

    assumption: Assumption
    rules: Mapping[str, int]
    before: int
    after: int

    def to_json(self) -> OfferRow:
        """Plain data."""
        return {
            "assumption": str(self.assumption),
            "option": self.assumption.option,
            "rules": dict(self.rules),
            "before": self.before,
            "after": self.after,
        }


def offers(
    model: ir.Model, rules: Sequence[Rule], target: str, withheld: Collection[Assumption], of: Rule | None = None
) -> Iterator[Offer]:
    """The assumptions that are all that some rule lacks; nothing is measured, and nothing checked.

    Args:
        model: The model, as loaded; it is not changed.
        rules: All rules.
        target: The target that the result must run on.
        withheld: The assumptions that are not made.
        of: Only those under which this rule would apply more often.
    """
    if not any(a in r.assumes for a in withheld for r in rules):
        return
    now = _driven(model, rules, target, withheld)
    for assumption in withheld:
        refused = [r for r in rules if assumption in r.assumes and now.trace.refused.get(r.name)]
        if not refused:
            continue
        then = _driven(model, rules, target, [a for a in withheld if a is not assumption])
        more = then.trace.counts() - now.trace.counts()
        if more and (of is None or more[of.name]):
            yield Offer(assumption, dict(more.most_common()), _size(now.model), _size(then.model))


def _driven(model: ir.Model, rules: Sequence[Rule], target: str, withheld: Collection[Assumption]) -> Driver:
    driver = Driver(io.load(model), rules, target_by_name(target), withheld=withheld)
    driver.run()
    return driver


def _size(model: ir.Model) -> int:
    return sum(len(scope) for scope in scopes(model))
