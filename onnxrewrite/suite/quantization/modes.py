"""Several ways to quantize a model, side by side on the same data; the best of those that are good enough is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from onnxrewrite import io
from onnxrewrite.checks.model import LARGE
from onnxrewrite.errors import CheckError, OnnxRewriteError, UsageError
from onnxrewrite.io.statistics import stored_bytes
from onnxrewrite.measure.model_times import model_times
from onnxrewrite.measure.timing import Interval
from onnxrewrite.report.plain_reports import CandidateRow, QuantizedReport
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.precision.exclusion_search import worst_nodes
from onnxrewrite.suite.quality.gate import Gate, Quality
from onnxrewrite.suite.quantization.made_model import Made, check
from onnxrewrite.suite.quantization.quantize_settings import Calibration, Mode, QuantizeSettings
from onnxrewrite.suite.quantization.quantized import Quantized
from onnxrewrite.suite.quantization.workbench import Work

Axis: TypeAlias = Literal["channels", "symmetry", "range"]
"""The settings that may be varied beside mode, format and calibration."""

AXES = get_args(Axis)

PLAIN: tuple[Mode, ...] = ("dynamic", "static")
"""The modes in which ``onnxruntime.quantization`` quantizes by itself."""

EQUAL = 0.05
"""Candidates whose times differ by less are taken for equally fast; the closest of them is the best."""

SECONDS = 4.0
"""To time all candidates by turns."""


@dataclass(frozen=True)
class Candidate:
    """One way, and what came of it.

    Attributes:
        settings: The quantization settings.
        quality: Closeness to the original; None if it could not be made.
        size: Bytes; 0 likewise.
        ratio: Its time to that of the float original, both as ONNX Runtime optimizes them; None where it was not timed.
        failure: The reason why it could not be made, or why the gate refuses it; empty if it is good enough.
    """

    settings: QuantizeSettings
    quality: Quality | None = None
    size: int = 0
    ratio: Interval | None = None
    failure: str = ""

    def to_json(self) -> CandidateRow:
        """Plain data."""
        return {
            "settings": self.settings.to_json(),
            "name": self.settings.name,
            "quality": None if self.quality is None else self.quality.to_json(),
            "size": self.size,
            "ratio": None if self.ratio is None else self.ratio.to_json(),
            "failure": self.failure,
        }


@dataclass(frozen=True)
class Comparison:
    """The result of ``compare``.

    Attributes:
        candidates: All that were tried, in the order in which they were asked for.
        best: The one that was kept.
    """

    candidates: Sequence[Candidate]
    best: Quantized

    def to_json(self) -> QuantizedReport:
        """Plain data, without the model."""
        return {**self.best.to_json(), "candidates": [c.to_json() for c in self.candidates]}


def candidates(settings: QuantizeSettings, vary: Iterable[str] = ()) -> list[QuantizeSettings]:
    """The settings that a comparison tries: dynamic, static by each calibration and in both formats, weights only; each
    of them with what is varied the one way and the other; and the plain forms, unless nodes are chosen.

    Raises:
        UsageError: There is no such thing to vary.
    """
    base = replace(settings, mode="static", moving_average=None, activations="uint8", weights="int8")
    found = [
        replace(base, mode="dynamic", format="qdq", calibration="minmax"),
        *(replace(base, format="qdq", calibration=c) for c in get_args(Calibration)),
        replace(base, format="qdq", calibration="minmax", moving_average=settings.moving_average or 0.1),
        replace(base, format="qoperator", calibration="minmax"),
        replace(base, mode="weights", format="qdq", calibration="minmax"),
    ]
    for axis in vary:
        if axis not in _VARIED:
            raise UsageError(f"--vary {axis}: must be {', '.join(AXES)}")
        found = [each for s in found for each in (s, _VARIED[axis](s))]
    chosen = settings.include or settings.exclude or settings.operators
    plain = [] if chosen else [QuantizeSettings(mode=mode, plain=True) for mode in PLAIN]
    return list(dict.fromkeys([*found, *plain]))


def _channels(settings: QuantizeSettings) -> QuantizeSettings:
    return settings if settings.mode == "weights" else replace(settings, per_channel=not settings.per_channel)


def _symmetry(settings: QuantizeSettings) -> QuantizeSettings:
    if settings.mode == "static":
        return replace(settings, symmetric_activations=not settings.symmetric_activations)
    return replace(settings, symmetric_weights=not settings.symmetric_weights)


def _range(settings: QuantizeSettings) -> QuantizeSettings:
    return settings if settings.mode == "weights" else replace(settings, reduce_range=not settings.reduce_range)


_VARIED: dict[str, Callable[[QuantizeSettings], QuantizeSettings]] = {
    "channels": _channels,
    "symmetry": _symmetry,
    "range": _range,
}


def single(
    work: Work,
    settings: QuantizeSettings,
    *,
    gate: Gate | None = Gate(),  # noqa: B008
    out: str | os.PathLike[str] | None = None,
    setting: Setting = Setting(),  # noqa: B008
    seconds: float = SECONDS,
) -> Quantized:
    """Quantize in one way, and time it beside the float original, unless that is large; see ``compare``.

    Raises:
        CheckError: It is not good enough; nothing was written.
        UsageError, ModelError: The settings, the model, or data that do not fit.
    """
    work.read_data([settings])
    made = work.make(settings)
    quality = work.quality(made)
    if gate is not None:
        _check(work, made, settings, quality, gate)
    if stored_bytes(work.original) > LARGE:
        made.notes.append("not timed, for packing the original's weights takes as much memory again; bench does")
        return work.finish(made, settings, quality, out)
    path = work.folder / "candidate.onnx"
    io.save(made.model, path)
    times = _times(work, {settings: path}, setting, seconds)
    return replace(work.finish(made, settings, quality, out), ratio=times[settings])


def _check(work: Work, made: Made, settings: QuantizeSettings, quality: Quality, gate: Gate) -> None:
    """CheckError for what is not good enough, with the nodes that are furthest off."""
    try:
        check(made, quality, gate)
    except CheckError as error:
        worst = worst_nodes(work, settings) if settings.mode != "weights" else ""
        if not worst:
            raise
        raise CheckError(f"{error}; furthest off are {worst}: --exclude them, or take --until") from None


def compare(
    work: Work,
    tried: Sequence[QuantizeSettings],
    *,
    gate: Gate | None = Gate(),  # noqa: B008
    out: str | os.PathLike[str] | None = None,
    setting: Setting = Setting(),  # noqa: B008
    seconds: float = SECONDS,
) -> Comparison:
    """Try several settings, judge them and time them by turns.

    Args:
        work: The model and the data, opened.
        tried: QuantizeSettings.
        gate: The required quality; None takes all.
        out: The file for the best.
        setting: The session setting for timing.
        seconds: For the timing of all of them together.

    Raises:
        CheckError: None of them is good enough; nothing was written.
        UsageError, ModelError: The model, or data that do not fit.
    """
    work.read_data(tried)
    found: list[Candidate] = []
    made: dict[QuantizeSettings, Made] = {}
    paths: dict[QuantizeSettings, Path] = {}
    for number, settings in enumerate(tried):
        if work.progress is not None:
            work.progress("compare", number, len(tried) - number)
        candidate = _tried(work, settings, gate, made)
        found.append(candidate)
        if settings in made:
            paths[settings] = work.folder / f"candidate-{number}.onnx"
            io.save(made[settings].model, paths[settings])
    times = _times(work, paths, setting, seconds)
    found = [replace(c, ratio=times.get(c.settings)) for c in found]
    best = _best(found)
    if best is None:
        raise CheckError(_none(found))
    chosen = made[best.settings]
    kept = work.finish(chosen, best.settings, best.quality, out)
    return Comparison(found, replace(kept, ratio=best.ratio))


def _tried(work: Work, settings: QuantizeSettings, gate: Gate | None, made: dict[QuantizeSettings, Made]) -> Candidate:
    """Make and judge one; whatever goes wrong is told of it, and the others go on."""
    try:
        model = work.make(settings)
        quality = work.quality(model)
    except OnnxRewriteError as error:
        return Candidate(settings, failure=str(error))
    refusal = gate.refuses(quality) if gate is not None else ""
    made[settings] = model
    return Candidate(settings, quality, model.size, failure=refusal)


def _times(
    work: Work, paths: dict[QuantizeSettings, Path], setting: Setting, seconds: float
) -> dict[QuantizeSettings, Interval]:
    """Each by turns with the float original, on the first sample."""
    if not paths:
        return {}
    if work.progress is not None:
        work.progress("time", 0, 0)
    feeds = work.data.timed.inputs
    original = "original"
    models = {original: work.opened, **{s.name: path for s, path in paths.items()}}
    openers = {name: partial(open_runner, model, feeds, setting, packed=True) for name, model in models.items()}
    times = model_times(openers, [setting], seconds=seconds)
    return {s: times[s.name].ratio(times[original]) for s in paths}


def _best(found: Sequence[Candidate]) -> Candidate | None:
    """Of the fastest, the closest; and of equals the first."""
    good = [c for c in found if not c.failure and c.ratio is not None and c.quality is not None]
    if not good:
        return None
    fastest = min(c.ratio.median for c in good if c.ratio is not None)
    near = [c for c in good if c.ratio is not None and c.ratio.median <= fastest * (1 + EQUAL)]
    return min(near, key=lambda c: c.quality.drop if c.quality is not None else 0.0)


def _none(found: Sequence[Candidate]) -> str:
    judged = [c for c in found if c.quality is not None]
    if not judged:
        return f"none of {len(found)} candidates could be made, and nothing was written: {found[0].failure}"
    closest = min(judged, key=lambda c: c.quality.drop if c.quality is not None else 0.0)
    return (
        f"none of {len(found)} candidates is good enough, and nothing was written; "
        f"the closest, {closest.settings.name}: {closest.failure}"
    )
