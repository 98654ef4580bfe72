"""Two sides of a rewrite on the same random elements of the ring, and what their difference is worth."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.checks.site import Dims
from onnxrewrite.checks.site_inputs import concrete_elements, elements_of
from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.inputs.bindings import Binding, InputSpec, shape_of
from onnxrewrite.inputs.sample import CARE, Sampler, drawn
from onnxrewrite.ir import custom
from onnxrewrite.ruletest.modular import arithmetic as ring
from onnxrewrite.ruletest.modular.evaluate import NotApplicable, Ring, Run, Unlucky, Value
from onnxrewrite.ruletest.modular.ring_elements import INFINITE, Constants
from onnxrewrite.runtime.session import as_proto, one_line
from onnxrewrite.system.arrays import Array

_SIZES = ((2, 3, 5, 7, 4), (3, 7, 2, 5, 11))
"""Small sizes for symbolic dimensions, all different."""

DOUBT = "not applicable"

_SMALL = {"total": 0.5, "sign": 0.5, "rational": 1.0}
"""The share of small integers in the inputs, by the order of the run."""

_SHAPES: tuple[tuple[int, ...], ...] = ((2, 3, 5, 7), (2, 3, 5, 5), (2, 3, 5), (2, 3), (3,), ())
"""Shapes for all inputs of unknown rank."""

_CANDIDATES = 30
_PLACES = 2
_SPARE_RUNS = 24
"""Runs beyond those that are wanted, at the first sizes, until every element of the outputs was defined in one."""


@dataclass(frozen=True)
class RingCheck:
    """The result of comparing two models in the ring.

    Attributes:
        status: ``equal``, ``differs`` or ``not applicable``.
        reason: The output and the element that differ; or what cannot be carried over, or makes a difference worthless.
        runs: So many inputs were compared.
    """

    status: str
    reason: str = ""
    runs: int = 0


def check_ring(before: ir.Model, after: ir.Model, *, seed: int = 0, runs: int = 3, dims_hint: Dims = None) -> RingCheck:
    """Evaluate both models in the ring at ``runs`` random inputs and compare their outputs by name.

    Args:
        before: A small model.
        after: One of the same interface; it may have fewer inputs.
        seed: Of the random elements; the same seed gives the same result.
        runs: The number of inputs.
        dims_hint: Sizes known for symbolic dimensions, one mapping or several to try first.
    """
    with np.errstate(all="ignore"):
        try:
            return _Check(before, after, seed, dims_hint).check(runs)
        except (NotApplicable, UsageError, ModelError) as error:
            return RingCheck(DOUBT, str(error))


@dataclass(frozen=True)
class _Place:
    """A point of evaluation: sizes, the care that integers need, a shape for inputs of unknown rank."""

    binding: Binding
    care: int = 0
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Outcome:
    """Outputs by name, and what they rest on: see ``Run.loose`` and ``Constants``."""

    outputs: dict[str, Value]
    loose: set[int]
    symbols: set[int]
    sizes: set[float]
    has_compared: bool

    @property
    def orders_fractions(self) -> bool:
        """True if something was compared while fractions were in use, which only the rational order ranks."""
        return self.has_compared and any(size != round(size) for size in self.sizes if np.isfinite(size))


class _Check:
    def __init__(self, before: ir.Model, after: ir.Model, seed: int, hint: Dims) -> None:
        self.before, self.after = before, after
        self.seed = seed
        self.hints = [hint] if isinstance(hint, Mapping) else list(hint or [])
        self.proto = as_proto(before)
        self.sampler = Sampler(self.proto, seed=seed)
        self.elements = elements_of(before)
        self.constants = Constants()
        self.order = "total"
        self.originals: dict[tuple[int, int, str], _Outcome] = {}
        self.places: list[_Place] = []

    def check(self, runs: int) -> RingCheck:
        """In a total order of floats; where that leaves a doubt, in the two others.

        What is equal in the first or the second is equal by laws that the order of the reals has.  What differs in the
        third is a counterexample in fractions; as it looks at small integers only, it does not call anything equal.
        """
        problem = self._interface()
        if problem:
            return RingCheck("differs", problem)
        self._find_places()
        first = self._in_order("total", runs + _SPARE_RUNS, runs)
        if first.status != DOUBT:
            return first
        second = self._in_order("sign", runs + _SPARE_RUNS, runs)
        if second.status == "equal":
            return second
        third = self._in_order("rational", runs, runs)
        return third if third.status == "differs" else first

    def _interface(self) -> str:
        for kind in ("inputs", "outputs"):
            old, new = ([v.name for v in getattr(m.graph, kind)] for m in (self.before, self.after))
            if (kind == "outputs" and old != new) or not set(new) <= set(old):
                return f"the {kind} are {new}, were {old}"
        return ""

    def _in_order(self, order: str, limit: int, wanted: int) -> RingCheck:
        self.order = order
        done = 0
        seen: dict[tuple[str, int, tuple[int, ...]], Array] = {}  # a shape can depend on what is fed
        for number in range(limit):
            place = number % len(self.places) if number < wanted else 0
            if done >= wanted and all(v.all() for (_, where, _), v in seen.items() if where == 0):
                break
            try:
                old, new = self._original(place, number), self._rewritten(place, number)
            except Unlucky:
                continue
            done += 1
            if order == "total" and (old.orders_fractions or new.orders_fractions):
                return RingCheck(DOUBT, "a fraction was compared, which has no place in a total order", done)
            for name in old.outputs:
                found = _compare(name, old.outputs[name], new.outputs[name])
                if isinstance(found, str):
                    return replace(_judged(found, old, new, self.constants.precision), runs=done)
                key = name, place, found.shape
                seen[key] = seen.get(key, np.zeros(found.shape, np.bool_)) | found
        for value in self.before.graph.outputs:
            masks = [mask for (name, where, _), mask in seen.items() if name == value.name and where == 0]
            if not masks or not all(mask.all() for mask in masks):
                return RingCheck(DOUBT, f"output {value.name} has undefined elements at every input tried", done)
        return RingCheck("equal", runs=done)

    # -- evaluation ------------------------------------------------------------------------------------------

    def _original(self, place: int, number: int) -> _Outcome:
        """The original at the inputs of a run, which finding a place for it may have told already."""
        key = (place, number, self.order)
        if key not in self.originals:
            try:
                self.originals[key] = self._evaluated(self.before, self._feeds(self.places[place], number))
            except (NotApplicable, Unlucky):
                raise
            except Exception as error:  # see _rewritten
                raise NotApplicable(f"the original cannot be evaluated there: {one_line(error)}") from error
        return self.originals[key]

    def _rewritten(self, place: int, number: int) -> _Outcome:
        try:
            return self._evaluated(self.after, self._feeds(self.places[place], number))
        except (NotApplicable, Unlucky):
            raise
        except Exception as error:  # whatever numpy and the reference evaluator raise for shapes that do not fit
            raise NotApplicable(f"the replacement cannot be evaluated: {one_line(error)}") from error

    def _evaluated(self, model: ir.Model, feeds: Mapping[str, Value]) -> _Outcome:
        run = Run(self.constants, {**custom.functions(), **model.functions}, self.order)
        self.constants.symbols, self.constants.sizes = set(), set()
        found = [run.in_ring(v) for v in run.model(model, feeds)]
        names = [str(v.name) for v in model.graph.outputs]
        return _Outcome(
            dict(zip(names, found, strict=True)),
            run.loose,
            self.constants.symbols,
            self.constants.sizes,
            run.has_compared,
        )

    # -- inputs ----------------------------------------------------------------------------------------------

    def _find_places(self) -> None:
        """Up to two sizes at which the original can be evaluated."""
        reason = "no sizes to try"
        for binding, shape in self._sizes():
            known = [(p.binding, p.shape) for p in self.places]
            if len(known) == _PLACES or (known and not binding and not shape):
                return
            if (binding, shape) in known:
                continue
            reason = self._try(binding, shape)
        if not self.places:
            raise NotApplicable(f"no inputs found at which the original can be evaluated: {reason}")

    def _try(self, binding: Binding, shape: tuple[int, ...]) -> str:
        """Take these sizes as a place with the least care that they need, or say why not."""
        number = len(self.places)
        reason = ""
        for care in range(CARE - 1):
            place = _Place(binding, care, shape)
            try:
                self.originals[number, number, self.order] = self._evaluated(self.before, self._feeds(place, number))
            except Unlucky:
                pass
            except NotApplicable:
                raise
            except Exception as error:  # see _rewritten
                reason = one_line(error)
                continue
            self.places.append(place)
            return ""
        return reason

    def _sizes(self) -> Iterator[tuple[Binding, tuple[int, ...]]]:
        """Sizes, and shapes for inputs of unknown rank, worth trying."""
        if all(spec.dims is not None for spec in self.sampler.specs):
            return ((binding, ()) for binding in self._bindings())
        few = list(itertools.islice(self._bindings(), _PLACES))
        return ((binding, shape) for shape in _SHAPES for binding in few)

    def _bindings(self) -> Iterator[Binding]:
        names = self.sampler.symbols()
        yield from ({n: int(h[n]) for n in names} for h in self.hints if all(n in h for n in names))
        for hint in self.hints[:1]:
            known = {n: int(hint[n]) for n in names if n in hint}
            yield from Sampler(self.proto, dims=known, seed=self.seed).candidates(_CANDIDATES)
        for sizes in _SIZES:
            yield dict(zip(names, itertools.cycle(sizes), strict=False))
        yield from self.sampler.candidates(_CANDIDATES)

    def _feeds(self, place: _Place, number: int) -> dict[str, Value]:
        return {spec.name: self._value(spec, place, number) for spec in self.sampler.specs}

    def _value(self, spec: InputSpec, place: _Place, number: int) -> Value:
        if not spec.tensor:
            raise NotApplicable(f"input {spec.name} is no tensor")
        shape = place.shape if spec.dims is None else shape_of(spec, place.binding)
        if ir.DataType(spec.elem_type).is_floating_point():
            rng = drawn(spec.name, self.seed, number)
            dtype = ir.DataType(spec.elem_type)
            return Ring(ring.random(rng, shape, _SMALL[self.order]), dtype, dtype)
        concrete = concrete_elements(self.elements.get(spec.name), place.binding)
        if concrete is not None:
            return np.asarray(concrete, onnx.helper.tensor_dtype_to_np_dtype(spec.elem_type)).reshape(shape)
        shaped = replace(spec, dims=shape)
        return np.asarray(self.sampler.value(shaped, place.binding, number, place.care))


_PLAIN = {0.0, 0.5, 1.0, 2.0}
"""Constants that a replacement may bring along, or leave out."""


def _judged(difference: str, old: _Outcome, new: _Outcome, precision: float) -> RingCheck:
    """A difference counts only if it cannot come from what the ring does not know."""
    least = precision * max((s for s in old.sizes if np.isfinite(s)), default=0.0)
    if any(0 < s < least for s in old.sizes - new.sizes):
        return RingCheck(DOUBT, f"{difference}; but a constant is small enough to be lost beside another")
    if INFINITE in old.symbols | new.symbols:
        return RingCheck(DOUBT, f"{difference}; but a constant stands for infinity")
    if new.symbols and (old.sizes ^ new.sizes) - _PLAIN:  # 5 - 2.5 is 2.5, and came before
        return RingCheck(DOUBT, f"{difference}; but constants were computed, some from rounded ones")
    if old.symbols != new.symbols:
        return RingCheck(DOUBT, f"{difference}; but the two sides have different rounded constants")
    if old.loose != new.loose:
        doubt = "but functions without all their laws in the ring have different arguments"
        return RingCheck(DOUBT, f"{difference}; {doubt}")
    return RingCheck("differs", difference)


def _compare(name: str, old: Value, new: Value) -> Array | str:
    """The difference; else a mask of the elements that were compared."""
    old, new = _both_elements(old, new)
    if isinstance(old, Ring) != isinstance(new, Ring) or old is None or new is None:
        return f"output {name} is a float on one side only"
    a, b = (v.elements if isinstance(v, Ring) else v for v in (old, new))
    if a.shape != b.shape:
        shapes = f"output {name} has shape {list(b.shape)}, had {list(a.shape)}"
        raise NotApplicable(f"{shapes}: that is for a runtime to tell")
    defined = ~(ring.is_undefined(a) | ring.is_undefined(b)) if isinstance(old, Ring) else np.ones(a.shape, np.bool_)
    wrong = np.argwhere(defined & (a != b))
    if len(wrong):
        return f"output {name} differs at {wrong[0].tolist()}"
    return defined


def _both_elements(old: Value, new: Value) -> tuple[Value, Value]:
    """An integer that was not rounded is an element of the ring; so is then what it is compared with."""
    both = (old, new)
    if sum(isinstance(v, Ring) for v in both) != 1:
        return both
    a, b = (Ring(ring.integers(v)) if isinstance(v, np.ndarray) and v.dtype.kind in "iu" else v for v in both)
    return a, b
