"""An exported model against the module that it was made of: on the example, and on inputs and sizes made for it.

The module says what is right.  Where it can be run in double precision, that is the reference; its own error against
it says what the export may have, by the rules of ``tolerance``.  Where it cannot, its outputs are, and the stated
tolerance is taken.  Knows no framework.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from onnxrewrite.checks.findings import ModelCheck, OutputCheck
from onnxrewrite.errors import UsageError
from onnxrewrite.inputs.sample import CARE, Sampler, is_finite
from onnxrewrite.ir.random_operators import stochastic_ops
from onnxrewrite.reference.tolerance import (
    BITWISE,
    IN_VALUE,
    TOLERANCES,
    Comparison,
    Norms,
    Rounding,
    compare,
    equality,
    identical,
    is_float,
    measure,
)
from onnxrewrite.runtime.session import Session, open_session, skeleton
from onnxrewrite.suite.frameworks.declared_sizes import DeclaredSizes
from onnxrewrite.system.arrays import Feeds, Held, is_tensor

BINDINGS = 2
"""Sizes of dynamic dimensions that are tried beside those of the example."""

_CANDIDATES = 12

_NO_KERNEL = "Could not find an implementation"
"""ONNX Runtime's message for a valid model that has an operator for dtypes without a CPU kernel."""


class Subject(Protocol):
    """A module that can be run; arrays in by name, arrays out in order."""

    def run(self, feeds: Feeds) -> Sequence[Held] | str:
        """Outputs, or in a line why there are none."""

    def precise(self, feeds: Feeds) -> Sequence[Held] | None:
        """Outputs computed in double precision; None where that is not possible."""

    def disturbed(self, feeds: Feeds, seed: int) -> Sequence[Held] | None:
        """Outputs with inputs and weights moved by a unit roundoff or two; None where that is not possible."""


@dataclass(frozen=True)
class Try:
    """Inputs, and what the module made of them."""

    name: str
    binding: Mapping[str, int]
    feeds: Feeds
    wanted: Sequence[Held]


def compare_export(
    subject: Subject,
    path: Path,
    example: Feeds,
    *,
    seed: int = 0,
    samples: int = 3,
    dims: Mapping[str, int] | None = None,
) -> ModelCheck:
    """Compare an exported model with its module; sizes of outputs that it declares and does not keep are mended.

    Args:
        subject: The module.
        path: The exported model.
        example: The inputs that it was exported with, by the names of the model's inputs.
        seed: Of the inputs that are made.
        samples: Inputs for each of two choices of the dynamic sizes, beside the example.
        dims: Sizes of dynamic dimensions that are not to be varied.
    """
    start = time.perf_counter()
    check = ModelCheck(False, "float64", _tolerance(), samples=samples)
    _fill(check, subject, path, example, seed, samples, dims or {})
    check.ok = not check.failures
    check.seconds = time.perf_counter() - start
    return check


def _fill(
    check: ModelCheck,
    subject: Subject,
    path: Path,
    example: Feeds,
    seed: int,
    samples: int,
    dims: Mapping[str, int],
) -> None:
    bare = skeleton(path)
    session = open_session(path)
    if isinstance(session, str) and _NO_KERNEL in session:
        check.skipped = f"not compared, for it does not run on this machine: {session}"
        return
    if isinstance(session, str):
        check.failures.append(f"it does not open in ONNX Runtime: {session}")
        return
    unknown = sorted(set(session.inputs) - set(example))
    if unknown:
        check.failures.append(f"it has inputs that the module has not: {', '.join(unknown)}")
        return
    first = _wanted(subject, example)
    if isinstance(first, str):
        check.failures.append(f"the module does not run on the example: {first}")
        return
    if stochastic_ops(bare) or not _repeats(subject, example, first):
        check.skipped = "the module is random; nothing was compared"
        return
    sampler = Sampler(bare, dims=dict(dims), seed=seed)
    tries = [Try("the example", {}, example, first)]
    tries += _made(subject, sampler, samples, example, check.notes)
    check.bindings = [dict(b) for b in {tuple(t.binding.items()): t.binding for t in tries[1:]}.values()]
    sizes = DeclaredSizes(path)
    for each in tries:
        check.runs += 1
        if not _compared(check, subject, session, each, sizes):
            return
    check.notes += sizes.mend()


def _wanted(subject: Subject, feeds: Feeds) -> Sequence[Held] | str:
    return subject.run(feeds)


def _repeats(subject: Subject, feeds: Feeds, first: Sequence[Held]) -> bool:
    again = subject.run(feeds)
    return not isinstance(again, str) and len(again) == len(first) and all(map(identical, first, again))


