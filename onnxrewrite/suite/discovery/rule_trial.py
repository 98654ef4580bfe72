"""A written rule on trial: the fuzzer refutes it until its preconditions suffice.

A counterexample teaches a precondition: one that holds at every place of the corpus and not in the counterexample.  The
rule is written again with it, and tried again.  The graphs that taught them are the rule's rejections.
Where no precondition tells a counterexample apart and its values are infinite or none, the rule assumes that they are
not, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.authoring.example import Cut, declarations, snippet
from onnxrewrite.authoring.staged_model import in_example, matched
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.ir import schema, text
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Assumption, Example, Rejects, Rewrites, Rule
from onnxrewrite.ruletest.fuzz import Verdict, fuzz
from onnxrewrite.ruletest.fuzz.verdict import UNTRIED
from onnxrewrite.ruletest.metamorphic.firing import Trial
from onnxrewrite.suite.discovery.preconditions import Guard
from onnxrewrite.suite.discovery.rule_writing import RuleWriter
from onnxrewrite.system.arrays import is_tensor
from onnxrewrite.testing.assertions import check_example

_LESSONS = 8
"""A rule gets so many preconditions at the most."""


@dataclass(frozen=True)
class Tried:
    """A rule and what the fuzzer says of it.

    Attributes:
        rule: The rule, with the preconditions that it was taught.
        text: The text of its file.
        guards: Its preconditions.
        verdict: The verdict on it: by its status it passed, is refuted, or could not be tried.
    """

    rule: Rule
    text: str
    guards: tuple[Guard, ...]
    verdict: Verdict


@dataclass(frozen=True)
class Lesson:
    """A precondition, and the graph that taught it."""

    guard: Guard
    graph: ir.Model
    target: str


@dataclass
class _Learning:
    """The things that a rule has learnt: preconditions and, where none helps, what it takes for granted of the data."""

    given: list[Guard]
    lessons: list[Lesson] = field(default_factory=list)
    assumes: list[Assumption] = field(default_factory=list)

    @property
    def guards(self) -> list[Guard]:
        """All preconditions."""
        return [*self.given, *(lesson.guard for lesson in self.lessons)]

    def learn(self, rule: Rule, verdict: Verdict, known: Sequence[Guard]) -> bool:
        """Learn from a counterexample; False where there is nothing to be learnt from it."""
        lesson = _lesson(rule, verdict, [g for g in known if g not in self.guards])
        if lesson is not None:
            self.lessons.append(lesson)
            return True
        left = [each for each in _ASSUMPTIONS if each not in self.assumes]
        if not left or not _is_of_data(verdict):
            return False
        self.assumes.append(left[0])
        return True


_ASSUMPTIONS = (Assumption.FINITE, Assumption.NOT_EMPTY)
"""The assumptions about the data that rules of the library make as well."""


def _is_of_data(verdict: Verdict) -> bool:
    """True if a counterexample is one by its values or its size alone: not a number, infinite, or nothing at all."""
    found = verdict.counterexample
    if found is None:
        return False
    feeds = [v for v in (found.feeds or {}).values() if is_tensor(v) and v.dtype.kind == "f"]
    return any(not np.isfinite(v.astype(np.float64)).all() or not v.size for v in feeds)


@dataclass
class RuleTrial:
    """A rule on trial: what it has learnt stays when it is tried on more graphs.

    Attributes:
        writer: Writes the rule.
        library: Rules of the lower stage, without which a raised operator may not be legal.
        is_cautious: True to begin with the preconditions on shapes: without them, its kernel ended the process.
    """

    writer: RuleWriter
    library: Sequence[Rule]
    is_cautious: bool = False

    def __post_init__(self) -> None:
        self._known = self.writer.guards()
        cautious = [g for g in self._known if g.is_of_result] if self.is_cautious else []
        self._learnt = _Learning(list(dict.fromkeys((*self.writer.fitting(self._known), *cautious))))

    def run(self, count: int, seed: int = 0) -> Tried:
        """Try the rule on ``count`` graphs of a seed, and teach it what it lacks."""
        learnt = self._learnt
        for left in reversed(range(_LESSONS + 1)):
            guards = learnt.guards
            examples = tuple(_examples(self.writer, guards, learnt.lessons))  # which the fuzzer begins with, too
            text_of_rule, rule = self.writer.finished(guards, examples, learnt.assumes)
            verdict = fuzz(rule, self.library, seed=seed, count=count, thorough=False)
            if not left or not verdict.refuted or not learnt.learn(rule, verdict, self._known):
                break
        return Tried(rule, text_of_rule, tuple(guards), verdict)


def _lesson(rule: Rule, verdict: Verdict, known: Sequence[Guard]) -> Lesson | None:
    """The first precondition that a counterexample does not fulfil."""
    found = verdict.counterexample
    if found is None:
        return None
    copy = io.load(found.before)
    schema.date(copy)
    matches = list(matched(rule, Driver(copy, [rule], target_by_name(found.target))).values())
    broken = (g for g in known if any(not g.holds(m, rule) for m in matches))
    guard = next(broken, None)
    return Lesson(guard, found.before, found.target) if guard is not None else None


# ------------------------------------------------------------------------------------------------------- examples


def _examples(writer: RuleWriter, guards: Sequence[Guard], lessons: Sequence[Lesson]) -> Iterator[Example]:
    """The region itself, then a rejection for each lesson that can be told in text, and one for the target."""
    rewrites = _rewrites(writer, guards)
    yield from rewrites
    _, rule = writer.finished(guards)
    independent = writer.writing.cuts(rule)[:1]  # of constants that are rounded each by itself
    refused = [Rejects(c.text, g.reason, c.opset) for g in guards if g.tells for c in independent]
    refused += [_refused(lesson) for lesson in lessons]
    yield from (each for each in refused if _is_right(rule, each))
    if rewrites and any(n.domain for n in writer.hit.substitute.nodes):
        first = rewrites[0]
        rejects = Rejects(first.graph, "standard operators only", first.opset, "onnx")
        if _is_right(rule, rejects):
            yield rejects


def _refused(lesson: Lesson) -> Rejects:
    """The graph of a lesson as a rejection."""
    version = lesson.graph.graph.opset_imports.get("", 1)
    return Rejects(snippet(lesson.graph), lesson.guard.reason, version, lesson.target)


def _rewrites(writer: RuleWriter, guards: Sequence[Guard]) -> tuple[Rewrites, ...]:
    """The region at small sizes, and what the rule makes of it; nothing where it does not apply there.

    Constants are independent of each other unless a precondition asks for their product, so that the lack of one shows.
    """
    _, rule = writer.finished(guards)
    cuts = (c for keeps in (False, True) for c in writer.writing.cuts(rule, keeps_products=keeps)[:1])
    found = (_rewritten(rule, cut) for cut in cuts)
    right = next((e for e in found if e is not None and _is_right(rule, e)), None)
    return () if right is None else (right,)


def _rewritten(rule: Rule, cut: Cut) -> Rewrites | None:
    """An example of what a rule makes of a place; of several outputs, they are named."""
    found = next(iter(matched(rule, in_example(rule, cut.text, cut.opset)).values()), None)
    if found is None:
        return None
    outputs = [o.name or "" for o in found.outputs]
    before = cut.text if len(outputs) == 1 else _with_outputs(cut.text, outputs)
    made = Trial(rule, (), "onnxruntime-cpu").drive(text.parse(before, opset=cut.opset))
    if not made.trace.applied:
        return None
    after = snippet(made.model, declarations(cut.text))
    return Rewrites(before, after if len(outputs) == 1 else _with_outputs(after, outputs), cut.opset)


def _with_outputs(snippet: str, outputs: Sequence[str]) -> str:
    """A text that says what its outputs are, which are else what no node reads."""
    lines = snippet.splitlines()
    inputs = [line.removesuffix(";") for line in lines if line.endswith(";")]
    statements = [line for line in lines if not line.endswith(";")]
    return "\n".join([f"({', '.join(inputs)}) => ({', '.join(outputs)}) {{", *statements, "}"])


def _is_right(rule: Rule, example: Example) -> bool:
    """True if an example comes true, which it does not where a text cannot say what the graph is."""
    try:
        check_example(rule, example)
    except (AssertionError, OnnxRewriteError):
        return False
    return True


def is_untried(verdict: Verdict) -> bool:
    """True if the fuzzer made no graph on which the rule applies and that runs."""
    return verdict.status == UNTRIED
