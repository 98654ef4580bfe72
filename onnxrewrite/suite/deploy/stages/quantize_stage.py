"""Quantize the model, in every mode that is asked for; what is measured to be best is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import ClassVar

from onnxrewrite.errors import CheckError, ModelError, UsageError
from onnxrewrite.suite.deploy.artifact import Artifact
from onnxrewrite.suite.deploy.stage import Context, NothingToDo, Stage
from onnxrewrite.suite.precision.exclusion_search import settings_until
from onnxrewrite.suite.quantization.made_model import Made
from onnxrewrite.suite.quantization.modes import PLAIN
from onnxrewrite.suite.quantization.prepare import QuantizedAlready
from onnxrewrite.suite.quantization.quantize_settings import Mode, QuantizeSettings
from onnxrewrite.suite.quantization.workbench import Work
from onnxrewrite.system.plain import Plain

JUDGED = 16
"""So many samples are run to see whether a form is worth the work; the pipeline judges on others."""

SAFE = 0.9
"""Of the loss that the gate allows: the search judges on other samples than the pipeline."""

CLOSER = 0.8
"""Of the loss: smoothing adds operators, and is to bring so much."""


@dataclass(frozen=True, kw_only=True)
class Quantize(Stage):
    """Quantization, as by ``onnxrewrite quantize``.

    It begins with the model before it was rewritten for speed: the quantizer finds less in fused operators, and the
    rewriting after it fuses the rest.

    What does not pass the gate as the quantizer leaves it is not rewritten and timed, for that would make it no better.
    Dynamic quantization goes on to a closer form: products with weights in blocks, and nodes in float, as few as it
    takes.  On data of the user's it is smooth where that is closer.

    Attributes:
        modes: Of quantization, each is a proposal.
        settings: Further settings for all of them, by the names of ``QuantizeSettings``.
        plain: Propose what ``onnxruntime.quantization`` makes by itself, too; not where there are settings.
        closer: Go on to closer forms; not where there are settings.
    """

    name: ClassVar[str] = "quantize"
    lossy: ClassVar[bool] = True
    modes: tuple[Mode, ...] = ("dynamic", "static")
    settings: Plain = field(default_factory=dict)
    plain: bool = True
    closer: bool = True

    def quick(self) -> Quantize:
        """One mode, and not the plain form."""
        return replace(self, modes=self.modes[:1], plain=False)

    def run(self, given: Artifact, context: Context) -> Iterator[Artifact]:
        """One artifact a mode, and its plain form."""
        plans = [settings_of(self.settings, mode) for mode in self.modes]
        if self.plain and not self.settings:
            plans += [QuantizeSettings(mode=mode, plain=True) for mode in self.modes if mode in PLAIN]
        reasons: list[str] = []
        with ExitStack() as kept:
            try:
                work = kept.enter_context(_opened(given, context))
            except QuantizedAlready as error:
                raise NothingToDo(str(error).partition(";")[0]) from None
            work.read_data(plans)
            for plan in plans:
                try:
                    yield self._made(plan, work, given, context)
                except (ModelError, UsageError, CheckError) as error:  # there is nothing of this kind in the model
                    reasons.append(f"{'plain ' if plan.plain else ''}{plan.mode}: {error}")
        if len(reasons) == len(plans):
            raise NothingToDo("; ".join(reasons))
        for reason in reasons:
            context.note(f"{self.name}: {reason}")

    def _made(self, plan: QuantizeSettings, work: Work, given: Artifact, context: Context) -> Artifact:
        path = context.file(f"quantized-{'plain-' if plan.plain else ''}{plan.mode}")
        if (known := context.made(path)) is not None:
            return known
        made = self._good_enough(plan, work, context)
        found = work.finish(work.fused(made), made.settings, None, path)
        return replace(given, path=path, source=path, how=made.settings.name, facts=found.to_json())

    def _good_enough(self, plan: QuantizeSettings, work: Work, context: Context) -> Made:
        """By these settings, or closer ones that pass the gate.

        Raises:
            CheckError: None do.
        """
        made = work.unfused(plan)
        quality = work.quality(made)
        goes_on = self.closer and not self.settings and plan.mode == "dynamic" and not plan.plain
        if goes_on and not work.data.generated:
            smooth = work.unfused(replace(plan, smooth=True))
            if (found := work.quality(smooth)).drop < CLOSER * quality.drop:
                made, quality = smooth, found
        refusal = context.gate.refuses(quality)
        if not refusal:
            return made
        told = f"{refusal}, as the quantizer leaves it"
        if not goes_on:
            raise CheckError(told)
        context.note(f"{self.name}: {made.settings.name}: {told}; a closer form was made")
        gate = replace(context.gate, max_drop=SAFE * context.gate.max_drop)
        return work.unfused(settings_until(work, made.settings, gate, fused=False, many=0, left=context.left))


def _opened(given: Artifact, context: Context) -> Work:
    """The model that quantization begins with; it is judged on a part of the data."""
    return Work(
        given.plain,
        context.data[:JUDGED],
        threads=given.setting.threads,
        dims=context.dims,
        calibration=context.data,
        metric=context.meter.judge.metric,
        seed=context.seed,
        progress=context.progress,
    )


def settings_of(given: Mapping[str, object], mode: Mode) -> QuantizeSettings:
    """Settings by name, hyphens for underscores, and a mode."""
    return QuantizeSettings.from_json({**{name.replace("-", "_"): v for name, v in given.items()}, "mode": mode})
