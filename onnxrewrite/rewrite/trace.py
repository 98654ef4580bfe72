"""The trace of a run: the rewrites that were applied, and the matches that were refused and why."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.text import print_rewrite
from onnxrewrite.rewrite.rule import Assumption

RULE_KEY = "onnxrewrite.rule"
"""Metadata of an emitted node: the rules that made it, oldest first, joined by commas."""

FROM_KEY = "onnxrewrite.from"
"""Metadata of an emitted node: the names of the original nodes that it stands for, as a JSON list."""


Key: TypeAlias = tuple[str, str]
"""The key of a rewrite in a repeated run: the rule, and the name of the value that it replaces."""


@dataclass(frozen=True)
class Site:
    """One place where a rule applies: what it covers, and what it would put there.

    Attributes:
        rule: The rule's name.
        value: The name of the anchor's value; with ``rule`` it identifies the site.
        scope: The name of the graph or function.
        before: The covered nodes, in topological order.
        after: The nodes built, in topological order.
        outputs: The values that are replaced.
        results: The values that replace them.
        opset_imports: Domain to version of the scope.
        facts: The facts about the values.
        needs_check: True if the rewrite may only be applied if it was run.
        assumes: The rule's assumptions about the data.
    """

    rule: str
    value: str
    scope: str
    before: tuple[ir.Node, ...]
    after: tuple[ir.Node, ...]
    outputs: tuple[ir.Value, ...]
    results: tuple[ir.Value, ...]
    opset_imports: dict[str, int]
    facts: Facts
    needs_check: bool = False
    assumes: tuple[Assumption, ...] = ()

    @property
    def key(self) -> Key:
        """The key of the site in a repeated run."""
        return self.rule, self.value

    @cached_property
    def text(self) -> tuple[list[str], list[str]]:
        """Both sides as lines, equal for sites that are the same but for names; to be asked while they are in place."""
        replaced = tuple(zip(self.outputs, self.results, strict=True))
        return print_rewrite(self.before, self.after, replaced, self.opset_imports)


@dataclass(frozen=True)
class Applied:
    """One rewrite that was applied.

    Attributes:
        before: The names of the nodes that it covered.
        after: The operators that it built.
        values: The names of the values that it built.
        growth: The number of nodes that the graph gained, or lost where negative.
        nodes: The names of the nodes that it built; one of them may bear the name of the anchor's node from now on.
        record: The record that the checks keep of it; rewriting does not look into it.
    """

    rule: str
    stage: str
    value: str
    scope: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    values: tuple[str, ...]
    growth: int
    nodes: tuple[str, ...] = ()
    record: Any = field(default=None, repr=False)

    @property
    def key(self) -> Key:
        """The key of the rewrite in a repeated run: the rule, and the value that it replaced."""
        return self.rule, self.value


@dataclass
class Trace:
    """Everything that happened in one run.

    Attributes:
        applied: The rewrites, in order.
        refused: Rule to the sites where it matched and did not apply: value name to reason.
        failed: Sites that a check turned down: (rule, value name) to reason.
        declined: Sites where a rewrite is right and does not pay: (rule, value name) to reason.
        too_new: Operators that were not raised because the model's opset does not have them, to the opset that does.
        wished: Operators that were raised and lowered again, and run faster by themselves, to the opset that has them.
        warnings: One line each: looping rules, rules that raised.
        conflicts: The number of times that a rule was applied where a later one could have been: (the one, the other)
            to number; only if the driver collects them.
    """

    applied: list[Applied] = field(default_factory=list)
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    failed: dict[Key, str] = field(default_factory=dict)
    declined: dict[Key, str] = field(default_factory=dict)
    too_new: dict[str, int] = field(default_factory=dict)
    wished: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    conflicts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def refuse(self, rule: str, value: str, reason: str) -> None:
        """Note that ``rule`` matched at ``value`` and was refused; the last reason counts."""
        self.refused.setdefault(rule, {})[value] = reason

    def has_turned_down(self, key: Key) -> bool:
        """True if a check or a measurement spoke against a rewrite."""
        return key in self.failed or key in self.declined

    def counts(self) -> Counter[str]:
        """The number of times that each rule was applied."""
        return Counter(a.rule for a in self.applied)


def written_by(node: ir.Node) -> frozenset[str]:
    """The rules that a node comes of, in this run or an earlier one; none for a node of the original."""
    return frozenset(filter(None, node.metadata_props.get(RULE_KEY, "").split(",")))


def provenance(site_nodes: tuple[ir.Node, ...], rule: str) -> dict[str, str]:
    """The metadata of nodes that ``rule`` emits in place of ``site_nodes``.

    It keeps what the exporter said of the anchor, and follows earlier rewrites back to the original nodes.
    """
    metadata: dict[str, str] = dict(site_nodes[0].metadata_props) if site_nodes else {}
    names: dict[str, None] = {}
    rules: dict[str, None] = {}
    for node in reversed(site_nodes):
        origin = node.metadata_props.get(FROM_KEY)
        names.update(dict.fromkeys(json.loads(origin) if origin else ([node.name] if node.name else [])))
        rules.update(dict.fromkeys(r for r in node.metadata_props.get(RULE_KEY, "").split(",") if r))
    rules.pop(rule, None)
    metadata[RULE_KEY] = ",".join([*rules, rule])
    metadata[FROM_KEY] = json.dumps(list(names))
    return metadata
