"""The nodes that a rule's match covers, and by which terms: this decides what the engine promises to absorb there.

A node that a sum or a product of the pattern took apart may be spelled in any algebraic way.  One that the pattern
names, or that the rewrite has found by itself, may vary in the order of its operands and in how they come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.chain import PRODUCT_OPS, SUM_OPS
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.terms import AnyOf, Capture, Literal, Power, Product, Sum, Term, walk
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.trace import Site
from onnxrewrite.ruletest.metamorphic.firing import matches


@dataclass(frozen=True)
class Chain:
    """The nodes that one sum or product of the pattern took apart.

    Attributes:
        root: The value at its end.
        is_product: True if it multiplies.
        nodes: The nodes that the match covers, and so may be taken apart.
        ends: Values that stand for other terms, at which it stops.
        grows: True if the graph's chain is longer than the pattern, so that the match may lie elsewhere in it.
    """

    root: str
    is_product: bool
    nodes: frozenset[str]
    ends: frozenset[str]
    grows: bool


@dataclass(frozen=True)
class Covered:
    """A place where a rule applies.

    Attributes:
        value: The value at which it was found.
        nodes: The covered nodes.
        chains: The sums and products among them.
        powers: The nodes that a power was matched by.
        literals: The numbers that the pattern is made of.
        ranked: Values of which the pattern says the rank.
    """

    value: str
    nodes: tuple[str, ...]
    chains: tuple[Chain, ...]
    powers: tuple[str, ...]
    literals: tuple[float, ...]
    ranked: frozenset[str] = frozenset()

    @property
    def explicit(self) -> tuple[str, ...]:
        """The nodes that are no part of a sum, a product or a power."""
        algebraic = {n for c in self.chains for n in c.nodes} | set(self.powers)
        return tuple(n for n in self.nodes if n not in algebraic)


def covered(rule: Rule, model: ir.Model, site: Site) -> Covered:
    """The nodes that a rule covers at ``site``, where it applies to this model; makes the model's facts known."""
    facts = Facts(model.graph, dict(model.opset_imports))
    nodes = {n.name: n for n in model.graph}
    names = tuple(n.name for n in site.before if n.name in nodes)
    anchor = next(o for n in model.graph for o in n.outputs if o.name == site.value)
    match = _same_match(rule, facts, model.graph, anchor, set(names))
    if match is None:
        return Covered(site.value, tuple(n for n in names if n), (), (), literals(rule))
    chains, powers = _algebra(rule, match, anchor)
    ranked = (n for t, b in match.bindings() if isinstance(t, Capture) and t.rank is not None for n in _names(b))
    return Covered(site.value, tuple(n for n in names if n), chains, powers, literals(rule), frozenset(ranked))


def literals(rule: Rule) -> tuple[float, ...]:
    """The numbers that a rule's pattern is made of."""
    return tuple(dict.fromkeys(t.value for o in rule.outputs for t in walk(o) if isinstance(t, Literal)))


def _same_match(rule: Rule, facts: Facts, graph: ir.Graph, anchor: ir.Value, names: set[str | None]) -> Match | None:
    """The match that the site was made of: a rewrite may cover more nodes than its pattern, but not fewer."""
    return next((m for m in matches(rule, facts, graph, anchor) if {n.name for n in m.nodes} <= names), None)


def _algebra(rule: Rule, match: Match, anchor: ir.Value) -> tuple[tuple[Chain, ...], tuple[str, ...]]:
    """The chains and the powers of a match."""
    bound = list(match.bindings())
    named = {b.name for _, b in bound if isinstance(b, ir.Node)}
    ends = frozenset(n for t, b in bound for n in _names(b) if not isinstance(t, AnyOf))
    free = {n.name: n for n in match.nodes if n.name not in named}
    terms = [(t, b) for t, b in bound if isinstance(t, Sum | Product | Power) and isinstance(b, ir.Value)]
    root = _root_term(rule.outputs[0], dict(bound))
    if isinstance(root, Sum | Product | Power):
        terms.append((root, anchor))
    chains: list[Chain] = []
    powers: list[str] = []
    claimed: set[str | None] = set()
    for term, value in terms:
        node = value.producer()
        if node is None or node.name not in free or node.name in claimed:
            continue
        if isinstance(term, Power):
            powers.append(node.name or "")
            claimed.add(node.name)
            continue
        kinds = PRODUCT_OPS if isinstance(term, Product) else SUM_OPS
        part = frozenset(n for n in _part(value, kinds, free, ends) if n not in claimed)
        if node.name in part:
            grows = value is anchor and bool(match.remainder)
            chains.append(Chain(value.name or "", isinstance(term, Product), part, ends, grows))
            claimed |= part
    return tuple(chains), tuple(powers)


def _root_term(term: Term, bound: dict[Any, Any]) -> Term:
    """The term that matched the anchor, behind alternatives."""
    while isinstance(term, AnyOf) and (term, "alternative") in bound:
        term = bound[term, "alternative"]
    return term


def _names(bound: object) -> Iterator[str]:
    values = bound.outputs if isinstance(bound, ir.Node) else (bound,)
    yield from (v.name for v in values if isinstance(v, ir.Value) and v.name)


def _part(
    root: ir.Value, kinds: frozenset[str], free: dict[str | None, ir.Node], ends: frozenset[str]
) -> Iterator[str]:
    """The names of the nodes of these kinds, upwards from ``root`` to where other terms stand."""
    stack = [root]
    while stack:
        value = stack.pop()
        node = value.producer()
        if node is None or node.name not in free or node.op_type not in kinds or node.domain or not node.name:
            continue
        if value is not root and value.name in ends:
            continue
        yield node.name
        stack.extend(v for v in node.inputs if v is not None)
