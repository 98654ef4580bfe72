"""The quality gate: a model is judged on data against its reference, and accepted, or refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypedDict

from onnxrewrite.errors import ModelError, UsageError, foreign
from onnxrewrite.inputs.bindings import input_specs
from onnxrewrite.reference.tolerance import finite
from onnxrewrite.report.plain_reports import QualityReport
from onnxrewrite.runtime.session import ModelLike, one_line, open_session, skeleton
from onnxrewrite.runtime.settings import DEFAULT, Setting, open_runner
from onnxrewrite.suite.quality.closeness import Closeness, Gauge, worst
from onnxrewrite.suite.quality.data import Data, Given, Sample, load_data
from onnxrewrite.suite.quality.evidence import doubts
from onnxrewrite.suite.quality.texts import TextGauge, TextParts, TextQuality
from onnxrewrite.system.arrays import Feeds, Outputs

Metric: TypeAlias = Callable[[Sequence[Outputs], Sequence[Sample]], float]
"""A metric of the user's own: outputs by name of each sample, and the samples, to a number; larger is better."""


class Judging(TypedDict, total=False):
    """The evidence of quality, as arguments of whatever judges.

    Attributes:
        data: The data for calibration and judging; see ``load_data``.  None: made up.
        batch: Rows of a file that make one sample; 1 without it.
        dims: Sizes of named dimensions of made-up data.
        metric: The user's own measure; None: closeness to the reference.
        seed: Of what is made up.
    """

    data: Given
    batch: int
    dims: Mapping[str, int] | None
    metric: Metric | None
    seed: int


def judged_on(judging: Judging, model: ModelLike) -> Data:
    """The data that a model is judged on.

    Raises:
        UsageError: They do not fit the model.
        ModelError: None are given, and none can be made up.
    """
    batch, dims, seed = judging.get("batch", 1), judging.get("dims"), judging.get("seed", 0)
    return load_data(judging.get("data"), model, batch=batch, dims=dims, seed=seed)


_CLASSES = re.compile(r"logit|prob|score|class|label|softmax", re.IGNORECASE)


@dataclass(frozen=True)
class Quality:
    """The quality of a model.

    Attributes:
        outputs: Output name to its closeness.
        metric: The value of the user's own metric; None without one.
        baseline: Its value for the reference.
        text: The tokens and the perplexity of a decoder; None for other models, and where the texts were made up.
        data: The source of the data.
        generated: True if they were made up.
        doubts: Reasons to doubt all this, see ``evidence``.
    """

    outputs: Mapping[str, Closeness]
    metric: float | None = None
    baseline: float | None = None
    text: TextQuality | None = None
    data: str = ""
    generated: bool = False
    doubts: Sequence[str] = ()

    @property
    def worst(self) -> Closeness:
        """That of the output that is furthest off."""
        name = worst(self.outputs)
        return self.outputs[name] if name is not None else Closeness()

    @property
    def drop(self) -> float:
        """The loss: that of the metric if there is one, else 1 - the worst score."""
        if self.metric is not None and self.baseline is not None:
            return self.baseline - self.metric
        return 1.0 - self.worst.score

    def to_json(self) -> QualityReport:
        """Plain data; None for what is not finite."""
        return {
            "outputs": {name: found.to_json() for name, found in self.outputs.items()},
            "worst": worst(self.outputs),
            "drop": finite(self.drop),
            "metric": None if self.metric is None else finite(self.metric),
            "baseline": None if self.baseline is None else finite(self.baseline),
            "text": None if self.text is None else self.text.to_json(),
            "data": self.data,
            "generated": self.generated,
            "doubts": list(self.doubts),
        }


@dataclass(frozen=True)
class Gate:
    """The limits on the loss of quality.

    Attributes:
        max_drop: Of the user's metric; without one, of the cosine (or the agreement) below 1.
        min_snr: Decibels; None asks for none.
        min_top1: Fraction of rows with the same first class; None asks for none.
        max_error: Largest difference of any element; None asks for none.
        min_tokens: Of a decoder on texts, in place of the cosine: the share of greedy tokens that stay the same.
        max_perplexity: Likewise, the perplexity as a multiple of the reference's.
    """

    max_drop: float = 0.02
    min_snr: float | None = None
    min_top1: float | None = None
    max_error: float | None = None
    min_tokens: float = 0.98
    max_perplexity: float = 1.01

    def refuses(self, found: Quality) -> str:
        """The reason why the quality is not enough; empty if it is."""
        name = worst(found.outputs)
        broken = next((n for n, c in found.outputs.items() if c.broken), None)
        if broken is not None:
            return f"{found.outputs[broken].broken} elements of {broken} are not finite, or of another shape"
        if found.text is not None and found.metric is None:
            reason = self._text(found.text)
            if reason:
                return reason
        elif not found.drop <= self.max_drop:
            return self._drop(found, name)
        for output, close in found.outputs.items():
            if self.min_snr is not None and close.snr < self.min_snr:
                return f"the signal-to-noise ratio of {output} is {close.snr:.1f} dB, less than {self.min_snr:g}"
            if self.min_top1 is not None and close.top1 is not None and close.top1 < self.min_top1:
                return f"the first class of {output} is the same in {close.top1:.1%}, less than {self.min_top1:.1%}"
            if self.max_error is not None and close.largest > self.max_error:
                return f"the largest error of {output} is {close.largest:.3g}, more than {self.max_error:g}"
        return ""

    def _text(self, found: TextQuality) -> str:
        if not found.agreement >= self.min_tokens:
            return f"{found.agreement:.1%} of greedy tokens are the original's, fewer than {self.min_tokens:.1%}"
        if not found.growth <= self.max_perplexity:
            return (
                f"the perplexity is {found.perplexity:.4g}, more than {self.max_perplexity:g} times the original's "
                f"{found.baseline:.4g}"
            )
        return ""

    def _drop(self, found: Quality, name: str | None) -> str:
        if found.metric is not None and found.baseline is not None:
            return (
                f"the metric is {found.metric:.4g}, {found.drop:.4g} less than the original's {found.baseline:.4g}; "
                f"{self.max_drop:g} is allowed"
            )
        what = "cosine similarity" if found.worst.agreement is None else "agreement"
        return f"the {what} of {name} is {found.worst.score:.4f}, less than {1 - self.max_drop:.4g}"


