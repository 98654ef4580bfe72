"""Findings: the outcome of each candidate, and of each model; as plain data in a journal, so that a run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from onnxrewrite.errors import ModelError
from onnxrewrite.system.plain import Json

Status: TypeAlias = Literal["found", "too slow", "known", "refuted", "not tried", "not written"]
"""What became of a candidate: ``found``: it passed and is faster at some size; ``too slow``: it passed and is not;
``known``: a rule that there is makes the same of the region; ``not tried``: the fuzzer made no graph that it rewrites;
``not written``: no pattern matches the region and nothing else."""

FOUND: Final = "found"
TOO_SLOW: Final = "too slow"
KNOWN: Final = "known"
REFUTED: Final = "refuted"
NOT_TRIED: Final = "not tried"
NOT_WRITTEN: Final = "not written"

Mode: TypeAlias = Literal["kernels", "regions", "identities"]
"""What is compared with what: regions of a corpus with ``kernels``, with other ``regions``, or small graphs with each
other, for ``identities``."""

KERNELS: Final = "kernels"
REGIONS: Final = "regions"
IDENTITIES: Final = "identities"
MODES: Final[tuple[Mode, ...]] = (KERNELS, REGIONS, IDENTITIES)


@dataclass(frozen=True)
class Measured:
    """The time of a site after a rule relative to that before, with the interval of 95 %, at some sizes."""

    sizes: dict[str, int]
    median: float
    low: float
    high: float
    seconds: float


@dataclass(frozen=True)
class Finding:
    """A candidate, and what became of it.

    Attributes:
        key: Equal for candidates that are the same rule.
        name: The rule's.
        status: What became of it.
        model: The model in which it was found first.
        operators: Those of the region.
        substitute: The operators that it becomes.
        places: The values that it replaces, by model; the region's own first.
        reason: Why it is refuted, could not be tried, or is known.
        verdict: The fuzzer's verdict, or ``proved``; empty where it was not asked.
        instances: The number of graphs that it rewrote rightly.
        proof: What was proved, or why nothing was; empty where that was not asked.
        guards: Its preconditions.
        times: What it gains.
        text: The text of its file; empty where there is none.
        seconds: The time that it took.
        by: What was compared with what.
    """

    key: str
    name: str
    status: Status
    model: str
    operators: tuple[str, ...]
    substitute: tuple[str, ...]
    places: dict[str, list[str]]
    reason: str = ""
    verdict: str = ""
    instances: int = 0
    proof: str = ""
    guards: tuple[str, ...] = ()
    times: tuple[Measured, ...] = ()
    text: str = field(default="", repr=False)
    seconds: float = 0.0
    by: Mode = KERNELS

    @property
    def is_right(self) -> bool:
        """True if it was tried, and nothing is known to be wrong with it."""
        return self.status in (FOUND, TOO_SLOW)

    @property
    def best(self) -> float | None:
        """The smallest ratio of times that was measured; None where none was."""
        return min((t.median for t in self.times), default=None)


@dataclass(frozen=True)
class Searched:
    """A model or another part of a search, and how it was searched.

    Attributes:
        model: Its path, as it was given, or what else it is about.
        regions: The number of its regions or small graphs, each kind once.
        left: The number of kinds that were left out.
        sampled: The number of regions that were run.
        evaluations: The number of kernels that were evaluated, or of pairs that have one fingerprint.
        died: The number of regions that were left out because ONNX Runtime ended the process.
        cut_short: The number of regions for which not all uses of kernels were tried.
        is_complete: False if the time ran out.
        error: Why it could not be searched; empty if it could.
        seconds: The time that it took, without its candidates.
        by: What was compared with what.
    """

    model: str
    regions: int = 0
    left: int = 0
    sampled: int = 0
    evaluations: int = 0
    died: int = 0
    cut_short: int = 0
    is_complete: bool = True
    error: str = ""
    seconds: float = 0.0
    by: Mode = KERNELS


_FINDING, _SEARCHED = TypeAdapter(Finding), TypeAdapter(Searched)


class Journal:
    """The findings of one model in a file, a line each.

    Args:
        file: It is made where it is not there.

    Attributes:
        findings: Those that it has, by key.
        searched: How the model was searched; None where that was not completed.
        fatal: The regions that a process was at when it died.

    Raises:
        ModelError: It cannot be read.
    """

    def __init__(self, file: Path):
        self._file = file
        self.findings: dict[str, Finding] = {}
        self.searched: Searched | None = None
        self.fatal: set[str] = set()
        for found in _read(file):
            if isinstance(found, Searched):
                self.searched = found
            elif isinstance(found, str):
                self.fatal ^= {found}
            else:
                self.findings[found.key] = found

    def at(self, region: str) -> None:
        """Note that a region is begun, or, the second time, that it is done: whose process dies is at it for ever."""
        self._append({"at": region})
        self.fatal ^= {region}

    def add(self, found: Finding | Searched) -> None:
        """Note a line.

        Raises:
            ModelError: It cannot be written.
        """
        if isinstance(found, Searched):
            self._append({"searched": _SEARCHED.dump_python(found, mode="json")})
        else:
            self.findings[found.key] = found
            self._append({"finding": _FINDING.dump_python(found, mode="json")})

    def _append(self, plain: dict[str, Json]) -> None:
        line = json.dumps(plain, sort_keys=True)
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            raise ModelError(f"{self._file}: cannot be written: {error.strerror or error}") from None


def _read(file: Path) -> Iterator[Finding | Searched | str]:
    """The lines of a journal; one that was not written to its end is none."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ModelError(f"{file}: cannot be read: {error.strerror or error}") from None
    for line in text.splitlines():
        try:
            (kind, plain), *_ = json.loads(line).items()
            match kind:
                case "at":
                    yield str(plain)
                case "searched":
                    yield _SEARCHED.validate_python(plain)
                case _:
                    yield _FINDING.validate_python(plain)
        except (ValueError, AttributeError, ValidationError):
            continue
