"""A precision map: which part of a model computes in which precision, by name, scope, region or operator.

embeddings = "float32"
attention = "float16"
feed_forward = "int8"
"encoder.layer.11.*" = "float32"
"*" = "float32"
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias, Unpack

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.errors import CheckError, UsageError
from onnxrewrite.ir.facts import Facts
from onnxrewrite.runtime.session import openable
from onnxrewrite.suite.precision.candidates import float_model
from onnxrewrite.suite.precision.formats import FORMATS
from onnxrewrite.suite.precision.half_precision import to_half
from onnxrewrite.suite.precision.nodes import KINDS, Named, is_pattern
from onnxrewrite.suite.precision.regions import regions, within
from onnxrewrite.suite.precision.support import is_float
from onnxrewrite.suite.quality.data import Data
from onnxrewrite.suite.quality.gate import Gate, Judge, Judging, Metric, Quality, judged_on
from onnxrewrite.suite.quantization.prepare import refuse_quantized
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.quantizer import quantize
from onnxrewrite.suite.quantization.select import select
from onnxrewrite.system import files

QUANTIZED = ("int8", "int4")
PRECISIONS = ("float32", *FORMATS, *QUANTIZED)
"""The precisions that a part may compute in."""

Map: TypeAlias = Mapping[str, str] | str | os.PathLike[str]
"""A dict of key to precision, or a TOML file of such a table, which may be called ``precision``."""

ANY = "*"
"""The key for all that no other names; without it they are float32."""

_PLAIN = "float32"


@dataclass(frozen=True)
class Assigned:
    """The precision of one node.

    Attributes:
        precision: The precision in which it computes.
        asked: The precision that the map says.
        key: The key that says so; empty where none does.
        reason: The reason why ``precision`` is not ``asked``; empty if it is.
    """

    precision: str
    asked: str
    key: str
    reason: str = ""


@dataclass(frozen=True)
class Mixed:
    """The result of ``mixed_precision``.

    Attributes:
        model: The model.
        nodes: Every node that computes with floats, by its name in the prepared model.
        quality: Closeness to the original; None if it was not judged.
    """

    model: ir.Model = field(repr=False)
    nodes: Mapping[str, Assigned] = field(repr=False)
    quality: Quality | None

    @property
    def counts(self) -> dict[str, int]:
        """Precision to number of nodes."""
        found = Counter(each.precision for each in self.nodes.values())
        return {p: found[p] for p in PRECISIONS if found[p]}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model: all of it, or nothing."""
        io.save(self.model, path)

    def to_proto(self) -> onnx.ModelProto:
        """The model as a protobuf message."""
        return io.to_proto(self.model)

    def to_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "counts": self.counts,
            "nodes": {name: dict(vars(each)) for name, each in self.nodes.items()},
            "quality": self.quality.to_json() if self.quality is not None else None,
        }


def read_map(given: Map) -> dict[str, str]:
    """A map of precisions, checked.

    Raises:
        UsageError: The file cannot be read or is no such table, a precision is unknown, or two kinds of integers are
            asked for.
    """
    found = dict(given) if isinstance(given, Mapping) else _from_file(Path(given))
    for key, precision in found.items():
        if precision not in PRECISIONS:
            raise UsageError(f"precision of {key} must be {', '.join(PRECISIONS)}, not {precision!r}")
    integers = {p for p in found.values() if p in QUANTIZED}
    if len(integers) > 1:
        raise UsageError("a model can have int8 or int4, not both: give one of them for all")
    return found


def _from_file(path: Path) -> dict[str, str]:
    try:
        table = tomllib.loads(files.read_text(path))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is no TOML file: {' '.join(str(error).split())}") from None
    found = table.get("precision", table)
    if not isinstance(found, dict):
        raise UsageError(f"{path}: precision must be a table of names and precisions")
    return found


