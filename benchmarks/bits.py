"""Bits where they pay: a form of weights for each product, against the same 4 bits for all.

    python -m benchmarks.bits [--limits D ...] [--seconds N] [--json FILE]

The decoder that speaks (``golden_models/speaking``) is quantized uniformly, as builders of decoders do, and by
``--weights mixed`` under several limits.  Forms are chosen on one half of the tokens that were held out of training;
the other judges everything: divergence from the float model (nats a token), share of greedy tokens that stay,
perplexity.  Time is that of one token after 256, of the processor with one thread, all models by turns, to the float
model's as ``apply`` leaves it.

Goals: a mixed model no slower than each uniform one has half of its divergence at most; one that diverges no more is
15 % faster.  The best that keeps 98 % of tokens and perplexity within 1 % takes a quarter of the float model's time.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

import onnxrewrite as rw
from benchmarks import report
from golden_models.speaking import run as speaking
from onnxrewrite import io
from onnxrewrite.measure.timing import interleave, ratio
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.quality.closeness import Closeness
from onnxrewrite.suite.quality.data import Data, Sample
from onnxrewrite.suite.quality.gate import Judge
from onnxrewrite.suite.quantization.bit_allocation import allocate, measured
from onnxrewrite.suite.quantization.bit_trials import Formats, Trials
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.weight_format import WeightFormat
from onnxrewrite.suite.quantization.workbench import Work
from onnxrewrite.system.arrays import Outputs

PAST = 256
"""Tokens before the one that is timed."""
UNIFORM = tuple(WeightFormat(4, block) for block in (32, 128))
LIMITS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
SETTING = Setting(threads=1)
FLOAT = "float"

HALVED, FASTER, QUARTER = 0.5, 0.85, 0.25
"""Goals: divergence at the same time, time at the same divergence, and time to the float model's."""

AGREEMENT, PERPLEXITY = 0.98, 1.01


def samples(tokens: np.ndarray) -> Data:
    """A sample for each piece of tokens."""
    return Data([Sample(speaking.feeds(piece), piece) for piece in speaking.pieces(tokens)], "tokens held out")


def perplexity(outputs: Sequence[Outputs], told: Sequence[Sample]) -> float:
    """Exp of the mean loss of the next token."""
    losses = (
        speaking.loss(np.asarray(o["logits"])[0], np.asarray(s.label)) for o, s in zip(outputs, told, strict=True)
    )
    return math.exp(statistics.fmean(losses))


def made(trials: Trials, forms: Formats) -> ir.Model:
    """The model in these forms, its operators fused."""
    model = trials.in_forms(trials.model, forms) if forms else trials.model
    return rw.apply(io.to_proto(model), check="fast", lower="fused", threads=1).model


def uniform(trials: Trials, form: WeightFormat) -> Formats:
    """All products in one form, tables in float."""
    return {p.name: form for p in trials.products if p.node.op_type == "MatMul" and form.fits("MatMul", p.sizes)}


def row(name: str, close: Closeness, perplexed: float, time: float) -> dict[str, report.Cell]:
    """A row of the table."""
    return {
        "weights": name,
        "divergence": round(close.divergence or 0.0, 6),
        "tokens kept": round(close.top1 or 0.0, 4),
        "perplexity": round(perplexed, 3),
        "time": round(time, 3),
    }


def compared(
    models: Mapping[str, ir.Model], original: ir.Model, judged: Data, seconds: float
) -> dict[str, dict[str, report.Cell]]:
    """A row for each model."""
    step = speaking.feeds(np.array([1]), speaking.made_up_past(PAST))
    runners = {name: open_runner(io.to_proto(model), step, SETTING) for name, model in models.items()}
    timings = interleave(runners, seconds=seconds, least=30, most=1000)
    rows = {}
    for name, model in models.items():
        judge = Judge(io.to_proto(original), judged, lambda outputs, told: -perplexity(outputs, told))
        quality = judge.quality(io.to_proto(model), SETTING)
        time = ratio(timings[name], timings[FLOAT], of_processor=True).median
        rows[name] = row(name, quality.outputs["logits"], -(quality.metric or 0.0), time)
    return rows


def goals(tell: report.Report, rows: Mapping[str, Mapping[str, report.Cell]], names: Sequence[str]) -> None:
    """The goals; ``names`` are those of uniform models."""
    mixed = [r for name, r in rows.items() if name.startswith("mixed")]

    def number(each: Mapping[str, report.Cell], what: str) -> float:
        found = each[what]
        assert isinstance(found, float)
        return found

    for name in names:
        other = rows[name]
        close = [number(r, "divergence") for r in mixed if number(r, "time") <= number(other, "time")]
        fast = [number(r, "time") for r in mixed if number(r, "divergence") <= number(other, "divergence")]
        halved = min(close, default=math.inf) / number(other, "divergence")
        faster = min(fast, default=math.inf) / number(other, "time")
        tell.goal(f"divergence to {name}, no slower", halved, HALVED, unit="×")
        tell.goal(f"time to {name}, no further off", faster, FASTER, unit="×")
    first = number(rows[FLOAT], "perplexity")
    good = [
        number(r, "time")
        for r in mixed
        if number(r, "tokens kept") >= AGREEMENT and number(r, "perplexity") <= PERPLEXITY * first
    ]
    tell.goal("time to float, tokens and perplexity kept", min(good, default=math.inf), QUARTER, unit="×")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--limits", nargs="+", type=float, default=LIMITS, metavar="D", help="of divergence")
    options.add_argument("--seconds", type=float, default=20.0, metavar="N", help="to time all models by turns")
    given = options.parse_args(arguments)
    original, tokens = io.load(speaking.MODEL), speaking.held_out()
    half = len(tokens) // 2 if not given.quick else 8 * speaking.LENGTH
    settings = QuantizeSettings(mode="weights", weights="mixed", rows=1)
    with Work(speaking.MODEL, samples(tokens[:half]), threads=1, seed=given.seed) as work:
        trials = work.trials(settings)
        choices = measured(trials, work.close, lambda done, remain: None)
        models = {FLOAT: made(trials, {})} | {
            f"uniform {form}": made(trials, uniform(trials, form)) for form in UNIFORM
        }
        names = [name for name in models if name != FLOAT]
        for limit in given.limits:
            chosen = allocate(choices, limit)
            forms = {name: o.form for name, o in chosen.items() if o.form is not None}
            models[f"mixed, at most {limit:g}"] = made(trials, forms)
        rows = compared(models, original, samples(tokens[half : 2 * half]), given.seconds)
    tell = report.Report("bits")
    tell.table("The decoder that speaks, one token after 256", list(rows.values()), note="time to the float model's")
    goals(tell, rows, names)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
