"""Quantize the model, in every mode that is asked for; what is measured to be best is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.suite.deploy.artifact import Artifact
from onnxrewrite.suite.deploy.stage import Context, NothingToDo, Stage
from onnxrewrite.suite.quantization.modes import PLAIN
from onnxrewrite.suite.quantization.quantize_settings import Mode, QuantizeSettings
from onnxrewrite.suite.quantization.quantizer import quantize
from onnxrewrite.system.plain import Plain


@dataclass(frozen=True, kw_only=True)
class Quantize(Stage):
    """Quantization, as by ``onnxrewrite quantize``.

    It begins with the model before it was rewritten for speed: the quantizer finds less in fused operators, and the
    rewriting after it fuses the rest.

    Attributes:
        modes: Of quantization, each is a proposal.
        settings: Further settings for all of them, by the names of ``QuantizeSettings``.
        plain: Propose what ``onnxruntime.quantization`` makes by itself, too; not where there are settings.
    """

    name: ClassVar[str] = "quantize"
    lossy: ClassVar[bool] = True
    modes: tuple[Mode, ...] = ("dynamic", "static")
    settings: Plain = field(default_factory=dict)
    plain: bool = True

    def run(self, given: Artifact, context: Context) -> Iterator[Artifact]:
        """One artifact a mode, and its plain form."""
        plans = [settings_of(self.settings, mode) for mode in self.modes]
        if self.plain and not self.settings:
            plans += [QuantizeSettings(mode=mode, plain=True) for mode in self.modes if mode in PLAIN]
        reasons = []
        for plan in plans:
            try:
                yield self._made(plan, given, context)
            except (ModelError, UsageError) as error:  # there is nothing of this kind in the model
                reasons.append(f"{'plain ' if plan.plain else ''}{plan.mode}: {error}")
        if len(reasons) == len(plans):
            raise NothingToDo("; ".join(reasons))

    def _made(self, plan: QuantizeSettings, given: Artifact, context: Context) -> Artifact:
        path = context.file(f"quantized-{'plain-' if plan.plain else ''}{plan.mode}")
        made = quantize(
            given.plain,
            plan,
            data=context.data,
            calibration=context.data,
            out=path,
            gate=None,  # the pipeline judges
            threads=given.setting.threads,
            dims=context.dims,
            seed=context.seed,
            progress=context.progress,
        )
        return replace(given, path=path, source=path, how=plan.name, facts=made.to_json())


def settings_of(given: Mapping[str, object], mode: Mode) -> QuantizeSettings:
    """Settings by name, hyphens for underscores, and a mode."""
    return QuantizeSettings.from_json({**{name.replace("-", "_"): v for name, v in given.items()}, "mode": mode})
