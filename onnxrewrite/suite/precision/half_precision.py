"""``to_half``: a model in float16 or bfloat16, where its values fit and its target can run it.

What is gained is size and, where the target has kernels of that precision, time.  ONNX Runtime's CPU has few: it runs
most operators in float32 between Casts, so that a model in float16 is half as large there, and rarely faster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.errors import CheckError, ModelError
from onnxrewrite.io.statistics import stored_bytes
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.target import Target
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.report.plain_reports import HalfReport
from onnxrewrite.runtime.session import openable
from onnxrewrite.suite.precision.dtype_conversion import convert, float_values, is_weight, prepared, rounded, versions
from onnxrewrite.suite.precision.formats import Format, half_format
from onnxrewrite.suite.precision.nodes import Named
from onnxrewrite.suite.precision.ranges import Range, misfits, ranges, weight_range
from onnxrewrite.suite.precision.support import Places, is_float, places, refusal
from onnxrewrite.suite.quality.data import Data
from onnxrewrite.suite.quality.gate import Gate, Judge, Judging, Metric, Quality, judged_on

BLOCKED = operators(marks="places")
"""Operators that stay in float32 unless asked for otherwise: they count, sort, or compute places in an image, and
float16 does not tell 2049 from 2048."""

MOVERS = frozenset((*operators("view permute select repeat gather join pad"), "Identity"))
"""Operators that only move numbers: they follow what they move."""

HEADROOM = 2.0
"""Factor by which values may exceed those seen, and still have to fit."""


@dataclass(frozen=True)
class Halved:
    """The result of ``to_half``.

    Attributes:
        model: The converted model.
        dtype: ``float16`` or ``bfloat16``.
        converted: Names of the nodes that compute in it.
        kept: Names of those that compute in float32, each to the reason.
        ranges: Observed ranges of the values, by name; of weights only those that do not fit.
        quality: Closeness to the original; None if nothing was run.
        sizes: Bytes before and after.
        notes: Further remarks.
    """

    model: ir.Model = field(repr=False)
    dtype: str
    converted: Sequence[str] = field(repr=False)
    kept: Mapping[str, str] = field(repr=False)
    ranges: Mapping[str, Range] = field(repr=False)
    quality: Quality | None
    sizes: tuple[int, int]
    notes: Sequence[str] = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model: all of it, or nothing."""
        io.save(self.model, path)

    def to_proto(self) -> onnx.ModelProto:
        """The model as a protobuf message."""
        return io.to_proto(self.model)

    def to_json(self) -> HalfReport:
        """Plain data."""
        return {
            "dtype": self.dtype,
            "converted": list(self.converted),
            "kept": dict(self.kept),
            "ranges": {name: each.to_json() for name, each in self.ranges.items()},
            "quality": self.quality.to_json() if self.quality is not None else None,
            "size": {"before": self.sizes[0], "after": self.sizes[1]},
            "notes": list(self.notes),
        }


def to_half(
    source: io.Source,
    dtype: str = "float16",
    *,
    keep: Collection[str] = (),
    only: Collection[str] = (),
    blocked: Collection[str] = BLOCKED,
    target: str = "onnxruntime-cpu",
    native: bool = False,
    keep_io: bool = True,
    headroom: float = HEADROOM,
    gate: Gate | None = None,
    check: bool = True,
    **judging: Unpack[Judging],
) -> Halved:
    """Convert a model of float32 to half precision.

    A node stays in float32, an island between Casts, if the caller requests it, if a value that it reads or makes does
    not fit (see ``ranges``), or if the target does not run it otherwise.  Nodes in the bodies of If, Loop and Scan
    stay, too.

    Args:
        source: The model; it is not changed.
        dtype: ``float16`` or ``bfloat16``.
        keep: Nodes that stay: names, operators, module scopes, with wildcards; see ``nodes``.
        only: Nodes that may be converted, likewise; without it, all.
        blocked: Operators that stay.
        target: The target: ``onnxruntime-cpu``, ``onnxruntime-cuda``, or ``onnx``: whatever the standard allows.
        native: Convert only what the target has kernels of that precision for; else also what it runs in float32
            between Casts of its own.
        keep_io: Keep inputs and outputs of the model in float32.
        headroom: Factor by which values may exceed those seen.
        gate: The required closeness; without it, the default one.
        check: Run the model on data; without it, only weights are looked at, and nothing is judged.
        judging: ``data``, on which ranges are measured too, ``dims``, ``metric`` and ``seed``; see ``Judging``.

    Raises:
        UsageError: Bad arguments, or something in ``keep`` or ``only`` that there is not.
        ModelError: The model cannot be read or run.
        CheckError: The result is not close enough.
    """
    form = half_format(dtype)
    samples = judged_on(judging, io.to_proto(io.load(source))) if check else None
    choice = _Choice(source, form, target_by_name(target), native=native)
    choice.ask(keep, only, blocked)
    choice.look_at_values(samples, headroom)
    choice.settle()
    model = convert(choice.fresh(), choice.plan, form, keep_io=keep_io)
    notes: list[str] = []
    quality = None
    if samples is not None:
        quality = _judged(source, model, choice, samples, judging.get("metric"), notes, keep_io=keep_io)
        reason = (gate or Gate()).refuses(quality)
        if reason:
            raise CheckError(f"the model in {form.name} is not close enough: {reason}; keep more, with keep= or --keep")
    sizes = (stored_bytes(io.load(source)), stored_bytes(model))
    return Halved(model, form.name, list(choice.plan), choice.kept, choice.ranges, quality, sizes, notes)


