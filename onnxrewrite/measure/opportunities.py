"""Opportunities for speed: rewrites with their measured gain, near misses and what they could gain at the most.

Rewriting and ONNX Runtime's own fusions both move the borders between kernels.  So kernels before and after are
compared where both sides stand for the same nodes of the original: in the connected components of kernels and nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, TypedDict

import networkx as nx
import onnx_ir as ir

from onnxrewrite.ir.graph import scopes
from onnxrewrite.measure.kernel_times import Kernel
from onnxrewrite.measure.lineage import origins, rules_by_node
from onnxrewrite.measure.timing import Interval, Span, interval
from onnxrewrite.pattern.terms import Capture, walk
from onnxrewrite.pattern.terms import Literal as Number
from onnxrewrite.rewrite.reach import anchors, depth
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.trace import Trace

Kind: TypeAlias = Literal["rewrite", "near miss", "far from the roof"]


class SeenRow(TypedDict):
    """The rules that saw a kernel's nodes, see ``Seen``."""

    rules: list[str]
    refused: dict[str, str]


class OpportunityRow(TypedDict):
    """Something to gain, see ``Opportunity``: seconds."""

    kind: Kind
    name: str
    places: int
    seconds: float
    gain: float
    measured: Span | None
    rules: list[str]
    stage: str
    reasons: dict[str, int]
    nodes: list[str]


@dataclass(frozen=True)
class Seen:
    """The rules that matched at a node.

    Attributes:
        rules: Those that rewrote it, oldest first.
        refused: Those that matched with it as their anchor and did not apply, to the reason: near misses.
    """

    rules: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> SeenRow:
        """Plain data."""
        return {"rules": list(self.rules), "refused": dict(self.refused)}


@dataclass(frozen=True)
class Opportunity:
    """Something to gain.

    Attributes:
        kind: ``rewrite``: a rule applies there; ``near miss``: a rule matched and was refused; ``far from the roof``:
            kernels take longer than the machine would allow.
        name: The rules, or the operator.
        places: The number of places.
        seconds: The time that a run spends there now.
        gain: Seconds that a run would save; negative where it would lose.
        measured: The gain with its interval; None where ``gain`` is what it is at the most.
        rules: All rules that had a part in it.
        stage: Of the rule that was refused.
        reasons: The reasons why it was refused, and how often.
        nodes: Names of the model's nodes, the first of each place.
    """

    kind: Kind
    name: str
    places: int
    seconds: float
    gain: float
    measured: Interval | None = None
    rules: tuple[str, ...] = ()
    stage: str = ""
    reasons: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()

    def to_json(self) -> OpportunityRow:
        """Plain data."""
        return {
            "kind": self.kind,
            "name": self.name,
            "places": self.places,
            "seconds": self.seconds,
            "gain": self.gain,
            "measured": self.measured.to_json() if self.measured is not None else None,
            "rules": list(self.rules),
            "stage": self.stage,
            "reasons": dict(self.reasons),
            "nodes": list(self.nodes),
        }


class Side(NamedTuple):
    """Kernels, and by their names the names of the original nodes that they stand for."""

    kernels: Sequence[Kernel]
    nodes: Mapping[str, Sequence[str]]


def side(kernels: Sequence[Kernel], stands_for: Mapping[str, Sequence[ir.Node]]) -> Side:
    """Kernels of the original, or of a rewritten model, and the original nodes that they stand for."""
    return Side(kernels, {k: tuple(dict.fromkeys(o for n in of for o in origins(n))) for k, of in stands_for.items()})


def seen_by_rules(original: ir.Model, rewritten: ir.Model, trace: Trace) -> dict[str, Seen]:
    """The rules that matched at each node, by the names of the original's nodes."""
    rules = rules_by_node(original, rewritten, trace)
    refused: dict[str, dict[str, str]] = defaultdict(dict)
    for rule, node, reason in _refusals(original, trace):
        refused[node.name or ""][rule] = reason
    return {name: Seen(rules.get(name, ()), refused.get(name, {})) for name in {*rules, *refused}}


def _refusals(original: ir.Model, trace: Trace) -> list[tuple[str, ir.Node, str]]:
    """Rule, node and reason of each refusal at a value of the original, but where the rule did apply later on."""
    producers = {o.name: n for graph in scopes(original) for n in graph for o in n.outputs}
    done = {a.key for a in trace.applied}
    return [
        (rule, producers[value], reason)
        for rule, sites in trace.refused.items()
        for value, reason in sites.items()
        if value in producers and (rule, value) not in done
    ]


# -------------------------------------------------------------------------------------------------- rewrites


def rewrites(before: Side, after: Side, seen: Mapping[str, Seen], trace: Trace) -> list[Opportunity]:
    """The gains of the rewrites, by the rules that lead, the largest gain first."""
    leading = {a.rule for a in trace.applied if a.stage != "canonicalize"}
    order = {rule: place for place, rule in enumerate(dict.fromkeys(a.rule for a in trace.applied))}
    groups: dict[tuple[str, ...], list[_Part]] = defaultdict(list)
    for part in _parts(before, after):
        met = Counter(rule for name in part.nodes for rule in seen.get(name, Seen()).rules)
        rules = sorted(met, key=lambda rule: (order.get(rule, -1), rule))
        if rules:
            key = tuple(r for r in rules if r in leading) or (max(rules, key=lambda r: met[r]),)
            groups[key].append(part._replace(rules=tuple(rules)))
    found = [_rewrite(key, parts) for key, parts in groups.items()]
    return sorted(found, key=lambda o: -o.gain)


