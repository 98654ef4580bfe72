"""Observation of a right rule while the ladder tries it: what it builds, of what, and which guards it asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from benchmarks.mutants.guards import Guard
from benchmarks.mutants.hooks import Listener, attended
from benchmarks.mutants.tape import Emission, made_constant, result_kind
from benchmarks.mutants.terms import terms_of
from benchmarks.mutants.values import variants
from onnxrewrite.ir import schema, text
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.terms import Call, Term
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rewrite.rule import Rejects, Rule
from onnxrewrite.ruletest.fuzz import Verdict, fuzz
from onnxrewrite.ruletest.metamorphic.firing import Trial


@dataclass
class Built:
    """The observations of one operator.

    Attributes:
        domain: Its domain.
        op_type: Its name.
        parameters: Parameter to the ways in which its values can be wrong, and whether it was ever off its default.
        constants: Operand to the ways in which a constant that was made for it can be wrong.
        operands: The largest number of operands.
        droppable: Operands that are optional and were given.
        distinct: Pairs of neighbouring operands that were not the same value.
        defaults: Attributes with a default that were not given, and that.
    """

    domain: str
    op_type: str
    parameters: dict[str, set[str]] = field(default_factory=dict)
    off_default: set[str] = field(default_factory=set)
    constants: dict[int, set[str]] = field(default_factory=dict)
    droppable: set[int] = field(default_factory=set)
    distinct: set[tuple[int, int]] = field(default_factory=set)
    defaults: dict[str, Any] = field(default_factory=dict)
    skippable: bool = False


@dataclass
class Observed:
    """The observations of a rule.

    Attributes:
        built: Operator to what was seen of it.
        guards: Guards that were asked.
        results: Result to the ways in which it can be off.
        unread: Calls of the pattern, by index, whose attributes the rewrite has left to the engine.
        verdict: The ladder's verdict on the right rule.
    """

    built: dict[str, Built] = field(default_factory=dict)
    guards: set[Guard] = field(default_factory=set)
    results: set[tuple[int, str]] = field(default_factory=set)
    unread: set[int] = field(default_factory=set)
    verdict: Verdict | None = None


def observed(rule: Rule, library: Sequence[Rule], *, count: int, seed: int = 0) -> Observed:
    """Watch the ladder try a rule, and the rule refuse what its examples say it rejects.

    Patches classes for good: to be called in a process of its own.
    """
    seen = Observed()
    watched, _ = attended(rule, _Watching(seen, terms_of(rule)))
    whole = [watched if r is rule else r for r in library]
    seen.verdict = fuzz(watched, whole, seed=seed, count=count, thorough=False)
    for example in rule.examples:
        if isinstance(example, Rejects):
            Trial.of(watched, whole, example.target).drive(text.parse(example.graph, opset=example.opset))
    return seen


@dataclass
class _Watching(Listener):
    """Writes down what it sees."""

    seen: Observed
    terms: Sequence[Term]

    def emits(self, asked: Emission, build: Builder) -> Emission | ir.Value:
        built = self.seen.built.setdefault(asked.operator, Built(asked.domain, asked.op_type))
        version = schema.oldest_version(asked.domain, asked.op_type, build.opset) or build.opset
        known = schema.schema(asked.domain, asked.op_type, version if not asked.domain else None)
        built.skippable = built.skippable or isinstance(asked.inputs[0] if asked.inputs else None, ir.Value)
        _watch_operands(built, asked, known, build)
        for name, value in asked.parameters.items():
            if value is not None:
                built.parameters.setdefault(name, set()).update(variants(name, value))
                if known is None or name not in known.attributes or not _is(known.attributes[name].default, value):
                    built.off_default.add(name)
        for name, attribute in known.attributes.items() if known is not None else ():
            if attribute.default is not None and variants(name, attribute.default):
                built.defaults[name] = attribute.default
        return asked

    def asks(self, guard: Guard, holds: bool) -> bool:
        self.seen.guards.add(guard)
        return holds

    def returns(self, results: list[ir.Value], match: Match, build: Builder) -> list[ir.Value]:
        unread = (i for i, t in enumerate(self.terms) if isinstance(t, Call) and t in match and match.overlooks(t))
        self.seen.unread.update(unread)
        for index in {0, len(match.outputs) - 1}:
            dtype = match.dtype(match.outputs[index])
            kind = result_kind(dtype) if dtype is not None else ""
            self.seen.results.update({(index, kind)} if kind else ())
        return results


def _watch_operands(built: Built, asked: Emission, known: schema.Schema | None, build: Builder) -> None:
    for index, given in enumerate(asked.inputs):
        array = made_constant(given, build)
        if array is not None:
            built.constants.setdefault(index, set()).update(variants("", array))
        if known is not None and index < len(known.inputs) and known.inputs[index].optional and given is not None:
            built.droppable.add(index)
        if index and given is not asked.inputs[index - 1]:
            built.distinct.add((index - 1, index))


def _is(default: Any, value: Any) -> bool:
    return default is not None and np.array_equal(np.asarray(default), np.asarray(value))
