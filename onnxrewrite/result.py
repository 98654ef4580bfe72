"""What a run of ``apply`` comes to: the model, what was done to it, and what was checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import onnx
import onnx_ir as ir

from onnxrewrite.ir import io
from onnxrewrite.ir.target import Target
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.rewrite.trace import Key, Trace
from onnxrewrite.verify.certificate import Certificate, Options
from onnxrewrite.verify.ledger import Ledger

if TYPE_CHECKING:
    from onnxrewrite.measure.choice import Weighed
    from onnxrewrite.measure.timing import Interval
    from onnxrewrite.verify.checked import ModelCheck

CheckLevel: TypeAlias = Literal["full", "fast", "off"]

Lowering: TypeAlias = Literal["fastest", "fused", "portable"]
"""How the lower stage chooses: by measuring; the most fused form that is legal; the standard's operators only."""


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
    level: str = "all"
    level_ratio: Interval | None = None
    weighed: list[Weighed] = field(default_factory=list)
    assumed: Mapping[str, int] = field(default_factory=dict)
    slower: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass
class Result:
    """What ``apply`` returns.

    Attributes:
        model: The optimized model.
        original: The model as loaded, before any conversion to another opset.
        trace: What was rewritten, what was refused and why.
        ledger: The same rewrites in text, each with its check.
        checks: What was checked.
        speed: What was measured.
        rules: The rules that ran.
        options: What was asked for.
        notes: Repairs of the input, plugins that could not be used, rules that raised.
        seconds: Phase to time.
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
