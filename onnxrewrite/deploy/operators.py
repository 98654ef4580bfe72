"""Where the time goes in the original and in the result, operator by operator: from ONNX Runtime's own profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxrewrite.deploy.artifact import Artifact
from onnxrewrite.ir import io
from onnxrewrite.measure.kernels import Run, run_profiled
from onnxrewrite.verify.session import one_line

SECONDS = 1.0
"""For the runs of both."""

SLOWEST = 3.0
"""Seconds of a run beyond which it is not profiled: each model runs ten times at least."""

LARGEST = 2 * 10**9
"""Bytes of both models together beyond which they are not: each is opened two more times."""


@dataclass(frozen=True)
class Part:
    """All kernels of one operator.

    Attributes:
        operator: By ONNX Runtime's name.
        kernels: How many there are.
        seconds: In one run.
    """

    operator: str
    kernels: int
    seconds: float


@dataclass(frozen=True)
class Operators:
    """Parts of a run, the longest first.

    Attributes:
        before: Of the original.
        after: Of the result.
        missing: Why there are none; empty where there are.
    """

    before: tuple[Part, ...] = ()
    after: tuple[Part, ...] = ()
    missing: str = ""


def by_operator(before: Artifact, after: Artifact, feeds: Mapping[str, Any]) -> Operators:
    """Both run by turns, each as it is set; where they cannot be profiled, the reason why.

    Nothing depends on it, so nothing that goes wrong here ends a run that has its result.
    """
    for artifact in (before, after):
        if artifact.setting.provider != "CPUExecutionProvider":
            return Operators(
                missing=f"{artifact.setting.provider}: its profile tells when kernels begin, not how long they run"
            )
    sides = {"before": before, "after": after}
    try:
        runs = run_profiled(
            {name: io.load(side.path) for name, side in sides.items()},
            feeds,
            {name: side.setting for name, side in sides.items()},
            seconds=SECONDS,
        )
        return Operators(_parts(runs["before"]), _parts(runs["after"]))
    except Exception as error:  # a profile that cannot be written or read is no reason to lose the result
        return Operators(missing=one_line(error))


def _parts(run: Run) -> tuple[Part, ...]:
    """Kernels by operator."""
    found: dict[str, Part] = {}
    for kernel in run.kernels:
        so_far = found.get(kernel.op_type, Part(kernel.op_type, 0, 0.0))
        found[kernel.op_type] = Part(kernel.op_type, so_far.kernels + 1, so_far.seconds + kernel.seconds)
    return tuple(sorted(found.values(), key=lambda part: (-part.seconds, part.operator)))
