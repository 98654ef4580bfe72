"""Candidates on trial: each is written as a rule, looked up among those that there are, tried, proved and timed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.authoring.staged_model import matched
from onnxrewrite.authoring.template import rule_in
from onnxrewrite.errors import NOT_RUN, RuleError, UsageError, reason
from onnxrewrite.ir.graph import extract
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.target import Target
from onnxrewrite.proof import require_prover
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.ruletest.fuzz.verdict import PROVED
from onnxrewrite.runtime.session import as_proto
from onnxrewrite.suite.discovery.finding import (
    FOUND,
    KNOWN,
    NOT_TRIED,
    NOT_WRITTEN,
    REFUTED,
    TOO_SLOW,
    Finding,
    Journal,
    Measured,
    Searched,
    Status,
)
from onnxrewrite.suite.discovery.joining import Hit
from onnxrewrite.suite.discovery.region_cost import Cost, cost_of
from onnxrewrite.suite.discovery.region_spelling import spelling
from onnxrewrite.suite.discovery.rule_timing import times
from onnxrewrite.suite.discovery.rule_trial import RuleTrial, Tried, is_untried
from onnxrewrite.suite.discovery.rule_writing import RuleWriter, named, rule_name
from onnxrewrite.suite.discovery.search_request import Part, Request
from onnxrewrite.suite.discovery.substitute import Substitute, model_of

DIED = "ONNX Runtime ended the process that tried it"
DIED_AGAIN = f"{DIED}, with more preconditions, too"


@dataclass(frozen=True)
class Candidate:
    """A region and its substitute, where they were found.

    Attributes:
        hit: The region and its substitute.
        driver: Of the model that the region is in, as the rule is to find it.
        stage: The stage in which the rule is to run.
        model: The model.
        found: How it was found, if not in a model.
    """

    hit: Hit
    driver: Driver
    stage: Stage
    model: str
    found: str = ""


def outcome(
    request: Request, folder: Path, part: Part, search: Callable[[Journal], Searched]
) -> tuple[Searched, list[Finding]]:
    """Search a part, or go on where an earlier search stopped.

    Args:
        request: What is asked for.
        folder: Of the journals.
        part: The part.
        search: Searches it.
    """
    try:
        journal = request.journal(folder, part)
        if journal.searched is not None:
            return journal.searched, list(journal.findings.values())
        found = search(journal)
    except (*NOT_RUN, RuleError) as error:
        return Searched(part.name, error=reason(error), by=part.by), []
    if found.is_complete:
        journal.add(found)
    return found, list(journal.findings.values())


@dataclass
class Trials:
    """The candidates of one part of a search on trial.

    Attributes:
        request: What is asked for.
        part: The part.
        journal: Takes each finding.
        seconds: The time that all of them took.
        taken: The nodes of the places of rules that passed, and what these make of them.
        learnt: The rules that passed, but those of the lower stage.
    """

    request: Request
    part: Part
    journal: Journal
    seconds: float = 0.0
    taken: dict[frozenset[ir.Node], tuple[str, ...]] = field(default_factory=dict)
    learnt: list[Rule] = field(default_factory=list)
    _at: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.library = self.request.library
        self.target: Target = self.request.runs_on
        self._fatal = frozenset(self.journal.fatal)

    def begin(self, at: str) -> bool:
        """Note that a region is looked at; False where a process died of it, or the time is over."""
        if at in self._fatal or self.request.is_over:
            return False
        self.journal.at(at)
        self._at = at
        return True

    def end(self) -> None:
        """Note that it is done."""
        self.journal.at(self._at)

    def died(self, regions: Sequence[str]) -> int:
        """The number of regions of which a process died."""
        return len(self._fatal.intersection(regions))

    def take(self, candidate: Candidate) -> Finding | None:
        """Make a finding of a candidate; None where it is one of what was found before, or follows from it."""
        hit, finding = candidate.hit, None
        nodes = frozenset(hit.region.region.nodes)
        if self.request.is_over or self.taken.get(nodes) == hit.operators:
            return None
        start = time.perf_counter()
        for finding in self._findings(candidate):
            self.journal.add(replace(finding, seconds=time.perf_counter() - start))
        self.seconds += time.perf_counter() - start
        return finding

    def _findings(self, candidate: Candidate) -> Iterator[Finding]:
        """The finding, if there is no such one yet."""
        hit, model = candidate.hit, candidate.model
        operators = tuple(n.op_type for n in hit.region.region.nodes)
        made = hit.operators
        anchor = [hit.region.region.outputs[0].name or ""]
        bare = Finding("", rule_name(hit), NOT_WRITTEN, model, operators, made, {model: anchor}, by=self.part.by)
        try:
            writer = RuleWriter(candidate.driver, hit, candidate.stage, Path(model).name, candidate.found)
        except (UsageError, RuleError) as error:
            yield replace(bare, key=_digest(f"{operators} {made} {anchor}"), reason=reason(error))
            return
        text, rule = writer.finished()
        key = _digest(text.partition("from __future__")[2])
        bare = replace(bare, key=key, places={model: list(writer.source.places)})
        earlier = self.journal.findings.get(key)
        if earlier is not None and earlier.reason != DIED:
            if earlier.is_right:
                self._note(candidate, rule_in(earlier.text, writer.source))
            return
        if candidate.stage is not Stage.LOWER and self._applies_to_its_result(rule, hit):
            yield replace(bare, reason="no pattern tells both spellings apart")
            return
        by = self._rules_for(candidate)
        if by:
            yield from self._known(bare, by)
            return
        is_cautious = earlier is not None
        told = DIED_AGAIN if is_cautious else DIED  # which is so as long as nothing else is noted
        yield replace(bare, status=NOT_TRIED, reason=told)
        self.journal.at(self._at)  # it is not the region's fault
        yield self._tried(bare, candidate, writer, is_cautious=is_cautious)
        self.journal.at(self._at)

    def _known(self, bare: Finding, by: Sequence[str]) -> Iterator[Finding]:
        """The finding that is known by some rules; none where it follows from what was found just now."""
        if not {r.name for r in self.learnt}.intersection(by):
            yield replace(bare, status=KNOWN, reason=", ".join(by))

    def _tried(self, bare: Finding, candidate: Candidate, writer: RuleWriter, *, is_cautious: bool) -> Finding:
        """The finding of a rule that is tried and timed, and, if it is faster, tried on many more graphs and proved."""
        asked = self.request
        trial = RuleTrial(writer, self.library, is_cautious)
        tried = trial.run(asked.count, asked.seed)
        finding = _judged(bare, tried)
        if not tried.verdict.passed:
            return finding
        measured = times(tried.rule, candidate.driver.model, self.library, self.target, seed=asked.seed)
        taken = tuple(Measured(dict(t.sizes), t.ratio.median, t.ratio.low, t.ratio.high, t.seconds) for t in measured)
        status: Status = FOUND if any(t.is_faster for t in measured) else TOO_SLOW
        finding = replace(finding, status=status, times=taken, reason="" if taken else "it could not be timed")
        if status == FOUND and asked.deepens > 1:
            tried = trial.run(asked.deepens * asked.count, asked.seed + 1)  # it has seen those of its seed
            finding = _judged(finding, tried)
        if finding.is_right and asked.proves:
            finding = self._proved(finding, tried)
        if not finding.is_right:
            return finding
        self._note(candidate, tried.rule)
        return replace(finding, text=with_effect(finding))

    def _note(self, candidate: Candidate, rule: Rule) -> None:
        """Remember a rule that passed, and where it applies, so that what it takes is not found again."""
        made = candidate.hit.operators
        for match in matched(rule, candidate.driver).values():
            self.taken[frozenset(match.nodes)] = made
        self.taken[frozenset(candidate.hit.region.region.nodes)] = made
        if candidate.stage is not Stage.LOWER:
            self.learnt.append(rule)

    def _proved(self, finding: Finding, found: Tried) -> Finding:
        """The finding with a proof, or with the reason why there is none."""
        from onnxrewrite.ruletest.proving import prove_rule

        require_prover()
        proof = prove_rule(found.rule, self.library, seed=self.request.seed)
        if proof.refutation is not None:
            return replace(finding, status=REFUTED, reason=proof.refutation[1].reason)
        if not proof.is_proved:
            return replace(finding, proof=f"none: {proof.reason}")
        return replace(finding, verdict=PROVED, proof=f"{proof.strength}, of {proof.extent}")

    def _applies_to_its_result(self, rule: Rule, hit: Hit) -> bool:
        """True if a rule would go on for ever: it matches what it makes."""
        model = io.load(model_of(hit.substitute, hit.region.operands, hit.region.opset))
        return any(match.nodes for match in matched(rule, Driver(model, [rule], self.target)).values())

    def _rules_for(self, candidate: Candidate) -> tuple[str, ...]:
        """The rules that make the same of a region, or what is as cheap; none where they do not."""
        hit = candidate.hit
        if candidate.stage is not Stage.LOWER:
            own = spelling(hit.region.region, hit.region.facts)
            sides = (own.graph, hit.substitute) if own is not None else ()
            both = [model_of(each, hit.region.operands, hit.region.opset) for each in sides]
            return self.as_cheap(*both) if both else ()
        fed = [o.value for o in hit.region.operands if o.is_required]
        imports = hit.region.facts.opset_imports
        part = extract(hit.region.region.nodes, fed, hit.region.region.outputs, imports, modernize=False)
        return known_by(part, self.library, self.target, {(n.domain, n.op_type) for n in hit.substitute.work})

    def note_known(self, dear: Substitute, cheap: Substitute, by: Sequence[str]) -> None:
        """Note that rules make of one graph what is as cheap as another."""
        operators, made, name = dear.operators, cheap.operators, self.part.name
        key, called = (
            _digest(repr((dear, cheap))),
            named([n.op_type for n in cheap.nodes], [n.op_type for n in dear.nodes]),
        )
        bare = Finding(key, called, KNOWN, name, operators, made, {}, by=self.part.by)
        for finding in self._known(bare, by):
            if finding.key not in self.journal.findings:
                self.journal.add(finding)

    def as_cheap(self, dear: onnx.ModelProto, cheap: onnx.ModelProto) -> tuple[str, ...]:
        """The rules by which a model becomes as cheap as another one does; none where it stays dearer."""
        rules = (*self.library, *self.learnt)
        (before, by), (after, further) = (_rewritten(io.load(each), rules, self.target) for each in (dear, cheap))
        return tuple(dict.fromkeys((*by, *further))) if before <= after else ()


def known_by(part: ir.Model, library: Sequence[Rule], runs_on: Target, wanted: set[tuple[str, str]]) -> tuple[str, ...]:
    """The rules that make nodes of all these operators of a part of a model, or, of no operators, nothing but views;
    none where they do not."""
    driver = Driver(part, library, runs_on)
    before = {(n.domain, n.op_type) for n in part.graph}
    driver.run(Stage.LOWER)
    left = {(n.domain, n.op_type) for n in driver.model.graph}
    applied = dict.fromkeys(a.rule for a in driver.trace.applied if a.stage != "canonicalize")
    return tuple(applied) if (wanted <= left - before if wanted else left <= _VIEWS) else ()


_VIEWS = frozenset(("", each) for each in (*operators("view"), "Identity"))
"""Operators that move nothing."""


def _rewritten(model: ir.Model, rules: Sequence[Rule], runs_on: Target) -> tuple[Cost, list[str]]:
    """The cost of a model after all stages, and the rules that made it so."""
    driver = Driver(model, rules, runs_on)
    driver.run(Stage.LOWER)
    return cost_of(as_proto(driver.model)), [a.rule for a in driver.trace.applied]


def _judged(finding: Finding, tried: Tried) -> Finding:
    """A finding with the verdict on its rule."""
    verdict = tried.verdict
    finding = replace(
        finding,
        verdict=verdict.status,
        instances=verdict.instances,
        guards=tuple(g.condition for g in tried.guards),
        text=tried.text,
    )
    if verdict.passed:
        return finding
    told = verdict.reason or next(iter(verdict.refusals or verdict.not_run), "")
    return replace(finding, status=NOT_TRIED if is_untried(verdict) else REFUTED, reason=told)


def with_effect(finding: Finding) -> str:
    """The text of a rule, with what it gains in its docstring."""
    if not finding.times:
        return finding.text
    ratios = [t.median for t in finding.times]
    sizes = f"at {len(ratios)} choice{'s' * (len(ratios) > 1)} of sizes"
    span = f"{min(ratios):.2f} to {max(ratios):.2f}"
    effect = f"Effect: {span} of the time, {sizes}, on one thread of the machine that found it."
    return finding.text.replace('"""\n\nfrom __future__', f'{effect}\n"""\n\nfrom __future__', 1)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