def assign(named: Named, wanted: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Each node's precision, and the key that says so: exactly one.

    The closest key counts: a node's name before a scope, that before a region, that before an operator; of two of one
    kind one without wildcards, then of two regions the smaller one, then the longer key, then the first.  ``*`` counts
    last.

    Raises:
        UsageError: A key names nothing; the message says what comes nearest.
    """
    ranked: dict[str, tuple[tuple[object, ...], str]] = {}
    for number, key in enumerate(wanted):
        found = named.match(key, "precision")
        for name, kind in found.items():
            size = len(found) if kind == "region" else 0
            rank = (key == ANY, KINDS.index(kind), is_pattern(key), size, -len(key), number)
            if name not in ranked or rank < ranked[name][0]:
                ranked[name] = (rank, key)
    keys = {n.name or "": ranked.get(n.name or "", (None, ""))[1] for n in named.nodes}
    return {name: (wanted[key] if key else _PLAIN, key) for name, key in keys.items()}


def mixed_precision(
    source: io.Source,
    precision: Map,
    settings: QuantizeSettings | None = None,
    *,
    gate: Gate | None = Gate(),  # noqa: B008
    target: str = "onnxruntime-cpu",
    **judging: Unpack[Judging],
) -> Mixed:
    """Give each part of a model the precision that a map says.

    Integers come first, by ``quantize``; then half precision, by ``to_half``, of what is left.  A node that cannot
    have the precision of the map, such as a Softmax in int8 or a value that does not fit into float16, computes in
    float32, and ``Assigned.reason`` says why.

    Args:
        source: The model; it is not changed.
        precision: Names, scopes, regions (see ``regions``) or operators, with wildcards, to ``float32``, ``float16``,
            ``bfloat16``, ``int8`` or ``int4``.
        settings: Settings for ``int8`` or ``int4``; without them, dynamic quantization, or weights in blocks.
        gate: The required closeness; None does not judge.
        target: The target that must run the nodes of half precision; see ``to_half``.
        judging: ``data``, ``dims``, ``metric`` and ``seed``; see ``Judging``.

    Raises:
        UsageError: A bad map; a key that names nothing; data that do not fit.
        ModelError: The model cannot be read or run.
        CheckError: The result is not close enough.
    """
    wanted = read_map(precision)
    original = io.load(source)
    refuse_quantized(original)
    settings = _settings(settings, wanted)
    samples = judged_on(judging, io.to_proto(original))
    samples, judged = samples.parted() if settings.is_calibrated else (samples, samples)
    ready = float_model(original, settings, seed=judging.get("seed", 0))
    Facts(ready.graph, ready.graph.opset_imports)  # rewritten nodes have no types yet
    nodes = [n for n in ready.graph if n.op_type != "Constant" and any(map(is_float, (*n.inputs, *n.outputs)))]
    asked = assign(Named(nodes, within(ready, regions(original))), wanted)
    model, reasons = _quantized(ready, settings, asked, samples)
    for name in FORMATS:
        model, kept = _halved(model, name, asked, samples, target)
        reasons |= kept
    quality = _judged(original, model, judged, gate, judging.get("metric")) if gate is not None else None
    found = {
        name: Assigned(_PLAIN if name in reasons else p, p, key, reasons.get(name, ""))
        for name, (p, key) in asked.items()
    }
    return Mixed(model, found, quality)


def _settings(given: QuantizeSettings | None, wanted: Mapping[str, str]) -> QuantizeSettings:
    if "int4" not in wanted.values():
        return given or QuantizeSettings()
    given = given or QuantizeSettings(mode="weights", weights="int4")
    return given if given.weights.endswith("4") else replace(given, weights="int4")


_Asked: TypeAlias = Mapping[str, tuple[str, str]]


def _quantized(
    ready: ir.Model, settings: QuantizeSettings, asked: _Asked, data: Data
) -> tuple[ir.Model, dict[str, str]]:
    """The model with what shall be integers, and why some are not."""
    low = [name for name, (precision, _) in asked.items() if precision in QUANTIZED]
    if not low:
        return ready, {}
    selection = select(ready, replace(settings, include=tuple(low)))
    left = {each.name: each.reason for each in selection.left}
    operators = {n.name: n.op_type for n in ready.graph}
    reasons = {
        name: left.get(name) or f"{settings.mode} quantization does not take {operators[name]}"
        for name in low
        if name not in selection.chosen
    }
    if not selection.chosen:
        return ready, reasons
    chosen = replace(settings, include=tuple(selection.chosen))
    return io.load(quantize(ready, chosen, data=data, calibration=data, prepare=False, gate=None).model), reasons


def _halved(model: ir.Model, dtype: str, asked: _Asked, data: Data, target: str) -> tuple[ir.Model, dict[str, str]]:
    """The model with what shall be of half precision, and why some are not."""
    present = {n.name for n in model.graph}
    names = [name for name, (precision, _) in asked.items() if precision == dtype and name in present]
    if not names:
        return model, {}
    found = to_half(model, dtype, only=names, blocked=(), data=data, target=target, gate=Gate(max_drop=2.0))
    return found.model, {name: found.kept[name] for name in names if name in found.kept}


def _judged(original: ir.Model, model: ir.Model, data: Data, gate: Gate, metric: Metric | None) -> Quality:
    with openable(original) as reference, openable(model) as candidate:
        quality = Judge(reference, data, metric).quality(candidate)
    reason = gate.refuses(quality)
    if reason:
        raise CheckError(f"the model of mixed precision is not close enough: {reason}")
    return quality
