"""Nodes by what a user calls them: name, operator, module scope, region, or a pattern with wildcards for any of these.

This module knows neither what is done to the nodes, nor how regions are found.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

import onnx_ir as ir

from onnxrewrite.errors import UsageError
from onnxrewrite.report.html.groups import module
from onnxrewrite.suite.quantization.quantize_settings import OPERATOR

KINDS = ("name", "scope", "region", "operator")
"""The kinds of keys, the closest first."""

_WILD = re.compile(r"[*?\[]")
_STEPS = re.compile(r"[/.]")


@dataclass(frozen=True)
class Named:
    """The nodes of a graph, and all that they are called.

    Attributes:
        nodes: In their order.
        regions: Region to the names of its nodes.
    """

    nodes: Sequence[ir.Node]
    regions: Mapping[str, Collection[str]] = field(default_factory=dict)

    @cached_property
    def scopes(self) -> dict[str, str]:
        """Node name to its module scope, ``model.encoder.layer.0.attention``; empty where nobody says."""
        return {n.name or "": ".".join(module(n)) for n in self.nodes}

    def match(self, key: str, option: str) -> dict[str, str]:
        """The nodes that are called so: name to the closest kind of ``KINDS``.

        A scope is matched by any whole steps of it: ``attention`` and ``layer.0/attention`` both match
        ``model.encoder.layer.0.attention.self``.  ``op:MatMul`` is an operator and nothing else.

        Raises:
            UsageError: Nothing is; the message names what comes nearest.  A region that has no nodes is nothing, too.
        """
        if key and key in self.scopes:  # exporters' names may have brackets, which would be a pattern
            return {key: "name"}
        found = {name: kind for n in self.nodes if (name := n.name or "") and (kind := self._kind(n, key))}
        if not found and key in self.regions:
            raise UsageError(f"{option} {key}: the model has no such region{_others(self.regions)}")
        if not found and key != "*":
            raise UsageError(f"{option} {key}: no node, scope or operator is called so{self._nearest(key)}")
        return found

    def _kind(self, node: ir.Node, key: str) -> str | None:
        if key.startswith(OPERATOR):
            return "operator" if fnmatchcase(node.op_type, key.removeprefix(OPERATOR)) else None
        name, scope = node.name or "", self.scopes[node.name or ""]
        if fnmatchcase(name, key):
            return "name"
        if scope and fnmatchcase(f".{scope}.", f"*.{_STEPS.sub('.', key).strip('.')}.*"):
            return "scope"
        if any(name in members for region, members in self.regions.items() if fnmatchcase(region, key)):
            return "region"
        return "operator" if fnmatchcase(node.op_type, key) else None

    def chosen(self, keys: Iterable[str], option: str) -> dict[str, str]:
        """All nodes that any of the keys matches: name to the first such key; see :meth:`match`."""
        found: dict[str, str] = {}
        for key in keys:
            for name in self.match(key, option):
                found.setdefault(name, key)
        return found

    def _nearest(self, key: str) -> str:
        """``; the nearest is ...``, or nothing where nothing is near."""
        known = {n.name or "" for n in self.nodes} | {n.op_type for n in self.nodes} | set(self.regions)
        for scope in self.scopes.values():
            steps = scope.split(".")
            known |= {scope, *steps, *(".".join(steps[i:]) for i in range(len(steps)))}
        lower = {k.lower(): k for k in sorted(known) if k}
        wanted = _WILD.sub("", _STEPS.sub(".", key)).lower()
        near = difflib.get_close_matches(wanted, lower, n=1, cutoff=0.5) or difflib.get_close_matches(
            key.lower(), lower, n=1, cutoff=0.5
        )
        return f"; the nearest is {lower[near[0]]}" if near else ""


def _others(regions: Mapping[str, Collection[str]]) -> str:
    """``; it has attention, head``, or nothing where there are none."""
    present = [region for region, members in regions.items() if members]
    return f"; it has {', '.join(present)}" if present else ""


def is_pattern(key: str) -> bool:
    """True if a key has wildcards."""
    return _WILD.search(key) is not None