def _made(subject: Subject, sampler: Sampler, samples: int, example: Feeds, notes: list[str]) -> Iterator[Try]:
    """Inputs at which the module runs: what it refuses is no fault of the export."""
    found, refused = 0, ""
    for binding in sampler.candidates(_CANDIDATES):
        if found == (BINDINGS if sampler.symbols() else 1):
            break
        care = _care(subject, sampler, binding, example)
        if isinstance(care, str):
            refused = refused or f"{_sizes(binding)}{care}"
            continue
        found += 1
        for sample in range(samples):
            feeds = {**example, **sampler.feeds(binding, sample, care)}
            wanted = subject.run(feeds)
            if not isinstance(wanted, str):
                yield Try(f"sample {sample}{_at(binding)}", binding, feeds, wanted)
        yield from _negated(subject, sampler.feeds(binding, 0, care), binding, example)
    if not found:
        notes.append(f"compared on the example only, for the module runs on no inputs made for it: {refused}")


def _negated(subject: Subject, feeds: Feeds, binding: Mapping[str, int], example: Feeds) -> Iterator[Try]:
    """The first sample with the sign of all floats turned, for a trace follows one side of a branch alone."""
    turned = {n: -v if is_tensor(v) and is_float(v.dtype) else v for n, v in feeds.items()}
    wanted = subject.run({**example, **turned})
    if not isinstance(wanted, str) and any(turned[n] is not feeds[n] for n in feeds):
        yield Try(f"sample 0 negated{_at(binding)}", binding, {**example, **turned}, wanted)


def _care(subject: Subject, sampler: Sampler, binding: Mapping[str, int], example: Feeds) -> int | str:
    """The level of care that inputs need for the module to run, see ``Sampler``; or the reason why it does not."""
    reason = ""
    for care in range(CARE):
        try:
            feeds = sampler.feeds(binding, 0, care)
        except UsageError as error:
            return str(error)
        made = subject.run({**example, **feeds})
        if not isinstance(made, str) and all(map(is_finite, made)):
            return care
        reason = reason or (made if isinstance(made, str) else "the outputs are not finite")
    return reason


def _compared(check: ModelCheck, subject: Subject, session: Session, each: Try, sizes: DeclaredSizes) -> bool:
    """True if all outputs are right; the findings are added to the check."""
    made = session.run(each.feeds)
    if isinstance(made, str):
        check.failures.append(f"on {each.name} the export fails: {made}")
        return False
    if len(made) != len(each.wanted):
        check.failures.append(f"it has {len(made)} outputs, the module {len(each.wanted)}")
        return False
    sizes.see(made, each.name)
    precise = subject.precise(each.feeds)
    if precise is None and check.reference != "float32":
        check.reference = "float32"
        check.notes.append("the module does not run in float64: compared with its own float32")
    for index, name in enumerate(session.outputs):
        reference = precise[index] if precise is not None else None
        one = _one(subject, each, index, reference, made[name])
        _add(check, OutputCheck(name, one, check.reference, each.name, equality([(each.wanted[index], made[name])])))
        if not one.accept:
            check.failures.append(f"output {name} on {each.name}: {one.reason}")
    return not check.failures


def _one(subject: Subject, each: Try, index: int, reference: Held, made: Held) -> Comparison:
    wanted = each.wanted[index]
    found = compare(reference, wanted, made)
    if found.accept or not np.isfinite(found.error_rewritten):
        return found
    noise = Norms()
    for seed in (1, 2):
        moved = subject.disturbed(each.feeds, seed)
        if moved is not None and np.asarray(moved[index]).shape == np.asarray(wanted).shape:
            noise = noise | measure(np.asarray(wanted), np.asarray(moved[index]))
    return compare(reference, wanted, made, Rounding(noise))


def _add(check: ModelCheck, found: OutputCheck) -> None:
    """Keep the worst comparison of each output, and the least equality."""
    for index, known in enumerate(check.outputs):
        if known.name == found.name:
            is_worse = found.comparison.error_rewritten >= known.comparison.error_rewritten
            least = min(known.equality, found.equality, key=["", IN_VALUE, BITWISE].index)
            check.outputs[index] = replace(found if not found.comparison.accept or is_worse else known, equality=least)
            return
    check.outputs.append(found)


def _tolerance() -> str:
    row = TOLERANCES[np.dtype(np.float32)]
    return f"float32: {row.k:g}x the module's own error (rms {row.k_rms:g}x), at least {row.floor * row.unit:.1e}"


def _sizes(binding: Mapping[str, int]) -> str:
    return f"{' '.join(f'{k}={v}' for k, v in binding.items())}: " if binding else ""


def _at(binding: Mapping[str, int]) -> str:
    return f" at {_sizes(binding)[:-2]}" if binding else ""
