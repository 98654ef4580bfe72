"""The findings of a check of a whole model: plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple, TypedDict

import onnx

from onnxrewrite.reference.runs import Run
from onnxrewrite.reference.tolerance import Comparison, finite
from onnxrewrite.system.plain import Json


@dataclass
class OutputCheck:
    """The worst comparison of one output over all runs."""

    name: str
    comparison: Comparison
    reference: str
    run: str = ""
    equality: str = ""
    """``BITWISE`` or ``IN_VALUE`` where the output is equal to the original's in all runs."""

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return asdict(self)


class Fault(NamedTuple):
    """The first segment of a candidate that differs.

    Attributes:
        values: The names of the values that it computes.
        end: The place of its last node in the original.
        model: The original of it.
        runs: Its runs, by which it can be tried again alone.
    """

    values: frozenset[str]
    end: int
    model: onnx.ModelProto
    runs: Sequence[Run]


@dataclass
class ModelCheck:
    """The verdict on a candidate, compared with the original, and how it was reached."""

    ok: bool
    reference: str
    tolerance: str
    outputs: list[OutputCheck] = field(default_factory=list)
    bindings: list[dict[str, int]] = field(default_factory=list)
    samples: int = 0
    runs: int = 0
    segments: int = 0
    """The number of segments that were compared one by one; 0 where the model was compared as a whole."""
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: str | None = None
    fault: Fault | None = None
    """Where the first fault is, in a model that was compared in segments."""

    @property
    def identical(self) -> bool:
        """True if outputs were compared, and all of them are equal to the original's in all runs."""
        return bool(self.outputs) and all(o.equality for o in self.outputs)

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return {name: value for name, value in asdict(replace(self, fault=None)).items() if name != "fault"}


class OutputFindings(TypedDict):
    """An output as plain data: its errors are relative, None is not finite."""

    name: str
    ok: bool
    equality: str
    error: float | None
    error_original: float | None
    allowed: float | None
    error_rms: float | None
    error_original_rms: float | None
    allowed_rms: float | None
    reference: str
    run: str
    where: list[int] | None
    reason: str


class ModelFindings(TypedDict):
    """A comparison of two models as plain data, see ``model_check``."""

    ok: bool
    skipped: str | None
    identical: bool
    runs: int
    segments: int
    samples: int
    bindings: list[dict[str, int]]
    reference: str
    tolerance: str
    largest: OutputFindings | None
    outputs: list[OutputFindings]
    failures: list[str]
    notes: list[str]


def model_check(check: ModelCheck) -> ModelFindings:
    """A comparison of two models, as plain data.

    - ``ok``: whether they agree as far as was seen; ``skipped``: why nothing could be compared, or None;
      ``identical``: all outputs are equal in all runs; ``failures``: what differs; ``notes``;
    - ``runs``, ``samples`` (per binding), ``bindings``; ``segments``: how many were compared one by one, each on what
      the original computed before it; 0 where both models ran from end to end;
    - ``reference``, ``tolerance``: what errors were measured against, and how large they may be;
    - ``outputs``: one ``{name, ok, equality, error, error_original, allowed, *_rms, reference, run, where, reason}``
      each, ``equality`` being how equal all runs are, bit by bit or in value, empty if they are not; ``largest``: the
      one with the largest error, None if all are equal.
    """
    outputs = [_output(o) for o in check.outputs]
    moved = [o for o in outputs if not o["equality"]]
    return {
        "ok": check.ok,
        "skipped": check.skipped,
        "identical": check.identical,
        "runs": check.runs,
        "segments": check.segments,
        "samples": check.samples,
        "bindings": check.bindings,
        "reference": check.reference,
        "tolerance": check.tolerance,
        "largest": max(moved, key=_severity) if moved else None,
        "outputs": outputs,
        "failures": list(check.failures),
        "notes": list(dict.fromkeys(check.notes)),
    }


def _output(check: OutputCheck) -> OutputFindings:
    c = check.comparison
    return {
        "name": check.name,
        "ok": c.accept,
        "equality": check.equality,
        "error": finite(c.error_rewritten),
        "error_original": finite(c.error_original),
        "allowed": finite(c.bound),
        "error_rms": finite(c.error_rewritten_rms),
        "error_original_rms": finite(c.error_original_rms),
        "allowed_rms": finite(c.bound_rms),
        "reference": check.reference,
        "run": check.run,
        "where": list(c.where) if c.where is not None else None,
        "reason": c.reason,
    }


def _severity(output: OutputFindings) -> tuple[bool, float]:
    error = output["error"]
    return not output["ok"], math.inf if error is None else error
