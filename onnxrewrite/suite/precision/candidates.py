"""Quantized variants of one model that differ in which nodes stay in float; each is made once.

All of them come of the same prepared model, by whose node names everything here goes, and are left as the quantizer
makes them: ONNX Runtime fuses what is to be fused when it opens them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Unpack

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.compiler.loop import Progress
from onnxrewrite.errors import UsageError
from onnxrewrite.runtime.session import as_proto
from onnxrewrite.suite.precision.nodes import Named
from onnxrewrite.suite.quality.data import Data
from onnxrewrite.suite.quality.gate import Judge, Judging, Metric, Quality, judged_on
from onnxrewrite.suite.quantization.prepare import in_opset, named, refuse_quantized, rewritten
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings, excluding
from onnxrewrite.suite.quantization.quantizer import quantize
from onnxrewrite.suite.quantization.select import select
from onnxrewrite.suite.quantization.weight_format import BITS


@dataclass
class Candidates:
    """Makes and judges them.

    Attributes:
        float_model: The prepared model.
        settings: The quantization settings; nodes that they exclude always stay in float.
        calibration: The data for calibration.
        data: The data for judging.
        nodes: Those that can be quantized, to their operators, in the order of the graph.
        metric: The user's own.
    """

    float_model: ir.Model
    settings: QuantizeSettings
    calibration: Data
    data: Data
    nodes: Mapping[str, str]
    metric: Metric | None = None
    _judge: Judge | None = field(default=None, repr=False)
    _made: dict[QuantizeSettings, onnx.ModelProto] = field(default_factory=dict, repr=False)
    _judged: dict[QuantizeSettings, Quality] = field(default_factory=dict, repr=False)

    @cached_property
    def named(self) -> Named:
        """The nodes of the prepared model, and all that they are called."""
        return Named(list(self.float_model.graph))

    @property
    def judge(self) -> Judge:
        """Judges against the prepared model."""
        if self._judge is None:
            self._judge = Judge(as_proto(self.float_model), self.data, self.metric)
        return self._judge

    def model(self, floats: Collection[str] = ()) -> onnx.ModelProto:
        """The model with these nodes in float, as ``quantize`` makes it where its settings exclude them.

        Operators between quantized ones are in float, too, where one of these stands beside them.
        """
        return self._quantized(self._with(floats))

    def quality(self, floats: Collection[str] = ()) -> Quality:
        """The quality with these nodes in float."""
        return self._quality(self._with(floats))

    def quality_alone(self, name: str) -> Quality:
        """The quality with this node quantized, and no other: also of an operator that the quantizer takes only between
        quantized ones, which it does wherever the operator is asked for by its type."""
        only = replace(self.settings, operators=(self.nodes[name],), include=(name,), exclude=())
        return self._quality(only)

    def _with(self, floats: Collection[str]) -> QuantizeSettings:
        return excluding(self.settings, [name for name in self.nodes if name in floats])

    def _quality(self, settings: QuantizeSettings) -> Quality:
        if settings not in self._judged:
            self._judged[settings] = self.judge.quality(self._quantized(settings))
        return self._judged[settings]

    def _quantized(self, settings: QuantizeSettings) -> onnx.ModelProto:
        """The model by these settings; the float model where they leave nothing."""
        if settings not in self._made:
            if not select(self.float_model, settings).chosen:
                return as_proto(self.float_model)
            found = quantize(
                self.float_model, settings, data=self.data, calibration=self.calibration, prepare=False, gate=None
            ).model
            assert isinstance(found, onnx.ModelProto)
            self._made = {**dict(list(self._made.items())[-7:]), settings: found}
        return self._made[settings]

    def weight_bytes(self) -> dict[str, int]:
        """For each node the bytes by which its weights grow in float."""
        by_name = {n.name: n for n in self.float_model.graph}
        return {name: _grows(by_name[name], self.settings) for name in self.nodes}


def _grows(node: ir.Node, settings: QuantizeSettings) -> int:
    weights = [v.const_value for v in node.inputs if v is not None and v.const_value is not None]
    largest = max((w.size for w in weights), default=0)
    return largest * (32 - BITS[settings.weights]) // 8


def candidates(
    source: io.Source,
    settings: QuantizeSettings = QuantizeSettings(),  # noqa: B008
    *,
    prepare: bool = True,
    progress: Progress | None = None,
    **judging: Unpack[Judging],
) -> Candidates:
    """The quantized variants of a model.

    Args:
        source: The model; it is not changed.
        settings: The quantization settings.  The format ``qoperator`` is taken as ``qdq``: the numbers are the same,
            and the values inside can be seen.
        prepare: Rewrite the model first; without it, it is taken as it is.
        progress: Called with (phase, done, to do).
        judging: ``data``, ``dims``, ``metric`` and ``seed``; see ``Judging``.

    Raises:
        UsageError: Bad data; a model that is quantized already, or has nothing to quantize.
        ModelError: The model cannot be read or run.
    """
    original = io.load(source)
    refuse_quantized(original)
    settings = replace(settings, format="qdq") if settings.format == "qoperator" else settings
    samples = judged_on(judging, io.to_proto(original))
    ready = float_model(original, settings, seed=judging.get("seed", 0), prepare=prepare, progress=progress)
    settings = _checked(ready, settings)
    chosen = select(ready, settings).chosen
    if not chosen:
        raise UsageError(f"nothing to quantize: no node is left that {settings.mode} quantization takes")
    calibration, data = samples.parted() if settings.is_calibrated else (samples, samples)
    return Candidates(ready, settings, calibration, data, chosen, judging.get("metric"))


def float_model(
    model: ir.Model,
    settings: QuantizeSettings,
    *,
    seed: int = 0,
    prepare: bool = True,
    progress: Progress | None = None,
) -> ir.Model:
    """The model as it goes to the quantizer: in an opset that has what it takes, rewritten, every node named.

    Raises:
        UsageError: Its opset is too old, and cannot be raised.
        CheckError: The rewrite is not equal to the model.
    """
    raised = in_opset(model, settings)[0]
    return named(rewritten(raised, settings.mode, seed=seed, progress=progress) if prepare else raised)


def _checked(model: ir.Model, settings: QuantizeSettings) -> QuantizeSettings:
    """The settings with names, scopes and operators in ``exclude`` resolved to names of nodes."""
    plain = [entry for entry in settings.exclude if not entry.startswith("op:")]
    found = Named(list(model.graph)).chosen(plain, "exclude")
    rest = [entry for entry in settings.exclude if entry.startswith("op:")]
    return replace(settings, exclude=(*rest, *found))
