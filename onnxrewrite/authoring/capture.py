"""``capture``: a region of a model becomes the file of a rule that matches it wherever it recurs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx_ir as ir

from onnxrewrite.authoring import names as naming
from onnxrewrite.authoring import write
from onnxrewrite.authoring.example import Cut, cut
from onnxrewrite.authoring.formula import literal
from onnxrewrite.authoring.generalize import Draft, Slot, generalize
from onnxrewrite.authoring.places import Found, Place, places
from onnxrewrite.authoring.region import Region, between, candidates, ending_at, named, starting_at, with_all
from onnxrewrite.authoring.stage import found_by, matched
from onnxrewrite.errors import UsageError
from onnxrewrite.ir import io
from onnxrewrite.ir.convert import in_opset
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.twins import same_tensor
from onnxrewrite.pattern.finder import Matcher
from onnxrewrite.pattern.match import Match
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.index import index
from onnxrewrite.rewrite.rule import NAME, Rule, Stage

_FEW = 3
"""So many values are named where all would be too many."""

DEFAULT_NAME = "my-fusion"


@dataclass(frozen=True)
class Capture:
    """One capture of the pattern.

    Attributes:
        name: What it is called.
        kind: ``Var``, ``Const``, ``Scalar`` or ``Attr``.
        what: What it is bound to where the region was cut out.
        differs: Whether it is bound to something else at other places.
    """

    name: str
    kind: str
    what: str
    differs: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"name": self.name, "kind": self.kind, "what": self.what, "differs": self.differs}


@dataclass(frozen=True)
class Captured:
    """A rule that waits for its rewrite.

    Attributes:
        name: The rule's.
        stage: When it runs.
        operators: How many nodes the region has.
        places: The values that it would replace: the region's own first.
        captures: What the pattern captures.
        notes: What its author should know.
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

    def to_json(self) -> dict[str, Any]:
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


def capture(
    model: io.Source,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    name: str = DEFAULT_NAME,
    stage: Stage = Stage.RAISE,
    rules: Iterable[str] = (),
    target: str = "onnxruntime-cpu",
    opset: int | None = None,
    label: str | None = None,
) -> Captured:
    """Cut out what lies between named values, and write the rule that matches it wherever it recurs.

    The model is looked at as the rule will find it: after the stages before its own.

    Args:
        model: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is not changed.
        inputs: Values, or nodes, at which the region begins; what else it reads is captured as well.
        outputs: Values, or nodes, at which it ends; the first is the rule's anchor.
        name: The rule's, lower case with hyphens.
        stage: When it is to run.
        rules: Files or packages with rules beside the library's.
        target: What the result must run on.
        opset: Convert the model to this ai.onnx opset first.
        label: What to call the model in the file; its file name without it.

    Returns:
        The rule, which refuses every match until somebody fills in what it makes of it.

    Raises:
        UsageError: There are no such values, or what lies between them cannot be one pattern.
        ModelError, RuleError: Bad model or rules.
    """
    library = registry.load(rules)
    _check_name(name, library)
    if not inputs or not outputs:
        raise UsageError("give at least one value at which the region begins, and one at which it ends")
    loaded = in_opset(io.load(model), opset)
    driver = found_by(loaded, stage, library, target)
    region = _region(driver, loaded, inputs, outputs, stage)
    called = label or (Path(model).name if isinstance(model, str | Path) else "a model")
    writing = _Writing(driver, region, name, stage, tuple(inputs), tuple(outputs), called)
    return writing.captured([rule for rule in library if rule.stage is stage])


def _check_name(name: str, library: registry.Registry) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(f"--name {name}: a rule's name is lower case, with hyphens, as in {DEFAULT_NAME}")
    if name in library.rules or name in library.sets:
        raise UsageError(f"--name {name}: a rule, or a rule set, is called so already; choose another name")


