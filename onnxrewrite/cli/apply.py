"""``onnxrewrite apply``: rewrite a model, check it, write it, say what was done."""

from __future__ import annotations

import enum
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import Progress, progress_bar, say, show
from onnxrewrite.cli.output import refusal_told, write_json
from onnxrewrite.errors import IncompleteError, Rest

if TYPE_CHECKING:
    from onnxrewrite.api.application import Result
    from onnxrewrite.report.summary import Summary


class Level(enum.StrEnum):
    """Values of ``--check``."""

    FULL = "full"
    FAST = "fast"
    OFF = "off"


def apply(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The .onnx file.", show_default=False)],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", help="Where to write; else MODEL.opt.onnx.")
    ] = None,
    rules: options.Rules = [],  # noqa: B006
    only: options.Only = [],  # noqa: B006
    without: options.Without = [],  # noqa: B006
    custom_ops: options.CustomOps = [],  # noqa: B006
    target: options.AnyTarget = None,
    provider: options.Provider = None,
    opset: Annotated[
        int | None, typer.Option("--opset", min=1, metavar="N", help="Bring it to this ai.onnx opset, and keep it.")
    ] = None,
    dim: options.Dims = [],  # noqa: B006
    input_: options.Inputs = [],  # noqa: B006
    check: Annotated[
        Level,
        typer.Option(
            "--check",
            help="full: every rewrite, and the whole model on several samples; fast: on one sample; "
            "off: only whether the result is valid.",
        ),
    ] = Level.FULL,
    lower: options.Lower = options.Lowering.FASTEST,
    threads: options.Threads = 0,
    budget: options.Budget = 20.0,
    named_sums: options.NamedSums = True,
    seed: options.Seed = 0,
    json: options.Json = None,
    report: options.Report = None,
    certificate: Annotated[
        bool,
        typer.Option(
            "--certificate/--no-certificate",
            help="Write OUT.certificate.json: what was done, how it was checked, and what onnxrewrite replay needs.",
        ),
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but write the model.")] = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Rewrite a model, check it, write it.

    Every rewrite is run beside what it replaces, and the whole result beside the original.  A rewrite that
    changes the numbers is undone and reported.  The result is written only when it is right, and then
    completely.
    """
    start = time.perf_counter()
    options.one_voice(quiet, verbose)
    from onnxrewrite.certificate.record import path_for

    path = options.output_path(model, output, "opt")
    record = path_for(path) if certificate and not dry_run else None
    for each in () if dry_run else filter(None, (path, record)):
        options.writable(each, "-o" if output is not None else "MODEL")
    page = options.report_path(report, model, path, record)
    data = options.json_path(json, model, path, record, page)
    dims, files = options.sizes(dim), options.files(input_)

    from onnxrewrite import io
    from onnxrewrite.api import application
    from onnxrewrite.report.summary import summary

    _, made_for = options.place(provider, target)
    with progress_bar(wanted=not quiet) as progress:
        loaded = io.load(model)
        options.keep_weights(loaded, None if dry_run else path, "-o")
        options.keep_weights(loaded, record, "-o")
        options.keep_weights(loaded, data, "--json")
        options.keep_weights(loaded, page, "--report")
        with refusal_told(model, json, data):
            result = application.apply(
                loaded,
                rules=rules,
                only=only,
                without=without,
                target=made_for,
                opset=opset,
                dims=dims,
                inputs=options.feeds(loaded, files, dims),
                check=check.value,
                lower=lower.value,
                threads=threads,
                budget=budget,
                named_sums=named_sums,
                seed=seed,
                progress=progress,
                conflicts=verbose,
            )
        rest = Rest(f"{path} was written" if not dry_run else "the model is right")
        if not dry_run:
            _save(result, path, progress, rest, files if certificate else None)
        if page is not None:
            with rest.part("the page"):
                _write_page(result, model, None if dry_run else path, page, progress)
    result.seconds["total"] = time.perf_counter() - start
    record, page = (None if rest.lacks("its certificate") else record, None if rest.lacks("the page") else page)
    with rest.part("what was done"):
        written = None if dry_run else path
        told = summary(result, model=model, output=written)
        with rest.part("the report"):
            write_json(told, json, data)
        if json != "-":
            _tell(told, written, record, page, quiet=quiet, verbose=verbose)
    rest.end()


def _save(result: Result, path: Path, progress: Progress | None, rest: Rest, certified: dict[str, Path] | None) -> None:
    """Write the model, and its certificate if the files of the given inputs are told."""
    if progress is not None:
        progress("write", 0, 0)
    start = time.perf_counter()
    if certified is None:
        result.save(path)
    else:
        from onnxrewrite.certificate import writing

        try:
            writing.save(result, path, arrays=certified)
        except IncompleteError as error:
            with rest.part("its certificate"):
                raise error
    result.seconds["write"] = time.perf_counter() - start


def _write_page(result: Result, model: str, path: Path | None, page: Path, progress: Progress | None) -> None:
    from onnxrewrite.report.html.page import write_page
    from onnxrewrite.report.summary import summary

    if progress is not None:
        progress("report", 0, 0)
    start = time.perf_counter()
    write_page(result, summary(result, model=model, output=path), page, "--report")
    result.seconds["report"] = time.perf_counter() - start


def _tell(
    data: Summary,
    path: Path | None,
    record: Path | None,
    page: Path | None,
    *,
    quiet: bool,
    verbose: bool,
) -> None:
    if quiet:
        if path is not None:
            say(str(path))
        return
    from onnxrewrite.report.human import size
    from onnxrewrite.report.table import apply_report

    show(apply_report, data, verbose=verbose)
    took = f"in {data['seconds']['total']:.1f} s"
    say("")
    say(
        f"Wrote {path} ({size(data['size']['after'])}){' and its certificate' if record is not None else ''} {took}"
        if path is not None
        else f"Nothing written (--dry-run) {took}"
    )
    if page is not None:
        say(f"The report is {page}")
