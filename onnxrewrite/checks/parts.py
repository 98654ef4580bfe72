"""The parts in which two models are compared, the whole or its segments, and what is told of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import onnx

from onnxrewrite.checks.findings import Fault, ModelCheck, OutputCheck
from onnxrewrite.checks.segments import again, side_by_side
from onnxrewrite.errors import ModelError
from onnxrewrite.ir.random_operators import stochastic_ops
from onnxrewrite.reference.judgement import ORIGINAL, PART, ROUNDED, Finding, Judge
from onnxrewrite.reference.runs import Run
from onnxrewrite.reference.tolerance import EXACT, STEPS, TOLERANCES, equality
from onnxrewrite.runtime.session import Session, is_short_of_memory, open_session
from onnxrewrite.system.arrays import Outputs


@dataclass
class Part:
    """The whole, or a segment, to be compared.

    Attributes:
        model: The original of it.
        judge: Its judgement.
        runs: The runs of the original.
        made: The outputs of the candidate in these.
        failure: What kept the candidate from running; empty if nothing did.
        where: The beginning of a line about it.
        values: The names of the values that a segment computes.
        dropped: Runs at which the original of it fails, and why.
        done: The number of places to cut up to its end.
        waiting: The number of those to come.
    """

    model: onnx.ModelProto
    judge: Judge
    runs: Sequence[Run]
    made: Sequence[Outputs]
    failure: str = ""
    where: str = ""
    values: frozenset[str] = frozenset()
    dropped: Sequence[tuple[Run, str]] = ()
    done: int = 1
    waiting: int = 0


def whole(original: onnx.ModelProto, judge: Judge, runs: Sequence[Run], candidate: Session) -> Part:
    """The whole, run from end to end.

    Raises:
        MemoryError: The candidate is short of it.
    """
    outputs = list[Outputs]()
    for run in runs:
        made = candidate.run(run.feeds)
        if isinstance(made, str) and is_short_of_memory(made):
            raise MemoryError
        if isinstance(made, str):
            return Part(original, judge, runs, outputs, f"{run.describe()}: the rewritten model fails: {made}")
        outputs.append(made)
    return Part(original, judge, runs, outputs)


def in_segments(
    original: onnx.ModelProto, candidate: onnx.ModelProto, runs: Sequence[Run], *, threads: int = 0
) -> Iterator[Part]:
    """The segments, each judged as a site is.

    Raises:
        MemoryError: The candidate is short of it.
        ModelError: What is left cannot be run in segments.
    """
    for number, step in enumerate(side_by_side(original, candidate, runs, threads=threads), 1):
        segment, where = step.segment, f"segment {number}, up to {step.segment.outputs[-1]}"
        closed = next((side for side in (segment.original, segment.rewritten) if isinstance(side, str)), None)
        if closed is not None:
            raise ModelError(f"{where}, does not open by itself: {closed}")
        if not step.runs:
            raise ModelError(f"{where}, runs at no inputs of the original: {step.dropped[0][1]}")
        assert isinstance(segment.original, Session)
        judge = Judge(segment.model, segment.original, replace(PART, threads=threads))
        yield Part(
            segment.model,
            judge,
            step.runs,
            step.made,
            step.failure,
            f"{where}: ",
            segment.made,
            step.dropped,
            segment.done,
            segment.waiting,
        )
        judge.close()


class Spot:
    """The segment in which a candidate differed, where others are judged alone; what is known of it is kept.

    Args:
        fault: The fault.
        threads: Of sessions; 0 is ONNX Runtime's choice.
    """

    def __init__(self, fault: Fault, *, threads: int = 0) -> None:
        self._runs, self._threads = fault.runs, threads
        self._session = open_session(fault.model, threads=threads)
        if isinstance(self._session, Session):
            self._judge = Judge(fault.model, self._session, replace(PART, threads=threads))

    def is_right(self, candidate: onnx.ModelProto) -> bool | None:
        """True if a candidate is equal there; None where it cannot be run there alone."""
        if isinstance(self._session, str):
            return None
        with suppress(MemoryError, ModelError):
            made = again(candidate, self._runs, threads=self._threads)
            if isinstance(made, list):
                return all(found.comparison.accept for found in self._judge.judge(self._runs, made))
        return None

    def close(self) -> None:
        """Free the memory of both."""
        if isinstance(self._session, Session):
            self._judge.close()
            self._session.close()


def compare(part: Part, result: ModelCheck) -> None:
    """Compare a part, and add what there is to tell of it."""
    if part.failure:
        result.failures.append(f"{part.where}{part.failure}")
        return
    if stochastic_ops(part.model):
        result.failures += [f"{part.where}{line}" for line in _shape_problems(part.runs, part.made)]
        return
    worst: dict[str, Finding] = {}
    for found in part.judge.judge(part.runs, part.made):
        worst[found.name] = max(worst.get(found.name, found), found, key=_severity)
    for name in part.runs[0].outputs:
        if name not in worst:
            equal = equality((r.outputs[name], o[name]) for r, o in zip(part.runs, part.made, strict=True))
            result.outputs.append(OutputCheck(name, EXACT, "not needed", equality=equal))
            continue
        _, comparison, reference, run = worst[name]
        result.outputs.append(OutputCheck(name, comparison, reference, run.describe()))
        if not comparison.accept:
            result.failures.append(f"{part.where}output {name}, {run.describe()}: {comparison.reason}")
    references = {found.reference for found in worst.values()}
    if references - {ORIGINAL, ROUNDED}:
        result.tolerance = _tolerance(part, list(worst))
    elif references and not result.tolerance:
        result.tolerance = (
            "a right rounding of the same number"
            if references == {ROUNDED}
            else "nearer to the original than any reference could object to"
        )
    result.notes = [*result.notes, *part.judge.notes]
    if part.judge.used_reference:
        result.reference = part.judge.reference.kind
        if part.judge.reference.reason:
            result.notes.append(f"no float64 reference: {part.judge.reference.reason}")


def _tolerance(part: Part, names: Sequence[str]) -> str:
    first, judged = part.runs[0].outputs, part.judge.reference
    dtypes = {np.asarray(first[n]).dtype for n in names if not isinstance(first[n], list)}
    lines = []
    for dtype in sorted(dtypes, key=str):
        row = TOLERANCES.get(dtype)
        if row is None:
            lines.append(f"{dtype}: equal")
        elif judged.stepped:
            lines.append(
                f"{dtype}: of each element {row.k:g}x what a one-ulp perturbation makes of it, {STEPS:g}x where it "
                f"makes whole steps, at least {row.floor * row.unit:.1e}"
            )
        elif judged.trusted:
            lines.append(
                f"{dtype}: {row.k:g}x the original's error (rms {row.k_rms:g}x), at least {row.floor * row.unit:.1e}"
            )
        else:
            stated = row.stated * row.unit
            lines.append(
                f"{dtype}: {stated:.1e} of the largest value, or {row.k:g}x the effect of a one-ulp perturbation"
            )
    return "; ".join(lines)


def _severity(found: Finding) -> tuple[bool, float]:
    return not found.comparison.accept, found.comparison.error_rewritten


def _shape_problems(runs: Sequence[Run], outputs: Sequence[Outputs]) -> list[str]:
    problems = []
    for run, made in zip(runs, outputs, strict=True):
        for name, value in run.outputs.items():
            old, new = np.asarray(value), np.asarray(made[name])
            if old.dtype != new.dtype or old.shape != new.shape:
                problems.append(
                    f"output {name}, {run.describe()}: {new.dtype}{list(new.shape)}, was {old.dtype}{list(old.shape)}"
                )
    return problems[:5]
