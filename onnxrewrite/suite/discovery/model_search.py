"""One model searched: its regions, the kernels that compute the same, and what becomes of each as a rule."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import onnx_ir as ir

from onnxrewrite.authoring.staged_model import found_by, matched
from onnxrewrite.errors import NOT_RUN, RuleError, UsageError, reason
from onnxrewrite.ir.graph import extract
from onnxrewrite.ir.target import Target, target
from onnxrewrite.proof import require_prover
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.fingerprint import fingerprint
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.ruletest.fuzz import INSTANCES
from onnxrewrite.ruletest.fuzz.verdict import PROVED
from onnxrewrite.suite.deploy.artifact import digest
from onnxrewrite.suite.discovery.enumeration import NODES, REGIONS, enumerate_regions
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
from onnxrewrite.suite.discovery.joining import Hit, Known, joined
from onnxrewrite.suite.discovery.rule_timing import times
from onnxrewrite.suite.discovery.rule_trial import Tried, is_untried, tried
from onnxrewrite.suite.discovery.rule_writing import RuleWriter, rule_name
from onnxrewrite.suite.discovery.sampled_region import sampled
from onnxrewrite.system.versions import versions

DIED = "ONNX Runtime ended the process that tried it"
DIED_AGAIN = f"{DIED}, with more preconditions, too"


@dataclass(frozen=True)
class Request:
    """The extent of a search.

    Attributes:
        rules: Files or packages with rules beside the library's.
        without: Rules of the library that are left out, by name.
        target: The target that the rules are for.
        nodes: The most nodes of a region.
        regions: The most regions of a model.
        count: The number of graphs on which the fuzzer tries a rule.
        seed: Of all that is random.
        proves: True if proofs of what passes are asked for.
        deadline: When the time runs out, in seconds since 1970; None for never.
    """

    rules: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()
    target: str = "onnxruntime-cpu"
    nodes: int = NODES
    regions: int = REGIONS
    count: int = INSTANCES
    seed: int = 0
    proves: bool = False
    deadline: float | None = None

    @property
    def is_over(self) -> bool:
        """True if the time has run out."""
        return self.deadline is not None and time.time() >= self.deadline

    @cached_property
    def library(self) -> tuple[Rule, ...]:
        """The rules that there are."""
        return tuple(r for r in registry.load(self.rules) if r.name not in self.without)

    def journal(self, folder: Path, model: Path) -> Journal:
        """The journal of a model in a folder: of this request, these rules, and this version.

        Raises:
            ModelError: The model, or the journal, cannot be read.
        """
        asked = (self.rules, sorted(self.without), self.target, self.nodes, self.regions, self.count, self.seed)
        rules = sorted(fingerprint(r).sha256 for r in self.library)
        told = [repr((*asked, self.proves)), *rules, str(versions()), digest(model)]
        return Journal(folder / f"{hashlib.sha256(' '.join(told).encode()).hexdigest()[:32]}.jsonl")


def search(request: Request, folder: Path, model: Path) -> tuple[Searched, list[Finding]]:
    """Search a model, or go on where an earlier search stopped.

    Args:
        request: What is asked for.
        folder: Of the journals.
        model: The model's file.
    """
    try:
        journal = request.journal(folder, model)
        if journal.searched is not None:
            return journal.searched, list(journal.findings.values())
        found = _Search(request, journal, model).searched()
    except (*NOT_RUN, RuleError) as error:
        return Searched(str(model), error=reason(error)), []
    if found.is_complete:
        journal.add(found)
    return found, list(journal.findings.values())


@dataclass
class _Search:
    """The search of one model."""

    request: Request
    journal: Journal
    model: Path
    known: Known = field(default_factory=Known)
    at: str = ""
    taken: dict[frozenset[ir.Node], str] = field(default_factory=dict)
    """The nodes of the places of rules that passed, and what these make of them."""

    def __post_init__(self) -> None:
        self.library = self.request.library
        self.driver = found_by(self.model, Stage.LOWER, self.library, self.request.target)
        self.target: Target = target(self.request.target)

    def searched(self) -> Searched:
        """Go through the regions; how that went."""
        start, spent = time.perf_counter(), 0.0
        found = enumerate_regions(self.driver, nodes=self.request.nodes, most=self.request.regions)
        ran = 0
        fatal = frozenset(self.journal.fatal)
        for kind, region in found.regions.items():
            if self.request.is_over:
                break
            if kind in fatal:
                continue
            self.journal.at(kind)
            self.at = kind
            made = sampled(region, self.driver.facts(region.graph), self.request.seed)
            ran += made is not None
            for hit in joined(made, self.target, self.known) if made is not None else ():
                before = time.perf_counter()
                self._take(hit)
                spent += time.perf_counter() - before
            self.journal.at(kind)
        return Searched(
            str(self.model),
            len(found.regions),
            found.left,
            ran,
            self.known.evaluated,
            len(fatal & found.regions.keys()),
            self.known.cut_short,
            not self.request.is_over,
            seconds=time.perf_counter() - start - spent,
        )

    def _take(self, hit: Hit) -> None:
        """Make a finding of a hit, if it is not one of what was found before."""
        nodes = frozenset(hit.region.region.nodes)
        if self.request.is_over or self.taken.get(nodes) == hit.substitute.called:
            return
        start = time.perf_counter()
        for finding in self._findings(hit):
            self.journal.add(replace(finding, seconds=time.perf_counter() - start))

    def _findings(self, hit: Hit) -> Iterator[Finding]:
        """The finding, if there is no such one yet."""
        model = str(self.model)
        operators = tuple(n.op_type for n in hit.region.region.nodes)
        made = tuple(n.called for n in hit.substitute.nodes)
        anchor = [hit.region.region.outputs[0].name or ""]
        bare = Finding("", rule_name(hit), NOT_WRITTEN, model, operators, made, {model: anchor})
        try:
            writer = RuleWriter(self.driver, hit, Stage.LOWER, self.model.name)
        except (UsageError, RuleError) as error:
            yield replace(bare, key=_digest(f"{operators} {made} {anchor}"), reason=reason(error))
            return
        text = writer.finished()[0]
        key = _digest(text.partition("from __future__")[2])
        bare = replace(bare, key=key, places={model: list(writer.source.places)})
        earlier = self.journal.findings.get(key)
        if earlier is not None and earlier.reason != DIED:
            if earlier.is_right:
                self._note(hit, writer)
            return
        by = self._known_by(hit)
        if by:
            yield replace(bare, status=KNOWN, reason=by)
            return
        is_cautious = earlier is not None
        told = DIED_AGAIN if is_cautious else DIED  # which is so as long as nothing else is noted
        yield replace(bare, status=NOT_TRIED, reason=told)
        self.journal.at(self.at)  # it is not the region's fault
        yield self._tried(bare, writer, is_cautious=is_cautious)
        self.journal.at(self.at)

    def _tried(self, bare: Finding, writer: RuleWriter, *, is_cautious: bool) -> Finding:
        count, seed = self.request.count, self.request.seed
        found = tried(writer, self.library, count=count, seed=seed, is_cautious=is_cautious)
        verdict = found.verdict
        bare = replace(
            bare,
            verdict=verdict.status,
            instances=verdict.instances,
            guards=tuple(g.condition for g in found.guards),
            text=found.text,
        )
        if not verdict.passed:
            told = verdict.reason or next(iter(verdict.refusals or verdict.not_run), "")
            return replace(bare, status=NOT_TRIED if is_untried(verdict) else REFUTED, reason=told)
        bare = self._proved(bare, found) if self.request.proves else bare
        if bare.status == REFUTED:
            return bare
        self._note(writer.hit, writer, found.rule)
        measured = times(found.rule, self.driver.model, self.library, self.target, seed=self.request.seed)
        taken = tuple(Measured(dict(t.sizes), t.ratio.median, t.ratio.low, t.ratio.high, t.seconds) for t in measured)
        status: Status = FOUND if any(t.is_faster for t in measured) else TOO_SLOW
        timed = replace(bare, status=status, times=taken, reason="" if taken else "it could not be timed")
        return replace(timed, text=with_effect(timed))

    def _note(self, hit: Hit, writer: RuleWriter, rule: Rule | None = None) -> None:
        """Remember where a rule that passed applies, so that what it takes is not found again."""
        rule = rule or writer.finished()[1]
        for match in matched(rule, self.driver).values():
            self.taken[frozenset(match.nodes)] = hit.substitute.called
        self.taken[frozenset(hit.region.region.nodes)] = hit.substitute.called

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

    def _known_by(self, hit: Hit) -> str:
        """The rules of the library that make the same of a region; empty where there are none."""
        region = hit.region.region
        fed = [o.value for o in hit.region.operands if o.is_required]
        part = extract(region.nodes, fed, region.outputs, hit.region.facts.opset_imports)
        return known_by(part, self.library, self.target, {(n.domain, n.op_type) for n in hit.substitute.nodes})


def known_by(part: ir.Model, library: Sequence[Rule], runs_on: Target, wanted: set[tuple[str, str]]) -> str:
    """The rules that make nodes of all these operators of a part of a model; empty where they do not."""
    driver = Driver(part, library, runs_on)
    before = {(n.domain, n.op_type) for n in part.graph}
    driver.run(Stage.LOWER)
    made = {(n.domain, n.op_type) for n in driver.model.graph} - before
    applied = dict.fromkeys(a.rule for a in driver.trace.applied if a.stage != "canonicalize")
    return ", ".join(applied) if wanted <= made else ""


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
