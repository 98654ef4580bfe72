"""Workloads for timing a model: sizes as in use, and inputs that make sense at them.

Checks run at small and odd sizes, where mistakes show; speed is measured at those that a model is used at.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from onnxrewrite.errors import NOT_RUN, ModelError
from onnxrewrite.inputs.bindings import Binding, role_of, typical
from onnxrewrite.inputs.sample import Sampler, Trial, attempt
from onnxrewrite.runtime.session import ModelLike, Runnable, is_short_of_memory, open_session, skeleton
from onnxrewrite.system.arrays import Feeds

_DIVISORS = (1, 2, 4, 8)
"""A model may not take as much as is typical."""


@dataclass(frozen=True)
class Workload:
    """Sizes by name, and the inputs."""

    binding: Binding
    feeds: Feeds = field(repr=False)


class Feeding(TypedDict, total=False):
    """Inputs of a model, as arguments of whatever runs it.

    Attributes:
        dims: Sizes by the names of dimensions; typical ones without them.
        inputs: Arrays by name; the others are made up.
        seed: Of what is made up.
    """

    dims: Mapping[str, int] | None
    inputs: Feeds | None
    seed: int


def workload(
    model: ModelLike,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Feeds | None = None,
    seed: int = 0,
    session: Runnable | None = None,
) -> Workload:
    """Inputs at the sizes that are given, at typical ones where none is; at those that run where these do not.

    ``session``: of the model, where one is open.

    Raises:
        ModelError: The model does not open, or runs at no sizes.
    """
    opened = open_session(model) if session is None else session
    if isinstance(opened, str):
        raise ModelError(f"the model does not open in ONNX Runtime: {opened}")
    sampler = Sampler(skeleton(model), given=inputs or {}, dims=dims or {}, seed=seed)
    reason = ""
    smaller = (typical(sampler.specs, sampler.bound, divisor) for divisor in _DIVISORS)
    for binding in itertools.chain(smaller, sampler.candidates(10)):
        found = attempt(sampler, opened, binding)
        if isinstance(found, Trial):
            return Workload(found.binding, found.feeds)
        reason = reason or found
    if is_short_of_memory(reason):
        raise ModelError("memory does not suffice to run the model; use --dim for smaller sizes, or --memory-limit")
    raise ModelError(f"no inputs found at which the model runs: {reason}; use --input or --dim")


def at_typical_sizes(
    model: ModelLike, *, dims: Mapping[str, int] | None = None, inputs: Feeds | None = None, seed: int = 0
) -> Workload:
    """A workload for a model that is not run: the sizes that are given, typical ones where none is, and inputs of
    these; without inputs where they cannot be made."""
    sampler = Sampler(skeleton(model), given=inputs or {}, dims=dims or {}, seed=seed)
    binding = typical(sampler.specs, sampler.bound)
    try:
        return Workload(binding, sampler.feeds(binding))
    except NOT_RUN:
        return Workload(binding, {})


def batch_dims(model: ModelLike) -> list[str]:
    """The symbolic dimensions of a model's inputs that count independent samples."""
    sampler = Sampler(skeleton(model))
    return [name for name in sampler.symbols() if role_of(name, sampler.specs) == "batch"]