@dataclass
class Judge:
    """Judges models against a reference on data; the reference is run once.

    Args:
        reference: The model as it was; it runs without ONNX Runtime's optimizations.
        data: The data that both are run on.
        metric: The user's own.
        text: The inputs and outputs of a decoder.
    """

    reference: ModelLike
    data: Data
    metric: Metric | None = None
    text: TextParts | None = None
    _wanted: list[Outputs] = field(default_factory=list, repr=False)
    _doubts: list[str] = field(default_factory=list, repr=False)
    _baseline: float | None = None

    def quality(self, model: ModelLike, setting: Setting = DEFAULT) -> Quality:
        """The quality of a model that runs with this setting.

        Raises:
            ModelError: It does not open or run, or the reference does not.
            UsageError: The metric fails.
        """
        self._refer()
        runner = open_runner(model, self.data[0].inputs, setting)
        names = [o.name for o in runner.handle.get_outputs()]
        gauges = _gauges(self._wanted[0])
        text = TextGauge(self.text) if self.text is not None and not self.data.generated else None
        kept: list[Outputs] = []
        for sample, wanted in zip(self.data, self._wanted, strict=True):
            outputs = dict(zip(names, runner.on(sample.inputs)(), strict=True))
            for name, gauge in gauges.items():
                gauge.add(wanted[name], outputs.get(name))
            if text is not None:
                text.add(sample.inputs, wanted, outputs)
            kept += [outputs] if self.metric is not None else []
        return Quality(
            {name: gauge.closeness for name, gauge in gauges.items()},
            self._measured(kept),
            self._baseline,
            None if text is None else text.quality,
            self.data.source,
            self.data.generated,
            self._doubts,
        )

    def _refer(self) -> None:
        if self._wanted:
            return
        session = open_session(self.reference)
        if isinstance(session, str):
            raise ModelError(f"the original does not open in ONNX Runtime: {session}")
        for number, sample in enumerate(self.data):
            outputs = session.run(sample.inputs)
            if isinstance(outputs, str):
                raise UsageError(f"the original does not run on sample {number} of {self.data.source}: {outputs}")
            self._wanted.append(outputs)
        self._baseline = self._measured(self._wanted)
        classes = [name for name in self._wanted[0] if _scores_classes(name, self._wanted[0])]
        self._doubts = doubts(self.data, self._wanted, input_specs(skeleton(self.reference)), classes)

    def references(self) -> Iterator[tuple[Feeds, Outputs]]:
        """The inputs of each sample, and the reference's outputs.

        Raises:
            ModelError: The reference does not open.
            UsageError: It does not run on the data.
        """
        self._refer()
        yield from ((sample.inputs, wanted) for sample, wanted in zip(self.data, self._wanted, strict=True))

    def _measured(self, outputs: Sequence[Outputs]) -> float | None:
        if self.metric is None:
            return None
        try:
            with foreign():
                return float(self.metric(outputs, self.data.samples))
        except Exception as error:  # whatever somebody else's metric raises
            raise UsageError(f"the metric fails: {one_line(error)}") from error


def closeness_of(reference: Sequence[Outputs], found: Sequence[Outputs]) -> dict[str, Closeness]:
    """The closeness of each output over all samples."""
    gauges = _gauges(reference[0])
    for wanted, outputs in zip(reference, found, strict=True):
        for name, gauge in gauges.items():
            gauge.add(wanted[name], outputs.get(name))
    return {name: gauge.closeness for name, gauge in gauges.items()}


def _gauges(outputs: Outputs) -> dict[str, Gauge]:
    return {name: Gauge(classes=_scores_classes(name, outputs)) for name in outputs}


def _scores_classes(name: str, outputs: Outputs) -> bool:
    """True if an output holds scores of classes: by its name, or because it is the only one and has two axes."""
    value = outputs[name]
    shape = getattr(value, "shape", ())
    return len(shape) > 1 and (_CLASSES.search(name) is not None or (len(outputs) == 1 and len(shape) == 2))
