"""Proofs of rewrites at their places: both sides cut out as for a check, proved once for all sites that are alike.

A site has numbers for its sizes, and weights of its own.  What is proved is more than that, where it can be: that both
sides agree at any sizes, and with any weights of these dtypes and ranks, of which the site is one case; or with any
weights at these sizes.  It is also the shorter proof, for sums are not written out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxrewrite.checks.likeness import structure
from onnxrewrite.checks.site_record import ProofRecord
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.ir.graph import ELEMENTS
from onnxrewrite.ir.text.printer import values_of
from onnxrewrite.proof import require_prover
from onnxrewrite.rewrite.rule import Assumption

if TYPE_CHECKING:
    from onnxrewrite.proof.validation import Outcome

Sides = tuple[ir.Model, ir.Model]
"""The covered nodes, and their replacement."""

_GENERAL = 3.0
"""Seconds to prove more than the site: on the golden models no such proof took half of one."""

_MANY = 2**16
"""Constants of more elements are taken for weights unread."""


@dataclass
class SiteProver:
    """Proves sites.

    Attributes:
        scripts: SHA-256 of a script of SMT-LIB to the script, of all proofs that were found.
        seconds: The time that proofs took, all together.

    Raises:
        UsageError: z3 is not installed.
    """

    scripts: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    _known: dict[str, ProofRecord | str] = field(default_factory=dict)
    _unproved: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_prover()

    def prove(self, before: ir.Model, after: ir.Model, assumes: Collection[Assumption]) -> ProofRecord | str:
        """The proof of two sides, or why there is none.

        A proof that reads weights is one of these weights; a site that is not proved stands for all that are alike.
        """
        alike = f"{structure(before, after)}\n{sorted(assumes)}"
        if alike in self._unproved:
            return self._unproved[alike]
        for general in _general(before, after):
            found = self._known_or_proved(general, assumes, _GENERAL)
            if isinstance(found, ProofRecord):
                return found
        found = self._known_or_proved((before, after), assumes)
        if isinstance(found, str):
            self._unproved[alike] = found
        return found

    def _known_or_proved(
        self, sides: Sides, assumes: Collection[Assumption], most: float = math.inf
    ) -> ProofRecord | str:
        key = f"{structure(*sides, by_kind=False)}\n{sorted(assumes)}"
        if key not in self._known:
            self._known[key] = self._proved(sides, assumes, most)
        return self._known[key]

    def _proved(self, sides: Sides, assumes: Collection[Assumption], most: float) -> ProofRecord | str:
        from onnxrewrite.proof.deciding import SECONDS
        from onnxrewrite.proof.validation import Proof, prove

        not_empty = Assumption.NOT_EMPTY in assumes
        try:
            found: Outcome = prove(*sides, not_empty=not_empty, seconds=min(most, SECONDS), refute=False)
        except OnnxRewriteError as error:
            return str(error)
        self.seconds += found.seconds if hasattr(found, "seconds") else 0.0
        if not isinstance(found, Proof):
            return found.reason
        self.scripts[found.digest] = found.text
        return ProofRecord(found.domain, found.strength, len(found.goals), found.digest)


def _general(before: ir.Model, after: ir.Model) -> Iterator[Sides]:
    """The cases of which the sides are one: with names for weights and sizes, then for weights alone."""
    named = before.clone(), after.clone()
    has_weights = _name_weights(*named)
    if any(_numbers(side) for side in named):
        sized = named[0].clone(), named[1].clone()
        _name_sizes(*sized)
        yield sized
    if has_weights:
        yield named


def _name_weights(before: ir.Model, after: ir.Model) -> bool:
    """Make inputs of weights, equal ones the same; True if there are some."""
    weights = [_weights(side) for side in (before, after)]
    first, second = (dict.fromkeys(found.values()) for found in weights)
    is_folded = not second.keys() <= first.keys()  # made of weights that the replacement no longer has
    names = {told: f"weight{n}" for n, told in enumerate(t for t in first if not is_folded or t in second)}
    for side, found in zip((before, after), weights, strict=True):
        _give(side, {value: names[told] for value, told in found.items() if told in names})
    return bool(names)


def _numbers(side: ir.Model) -> list[int]:
    """The sizes of inputs that are numbers, but for those of one, which may be broadcast."""
    return [d for value in side.graph.inputs for d in value.shape or () if isinstance(d, int) and d > 1]


def _name_sizes(before: ir.Model, after: ir.Model) -> None:
    """Give names to sizes that are numbers, equal ones the same, and none that is there."""
    inputs = [*before.graph.inputs, *after.graph.inputs]
    told = " ".join(f"{value.shape} {value.metadata_props.get(ELEMENTS, '')}" for value in inputs)
    word = next(w for w in (f"size{'_' * n}" for n in itertools.count()) if w not in told)
    numbers = dict.fromkeys([*_numbers(before), *_numbers(after)])
    names: dict[object, str] = {d: f"{word}{n}" for n, d in enumerate(numbers)}
    for value in inputs:
        value.shape = value.shape and ir.Shape([names.get(d, d) for d in value.shape])


def _weights(side: ir.Model) -> dict[ir.Value, str]:
    """The constants that are lists of floating-point numbers, not all equal, and what tells these in text."""
    constants = {v: v.const_value for v in side.graph.initializers.values() if v.const_value is not None}
    return {
        v: f"{t.dtype} {list(t.shape)} {values_of(t, braces=True)}"
        for v, t in constants.items()
        if t.dtype.is_floating_point() and _is_varied(t)
    }


def _is_varied(tensor: ir.TensorProtocol) -> bool:
    """True if not all elements are equal, or they are many."""
    if tensor.size > _MANY:
        return True
    elements = tensor.numpy().reshape(-1)
    return bool((elements != elements[:1]).any())


def _give(side: ir.Model, names: Mapping[ir.Value, str]) -> None:
    """Make inputs of initializers, under names; of one name there is one."""
    graph = side.graph
    made: dict[str, ir.Value] = {}
    for value, name in names.items():
        if name not in made:
            made[name] = ir.Value(name=name, type=value.type, shape=value.shape)
            graph.inputs.append(made[name])
        value.replace_all_uses_with(made[name])
        graph.initializers.pop(value.name or "")
