"""``onnxrewrite profile``: where a model's time goes, and what there is to gain."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import Progress, progress_bar, show
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import CheckError

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.measure.profiling import ProfileReport, Rewritten


class OrtLevel(enum.StrEnum):
    """Values of ``--level``; a test compares them with those of the library."""

    DISABLED = "disabled"
    BASIC = "basic"
    EXTENDED = "extended"
    ALL = "all"


@dataclass(frozen=True, kw_only=True)
class _Session:
    """The session in which the model is run."""

    threads: options.Threads = 0
    level: Annotated[OrtLevel, typer.Option("--level", help="Of ONNX Runtime's own graph optimizations.")] = (
        OrtLevel.ALL
    )
    provider: options.Provider = None


@dataclass(frozen=True, kw_only=True)
class _Report:
    """The report of the figures: on the terminal, and in files."""

    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Lines of each table.")] = 6
    json: options.Json = None
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw operators and roofs: .png, .svg or .pdf.")
    ] = None


def profile(
    model: options.Model,
    *,
    rules: options.Selection,
    inputs: options.Inputs,
    session: _Session,
    told: _Report,
    seed: options.Seed = 0,
) -> None:
    """Show where a model's time goes, and what there is to gain.

    The model is run as ONNX Runtime runs it, by turns with what the rules make of it, and every kernel is compared with
    what the machine was measured to be capable of.  Times are of this machine, at the sizes given; results of rewrites
    are not checked here: apply does that.
    """
    plot, report = told.plot, options.json_path(told.json, model, told.plot)
    inputs.check()
    if plot is not None:
        from onnxrewrite.report.plots import plottable

        plottable(options.writable(plot, "--plot"))

    from onnxrewrite import io
    from onnxrewrite.measure.profiling import profile as measured
    from onnxrewrite.runtime.settings import Setting

    provider, target = options.Place(provider=session.provider).found()
    setting = Setting(provider, session.threads, session.level.value)
    with progress_bar(wanted=True) as progress:
        loaded = io.load(model)
        options.keep_weights(loaded, report, "--json")
        options.keep_weights(loaded, plot, "--plot")
        feeds = inputs.feeds(loaded)
        rewritten, notes = _rewritten(loaded, target, rules, progress)
        if progress is not None:
            progress("measure", 0, 0)
        found = measured(loaded, rewritten=rewritten, setting=setting, dims=inputs.dims, inputs=feeds, seed=seed)
    data: ProfileReport = {**found.to_json(), "model": model, "notes": [*notes, *found.notes]}
    write_json(data, told.json, report)
    if plot is not None:
        from onnxrewrite.report.profile_plot import plot_profile

        plot_profile(data, plot)
    if told.json != "-":
        from onnxrewrite.report.profile_report import profile_report

        show(profile_report, data, top=told.top)


def _rewritten(
    loaded: ir.Model, target: str, rules: options.Selection, progress: Progress | None
) -> tuple[Rewritten | None, list[str]]:
    """The model as the rules rewrite it, None if the result would not be valid; and notes."""
    from onnxrewrite.api import application
    from onnxrewrite.measure.profiling import Rewritten

    try:
        result = application.apply(
            loaded,
            rules=rules.rules,
            only=rules.only,
            without=rules.without,
            target=target,
            check="off",
            progress=progress,
        )
    except CheckError as error:
        return None, [f"without the rules: {error}"]
    return Rewritten(result.model, result.trace, tuple(result.rules)), result.notes
