"""``onnxrewrite check``: whether two models compute the same."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import progress_bar, say, show
from onnxrewrite.cli.files import write_json
from onnxrewrite.errors import UsageError


def check(
    a: Annotated[str, typer.Argument(metavar="A", help="The original.", show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", help="What shall compute the same.", show_default=False)],
    dim: options.Dims = [],  # noqa: B006
    input_: options.Inputs = [],  # noqa: B006
    samples: Annotated[
        int,
        typer.Option("--samples", min=1, metavar="N", help="Sets of random inputs at each binding of the dimensions."),
    ] = 3,
    seed: options.Seed = 0,
    json: options.Json = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Compare the outputs of two models.

    Both are run on the same inputs.  B may be no less accurate than A, up to a small factor, where both are
    measured against A evaluated in float64.

    Exit status: 0 equal; 1 not equal, or other inputs or outputs; 2 a model that cannot be read or run.
    """
    options.one_voice(quiet, verbose)
    report = options.json_path(json, a, b)
    dims, files = options.sizes(dim), options.files(input_)

    from onnxrewrite import pipeline
    from onnxrewrite.ir import io
    from onnxrewrite.report.summary import model_check
    from onnxrewrite.report.table import check_report, verdict

    with progress_bar(wanted=not quiet) as progress:
        first, second = io.load(a), io.load(b)
        arrays = options.feeds(first, files, dims)
        if progress is not None:
            progress("compare", 0, 0)
        found = pipeline.check(first, second, dims=dims, inputs=arrays, seed=seed, samples=samples)
    data = {"a": a, "b": b, **model_check(found), "seconds": {"check": round(found.seconds, 3)}}
    write_json(data, json, report)
    if quiet:
        if json != "-":
            say(verdict(data))
    elif json != "-":
        show(check_report(data, a, b, verbose=verbose))
    if not found.ok:
        raise typer.Exit(1)
    if found.skipped:
        raise UsageError(f"the models were not compared: {found.skipped}")
