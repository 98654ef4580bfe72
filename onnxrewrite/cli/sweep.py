"""``onnxrewrite sweep``: a whole zoo of models through ``apply`` or ``optimize``, several at a time."""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import progress_bar, say, show
from onnxrewrite.cli.input_arrays import sizes
from onnxrewrite.cli.output import write_json
from onnxrewrite.cli.rewriting import Level
from onnxrewrite.errors import StoppedError, UsageError
from onnxrewrite.report.human import plural

if TYPE_CHECKING:
    from onnxrewrite.suite.deploy.pipeline import Pipeline
    from onnxrewrite.suite.sweeping.find import Found
    from onnxrewrite.suite.sweeping.tasks import Work
    from onnxrewrite.suite.sweeping.zoo import Sweep


class Command(enum.StrEnum):
    """Values of ``--command``."""

    APPLY = "apply"
    OPTIMIZE = "optimize"


@dataclass(frozen=True, kw_only=True)
class _How:
    """The command for each model, and the processes that run it."""

    command: Annotated[Command, typer.Option("--command", help="What is done with each model.")] = Command.APPLY
    jobs: Annotated[int, typer.Option("--jobs", min=1, metavar="N", help="Models at a time, a process each.")] = 1
    executor: options.Executor = None
    limit: Annotated[
        float | None, typer.Option("--limit", min=0.0, metavar="SECONDS", help="Give a model up after so long.")
    ] = None
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what earlier sweeps have done.")] = False
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="K/N", help="Do the K-th of N parts only, as 3/50.")
    ] = None
    retry: Annotated[
        list[str],
        typer.Option("--retry", metavar="REASON=N", help="Further attempts; else memory=1, storage=2."),
    ] = field(default_factory=list)
    status: Annotated[
        bool, typer.Option("--status", help="Do nothing; show what is on record, and renew the page.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The settings of what is done."""

    lower: Annotated[
        options.Lowering | None,
        typer.Option(
            "--lower", envvar="ONNXREWRITE_LOWER", help="As for apply; else fused for several models at a time."
        ),
    ] = None
    rules: options.Selection
    measured: options.Measured
    opset: Annotated[int | None, typer.Option("--opset", min=1, metavar="N", help="As for apply.")] = None
    dim: options.Dims = field(default_factory=list)
    threads: Annotated[
        int | None, typer.Option("--threads", min=0, metavar="N", help="Within an operator, where it measures.")
    ] = None
    seed: Annotated[int | None, typer.Option("--seed", min=0, metavar="N", help="Of the generated inputs.")] = None
    target: options.AnyTarget = None
    check: Annotated[Level | None, typer.Option("--check", help="Of apply: as there.")] = None
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE.toml", help="Of optimize: the pipeline.")] = (
        None
    )
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR|NPZ|MODULE:FUNCTION", help="Of optimize: as there.")
    ] = None
    max_drop: Annotated[float | None, typer.Option("--max-drop", metavar="D", help="Of optimize: as there.")] = None
    target_speedup: Annotated[
        float | None, typer.Option("--target-speedup", min=0.0, metavar="X", help="Of optimize: as there.")
    ] = None
    budget: Annotated[
        float | None, typer.Option("--budget", min=0.0, metavar="SECONDS", help="For measuring each model.")
    ] = None

    def work(self, how: _How) -> Work:
        """The work on each model; UsageError where an option is none of the command's."""
        from onnxrewrite.system.cluster import check_jobs

        shared: dict[str, Any] = {
            "rules": tuple(self.rules.rules),
            "only": tuple(self.rules.only),
            "without": tuple(self.rules.without),
            "lower": self.lower.value if self.lower is not None else None,
            "opset": self.opset,
        }
        general = {"dims": sizes(self.dim), "threads": self.threads, "budget": self.budget, "seed": self.seed}
        of_apply = {"target": self.target, "check": self.check.value if self.check else None}
        of_optimize = {n: getattr(self, n) for n in ("config", "data", "max_drop", "target_speedup")}
        _only_own(of_optimize if how.command is Command.APPLY else of_apply, how.command)
        jobs, executor = how.jobs, how.executor
        check_jobs(executor, jobs)
        path, keys = self.measured.measurements, self.measured.signed_by
        if how.command is Command.OPTIMIZE:
            if path is not None and str(path) != os.environ.get("ONNXREWRITE_MEASUREMENTS"):  # which its stages read
                _only_own({"measurements": path}, how.command)
            return _optimize(_given(shared), _given(general), of_optimize)
        from onnxrewrite.suite.sweeping.tasks import Apply

        is_alone = jobs == 1 and executor is None
        shared["lower"] = shared["lower"] or ("fastest" if is_alone or path is not None else "fused")
        shared |= {"measurements": str(path) if path is not None else None, "signed_by": tuple(map(str, keys))}
        return Apply(**_given({**shared, **general, **of_apply}))


