"""``recheck``: what ``optimize`` shipped, run again, against the figures that were recorded with it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from onnxrewrite.errors import ModelError, UsageError, one_line
from onnxrewrite.measure.timing import Interval
from onnxrewrite.report.plain_reports import FigureRow, RecheckReport
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.deploy.emit import MODEL, REPORT, RUN
from onnxrewrite.suite.deploy.shipped import REFERENCE, Figures, Pair, figures, load_pairs
from onnxrewrite.suite.quality.closeness import Closeness
from onnxrewrite.suite.quality.gate import Gate, Quality, closeness_of
from onnxrewrite.system import files
from onnxrewrite.system.digests import sha256_of
from onnxrewrite.system.versions import versions

SLOWER, OPENS_SLOWER, LARGER = 1.1, 1.25, 1.1
"""Ratios of time, of the time to open, and of memory, to what was recorded, from which on it is a regression."""

_SPARE = 2**24
"""Bytes of memory by which processes differ."""

_MOVED = 0.1
"""Of what the gate allows: the closeness to the original may fall by so much against what was recorded."""

_FIGURES, _SETTING, _GATE = TypeAdapter(Figures), TypeAdapter(Setting), TypeAdapter(Gate)
_NAMES, _SCORES, _NAME = TypeAdapter(dict[str, str]), TypeAdapter(dict[str, float]), TypeAdapter(str | None)


@dataclass(frozen=True)
class Figure:
    """A figure, recorded and now.

    Attributes:
        name: Its name.
        recorded: Its value as it was recorded.
        now: Its value now; None where it could not be measured.
        unit: Of both: ``yardsticks``, ``bytes``, or empty.
        regression: The reason why it is worse; empty if it is not.
        note: A remark.
    """

    name: str
    recorded: float
    now: float | None
    unit: str = ""
    regression: str = ""
    note: str = ""

    def to_json(self) -> FigureRow:
        """Plain data."""
        return {
            "name": self.name,
            "recorded": self.recorded,
            "now": self.now,
            "unit": self.unit,
            "regression": self.regression,
            "note": self.note,
        }


@dataclass
class Recheck:
    """The result of ``recheck``.

    Attributes:
        folder: The folder.
        figures: Recorded and now.
        faults: Regressions that are none of a figure: changed files, a model that does not run.
        drift: Versions that have changed: name, recorded and now.
        notes: Further remarks.
    """

    folder: str
    figures: list[Figure] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    drift: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def regressions(self) -> list[str]:
        """All regressions, a line each."""
        return [*self.faults, *(f"{each.name}: {each.regression}" for each in self.figures if each.regression)]

    def to_json(self) -> RecheckReport:
        """Plain data."""
        return {
            "folder": self.folder,
            "figures": [each.to_json() for each in self.figures],
            "drift": [{"name": name, "recorded": old, "now": new} for name, old, new in self.drift],
            "regressions": self.regressions,
            "notes": list(self.notes),
        }


def recheck(folder: str | os.PathLike[str], *, seconds: float = 2.0, memory: bool = True) -> Recheck:
    """Run the model of a folder that ``optimize`` wrote, and compare it with what was recorded.

    Args:
        folder: The folder.
        seconds: To run the model and the yardstick by turns.
        memory: True if memory is measured, where it was recorded.

    Raises:
        UsageError: The folder has no report, or one of an older version, with nothing to compare with.
    """
    place = Path(folder)
    report = _report(place)
    shipped: Mapping[str, Any] = report["shipped"]
    found = Recheck(str(folder))
    found.drift = _drift(report["versions"])
    if any(name == "onnxruntime" for name, _, _ in found.drift):
        found.notes.append(
            "ONNX Runtime has changed: onnxrewrite canary tells whether one of its optimizers is a cause"
        )
    digests = shipped["files"]
    names = sorted(digests)
    now = {n: sha256_of([place / n])[0] if files.is_regular(place / n) else "" for n in names}
    for name in names:
        if now[name] != digests[name]:
            found.faults.append(f"{name}: is {'not the file that was shipped' if now[name] else 'missing'}")
    setting = _SETTING.validate_python(report["final"]["setting"])
    pairs: list[Pair] = []
    try:
        pairs = load_pairs(place / REFERENCE) if now.get(REFERENCE) else []
    except ModelError as error:
        found.faults.append(one_line(error).removeprefix(f"{place}{os.sep}"))
    if not pairs:
        why = "the samples cannot be read" if REFERENCE in digests else "no samples were recorded"
        found.notes.append(f"{why}, so outputs and times are not compared")
        return found
    path, setting = _opened(place, report, setting, found)
    try:
        _compare_outputs(found, report, pairs, path, setting)
        _compare_figures(found, shipped, pairs, path, setting, seconds, memory)
    except ModelError as error:
        found.faults.append(f"{path.name}: {one_line(error)}")
    return found


def _report(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads(files.read_text(folder / REPORT))
        shipped = found["shipped"]
        _FIGURES.validate_python(shipped["figures"])
        _GATE.validate_python({k: v for k, v in found["gate"].items() if v is not None})
        _NAMES.validate_python(shipped["files"])
        _NAMES.validate_python(found["versions"])
        _SCORES.validate_python(shipped["outputs"])
        _SETTING.validate_python(found["final"]["setting"])
        _NAME.validate_python(found["final"].get("opened_as"))
        _ = found["final"]["metrics"]["quality"]["metric"]
    except OSError:
        raise UsageError(f"{folder}: there is no {REPORT}; name a folder that optimize wrote") from None
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError, RecursionError):
        raise UsageError(f"{folder / REPORT}: holds nothing to compare with; run optimize again") from None
    return dict(found)


def _drift(recorded: Mapping[str, str]) -> list[tuple[str, str, str]]:
    now = versions()
    return [(n, str(recorded.get(n, "")), now.get(n, "")) for n in now if recorded.get(n) != now.get(n)]


def _opened(place: Path, report: Mapping[str, Any], setting: Setting, found: Recheck) -> tuple[Path, Setting]:
    """The file that ``run.py`` opens, and its setting."""
    startup = report["final"].get("opened_as")
    if startup is None:
        return place / MODEL, setting
    if any(name == "onnxruntime" for name, _, _ in found.drift):
        found.notes.append(f"{startup} belongs to another version of ONNX Runtime: {RUN} opens {MODEL} instead")
        return place / MODEL, setting
    return place / startup, Setting(**{**asdict(setting), "level": "disabled"})


def _compare_outputs(
    found: Recheck, report: Mapping[str, Any], pairs: Sequence[Pair], path: Path, setting: Setting
) -> None:
    """The closeness to the original's outputs, which were recorded."""
    runner = open_runner(path, pairs[0][0], setting)
    names = [o.name for o in runner.handle.get_outputs()]
    outputs = [dict(zip(names, runner.on(inputs)(), strict=True)) for inputs, _ in pairs]
    now = closeness_of([wanted for _, wanted in pairs], outputs)
    gate = _GATE.validate_python({k: v for k, v in report["gate"].items() if v is not None})
    has_metric = report["final"]["metrics"]["quality"]["metric"] is not None
    refusal = "" if has_metric else gate.refuses(Quality(now))
    for name, then in report["shipped"]["outputs"].items():
        score = now.get(name, Closeness(broken=1)).score
        fell = then - score > max(_MOVED * abs(gate.max_drop), 1e-6)
        reason = f"{score:.6f}, recorded {then:.6f}" if fell else ""
        found.figures.append(Figure(f"closeness of {name}", then, score, "", reason))
    if refusal:
        found.faults.append(refusal)
    if has_metric:
        found.notes.append("the metric is not measured again, only the closeness of outputs")


