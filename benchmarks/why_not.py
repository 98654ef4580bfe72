"""Reasons of ``explain``: a graph to which a rule applies, with one thing broken.  Do they name what was broken?

    python -m benchmarks.why_not [--rules NAME ...] [--count N] [--own | --independent] [--show] [--json FILE]

Each break is drawn from the examples of a rule: by the mistakes that ``verify`` makes, an older opset, another dtype
and a reader in the body of an If; and, independently of those, by what ``breaks`` does.  Those after which the rule
still applies, and those that leave no valid model, do not count.  The goals, over all rules and at least 500 breaks:

- the first reason, asked of the whole model, names the broken thing in at least 95 % of the one kind and 90 % of the
  other: the node or the value by its name, or the number, the attribute or the operator that is there now; of a use, an
  output, an opset, a dtype, a shape also the word;
- where half of the nodes of the pattern are as they were, something comes near, always.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from benchmarks import breaks as independent
from benchmarks import report
from benchmarks.breaks import Breaker
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.explanation.why_not import Explainer
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.terms import AnyNode
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.metamorphic import Seed, mutations, seeds
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.ruletest.metamorphic.firing import matches
from onnxrewrite.ruletest.metamorphic.mutants import with_facts
from onnxrewrite.ruletest.metamorphic.seeds import DTYPES, retyped

COUNT = 6
"""Breaks of each rule, unless asked for others."""

_DRAWS = 8
"""So many are drawn for each that is asked for."""


# -- breaks ----------------------------------------------------------------------------------------------------------


def _border(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An inner value that the body of an If reads, too."""
    inner = [o for n in nodes for o in n.outputs if any(c in nodes for c in o.consumers()) and not o.is_graph_output()]
    if not inner:
        return None
    value = rng.choice(inner)
    condition = draft.constant(np.asarray(True), ir.DataType.BOOL)
    draft.graph.inputs.append(condition)
    branches = {name: _reading(draft, value) for name in ("then_branch", "else_branch")}
    node = ir.Node("", "If", [condition], ir.convenience.convert_attributes(branches), name=draft.fresh("if"))
    node.outputs[0].name = draft.fresh("read")
    draft.graph.append(node)
    draft.graph.outputs.append(node.outputs[0])
    return f"`{value.name}` is read in a body"


def _reading(draft: Draft, value: ir.Value) -> ir.Graph:
    node = ir.Node("", "Identity", [value], name=draft.fresh("reader"))
    node.outputs[0].name = draft.fresh("inside")
    node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
    return ir.Graph([], [node.outputs[0]], nodes=[node], name=draft.fresh("body"))