def _region(driver: Driver, original: ir.Model, inputs: Sequence[str], outputs: Sequence[str], stage: Stage) -> Region:
    among = with_all(driver.model, [*inputs, *outputs])
    ends = [v for name in outputs for v in ending_at(_named(driver, original, name, "--to", stage, among))]
    if not ends:
        raise UsageError(f"--to {outputs[0]}: nobody reads what it computes")
    graphs = [v.graph for v in ends]
    apart = next((v for v, g in zip(ends, graphs, strict=True) if g is not graphs[0]), None)
    if apart is not None:
        raise UsageError(f"--to {apart.name}: is in another graph than `{ends[0].name}`")
    graph = graphs[0]
    assert isinstance(graph, ir.Graph)
    facts = driver.facts(graph)
    begin = [_named(driver, original, name, "--from", stage, among) for name in inputs]
    return between(graph, facts, [v for each in begin for v in starting_at(each, graph, facts)], ends)


def _named(
    driver: Driver, original: ir.Model, name: str, option: str, stage: Stage, among: Sequence[ir.Graph]
) -> ir.Value | ir.Node:
    """What is called so by now; where it is gone, the error says which rule took it, and what is there instead."""
    try:
        return named(driver.model, name, option, among)
    except UsageError:
        if candidates(driver.model, name):
            raise
        gone = named(original, name, option)  # which says so if it never was there
        nodes = [gone] if isinstance(gone, ir.Node) else [p for p in [gone.producer()] if p is not None]
        applied = [a.rule for a in driver.trace.applied if any(n.name in a.before for n in nodes) or a.value == name]
        told = f" ({applied[-1]} took it)" if applied else ""
        there = {o.name for g in scopes(driver.model) for n in g for o in n.outputs}
        there.update(v.name for g in scopes(driver.model) for v in g.inputs)
        before = _nearest([v for n in nodes for v in _above(n)], there, lambda v: _above(v.producer()))
        behind = _nearest(
            [v for n in nodes for v in _below(n)], there, lambda v: [o for c in v.consumers() for o in _below(c)]
        )
        hints = [f"`{v}` {where} it" for v, where in ((before, "before"), (behind, "behind")) if v is not None]
        raise UsageError(
            f"{option} {name}: is not there any more when rules of the {stage.name.lower()} stage run{told}; "
            f"name {' or '.join(hints) or 'another'}, or take the model as it is with --stage canonicalize"
        ) from None


def _above(node: ir.Node | None) -> list[ir.Value]:
    return [v for v in node.inputs if v is not None] if node is not None else []


def _below(node: ir.Node) -> list[ir.Value]:
    return list(node.outputs)


def _nearest(
    start: Sequence[ir.Value], there: Container[str | None], onward: Callable[[ir.Value], Iterable[ir.Value]]
) -> str | None:
    """The name of the nearest value, step by step, that is still there."""
    layer, seen = dict.fromkeys(start), set(start)
    while layer:
        found = next((v.name for v in layer if v.name in there and v.const_value is None), None)
        if found is not None:
            return found
        layer = dict.fromkeys(w for v in layer for w in onward(v) if w not in seen)
        seen.update(layer)
    return None