def _compare_figures(
    found: Recheck,
    shipped: Mapping[str, Any],
    pairs: Sequence[Pair],
    path: Path,
    setting: Setting,
    seconds: float,
    memory: bool,
) -> None:
    """Times in yardsticks, and memory."""
    then = _FIGURES.validate_python(shipped["figures"])
    now = figures(path, setting, pairs[0][0], seconds=seconds, memory=memory and then.memory is not None)
    same = (then.processor, then.cores) == (now.processor, now.cores)
    if not same:
        found.notes.append(
            f"recorded on {then.processor or 'another processor'} with {then.cores} cores, this is "
            f"{now.processor or 'another one'} with {now.cores}: times are shown, not judged"
        )
    found.figures.append(_time("time of a run", then.latency, now.latency, SLOWER, same))
    found.figures.append(_time("time to open", then.creation, now.creation, OPENS_SLOWER, same))
    if then.memory is not None and now.memory is not None:
        grew = now.memory > LARGER * then.memory + _SPARE
        reason = f"{now.memory / then.memory:.2f} times what was recorded" if grew else ""
        found.figures.append(Figure("peak of memory", then.memory, now.memory, "bytes", reason))


def _time(name: str, then: Interval, now: Interval, limit: float, same: bool) -> Figure:
    """Worse where the whole interval lies beyond what was recorded, by more than the limit."""
    slower = same and now.low > limit * then.high
    reason = f"{now.median / then.median:.2f} times what was recorded" if slower else ""
    return Figure(name, then.median, now.median, "yardsticks", reason, "" if same else "another processor")


__all__ = ["Figure", "Recheck", "recheck"]
