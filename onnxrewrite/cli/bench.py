"""``onnxrewrite bench``: how fast variants of a model are, side by side."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import complain, progress_bar, show
from onnxrewrite.cli.decoder_bench import Generation, generate, refuse
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import ModelError, UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.report.plain_reports import BenchReport
    from onnxrewrite.suite.bench.benchmark import Bench
    from onnxrewrite.system.arrays import Outputs


class Level(enum.StrEnum):
    """Values of ``--level``; a test compares them with those of the library."""

    DISABLED = "disabled"
    BASIC = "basic"
    EXTENDED = "extended"
    ALL = "all"


@dataclass(frozen=True, kw_only=True)
class _Variants:
    """The variants that are timed."""

    with_: Annotated[
        list[str],
        typer.Option("--with", metavar="FILE", help="Another variant of the one MODEL.  Repeatable."),
    ] = field(default_factory=list)
    level: Annotated[
        list[Level],
        typer.Option(
            "--level",
            help="Of ONNX Runtime's own optimizations, at which the original is run; all others run at the highest.  "
            "Repeatable; without it, all.",
        ),
    ] = field(default_factory=list)
    peers: Annotated[
        bool, typer.Option("--peers", help="Add what the other optimizers that are installed make of it.")
    ] = False
    no_ours: Annotated[bool, typer.Option("--no-ours", help="Leave out what onnxrewrite makes of it.")] = False
    rules: options.Selection
    lower: options.Lower = options.Lowering.FASTEST


@dataclass(frozen=True, kw_only=True)
class _Timing:
    """The timing: on which processor, at which sizes, for how long."""

    place: options.Place
    threads: options.Threads = 0
    inputs: options.Inputs
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=0.0, metavar="S", help="To run all variants by turns, and again for each batch."),
    ] = 5.0
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="N,N,...", help="Batch sizes at which to tell the throughput, as in 1,4,16."),
    ] = None
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Whether to measure memory, in a process for each variant.")
    ] = True
    seed: options.Seed = 0


def bench(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="The originals, each with a table of its own.", show_default=False),
    ],
    *,
    variants: _Variants,
    timing: _Timing,
    generation: Generation,
    json: options.Json = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the latencies: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Time variants of a model side by side.

    The original as ONNX Runtime optimizes it at each level, what onnxrewrite makes of it, and other files or
    optimizers, all by turns on the same inputs: medians and ratios with 95 % confidence intervals, CPU time, the time
    to create a session, peak memory.

    With --generate, MODELs are decoders: the time to the first token, and for each further one.

    Exit status: 0 done, whatever became of single variants; 2 a model that cannot be read or run.
    """
    report = options.json_path(json, *models, *variants.with_, plot)
    timing.inputs.check()
    _batches(timing.batch)
    if generation.generate:
        unused = {"--peers": variants.peers, "--level": variants.level, "--batch": timing.batch, "--plot": plot}
        refuse(unused)
        place, runs = (timing.place.found()[0], timing.threads), (timing.seconds, timing.memory)
        generate([*models, *variants.with_], generation, place, runs, json, report)
        return
    if variants.with_ and len(models) > 1:
        raise UsageError("--with is for one MODEL; give the others a run of their own")
    if plot is not None:
        from onnxrewrite.report.plots import plottable

        plottable(options.writable(plot, "--plot"))

    from onnxrewrite import io
    from onnxrewrite.report.bench_report import bench_report
    from onnxrewrite.report.bench_report import plot as draw
    from onnxrewrite.system.versions import versions

    timing.place.found()  # what is wrong with it is told before a model is read
    loaded = {model: io.load(model) for model in models}
    arrays = {model: timing.inputs.feeds(loaded[model]) for model in models}
    found: list[BenchReport] = []
    failed: list[ModelError] = []
    for model in loaded:
        try:
            found.append(_measured(model, loaded[model], arrays[model], variants, timing).to_json())
        except ModelError as error:  # the others are measured all the same
            failed.append(error)
            continue
        if json != "-":
            show(bench_report, found[-1])
    told = {"models": found, "seconds": timing.seconds, "seed": timing.seed, "versions": versions()}
    write_json(told, json, report)
    if plot is not None and found:
        draw(found, plot)
    for other in failed[:-1]:
        complain(str(other))
    if failed:
        raise failed[-1]


def _measured(model: str, loaded: ir.Model, arrays: Outputs, variants: _Variants, timing: _Timing) -> Bench:
    from onnxrewrite.runtime.settings import Setting
    from onnxrewrite.suite.bench.benchmark import bench as measure
    from onnxrewrite.suite.bench.peers import PEERS

    provider, target = timing.place.found()
    ours = functools.partial(_optimized, loaded, arrays, target, variants, timing)
    with progress_bar(wanted=True) as progress:
        return measure(
            model,
            files=variants.with_,
            ours=None if variants.no_ours else ours,
            levels=[each.value for each in variants.level or Level],
            peers=PEERS if variants.peers else (),
            setting=Setting(provider, timing.threads),
            dims=timing.inputs.dims,
            inputs=arrays,
            seconds=timing.seconds,
            batches=_batches(timing.batch),
            memory=timing.memory,
            seed=timing.seed,
            progress=progress,
        )


def _optimized(loaded: ir.Model, arrays: Outputs, target: str, variants: _Variants, timing: _Timing) -> ir.Model:
    """The model as ``apply`` rewrites it."""
    from onnxrewrite.api import application

    return application.apply(
        loaded,
        rules=variants.rules.rules,
        only=variants.rules.only,
        without=variants.rules.without,
        target=target,
        dims=timing.inputs.dims,
        inputs=arrays,
        lower=variants.lower.value,
        threads=timing.threads,
        seed=timing.seed,
    ).model


def _batches(option: str | None) -> list[int]:
    """``--batch``: sizes, each once."""
    sizes = option.split(",") if option is not None else []
    if not all(size.strip().isdecimal() and int(size) for size in sizes):
        raise UsageError(f"--batch {option}: write sizes of one or more, as in --batch 1,4,16")
    return list(dict.fromkeys(map(int, sizes)))
