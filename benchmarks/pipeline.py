"""From an export to a deployed model: ours against ONNX Runtime alone, and against its quantizer used plainly.

    python -m benchmarks.pipeline [MODEL ...] [--only models|gate] [--threads N] [--seconds N] [--json FILE]

Without a MODEL: a BERT, a GPT-2 with past, a ViT, a YOLO-like and a mobile CNN of the shared models, and those of
``golden_models``.  All variants of a model run by turns, with all of ONNX Runtime's optimizations: the export; what the
pipeline makes of it; and what ``onnxruntime.quantization`` makes of the export with its defaults, on the same data:
dynamic, and static in QDQ form.  Goals:

- transformers: at most 0.6 of the export's time each, 0.5 in the geometric mean, at most 0.3 of its size; those below
  1 MB, as the golden ones are, are told of apart;
- everything: cosine similarity at least 0.98, and no kept stage that made it slower and no smaller;
- against the faster of the plain forms that pass the same gate: no slower beyond doubt, no further off;
- a calibration that is bad is refused: exit status 1, and nothing is written.
"""

from __future__ import annotations

import contextlib
import io
import logging
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.checking import CORPUS
from benchmarks.models import corpus_inputs, has_attention
from onnxrewrite.cli import main as command
from onnxrewrite.measure.peak_memory import Use, used
from onnxrewrite.measure.timing import Timing, interleave, ratio
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.deploy.artifact import size_of
from onnxrewrite.suite.deploy.outcome import Outcome
from onnxrewrite.suite.deploy.pipeline import Pipeline
from onnxrewrite.suite.quality.data import Data, Sample, load_data
from onnxrewrite.suite.quality.gate import Gate, Judge, Quality

GOLDEN = Path(__file__).resolve().parents[1] / "golden_models"
SHARED = (
    "hf_ts/bert__ts17_sdpa_dyn",
    "hf_ts/gpt2_past__ts17_eager_dyn",
    "hf_ts/vit__ts17_eager_dyn",
    "plain/yolov8n_like__ts17_bnkept",
    "plain/mobilenet_hardswish__ts17_bnkept",
)
OWN = ("bert", "gpt2_past", "vit", "yolo", "mobilenet_hardswish")

SAMPLES = 16

SMALL = 1_000_000
"""Bytes; models below are told of apart: their products take less time than what is around them."""

SLOWER, FURTHER = 1.02, 0.5
"""Of the time of a plain form, and decibels below its signal-to-noise ratio: what counts as worse."""


def chosen() -> list[Path]:
    """The models that are there."""
    shared = [CORPUS / f"{name}.onnx" for name in SHARED]
    return [p for p in (*shared, *(GOLDEN / name / "model.onnx" for name in OWN)) if p.is_file()]


def called(path: Path) -> str:
    """A short name."""
    return f"golden {path.parent.name}" if path.name == "model.onnx" else path.stem


def data_for(path: Path) -> Data:
    """Samples of different values: by the recipe of the shared models, else made up."""
    make = corpus_inputs() if path.resolve().is_relative_to(CORPUS) else None
    if make is None:
        return load_data(None, str(path), most=SAMPLES)
    return Data([Sample(make.make_inputs(str(path), seed=seed)) for seed in range(SAMPLES)], "the recipe of the model")


@dataclass(frozen=True)
class Variant:
    """A form of a model."""

    name: str
    path: Path
    setting: Setting


