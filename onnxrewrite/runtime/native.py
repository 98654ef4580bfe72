"""ONNX Runtime's sessions, opened and run within limits of time, and open to signals (see ``limited``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import onnxruntime as ort

from onnxrewrite.runtime.limited import Overrun, limited
from onnxrewrite.system.arrays import Feeds, Held

Answer = TypeVar("Answer")

CPU = "CPUExecutionProvider"


def opened(
    source: str | bytes,
    options: ort.SessionOptions,
    *,
    seconds: float | None,
    provider: str | tuple[str, Mapping[str, str]] = CPU,
    **more: object,
) -> ort.InferenceSession:
    """A session of a model file or its bytes; ONNX Runtime may compute what is constant while it opens.

    Args:
        source: A path, or the bytes of a model.
        options: The session's; a session that is late cancels them, so that they are of no further use.
        seconds: The limit; None for none.
        provider: The execution provider, alone or with its options.
        more: Further arguments of ``onnxruntime.InferenceSession``.

    Raises:
        Overrun: It took longer.
        Exception: ONNX Runtime refuses the model, in one of a dozen classes.
    """
    return limited(
        lambda: ort.InferenceSession(source, options, providers=[provider], **more),
        seconds,
        lambda: options.set_load_cancellation_flag(True),
    )


def run(
    handle: ort.InferenceSession, names: Sequence[str] | None, feeds: Feeds, *, seconds: float | None
) -> list[Held]:
    """The outputs of ``names``, or all, as numpy arrays; Overrun if it takes longer than ``seconds``."""
    return _within(seconds, lambda options: list(handle.run(names, feeds, options)))


def run_each(
    handle: ort.InferenceSession, names: Sequence[str], feeds: Sequence[Feeds], *, seconds: float | None
) -> list[list[Held] | Exception]:
    """The same of several runs, one after the other, with the reason in place of what could not be run.

    Most of the time of a small run is that of a change of threads, and there is one for all of these.  A run that takes
    longer than ``seconds`` is the last one.
    """
    options, found = ort.RunOptions(), list[list[Held] | Exception]()
    options.log_severity_level = 4

    def stop() -> None:
        options.terminate = True

    def call() -> None:
        for each in feeds:
            try:
                found.append(list(handle.run(names, each, options)))
            except Exception as error:
                if options.terminate:
                    return
                found.append(error)

    try:
        limited(call, seconds, stop, lambda: len(found))
    except Overrun as error:
        return [*found, *[error] * (len(feeds) - len(found))]
    return found


def run_values(
    handle: ort.InferenceSession, names: Sequence[str], feeds: Mapping[str, ort.OrtValue], *, seconds: float | None
) -> list[ort.OrtValue]:
    """The same of ONNX Runtime's own values, which hold dtypes that numpy has not."""
    return _within(seconds, lambda options: list(handle.run_with_ort_values(names, feeds, options)))


def _within(seconds: float | None, call: Callable[[ort.RunOptions], Answer]) -> Answer:
    options = ort.RunOptions()
    options.log_severity_level = 4

    def stop() -> None:
        options.terminate = True

    return limited(lambda: call(options), seconds, stop)
