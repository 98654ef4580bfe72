"""Counterexamples: inputs at which two graphs differ when they are run, and nothing less.

What makes a claim false in a domain is a hint only, for a domain may know less of an operator than a kernel does: its
sizes, and the elements that it gives to inputs, are tried first, then special values at small sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
import z3

from onnxrewrite import io
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.inputs.sample import Sampler
from onnxrewrite.ir import schema
from onnxrewrite.proof.index_terms import Term
from onnxrewrite.proof.tensors import Tensor
from onnxrewrite.reference.judgement import Judge
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.system.arrays import Array, Feeds, Held, Outputs

Confirm: TypeAlias = Callable[[Feeds], str | None]
"""Says in which way inputs, at which two graphs seem to differ, refute the claim; None where they do not."""

MAX_SIZE = 64
"""Larger sizes of a model of the solver are not run."""

_SIZES = ((2, 3, 5, 7), (1, 2, 3, 4), (3, 1, 2, 1), (2, 2, 2, 2), (0, 2, 3, 1))

_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 1e10, -7.0)
"""Of which products do not overflow: beside what is infinite, nobody could tell."""

_WHOLE = (0, 1, -1, 2, 7, 127, -128, 2**31 - 1, -(2**31), 2**62)

_ROUNDS = 3


@dataclass(frozen=True)
class Guess:
    """Sizes by name, and elements of inputs by index, at which two graphs may differ."""

    sizes: Mapping[str, int | None]
    elements: Mapping[str, Mapping[tuple[int, ...], Term]]


@dataclass(frozen=True)
class Refutation:
    """Inputs at which two graphs differ.

    Attributes:
        reason: The difference.
        feeds: The inputs.
    """

    reason: str
    feeds: Outputs = field(repr=False)


def size_in(model: Term, size: Term) -> int | None:
    """The number that a name stands for in a model of the solver."""
    found = model.eval(size, model_completion=True)
    return int(found.as_long()) if z3.is_int_value(found) else None


def elements_in(model: Term, inputs: Mapping[str, Tensor]) -> dict[str, dict[tuple[int, ...], Term]]:
    """The elements that a model of the solver gives to inputs whose elements are numbers, bits or truth values."""
    found: dict[str, dict[tuple[int, ...], Term]] = {}
    for declared in model.decls():
        name = declared.name()
        if name.startswith("input ") and name[6:] in inputs:
            places = found.setdefault(name[6:], {})
            interpretation = model[declared]
            if not declared.arity():
                places[()] = _value(interpretation)
                continue
            for k in range(interpretation.num_entries()):
                entry = interpretation.entry(k)
                index = [entry.arg_value(j) for j in range(entry.num_args())]
                if all(map(z3.is_int_value, index)):
                    places[tuple(i.as_long() for i in index)] = _value(entry.value())
            places[-1,] = _value(interpretation.else_value())
    return found


def _value(term: Term) -> Term:
    if z3.is_true(term) or z3.is_false(term):
        return z3.is_true(term)
    if z3.is_bv_value(term):
        return term.as_signed_long()
    if z3.is_fp_value(term):
        bits = z3.simplify(z3.fpToIEEEBV(term, term.ctx))
        size = {16: np.float16, 32: np.float32, 64: np.float64}.get(term.sbits() + term.ebits())
        if size is None or not z3.is_bv_value(bits):
            return None
        return np.array(bits.as_long(), f"u{np.dtype(size).itemsize}").view(size)[()]
    if z3.is_rational_value(term):
        return float(term.as_fraction())
    return None


def search(
    before: ir.Model, after: ir.Model, guesses: Sequence[Guess], confirm: Confirm | None = None
) -> Refutation | None:
    """Run both graphs at inputs that may tell them apart; None where none does."""
    try:
        protos = [io.to_proto(schema.raised_to_date(m)) for m in (before, after)]
    except OnnxRewriteError:
        return None
    old, new = (open_session(p, threads=1) for p in protos)
    if not isinstance(old, Session):
        return None
    judge = Judge(protos[0], old)
    for feeds in _feeds(protos[0], guesses):
        found = judge.difference(new, feeds)
        found = confirm(feeds) if found and confirm is not None else found
        if found:
            return Refutation(found, feeds)
    return None


def _feeds(model: onnx.ModelProto, guesses: Sequence[Guess]) -> Iterator[Outputs]:
    """Inputs, the likeliest first."""
    sampler = Sampler(model, seed=0)
    names = list(sampler.symbols())
    hinted = [{n: s if (s := g.sizes.get(n)) is not None else 1 for n in names} for g in guesses]
    usual = [dict(zip(names, itertools.cycle(s), strict=False)) for s in _SIZES] if names else [{}]
    for guess, binding in zip(guesses, hinted, strict=True):
        if all(0 <= s <= MAX_SIZE for s in binding.values()):
            for plain in _samples(sampler, binding, 1):
                yield {n: _patched(np.asarray(v), guess.elements.get(n, {})) for n, v in plain.items()}
    bindings = [b for b in (*hinted, *usual) if all(s <= MAX_SIZE for s in b.values())]
    unique = [dict(t) for t in dict.fromkeys(tuple(b.items()) for b in bindings)]
    for binding in unique:
        numbers = itertools.count()
        for plain in _samples(sampler, binding, _ROUNDS):
            yield plain
            for number in itertools.islice(numbers, 2 * _ROUNDS):  # at every other, inputs of one size are equal
                yield {n: _special(np.asarray(v), number, k * (number % 2)) for k, (n, v) in enumerate(plain.items())}
    for binding in unique:
        for plain in _samples(sampler, binding, 1):
            yield from (_opposite(plain, number) for number in range(2 * _ROUNDS))


def _samples(sampler: Sampler, binding: Mapping[str, int], count: int) -> Iterable[Outputs]:
    for number in range(count):
        try:
            yield sampler.feeds(dict(binding), number, 0)
        except (OnnxRewriteError, ValueError):
            return


def _patched(array: Array, elements: Mapping[tuple[int, ...], Term]) -> Held:
    """An array with the elements that a model of the solver gives it."""
    made = np.array(array)
    with np.errstate(all="ignore"):
        rest = elements.get((-1,)) if made.ndim != 1 or (-1,) in elements else None
        if rest is not None:
            made[...] = _fitted(rest, made.dtype)
        for place, value in elements.items():
            inside = len(place) == made.ndim and all(0 <= i < n for i, n in zip(place, made.shape, strict=True))
            if inside and value is not None:
                made[place] = _fitted(value, made.dtype)
    return made


def _fitted(value: Term, dtype: Term) -> Term:
    if np.dtype(dtype).kind in "iu":
        return np.array(int(value)).astype(dtype)
    return np.array(value).astype(dtype)


def _special(array: Array, number: int, place: int) -> Held:
    """An array of special values, others in each round and for each input."""
    array = np.asarray(array)
    with np.errstate(all="ignore"):
        if array.dtype == np.bool_:
            return np.array(np.random.default_rng([number, place, array.size]).random(array.shape) < 0.5)
        values = np.array(_WHOLE, np.int64) if array.dtype.kind in "iu" else np.array(_SPECIAL)
        return np.array(_drawn(values, array.size, number, place)).reshape(array.shape).astype(array.dtype)


def _opposite(plain: Outputs, number: int) -> Outputs:
    """Special values, some inputs the negatives of others of the same size: sums of them are zero, of some sign.

    Bits of the number say which; of any two of three inputs, one is turned in four rounds of six.
    """
    special = {n: np.asarray(_special(np.asarray(v), number, 0)) for n, v in plain.items()}
    turned = [(number + 1) >> k % 3 & 1 and v.dtype.kind not in "bu" for k, v in enumerate(special.values())]
    return {n: np.asarray(-v) if t else v for t, (n, v) in zip(turned, special.items(), strict=True)}


def _drawn(values: Array, size: int, number: int, place: int) -> Array:
    """Some of these values; of a few, all of them before one comes again, round after round."""
    if size >= len(values):
        return np.asarray(np.random.default_rng([number, place, size]).choice(values, size))
    cycles = -(-(number + 1) * size // len(values))
    turns = np.random.default_rng([place, size]).permuted(np.tile(values, (cycles, 1)), axis=1)
    return np.asarray(turns.ravel()[number * size : (number + 1) * size])
