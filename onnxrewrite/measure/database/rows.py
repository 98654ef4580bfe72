"""Rows: a measurement with all that it depends on, in the clear, and the canonical bytes of it."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from onnxrewrite.ir.target import ort_version
from onnxrewrite.measure.database.machine_class import MachineClass, Positive
from onnxrewrite.measure.timing import OUTSIDE, Interval, Timing, ratio
from onnxrewrite.rewrite.fingerprint import fingerprint
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.runtime.installed import build
from onnxrewrite.runtime.settings import Setting

FORMAT: Final = 1
"""Of a row; rows of another one are refused."""

QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)

Kind: TypeAlias = Literal["rewrite", "model", "levels"]
"""Both sides of a rewrite; a whole model against its original; a model at several levels of optimization."""

_Quantiles: TypeAlias = tuple[Positive, Positive, Positive, Positive, Positive]


class RowError(Exception):
    """A row that is refused; the message says why, without naming it."""


@dataclass(frozen=True)
class Question:
    """A question of speed: of what, and how it is run.

    Attributes:
        kind: Of what is compared.
        region: It, in canonical text.
        sizes: The size class: of the inputs, to a power of two; or of the named dimensions.
        setting: The session settings.
        ratios: What is asked for: ``after/before`` for the time of ``after`` as a multiple of that of ``before``.
        rules: The rules whose rewrite it is, by name, and their digests.
    """

    kind: Kind
    region: str
    sizes: tuple[str, ...]
    setting: Setting
    ratios: tuple[str, ...] = ("after/before",)
    rules: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """The digest of it all."""
        return _digest(_canonical(asdict(self)))


@dataclass(frozen=True)
class Figures:
    """The figures that came out.

    Attributes:
        seconds: Side to the quantiles of its time for one run.
        ratios: As the question asks for them.
    """

    seconds: Mapping[str, _Quantiles]
    ratios: Mapping[str, Interval]

    def median(self, side: str) -> float:
        """Of the seconds of a side."""
        return self.seconds[side][QUANTILES.index(0.5)]


@dataclass(frozen=True)
class Row:
    """One row of the database.

    Attributes:
        question: What was measured, and how it was run.
        region_digest: Of its region.
        figures: What came out.
        ort: The build of ONNX Runtime.
        machine_class: The class of the machine.
        machine: Its name, a digest.
        date: The day, in UTC.
        format: Of rows.
    """

    question: Question
    region_digest: str
    figures: Figures
    ort: str
    machine_class: MachineClass
    machine: Annotated[str, Field(max_length=64)]
    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")]
    format: Literal[1] = FORMAT

    def written(self) -> bytes:
        """The canonical bytes."""
        return _canonical(asdict(self))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the canonical bytes."""
        return _digest(self.written())

    @property
    def asked(self) -> str:
        """The digest of what the figures depend on, but for the machine: by this a row is found."""
        return asked(self.question, self.ort)


_ROW = TypeAdapter(Row)


def asked(question: Question, ort: str) -> str:
    """The digest of a question to one build of ONNX Runtime."""
    return _digest(f"{FORMAT} {ort} {question.digest}".encode())


def row_of(question: Question, figures: Figures, machine_class: MachineClass, machine: str) -> Row:
    """The row of what was measured now, here."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Row(question, _digest(question.region.encode()), figures, ort_build(), machine_class, machine, today)


def parsed(content: bytes) -> Row:
    """The row that canonical bytes tell of.

    Raises:
        RowError: They are none, of another format, or contradict themselves.
    """
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        raise RowError("no row") from None
    if isinstance(told, dict) and told.get("format", FORMAT) != FORMAT:
        raise RowError(f"of format {str(told['format'])[:20]}, not {FORMAT}")
    try:
        row = _ROW.validate_json(content, strict=True)
    except (ValidationError, RecursionError):
        raise RowError("no row") from None
    if row.written() != content:
        raise RowError("not in canonical form")
    if row.region_digest != _digest(row.question.region.encode()) or not is_consistent(row):
        raise RowError("in contradiction to itself")
    return row


def is_consistent(row: Row) -> bool:
    """True if the ratios are those that were asked for, and can be those of the sides: half of the pairs lie on either
    side of a median, and no more than a tenth beyond the outer quantiles."""
    seconds, ratios = row.figures.seconds, row.figures.ratios
    if sorted(ratios) != sorted(row.question.ratios) or any(list(q) != sorted(q) for q in seconds.values()):
        return False
    for name, found in ratios.items():
        of, _, to = name.partition("/")
        if of not in seconds or to not in seconds or not found.low <= found.median <= found.high:
            return False
        lowest, highest = seconds[of][0] / seconds[to][-1], seconds[of][-1] / seconds[to][0]
        if not (lowest * _ROUNDING <= found.median <= highest / _ROUNDING and found.low > 0 and found.high < math.inf):
            return False
    return True


_ROUNDING: Final = 1 - 1e-9


def figures(
    timings: Mapping[str, Timing], ratios: Sequence[str], *, of_processor: bool, outside: int = OUTSIDE
) -> Figures:
    """The figures of sides that ran by turns; see ``timing.ratio``."""
    found = {}
    for name in ratios:
        of, _, to = name.partition("/")
        found[name] = ratio(timings[of], timings[to], of_processor=of_processor, outside=outside)
    return Figures({name: _quantiles(t.cpu if of_processor else t.wall) for name, t in timings.items()}, found)


def _quantiles(samples: Sequence[float]) -> _Quantiles:
    """Of each quantile the least sample that so large a part does not exceed."""
    ordered = sorted(samples)
    a, b, c, d, e = (ordered[max(math.ceil(q * len(ordered)) - 1, 0)] for q in QUANTILES)
    return a, b, c, d, e


def ort_build() -> str:
    """The version and the build of ONNX Runtime, in one line."""
    return f"{ort_version()} {' '.join(build().split())}".strip()


def digests(*rules: Rule) -> dict[str, str]:
    """The digests of rules by their names."""
    return {rule.name: fingerprint(rule).sha256 for rule in rules}


def _canonical(data: object) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
