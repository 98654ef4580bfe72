"""Give parts of the model precisions of their own: by a map, or as a search finds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from onnxrewrite import io
from onnxrewrite.errors import CheckError
from onnxrewrite.suite.deploy.artifact import Artifact
from onnxrewrite.suite.deploy.stage import Context, NothingToDo, Stage
from onnxrewrite.suite.deploy.stages.quantize_stage import settings_of
from onnxrewrite.suite.precision.mixed import mixed_precision
from onnxrewrite.suite.precision.node_sensitivity import Method
from onnxrewrite.suite.precision.search import search_precision
from onnxrewrite.suite.quantization.quantize_settings import Mode
from onnxrewrite.suite.quantization.quantizer import quantize
from onnxrewrite.system.plain import Plain


@dataclass(frozen=True, kw_only=True)
class Mixed(Stage):
    """Mixed precision by a precision map; without a map, the fastest assignment that passes the gate.

    Attributes:
        precision: Scopes, regions, operators or names to ``float32``, ``float16``, ``bfloat16``, ``int8`` or ``int4``.
        mode: Of quantization, for the search; integers of a map are ``dynamic``.
        settings: Further settings, by the names of ``QuantizeSettings``.
        method: Of the ranking that the search follows.
        seconds: For the search.
    """

    name: ClassVar[str] = "mixed"
    lossy: ClassVar[bool] = True
    default: ClassVar[bool] = False
    precision: Mapping[str, str] = field(default_factory=dict)
    mode: Mode = "static"
    settings: Plain = field(default_factory=dict)
    method: Method = "alone"
    seconds: float = 60.0

    def run(self, given: Artifact, context: Context) -> Iterator[Artifact]:
        """One artifact."""
        yield self._mapped(given, context) if self.precision else self._searched(given, context)

    def _mapped(self, given: Artifact, context: Context) -> Artifact:
        plan = settings_of(self.settings, "dynamic") if self.settings else None
        made = mixed_precision(given.plain, self.precision, plan, data=context.data, gate=None, seed=context.seed)
        path = context.file("mixed")
        io.save(made.model, path)
        how = "mixed: " + ", ".join(f"{name} {precision}" for name, precision in self.precision.items())
        return replace(given, path=path, source=path, how=how, facts=made.to_json())

    def _searched(self, given: Artifact, context: Context) -> Artifact:
        plan = settings_of(self.settings, self.mode)
        try:
            found = search_precision(
                given.plain,
                plan,
                data=context.data,
                gate=context.gate,
                metric=context.meter.judge.metric,
                method=self.method,
                seconds=max(0.0, min(self.seconds, context.left())),
                threads=given.setting.threads,
                left=context.left,
                seed=context.seed,
                progress=context.progress,
            )
        except CheckError as error:
            raise NothingToDo(str(error)) from error
        if not found.quantized:
            raise NothingToDo("the model in float is the fastest")
        path = context.file("mixed")
        quantize(
            given.plain,
            found.settings,
            data=context.data,
            calibration=context.data,
            out=path,
            gate=None,
            threads=given.setting.threads,
            dims=context.dims,
            seed=context.seed,
            progress=context.progress,
        )
        how = f"{found.settings.name}, {len(found.floats)} nodes in float"
        return replace(given, path=path, source=path, how=how, facts=found.to_json())
