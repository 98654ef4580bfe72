"""All rules that come near in a model, by what they would save at the most, or by how near they come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import onnx_ir as ir

from onnxrewrite.explanation.near_miss import Explanation
from onnxrewrite.explanation.why_not import Explainer
from onnxrewrite.rewrite.rule import ON_REQUEST, Assumption, Rule
from onnxrewrite.rewrite.trace import Trace


class RankedRow(TypedDict):
    """A rule, how often it applies and comes near, and the first reason; ``gain``: seconds of a run."""

    rule: str
    stage: str
    applied: int
    near: int
    gain: float | None
    reason: str


@dataclass(frozen=True)
class Ranked:
    """A rule that comes near.

    Attributes:
        explanation: The places, and why it does not apply there.
        stage: Of the rule.
        gain: Seconds of a run that it would save at the most; None where that was not measured.
    """

    explanation: Explanation
    stage: str
    gain: float | None = None

    def to_json(self) -> RankedRow:
        """Plain data."""
        groups = self.explanation.groups
        return {
            "rule": self.explanation.rule,
            "stage": self.stage,
            "applied": len(self.explanation.applied),
            "near": sum(len(g.places) for g in groups),
            "gain": self.gain,
            "reason": groups[0].first.reason if groups else "",
        }


def overview(
    model: ir.Model, rules: Sequence[Rule], target: str, withheld: Collection[Assumption] = ON_REQUEST
) -> list[Ranked]:
    """The rules that apply or come near: first those that apply, the most frequent first, then by how near they come.

    Args:
        model: The model, as loaded; it is not changed.
        rules: All rules.
        target: The target that the result must run on.
        withheld: The assumptions that no rule may make.
    """
    found = Explainer(model, rules, target, check=False, withheld=withheld).explain_all()
    stages = {r.name: r.stage.name.lower() for r in rules}
    ranked = [Ranked(e, stages[e.rule]) for e in found if e.applied or e.groups]
    return sorted(ranked, key=lambda r: (-len(r.explanation.applied), _missing(r.explanation), r.explanation.rule))


def ranking(
    model: ir.Model,
    rules: Sequence[Rule],
    target: str,
    *,
    profile: bool = False,
    withheld: Collection[Assumption] = ON_REQUEST,
) -> list[Ranked]:
    """The rules that come near, those first that would save most.

    Args:
        model: The model, as loaded; it is not changed.
        rules: All rules.
        target: The target that the result must run on.
        profile: True to run the model and see how long the operators take that a rule would do away with; without it,
            those come first that lack least.
        withheld: The assumptions that no rule may make.
    """
    explainer = Explainer(model, rules, target, check=False, withheld=withheld)
    found = [e for e in explainer.explain_all() if e.groups]
    gains = _gains(model, rules, found) if profile else {}
    stages = {r.name: r.stage.name.lower() for r in rules}
    ranked = [Ranked(e, stages[e.rule], gains.get(e.rule, 0.0) if profile else None) for e in found]
    return sorted(ranked, key=lambda r: (-(r.gain or 0.0), _missing(r.explanation), r.explanation.rule))


def _missing(explanation: Explanation) -> tuple[int, int]:
    if not explanation.groups:
        return 2, 0
    first = explanation.groups[0].first
    return int(not first.is_guard), first.missing


def _gains(model: ir.Model, rules: Sequence[Rule], found: Sequence[Explanation]) -> Mapping[str, float]:
    """Rule to the seconds that it would save at the most."""
    from onnxrewrite.inputs.workload import workload
    from onnxrewrite.measure.kernel_times import run_profiled
    from onnxrewrite.measure.lineage import covered
    from onnxrewrite.measure.opportunities import near_misses, side
    from onnxrewrite.runtime.settings import DEFAULT

    refused = {e.rule: {n.value: n.reason for g in e.groups for n in g.places} for e in found}
    run = run_profiled({"model": model}, workload(model).feeds, DEFAULT)["model"]
    before = side(run.kernels, covered(model, run.optimized))
    return {o.name: o.gain for o in near_misses(model, before, Trace(refused=refused), rules)}
