"""Variants of a model side by side: as ONNX Runtime optimizes it, as we do, as others do.

All of them are timed by turns in one process, on the same inputs; memory is measured in processes of their own.  How a
model is optimized by us is handed in as a function: this module does not know the pipeline.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.checks.model import Baseline
from onnxrewrite.errors import CheckError, ModelError, OnnxRewriteError, UsageError
from onnxrewrite.inputs.bindings import Binding
from onnxrewrite.inputs.workload import Workload, batch_dims, workload
from onnxrewrite.io.statistics import file_bytes, node_count
from onnxrewrite.measure.model_times import model_times
from onnxrewrite.measure.peak_memory import Use, used
from onnxrewrite.measure.timing import Interval, Timing, interleave
from onnxrewrite.reference.tolerance import finite
from onnxrewrite.report.html import markup
from onnxrewrite.report.plain_reports import BenchReport, VariantRow
from onnxrewrite.runtime.session import one_line
from onnxrewrite.runtime.settings import DEFAULT, LEVELS, Level, Runner, Setting, open_runner
from onnxrewrite.suite.bench.peers import LIMIT, Peer, attempts
from onnxrewrite.system.arrays import Feeds

Kind: TypeAlias = Literal["original", "ours", "file", "peer"]
Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is done at the moment, how much of it is done, and how much is left."""


@dataclass(frozen=True)
class Error:
    """The error of a variant's outputs against the original's, with ONNX Runtime's own optimizations off.

    Attributes:
        largest: Relative, over all outputs; 0 where they are equal bit by bit, None where it is not finite.
        failure: The first difference, in one line; empty if there is none.
    """

    largest: float | None
    failure: str = ""


@dataclass(frozen=True)
class Variant:
    """One of those that are compared, and what was found out about it.

    Attributes:
        name: The name; no two variants have the same.
        kind: The origin of the model.
        level: Of ONNX Runtime's own optimizations, at which it runs.
        version: Of the peer that made it.
        optimization: Seconds that it took to make it.
        nodes: The number of nodes, Constants not counted.
        size: Bytes of its file, and of the weights outside of it.
        timing: Its runs.
        ratio: Its time to that of the original at the highest level, round by round.
        creation: Seconds to create a session.
        memory: Bytes at the peak of a process that opens and runs it, without what Python and its libraries take.
        error: Against the original; None for the original, and where they could not be compared.
        throughput: Batch size to samples a second.
        failure: The reason why there are no further results, in one line.
    """

    name: str
    kind: Kind
    level: Level
    version: str = ""
    optimization: float | None = None
    nodes: int | None = None
    size: int | None = None
    timing: Timing | None = None
    ratio: Interval | None = None
    creation: Interval | None = None
    memory: int | None = None
    error: Error | None = None
    throughput: Mapping[int, Interval] = field(default_factory=dict)
    failure: str = ""

    def to_json(self) -> VariantRow:
        """Plain data; seconds, bytes, samples a second."""
        return {
            "name": self.name,
            "kind": self.kind,
            "level": self.level,
            "version": self.version,
            "optimization": self.optimization,
            "nodes": self.nodes,
            "size": self.size,
            "memory": self.memory,
            "failure": self.failure,
            "timing": None if self.timing is None else self.timing.to_json(),
            "ratio": None if self.ratio is None else self.ratio.to_json(),
            "creation": None if self.creation is None else self.creation.to_json(),
            "error": None if self.error is None else {"largest": self.error.largest, "failure": self.error.failure},
            "throughput": {str(batch): found.to_json() for batch, found in self.throughput.items()},
        }