def plain(path: Path, data: Data, folder: Path, setting: Setting) -> Iterator[Variant]:
    """The export quantized by ``onnxruntime.quantization`` with its defaults; forms that it fails on are left out."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.samples = iter([dict(s.inputs) for s in data])

        def get_next(self) -> Any:
            return next(self.samples, None)

    ways: Mapping[str, Callable[[Path], object]] = {
        "plain dynamic": lambda to: quantize_dynamic(path, to),
        "plain static": lambda to: quantize_static(path, to, Reader()),
    }
    for name, way in ways.items():
        target = folder / f"{name.replace(' ', '-')}.onnx"
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                way(target)
            open_runner(target, data[0].inputs, setting)()
        except Exception as error:  # of a peer, whatever it raises
            print(f"{called(path)}, {name}: {type(error).__name__}: {str(error)[:120]}", file=sys.stderr)
            continue
        yield Variant(name, target, setting)


@dataclass(frozen=True)
class Found:
    """All variants of a model, measured."""

    path: Path
    outcome: Outcome
    timings: Mapping[str, Timing]
    quality: Mapping[str, Quality]
    rows: Sequence[report.Row]


def measured(path: Path, threads: int, seconds: float) -> Found:
    """The export, ours, and the plain forms, by turns."""
    setting, data = Setting(threads=threads), data_for(path)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        outcome = Pipeline(data=data, threads=threads, seconds=1.0).run(path, folder / "ours")
        ours = Variant("ours", folder / "ours" / "model.onnx", outcome.final.artifact.setting)
        variants = [Variant("export", path, setting), ours, *plain(path, data, folder, setting)]
        feeds = data[0].inputs
        timings = interleave({v.name: open_runner(v.path, feeds, v.setting) for v in variants}, seconds=seconds)
        judge = Judge(str(path), data)
        quality = {v.name: judge.quality(v.path, v.setting) for v in variants}
        peaks = {use.name: u.peak for use, u in used([Use(v.name, v.path, feeds, v.setting) for v in variants])}
        rows: list[report.Row] = [
            {
                "model": called(path),
                "form": v.name,
                "to export": ratio(timings[v.name], timings["export"]).median,
                "size": size_of(v.path) / size_of(path),
                "memory": (peaks[v.name] or 0) / (peaks["export"] or 1),
                "cosine": quality[v.name].worst.score,
                "SNR": quality[v.name].worst.snr,
                "stages": " ".join(s.stage for s in outcome.steps if s.kept) if v is ours else "",
            }
            for v in variants
        ]
    return Found(path, outcome, timings, quality, rows)


def idle(outcome: Outcome) -> int:
    """Stages that were kept though they made the model slower, and no smaller."""
    count, before = 0, outcome.baseline.metrics
    for step in outcome.steps:
        if step.kept is not None:
            after = step.kept.metrics
            opens = after.creation.median < before.creation.median
            count += after.ratio.low > before.ratio.high and after.size >= before.size and not opens
            before = after
    return count


def worse(found: Found) -> str:
    """The respect in which ours is worse than the faster plain form that passes the gate; empty if it is not."""
    passing = [n for n, q in found.quality.items() if n.startswith("plain") and not Gate().refuses(q)]
    if not passing:
        return ""
    rival = min(passing, key=lambda n: found.timings[n].latency.median)
    against = ratio(found.timings["ours"], found.timings[rival])
    if against.low > 1 and against.median > SLOWER:
        return f"{called(found.path)}: {against.median:.2f} of the time of {rival}"
    ours, theirs = found.quality["ours"].worst.snr, found.quality[rival].worst.snr
    return f"{called(found.path)}: {theirs - ours:.1f} dB further off than {rival}" if ours < theirs - FURTHER else ""


def state(tell: report.Report, found: Sequence[Found]) -> None:
    """The goals."""
    ours = {f.path: next(r for r in f.rows if r["form"] == "ours") for f in found}
    transformers = [f.path for f in found if has_attention(f.path)]
    for group, small in (("transformers", False), ("transformers below 1 MB", True)):
        rows = [ours[path] for path in transformers if (path.stat().st_size < SMALL) is small]
        if rows:
            times = [float(r["to export"]) for r in rows]  # type: ignore[arg-type]
            tell.goal(f"{group}: most of the export's time", max(times), 0.6)
            tell.goal(f"{group}: geometric mean of the time", statistics.geometric_mean(times), 0.5)
            tell.goal(f"{group}: most of the export's size", max(float(r["size"]) for r in rows), 0.3)  # type: ignore[arg-type]
    far = sum(float(r["cosine"]) < 0.98 for r in ours.values())  # type: ignore[arg-type]
    tell.goal("cosine similarity below 0.98", far, 0, unit="models")
    tell.goal("kept stages that brought nothing", sum(idle(f.outcome) for f in found), 0, unit="stages")
    reasons = [reason for f in found if (reason := worse(f))]
    for reason in reasons:
        print(f"worse: {reason}", file=sys.stderr)
    tell.goal("worse than the plain quantizer", len(reasons), 0, unit="models")


def gate(tell: report.Report) -> None:
    """A calibration on what is a thousandth of the data that the model is judged on."""
    path = GOLDEN / "mobilenet_hardswish" / "model.onnx"
    rows: list[report.Row] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        inputs = [dict(s.inputs) for s in load_data(None, str(path), most=8)]
        names = list(inputs[0])
        for name, factor in (("good", 1.0), ("bad", 1e-3)):
            arrays: dict[str, Any] = {
                n: np.stack([np.asarray(i[n]) * np.float32(factor) for i in inputs]) for n in names
            }
            np.savez(folder / f"{name}.npz", **arrays)
        for calibration, wanted in (("good", 0), ("bad", 1)):
            out = folder / f"{calibration}.onnx"
            data = ["--data", str(folder / "good.npz"), "--calibration-data", str(folder / f"{calibration}.npz")]
            given = ["quantize", str(path), "--mode", "static", *data, "-o", str(out), "-q"]
            with contextlib.redirect_stdout(io.StringIO()):
                code = command(given)
            rows.append({"calibration": calibration, "exit": code, "wanted": wanted, "written": str(out.exists())})
    tell.table("The gate", rows)
    wrong = sum(r["exit"] != r["wanted"] or (r["written"] == "True") != (r["exit"] == 0) for r in rows)
    tell.goal("calibrations that are not judged as they should be", wrong, 0, unit="calibrations")


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="default: five shared and five golden")
    options.add_argument("--only", nargs="+", choices=["models", "gate"], default=["models", "gate"])
    options.add_argument("--threads", type=int, default=1, help="within an operator (default 1)")
    options.add_argument("--seconds", type=float, default=4.0, help="for the variants of a model (default 4)")
    given = options.parse_args(argv)
    logging.disable(logging.WARNING)
    tell = report.Report("pipeline")
    if "models" in given.only:
        found = []
        for path in given.models or (chosen()[:1] if given.quick else chosen()):
            found.append(measured(path, given.threads, given.seconds))
            for row in found[-1].rows:
                print(*(f"{v:.3g}" if isinstance(v, float) else v for v in row.values()), file=sys.stderr)
        title = f"Forms of a model, {given.threads} threads"
        tell.table(title, [r for f in found for r in f.rows], "time, size and memory: to those of the export")
        state(tell, found)
    if "gate" in given.only:
        gate(tell)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
