"""Sessions as a user opens them: optimized by ONNX Runtime, on one provider, with so many threads.

What is checked runs unoptimized, see ``runtime.session``; what is timed runs in the state in which it will be used.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import onnxruntime as ort

from onnxrewrite.errors import ModelError
from onnxrewrite.ir import custom
from onnxrewrite.runtime import native
from onnxrewrite.runtime.limited import seconds_for
from onnxrewrite.runtime.session import ModelLike, one_line, source_of, weight_bytes
from onnxrewrite.system.arrays import Feeds, Held, Outputs

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
    """

    provider: str = "CPUExecutionProvider"
    threads: int = 0
    level: Level = "all"
    without: tuple[str, ...] = ()

    @property
    def is_serial(self) -> bool:
        """True if one thread of the CPU does all the work."""
        return self.threads == 1 and self.provider == "CPUExecutionProvider"


DEFAULT = Setting()


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
    _ran: list[bool] = field(default_factory=list, init=False, repr=False, compare=False)

    def __call__(self) -> Sequence[Held]:
        """The outputs.

        Raises:
            ModelError: It does not run, or its first run takes too long.
        """
        try:
            if self._ran:
                found: Sequence[Held] = self.handle.run(None, self.feeds)
            else:
                found = native.run(self.handle, None, self.feeds, seconds=self.seconds)
                self._ran.append(True)
        except Exception as error:  # ORT raises a dozen classes, one a status code
            raise ModelError(f"the model does not run: {one_line(error)}") from error
        return found

    def on(self, feeds: Feeds) -> Runner:
        """The same session on other inputs: those of ``feeds`` that it has."""
        return replace(self, feeds=_given(self.handle, feeds))


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
    return Runner(handle, _given(handle, feeds), creation, seconds, keep)


def _given(handle: ort.InferenceSession, feeds: Feeds) -> Outputs:
    return {i.name: feeds[i.name] for i in handle.get_inputs() if i.name in feeds}
