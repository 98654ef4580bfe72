"""``onnxrewrite bench``: how fast variants of a model are, side by side."""

from __future__ import annotations

import enum
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import complain, progress_bar, show
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.system.plain import Json

if TYPE_CHECKING:
    import onnx_ir as ir


class Level(enum.StrEnum):
    """Values of ``--level``; a test compares them with those of the library."""

    DISABLED = "disabled"
    BASIC = "basic"
    EXTENDED = "extended"
    ALL = "all"


def bench(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="The originals, each with a table of its own.", show_default=False),
    ],
    with_: Annotated[
        list[str],
        typer.Option("--with", metavar="FILE", help="Another variant of the one MODEL.  Repeatable."),
    ] = [],  # noqa: B006
    level: Annotated[
        list[Level],
        typer.Option(
            "--level",
            help="Of ONNX Runtime's own optimizations, at which the original is run; all others run at the highest.  "
            "Repeatable; without it, all.",
        ),
    ] = [],  # noqa: B006
    peers: Annotated[
        bool, typer.Option("--peers", help="Add what the other optimizers that are installed make of it.")
    ] = False,
    no_ours: Annotated[bool, typer.Option("--no-ours", help="Leave out what onnxrewrite makes of it.")] = False,
    rules: options.Rules = [],  # noqa: B006
    only: options.Only = [],  # noqa: B006
    without: options.Without = [],  # noqa: B006
    custom_ops: options.CustomOps = [],  # noqa: B006
    lower: options.Lower = options.Lowering.FASTEST,
    target: options.AnyTarget = None,
    provider: options.Provider = None,
    threads: options.Threads = 0,
    dim: options.Dims = [],  # noqa: B006
    input_: options.Inputs = [],  # noqa: B006
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=0.0, metavar="S", help="To run all variants by turns, and again for each batch."),
    ] = 5.0,
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="N,N,...", help="Batch sizes at which to tell the throughput, as in 1,4,16."),
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Whether to measure memory, in a process for each variant.")
    ] = True,
    seed: options.Seed = 0,
    json: options.Json = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the latencies: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Time variants of a model side by side.

    The original as ONNX Runtime optimizes it at each level, what onnxrewrite makes of it, and other files or
    optimizers, all by turns on the same inputs: medians and ratios with 95 % confidence intervals, CPU time, the time
    to create a session, peak memory.

    Exit status: 0 done, whatever became of single variants; 2 a model that cannot be read or run.
    """
    report = options.json_path(json, *models, *with_, plot)
    dims, files, batches = options.sizes(dim), options.files(input_), _batches(batch)
    if with_ and len(models) > 1:
        raise UsageError("--with is for one MODEL; give the others a run of their own")
    if plot is not None:
        from onnxrewrite.report.bench_report import plottable

        plottable(options.writable(plot, "--plot"))

    from onnxrewrite import io
    from onnxrewrite.report.bench_report import bench_report
    from onnxrewrite.report.bench_report import plot as draw
    from onnxrewrite.runtime.settings import Setting
    from onnxrewrite.suite.bench.benchmark import bench as measure
    from onnxrewrite.suite.bench.peers import PEERS
    from onnxrewrite.system.versions import versions

    runs_on, made_for = options.place(provider, target)
    setting = Setting(runs_on, threads)
    loaded = {model: io.load(model) for model in models}
    arrays = {model: options.feeds(loaded[model], files, dims) for model in models}
    optimize = functools.partial(
        _optimized,
        rules=rules,
        only=only,
        without=without,
        target=made_for,
        lower=lower.value,
        threads=threads,
        dims=dims,
        seed=seed,
    )
    found: list[dict[str, Json]] = []
    failed: list[ModelError] = []
    for model in loaded:
        try:
            with progress_bar(wanted=True) as progress:
                result = measure(
                    model,
                    files=with_,
                    ours=None if no_ours else functools.partial(optimize, loaded[model], inputs=arrays[model]),
                    levels=[each.value for each in level or Level],
                    peers=PEERS if peers else (),
                    setting=setting,
                    dims=dims,
                    inputs=arrays[model],
                    seconds=seconds,
                    batches=batches,
                    memory=memory,
                    seed=seed,
                    progress=progress,
                )
        except ModelError as error:  # the others are measured all the same
            failed.append(error)
            continue
        found.append(result.to_json())
        if json != "-":
            show(bench_report, found[-1])
    write_json({"models": found, "seconds": seconds, "seed": seed, "versions": versions()}, json, report)
    if plot is not None and found:
        draw(found, plot)
    for other in failed[:-1]:
        complain(str(other))
    if failed:
        raise failed[-1]


def _optimized(model: ir.Model, **how: Any) -> ir.Model:
    """The model as ``apply`` rewrites it."""
    from onnxrewrite.api import application

    return application.apply(model, **how).model


def _batches(option: str | None) -> list[int]:
    """``--batch``: sizes, each once."""
    sizes = option.split(",") if option is not None else []
    if not all(size.strip().isdecimal() and int(size) for size in sizes):
        raise UsageError(f"--batch {option}: write sizes of one or more, as in --batch 1,4,16")
    return list(dict.fromkeys(map(int, sizes)))
