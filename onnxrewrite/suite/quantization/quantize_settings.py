"""The settings of a quantization: plain data that can be compared, stored and read again."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

from onnxrewrite.errors import UsageError
from onnxrewrite.system.plain import Json

Mode: TypeAlias = Literal["dynamic", "static", "weights"]
Format: TypeAlias = Literal["qdq", "qoperator"]
Calibration: TypeAlias = Literal["minmax", "entropy", "percentile", "distribution"]
Activations: TypeAlias = Literal["uint8", "int8", "uint16", "int16"]
Weights: TypeAlias = Literal["int8", "uint8", "int4", "uint4", "mixed"]
Algorithm: TypeAlias = Literal["nearest", "k-quant", "gptq"]

BLOCKS = (16, 32, 64, 128, 256)
"""Sizes of a block of weights that share a scale, for which ONNX Runtime has kernels."""

OPERATOR = "op:"
"""Begins an entry of ``include`` or ``exclude`` that names an operator."""


@dataclass(frozen=True)
class QuantizeSettings:
    """The settings of a quantization, which are checked when they are made.

    Attributes:
        mode: ``dynamic``: weights as stored, activations as they come, nothing to calibrate.  ``static``: both, by
            ranges that were seen on data.  ``weights``: only weights, in blocks; activations stay float.
        format: Of ``static``: ``qdq``, QuantizeLinear and DequantizeLinear around float operators, which a runtime
            fuses; or ``qoperator``, operators on integers.
        calibration: Of ``static``: how ranges are found.  ``minmax``: all that was seen; ``entropy``: least
            Kullback-Leibler divergence of the histogram; ``percentile``: without the rarest; ``distribution``: what a
            normal distribution of the same mean and deviation spans.
        activations: Dtype of activations; ``dynamic`` has uint8 only.
        weights: Dtype of weights; ``static`` takes 4 bits as ``qdq`` only, ``weights`` takes all.  ``mixed``, of
            ``weights``: bits, block, level and algorithm are chosen for each product, see ``bit_allocation``.
        per_channel: A scale for each output channel of a weight, not one for all of it.
        symmetric_activations: Zero point in the middle.
        symmetric_weights: Likewise.
        reduce_range: 7 bits for weights: processors without VNNI saturate sums of 8 bits.
        moving_average: Weight of a new sample in a running average of the ranges; None takes the widest range.  Of
            ``minmax`` only.
        percentile: The share of values that ``percentile`` keeps, in percent.
        operators: Types of operators that are quantized; None: those that it pays for.
        include: Only nodes that one of these names: a name, a pattern with ``*``, or ``op:TYPE``.  Empty: all.
        exclude: Nodes to leave in float, likewise.
        block_size: Of ``weights``: elements along the inner dimension that share a scale.
        algorithm: Of ``weights`` of 4 bits: how they are rounded, see ``WeightFormat``; ``gptq`` does it by the data.
        max_divergence: Of ``mixed``: the loss that the fastest model may have, by ``Closeness.distance``: nats a row of
            scores, or the power of the error to that of the output.
        min_agreement: Of ``mixed``: the share of rows of scores whose first class, or token, must stay the same.  Of
            other weights of a decoder: a quarter of what may change may come of the accuracy level.
        rows: Of ``mixed``: rows of a product where its time is measured; None: as many as the data have.
        smooth: Of ``dynamic``: move a part of the size of channels from what products read to their weights, see
            ``smoothing``.
        in_blocks: Of ``dynamic``: products whose weights alone are stored, in blocks of 8 bits, named as ``exclude``
            names them: closer than the others, and slower.
        plain: The defaults of ``onnxruntime.quantization`` on the model as it is; nothing but the mode can be chosen.
    """

    mode: Mode = "dynamic"
    format: Format = "qdq"
    calibration: Calibration = "minmax"
    activations: Activations = "uint8"
    weights: Weights = "int8"
    per_channel: bool = True
    symmetric_activations: bool = False
    symmetric_weights: bool = True
    reduce_range: bool = False
    moving_average: float | None = None
    percentile: float = 99.999
    operators: tuple[str, ...] | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    block_size: int = 32
    algorithm: Algorithm = "nearest"
    max_divergence: float = 0.01
    min_agreement: float = 0.98
    rows: int | None = None
    smooth: bool = False
    in_blocks: tuple[str, ...] = ()
    plain: bool = False

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(QuantizeSettings).items():
            allowed = get_args(hint)
            if name in _CHOICES and getattr(self, name) not in allowed:
                raise UsageError(f"{name} must be {', '.join(allowed)}, not {getattr(self, name)!r}")
        for name in ("operators", "include", "exclude", "in_blocks"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise UsageError(f"{name} must be a list of names, not the text {given!r}")
            if given is not None:
                object.__setattr__(self, name, tuple(given))
        if not 0 < self.percentile <= 100:
            raise UsageError(f"percentile must be above 0 and at most 100, not {self.percentile:g}")
        if self.moving_average is not None and not 0 < self.moving_average <= 1:
            raise UsageError(f"moving_average must be above 0 and at most 1, not {self.moving_average:g}")
        if self.block_size not in BLOCKS:
            raise UsageError(f"block_size must be {', '.join(map(str, BLOCKS))}, not {self.block_size}")
        if not 0 <= self.max_divergence < math.inf:
            raise UsageError(f"max_divergence must be 0 at least, and finite, not {self.max_divergence:g}")
        if not 0 <= self.min_agreement <= 1:
            raise UsageError(f"min_agreement must be 0 to 1, not {self.min_agreement:g}")
        if self.rows is not None and self.rows < 1:
            raise UsageError(f"rows must be 1 at least, not {self.rows}")
        reason = self._impossible()
        if reason:
            raise UsageError(reason)

    def _impossible(self) -> str:
        """The reason why the settings do not go together; empty if they do."""
        others = [f.name for f in fields(self) if f.name not in ("mode", "plain")]
        changed = any(getattr(self, name) != getattr(type(self), name) for name in others)
        if self.plain and (self.mode == "weights" or changed):
            return "plain is of mode dynamic or static, and has no other settings"
        four, sixteen = self.weights.endswith("4"), self.activations.endswith("16")
        if self.is_mixed and self.mode != "weights":
            return "weights mixed: bits are chosen for weights alone; take mode weights"
        if self.algorithm != "nearest" and (self.mode != "weights" or not four):
            return f"{self.algorithm} rounds weights of 4 bits in mode weights"
        if self.mode == "dynamic" and self.activations != "uint8":
            return f"activations {self.activations}: dynamic quantization has uint8 only; take static"
        if self.mode == "dynamic" and four:
            return f"weights {self.weights}: dynamic quantization has 8 bits; take weights or static"
        if self.mode == "static" and self.format == "qoperator" and (four or sixteen):
            return f"qoperator has 8 bits only, not {self.weights if four else self.activations}; take qdq"
        if self.mode == "static" and self.format == "qoperator" and self.activations != self.weights == "uint8":
            return f"activations {self.activations} with weights uint8: qoperator has no such kernels"
        if (self.smooth or self.in_blocks) and self.mode != "dynamic":
            return f"{'smooth' if self.smooth else 'in_blocks'} is for dynamic quantization"
        if self.moving_average is not None and (self.mode, self.calibration) != ("static", "minmax"):
            return "moving_average is for static quantization calibrated by minmax"
        return ""

    @property
    def is_mixed(self) -> bool:
        """True if bits are chosen for each product."""
        return self.weights == "mixed"

    @property
    def is_calibrated(self) -> bool:
        """True if data decide what the model is, which therefore is to be judged on others."""
        return self.mode == "static" or self.is_mixed or self.smooth or self.algorithm == "gptq"

    @property
    def name(self) -> str:
        """A short name that tells it from others: ``static qdq entropy int16/int8 per channel``."""
        if self.plain:
            return f"plain {self.mode}"
        words: list[str] = [self.mode]
        if self.is_mixed:
            words += ["mixed", f"divergence {self.max_divergence:g}"]
        elif self.mode == "weights":
            words += [self.weights, f"blocks of {self.block_size}"]
            words += [] if self.algorithm == "nearest" else [self.algorithm]
        else:
            if self.mode == "static":
                ranges = self.calibration if self.moving_average is None else f"average {self.moving_average:g}"
                words += [self.format, ranges]
            if (self.activations, self.weights) != ("uint8", "int8"):
                words.append(f"{self.activations}/{self.weights}")
            words.append("per channel" if self.per_channel else "per tensor")
            words += ["symmetric activations"] if self.symmetric_activations else []
            words += ["reduced range"] if self.reduce_range else []
            words += ["smooth"] if self.smooth else []
            words += [f"{len(self.in_blocks)} in blocks"] if self.in_blocks else []
        words += [] if self.symmetric_weights else ["asymmetric weights"]
        return " ".join(words)

    def to_json(self) -> dict[str, Json]:
        """Plain data; ``from_json`` makes the same settings of it."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> QuantizeSettings:
        """Settings of what ``to_json`` gave.

        Raises:
            UsageError: There is something in it that is no setting, or a value that is not allowed.
        """
        unknown = set(data) - {f.name for f in fields(cls)}
        if unknown:
            raise UsageError(f"no such setting: {', '.join(sorted(unknown))}")
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in data.items()}
        return cls(**values)


def excluding(settings: QuantizeSettings, names: Collection[str]) -> QuantizeSettings:
    """The settings with more nodes left in float."""
    return replace(settings, exclude=(*settings.exclude, *(n for n in names if n not in settings.exclude)))


_CHOICES = ("mode", "format", "calibration", "activations", "weights", "algorithm")


def names(entries: tuple[str, ...], name: str, operator: str) -> bool:
    """True if one of ``entries`` names a node of this name and operator: ``encoder/*/MatMul``, ``op:Conv``.

    Only ``*`` is a wildcard, because exporters' names are full of brackets and dots.
    """
    return any(_names(entry, name, operator) for entry in entries)


def _names(entry: str, name: str, operator: str) -> bool:
    if entry.startswith(OPERATOR):
        return operator == entry.removeprefix(OPERATOR)
    return re.fullmatch(".*".join(map(re.escape, entry.split("*"))), name, re.DOTALL) is not None
