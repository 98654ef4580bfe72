"""A model on its way to being deployed, and what is measured of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.io import external, preserved
from onnxrewrite.io.statistics import file_bytes
from onnxrewrite.measure.timing import Interval
from onnxrewrite.report.plain_reports import MetricsRow
from onnxrewrite.runtime.settings import DEFAULT, Setting
from onnxrewrite.suite.quality.gate import Quality
from onnxrewrite.system import files
from onnxrewrite.system.plain import Json, Plain

STARTUP, STARTUP_DATA = "startup", "startup.data"
"""The names of a file that ONNX Runtime saved as it has optimized a model, without its suffix, and of its weights."""


@dataclass(frozen=True)
class Artifact:
    """A model file and how it is run.

    Attributes:
        path: The file.
        setting: Provider, threads and level of ONNX Runtime's own optimization.
        how: The change that made it, in a few words: ``dynamic int8``.
        source: The same model before it was rewritten for speed: what is rewritten again after another change, as
            quantization is, begins there.
        facts: Details that a stage gives of its work: plain data, for the report.
        opened_as: A file that a session opens in its place: the same, as ONNX Runtime has optimized it.
    """

    path: Path
    setting: Setting = DEFAULT
    how: str = ""
    source: Path | None = None
    facts: Plain = field(default_factory=dict)
    opened_as: Path | None = None

    @property
    def session(self) -> tuple[Path, Setting]:
        """The file that a session opens, and its setting."""
        if self.opened_as is None:
            return self.path, self.setting
        return self.opened_as, replace(self.setting, level="disabled")

    @property
    def plain(self) -> Path:
        """The model before it was rewritten for speed."""
        return self.source or self.path

    def at(self, path: Path) -> Artifact:
        """The same, in another file."""
        return replace(self, path=path)

    def to_json(self) -> dict[str, Json]:
        """Plain data; without the setting's parts that are as ever."""
        plain: dict[str, Json] = {
            "file": self.path.name,
            "how": self.how,
            "setting": self.setting.to_json(),
            "facts": dict(self.facts),
        }
        return plain if self.opened_as is None else {**plain, "opened_as": self.opened_as.name}


@dataclass(frozen=True)
class Metrics:
    """The measurements of an artifact.

    Attributes:
        latency: Seconds for one run.
        ratio: Its time to that of the baseline, round by round.
        step: Its time to that of the artifact before it, likewise; None for the baseline.
        throughput: Samples a second.
        creation: Seconds to create a session.
        size: Bytes of the file and of the weights outside of it.
        memory: Bytes at the peak of a process that opens and runs it; None where that was not measured.
        quality: Closeness to the baseline without ONNX Runtime's optimizations.
    """

    latency: Interval
    ratio: Interval
    step: Interval | None
    throughput: float
    creation: Interval
    size: int
    quality: Quality
    memory: int | None = None

    def beside(self, baseline: Metrics) -> Metrics:
        """The same with its latency as the ratio has it, of a baseline that was timed at another moment."""
        unit = baseline.latency.median
        latency = Interval(self.ratio.median * unit, self.ratio.low * unit, self.ratio.high * unit)
        samples = self.throughput * self.latency.median
        return replace(self, latency=latency, throughput=samples / latency.median)

    def to_json(self) -> MetricsRow:
        """Plain data: seconds, bytes, samples a second."""
        return {
            "latency": self.latency.to_json(),
            "ratio": self.ratio.to_json(),
            "step": None if self.step is None else self.step.to_json(),
            "throughput": self.throughput,
            "creation": self.creation.to_json(),
            "size": self.size,
            "memory": self.memory,
            "quality": self.quality.to_json(),
        }


def size_of(path: Path) -> int:
    """Bytes of a model file and of the weights outside of it."""
    return file_bytes(io.load(path))


def digest(path: Path) -> str:
    """SHA-256 of a model file and of the weights outside of it."""
    made = hashlib.sha256()
    for each in model_files(path):
        with files.open_regular(each) as file:
            made.update(hashlib.file_digest(file, "sha256").digest())
    return made.hexdigest()


def model_files(path: Path) -> list[Path]:
    """A model file and those of the weights outside of it."""
    return [path, *_data_files(path)]


def saved_files(path: Path) -> list[Path]:
    """The files of a model that ONNX Runtime saved: its own, and that of its weights, which nothing else can read."""
    data = path.with_name(STARTUP_DATA)
    return [path, *([data] if data.exists() else [])]


def _data_files(path: Path) -> list[Path]:
    """The files in which the weights of a model lie, each once."""
    model = io.load(path)
    with preserved.completed(model):
        tensors = [s.tensor for s in external.slots(model)]
    return sorted({Path(t.base_dir, t.location).resolve() for t in tensors if isinstance(t, ir.ExternalTensor)})
