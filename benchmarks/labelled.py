"""Trained networks with labels, made ready to deploy: what becomes of their accuracy, and of their speed.

    python -m benchmarks.labelled [NAME ...] [--only networks|data] [--threads N] [--seconds N] [--json FILE]

The networks of ``golden_models/labelled``: images, boxes, texts and tastes.  ``optimize`` calibrates and judges on 64
samples; then the export, its result, and what ``onnxruntime.quantization`` makes of the export with its defaults,
dynamic and static, are scored on 2,000 samples that nobody has seen, and run by turns, of the processor.  Goals:

- no result scores more than a point below the export;
- none is slower than the faster of the plain forms that score as well, a transformer has 0.9 of its time;
- the speed that ``optimize`` tells is within 5 % of what is measured here;
- ``quantize`` refuses bad calibration data, or doubts its own figures, in each of twelve ways, and says nothing against
  good ones.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.models import has_attention
from benchmarks.pipeline import Variant, plain
from golden_models.labelled.tasks import TASKS, Task
from onnxrewrite.cli import main as command
from onnxrewrite.measure.timing import interleave, ratio
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.deploy.pipeline import Pipeline
from onnxrewrite.suite.quality.data import Data, Sample
from onnxrewrite.suite.quality.gate import Judge
from onnxrewrite.system.arrays import Outputs

FOLDER = Path(__file__).resolve().parents[1] / "golden_models" / "labelled"
SHOWN, UNSEEN, BATCH = 64, 2_000, 100
POINT, FASTER, TOLD, NOISE = 0.01, 0.9, 0.05, 1.02
"""Goals, and what counts as slower."""


def data(task: Task, count: int, seed: int, batch: int = 1) -> Data:
    """Samples of a task, so many in a run."""
    inputs, labels = task.drawn(count, seed)
    parts = [slice(start, start + batch) for start in range(0, count, batch)]
    return Data([Sample({n: a[part] for n, a in inputs.items()}, labels[part]) for part in parts], "drawn from a seed")


def measured(name: str, threads: int, seconds: float) -> dict[str, report.Row]:
    """A row for each form."""
    task, path, setting = TASKS[name], FOLDER / f"{name}.onnx", Setting(threads=threads)

    def metric(outputs: Sequence[Outputs], samples: Sequence[Sample]) -> float:
        found = np.concatenate([np.asarray(each["found"]) for each in outputs])
        return task.score(found, np.concatenate([np.asarray(sample.label) for sample in samples]))

    shown, judge = data(task, SHOWN, 10), Judge(str(path), data(task, UNSEEN, 20, BATCH), metric)
    with tempfile.TemporaryDirectory(prefix="onnxrewrite-") as made:
        folder = Path(made)
        outcome = Pipeline(data=shown, metric=metric, threads=threads, seconds=1.0).run(path, folder / "ours")
        ours = Variant("ours", folder / "ours" / "model.onnx", outcome.final.artifact.setting)
        variants = [Variant("export", path, setting), ours, *plain(path, shown, folder, setting)]
        runners = {v.name: open_runner(v.path, shown[0].inputs, v.setting) for v in variants}
        timings = interleave(runners, seconds=seconds)
        times = {v.name: ratio(timings[v.name], timings["export"], of_processor=threads == 1).median for v in variants}
        told = outcome.final.metrics.ratio.median
        return {
            v.name: {
                "network": name,
                "form": v.name,
                "score": judge.quality(v.path, v.setting).metric,
                "of the export's time": times[v.name],
                "told": told if v is ours else None,
                "stages": " ".join(s.stage for s in outcome.steps if s.kept) if v is ours else "",
            }
            for v in variants
        }


def _number(row: report.Row, what: str) -> float:
    found = row[what]
    assert isinstance(found, float)
    return found


def state(tell: report.Report, found: Mapping[str, Mapping[str, report.Row]]) -> None:
    """The goals."""
    lost, slower, told, transformers = [], [], [], []
    for name, rows in found.items():
        score, time = (_number(rows["ours"], what) for what in ("score", "of the export's time"))
        export = _number(rows["export"], "score")
        lost.append(export - score)
        told.append(abs(_number(rows["ours"], "told") / time - 1))
        good = [r for n, r in rows.items() if n.startswith("plain") and _number(r, "score") >= export - POINT]
        rival = min((_number(r, "of the export's time") for r in good), default=1.0)
        slower.append(time / rival > NOISE)
        transformers += [time / rival] if has_attention(FOLDER / f"{name}.onnx") else []
    tell.goal("most that a score is below the export's", max(lost), POINT)
    tell.goal("slower than the faster plain form, or the export", sum(slower), 0, unit="networks")
    tell.goal("a transformer, of the faster plain form's time", max(transformers, default=0.0), FASTER)
    tell.goal("most that the speed told is off", max(told), TOLD)


def calibrations() -> dict[str, np.ndarray]:
    """Images to calibrate on: good ones, and twelve bad ways."""
    good, many = (TASKS["shapes"].drawn(count, 10) for count in (SHOWN, 8 * SHOWN))
    image = good[0]["image"]
    found = {"good": image, "a fiftieth": image / 50, "a thousandth": image / 1000, "not normalized": image * 64 + 128}
    for name, number in (("a NaN", np.nan), ("an infinity", np.inf)):
        found[name] = image.copy()
        found[name][3, 0, 0, 0] = number
    alike = {"zeros": image * 0, "one gray": np.full_like(image, 0.5), "all equal": np.repeat(image[:1], SHOWN, 0)}
    few = {"one sample": image[:1], "three samples": image[:3], "one class": many[0]["image"][many[1] == 0][:SHOWN]}
    return {**found, **alike, **few, "channels last": image.transpose(0, 2, 3, 1)}


def judged_calibrations(tell: report.Report) -> None:
    """What ``quantize --mode static`` says of each."""
    rows: list[report.Row] = []
    with tempfile.TemporaryDirectory(prefix="onnxrewrite-") as made:
        for name, image in calibrations().items():
            given, out, told = (Path(made) / f"{name}{ending}" for ending in (".npz", ".onnx", ".json"))
            np.savez(given, image=image)
            asked = ["quantize", str(FOLDER / "shapes.onnx"), "--mode", "static", "--data", str(given), "-o", str(out)]
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                code = command([*asked, "--json", str(told), "-q"])
            doubts = json.loads(told.read_text())["quality"]["doubts"] if told.exists() and code == 0 else []
            rows.append({"images": name, "exit": code, "doubts": len(doubts), "first": doubts[0] if doubts else ""})
    tell.table("Calibration data", rows)
    wrong = sum((r["exit"] != 0 or r["doubts"] != 0) is (r["images"] == "good") for r in rows)
    tell.goal("calibrations that are not judged as they should be", wrong, 0, unit=f"of {len(rows)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    options.add_argument("--only", nargs="+", choices=["networks", "data"], default=["networks", "data"])
    options.add_argument("--threads", type=int, default=1, help="within an operator (default 1)")
    options.add_argument("--seconds", type=float, default=4.0, help="for the forms of a network (default 4)")
    given = options.parse_args(argv)
    logging.disable(logging.WARNING)
    found = {}
    tell = report.Report("labelled")
    names = given.names or (["tastes"] if given.quick else list(TASKS))
    for name in names if "networks" in given.only else ():
        found[name] = measured(name, given.threads, given.seconds)
        for row in found[name].values():
            print(*(f"{v:.3g}" if isinstance(v, float) else v for v in row.values()), file=sys.stderr, flush=True)
    if found:
        title = f"Networks with labels, {given.threads} threads"
        tell.table(title, [r for rows in found.values() for r in rows.values()])
        state(tell, found)
    if "data" in given.only:
        judged_calibrations(tell)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
