"""``onnxrewrite sensitivity``: which nodes lose the most when they are quantized."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import Progress, progress_bar, say, show
from onnxrewrite.cli.input_arrays import feeds, sizes
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import Rest, UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.report.plain_reports import QualityReport, SensitivityReport
    from onnxrewrite.suite.precision.node_sensitivity import Sensitivity


class Method(enum.StrEnum):
    """Values of ``--method``; a test compares them with those of the library."""

    ALONE = "alone"
    LOCAL = "local"
    ACCUMULATED = "accumulated"


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The ranking of nodes, and the nodes that the model that is written keeps in float."""

    data: options.Data = None
    method: Annotated[
        Method,
        typer.Option(
            "--method",
            help="alone: quantize one node at a time; local: compare each node's own result, in one run; "
            "accumulated: the same with the errors of the nodes before it.",
        ),
    ] = Method.ALONE
    mode: Annotated[options.Mode, typer.Option("--mode", help="How nodes are quantized.")] = options.Mode.DYNAMIC
    weights: Annotated[
        str, typer.Option("--weights", metavar="DTYPE", help="int8 or uint8; int4 or uint4 where the mode has it.")
    ] = "int8"
    reduce_range: options.ReduceRange = False
    exclude: Annotated[
        list[str],
        typer.Option("--exclude", metavar="NAME", help="Leave this node, scope or operator in float.  Repeatable."),
    ] = field(default_factory=list)
    exclude_top: Annotated[
        int, typer.Option("--exclude-top", min=0, metavar="N", help="Leave the N most sensitive nodes in float.")
    ] = 0
    min_snr: Annotated[
        float | None,
        typer.Option("--min-snr", metavar="DB", help="Leave in float what comes below so many decibels."),
    ] = None
    dim: options.Dims = field(default_factory=list)


def sensitivity(
    model: options.Model,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", help="Write the model quantized without those.")
    ] = None,
    *,
    asked: _Asked,
    top: Annotated[int | None, typer.Option("--top", min=1, metavar="N", help="Lines of the table.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the ranking: .png, .svg or .pdf.")
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    """Rank the nodes of a model by what quantizing them costs.

    With -o the model is written, quantized but for the nodes that --exclude, --exclude-top and --min-snr leave in
    float.

    Exit status: 0 done; 1 the quantized model is not good enough, and was not written; 2 bad arguments or an
    unreadable model.
    """
    path = options.writable(output, "-o") if output is not None else None
    report = options.json_path(json, model, path, plot)
    if (asked.exclude_top or asked.min_snr is not None) and path is None:
        raise UsageError("--exclude-top and --min-snr choose what -o leaves in float; give -o OUT")
    if plot is not None:
        from onnxrewrite.report.plots import plottable

        plottable(options.writable(plot, "--plot"))
    dims = sizes(asked.dim)

    from onnxrewrite import io
    from onnxrewrite.report.sensitivity_report import plot_sensitivity, sensitivity_report
    from onnxrewrite.suite.precision.exclude import exclusion
    from onnxrewrite.suite.precision.node_sensitivity import sensitivity as ranked
    from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings

    settings = QuantizeSettings(
        mode=asked.mode.value,
        weights=asked.weights,  # type: ignore[arg-type]
        reduce_range=asked.reduce_range,
        exclude=tuple(asked.exclude),
    )
    with progress_bar(wanted=True) as progress:
        loaded = io.load(model)
        options.keep_weights(loaded, path, "-o")
        options.keep_weights(loaded, report, "--json")
        feeds(loaded, {}, dims)
        found = ranked(
            loaded, settings, method=asked.method.value, data=asked.data, dims=dims, seed=seed, progress=progress
        )
        told: SensitivityReport = {**found.to_json(), "model": model, "excluded": [], "output": None, "result": None}
        if path is not None:
            names = exclusion(found, top=asked.exclude_top, min_snr=asked.min_snr)
            told["excluded"], told["output"] = list(names), str(path)
            told["result"] = _written(loaded, found, names, path, progress)
    rest = Rest(f"{path} was written" if path is not None else "the ranking is right")
    with rest.part("the report"):
        write_json(told, json, report)
    if plot is not None:
        with rest.part("the plot"):
            plot_sensitivity(told, plot)
    if json != "-":
        show(sensitivity_report, told, top=top)
        if plot is not None and not rest.lacks("the plot"):
            say(f"The plot is {plot}")
    rest.end()


def _written(
    loaded: ir.Model, found: Sensitivity, names: Sequence[str], path: Path, progress: Progress | None
) -> QualityReport | None:
    """Quantize all but some nodes, and write it; its quality."""
    from onnxrewrite.suite.quantization.quantize_settings import excluding
    from onnxrewrite.suite.quantization.quantizer import quantize

    settings = excluding(found.settings, names)
    variants = found.variants
    result = quantize(
        loaded, settings, data=variants.data, calibration=variants.calibration, out=path, progress=progress
    )
    return result.quality.to_json() if result.quality is not None else None
