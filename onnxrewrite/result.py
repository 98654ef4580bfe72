"""What a run of ``apply`` comes to: the model, what was done to it, and what was checked."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from onnxrewrite.ir import io
from onnxrewrite.ir.sums import named_sums
from onnxrewrite.ir.target import Target
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.rewrite.trace import Key, Trace
from onnxrewrite.verify.certificate import Certificate, Level, Options
from onnxrewrite.verify.certificate import CheckLevel as CheckLevel
from onnxrewrite.verify.certificate import Lowering as Lowering
from onnxrewrite.verify.ledger import Ledger

if TYPE_CHECKING:
    from onnxrewrite.measure.choice import Weighed
    from onnxrewrite.measure.timing import Interval
    from onnxrewrite.verify.checked import ModelCheck


@dataclass
class Checks:
    """What was checked, and what came of it.

    Attributes:
        level: How much was asked for.
        structure: Problems of the emitted model's structure, which are those of the original; empty when it is valid.
        sites: Rewrites that were run against what they replace.
        distinct_sites: How many different ones among them.
        sites_not_run: Why rewrites could not be run by themselves, and how many.
        model: The whole model against the original; None when that was not asked for.
        undone: Rewrites that a check turned down: (rule, value) to reason.
    """

    level: CheckLevel
    structure: list[str] = field(default_factory=list)
    sites: int = 0
    distinct_sites: int = 0
    sites_not_run: dict[str, int] = field(default_factory=dict)
    model: ModelCheck | None = None
    undone: dict[Key, str] = field(default_factory=dict)


@dataclass
class Speed:
    """How fast the result is, and what that is known from.

    Attributes:
        lower: How the lower stage chose.
        skipped: Why nothing was measured; empty where it was.
        binding: The sizes at which it was measured.
        threads: Within an operator; 0 is ONNX Runtime's choice.
        ratio: Time of the result to that of the original, both with all of ONNX Runtime's own optimizations; None where
            nothing was measured.
        level: The level of these at which the result is fastest; ``session`` opens it so.
        level_ratio: Time at that level to the time at all of them; None where it is that.
        weighed: The rewrites that were measured, equal ones once.
        assumed: Why rewrites were taken for granted, and how many.
        slower: Rules that made the whole model slower, and were left out: name to reason.
    """

    lower: Lowering
    skipped: str = ""
    binding: Mapping[str, int] = field(default_factory=dict)
    threads: int = 0
    ratio: Interval | None = None
    level: Level = "all"
    level_ratio: Interval | None = None
    weighed: list[Weighed] = field(default_factory=list)
    assumed: Mapping[str, int] = field(default_factory=dict)
    slower: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(repr=False)
class Result:
    """What ``apply`` returns.

    Attributes:
        model: The optimized model.
        original: The model as loaded, before any conversion to another opset.
        trace: What was rewritten, in text with its check, too; what was refused and why.
        ledger: What was turned down, in text, with its check.
        checks: What was checked.
        speed: What was measured.
        rules: The rules that ran.
        options: What was asked for.
        notes: Repairs of the input, plugins that could not be used, rules that raised.
        seconds: Phase to time.
        asked: The rules that were asked for by name, or given.
    """

    model: ir.Model
    original: ir.Model
    trace: Trace
    ledger: Ledger
    checks: Checks
    speed: Speed
    rules: RuleSet
    target: Target
    options: Options
    notes: list[str]
    seconds: dict[str, float]
    asked: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        """A few lines: what was applied, nodes before and after, what was checked."""
        from onnxrewrite.report.summary import brief

        return brief(self)

    @property
    def assumes(self) -> dict[str, list[str]]:
        """What is taken for granted of the data, each to the applied rules that do, in the order in which they run; to
        none where all that is known of sizes rests on it."""
        applied, found = self.trace.counts(), defaultdict[str, list[str]](list)
        for rule in self.rules:
            for assumption in rule.assumes if applied[rule.name] else ():
                found[str(assumption)].append(rule.name)
        names = named_sums(self.original) if self.options.named_sums and self.trace.applied else []
        return {**found, **{f"a size that is called `{name}` is that": [] for name in names}}

    def save(self, path: str | os.PathLike[str], *, certificate: bool = False) -> None:
        """Write the optimized model, with its ``certificate`` beside it if that is wanted; external data is chosen when
        it would pass 2 GB."""
        from onnxrewrite.certify import save

        save(self, path) if certificate else io.save(self.model, path)

    @cached_property
    def certificate(self) -> Certificate:
        """What was done and how it was checked, with the digests of all that it depends on; reads the input's file."""
        from onnxrewrite.certify import certificate

        return certificate(self)

    def to_proto(self) -> onnx.ModelProto:
        """The optimized model as a protobuf message."""
        return io.to_proto(self.model)

    def to_json(self) -> dict[str, Any]:
        """Everything that the report shows, as plain data."""
        from onnxrewrite.report.summary import summary

        return summary(self)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the report as one HTML page that needs nothing else: what changed, what was checked, what nearly
        matched, and the graph before and after.

        Raises:
            ModelError: The file cannot be written.
        """
        from onnxrewrite.report.html.page import write_page

        write_page(self, self.to_json(), path)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from onnxrewrite.report.html.notebook import result_html

        return result_html(self.to_json())
