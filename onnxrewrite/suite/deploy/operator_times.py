"""Time by operator in the original and in the result, from ONNX Runtime's own profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxrewrite.errors import one_line
from onnxrewrite.inputs.workload import workload
from onnxrewrite.measure.kernel_times import Run, run_profiled
from onnxrewrite.suite.deploy.acceptance import Trial
from onnxrewrite.system.arrays import Feeds

SECONDS = 0.5
"""For the runs of both."""

SLOWEST = 3.0
"""Seconds of a run beyond which there is no profile: each model would run ten times at least."""

LARGEST = 2 * 10**9
"""Bytes of both models beyond which there is none: each would be opened twice more at once."""


@dataclass(frozen=True)
class Part:
    """All kernels of one operator.

    Attributes:
        operator: By ONNX Runtime's name.
        kernels: Their number.
        seconds: In one run.
    """

    operator: str
    kernels: int
    seconds: float


@dataclass(frozen=True)
class Operators:
    """The parts of a run, the longest first.

    Attributes:
        before: Of the original.
        after: Of the result; the same where that is the original.
        missing: The reason why there are none; empty if there are.
    """

    before: tuple[Part, ...] = ()
    after: tuple[Part, ...] = ()
    missing: str = ""


def by_operator(before: Trial, after: Trial, dims: Mapping[str, int], inputs: Feeds) -> Operators:
    """Both run by turns, each as it is set; where they cannot be profiled, the reason why.

    Nothing depends on it, so whatever goes wrong here ends no run that has its result.

    Args:
        before: The original.
        after: The result.
        dims: The sizes at which both were timed.
        inputs: Arrays by name; the others are generated.
    """
    missing = _why_not(before) or _why_not(after)
    if not missing and before.metrics.size + after.metrics.size > LARGEST:
        missing = "the models are too large to open them twice more"
    if missing:
        return Operators(missing=missing)
    sides = {"before": before.artifact}
    if after is not before:
        sides["after"] = after.artifact
    try:
        feeds = workload(before.artifact.path, dims=dims, inputs=inputs).feeds
        models = {name: side.path for name, side in sides.items()}
        runs = run_profiled(models, feeds, {name: side.setting for name, side in sides.items()}, seconds=SECONDS)
        return Operators(_parts(runs["before"]), _parts(runs["after" if "after" in runs else "before"]))
    except Exception as error:  # a profile that cannot be written or read is no reason to lose the result
        return Operators(missing=f"the profile failed: {one_line(error)}")


def _why_not(trial: Trial) -> str:
    """The reason why a model is not profiled; empty if it is."""
    provider = trial.artifact.setting.provider
    if provider != "CPUExecutionProvider":
        return f"a profile on {provider} tells how long kernels take to begin, not to run"
    if trial.metrics.latency.median > SLOWEST:
        return f"a run takes {trial.metrics.latency.median:.1f} s, too long to repeat it for a profile"
    return ""


def _parts(run: Run) -> tuple[Part, ...]:
    """Kernels by operator."""
    found: dict[str, Part] = {}
    for kernel in run.kernels:
        so_far = found.get(kernel.op_type, Part(kernel.op_type, 0, 0.0))
        found[kernel.op_type] = Part(kernel.op_type, so_far.kernels + 1, so_far.seconds + kernel.seconds)
    return tuple(sorted(found.values(), key=lambda part: (-part.seconds, part.operator)))