class _Part(NamedTuple):
    """A part of the model where both sides stand for the same nodes."""

    nodes: tuple[str, ...]
    before: tuple[Kernel, ...]
    after: tuple[Kernel, ...]
    rules: tuple[str, ...] = ()


def _parts(before: Side, after: Side) -> list[_Part]:
    """The connected components of kernels and original nodes."""
    graph: nx.Graph[str | tuple[int, Kernel]] = nx.Graph()
    for number, (kernels, nodes) in enumerate((before, after)):
        for kernel in kernels:
            graph.add_edges_from(((number, kernel), name) for name in nodes.get(kernel.name, ()))
    place = {name: n for n, name in enumerate(o for names in before.nodes.values() for o in names)}
    parts = []
    for component in nx.connected_components(graph):
        sides = [tuple(v[1] for v in component if isinstance(v, tuple) and v[0] == n) for n in (0, 1)]
        names = sorted((v for v in component if isinstance(v, str)), key=lambda n: (place.get(n, len(place)), n))
        parts.append(_Part(tuple(names), *sides))
    return sorted(parts, key=lambda p: place.get(p.nodes[0], len(place)))


def _rewrite(rules: tuple[str, ...], parts: Sequence[_Part]) -> Opportunity:
    """The gain is taken round by round, for both models ran by turns."""
    before = _summed([k for p in parts for k in p.before])
    after = _summed([k for p in parts for k in p.after])
    rounds = max(len(before), len(after))
    gains = [a - b for a, b in zip(before or [0.0] * rounds, after or [0.0] * rounds, strict=True)]
    measured = interval(gains)
    return Opportunity(
        kind="rewrite",
        name=", ".join(rules),
        places=len(parts),
        seconds=sum(k.seconds for p in parts for k in p.before),
        gain=measured.median,
        measured=measured,
        rules=tuple(dict.fromkeys(r for p in parts for r in p.rules)),
        nodes=tuple(p.nodes[0] for p in parts),
    )


def _summed(kernels: Sequence[Kernel]) -> list[float]:
    """Seconds of all kernels together, run by run."""
    return [sum(samples) for samples in zip(*(k.samples for k in kernels), strict=True)]


# ----------------------------------------------------------------------------------------------- near misses


def near_misses(original: ir.Model, before: Side, trace: Trace, rules: Iterable[Rule]) -> list[Opportunity]:
    """The most that refused rules could gain, the largest first.

    That is the time of the kernels that a rule would cover, less the longest of those that compute something, for
    arithmetic remains where movement can vanish.  Covered is what the pattern's operators and depth reach from its
    anchor.
    """
    by_name = {rule.name: rule for rule in rules}
    kernel_of = {name: k for k in before.kernels for name in before.nodes.get(k.name, ())}
    sites: dict[str, list[tuple[ir.Node, str]]] = defaultdict(list)
    for rule, node, reason in _refusals(original, trace):
        if rule in by_name:
            sites[rule].append((node, reason))
    found = [_near_miss(by_name[rule], places, kernel_of) for rule, places in sites.items()]
    return sorted((o for o in found if o.gain > 0), key=lambda o: -o.gain)


def _near_miss(rule: Rule, places: Sequence[tuple[ir.Node, str]], kernel_of: Mapping[str, Kernel]) -> Opportunity:
    """One rule at the nodes where it was refused; a kernel counts once."""
    taken: set[Kernel] = set()
    gain = 0.0
    for node, _ in places:
        names = (n.name or "" for n in _reached(rule, node))
        kernels = {kernel_of[n] for n in names if n in kernel_of} - taken
        taken |= kernels
        gain += sum(k.seconds for k in kernels)
        gain -= max((k.seconds for k in kernels if k.work.flops != 0), default=0.0)
    return Opportunity(
        kind="near miss",
        name=rule.name,
        places=len(places),
        seconds=sum(k.seconds for k in taken),
        gain=gain,
        rules=(rule.name,),
        stage=rule.stage.name.lower(),
        reasons=Counter(reason for _, reason in places),
        nodes=tuple(node.name or "" for node, _ in places),
    )


def _reached(rule: Rule, anchor: ir.Node) -> list[ir.Node]:
    """The nodes above an anchor that the rule's pattern can reach by its depth and its operators."""
    terms = [t for output in rule.outputs for t in walk(output) if not isinstance(t, Capture | Number)]
    operators = [anchors(t) for t in terms]
    wanted = None if None in operators else frozenset(o for of in operators for o in of or ())
    found = {anchor: None}
    layer = [anchor]
    for _ in range(max(map(depth, rule.outputs), default=1) - 1):
        above = (p for n in layer for i in n.inputs if i is not None and (p := i.producer()) is not None)
        layer = [p for p in dict.fromkeys(above) if p not in found and (wanted is None or p.op_type in wanted)]
        found.update(dict.fromkeys(layer))
    return list(found)
