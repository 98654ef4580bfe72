"""``onnxrewrite optimize``: from an exported model to a deployable one, in stages that are measured and gated."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import progress_bar, say, show
from onnxrewrite.cli.input_arrays import sizes
from onnxrewrite.cli.output import refusal_told, write_json
from onnxrewrite.errors import Rest, UsageError

if TYPE_CHECKING:
    from onnxrewrite.suite.deploy.pipeline import Pipeline


class Objective(enum.StrEnum):
    """Values of ``--objective``."""

    LATENCY = "latency"
    SIZE = "size"


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The pipeline."""

    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE.toml", help="The pipeline; options overrule it.")
    ] = None
    stages: Annotated[
        str | None, typer.Option("--stages", metavar="NAME,NAME,...", help="The stages to run, in this order.")
    ] = None
    target_speedup: Annotated[
        float | None, typer.Option("--target-speedup", min=0.0, metavar="X", help="Leave out lossy stages beyond this.")
    ] = None
    budget: Annotated[
        float | None,
        typer.Option("--budget", min=0.0, metavar="SECONDS", help="Begin no stage, and end searches, after so long."),
    ] = None
    objective: Annotated[
        Objective | None,
        typer.Option(
            "--objective", help="latency: faster, or smaller and no slower; size: smaller, whatever it takes."
        ),
    ] = None
    max_drop: Annotated[
        float | None,
        typer.Option("--max-drop", metavar="D", help="Of the metric; else of the cosine similarity below 1 (0.02)."),
    ] = None
    data: options.Data = None
    samples: options.Samples = None
    batch: options.Batch = None
    metric: options.Metric = None
    dim: options.Dims = field(default_factory=list)
    provider: options.Provider = None
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=0, metavar="N", help="Within an operator; 0 leaves it to ONNX Runtime."),
    ] = None
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.0, metavar="S", help="To time each proposal of a stage (2).")
    ] = None
    memory: Annotated[
        bool | None, typer.Option("--memory/--no-memory", help="Whether to measure memory, in a process each.")
    ] = None
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Of the generated data.")] = None
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A first look: time little, measure no memory, leave out what seldom wins."),
    ] = False

    def settings(self) -> dict[str, Any]:
        """The options that hold for the whole pipeline."""
        given = {
            "target_speedup": self.target_speedup,
            "budget": self.budget,
            "objective": self.objective.value if self.objective is not None else None,
            "data": self.data,
            "samples": self.samples,
            "batch": self.batch,
            "metric": self.metric,
            "dims": sizes(self.dim) or None,
            "provider": self.provider,
            "threads": self.threads,
            "seconds": self.seconds,
            "memory": self.memory,
            "seed": self.seed,
        }
        return {name: value for name, value in given.items() if value is not None}

    def plan(self, settings: dict[str, Any]) -> Pipeline:
        """The pipeline of the configuration, with what the options say."""
        from onnxrewrite.suite.deploy.config import parse, read

        plan = read(self.config) if self.config is not None else parse({})
        if self.stages is not None:
            by_name = {stage.name: stage for stage in plan.stages}
            names = [name.strip() for name in self.stages.split(",")]
            if len(set(names)) != len(names):
                raise UsageError(f"--stages {self.stages}: names a stage twice")
            chosen = parse({"stages": names}, "--stages").stages
            plan = replace(plan, stages=[by_name.get(stage.name, stage) for stage in chosen])
        if self.max_drop is not None:
            plan = replace(plan, gate=replace(plan.gate, max_drop=self.max_drop))
        return replace(plan.quick() if self.quick else plan, **settings)


def optimize(
    model: options.Model,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT_DIR", help="The folder to write to; else MODEL.deploy."),
    ] = None,
    *,
    asked: _Asked,
    keep: Annotated[bool, typer.Option("--keep", help="Keep intermediate models, below OUT_DIR/.work.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what an interrupted run has found.")] = False,
    told: options.DetailedOutput,
) -> None:
    """Make a model ready to deploy: rewritten, quantized, with its session options.

    Each stage proposes models; each is timed beside the original, run on the data and judged.  What does not pass the
    gate, or brings nothing, is taken back with its reason.  OUT_DIR gets model.onnx, report.json, report.html and
    run.py, which runs the model with the options that were found.

    Exit status: 0 done, also when every stage was taken back; 1 the result does not pass the gate, or a required stage
    was taken back: nothing is written but the reason, to --json; 2 bad arguments or an unreadable model.
    """
    options.one_voice(told.quiet, told.verbose)
    path = output if output is not None else Path(f"{Path(model).with_suffix('')}.deploy")
    given = asked.settings()

    from onnxrewrite import io
    from onnxrewrite.suite.deploy.emit import MODEL, PAGE, RUN
    from onnxrewrite.suite.deploy.shipped import REFERENCE

    written = options.json_path(told.json, model, *(path / name for name in (MODEL, PAGE, RUN, REFERENCE)))
    loaded = io.load(model)
    options.keep_weights(loaded, written, "--json")
    plan = asked.plan(given)
    del loaded
    options.folder(path, "-o")
    with progress_bar(wanted=not told.quiet) as progress, refusal_told(model, told.json, written):
        outcome = plan.run(model, path, keep=keep, fresh=fresh, progress=progress)
    report = outcome.to_json()
    rest = Rest(f"{outcome.files['model']} was written")
    with rest.part("the report"):
        write_json(report, told.json, written)
    if told.line:
        say(outcome.files["model"])
    if told.table:
        from onnxrewrite.report.deploy_report import deploy_report

        show(deploy_report, report, verbose=told.verbose)
        say("")
        say(f"Wrote {', '.join(outcome.files.values())} in {outcome.seconds:.1f} s")
    rest.end()
