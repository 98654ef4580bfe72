"""``canary``: one model in several versions of ONNX Runtime: outputs, speed, loading, memory; the cause of a drift."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Unpack

import onnx

from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.inputs.bindings import Binding
from onnxrewrite.inputs.sample import Sampler, usable
from onnxrewrite.inputs.workload import Feeding, workload
from onnxrewrite.measure.timing import Interval, interval, ratio
from onnxrewrite.reference.evaluation import build_reference
from onnxrewrite.reference.tolerance import compare, finite
from onnxrewrite.report.plain_reports import CanaryReport, VersionRow
from onnxrewrite.runtime.session import open_session, skeleton
from onnxrewrite.suite.canary.model_reduction import operators_of, reduced, with_all_values
from onnxrewrite.suite.canary.optimizer_culprit import Culprit, contains_others, culprit
from onnxrewrite.suite.canary.ort_environments import Environment, Opened, environments, load_arrays, save_arrays
from onnxrewrite.suite.canary.ort_times import by_turns
from onnxrewrite.system.arrays import Array, Feeds, Outputs

Progress = Callable[[str, int, int], None]

_OPENINGS = 5
"""So often each version opens the model."""

_RUNS = 3
"""Before memory is looked at: ONNX Runtime plans its memory in the first run, and keeps to the plan."""

_LARGEST = 200_000_000
"""Bytes of a model of which a part is looked for: all values of a run are held."""

_SLOWER = 1.1
"""A version is slower, or takes more memory, from this ratio on."""


@dataclass(frozen=True)
class Version:
    """The findings on one version.

    Attributes:
        name: The version.
        failure: The reason why the model does not open or run, in one line.
        difference: The way in which its outputs differ from the reference, in one line; empty if they do not.
        error: The largest relative error of its outputs; None where there are none.
        unoptimized: The same as ``failure`` or ``difference`` with all optimizations off.
        creation: Seconds to open the model.
        latency: Seconds for one run.
        ratio: Its time to that of the first version.
        memory: Bytes at the peak of a process that opens and runs it, beyond what it has before.
        operators: Nodes of the optimized model by operator.
        culprit: The optimizers that cause the fault; None where there is none, or where it is there without them.
    """

    name: str
    failure: str = ""
    difference: str = ""
    error: float | None = None
    unoptimized: str = ""
    creation: Interval | None = None
    latency: Interval | None = None
    ratio: Interval | None = None
    memory: int | None = None
    operators: Mapping[str, int] = field(default_factory=dict)
    culprit: Culprit | None = None

    @property
    def fault(self) -> str:
        """The fault in one line; empty if there is none."""
        return self.failure or self.difference

    def to_json(self) -> VersionRow:
        """Plain data."""
        spans = {n: None if v is None else v.to_json() for n, v in vars(self).items() if n in _INTERVALS}
        return {
            "name": self.name,
            "failure": self.failure,
            "difference": self.difference,
            "error": None if self.error is None else finite(self.error),
            "unoptimized": self.unoptimized,
            "creation": spans["creation"],
            "latency": spans["latency"],
            "ratio": spans["ratio"],
            "memory": self.memory,
            "operators": dict(self.operators),
            "culprit": None if self.culprit is None else list(self.culprit.optimizers),
            "with": [] if self.culprit is None else list(self.culprit.others),
        }


_INTERVALS = ("creation", "latency", "ratio")


@dataclass(frozen=True)
class Shown:
    """A small model that shows a fault.

    Attributes:
        version: The version that has it.
        model: The model.
        feeds: Its inputs.
    """

    version: str
    model: onnx.ModelProto = field(repr=False)
    feeds: Mapping[str, Array] = field(repr=False)


@dataclass
class Canary:
    """The result of ``canary``.

    Attributes:
        model: The model's path.
        binding: The sizes at which it was run.
        threads: Within an operator; 0 is ONNX Runtime's choice.
        versions: In the order in which they were asked for; the first is what the others are compared with.
        shown: A small model for each fault.
        notes: Further remarks.
    """

    model: str
    binding: Binding
    threads: int
    versions: list[Version] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def regressions(self) -> list[str]:
        """A line each: what is worse in a version than in the first one, and faults of the first."""
        first = self.versions[0]
        found = [f"{v.name}: {v.fault}" for v in self.versions if v.fault]
        for each in self.versions[1:]:
            if each.ratio is not None and each.ratio.low > _SLOWER:
                found.append(f"{each.name}: {each.ratio.median:.2f} times the time of {first.name}")
            if each.memory and first.memory and each.memory > _SLOWER * first.memory + 2**24:
                found.append(f"{each.name}: {each.memory / first.memory:.2f} times the memory of {first.name}")
        return found

    def to_json(self) -> CanaryReport:
        """Plain data."""
        return {
            "model": self.model,
            "binding": dict(self.binding),
            "threads": self.threads,
            "versions": [version.to_json() for version in self.versions],
            "regressions": self.regressions,
            "notes": list(self.notes),
        }


def canary(
    model: Path,
    versions: Sequence[str],
    *,
    threads: int = 1,
    seconds: float = 3.0,
    search: float = 120.0,
    progress: Progress = lambda name, done, waiting: None,
    **feeding: Unpack[Feeding],
) -> Canary:
    """Compare versions of ONNX Runtime on a model, with the CPU's provider.

    Args:
        model: The model's path.
        versions: ``"1.31"``, ``"1.31.0"``, or ``"installed"``; what is compared with first.
        threads: Within an operator; 0 leaves it to ONNX Runtime.
        seconds: To run all versions by turns.
        search: To look for a small model that shows a fault.
        progress: Called with what is done, how many versions are, and how many are left.
        feeding: ``dims``, ``inputs`` and ``seed``; see ``Feeding``.

    Raises:
        UsageError: There are fewer than one version, or one cannot be had.
        ModelError: The model cannot be run without optimizations, so that there is nothing to compare with.
    """
    if not versions or len(set(versions)) < len(versions):
        raise UsageError("--ort: name versions, each once, such as 1.31,1.32")
    session = open_session(str(model))
    load = workload(str(model), session=None if isinstance(session, str) else session, **feeding)
    progress("install", 0, 0)
    with environments(list(versions)) as found:
        run = _Run(model, found, load.feeds, threads, progress)
        result = Canary(str(model), load.binding, threads)
        result.versions = run.compared()
        run.measure(result, seconds)
        known: dict[tuple[str, Culprit], str] = {}
        for number, each in reversed(list(enumerate(result.versions))):  # a fault is shown in the newest that has it
            if each.fault and not each.unoptimized:
                progress("search for the culprit", 0, 0)
                result.versions[number] = each = replace(each, culprit=run.culprit(number))
                assert each.culprit is not None
                if known.setdefault((each.fault, each.culprit), each.name) == each.name:
                    shown = run.shown(number, each, search, _small(model, feeding))
                    result.shown += [shown] if shown is not None else []
        result.notes += run.notes
    return result


def _small(model: Path, feeding: Feeding) -> Feeds | None:
    """Inputs of small sizes, as checks have them; None if the model does not run at any."""
    session = open_session(str(model))
    if isinstance(session, str):
        return None
    given, dims, seed = feeding.get("inputs") or {}, feeding.get("dims") or {}, feeding.get("seed", 0)
    trials, _ = usable(Sampler(skeleton(str(model)), given=given, dims=dims, seed=seed), session, wanted=1)
    return trials[0].feeds if trials else None


class _Run:
    """The comparison of one model."""

    def __init__(self, model: Path, found: Sequence[Environment], feeds: Feeds, threads: int, progress: Progress):
        self.model, self.found, self.feeds, self.threads, self.progress = model, found, feeds, threads, progress
        self.folder = found[0].folder
        self.file = self.folder / "feeds.npz"
        save_arrays(self.file, feeds)
        self.notes: list[str] = []
        reference = build_reference(str(model))
        self.exact: Outputs | None = reference.run(feeds)
        self.plain, left = self._plain()
        if left:
            self.notes.append(f"not compared, for numpy has no numbers like them: {', '.join(left)}")

    def _plain(self) -> tuple[dict[str, Array], list[str]]:
        """The outputs of the first version that runs the model without optimizations; and those that are no numbers.

        Raises:
            ModelError: There is no such version, or no output that can be compared.
        """
        reasons = []
        for each in self.found:
            path = self.folder / "outputs.npz"
            opened = each.opened(self.model, self.file, threads=self.threads, level="disabled", outputs=path)
            opened.close()
            if not opened.failure:
                outputs, left = load_arrays(path), list(opened.told["left"])
                if not outputs:
                    raise ModelError(f"{self.model}: none of its outputs can be compared: {', '.join(left)}")
                return outputs, left
            reasons.append(f"{each.version}: {opened.failure}")
        raise ModelError(f"{self.model}: does not run in any version: {'; '.join(reasons)}")

    def _outputs(self, environment: Environment, **options: object) -> tuple[str, dict[str, Array]]:
        """The reason why it does not run, or the outputs."""
        path = self.folder / "outputs.npz"
        opened = environment.opened(self.model, self.file, threads=self.threads, outputs=path, **options)  # type: ignore[arg-type]
        opened.close()
        return opened.failure, {} if opened.failure else load_arrays(path)

    def _judged(self, outputs: Mapping[str, Array]) -> tuple[str, float]:
        """The first difference in one line, and the largest error."""
        difference, worst = "", 0.0
        for name, plain in self.plain.items():
            if name not in outputs:
                return f"{name}: there is no such output", float("inf")
            exact = self.exact.get(name) if self.exact is not None else None
            told = compare(exact, plain, outputs[name])
            worst = max(worst, told.error_rewritten)
            if not told.accept and not difference:
                difference = f"{name}: {told.reason}"
        more = sorted(outputs.keys() - self.plain.keys())
        return difference or (f"{more[0]}: is one output more" if more else ""), worst

    def _fault(self, environment: Environment, **options: object) -> str:
        failure, outputs = self._outputs(environment, **options)
        return failure or self._judged(outputs)[0]

    def compared(self) -> list[Version]:
        """Outputs, operators, and failures of each version."""
        made = []
        for number, each in enumerate(self.found):
            self.progress("compare outputs", number, len(self.found) - number)
            optimized = self.folder / "optimized.onnx"
            optimized.unlink(missing_ok=True)
            failure, outputs = self._outputs(each, optimized=optimized)
            if failure:  # which may be that it cannot be saved, for one of more than 2 GB cannot
                failure, outputs = self._outputs(each)
            version = Version(each.name, failure)
            if not failure:
                difference, error = self._judged(outputs)
                version = replace(version, difference=difference, error=error, operators=operators_of(optimized))
            if version.fault:
                version = replace(version, unoptimized=self._fault(each, level="disabled"))
            made.append(version)
        return made

    def measure(self, result: Canary, seconds: float) -> None:
        """Opening, running by turns and memory of the versions that run."""
        self.progress("measure", 0, 0)
        runs = [n for n, version in enumerate(result.versions) if not version.failure]
        opened: dict[int, Opened] = {}
        opening: dict[int, list[tuple[float, float]]] = {n: [] for n in runs}
        for _ in range(_OPENINGS):
            for n in runs:
                if n in opened:
                    opened[n].close()
                opened[n] = self.found[n].opened(self.model, self.file, threads=self.threads)
                opening[n].append(opened[n].creation)
        times = by_turns({n: opened[n] for n in runs}, seconds)
        serial = self.threads == 1
        for n in runs:
            first = times.get(0)
            by = ratio(times[n], first, of_processor=serial) if first is not None else None
            result.versions[n] = replace(
                result.versions[n],
                creation=interval([cpu if serial else wall for wall, cpu in opening[n]]),
                latency=interval(times[n].cpu if serial else times[n].wall),
                ratio=by,
                memory=self._memory(self.found[n]),
            )

    def _memory(self, environment: Environment) -> int | None:
        environment.close()
        before = environment.ask("peak")["now"]
        opened = environment.opened(self.model, self.file, threads=self.threads)
        for _ in range(_RUNS):
            opened.run(1)
        after = environment.ask("peak")["peak"]
        opened.close()
        return None if before is None or after is None else max(0, after - before)

    def culprit(self, number: int) -> Culprit:
        """The optimizers that cause the fault of a version."""
        environment = self.found[number]
        logged = environment.ask("transformers", model=str(self.model), level="all").get("transformers", {})
        names = sorted({*environment.optimizers, *logged}, key=lambda n: (contains_others(n), not logged.get(n), n))
        return culprit(names, lambda without: not self._fault(environment, without=without))

    def shown(self, number: int, version: Version, seconds: float, small: Feeds | None) -> Shown | None:
        """A part of the model that shows the fault of a version."""
        environment = self.found[number]
        without = version.culprit.optimizers if version.culprit is not None else ()
        proto = onnx.load(str(self.model))
        if proto.ByteSize() > _LARGEST:
            self.notes.append(f"{version.name}: no small model was looked for: the model has more than 200 MB")
            return None
        self.progress("look for a small model", 0, 0)
        shows = partial(self._shows, environment, bool(version.failure), without)
        start = time.monotonic()
        for feeds in (small, self.feeds):
            values = self._values(proto, feeds) if feeds is not None else None
            left = seconds - (time.monotonic() - start)
            found = reduced(proto, values, shows, seconds=left) if values is not None else None
            if found is not None:
                return Shown(version.name, *found)
        self.notes.append(f"{version.name}: no part of the model was found that shows the fault by itself")
        return None

    def _values(self, proto: onnx.ModelProto, feeds: Feeds) -> dict[str, Array] | None:
        """All values of one run without optimizations; None if it does not run."""
        model, given, made = (self.folder / name for name in ("all.onnx", "all_feeds.npz", "all_values.npz"))
        onnx.save(with_all_values(proto), str(model))
        save_arrays(given, feeds)
        for each in self.found:
            opened = each.opened(model, given, level="disabled", outputs=made)
            opened.close()
            if not opened.failure:
                return load_arrays(given) | load_arrays(made)
        return None

    def _shows(
        self,
        environment: Environment,
        fails: bool,
        without: tuple[str, ...],
        model: onnx.ModelProto,
        feeds: Mapping[str, Array],
    ) -> bool:
        """True if a model has the fault with all optimizations, and neither without the culprits nor without all."""
        path, given, made = (self.folder / name for name in ("part.onnx", "part_feeds.npz", "part_values.npz"))
        onnx.save(model, str(path))
        save_arrays(given, feeds)
        outcomes = []
        for options in ({"level": "disabled"}, {"level": "all"}, {"level": "all", "without": without}):
            opened = environment.opened(path, given, outputs=made, threads=1, **options)
            opened.close()
            outcomes.append(None if opened.failure else load_arrays(made))
            if len(outcomes) == 1 and outcomes[0] is None:
                return False
            if len(outcomes) == 2 and fails != (outcomes[1] is None):
                return False
        plain, optimized, mended = outcomes
        if plain is None or mended is None:
            return False
        differs = optimized is None or any(not compare(None, plain[n], optimized[n]).accept for n in plain)
        return differs and all(compare(None, plain[n], mended[n]).accept for n in plain)
