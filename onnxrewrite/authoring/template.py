"""A region as the text of a rule, which is tried on the model before anybody gets to see it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, ModuleType

import onnx_ir as ir

from onnxrewrite.authoring import naming, write
from onnxrewrite.authoring.example import Cut, cut
from onnxrewrite.authoring.formula import literal
from onnxrewrite.authoring.generalize import NOTHING, Draft, Slot, Wanted, generalize
from onnxrewrite.authoring.occurrences import Found, Place, places
from onnxrewrite.authoring.region import Region
from onnxrewrite.authoring.staged_model import matched
from onnxrewrite.errors import UsageError
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.value_numbering import same_tensor
from onnxrewrite.pattern.finder import Matcher
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.terms import Term
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.index import index
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.system.plain import Json

_FEW = 3
"""So many values are named where all would be too many."""


@dataclass(frozen=True)
class Capture:
    """One capture of the pattern.

    Attributes:
        name: Its name.
        kind: ``Var``, ``Const``, ``Scalar`` or ``Attr``.
        what: Its binding where the region was cut out, as text.
        differs: True if it is bound to something else at other places.
    """

    name: str
    kind: str
    what: str
    differs: bool

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return {"name": self.name, "kind": self.kind, "what": self.what, "differs": self.differs}


@dataclass(frozen=True)
class Captured:
    """A rule that waits for its rewrite.

    Attributes:
        name: The rule's.
        stage: The stage in which it runs.
        operators: The number of nodes of the region.
        places: The values that it would replace: the region's own first.
        captures: The captures of the pattern.
        notes: Notes for its author.
        rule: The text of the rule file.
    """

    name: str
    stage: Stage
    operators: int
    places: tuple[str, ...]
    captures: tuple[Capture, ...]
    notes: tuple[str, ...]
    rule: str = field(repr=False)
    source: write.Source = field(repr=False)

    def test(self, rule_file: str, model: str) -> str:
        """The text of the test beside the rule file.

        Args:
            rule_file: The rule file's name.
            model: The model's path as the test's folder sees it.
        """
        return write.test_file(self.source, rule_file, model)

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return {
            "name": self.name,
            "stage": self.stage.name.lower(),
            "operators": self.operators,
            "places": list(self.places),
            "captures": [c.to_json() for c in self.captures],
            "notes": list(self.notes),
            "rule": self.rule,
        }


class Writing:
    """Writes one rule and makes sure that it matches.

    Args:
        driver: Of the model, as the rule finds it.
        region: The nodes that it is to match.
        source: The facts about the rule, without its places and examples.
        given: Names for what is captured.
        wanted: What is captured in any case.
    """

    def __init__(
        self,
        driver: Driver,
        region: Region,
        source: write.Source,
        given: Mapping[ir.Value, str] = MappingProxyType({}),
        wanted: Wanted = NOTHING,
    ):
        self.driver = driver
        self.region = region
        self.facts = driver.facts(region.graph)
        graphs = [(g, driver.facts(g)) for g in scopes(driver.model)]
        self.found = places(region, graphs)
        first, *others = self.found.places
        self.found.places = [first, *(p for p in others if wanted.may_hold_at(p, first, self.facts))]
        self.draft = generalize(region, self.found.places, driver.facts, wanted)
        self.names = naming.of_slots(self.draft, self.facts, naming.Names(_own_names(source.name)), given)
        self.source = source

    def pattern(self) -> tuple[Term, ...]:
        """The pattern alone."""
        return self.written(replace(self.source, places=_anchors(self.found.places)))[1].outputs

    def captured(self, rivals: Sequence[Rule]) -> Captured:
        """The rule as text, and what is to be said about it, given the other rules of its stage."""
        source, rule = self.written(replace(self.source, places=_anchors(self.found.places)))
        cuts = self.cuts(rule)
        notes = (*_notes(self.region, self.found, self.draft), *self._beaten_by(rivals))
        if not cuts:
            notes = (*notes, "No example could be made: what is in the way is not told by shapes and constants.")
        source = replace(source, notes=notes, cuts=cuts)
        captures = tuple(_capture(s, n) for s, n in self.names.items())
        text = self.text(source)
        operators = len(self.region.nodes)
        return Captured(source.name, source.stage, operators, source.places, captures, notes, text, source)

    def written(self, source: write.Source) -> tuple[write.Source, Rule]:
        """The first way to write the pattern that matches at all places and takes no part of one besides; with all
        places that it matches, and the rule."""
        tried: list[tuple[write.Source, Rule]] = []
        for spelled, ranked in itertools.product((False, True), repeat=2):
            way = replace(source, spelled=spelled, ranked=ranked)
            rule = self.rule(way)
            matching = matched(rule, self.driver)
            if set(matching) >= set(source.places):
                more = [v for v, m in matching.items() if v not in source.places]
                tried.append((replace(way, places=(*source.places, *more)), rule))
                if not any(self._is_part(matching[v]) for v in more):
                    return tried[-1]
        if not tried:
            told = _listed([v for v in source.places if v not in matching])
            raise UsageError(f"no pattern that was tried matches at {told}; name values nearer to each other")
        return min(tried, key=lambda way: len(way[0].places))

    def rule(self, source: write.Source) -> Rule:
        """The rule that the text defines."""
        return rule_in(self.text(source), source)

    def text(self, source: write.Source) -> str:
        """The text of the rule file."""
        return write.rule_file(self.draft, source, self.names)

    def _beaten_by(self, rivals: Sequence[Rule]) -> Iterable[str]:
        """That other rules take a part of the region, if they do."""
        graph, found = self.region.graph, dict[str, None]()
        those = index(tuple(rivals))
        view = those.view(self.facts, graph)
        matcher = Matcher(view)
        for rule, output in (hit for node in self.region.nodes for hit in those.at(view, node)):
            matches = itertools.islice(matcher.matches(rule.outputs, output), _FEW)
            if rule.name not in found and any(self.driver.transaction(rule, m, graph).passes() for m in matches):
                found[rule.name] = None
        if found:
            yield (
                f"Other rules take a part of it before: {', '.join(found)}.  With --only {self.source.name}, apply "
                "leaves them out."
            )

    def _is_part(self, match: Match) -> bool:
        """True if a match covers a node of one of the places, or none at all, as a product that is 1 does."""
        return not match.nodes or any(not set(p.nodes.values()).isdisjoint(match.nodes) for p in self.found.places)

    def cuts(self, rule: Rule, *, keeps_products: bool = False) -> tuple[Cut, ...]:
        """The region, and one place for each operator that stands there instead of one of its own; as far as the
        pattern is found in what is made of them."""
        shown: dict[object, int] = {}
        for number, place in enumerate(self.found.places):
            odd = place.odd
            shown.setdefault(None if odd is None else (odd, place.nodes[odd].op_type), number)
        cuts = (self._cut(number, rule, keeps_products) for number in shown.values())
        return tuple({c.text: c for c in cuts if c is not None}.values())

    def _cut(self, number: int, rule: Rule, keeps_products: bool) -> Cut | None:
        place = self.found.places[number]
        names: dict[ir.Value, str] = {}
        for slot, name in self.names.items():
            value = slot.values[number]
            if isinstance(value, ir.Value):
                names.setdefault(value, name)
        return cut(place, self.driver.facts(place.graph), names, rule, keeps_products=keeps_products)


def rule_in(text: str, source: write.Source) -> Rule:
    """The rule that a text defines; its function knows the text's names as its globals."""
    module = ModuleType("captured")
    exec(compile(text, source.name, "exec", dont_inherit=True), vars(module))
    rule = vars(module)[source.function]
    assert isinstance(rule, Rule)
    return rule


