"""The kernels that ONNX Runtime runs for a model, with their times and costs: from its own profiles.

ONNX Runtime optimizes before it runs, so its kernels are not the model's nodes: see ``lineage``.  Writing the profile
takes time too, some microseconds a kernel, which is more than small kernels take.  So each model runs twice, by turns,
with and without a profile, and what the profile adds is taken off every kernel alike.
"""

from __future__ import annotations

import bisect
import json
import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import onnx
import onnx_ir as ir

from onnxrewrite.ir.operators import operators
from onnxrewrite.measure.timing import LEAST, MOST, Timing, interleave
from onnxrewrite.runtime.kernel_work import FREE, Tensor, Work, work
from onnxrewrite.runtime.session import openable
from onnxrewrite.runtime.settings import Runner, Setting, open_runner, options_of
from onnxrewrite.system import temporary
from onnxrewrite.system.arrays import Feeds
from onnxrewrite.system.plain import Plain

_SUFFIX = "_kernel_time"
_EVENTS = 20_000
"""In one profile, about: each takes a kilobyte of JSON."""

_WARM_UP = 2
"""Runs that ``interleave`` makes before those that count, where a sample is one run."""


@dataclass(frozen=True)
class Kernel:
    """One kernel, over all of its calls in a run.

    Attributes:
        name: The node's name in the optimized graph.
        op_type: The operator, by ONNX Runtime's name.
        samples: Seconds in each run, kernels of inner graphs left out; 0 where it did not run.
        calls: In one run; more than one in a loop.
        work: Of all calls together.
        dtype: Of the largest input, by ONNX Runtime's name; ``float`` for none.
        shapes: Of the inputs and the outputs of the first call.
        provider: The execution provider that runs it.
    """

    name: str
    op_type: str
    samples: tuple[float, ...] = field(repr=False)
    calls: int
    work: Work
    dtype: str
    shapes: tuple[tuple[Tensor, ...], tuple[Tensor, ...]] = field(repr=False)
    provider: str = ""

    @property
    def seconds(self) -> float:
        """The median of the runs."""
        return statistics.median(self.samples)


@dataclass(frozen=True)
class Run:
    """A model as it was run.

    Attributes:
        timing: Of the whole, without a profile.
        kernels: In the order in which they first ran.
        overhead: Seconds that the profile added to each call of a kernel, taken off already.
        optimized: The graph that ran, without its weights; what ``setting.level`` made of the model.
    """

    timing: Timing
    kernels: tuple[Kernel, ...]
    overhead: float
    optimized: onnx.ModelProto = field(repr=False)


