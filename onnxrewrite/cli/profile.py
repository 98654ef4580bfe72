"""``onnxrewrite profile``: where a model's time goes, and what there is to gain."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import Progress, progress_bar, show
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import CheckError

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.measure.profiling import Rewritten


class OrtLevel(enum.StrEnum):
    """Values of ``--level``; a test compares them with those of the library."""

    DISABLED = "disabled"
    BASIC = "basic"
    EXTENDED = "extended"
    ALL = "all"


def profile(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The .onnx file.", show_default=False)],
    rules: options.Rules = [],  # noqa: B006
    only: options.Only = [],  # noqa: B006
    without: options.Without = [],  # noqa: B006
    custom_ops: options.CustomOps = [],  # noqa: B006
    dim: options.Dims = [],  # noqa: B006
    input_: options.Inputs = [],  # noqa: B006
    threads: options.Threads = 0,
    level: Annotated[
        OrtLevel, typer.Option("--level", help="Of ONNX Runtime's own graph optimizations.")
    ] = OrtLevel.ALL,
    provider: options.Provider = None,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Lines of each table.")] = 6,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    """Show where a model's time goes, and what there is to gain.

    The model is run as ONNX Runtime runs it, by turns with what the rules make of it, and every kernel is compared with
    what the machine was measured to be capable of.  Times are of this machine, at the sizes given; results of rewrites
    are not checked here: apply does that.
    """
    report = options.json_path(json, model)
    dims, files = options.sizes(dim), options.files(input_)

    from onnxrewrite import io
    from onnxrewrite.measure.profiling import profile as measured
    from onnxrewrite.runtime.settings import Setting

    runs_on, made_for = options.place(provider, None)
    setting = Setting(runs_on, threads, level.value)
    with progress_bar(wanted=True) as progress:
        loaded = io.load(model)
        options.keep_weights(loaded, report, "--json")
        feeds = options.feeds(loaded, files, dims)
        rewritten, notes = _rewritten(loaded, made_for, progress, rules=rules, only=only, without=without)
        if progress is not None:
            progress("measure", 0, 0)
        found = measured(loaded, rewritten=rewritten, setting=setting, dims=dims, inputs=feeds, seed=seed)
    data = {"model": model, **found.to_json(), "notes": [*notes, *found.notes]}
    write_json(data, json, report)
    if json != "-":
        from onnxrewrite.report.profile_report import profile_report

        show(profile_report, data, top=top)


def _rewritten(
    loaded: ir.Model, target: str, progress: Progress | None, **chosen: Any
) -> tuple[Rewritten | None, list[str]]:
    """The model as the rules rewrite it, None if the result would not be valid; and notes."""
    from onnxrewrite.api import application
    from onnxrewrite.measure.profiling import Rewritten

    try:
        result = application.apply(loaded, target=target, check="off", progress=progress, **chosen)
    except CheckError as error:
        return None, [f"without the rules: {error}"]
    return Rewritten(result.model, result.trace, tuple(result.rules)), result.notes
