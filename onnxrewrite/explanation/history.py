"""The history of a node: the rules that took it in, those that refused it, and what stands there now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import onnx_ir as ir

from onnxrewrite.errors import UsageError
from onnxrewrite.explanation.near_miss import source_of
from onnxrewrite.ir.graph import scopes
from onnxrewrite.rewrite.trace import FROM_KEY, RULE_KEY, Applied, Trace


class StepRow(TypedDict):
    """A rewrite that a node had a part in, see ``Step``."""

    rule: str
    value: str
    made: bool
    before: list[str]
    after: list[str]


class StoryReport(TypedDict):
    """The story of a node, see ``Story``."""

    name: str
    operator: str
    source: str
    is_there: bool
    rules: list[str]
    origin: list[str]
    steps: list[StepRow]
    refused: dict[str, str]


@dataclass(frozen=True)
class Step:
    """A rewrite that a node had a part in: it was covered (``made`` is False), or built."""

    rule: str
    value: str
    made: bool
    before: tuple[str, ...]
    after: tuple[str, ...]

    def to_json(self) -> StepRow:
        """Plain data."""
        return {
            "rule": self.rule,
            "value": self.value,
            "made": self.made,
            "before": list(self.before),
            "after": list(self.after),
        }


@dataclass(frozen=True)
class Story:
    """The story of one node.

    Attributes:
        name: The node's name.
        operator: The node's operator.
        source: The exporter's note of where it comes from; empty if there is none.
        is_there: True if it stands in the result.
        rules: The rules that made it, if it stands there and is not original.
        origin: The original nodes that it stands for.
        steps: The rewrites that it had a part in, in their order.
        refused: Rule to the reason why it did not apply at what the node computes.
    """

    name: str
    operator: str
    source: str
    is_there: bool
    rules: tuple[str, ...]
    origin: tuple[str, ...]
    steps: tuple[Step, ...]
    refused: dict[str, str]

    def to_json(self) -> StoryReport:
        """Plain data."""
        return {
            "name": self.name,
            "operator": self.operator,
            "source": self.source,
            "is_there": self.is_there,
            "rules": list(self.rules),
            "origin": list(self.origin),
            "steps": [s.to_json() for s in self.steps],
            "refused": dict(self.refused),
        }


def story(original: ir.Model, rewritten: ir.Model, trace: Trace, name: str) -> Story:
    """The story of the node called ``name``, or of the one that computes the value of that name.

    Raises:
        UsageError: There is none, before or after.
    """
    now, before = _named(rewritten, name), _named(original, name)
    node = now or before
    if node is None:
        raise UsageError(f"no node and no value is called '{name}'; onnxrewrite inspect --text shows all names")
    values = {o.name or "" for each in (now, before) if each is not None for o in each.outputs}
    names = {each.name or "" for each in (now, before) if each is not None}
    rules = now.metadata_props.get(RULE_KEY, "") if now is not None else ""
    origin = now.metadata_props.get(FROM_KEY, "[]") if now is not None else "[]"
    return Story(
        name=node.name or "",
        operator=node.op_type,
        source=source_of(node),
        is_there=now is not None,
        rules=tuple(r for r in rules.split(",") if r),
        origin=_names(origin),
        steps=tuple(_steps(trace.applied, names, values)),
        refused={
            rule: sites[v] for rule, sites in sorted(trace.refused.items()) for v in sorted(values & sites.keys())
        },
    )


def _named(model: ir.Model, name: str) -> ir.Node | None:
    nodes = [n for graph in scopes(model) for n in graph]
    found = next((n for n in nodes if n.name == name), None)
    return found or next((n for n in nodes if any(o.name == name for o in n.outputs)), None)


def _names(origin: str) -> tuple[str, ...]:
    return tuple(json.loads(origin))


def _steps(applied: Sequence[Applied], names: set[str], values: set[str]) -> list[Step]:
    found = []
    for each in applied:
        covered, made = bool(names & set(each.before)), each.value in values or bool(values & set(each.values))
        if covered or made:
            found.append(Step(each.rule, each.value, made, each.before, each.after))
    return found
