"""``onnxrewrite half``: a model in float16 or bfloat16, where its values fit."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import progress_bar, say, show
from onnxrewrite.cli.input_arrays import feeds, sizes
from onnxrewrite.cli.output import refusal_told, write_json
from onnxrewrite.errors import Rest


class Dtype(enum.StrEnum):
    """Values of ``--dtype``; a test compares them with those of the library."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True, kw_only=True)
class _Conversion:
    """The conversion: what takes part, and how close the result must come."""

    dtype: Annotated[Dtype, typer.Option("--dtype", help="The precision.")] = Dtype.FLOAT16
    keep: Annotated[
        list[str],
        typer.Option("--keep", metavar="NAME", help="Keep this node, scope or operator in float32.  Repeatable."),
    ] = field(default_factory=list)
    data: options.Data = None
    target: options.Target = options.CPU
    native: Annotated[
        bool, typer.Option("--native", help="Convert only what the target has kernels of that precision for.")
    ] = False
    keep_io: Annotated[
        bool, typer.Option("--keep-io/--no-keep-io", help="Whether inputs and outputs stay float32.")
    ] = True
    max_drop: Annotated[
        float, typer.Option("--max-drop", min=0.0, metavar="X", help="Cosine similarity may fall so far below 1.")
    ] = 0.02
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Whether to run the model for ranges and quality.")
    ] = True
    dim: options.Dims = field(default_factory=list)
    seed: options.Seed = 0


def half(
    model: options.Model,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", help="Where to write; else MODEL.DTYPE.onnx.")
    ] = None,
    *,
    asked: _Conversion,
    told: options.Output,
) -> None:
    """Convert a model to half precision where its values fit, and check how close it comes.

    Nodes stay in float32 whose values leave the range of the precision on the data, and those that the target does not
    run otherwise.

    Exit status: 0 done; 1 the result is not close enough and was not written; 2 bad arguments or an unreadable model.
    """
    path = options.writable(options.output_path(model, output, asked.dtype), "-o" if output is not None else "MODEL")
    report = options.json_path(told.json, model, path)
    dims = sizes(asked.dim)

    from onnxrewrite import io
    from onnxrewrite.report.sensitivity_report import half_report
    from onnxrewrite.suite.precision.half_precision import to_half
    from onnxrewrite.suite.quality.gate import Gate

    with progress_bar(wanted=not told.quiet) as progress:
        loaded = io.load(model)
        options.keep_weights(loaded, path, "-o")
        options.keep_weights(loaded, report, "--json")
        feeds(loaded, {}, dims)
        if progress is not None:
            progress("convert", 0, 0)
        with refusal_told(model, told.json, report):
            found = to_half(
                loaded,
                asked.dtype.value,
                keep=asked.keep,
                data=asked.data,
                dims=dims,
                seed=asked.seed,
                target=asked.target,
                native=asked.native,
                keep_io=asked.keep_io,
                gate=Gate(max_drop=asked.max_drop),
                check=asked.check,
            )
        found.save(path)
    data = {"model": model, "output": str(path), **found.to_json()}
    rest = Rest(f"{path} was written")
    with rest.part("the report"):
        write_json(data, told.json, report)
    if told.line:
        say(str(path))
    if told.table:
        show(half_report, data)
        say("")
        say(f"Wrote {path}")
    rest.end()