def sweep(
    models: Annotated[
        list[str],
        typer.Argument(metavar="DIR|GLOB|FILE...", help="Folders with all below, patterns, files.", show_default=False),
    ],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT_DIR", help="Where to write; else DIR.swept.")
    ] = None,
    *,
    how: _How,
    asked: _Asked,
    told: options.DetailedOutput,
) -> None:
    """Apply, or optimize, all models of a folder.

    OUT_DIR mirrors the folder: a model and its certificate for each, or what optimize writes, and the page sweep.html.
    Models are worked on in processes apart, so one that crashes costs no other.  OUT_DIR/sweep.jsonl is the record: the
    same command again does what is not done yet, and what has changed.  What measures, --lower fastest and optimize, is
    refused with --jobs above 1; with --measurements, --lower fastest measures nothing.  Folders may be URLs of fsspec.

    Exit status: 0 every model is done; 1 a check failed, a process died or took too long, or a model waits; else 2 bad
    arguments, or a model that cannot be read or used; 3 an internal error, which comes before 1.
    """
    options.one_voice(told.quiet, told.verbose)
    out = output if output is not None else _beside(models)
    work = asked.work(how)
    from onnxrewrite.report.sweep_report import sweep_line, sweep_report
    from onnxrewrite.suite.sweeping.find import find
    from onnxrewrite.suite.sweeping.storage import is_url
    from onnxrewrite.suite.sweeping.zoo import Sweep, check_company

    check_company(work, how.jobs)
    found, left_out = find(models, out, work.place)
    report = _report_path(told.json, found, out)
    if not is_url(out):
        options.folder(Path(out), "-o")
    done = Sweep(out, left_out=left_out)
    try:
        _swept(models, found, work, how, done, quiet=told.quiet)
    except StoppedError:
        if told.table and done.by_output:
            show(sweep_report, done.to_json(), verbose=told.verbose)
            say("")
            say(f"{sweep_line(done.to_json())}, in {out}; the same command goes on")
        raise
    data = done.to_json()
    write_json(data, told.json, report)
    if told.table:
        show(sweep_report, data, verbose=told.verbose)
        say("")
    if told.json != "-":
        say(f"{sweep_line(data)}, in {out}, {done.seconds:.1f} s")
    if done.exit_code:
        raise typer.Exit(done.exit_code)


def _swept(models: list[str], found: list[Found], work: Work, how: _How, done: Sweep, *, quiet: bool) -> None:
    """Do the sweep, or only look at what is on record."""
    from onnxrewrite.suite.sweeping.retries import Retries
    from onnxrewrite.suite.sweeping.shards import Shard
    from onnxrewrite.suite.sweeping.zoo import Conduct, conducted, looked_up
    from onnxrewrite.system.cluster import connected

    shard = Shard.parse(how.shard) if how.shard is not None else None
    conduct = Conduct(jobs=how.jobs, limit=how.limit, fresh=how.fresh, shard=shard, retries=Retries.parse(how.retry))
    if how.status:
        looked_up(found, shard, done)
        return
    with contextlib.ExitStack() as stack:
        if how.executor is not None:
            cluster = stack.enter_context(connected(how.executor, how.jobs))
            conduct = replace(conduct, cluster=cluster)
            if work.measures:
                machines = plural(len(cluster.machines), "machine")
                done.notes.append(f"measured on {machines} of the cluster, one model a machine at a time")
        progress = stack.enter_context(progress_bar(wanted=not quiet, unit="model"))
        conducted(models, work, conduct, done, progress)


def _beside(models: list[str]) -> str:
    """``DIR.swept``, if there is one DIR."""
    path = Path(models[0])
    if len(models) == 1 and "://" not in models[0] and not os.path.exists(path) and not has_magic(models[0]):
        raise UsageError(f"MODELS: {path}: no such file or folder")
    if len(models) > 1 or not os.path.isdir(path) or not path.resolve().name:
        raise UsageError("-o: give a folder to write to")
    return str(path.resolve().with_name(f"{path.resolve().name}.swept") if not path.name else Path(f"{path}.swept"))


def _report_path(option: str | None, found: list[Found], folder: str) -> Path | None:
    """The path of ``--json``; UsageError if that is a model, the weights of one, or what the sweep writes."""
    from onnxrewrite import io
    from onnxrewrite.errors import ModelError
    from onnxrewrite.suite.sweeping.journal import FILE
    from onnxrewrite.suite.sweeping.zoo import PAGE

    out = Path(folder)
    own = (out / FILE, out / PAGE, *(out / f.place for f in found))
    path = options.json_path(option, *own, *(each.path for each in found if not each.url))
    if path is None or not os.path.exists(path):
        return path
    real = path.resolve()
    for each in found:
        written = (out / each.place).resolve()
        if real.parent == written.parent and real.name.startswith(written.name):
            raise UsageError(f"--json {path}: would overwrite what belongs to the output {each.place}")
        if not each.url and each.path.resolve().parent in real.parents:
            with contextlib.suppress(ModelError):
                options.keep_weights(io.load(each.path), path, "--json")
    return path


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value not in (None, (), {})}


def _only_own(others: Mapping[str, object], command: Command) -> None:
    """UsageError if an option of the other command was given."""
    for name, value in others.items():
        if value is not None:
            other = Command.OPTIMIZE if command is Command.APPLY else Command.APPLY
            raise UsageError(f"--{name.replace('_', '-')}: is an option of {other}, and this is --command {command}")


def _optimize(shared: dict[str, Any], general: dict[str, Any], own: dict[str, Any]) -> Work:
    """The pipeline of the configuration with what the options say; ``shared`` are those of its stage ``rewrite``."""
    from onnxrewrite.suite.deploy.config import parse, read
    from onnxrewrite.suite.sweeping.tasks import Optimize

    plan: Pipeline = read(own["config"]) if own["config"] is not None else parse({})
    names = [stage.name for stage in plan.stages]
    if shared and "rewrite" not in names:
        raise UsageError(f"--{next(iter(shared))}: there is no stage rewrite in {', '.join(names)}")
    stages = [replace(stage, **shared) if stage.name == "rewrite" else stage for stage in plan.stages]
    settings = _given({name: own[name] for name in ("data", "target_speedup")})
    gate = replace(plan.gate, max_drop=own["max_drop"]) if own["max_drop"] is not None else plan.gate
    return Optimize(plan=replace(plan, stages=stages, gate=gate, **settings, **general))
