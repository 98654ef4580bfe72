"""Profiles: where a model's time goes, what the machine would allow, and which rules matched there.

The model is run as ONNX Runtime runs it, and so is what the rules make of it, by turns.  So a rewrite's gain is
measured, not guessed: the time of the kernels that compute a part of the model before, less the time of those that do
after.
This module is handed the rewritten model and the trace; it does not rewrite.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.inputs.workload import workload
from onnxrewrite.ir.graph import scopes
from onnxrewrite.measure.kernel_times import run_profiled
from onnxrewrite.measure.lineage import covered
from onnxrewrite.measure.opportunities import (
    Opportunity,
    OpportunityRow,
    Seen,
    SeenRow,
    Side,
    near_misses,
    rewrites,
    seen_by_rules,
    side,
)
from onnxrewrite.measure.peaks import Peaks, measured_as, peaks
from onnxrewrite.measure.timing import Interval, Span, ratio
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.trace import Trace
from onnxrewrite.runtime.kernel_work import FREE, Work
from onnxrewrite.runtime.settings import DEFAULT, Setting
from onnxrewrite.system.arrays import Feeds

SECONDS = 3.0
"""For the runs of both models."""


@dataclass(frozen=True)
class Rewritten:
    """A model as rewritten by rules: the result of a run with checks off is enough.

    Attributes:
        model: The rewritten model, with provenance in the metadata of its nodes.
        trace: The applied and the refused rewrites.
        rules: The rules that ran.
    """

    model: ir.Model
    trace: Trace
    rules: Sequence[Rule]


class EntryRow(SeenRow):
    """A kernel, or an operator, see ``Entry``: seconds, operations and bytes."""

    name: str
    op_type: str
    kernels: int
    seconds: float
    share: float
    flops: float | None
    bytes: float
    bound: str
    attainable: float
    efficiency: float | None
    nodes: list[str]
    operators: dict[str, int]


class ProfileReport(TypedDict):
    """The profile of a model, see ``Profile``: seconds, shares from 0 to 1, operations and bytes a second."""

    model: NotRequired[str]
    provider: str
    threads: int
    level: str
    sizes: dict[str, int]
    latency: Span
    outside: float
    overhead: float
    peaks: dict[str, dict[str, float]]
    operators: list[EntryRow]
    kernels: list[EntryRow]
    rewritten: Span | None
    ratio: Span | None
    opportunities: list[OpportunityRow]
    notes: list[str]


@dataclass(frozen=True)
class Entry:
    """One kernel, or all kernels of one operator, against the machine's peaks.

    Attributes:
        name: Of the node in the graph that ran, or of the operator.
        op_type: The operator.
        kernels: The number of kernels.
        seconds: In one run.
        share: Of the run, from 0 to 1.
        work: Operations and bytes.
        bound: The roof that is the lowest for most of the time: ``compute``, ``memory`` or ``dispatch``.
        attainable: The least seconds that the roofs allow.
        nodes: The model's nodes that it stands for; none for a kernel that ONNX Runtime added.
        operators: Those nodes' operators and how many of each, where ONNX Runtime has fused several.
        seen: The rules that matched at those nodes.
    """

    name: str
    op_type: str
    kernels: int
    seconds: float
    share: float
    work: Work
    bound: str
    attainable: float
    nodes: tuple[str, ...] = ()
    operators: Mapping[str, int] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)

    @property
    def efficiency(self) -> float | None:
        """The attainable time over the measured one; above 1 where caches hold the data, None for no time at all."""
        return self.attainable / self.seconds if self.seconds else None

    def to_json(self) -> EntryRow:
        """Plain data."""
        return {
            "name": self.name,
            "op_type": self.op_type,
            "kernels": self.kernels,
            "seconds": self.seconds,
            "share": self.share,
            "flops": self.work.flops,
            "bytes": self.work.bytes,
            "bound": self.bound,
            "attainable": self.attainable,
            "efficiency": self.efficiency,
            "nodes": list(self.nodes),
            "operators": dict(self.operators),
            **self.seen.to_json(),
        }


@dataclass(frozen=True)
class Profile:
    """The profile of a model: where the time goes.

    Attributes:
        setting: The session settings with which the model ran.
        sizes: The sizes of named dimensions.
        latency: Seconds of a run, without a profile.
        kernels: By time, the longest first.
        operators: By time, the longest first.
        outside: Seconds of the run that are in no kernel.
        overhead: Seconds that the profile added to a kernel, taken off.
        peaks: The machine's roofs by dtype.
        rewritten: Seconds of a run of the rewritten model; None where there was none.
        ratio: The time of the model as a multiple of that of the rewritten one.
        opportunities: Ranked within each kind.
        notes: The limits of these figures.
    """

    setting: Setting
    sizes: Mapping[str, int]
    latency: Interval
    kernels: tuple[Entry, ...]
    operators: tuple[Entry, ...]
    outside: float
    overhead: float
    peaks: Mapping[str, Peaks]
    rewritten: Interval | None
    ratio: Interval | None
    opportunities: tuple[Opportunity, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> ProfileReport:
        """Plain data."""
        return {
            "provider": self.setting.provider,
            "threads": self.setting.threads,
            "level": self.setting.level,
            "sizes": dict(self.sizes),
            "latency": self.latency.to_json(),
            "outside": self.outside,
            "overhead": self.overhead,
            "peaks": {name: each.to_json() for name, each in self.peaks.items()},
            "operators": [e.to_json() for e in self.operators],
            "kernels": [e.to_json() for e in self.kernels],
            "rewritten": self.rewritten.to_json() if self.rewritten is not None else None,
            "ratio": self.ratio.to_json() if self.ratio is not None else None,
            "opportunities": [o.to_json() for o in self.opportunities],
            "notes": list(self.notes),
        }


def profile(
    model: io.Source,
    *,
    rewritten: Rewritten | None = None,
    setting: Setting = DEFAULT,
    dims: Mapping[str, int] | None = None,
    inputs: Feeds | None = None,
    seed: int = 0,
    seconds: float = SECONDS,
) -> Profile:
    """Run a model, and what rules made of it, and tell where the time goes.

    Args:
        model: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; nodes without a name get one.
        rewritten: The same model as rewritten by rules.
        setting: The session settings of both.
        dims: Sizes of named dimensions; typical ones where none is given.
        inputs: Arrays by input name; the others are generated.
        seed: Of the generated inputs.
        seconds: The time for the runs.

    Raises:
        ModelError: A model cannot be read, opened or run.
    """
    loaded = model if isinstance(model, ir.Model) else io.load(model)
    work = workload(loaded, dims=dims, inputs=inputs, seed=seed)
    models = {"model": loaded} if rewritten is None else {"model": loaded, "rewritten": rewritten.model}
    runs = run_profiled(models, work.feeds, setting, seconds=seconds)
    before, after = runs["model"], runs.get("rewritten")
    roofs = _Roofs(setting)
    of_model = side(before.kernels, covered(loaded, before.optimized))
    seen: Mapping[str, Seen] = {}
    found: list[Opportunity] = []
    if rewritten is not None and after is not None:
        seen = seen_by_rules(loaded, rewritten.model, rewritten.trace)
        of_rewritten = side(after.kernels, covered(rewritten.model, after.optimized))
        found += rewrites(of_model, of_rewritten, seen, rewritten.trace)
        found += near_misses(loaded, of_model, rewritten.trace, rewritten.rules)
    latency = before.timing.latency
    kernels = _by_kernel(loaded, of_model, seen, roofs, latency.median)
    operators = _by_operator(kernels)
    return Profile(
        setting=setting,
        sizes=work.binding,
        latency=latency,
        kernels=kernels,
        operators=operators,
        outside=max(latency.median - sum(e.seconds for e in kernels), 0.0),
        overhead=before.overhead,
        peaks=roofs.measured or {"float": roofs.of("float")},
        rewritten=after.timing.latency if after is not None else None,
        ratio=ratio(before.timing, after.timing) if after is not None else None,
        opportunities=(*found, *_far_from_the_roof(operators)),
        notes=tuple(_notes(kernels, setting)),
    )


_ARITHMETIC = 1_000_000
"""Operations below which the arithmetic peak does not matter, and so is not measured for one more dtype."""


class _Roofs:
    """The peaks of the dtypes that occur, measured when they are asked for."""

    def __init__(self, setting: Setting):
        self._setting = setting
        self.measured: dict[str, Peaks] = {}

    def of(self, dtype: str, flops: int | None = None) -> Peaks:
        """The peaks for so many operations in a dtype."""
        name = measured_as(dtype) if (flops or 0) >= _ARITHMETIC else "float"
        if name not in self.measured:
            self.measured[name] = peaks(self._setting, name)
        return self.measured[name]


def _by_kernel(
    model: ir.Model, of_model: Side, seen: Mapping[str, Seen], roofs: _Roofs, latency: float
) -> tuple[Entry, ...]:
    op_types = {n.name: n.op_type for graph in scopes(model) for n in graph}
    found = []
    for kernel in of_model.kernels:
        nodes = of_model.nodes.get(kernel.name, ())
        roof = roofs.of(kernel.dtype, kernel.work.flops)
        entry = Entry(
            name=kernel.name,
            op_type=kernel.op_type,
            kernels=1,
            seconds=kernel.seconds,
            share=kernel.seconds / latency if latency else 0.0,
            work=kernel.work,
            bound=roof.bound(kernel.work, kernel.calls),
            attainable=roof.seconds(kernel.work, kernel.calls),
            nodes=tuple(nodes),
            operators=Counter(op_types[n] for n in nodes if op_types.get(n, "Constant") != "Constant"),
            seen=_together([seen[n] for n in nodes if n in seen]),
        )
        found.append(entry)
    return tuple(sorted(found, key=lambda e: -e.seconds))


def _together(seen: Sequence[Seen]) -> Seen:
    """The rules that matched at several nodes, together."""
    rules = dict.fromkeys(rule for each in seen for rule in each.rules)
    refused = {rule: reason for each in seen for rule, reason in each.refused.items()}
    return Seen(tuple(rules), refused)


def _by_operator(kernels: Iterable[Entry]) -> tuple[Entry, ...]:
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in kernels:
        groups[entry.op_type].append(entry)
    found = []
    for op_type, entries in groups.items():
        bounds: Counter[str] = Counter()
        for entry in entries:
            bounds[entry.bound] += entry.seconds  # type: ignore[assignment]
        whole = Entry(
            name=op_type,
            op_type=op_type,
            kernels=len(entries),
            seconds=sum(e.seconds for e in entries),
            share=sum(e.share for e in entries),
            work=sum((e.work for e in entries), FREE),
            bound=max(bounds, key=lambda b: bounds[b]),
            attainable=sum(e.attainable for e in entries),
            nodes=tuple(n for e in entries for n in e.nodes),
            operators=sum((Counter(e.operators) for e in entries), Counter()),
            seen=_together([e.seen for e in entries]),
        )
        found.append(whole)
    return tuple(sorted(found, key=lambda e: -e.seconds))


def _far_from_the_roof(operators: Iterable[Entry]) -> list[Opportunity]:
    """The most that faster kernels would gain, by operator, the largest first."""
    found = [
        Opportunity("far from the roof", e.name, e.kernels, e.seconds, e.seconds - e.attainable, nodes=e.nodes)
        for e in operators
        if e.seconds > e.attainable
    ]
    return sorted(found, key=lambda o: -o.gain)


def _notes(kernels: Sequence[Entry], setting: Setting) -> Iterator[str]:
    if not kernels:
        yield "nothing runs: ONNX Runtime computed everything when it opened the model"
    if setting.provider != "CPUExecutionProvider":
        yield f"{setting.provider}: the time of a kernel is that of starting it, not of running it"
    fused = [e for e in kernels if len(e.nodes) > 1]
    if fused:
        nodes = sum(len(e.nodes) for e in fused)
        yield f"fused by ONNX Runtime: {nodes} nodes, kernels in their place: {len(fused)}, each named after one node"
    added = [e for e in kernels if not e.nodes]
    if added:
        seconds = sum(e.seconds for e in added)
        yield f"added by ONNX Runtime, for no node: {len(added)} kernels, {1e3 * seconds:.3g} ms"
