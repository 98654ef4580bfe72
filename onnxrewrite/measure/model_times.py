"""Times of models as they are told: opened anew again and again, run by turns, and compared round by round.

One thread of the CPU is timed by the processor's seconds, which leave out other processes; several, and other hardware,
on the wall.  Every figure of a comparison comes from the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from onnxrewrite.measure.timing import Interval, Timing, interleave_anew, interval, ratio
from onnxrewrite.runtime.settings import Runner, Setting

_Name = TypeVar("_Name", bound=Hashable)


@dataclass(frozen=True)
class ModelTimes:
    """The times of one of several models that were compared.

    Attributes:
        opening: Seconds to create a session, a sample each.
        running: Seconds for one run, the median of a session a sample.
        of_processor: True if the processor's seconds count, not those on the wall.
    """

    opening: Timing
    running: Timing
    of_processor: bool

    @property
    def creation(self) -> Interval:
        """Seconds to create a session."""
        return self._interval(self.opening)

    @property
    def latency(self) -> Interval:
        """Seconds for one run."""
        return self._interval(self.running)

    def ratio(self, to: ModelTimes) -> Interval:
        """The time of one run as a multiple of that of another model of the same comparison."""
        return ratio(self.running, to.running, of_processor=self.of_processor)

    def _interval(self, timing: Timing) -> Interval:
        return interval(timing.cpu if self.of_processor else timing.wall)


def model_times(
    openers: Mapping[_Name, Callable[[], Runner]], settings: Iterable[Setting], *, seconds: float
) -> dict[_Name, ModelTimes]:
    """Times of models, in rounds that all of them take part in.

    Args:
        openers: Each opens a model with its inputs.
        settings: The session settings of all.
        seconds: For the runs of all of them together, or as long as it takes to open them 7 times, if that is more.

    Raises:
        ModelError: One does not open.
    """
    of_processor = all(setting.is_serial for setting in settings)
    found = interleave_anew(openers, seconds=seconds)
    return {name: ModelTimes(opening, running, of_processor) for name, (opening, running) in found.items()}
