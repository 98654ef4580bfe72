"""Checking each rewrite before it is applied: the site cut out, its replacement lowered, both run side by side."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnxrewrite.checks.assumed import classes
from onnxrewrite.checks.likeness import structure, written_for
from onnxrewrite.checks.passed import Passed
from onnxrewrite.checks.site import SiteCheck, Trials, check_site
from onnxrewrite.checks.site_inputs import note_elements
from onnxrewrite.checks.site_proof import SiteProver
from onnxrewrite.checks.site_record import ProofRecord
from onnxrewrite.inputs.classes import CLASSES, HUGE, SPECIAL
from onnxrewrite.ir.dims import MAX_RANK
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import extract, outer_values, subgraphs, topological
from onnxrewrite.pattern.look import passed
from onnxrewrite.rewrite.rule import Assumption
from onnxrewrite.rewrite.trace import Site

_MOST_SOURCES = 16
"""So many nodes from elsewhere are computed beside the replacement."""

_MOST_LOST = 30.0
"""Seconds for checks that come to nothing, all together."""

_UNCHECKED_NODES = 400
"""Sites of more nodes than this would be a model of their own."""


UNCHECKED = "it cannot be run by itself"
"""The beginning of a reason where nothing was found wrong, but nothing right either, and the rule needs a check."""


UNPROVED = "it is not proved"
"""The beginning of a reason where only what is proved may be rewritten."""


@dataclass
class SiteChecker:
    """Checks sites; to be called by the driver.

    Args:
        lower: Makes a small model runnable: the replacement may hold operators newer than the model's opset.
        seed: Of the sampled inputs.
        prover: Proves sites, where only those that are proved may be rewritten; None where that is not asked for.
        passed: The checks that passed in earlier runs; None where all are to be run.

    Attributes:
        proof: The proof of the site of the last call; None where there is none.
        ok: Sites that ran and agreed; ``distinct`` of them differ in structure.
        not_run: Reason to the number of sites that could not be run on their own.
        last: The result of the last call.
    """

    lower: Callable[[ir.Model], None]
    seed: int = 0
    prover: SiteProver | None = None
    passed: Passed | None = None
    proof: ProofRecord | None = None
    ok: int = 0
    distinct: set[str] = field(default_factory=set)
    not_run: Counter[str] = field(default_factory=Counter)
    last: SiteCheck = field(default_factory=lambda: SiteCheck("not run"))
    _seen: dict[str, tuple[str, SiteCheck]] = field(default_factory=dict)
    _of_text: dict[Hashable, tuple[str, SiteCheck]] = field(default_factory=dict)
    _lost: float = 0.0

    def anew(self) -> SiteChecker:
        """One that counts from the beginning and knows what this one has found out."""
        return replace(self, ok=0, distinct=set(), not_run=Counter(), last=SiteCheck("not run"))

    @property
    def remembered(self) -> int:
        """The number of the distinct sites that were run in an earlier run and not in this one."""
        return len(self.distinct & self.passed.recalled) if self.passed is not None else 0

    def __call__(self, site: Site) -> str | None:
        """None if the replacement computes what it replaces, or cannot be run by itself and need not; else what differs
        or kept it from being run."""
        key, result = self._known(site)
        self.last = result
        self.proof = None
        if result.status == "failed":
            return result.reason
        unproved = self._unproved(site) if self.prover is not None else None
        if unproved is not None:
            return f"{UNPROVED}: {unproved}"
        if result.status == "ok":
            self.ok += 1
            self.distinct.add(key)
        elif site.needs_check and self.proof is None:
            return f"{UNCHECKED}: {result.reason}"
        else:
            self.not_run[result.reason] += 1
        return None

    def _unproved(self, site: Site) -> str | None:
        """The reason why a site is not proved; None if it is, and the proof is kept."""
        found = sides(site)
        if isinstance(found, str):
            return found
        assert self.prover is not None
        proved = self.prover.prove(*found, site.assumes)
        if isinstance(proved, str):
            return proved
        self.proof = proved
        return None

    def _known(self, site: Site) -> tuple[str, SiteCheck]:
        """The check of a site and what stands for its structure; what its text tells is not cut out again."""
        wide = _widened(site)
        told = None if wide is not site or _sources(site) != [] else self._told(site)
        if told is not None and told in self._of_text:
            key, result = self._of_text[told]
            return key, replace(result, cached=True, seconds=0.0)
        found = _unsuitable(wide) or cut(wide)
        if isinstance(found, str):
            return "", SiteCheck("not run", found)
        key, result = self._checked(*found, site.assumes)
        if told is not None and key:
            self._of_text[told] = key, result
        return key, result

    def _told(self, site: Site) -> Hashable:
        """The key of a check where both sides read the same: their text, and what is known of what they read."""
        before, after = site.text
        elements = [site.facts.elements(v) for v in _inputs(site, ())]
        results = [(str(o.type), str(o.shape)) for o in site.outputs]
        operators = written_for((*site.before, *site.after), site.opset_imports)
        return str((before, after, elements, results, operators, sorted(site.assumes)))

    def _checked(self, before: ir.Model, after: ir.Model, assumes: Collection[Assumption]) -> tuple[str, SiteCheck]:
        """The check of a site and what stands for its structure; equal sites are not lowered again."""
        cut_as = self._key(before, after, assumes)
        if cut_as in self._seen:
            key, result = self._seen[cut_as]
            return key, replace(result, cached=True, seconds=0.0)
        if self._lost > _MOST_LOST:
            return "", SiteCheck("not run", "too many others could not be run in time")
        self.lower(after)
        key = self._key(before, after, assumes)
        trials = Trials(
            seed=self.seed,
            classes=classes(assumes, (*CLASSES, HUGE, *SPECIAL)),
            in_turn=(HUGE, *SPECIAL),
            in_range=Assumption.IN_RANGE in assumes,
            rows_count=Assumption.SCORES_ABOVE_10000 in assumes,
        )
        run = functools.partial(check_site, before, after, trials, key=key)
        found = self.passed.check(key, (before, after), run) if self.passed is not None else run()
        self._seen[cut_as] = key, found
        self._lost += found.seconds if found.status == "not run" else 0.0
        return self._seen[cut_as]

    def _key(self, before: ir.Model, after: ir.Model, assumes: Collection[Assumption]) -> str:
        """The key of the result: both sides, the seed, and what the rule assumes of the inputs."""
        return f"{structure(before, after)}\n{self.seed} {sorted(assumes)}"


_DATAFLOW = ("Scan",)
"""Nodes with bodies that are run by themselves: what they run does not depend on values."""


def sides(site: Site) -> tuple[ir.Model, ir.Model] | str:
    """The covered nodes and their replacement as two models that can be fed alike; why that cannot be."""
    wide = _widened(site)
    return _unsuitable(wide) or cut(wide)


def cut(site: Site) -> tuple[ir.Model, ir.Model]:
    """The covered nodes and their replacement as two models with equal inputs and outputs.

    What the replacement takes from elsewhere in the graph, such as the output of an equal node, is computed in it.
    """
    elsewhere = _sources(site) or ()
    inputs = _inputs(site, elsewhere)
    before = extract(site.before, inputs, site.outputs, site.opset_imports, name="before")
    nodes = [*elsewhere, *site.after]
    after = extract(nodes, inputs, site.results, site.opset_imports, name="after", modernize=False)
    for value, copied in zip(inputs, before.graph.inputs, strict=True):
        note_elements(value, copied, site.facts)
    for made, wanted in zip(after.graph.outputs, before.graph.outputs, strict=True):
        made.type, made.shape = wanted.type, wanted.shape
    return before, after


def _inputs(site: Site, elsewhere: Sequence[ir.Node]) -> list[ir.Value]:
    """Everything that either side reads from outside, constants left out."""
    nodes = (*site.before, *site.after, *elsewhere)
    computed = {o for n in nodes for o in n.outputs}
    read = [*_read(nodes), *site.results]
    return [v for v in dict.fromkeys(read) if v not in computed and Facts.tensor(v) is None]


def _sources(site: Site) -> list[ir.Node] | None:
    """The nodes, producers first, that compute what the replacement reads and the covered nodes do not read.

    None if they cannot be had: they read something else again, or are too many.
    """
    inside = {o for n in site.before for o in n.outputs}
    given = {v for v in _read(site.before) if v not in inside}
    built = {o for n in site.after for o in n.outputs}
    found: dict[ir.Node, None] = {}
    tried: set[ir.Node] = set()

    def reach(value: ir.Value) -> bool:
        producer = value.producer()
        if value in given or value in built or Facts.tensor(value) is not None or producer in found:
            return True
        if producer is None or producer in tried or len(tried) >= _MOST_SOURCES:
            return False
        tried.add(producer)
        if not all(reach(v) for v in _read([producer])):
            return False
        found[producer] = None
        return True

    wanted = dict.fromkeys((*_read(site.after), *site.results))
    return list(found) if all(reach(v) for v in wanted) else None


def _widened(site: Site) -> Site:
    """The site with the nodes right above it that read what the replacement reads instead of their results: where a
    rewrite looks behind an input of the original, both sides compute that input.  Two inputs, one of which is the other
    passed on, are equal to a pattern, and are no longer fed apart."""
    inside = {o for n in site.before for o in n.outputs}
    given = dict.fromkeys(v for v in _read(site.before) if v not in inside)
    used = {*_read(site.after), *site.results}
    wanted = used - set(given)
    chains = [passed(v)[::-1] for v in given]  # what patterns look through, also where a constant lies behind it
    above = dict.fromkeys(n for chain in chains if any(used & set(n.inputs) for n in chain) for n in chain)
    above.update(dict.fromkeys(p for v in given if (p := v.producer()) is not None and wanted & set(p.inputs)))
    return replace(site, before=topological((*above, *site.before))) if above else site


def _read(nodes: Sequence[ir.Node]) -> list[ir.Value]:
    return [v for n in nodes for v in (*n.inputs, *outer_values(n)) if v is not None]


def _unsuitable(site: Site) -> str | None:
    if any(subgraphs(n) and n.op_type not in _DATAFLOW for n in (*site.before, *site.after)):
        return "it contains a subgraph"
    if len(site.before) > _UNCHECKED_NODES:
        return "it is too large"
    elsewhere = _sources(site)
    if elsewhere is None:
        return "the replacement reads what the original does not"
    for value in _inputs(site, elsewhere):
        if not isinstance(value.type, ir.TensorType):
            return "an input is no tensor, or its type is unknown"
        if value.shape is None:
            return "the rank of an input is unknown"
        if len(value.shape) > MAX_RANK:
            return f"an input has more than {MAX_RANK} axes"
    return None