class _Writing:
    """Writes one rule and makes sure that it matches."""

    def __init__(
        self,
        driver: Driver,
        region: Region,
        name: str,
        stage: Stage,
        starts: tuple[str, ...],
        ends: tuple[str, ...],
        model: str,
    ):
        self.driver = driver
        self.region = region
        self.facts = driver.facts(region.graph)
        graphs = [(g, driver.facts(g)) for g in scopes(driver.model)]
        self.found = places(region, graphs)
        self.draft = generalize(region, self.found.places, driver.facts)
        self.names = naming.of_slots(self.draft, self.facts, naming.Names(_own_names(name)))
        self.source = write.Source(name, model, starts, ends, (), stage)

    def captured(self, rivals: Sequence[Rule]) -> Captured:
        """The rule as text, and what is to be said about it, given the other rules of its stage."""
        notes = (*_notes(self.region, self.found, self.draft, self.names), *self._beaten_by(rivals))
        source = replace(self.source, notes=notes, cuts=self._cuts(), places=_anchors(self.found.places))
        source = self._written(source)
        captures = tuple(_capture(s, n) for s, n in self.names.items())
        text = write.rule_file(self.draft, source, self.names)
        operators = len(self.region.nodes)
        return Captured(source.name, source.stage, operators, source.places, captures, notes, text, source)

    def _written(self, source: write.Source) -> write.Source:
        """In the first way to write the pattern that matches at all places and not at half of one; with what it
        matches besides."""
        tried: list[write.Source] = []
        for spelled, ranked in itertools.product((False, True), repeat=2):
            way = replace(source, spelled=spelled, ranked=ranked)
            matching = self._matching(way)
            if set(matching) >= set(source.places):
                more = [v for v, m in matching.items() if v not in source.places]
                tried.append(replace(way, places=(*source.places, *more)))
                if not any(self._is_part(matching[v]) for v in more):
                    return tried[-1]
        if not tried:
            told = _listed([v for v in source.places if v not in matching])
            raise UsageError(f"no pattern that was tried matches at {told}; name values nearer to each other")
        return min(tried, key=lambda way: len(way.places))

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
        """Whether a match takes something of a place."""
        return any(not set(p.nodes.values()).isdisjoint(match.nodes) for p in self.found.places)

    def _matching(self, source: write.Source) -> dict[str, Match]:
        """Where the rule matches, asked of the rule that the text defines."""
        text = write.rule_file(self.draft, source, self.names)
        module = ModuleType("captured")
        exec(compile(text, source.name, "exec", dont_inherit=True), vars(module))
        rule = vars(module)[source.constant]
        assert isinstance(rule, Rule)
        return matched(rule, self.driver)

    def _cuts(self) -> tuple[Cut, ...]:
        """The region, and one place for each operator that stands there instead of one of its own."""
        shown: dict[Any, int] = {}
        for number, place in enumerate(self.found.places):
            odd = place.odd
            shown.setdefault(None if odd is None else (odd, place.nodes[odd].op_type), number)
        return tuple(self._cut(number) for number in shown.values())

    def _cut(self, number: int) -> Cut:
        place = self.found.places[number]
        names: dict[ir.Value, str] = {}
        for slot, name in self.names.items():
            value = slot.values[number]
            if isinstance(value, ir.Value):
                names.setdefault(value, name)
        return cut(place, self.driver.facts(place.graph), names)


def _own_names(name: str) -> tuple[str, ...]:
    identifier = write.identifier_of(name)
    return identifier.upper(), f"to_{identifier}"


def _anchors(found: Sequence[Place]) -> tuple[str, ...]:
    return tuple(p.outputs[0].name or "" for p in found)


def _capture(slot: Slot, name: str) -> Capture:
    first = slot.values[0]
    what = f"`{first.name}`" if isinstance(first, ir.Value) else "absent" if first is None else literal(first)
    return Capture(name, slot.kind.value, what, not all(_same(first, v) for v in slot.values))


def _same(a: Any, b: Any) -> bool:
    """Whether a capture is bound to the same at two places: a value, equal constants, or equal attributes."""
    if not isinstance(a, ir.Value) or not isinstance(b, ir.Value):
        return a is b or repr(a) == repr(b)
    mine, theirs = a.const_value, b.const_value
    return a is b or (mine is not None and theirs is not None and same_tensor(mine, theirs))


def _notes(region: Region, found: Found, draft: Draft, names: Mapping[Slot, str]) -> Iterable[str]:
    if region.further:
        yield f"Also read, and captured: {_listed([v.name or '' for v in region.further])}."
    if draft.keeps_shared:
        watched = [v.name or "" for p in found.places for v in p.watched]
        yield f"Shape arithmetic outside asks for the shape of {_listed(watched)}, which stays computed: keeps_shared."
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
