"""The result of an export, and the search for an exporter whose model is right; independent of the framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from onnxrewrite.api.application import Result
from onnxrewrite.checks.findings import ModelCheck
from onnxrewrite.errors import CheckError, ModelError, OnnxRewriteError
from onnxrewrite.suite.decoders.genai_conversion import GenaiFolder
from onnxrewrite.suite.deploy.outcome import Outcome

Optimize: TypeAlias = Callable[[Path], Result]


@dataclass(frozen=True)
class Exported:
    """A model that was made of a framework's module.

    Attributes:
        path: Its file; where no path was given it lies in a temporary folder, which is removed when Python ends.
        exporter: The exporter that made it.
        comparison: The export against the module; None where that was not asked for.
        result: The result of the rewriting; None if it was not requested.
        outcome: The outcome of a pipeline; None if none was requested.
        folder: The folder of a decoder; None if none was requested.
        notes: Deviations from the request: another exporter, a module in training mode.
    """

    path: Path
    exporter: str
    comparison: ModelCheck | None = None
    result: Result | None = None
    outcome: Outcome | None = None
    folder: GenaiFolder | None = None
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "path": str(self.path),
            "exporter": self.exporter,
            "comparison": self.comparison.to_json() if self.comparison is not None else None,
            "result": self.result.to_json() if self.result is not None else None,
            "outcome": self.outcome.to_json() if self.outcome is not None else None,
            "folder": self.folder.to_json() if self.folder is not None else None,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Attempt:
    """The model of one exporter, and its comparison with the module; None if they were not compared."""

    exporter: str
    path: Path
    comparison: ModelCheck | None = None


def first_right(
    exporters: Mapping[str, Callable[[], Path]], compare: Callable[[Path], ModelCheck] | None, what: str
) -> tuple[Attempt, list[str]]:
    """The first exporter whose model computes what the module computes, with a note on each that failed before it.

    Args:
        exporters: By name, in the order in which they are tried; each makes a file.
        compare: The file against the module; None where that is not wanted.
        what: The module, for the messages.

    Raises:
        ModelError: No exporter made a model.
        CheckError: No model computes what the module computes.
    """
    failures: dict[str, OnnxRewriteError] = {}
    for name, make in exporters.items():
        try:
            path = make()
            comparison = compare(path) if compare is not None else None
        except (ModelError, CheckError) as error:
            failures[name] = error
            continue
        if comparison is None or comparison.ok:
            return Attempt(name, path, comparison), [f"not by {n}: {error}" for n, error in failures.items()]
        failures[name] = CheckError(f"its model is wrong: {comparison.failures[0]}")
    told = "; ".join(f"{name}: {error}" for name, error in failures.items())
    if any(isinstance(error, CheckError) for error in failures.values()):
        raise CheckError(f"no export computes what {what} computes, and nothing was written: {told}")
    raise ModelError(f"{what} cannot be exported: {told}")