def _opset(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An opset that has not got what the rule makes."""
    older = [version for version in (8, 10, 12, 14, 16) if version < draft.opset]
    if not older:
        return None
    draft.model.opset_imports[""] = rng.choice(older)
    return f"the opset is {draft.opset}"


def _dtype(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Another dtype for all floats."""
    dtype = rng.choice(DTYPES)
    draft.model = retyped(draft.model, dtype, ())
    draft.graph = draft.model.graph
    return f"everything is {dtype.name.lower()}"


OWN: dict[str, tuple[Breaker, str]] = {
    "constant": (mutations.constant, ""),
    "attribute": (mutations.attribute, ""),
    "operator": (mutations.operator, ""),
    "operand": (mutations.operand, ""),
    "order": (mutations.order, ""),
    "extra operand": (mutations.extra, "inputs|operands"),
    "shape": (mutations.shape, "shapes?|ranks?|dimensions?|sizes?|axis|axes"),
    "extra use": (mutations.reader, "used by"),
    "graph output": (mutations.export, "graph output"),
    "overridable": (mutations.overridable, "overrid\\w+|graph input|constant"),
    "body": (_border, "used by|body"),
    "dtype": (_dtype, "dtypes?|kernels?|bfloat16|float16|double"),
    "opset": (_opset, "opset"),
}
"""The kinds of breaks, each to the function that makes it and to words that name it."""

KINDS = OWN | independent.KINDS


@dataclass(frozen=True)
class Break:
    """One thing broken, and what ``explain`` says first.

    Attributes:
        rule: The name of the rule.
        kind: One of ``KINDS``.
        what: The change that was made.
        reason: The first reason; empty where nothing comes near.
        named: True if it names the broken thing.
        is_silent: True if nothing comes near though half of the nodes are as they were.
    """

    rule: str
    kind: str
    what: str
    reason: str
    named: bool
    is_silent: bool


def breaks(rule: Rule, library: Sequence[Rule], count: int, kinds: Sequence[str], seed: int = 0) -> Iterator[Break]:
    """Up to ``count`` breaks of a rule, of each of the ``kinds`` in turn; the same for the same ``seed``."""
    made = seeds(rule, library)
    found = 0
    for number in range(count * _DRAWS if made else 0):
        rng = random.Random(f"{seed}/{rule.name}/{number}")
        kind = kinds[(number + len(rule.name)) % len(kinds)]
        one = _break(made[rng.randrange(len(made))], rule, kind, rng)
        if one is not None:
            yield one
            found += 1
            if found == count:
                return


def _break(seed: Seed, rule: Rule, kind: str, rng: random.Random) -> Break | None:
    """None where there is nothing of the kind to break, or the rule applies all the same."""
    place = rng.choice(seed.places)
    draft = Draft(with_facts(seed.model))
    inside = draft.nodes(place.nodes)
    before, asked = _seen(draft), _of_pattern(draft, rule, place.value)
    breaker, words = KINDS[kind]
    what = breaker(draft, inside, rng)
    if what is None:
        return None
    after = _seen(draft)
    names, marks = _told(before, after, what)
    live = {n.name for n in draft.graph if _is_live(n)}
    kept = sum(after.get(name) == before[name] for name in asked if name in before and name in live)
    model = draft.done()
    try:
        if seed.trial.fires(model, frozenset({place.value})):
            return None
        explainer = Explainer(model, [rule, *seed.trial.lowering], seed.trial.target, check=False)
        told = explainer.explain(rule)
        if place.value in told.applied:
            return None
        groups = told.groups
        is_silent = not groups and 2 * kept >= len(asked) > 0
        groups = groups or explainer.explain(rule, place.value).groups
    except OnnxRewriteError:
        return None
    reason = "; ".join(near.reason for near in groups[0].places) if groups else ""
    pattern = "|".join(filter(None, [words, *map(re.escape, sorted(marks))]))
    named = any(f"`{name}`" in reason for name in names)
    named = named or bool(pattern and re.search(rf"(?<![\w.])({pattern})(?![\w.]|$)", f"{reason} "))
    return Break(rule.name, kind, what, reason, named and not is_silent, is_silent)


def _of_pattern(draft: Draft, rule: Rule, value: str) -> set[str]:
    """The names of the nodes that the pattern itself is about: a rewrite may look at more.

    None where it names no operator but asks something of any node: half of that is no part of a graph.
    """
    if all(isinstance(term, AnyNode) and term.op_types is None for term in rule.outputs):
        return set()
    facts = Facts(draft.graph, dict(draft.model.opset_imports))
    match = next(matches(rule, facts, draft.graph, draft.value(value)), None)
    return {node.name or "" for node in match.nodes} if match is not None else set()


def _is_live(node: ir.Node) -> bool:
    """True if a graph output depends on a node, but not by way of a Cast to the same dtype, which does nothing."""
    if node.op_type == "Cast" and _dtype_of(node.inputs[0]) == _dtype_of(node.outputs[0]):
        return False
    return any(o.is_graph_output() or any(map(_is_live, o.consumers())) for o in node.outputs)


def _dtype_of(value: ir.Value | None) -> int | None:
    """The dtype of a value; that of a Cast is the one it says, for it may have been changed."""
    node = value.producer() if value is not None else None
    if node is not None and node.op_type == "Cast":
        return node.attributes.get_int("to", 0)
    return value.dtype if value is not None else None


# -- what names the broken thing -------------------------------------------------------------------------------------

Node = tuple[str, tuple[str, ...], tuple[tuple[str, str], ...], tuple[str, ...]]


def _seen(draft: Draft) -> dict[str, Node]:
    """Node to what it is: operator, operands, attributes, results."""
    return {n.name or "": _node(draft, n) for n in draft.graph}


def _node(draft: Draft, node: ir.Node) -> Node:
    operands = tuple(_operand(draft, v) for v in node.inputs)
    attributes = tuple(sorted((a.name, str(a.value)) for a in node.attributes.values() if a.name != "value"))
    return node.op_type, operands, attributes, tuple(o.name or "" for o in node.outputs)


def _operand(draft: Draft, value: ir.Value | None) -> str:
    array = draft.array(value)
    return " ".join(_number(e) for e in array.ravel()[:64]) if array is not None else f"`{getattr(value, 'name', '')}`"


def _number(element: Any) -> str:
    return f"{element:.6g}" if np.issubdtype(type(element), np.floating) else str(element).lower()


def _told(before: dict[str, Node], after: dict[str, Node], what: str) -> tuple[set[str], set[str]]:
    """Names, and operators, attributes and numbers, one of which a reason has to mention."""
    names, marks = set(re.findall(r"`([^`]+)`", what)), set[str]()
    for name, node in after.items():
        old = before.get(name)
        if old is None or old == node:
            continue
        names |= {name, *node[3]}
        marks |= {node[0]} if node[0] != old[0] else set()
        marks |= {a for a, _ in set(node[2]) ^ set(old[2])}
        for now, then in zip(node[1], (*old[1], *[""] * len(node[1])), strict=False):
            if now != then:
                names |= set(re.findall(r"`([^`]+)`", now))
                marks |= set(now.split()) - set(then.split()) if not now.startswith("`") else set()
    return names - {""}, marks - {""}


# -- all of them -----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--rules", nargs="+", metavar="NAME", help="default: all built-in rules")
    options.add_argument("--count", type=int, default=COUNT, help=f"breaks of each rule (default: {COUNT})")
    options.add_argument("--own", action="store_true", help="only the mistakes that verify makes")
    options.add_argument("--independent", action="store_true", help="only those that it does not make")
    options.add_argument("--show", action="store_true", help="the breaks that are not named")
    given = options.parse_args(argv)
    library = list(registry.load(plugins=False))
    rules = [r for r in library if given.rules is None or r.name in given.rules]
    count = min(given.count, 2) if given.quick else given.count
    out = report.Report("why_not")
    found = list[Break]()
    for title, kinds, least, wanted in (
        ("own", OWN, 95, not given.independent),
        ("independent", independent.KINDS, 90, not given.own),
    ):
        drawn = [b for r in rules for b in breaks(r, library, count, list(kinds))] if wanted else []
        found += drawn
        if wanted:
            rows = [_row(kind, [b for b in drawn if b.kind == kind]) for kind in kinds]
            out.table(f"Is what was broken named?  Breaks: {title}", rows, "silent: nothing came near")
            share = 100 * sum(b.named for b in drawn) / max(len(drawn), 1)
            out.goal(f"first reasons that name what was broken, {title}", share, least, unit="%", least=True)
    missed = [b for b in found if not b.named or b.is_silent]
    for each in missed if given.show else ():
        print(f"{each.rule}: {each.kind}: {each.what}\n    {'(silent) ' * each.is_silent}{each.reason or '-'}")
    if given.show:
        print(Counter(b.rule for b in missed).most_common(12))
    out.goal("nothing near where half is there", sum(b.is_silent for b in found), 0)
    if given.rules is None and not given.quick:
        out.goal("breaks", len(found), 500, least=True)
    return out.finish(given.json)


def _row(kind: str, drawn: Sequence[Break]) -> report.Row:
    named, silent = sum(b.named for b in drawn), sum(b.is_silent for b in drawn)
    return {"broken": kind, "breaks": len(drawn), "named": named, "silent": silent}


if __name__ == "__main__":
    sys.exit(main())
