"""A rewriting, as the options of ``onnxrewrite apply`` ask for it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import Progress

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.api.application import Result


class Level(enum.StrEnum):
    """Values of ``--check``."""

    FULL = "full"
    FAST = "fast"
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class Rewriting:
    """The rules, and how what they make of a model is chosen and checked."""

    rules: options.Selection
    place: options.Place
    opset: Annotated[
        int | None, typer.Option("--opset", min=1, metavar="N", help="Bring it to this ai.onnx opset, and keep it.")
    ] = None
    inputs: options.Inputs
    check: Annotated[
        Level,
        typer.Option(
            "--check",
            help="full: every rewrite, and the whole model on several samples; fast: on one sample; "
            "off: only whether the result is valid.",
        ),
    ] = Level.FULL
    lower: options.Lower = options.Lowering.FASTEST
    threads: options.Threads = 0
    budget: Annotated[float, typer.Option("--budget", min=0, metavar="SECONDS", help="For all that is measured.")] = (
        20.0
    )
    named_sums: Annotated[
        bool,
        typer.Option("--named-sums/--no-named-sums", help="Take a dimension called a + b for the sum, or for a name."),
    ] = True
    assume: options.Assume = field(default_factory=list)
    only_proved: Annotated[
        bool,
        typer.Option("--only-proved", help="Rewrite only where both sides are proved to compute the same; needs z3."),
    ] = False
    seed: options.Seed = 0
    cost: Annotated[
        str | None,
        typer.Option(
            "--cost",
            metavar="clock|bytes|operations|FILE",
            help="What --lower fastest chooses by (clock); FILE is a table of milliseconds.",
        ),
    ] = None
    measured: options.Measured

    def rewritten(self, model: ir.Model, target: str, progress: Progress | None, *, conflicts: bool) -> Result:
        """The model as it is asked for; ``model`` is the result's original from now on."""
        from onnxrewrite import io
        from onnxrewrite.api import application

        return application.apply(
            io.Owned(model),
            rules=self.rules.rules,
            only=self.rules.only,
            without=self.rules.without,
            target=target,
            opset=self.opset,
            dims=self.inputs.dims,
            inputs=self.inputs.feeds(model),
            check=self.check.value,
            lower=self.lower.value,
            threads=self.threads,
            budget=self.budget,
            named_sums=self.named_sums,
            assume=[each.value for each in self.assume],
            seed=self.seed,
            progress=progress,
            conflicts=conflicts,
            only_proved=self.only_proved,
            measurements=self.measured.measurements,
            signed_by=self.measured.signed_by,
            cost=self.cost,
        )