def _judged(
    source: io.Source,
    model: ir.Model,
    choice: _Choice,
    data: Data,
    metric: Metric | None,
    notes: list[str],
    *,
    keep_io: bool,
) -> Quality:
    """The quality of the result; if that does not run here, of the original with every value rounded."""
    if not keep_io:  # judged on inputs as they are given
        model = convert(choice.fresh(), choice.plan, choice.form)
    with openable(io.load(source)) as reference:
        judge = Judge(reference, data, metric)
        try:
            with openable(model) as candidate:
                return judge.quality(candidate)
        except ModelError as error:
            notes.append(f"judged in float32 with every value rounded to {choice.form.name}: {error}")
        with openable(rounded(choice.fresh(), choice.plan, choice.form)) as candidate:
            return judge.quality(candidate)


class _Choice:
    """The nodes that become half, and the reasons why the others do not."""

    def __init__(self, source: io.Source, form: Format, target: Target, *, native: bool):
        self.form = form
        self.target = target
        self.native = native
        self.fresh: Callable[[], ir.Model] = lambda: prepared(source)
        self.model = self.fresh()
        self.nodes = [n for n in self.model.graph if any(map(is_float, (*n.inputs, *n.outputs)))]
        self.plan: dict[str, Places] = {}
        self.kept: dict[str, str] = {}
        self.ranges: dict[str, Range] = {}

    def ask(self, keep: Collection[str], only: Collection[str], blocked: Collection[str]) -> None:
        """Apply what the user, the schemas and the target say."""
        named = Named(self.nodes)
        wished = named.chosen(keep, "keep")
        allowed = named.chosen(only, "only") if only else None
        for node in self.nodes:
            name = node.name or ""
            if name in wished:
                self.kept[name] = f"asked for ({wished[name]})"
            elif allowed is not None and name not in allowed:
                self.kept[name] = "not asked for"
            elif node.op_type in blocked:
                self.kept[name] = f"{node.op_type} is blocked"
            else:
                self._ask_target(node)

    def _ask_target(self, node: ir.Node) -> None:
        name, version = node.name or "", versions(self.model, node)
        where = places(node, version, self.form.dtype)
        if isinstance(where, str):
            self.kept[name] = where
            return
        reason = refusal(node, version, where, self.form.dtype, self.target, native=self.native)
        if reason or self._feeds_inner_output(node):
            self.kept[name] = reason or "its result is that of an inner graph"
        else:
            self.plan[name] = where

    def _feeds_inner_output(self, node: ir.Node) -> bool:
        """An inner graph may hand on what it reads from outside; nothing could be cast there."""
        return any(v.is_graph_output() and v not in self.model.graph.outputs for v in node.outputs)

    def look_at_values(self, data: Data | None, headroom: float) -> None:
        """Keep the nodes whose values do not fit."""
        wrong: dict[str, str] = {}
        for value in self.model.graph.initializers.values():
            if is_float(value) and is_weight(value) and value.const_value is not None:
                found = weight_range(value.const_value.numpy(), self.form)
                if why := found.misfit(self.form, 1.0):  # a weight does not grow
                    wrong[value.name or ""], self.ranges[value.name or ""] = why, found
        if data is not None:
            names = [v.name or "" for v in float_values(self.nodes, self.plan)]
            self.ranges |= ranges(self.model, names, data, self.form)
            wrong |= misfits({n: self.ranges[n] for n in names}, self.form, headroom)
        for node in [n for n in self.nodes if n.name in self.plan]:
            misfit = next((v.name for v in (*node.inputs, *node.outputs) if v is not None and v.name in wrong), None)
            if misfit is not None:
                self._keep(node, f"a value {wrong[misfit]} (at `{misfit}`)")

    def settle(self) -> None:
        """Keep nodes in float32 that only move the results of nodes that stay."""
        for node in [n for n in self.nodes if n.name in self.plan and n.op_type in MOVERS]:
            makers = [v.producer() for v in node.inputs if v is not None and is_float(v) and not is_weight(v)]
            if makers and all(m is not None and m.name in self.kept for m in makers):
                self._keep(node, "it only moves what is float32")

    def _keep(self, node: ir.Node, reason: str) -> None:
        del self.plan[node.name or ""]
        self.kept[node.name or ""] = reason
