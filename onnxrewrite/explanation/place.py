"""Descriptions of a place in a line: for reasons that do not say themselves which node they speak of."""

from __future__ import annotations

import re
from collections.abc import Mapping

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import topological
from onnxrewrite.pattern.look import resolve
from onnxrewrite.pattern.match import Match, Refused
from onnxrewrite.pattern.misses import shown
from onnxrewrite.rewrite.trace import RULE_KEY

_FOUND = re.compile(r"found (?:only )?\w+ `([^`]*)`")

_NODES = 3
"""Of a larger match nobody would read the nodes."""


def with_maker(reason: str, named: Mapping[str, ir.Node]) -> str:
    """``reason``, with the rule that made the node that was found: another rule has been there before."""
    found = _FOUND.search(reason)
    node = named.get(found[1]) if found is not None else None
    rules = node.metadata_props.get(RULE_KEY, "") if node is not None else ""
    return f"{reason}, which {rules.split(',')[-1]} has made" if rules else reason


def placed(refused: Refused, match: Match, facts: Facts) -> str:
    """The reason, with the nodes that it speaks of where it names none: those of a small match, and the one that
    computes the value that is to blame."""
    if "`" in refused.reason.partition(" (at `")[0]:
        return refused.reason
    nodes = match.nodes if len(match.nodes) <= _NODES else ()
    blamed = resolve(refused.at).producer() if refused.at is not None else None
    is_there = blamed is not None and blamed.graph is not None  # what was built has been taken back
    told = dict.fromkeys((*topological(nodes), *([blamed] if blamed is not None and is_there else [])))
    depth = 2 if len(told) == 1 else 1
    shows = " of ".join(shown(n, facts, depth) for n in reversed(told))
    return f"{refused.reason}, in {shows}" if told else refused.reason
