"""``onnxrewrite check``: whether two models compute the same, and whether a certificate holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import progress_bar, say, show
from onnxrewrite.cli.input_arrays import feeds
from onnxrewrite.cli.output import write_json
from onnxrewrite.cli.replay import tell_versions
from onnxrewrite.errors import CheckError, UsageError

if TYPE_CHECKING:
    from onnxrewrite.certificate.repetition import Original

_SAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class _Inputs(options.Inputs):
    """The same, and the random ones."""

    samples: Annotated[
        int,
        typer.Option("--samples", min=1, metavar="N", help="Sets of random inputs at each binding of the dimensions."),
    ] = _SAMPLES
    seed: options.Seed = 0


def check(
    a: Annotated[str | None, typer.Argument(metavar="A", help="The original.", show_default=False)] = None,
    b: Annotated[
        str | None, typer.Argument(metavar="B", help="What shall compute the same.", show_default=False)
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option(
            "--certificate",
            metavar="CERT",
            help="Repeat the rewriting and the checks that a certificate tells of; A and B are then where it says.",
        ),
    ] = None,
    *,
    code: options.Repetition,
    inputs: _Inputs,
    told: options.DetailedOutput,
) -> None:
    """Compare the outputs of two models, or see whether a certificate holds.

    Both are run on the same inputs.  B may be no less accurate than A, up to a small factor, where both are
    measured against A evaluated in float64.

    With --certificate, input, output and rules must be what they were, the same bytes must come out, and the checks of
    every rewrite and of the whole model, on the inputs of the same seed, must say the same: the same verdicts, and
    errors within a factor of 4.  Code that the certificate names, rule files and packages, is run with --trust only,
    and only if its digest is the one that the certificate lists.

    Exit status: 0 equal; 1 not equal, or other inputs or outputs; 2 a model that cannot be read or run, or code that is
    not trusted.
    """
    options.one_voice(told.quiet, told.verbose)
    report = options.json_path(told.json, a, b, certificate)
    inputs.check()
    if certificate is not None:
        if inputs.dims or inputs.samples != _SAMPLES or inputs.seed:
            raise UsageError("--certificate says what --dim, --samples and --seed are; leave them out")
        from onnxrewrite.certificate.repetition import Original

        _recheck(Original(certificate, a, b, code.rules, trust=code.trust), inputs.files, told, report)
        return
    if a is None or b is None:
        raise UsageError(f"missing argument '{'A' if a is None else 'B'}'; see onnxrewrite check --help")
    if code.rules or code.trust:
        option = "--rules" if code.rules else "--trust"
        raise UsageError(f"{option} is for --certificate; two models are compared without rules")

    from onnxrewrite import io
    from onnxrewrite.api import application
    from onnxrewrite.checks.findings import model_check
    from onnxrewrite.report.table import check_report, verdict

    with progress_bar(wanted=not told.quiet) as progress:
        first, second = io.load(a), io.load(b)
        arrays = inputs.feeds(first)
        if progress is not None:
            progress("compare", 0, 0)
        found = application.check(
            first, second, dims=inputs.dims, inputs=arrays, seed=inputs.seed, samples=inputs.samples
        )
    findings = model_check(found)
    write_json({"a": a, "b": b, **findings, "seconds": {"check": round(found.seconds, 3)}}, told.json, report)
    if told.line:
        say(verdict(findings))
    if told.table:
        show(check_report, findings, a, b, verbose=told.verbose)
    if not found.ok:
        raise typer.Exit(1)
    if found.skipped:
        raise UsageError(f"the models were not compared: {found.skipped}")


def _recheck(original: Original, files: dict[str, Path], told: options.DetailedOutput, report: Path | None) -> None:
    from onnxrewrite import io
    from onnxrewrite.checks.findings import model_check
    from onnxrewrite.report.table import check_report

    certificate = original.where
    with progress_bar(wanted=not told.quiet) as progress:
        found = {**original.arrays(), **files}
        arrays = feeds(io.load(original.source), found, original.then.options.dims) if found else {}
        repeated, differences = original.recheck(arrays, progress)
    checked = repeated.result.checks
    assert checked.model is not None
    findings, a, b = model_check(checked.model), str(original.source), str(original.output)
    renewed = {"path": certificate, "rewrites": len(repeated.now.rewrites), "differences": differences}
    write_json({"a": a, "b": b, **findings, "certificate": renewed}, told.json, report)
    tell_versions(repeated)
    if told.table:
        show(check_report, findings, a, b, verbose=told.verbose)
    if differences:
        more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
        raise CheckError(f"{certificate}: the checks say otherwise now: {differences[0]}{more}")
    if told.json != "-":
        say(f"{certificate}: holds; {len(repeated.now.rewrites)} rewrites, {checked.sites} run by themselves again")
