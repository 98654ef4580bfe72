"""Two sides of a rewrite on the same random elements of the ring, and what their difference is worth."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.verify.dims import Binding, InputSpec, shape_of
from onnxrewrite.verify.ring import arithmetic as ring
from onnxrewrite.verify.ring.constants import Constants
from onnxrewrite.verify.ring.evaluate import NotApplicable, Ring, Run, Unlucky, Value, is_float
from onnxrewrite.verify.sample import CARE, Sampler
from onnxrewrite.verify.session import as_proto, one_line
from onnxrewrite.verify.site import Dims, concrete_elements, elements_of

_SIZES = ((3, 5, 7, 2, 11), (2, 3, 5, 7, 4))
"""Small sizes for symbolic dimensions, all different."""

ORDERS = ("total", "sign")
"""Ways to order a ring; what is equal in one of them is equal by laws that the order of the reals has."""

_CANDIDATES = 30
_BINDINGS = 2
_SPARE_RUNS = 6
"""Runs that may meet an undefined element, or leave an output undefined, beyond those that are wanted."""


@dataclass(frozen=True)
class RingCheck:
    """What two models are to each other in the ring.

    Attributes:
        status: ``equal``, ``differs`` or ``not applicable``.
        reason: Which element of which output differs; or what cannot be carried over, or makes a difference worthless.
        runs: So many inputs were compared.
    """

    status: str
    reason: str = ""
    runs: int = 0


def check_ring(
    before: ir.Model, after: ir.Model, *, seed: int = 0, runs: int = 3, dims_hint: Dims = None
) -> RingCheck:
    """Evaluate both models in the ring at ``runs`` random inputs and compare their outputs by name.

    Args:
        before: A small model.
        after: One of the same interface; it may have fewer inputs.
        seed: Of the random elements; the same seed gives the same result.
        runs: How many inputs.
        dims_hint: Sizes known for symbolic dimensions, one mapping or several to try first.
    """
    with np.errstate(all="ignore"):
        try:
            check = _Check(before, after, seed, dims_hint)
            results = (check.run(runs, order) for order in ORDERS)
            first = next(results)
            return first if first.status != "not applicable" else next((r for r in results if r.status == "equal"), first)
        except (NotApplicable, UsageError, ModelError) as error:
            return RingCheck("not applicable", str(error))


class _Side:
    """One model, and what of it is the same in every run."""

    def __init__(self, model: ir.Model, constants: Constants) -> None:
        self.model = model
        self.constants = constants
        self.order = ORDERS[0]
        self.loose: set[int] = set()
        self.symbols: set[int] = set()
        self._run = Run(constants)

    def outputs(self, feeds: Mapping[str, Value]) -> dict[str, Value]:
        self._run.order, self._run.loose, self.constants.symbols = self.order, set(), set()
        found = self._run.model(self.model, feeds)
        for value, computed in zip(self.model.graph.outputs, found, strict=True):
            if not isinstance(computed, Ring) and computed is not None and is_float(computed):
                found[self.model.graph.outputs.index(value)] = Ring(self.constants.carry(computed))
        self.loose, self.symbols = self._run.loose, self.constants.symbols
        return {str(v.name): f for v, f in zip(self.model.graph.outputs, found, strict=True)}


class _Check:
    def __init__(self, before: ir.Model, after: ir.Model, seed: int, hint: Dims) -> None:
        constants = Constants()
        self.before, self.after = _Side(before, constants), _Side(after, constants)
        self.seed = seed
        self.hints = [hint] if isinstance(hint, Mapping) else list(hint or [])
        self.proto = as_proto(before)
        self.sampler = Sampler(self.proto, seed=seed)
        self.elements = elements_of(before)

    def run(self, wanted: int, order: str) -> RingCheck:
        """Compare at so many inputs, floats being ordered in one of the two ways."""
        self.before.order = self.after.order = order
        for kind in ("inputs", "outputs"):
            old, new = ([v.name for v in getattr(s.model.graph, kind)] for s in (self.before, self.after))
            if (kind == "outputs" and old != new) or not set(new) <= set(old):
                return RingCheck("differs", f"the {kind} are {new}, were {old}")
        bindings = self._bindings()
        done, compared = 0, dict.fromkeys((str(v.name) for v in self.before.model.graph.outputs), False)
        for number in range(wanted + _SPARE_RUNS):
            if done >= wanted and all(compared.values()):
                break
            binding, care = bindings[number % len(bindings)]
            feeds = self._feeds(binding, care, number)
            try:
                old, new = self.before.outputs(feeds), self._rewritten(feeds)
            except Unlucky:
                continue
            done += 1
            for name in old:
                found = _compare(name, old[name], new[name])
                if isinstance(found, str):
                    return replace(self._judge(found), runs=done)
                compared[name] |= found
        missing = [name for name, seen in compared.items() if not seen]
        if missing:
            return RingCheck("not applicable", f"output {missing[0]} is undefined at every input tried", done)
        return RingCheck("equal", runs=done)

    def _rewritten(self, feeds: Mapping[str, Value]) -> dict[str, Value]:
        try:
            return self.after.outputs(feeds)
        except (NotApplicable, Unlucky):
            raise
        except Exception as error:  # whatever numpy and the reference evaluator raise for shapes that do not fit
            raise NotApplicable(f"the replacement cannot be evaluated: {one_line(error)}") from error

    def _judge(self, difference: str) -> RingCheck:
        """A difference counts only if it cannot come from what the ring does not know."""
        if self.before.symbols != self.after.symbols:
            return RingCheck("not applicable", f"{difference}; but the two sides have different rounded constants")
        if self.before.loose != self.after.loose:
            doubt = "but functions without all their laws in the ring have different arguments"
            return RingCheck("not applicable", f"{difference}; {doubt}")
        return RingCheck("differs", difference)

    # -- inputs ----------------------------------------------------------------------------------------------

    def _bindings(self) -> list[tuple[Binding, int]]:
        """Up to two bindings at which the original can be evaluated, with the care that its integers need."""
        found: list[tuple[Binding, int]] = []
        reason = "no sizes to try"
        for binding in self._candidates():
            if any(binding == b for b, _ in found):
                continue
            for care in range(CARE - 1):
                try:
                    self.before.outputs(self._feeds(binding, care, 0))
                except Unlucky:
                    pass
                except NotApplicable:
                    raise
                except Exception as error:  # see _rewritten
                    reason = one_line(error)
                    continue
                found.append((binding, care))
                break
            if len(found) == _BINDINGS or (found and not binding):
                return found
        if not found:
            raise NotApplicable(f"no inputs found at which the original can be evaluated: {reason}")
        return found

    def _candidates(self) -> Iterator[Binding]:
        names = self.sampler.symbols()
        yield from ({n: int(h[n]) for n in names} for h in self.hints if all(n in h for n in names))
        for hint in self.hints[:1]:
            known = {n: int(hint[n]) for n in names if n in hint}
            yield from Sampler(self.proto, dims=known, seed=self.seed).candidates(_CANDIDATES)
        for sizes in _SIZES:
            yield dict(zip(names, itertools.cycle(sizes)))
        yield from self.sampler.candidates(_CANDIDATES)

    def _feeds(self, binding: Binding, care: int, number: int) -> dict[str, Value]:
        return {spec.name: self._value(spec, binding, care, number) for spec in self.sampler.specs}

    def _value(self, spec: InputSpec, binding: Binding, care: int, number: int) -> Value:
        if not spec.tensor:
            raise NotApplicable(f"input {spec.name} is no tensor")
        dtype = ir.DataType(spec.elem_type)
        shape = shape_of(spec, binding)
        if dtype.is_floating_point():
            rng = np.random.default_rng([self.seed, number, zlib.crc32(spec.name.encode())])
            return Ring(ring.random(rng, shape))
        concrete = concrete_elements(self.elements.get(spec.name), binding)
        if concrete is not None:
            return np.asarray(concrete, onnx.helper.tensor_dtype_to_np_dtype(spec.elem_type)).reshape(shape)
        return np.asarray(self.sampler.value(spec, binding, number, care))


def _compare(name: str, old: Value, new: Value) -> bool | str:
    """What differs; else whether any element was compared."""
    if isinstance(old, Ring) != isinstance(new, Ring) or old is None or new is None:
        return f"output {name} is a float on one side only"
    a, b = (v.elements if isinstance(v, Ring) else v for v in (old, new))
    if a.shape != b.shape:
        return f"output {name} has shape {list(b.shape)}, had {list(a.shape)}"
    defined = ~(ring.is_undefined(a) | ring.is_undefined(b)) if isinstance(old, Ring) else np.ones(a.shape, np.bool_)
    wrong = np.argwhere(defined & (a != b))
    if len(wrong):
        return f"output {name} differs at {wrong[0].tolist()}"
    return bool(defined.any()) or not a.size
