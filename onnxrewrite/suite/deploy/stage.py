"""The interface of stages.  A stage proposes; the pipeline measures, and decides what is kept.

A package publishes stages by the entry-point group ``onnxrewrite.stages``: a name and a class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import ClassVar, TypeAlias

from pydantic import TypeAdapter, ValidationError

from onnxrewrite.errors import OnnxRewriteError, UsageError, foreign
from onnxrewrite.rewrite.suggestions import nearest
from onnxrewrite.runtime.session import one_line
from onnxrewrite.suite.deploy.artifact import Artifact, Metrics
from onnxrewrite.suite.deploy.measurement import Meter
from onnxrewrite.suite.quality.data import Data
from onnxrewrite.suite.quality.gate import Gate
from onnxrewrite.system.plain import Json

GROUP = "onnxrewrite.stages"
"""The entry-point group of stages."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is done at the moment, how much of it is done, and how much is left."""


class NothingToDo(OnnxRewriteError):
    """A stage has nothing to propose, and says why."""


@dataclass(frozen=True)
class Context:
    """The context in which a stage runs.

    Attributes:
        folder: The folder for its models.
        meter: Measures an artifact.
        gate: The required quality.
        data: The data for calibration, and for whatever a stage searches; its result is judged on others.
        dims: Sizes of named dimensions that the user gave.
        threads: Within an operator, as the user said; 0: a stage may choose.
        seed: Of whatever is random.
        left: Seconds until the budget is spent.
        progress: To be told what is done.
        note: To be told a remark for the report, in one line.
        made: The artifact that an interrupted run of the same stage has made and measured, by its file; else None.
    """

    folder: Path
    meter: Meter
    gate: Gate
    data: Data
    dims: Mapping[str, int] = field(default_factory=dict)
    threads: int = 0
    seed: int = 0
    left: Callable[[], float] = lambda: float("inf")
    progress: Progress = lambda phase, done, left: None
    note: Callable[[str], None] = lambda line: None
    made: Callable[[Path], Artifact | None] = lambda path: None

    def file(self, name: str) -> Path:
        """The path for a model that a stage writes."""
        return self.folder / f"{name}.onnx"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step of a pipeline.  The fields of a stage are its settings, under its name in a configuration.

    Attributes:
        name: Its name.
        lossy: True if it may change results beyond rounding; such stages are left out once the target is met.
        default: True if it runs when no stages are given.
        required: True if the whole run fails when this stage is taken back.
    """

    name: ClassVar[str]
    lossy: ClassVar[bool] = False
    default: ClassVar[bool] = True
    required: bool = False

    def run(self, given: Artifact, context: Context) -> Iterable[Artifact]:
        """The proposals made of ``given``: one artifact or several, of which the best is kept if it pays off.

        Raises:
            NothingToDo: There is nothing, with the reason.
        """
        raise NotImplementedError

    def quick(self) -> Stage | None:
        """The stage for a first look, without what seldom wins; None leaves it out."""
        return self

    def metrics(self, made: Artifact, before: Artifact, context: Context) -> Metrics:
        """The measurements of a proposal."""
        return context.meter.measure(made, before)

    def to_json(self) -> dict[str, Json]:
        """Its settings, plain data; the same settings give the same."""
        plain: dict[str, Json] = TypeAdapter(type(self)).dump_python(self, mode="json")
        return plain


def known() -> dict[str, type[Stage]]:
    """The stages that there are, by name: our own, and those of installed packages.

    Raises:
        UsageError: A package publishes something else as a stage, or it cannot be loaded.
    """
    from onnxrewrite.suite.deploy import stages

    found: dict[str, type[Stage]] = {stage.name: stage for stage in stages.STAGES}
    for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
        try:
            with foreign():
                loaded = point.load()
        except Exception as error:  # whatever somebody else's module raises
            raise UsageError(f"stage {point.name} ({point.value}) cannot be used: {one_line(error)}") from error
        if not (isinstance(loaded, type) and issubclass(loaded, Stage) and hasattr(loaded, "name")):
            raise UsageError(f"stage {point.name}: {point.value} is no Stage with a name")
        if found.setdefault(loaded.name, loaded) is not loaded:
            raise UsageError(f"two stages are called {loaded.name}: {found[loaded.name].__module__} and {point.value}")
    return found


def defaults() -> list[str]:
    """The names of the stages that run where nobody says which shall."""
    return [name for name, stage in known().items() if stage.default]


def made(name: str, settings: Mapping[str, object], where: str) -> Stage:
    """A stage with its settings, hyphens for underscores in their names.

    Raises:
        UsageError: There is no such stage or setting, or it has another type.
    """
    stages = known()
    if name not in stages:
        raise UsageError(f"{where}: no stage is called {name!r}{nearest(name, stages)}")
    fields = stages[name].__dataclass_fields__
    named = {key.replace("-", "_"): value for key, value in settings.items()}
    for key in named:
        if key not in fields:
            raise UsageError(f"{where}: stage {name} has no setting {key!r}; it has {', '.join(fields)}")
    try:
        return TypeAdapter(stages[name]).validate_python(named)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{where}: stage {name}, {place}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