def _own_names(name: str) -> tuple[str, ...]:
    identifier = write.identifier_of(name)
    return identifier.upper(), f"to_{identifier}"


def _anchors(found: Sequence[Place]) -> tuple[str, ...]:
    return tuple(p.outputs[0].name or "" for p in found)


def _capture(slot: Slot, name: str) -> Capture:
    first = slot.values[0]
    what = f"`{first.name}`" if isinstance(first, ir.Value) else "absent" if first is None else literal(first)
    return Capture(name, slot.kind.value, what, not all(_same(first, v) for v in slot.values))


def _same(a: object, b: object) -> bool:
    """True if a capture is bound to the same at two places: a value, equal constants, or equal attributes."""
    if not isinstance(a, ir.Value) or not isinstance(b, ir.Value):
        return a is b or repr(a) == repr(b)
    mine, theirs = a.const_value, b.const_value
    return a is b or (mine is not None and theirs is not None and same_tensor(mine, theirs))


def _notes(region: Region, found: Found, draft: Draft) -> Iterable[str]:
    if region.further:
        yield f"Also read, and captured: {_listed([v.name or '' for v in region.further])}."
    if draft.allow_shared:
        watched = [v.name or "" for p in found.places for v in p.watched]
        yield f"Shape arithmetic outside asks for the shape of {_listed(watched)}, which stays computed: allow_shared."
    for step in draft.steps:
        if len(step.forms) > 1:
            odd = [p for p in found.places if p.odd is step.node]
            others = ", ".join(f.op_type for f in step.forms[1:])
            yield f"Where {step.node.op_type} `{step.node.name}` stands, there is {others} at {_listed(_anchors(odd))}."
    if found.shared:
        first = found.shared[0]
        count = len(found.shared)
        yield (
            f"At {count} more {'place' if count == 1 else 'places'} an inner value is read elsewhere too, as "
            f"`{first.value.name}` at `{first.place.outputs[0].name}`: not taken."
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{n}`" for n in names[:_FEW])
    return shown + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")