@dataclass(frozen=True)
class Bench:
    """The result of ``bench``.

    Attributes:
        model: The path of the original, or the name of its graph.
        setting: The session setting; its level is that of all variants but the originals of lower levels.
        binding: The sizes at which it was run.
        variants: In the order in which they were asked for; those that failed, too.
        notes: Messages about what could not be done.
    """

    model: str
    setting: Setting
    binding: Binding
    variants: Sequence[Variant]
    notes: Sequence[str] = ()

    @property
    def timed(self) -> list[Variant]:
        """Those that ran."""
        return [v for v in self.variants if v.timing is not None]

    def __getitem__(self, name: str) -> Variant:
        """The variant of this name; KeyError if there is none."""
        return {v.name: v for v in self.variants}[name]

    def to_json(self) -> BenchReport:
        """Plain data."""
        return {
            "model": self.model,
            "reference": original_at(self.setting.level),
            "provider": self.setting.provider,
            "threads": self.setting.threads,
            "binding": dict(self.binding),
            "variants": [v.to_json() for v in self.variants],
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        """A table for notebooks: latencies in milliseconds and ratios to the original, with 95 % intervals."""
        rows = []
        for each in self.variants:
            latency = each.timing.latency if each.timing is not None else None
            rows.append([each.name, _shown(latency, 1e3), _shown(each.ratio), each.failure])
        at = ", ".join(f"{name}={size}" for name, size in self.binding.items())
        head = markup.tag(
            "p", markup.tag("strong", self.model), f" at {at}" if at else "", f", {self.setting.provider}"
        )
        table = markup.table(["variant", "latency, ms>", "ratio>", ""], rows)
        return str(markup.tag("div", head, table, *(markup.tag("p", note) for note in self.notes)))


def _shown(found: Interval | None, factor: float = 1.0) -> str:
    """``1.23 (1.21–1.26)``."""
    if found is None:
        return ""
    median, low, high = (f"{factor * number:.3g}" for number in (found.median, found.low, found.high))
    return f"{median} ({low}–{high})"


def original_at(level: Level) -> str:
    """The name of the original as a variant, run at this level of ONNX Runtime's optimizations."""
    return f"original, {level}"


def bench(
    model: io.Source,
    *,
    files: Sequence[str | Path] = (),
    ours: Callable[[], ir.Model] | None = None,
    levels: Sequence[Level] = tuple(LEVELS),
    peers: Sequence[Peer] = (),
    setting: Setting = DEFAULT,
    dims: Mapping[str, int] | None = None,
    inputs: Feeds | None = None,
    seconds: float = 5.0,
    batches: Sequence[int] = (),
    memory: bool = True,
    seed: int = 0,
    limit: float = LIMIT,
    progress: Progress | None = None,
) -> Bench:
    """Time variants of a model by turns.

    Args:
        model: The original: a path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
        files: Other models with the same inputs.
        ours: Optimizes the model; its CheckError or ModelError is told in the result.
        levels: Of ONNX Runtime's own optimizations, at which the original is run, one at least; all others run at the
            highest of them, which replaces the one in ``setting``.
        peers: Other optimizers; those that are not installed are noted.
        setting: Provider, threads.
        dims: Sizes of named dimensions; the others are typical ones.
        inputs: Arrays by name; the others are generated.
        seconds: For the timing of all variants together, and again for each batch size.
        batches: Sizes of the batch at which to tell the throughput, where the model leaves it open.
        memory: Measure the peak of memory, which takes a process for each variant.
        seed: Of the generated inputs.
        limit: Seconds that a process of a peer, or one that measures memory, may take.
        progress: Told what is done.

    Raises:
        ModelError: A model or a file cannot be read, no inputs can be made up, or no variant runs.
        UsageError: No level is given; what ``ours`` raises.
    """
    order: list[Level] = [level for level in LEVELS if level in levels]
    if not order:
        raise UsageError(f"levels: give one at least of {', '.join(LEVELS)}")
    with tempfile.TemporaryDirectory(prefix="onnxrewrite-") as folder:
        task = _Bench(model, Path(folder), replace(setting, level=order[-1]), dims or {}, inputs or {}, seed, progress)
        task.add_originals(order)
        if ours is not None:
            task.add_ours(ours)
        task.add_files(files)
        task.add_peers(peers, limit)
        if memory:
            task.measure_memory(limit)
        task.compare()
        task.measure_time(seconds)
        task.measure_throughput(batches, seconds)
        return task.result


class _Bench:
    """One call of ``bench``: variants by name, and the files that they lie in."""

    def __init__(
        self,
        model: io.Source,
        folder: Path,
        setting: Setting,
        dims: Mapping[str, int],
        inputs: Feeds,
        seed: int,
        progress: Progress | None,
    ):
        self.original = io.load(model)
        self.folder = folder
        self.setting = setting
        self.dims, self.inputs, self.seed = dims, inputs, seed
        self.progress = progress or (lambda phase, done, left: None)
        path = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
        self.source = Path(path) if path is not None else self._stored(self.original, "original")
        self.name = path or self.original.graph.name or "model"
        self.load = self._workload(dims)
        self.variants: dict[str, Variant] = {}
        self.paths: dict[str, Path] = {}
        self.notes: list[str] = []

    @property
    def result(self) -> Bench:
        """The variants and notes so far."""
        return Bench(self.name, self.setting, self.load.binding, list(self.variants.values()), list(self.notes))

    @property
    def _alive(self) -> list[Variant]:
        return [v for v in self.variants.values() if not v.failure]

    def add_originals(self, levels: Sequence[Level]) -> None:
        """The original at each level of ONNX Runtime's optimizations."""
        for level in levels:
            self._add(Variant(original_at(level), "original", level), self.source, self.original)

    def add_ours(self, optimize: Callable[[], ir.Model]) -> None:
        """Add the model as we optimize it; if we refuse to, the variant has failed."""
        self.progress("rewrite", 0, 0)
        variant = Variant("ours", "ours", self.setting.level)
        start = time.perf_counter()
        try:
            made = optimize()
        except (CheckError, ModelError) as error:
            self.variants[variant.name] = replace(variant, failure=str(error))
            return
        self._add(replace(variant, optimization=time.perf_counter() - start), self._stored(made, "ours"), made)

    def add_files(self, files: Sequence[str | Path]) -> None:
        """Models that somebody else has made."""
        names = Counter(Path(file).name for file in files)
        for file in dict.fromkeys(map(Path, files)):
            name = file.name if names[file.name] == 1 and file.name not in self.variants else str(file)
            self._add(Variant(name, "file", self.setting.level), file, io.load(file))

    def add_peers(self, peers: Sequence[Peer], limit: float) -> None:
        """Add the results of other optimizers."""
        missing = [p.name for p in peers if not p.installed]
        if missing:
            self.notes.append(f"not installed: {', '.join(missing)}")
        present = [p for p in peers if p.installed]
        for number, found in enumerate(attempts(present, self.source, self.folder, limit=limit)):
            self.progress("peers", number + 1, len(present) - number - 1)
            variant = Variant(found.peer, "peer", self.setting.level, found.version, found.seconds)
            if found.path is None:
                self.variants[variant.name] = replace(variant, failure=found.failure)
                continue
            try:
                self._add(variant, found.path, io.load(found.path))
            except ModelError as error:
                self.variants[variant.name] = replace(variant, failure=f"its result cannot be read: {error}")

    def measure_memory(self, limit: float) -> None:
        """The peak of memory of each; one that takes its process down is not run in this one."""
        uses = [Use(v.name, self.paths[v.name], self.load.feeds, self._setting(v)) for v in self._alive]
        for number, (use, found) in enumerate(used(uses, limit=limit)):
            self.progress("memory", number + 1, len(uses) - number - 1)
            self._set(self.variants[use.name], memory=found.peak, failure=found.failure)

    def compare(self) -> None:
        """The error of each variant that is not the original."""
        others = [v for v in self._alive if v.kind != "original"]
        if not others:
            return
        baseline = Baseline(str(self.source), dims=self.dims, inputs=self.inputs, seed=self.seed, samples=1)
        for number, variant in enumerate(others):
            self.progress("compare", number, len(others) - number)
            found = baseline.check(str(self.paths[variant.name]))
            if found.skipped:
                self.notes.append(f"{variant.name} was not compared: {found.skipped}")
                continue
            errors = [o.comparison.error_rewritten for o in found.outputs]
            failure = found.failures[0] if found.failures else ""
            self._set(variant, error=Error(finite(max(errors, default=0.0)) if errors else None, failure))

    def measure_time(self, seconds: float) -> None:
        """Open all and run them by turns."""
        self.progress("open", 0, 0)
        for variant in self._alive:
            try:
                self._open(variant)()
            except Exception as error:  # ORT raises a dozen classes, one a status code
                self._set(variant, failure=one_line(error))
        if not self._alive:
            raise ModelError(f"{self.name}: no variant runs: {next(iter(self.variants.values())).failure}")
        self.progress("time", 0, 0)
        openers = {v.name: partial(self._open, v) for v in self._alive}
        found = model_times(openers, [self.setting], seconds=seconds)
        reference = found.get(original_at(self.setting.level))
        for name, times in found.items():
            to_reference = times.ratio(reference) if reference is not None else None
            self._set(self.variants[name], creation=times.creation, timing=times.running, ratio=to_reference)

    def measure_throughput(self, batches: Sequence[int], seconds: float) -> None:
        """The same with so many samples at once, for each batch size; what cannot be run so is noted."""
        names = batch_dims(str(self.source)) if batches else []
        if batches and not names:
            self.notes.append("no throughput by batch size: the model has no symbolic batch dimension")
            return
        runners = {v.name: self._open(v) for v in self._alive} if batches else {}
        for number, batch in enumerate(batches):
            self.progress("throughput", number, len(batches) - number)
            try:
                load = self._workload({**self.dims, **dict.fromkeys(names, batch)})
            except ModelError as error:
                self.notes.append(f"no throughput at batch {batch}: {error}")
                continue
            for name, timing in interleave(self._on(load, batch, runners), seconds=seconds).items():
                known = self.variants[name].throughput
                self._set(self.variants[name], throughput={**known, batch: _rate(batch, timing.latency)})

    def _on(self, load: Workload, batch: int, runners: Mapping[str, Runner]) -> dict[str, Runner]:
        """Those that run on other inputs."""
        found = {}
        for name, runner in runners.items():
            changed = runner.on(load.feeds)
            try:
                changed()
            except Exception as error:  # see opened
                self.notes.append(f"{name} does not run at batch {batch}: {one_line(error)}")
            else:
                found[name] = changed
        return found

    def _workload(self, dims: Mapping[str, int]) -> Workload:
        try:
            return workload(str(self.source), dims=dims, inputs=self.inputs, seed=self.seed)
        except OnnxRewriteError as error:  # whatever it is, it is about this model
            raise ModelError(f"{self.name}: {error}") from error

    def _setting(self, variant: Variant) -> Setting:
        return replace(self.setting, level=variant.level)

    def _open(self, variant: Variant) -> Runner:
        return open_runner(self.paths[variant.name], self.load.feeds, self._setting(variant))

    def _stored(self, model: ir.Model, name: str) -> Path:
        path = self.folder / f"{name}.onnx"
        io.save(model, path)
        return path

    def _add(self, variant: Variant, path: Path, model: ir.Model) -> None:
        self.paths[variant.name] = path
        self.variants[variant.name] = replace(variant, nodes=node_count(model), size=file_bytes(io.load(path)))

    def _set(self, variant: Variant, **known: Any) -> None:
        self.variants[variant.name] = replace(self.variants[variant.name], **known)


def _rate(batch: int, latency: Interval) -> Interval:
    """Samples a second: the longest runs give the lowest rate."""
    return Interval(batch / latency.median, batch / latency.high, batch / latency.low)
