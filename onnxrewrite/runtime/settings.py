"""Sessions as a user opens them: optimized by ONNX Runtime, on one provider, with so many threads.

What is checked runs unoptimized, see ``runtime.session``; what is timed runs in the state in which it will be used.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
import onnxruntime as ort

from onnxrewrite.errors import ModelError
from onnxrewrite.ir import custom
from onnxrewrite.runtime import native
from onnxrewrite.runtime.limited import seconds_for
from onnxrewrite.runtime.session import ModelLike, one_line, source_of, weight_bytes
from onnxrewrite.system.arrays import Feeds, Held, Outputs
from onnxrewrite.system.plain import Json

Level: TypeAlias = Literal["disabled", "basic", "extended", "all"]
"""Of ONNX Runtime's own optimizations."""

LEVELS: Mapping[Level, ort.GraphOptimizationLevel] = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
"""ONNX Runtime's own levels of graph optimization."""


@dataclass(frozen=True)
class Setting:
    """The settings of a session.

    Attributes:
        provider: The execution provider, by ONNX Runtime's name.
        threads: Within an operator; 0 is ONNX Runtime's choice.
        level: Of ONNX Runtime's own graph optimizations.
        without: Its optimizers that are left out, by their names.
        arena: True if memory that was freed is kept for the next runs.
        memory_pattern: True if the places of values in memory are planned in the first run.
        shrinks: True if an arena gives back after each run what it does not need to begin the next.
        bound: True if inputs and outputs have fixed places in memory (IO binding), so that a run allocates no outputs.
    """

    provider: str = "CPUExecutionProvider"
    threads: int = 0
    level: Level = "all"
    without: tuple[str, ...] = ()
    arena: bool = True
    memory_pattern: bool = True
    shrinks: bool = False
    bound: bool = False

    def to_json(self) -> dict[str, Json]:
        """Plain data; what is about memory only where it is not as ever."""
        plain: dict[str, Json] = asdict(self)
        usual = asdict(DEFAULT)
        return {name: value for name, value in plain.items() if name not in _OF_MEMORY or value != usual[name]}

    @property
    def is_serial(self) -> bool:
        """True if one thread of the CPU does all the work."""
        return self.threads == 1 and self.provider == "CPUExecutionProvider"


DEFAULT = Setting()

_OF_MEMORY = ("arena", "memory_pattern", "shrinks", "bound")

SHRINKING = ("memory.enable_memory_arena_shrinkage", "cpu:0")
"""The entry of a run's configuration by which an arena gives memory back."""


@dataclass(frozen=True)
class Runner:
    """An open session and its inputs; a call runs it once.

    Attributes:
        handle: The session.
        feeds: The inputs that it has.
        creation: Seconds that it took to create it.
        seconds: The time limit of the first run; those after it are timed, and so have no other thread beside them.
    """

    handle: ort.InferenceSession
    feeds: Feeds = field(repr=False)
    creation: float
    seconds: float | None = None
    keep: object = field(default=None, repr=False)
    shrinks: bool = False
    binding: Binding | None = field(default=None, repr=False, compare=False)
    _ran: list[bool] = field(default_factory=list, init=False, repr=False, compare=False)

    def __call__(self) -> Sequence[Held]:
        """The outputs.

        Raises:
            ModelError: It does not run, or its first run takes too long.
        """
        try:
            if self._ran and self.binding is not None:
                found: Sequence[Held] = self.binding.run()
            elif self._ran:
                found = self.handle.run(None, self.feeds, _shrinking() if self.shrinks else None)
            else:
                found = native.run(self.handle, None, self.feeds, seconds=self.seconds)
                self._ran.append(True)
        except Exception as error:  # ORT raises a dozen classes, one a status code
            raise ModelError(f"the model does not run: {one_line(error)}") from error
        return found

    def on(self, feeds: Feeds) -> Runner:
        """The same session on other inputs: those of ``feeds`` that it has."""
        given = _given(self.handle, feeds)
        return replace(self, feeds=given, binding=Binding(self.handle, given) if self.binding is not None else None)


class Binding:
    """Fixed places of the inputs and outputs of a session, for inputs of one shape.

    Args:
        handle: The session.
        feeds: Its inputs.
    """

    def __init__(self, handle: ort.InferenceSession, feeds: Feeds):
        self._handle, self._bound = handle, handle.io_binding()
        for name, value in feeds.items():
            self._bound.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value)))
        self._outputs = [ort.OrtValue.ortvalue_from_numpy(np.asarray(v)) for v in handle.run(None, feeds)]
        for each, value in zip(handle.get_outputs(), self._outputs, strict=True):
            self._bound.bind_ortvalue_output(each.name, value)

    def run(self) -> list[Held]:
        """The outputs, which the next run overwrites."""
        self._handle.run_with_iobinding(self._bound)
        return [value.numpy() for value in self._outputs]


def _shrinking() -> ort.RunOptions:
    options = ort.RunOptions()
    options.add_run_config_entry(*SHRINKING)
    return options


def options_of(setting: Setting) -> ort.SessionOptions:
    """ONNX Runtime's options that a setting stands for.

    Threads do not spin when they have nothing to do: they would take the processor from the session that has its turn
    next.  With spinning, which is ONNX Runtime's default, two threads each and six sessions by turns on two processors,
    the ratio of the same two models came out between 0.3 and 0.7; without, between 0.60 and 0.69.
    """
    options = custom.equip(ort.SessionOptions())
    options.graph_optimization_level = LEVELS[setting.level]
    options.intra_op_num_threads = setting.threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = setting.arena
    options.enable_mem_pattern = setting.memory_pattern
    return options


def open_runner(
    model: ModelLike,
    feeds: Feeds,
    setting: Setting = DEFAULT,
    options: ort.SessionOptions | None = None,
    *,
    packed: bool = False,
) -> Runner:
    """A session of a model that runs as ``setting`` says, on those of ``feeds`` that the model has.

    ``options`` are those of the setting, ``options_of``, with more said.  ``packed``: weights that a message refers to
    are packed however many there are, see ``references.source``.

    Raises:
        ModelError: ONNX Runtime refuses the model, or the provider does not start here.
    """
    options = options_of(setting) if options is None else options
    try:
        source, keep = source_of(model, options, timed=True, packed=packed)
        seconds = seconds_for(weight_bytes(model))
        start = time.perf_counter()
        handle = native.opened(
            source,
            options,
            seconds=seconds,
            provider=setting.provider,
            disabled_optimizers=set(setting.without) or None,
        )
        creation = time.perf_counter() - start
    except Exception as error:  # ORT raises a dozen classes, one a status code
        raise ModelError(f"the model does not open in ONNX Runtime: {one_line(error)}") from error
    started = handle.get_providers()
    if setting.provider not in started:  # ONNX Runtime says nothing and takes the CPU
        raise ModelError(f"{setting.provider} does not start on this machine; ONNX Runtime took {', '.join(started)}")
    given = _given(handle, feeds)
    try:
        binding = Binding(handle, given) if setting.bound else None
    except Exception as error:  # outputs that are no tensors, or of a dtype that numpy lacks
        raise ModelError(f"the model cannot be run with IO binding: {one_line(error)}") from error
    return Runner(handle, given, creation, seconds, keep, setting.shrinks, binding)


def _given(handle: ort.InferenceSession, feeds: Feeds) -> Outputs:
    return {i.name: feeds[i.name] for i in handle.get_inputs() if i.name in feeds}
