"""``onnxrewrite apply``: rewrite a model, check it, write it, say what was done."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import Progress, progress_bar, say, show
from onnxrewrite.cli.output import refusal_told, write_json
from onnxrewrite.cli.rewriting import Rewriting
from onnxrewrite.errors import IncompleteError, Rest

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.api.application import Result
    from onnxrewrite.report.summary import Summary


@dataclass(frozen=True, kw_only=True)
class _Output:
    """The files that are wanted, and how much is printed."""

    json: options.Json = None
    report: Annotated[
        str | None,
        typer.Option(
            "--report", metavar="FILE.html", help="The report as one HTML page, with the graph before and after."
        ),
    ] = None
    certificate: Annotated[
        bool,
        typer.Option(
            "--certificate/--no-certificate",
            help="Write OUT.certificate.json: what was done, how it was checked, and what onnxrewrite replay needs.",
        ),
    ] = True
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but write the model.")] = False
    quiet: options.Quiet = False
    verbose: options.Verbose = False


@dataclass
class _Paths:
    """The files that are written; None for what is not."""

    model: Path | None
    certificate: Path | None
    page: Path | None
    report: Path | None

    def keep_weights(self, loaded: ir.Model) -> None:
        """UsageError if the weights of the model lie in one of them."""
        named = (self.model, "-o"), (self.certificate, "-o"), (self.report, "--json"), (self.page, "--report")
        for path, option in named:
            options.keep_weights(loaded, path, option)


def apply(
    model: options.Model,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", help="Where to write; else MODEL.opt.onnx.")
    ] = None,
    *,
    asked: Rewriting,
    told: _Output,
) -> None:
    """Rewrite a model, check it, write it.

    Every rewrite is run beside what it replaces, and the whole result beside the original.  A rewrite that
    changes the numbers is undone and reported.  The result is written only when it is right, and then
    completely.
    """
    start = time.perf_counter()
    options.one_voice(told.quiet, told.verbose)
    paths = _paths(model, output, told)
    asked.inputs.check()

    from onnxrewrite import io
    from onnxrewrite.report.summary import summary

    _, target = asked.place.found()
    with progress_bar(wanted=not told.quiet) as progress:
        loaded = io.load(model)
        paths.keep_weights(loaded)
        with refusal_told(model, told.json, paths.report):
            result = asked.rewritten(loaded, target, progress, conflicts=told.verbose)
        rest = Rest(f"{paths.model} was written" if paths.model is not None else "the model is right")
        if paths.model is not None:
            _save(result, paths.model, progress, rest, asked.inputs.files if told.certificate else None)
        if paths.page is not None:
            with rest.part("the page"):
                _write_page(result, model, paths.model, paths.page, progress)
    result.seconds["total"] = time.perf_counter() - start
    if rest.lacks("its certificate"):
        paths.certificate = None
    if rest.lacks("the page"):
        paths.page = None
    with rest.part("what was done"):
        data = summary(result, model=model, output=paths.model)
        with rest.part("the report"):
            write_json(data, told.json, paths.report)
        if told.json != "-":
            _tell(data, paths, quiet=told.quiet, verbose=told.verbose)
    rest.end()


def _paths(model: str, output: str | None, told: _Output) -> _Paths:
    """The files to write; UsageError if one of them cannot be, or would overwrite another."""
    from onnxrewrite.certificate.record import path_for

    path = options.output_path(model, output, "opt")
    record = path_for(path) if told.certificate and not told.dry_run else None
    for each in () if told.dry_run else filter(None, (path, record)):
        options.writable(each, "-o" if output is not None else "MODEL")
    page = options.report_path(told.report, model, path, record)
    report = options.json_path(told.json, model, path, record, page)
    return _Paths(None if told.dry_run else path, record, page, report)


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


def _tell(data: Summary, paths: _Paths, *, quiet: bool, verbose: bool) -> None:
    if quiet:
        if paths.model is not None:
            say(str(paths.model))
        return
    from onnxrewrite.report.human import size
    from onnxrewrite.report.table import apply_report

    show(apply_report, data, verbose=verbose)
    took = f"in {data['seconds']['total']:.1f} s"
    certified = " and its certificate" if paths.certificate is not None else ""
    say("")
    say(
        f"Wrote {paths.model} ({size(data['size']['after'])}){certified} {took}"
        if paths.model is not None
        else f"Nothing written (--dry-run) {took}"
    )
    if paths.page is not None:
        say(f"The report is {paths.page}")