def run_profiled(
    models: Mapping[str, ir.Model | Path],
    feeds: Feeds,
    setting: Setting | Mapping[str, Setting],
    *,
    seconds: float = 2.0,
) -> dict[str, Run]:
    """Run models by turns, each with and without a profile, for about ``seconds`` together.

    The profiles lie in a temporary folder that is gone afterwards.  ``setting`` is one for all models, or one for each.
    A model that is given as its file is opened there, which takes less memory.

    Raises:
        ModelError: ONNX Runtime refuses one of the models.
    """
    settings = dict.fromkeys(models, setting) if isinstance(setting, Setting) else setting
    with ExitStack() as stack:
        sessions = {name: stack.enter_context(_opened(model, feeds, settings[name])) for name, model in models.items()}
        tasks: dict[str, Callable[[], object]] = {}
        for name, session in sessions.items():
            tasks |= {f"plain {name}": session.plain, f"profiled {name}": session.profiled}
        most = min(_EVENTS // max(len(s.optimized.graph.node), 1) for s in sessions.values())
        found = interleave(tasks, seconds=seconds, most=min(max(most, LEAST), MOST), sample=0)
        return {name: _run(session, found[f"plain {name}"]) for name, session in sessions.items()}


class _Sessions(NamedTuple):
    """Both sessions of a model."""

    plain: Runner
    profiled: Runner
    optimized: onnx.ModelProto


@contextmanager
def _opened(model: ir.Model | Path, feeds: Feeds, setting: Setting) -> Iterator[_Sessions]:
    """Sessions that do not disturb each other: threads that wait for work stop spinning when a run ends."""
    opened = nullcontext(model) if isinstance(model, Path) else openable(model)
    with temporary.folder() as folder, opened as source:
        plain, profiled = options_of(setting), options_of(setting)
        for options in (plain, profiled):
            options.add_session_config_entry("session.force_spinning_stop", "1")
        profiled.enable_profiling = True
        profiled.profile_file_prefix = os.path.join(folder, "profile")
        profiled.optimized_model_filepath = os.path.join(folder, "optimized.onnx")
        weights = "session.optimized_model_external_initializers_file_name"
        profiled.add_session_config_entry(weights, "optimized.bin")
        first = open_runner(source, feeds, setting, plain)
        second = open_runner(source, feeds, setting, profiled)
        try:
            optimized = onnx.load(profiled.optimized_model_filepath, load_external_data=False)
            yield _Sessions(first, second, optimized)
        finally:
            second.handle.end_profiling()


# ------------------------------------------------------------------------------------------------ the profile


class _Event(NamedTuple):
    """One call of a kernel: ``own`` is its time without kernels of inner graphs, in seconds."""

    key: tuple[str, str]
    start: float
    own: float
    arguments: Plain


def _run(session: _Sessions, timing: Timing) -> Run:
    with open(session.profiled.handle.end_profiling(), encoding="utf-8") as file:
        events = json.load(file)
    runs = _runs(events)[_WARM_UP:]
    overhead = _overhead([[e.own for e in run] for run in runs], timing.latency.median)
    return Run(timing, tuple(_kernels(runs, overhead)), overhead, session.optimized)


def _runs(events: Sequence[Plain]) -> list[list[_Event]]:
    """The calls of kernels, run by run."""
    starts = sorted(e["ts"] for e in events if e["cat"] == "Session" and e["name"] == "model_run")
    found: list[list[_Event]] = [[] for _ in starts]
    calls = [e for e in events if e["cat"] == "Node" and e["name"].endswith(_SUFFIX)]
    for event in _with_own_time(calls):
        found[max(bisect.bisect_right(starts, event.start) - 1, 0)].append(event)
    return found


def _with_own_time(calls: Sequence[Plain]) -> list[_Event]:
    """The time of an If, a Loop or a Scan holds that of the kernels inside, which is taken out."""
    own = {id(e): float(e["dur"]) for e in calls}
    open_calls: list[Plain] = []
    ordered = sorted(calls, key=lambda e: (e["ts"], -e["dur"], e["args"]["op_name"] not in _CONTROL))
    for event in ordered:
        while open_calls and open_calls[-1]["ts"] + open_calls[-1]["dur"] < event["ts"] + event["dur"]:
            open_calls.pop()
        if open_calls:
            own[id(open_calls[-1])] -= event["dur"]
        if event["args"]["op_name"] in _CONTROL:
            open_calls.append(event)
    return [
        _Event((e["name"].removesuffix(_SUFFIX), e["args"]["op_name"]), e["ts"], max(own[id(e)], 0) * 1e-6, e["args"])
        for e in ordered
    ]


_CONTROL = frozenset(operators(marks="body"))


def _overhead(runs: Sequence[Sequence[float]], latency: float) -> float:
    """The time to take off each call so that all together take no longer than the run does without a profile.

    It is at most the time of the fastest call, which cannot have taken less than none.
    """
    whole = [run for run in runs if run]
    if not whole:
        return 0.0
    excess = statistics.median((sum(run) - latency) / len(run) for run in whole)
    fastest: float = min(statistics.median(column) for column in zip(*whole, strict=False))
    return max(0.0, min(excess, fastest))


def _kernels(runs: Sequence[Sequence[_Event]], overhead: float) -> Iterator[Kernel]:
    """The kernels of all runs; costs and shapes as of the last run that has them."""
    samples: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * len(runs))
    last: dict[tuple[str, str], list[_Event]] = {}
    for number, run in enumerate(runs):
        by_kernel: dict[tuple[str, str], list[_Event]] = defaultdict(list)
        for event in run:
            by_kernel[event.key].append(event)
            samples[event.key][number] += max(event.own - overhead, 0.0)
        last |= by_kernel
    for (name, op_type), calls in last.items():
        shapes = [_shapes(c.arguments) for c in calls]
        yield Kernel(
            name=name,
            op_type=op_type,
            samples=tuple(samples[name, op_type]),
            calls=len(calls),
            work=sum((_work(op_type, *s) for s in shapes), FREE),
            dtype=max(shapes[0][0], key=lambda t: t.nbytes).dtype if shapes[0][0] else "float",
            shapes=shapes[0],
            provider=calls[0].arguments.get("provider", ""),
        )


def _work(op_type: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Work:
    """A control operator moves nothing by itself."""
    return FREE if op_type in _CONTROL else work(op_type, inputs, outputs)


def _shapes(arguments: Plain) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    inputs, outputs = (
        tuple(Tensor(dtype, tuple(shape)) for each in arguments.get(key, ()) for dtype, shape in each.items())
        for key in ("input_type_shape", "output_type_shape")
    )
    return inputs, outputs
