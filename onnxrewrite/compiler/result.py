"""The result of ``apply``: the model, what was done to it, and what was checked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxrewrite.checks.rewrite_log import RewriteLog
from onnxrewrite.compiler.request import CheckLevel, Lowering, Request
from onnxrewrite.ir.sums import named_sums
from onnxrewrite.ir.target import Target
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.rewrite.trace import Key, Trace
from onnxrewrite.runtime.settings import Level
from onnxrewrite.system.plain import Json

if TYPE_CHECKING:
    from onnxrewrite.checks.findings import ModelCheck
    from onnxrewrite.measure.choice import Weighed
    from onnxrewrite.measure.decision import Raced
    from onnxrewrite.measure.timing import Interval


@dataclass
class Checks:
    """The checks of a run, and their results.

    Attributes:
        level: The level that was requested.
        structure: Problems of the emitted model's structure, which are those of the original; empty when it is valid.
        sites: Rewrites that were run against what they replace.
        distinct_sites: The number of different ones among them.
        remembered_sites: The number of those that passed in an earlier run on this machine and were not run again.
        sites_not_run: The reasons why rewrites could not be run by themselves, and how many.
        model: The whole model against the original; None when that was not asked for.
        undone: Rewrites that a check turned down: (rule, value) to reason.
    """

    level: CheckLevel
    structure: list[str] = field(default_factory=list)
    sites: int = 0
    distinct_sites: int = 0
    remembered_sites: int = 0
    sites_not_run: dict[str, int] = field(default_factory=dict)
    model: ModelCheck | None = None
    undone: dict[Key, str] = field(default_factory=dict)


@dataclass
class Speed:
    """The speed of the result, and what it is known from.

    Attributes:
        lower: The choice of the lower stage.
        skipped: The reason why nothing was measured; empty where it was.
        binding: The sizes at which it was measured.
        threads: Within an operator; 0 is ONNX Runtime's choice.
        cost: The cost model that stood in place of the clock, by its name; empty for the clock.  What is said of times
            here is said of costs then.
        ratio: Time of the result to that of the original, both with all of ONNX Runtime's own optimizations; None where
            nothing was measured.
        level: The level of these at which the result is fastest; ``session`` opens it so.
        level_ratio: Time at that level to the time at all of them; None where it is that.
        weighed: The rewrites that were measured, equal ones once.
        raced: The ways to lower the model that were run as a whole.
        assumed: The reasons why rewrites were taken for granted, and how many.
        slower: Rules that made the whole model slower, and were left out: name to reason.
    """

    lower: Lowering
    skipped: str = ""
    binding: Mapping[str, int] = field(default_factory=dict)
    threads: int = 0
    cost: str = ""
    ratio: Interval | None = None
    level: Level = "all"
    level_ratio: Interval | None = None
    weighed: list[Weighed] = field(default_factory=list)
    raced: list[Raced] = field(default_factory=list)
    assumed: Mapping[str, int] = field(default_factory=dict)
    slower: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return asdict(self)


@dataclass(repr=False)
class Result:
    """The result of a rewriting, as plain data.

    Attributes:
        model: The optimized model.
        original: The model as loaded, before any conversion to another opset.
        trace: The rewrites, in text with their checks, too; the refused ones and why.
        rewrite_log: The rewrites that were turned down, in text, with their checks.
        checks: The checks.
        speed: The measurements.
        rules: The rules that ran.
        request: The request.
        notes: Repairs of the input, plugins that could not be used, rules that raised.
        seconds: Phase to time.
        asked: The rules that were asked for by name, or given.
    """

    model: ir.Model
    original: ir.Model
    trace: Trace
    rewrite_log: RewriteLog
    checks: Checks
    speed: Speed
    rules: RuleSet
    target: Target
    request: Request
    notes: list[str]
    seconds: dict[str, float]
    asked: frozenset[str] = frozenset()

    @property
    def assumes(self) -> dict[str, list[str]]:
        """Assumptions about the data, each to the applied rules that make it, in the order in which they run; to none
        where all that is known of sizes rests on it."""
        applied, found = self.trace.counts(), defaultdict[str, list[str]](list)
        for rule in self.rules:
            for assumption in rule.assumes if applied[rule.name] else ():
                found[str(assumption)].append(rule.name)
        names = named_sums(self.original) if self.request.named_sums and self.trace.applied else []
        return {**found, **{f"a size that is called `{name}` is that": [] for name in names}}
