"""``onnxrewrite replay``: repeat what a certificate tells of, and arrive at the same bytes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import complain, progress_bar, say

if TYPE_CHECKING:
    from onnxrewrite.certificate.repetition import Repeated


def replay(
    certificate: Annotated[
        str, typer.Argument(metavar="CERT", help="The certificate, OUT.certificate.json.", show_default=False)
    ],
    input_: Annotated[
        str | None, typer.Option("--input", metavar="MODEL", help="The input; else where the certificate says it is.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the result; else it is only compared.")
    ] = None,
    *,
    code: options.Repetition,
    quiet: options.Quiet = False,
) -> None:
    """Repeat the rewriting that a certificate tells of.

    The input, the output if it is there, and the rules must be what they were, and the same bytes must come out.  No
    check is run again: see onnxrewrite check --certificate.  Code that the certificate names, rule files and packages,
    is run with --trust only, and only if its digest is the one that the certificate lists.

    Exit status: 0 the same bytes; 1 something differs; 2 a certificate, model or rule that cannot be used, or code that
    is not trusted.
    """
    start = time.perf_counter()
    if output is not None:
        options.writable(output, "-o")

    from onnxrewrite import io
    from onnxrewrite.certificate.repetition import Original

    with progress_bar(wanted=not quiet) as progress:
        repeated = Original(certificate, input_, rules=code.rules, trust=code.trust).replay(progress)
        if output is not None:
            options.keep_weights(repeated.result.original, Path(output), "-o")
            io.save(repeated.result.model, output)
    tell_versions(repeated)
    if not quiet:
        count = len(repeated.now.rewrites)
        say(f"{certificate}: the same bytes after {count} rewrites, in {time.perf_counter() - start:.1f} s")


def tell_versions(repeated: Repeated) -> None:
    """One line if versions have changed, although nothing else has."""
    if repeated.versions:
        complain(f"versions have changed, the result has not: {', '.join(repeated.versions)}")
