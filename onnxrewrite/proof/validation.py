"""Translation validation: a proof that a graph computes what another does, a counterexample, or neither."""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import ml_dtypes  # noqa: F401  (dtypes of numpy)
import numpy as np
import onnx_ir as ir
import z3
from onnx_ir.passes.common import RemoveUnusedNodesPass

from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.proof import refutation
from onnxrewrite.proof.deciding import SECONDS, Decider
from onnxrewrite.proof.definedness import undefined
from onnxrewrite.proof.domains import Domain, Reals, Uninterpreted
from onnxrewrite.proof.encoding import Reader
from onnxrewrite.proof.ieee_numbers import Bitwise
from onnxrewrite.proof.index_terms import Integer, Term, Unprovable, equal, negated, plain, within
from onnxrewrite.proof.not_a_number import chooses, elements, is_nan, reads_alike
from onnxrewrite.proof.refutation import Refutation
from onnxrewrite.proof.tensors import Encoding, Tensor
from onnxrewrite.reference.tolerance import TOLERANCES, Tolerance

MAX_ENUMERATED = 256
"""So many elements at most are compared one by one, where all sizes are numbers."""

_GENERAL = 4.0
"""Seconds in one domain for all indices at once, before they are taken one by one."""

BITWISE, IN_VALUE, WITHIN_BOUND = "to the bit", "but for signs of zeros", "over the reals, rounding bounded"
"""The strengths of a proof."""


@dataclass(frozen=True)
class Proof:
    """Two graphs compute the same.

    Attributes:
        domain: The domain in which that was shown: ``uninterpreted``, ``bitwise`` or ``reals``.
        strength: ``BITWISE``, ``IN_VALUE`` or ``WITHIN_BOUND``.  The last says nothing of results that overflow, of
            infinities and of NaN.
        sizes: The names of sizes for which it holds, whatever they are.
        goals: What was shown, each a script of SMT-LIB that has no model.
        seconds: The time it took.
    """

    domain: str
    strength: str
    sizes: tuple[str, ...]
    goals: tuple[str, ...] = field(repr=False)
    seconds: float = field(default=0.0, compare=False)

    @property
    def text(self) -> str:
        """All goals as one script of SMT-LIB."""
        return "".join(f"; goal {n}\n{goal}\n(reset)\n" for n, goal in enumerate(self.goals, 1))

    @property
    def digest(self) -> str:
        """SHA-256 of the script."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Unknown:
    """Neither a proof nor a counterexample was found, and why."""

    reason: str
    seconds: float = field(default=0.0, compare=False)


Outcome: TypeAlias = Proof | Refutation | Unknown


def prove(
    before: ir.Model,
    after: ir.Model,
    *,
    not_empty: bool = False,
    seconds: float = SECONDS,
    refute: bool = True,
    confirm: refutation.Confirm | None = None,
) -> Outcome:
    """Prove that ``after`` computes what ``before`` does, or find inputs at which it does not.

    Args:
        before: The original; sizes may be names.
        after: The replacement; its inputs are some of the original's, by name, its outputs as many.
        not_empty: True if no size is taken to be zero.
        seconds: The time for the proof; running a counterexample comes on top.
        refute: True to look for a counterexample, and to run it.
        confirm: Asked besides of each difference that is found: one who knows what is assumed of inputs.
    """
    start = time.process_time()
    before, after = with_facts(before), with_facts(after)
    reasons: list[str] = []
    models: list[refutation.Guess] = []
    for make, unrolled in _attempts(before):
        left = seconds - (time.process_time() - start)
        if left <= 0:
            reasons.append(f"no proof was found within {seconds:g} s")
            break
        share = left if unrolled else min(left, _GENERAL)
        attempt = _Attempt(make(), before, after, not_empty=not_empty, unrolled=unrolled, seconds=share)
        reason = attempt.run()
        if not reason:
            return attempt.proof(time.process_time() - start)
        reasons.append(f"{attempt.name}: {reason}")
        models += attempt.guess()
    if refute:
        found = refutation.search(before, after, models, confirm)
        if found is not None:
            return found
    return Unknown("; ".join(dict.fromkeys(reasons)), time.process_time() - start)


def _attempts(before: ir.Model) -> Iterator[tuple[Callable[[], Domain], bool]]:
    """The domains in their order, for all indices, then with the elements along axes of known size one by one."""
    unit = _tolerance(before).unit
    made: list[Callable[[], Domain]] = [
        Uninterpreted,
        lambda: Bitwise(arithmetic=False),
        lambda: Reals(unit),
        lambda: Bitwise(arithmetic=True),
    ]
    yield from ((domain, False) for domain in made[:3])
    yield from ((domain, True) for domain in made)


class _Attempt:
    """Both graphs in one domain."""

    def __init__(
        self, domain: Domain, before: ir.Model, after: ir.Model, *, not_empty: bool, unrolled: bool, seconds: float
    ):
        self.name = domain.name
        self.encoding = Encoding(domain, unrolled=unrolled)
        self.decider = Decider(self.encoding, seconds, _tolerance(before))
        self.reader = Reader(self.encoding, not_empty=not_empty)
        self.decider.sizes = self.reader.sizes
        self.encoding.agree = self._agree
        self.encoding.holds = self.decider.valid
        self._before, self._after = before, after

    def run(self) -> str:
        """The reason why there is no proof; empty where there is one."""
        try:
            old = self.reader.read(self._before)
            if not self.decider.consistent():
                return "the original runs at no sizes"
            self.encoding.is_replacement = True
            new = self.reader.read(self._after)
            if len(old) != len(new):
                return "another number of outputs"
            return next(filter(None, map(self._differs, old, new)), "") or self._fails()
        except Unprovable as error:
            return str(error)
        except z3.Z3Exception as error:  # terms of sorts that do not go together: a dtype that a meaning does not cover
            return f"z3 refuses a term: {error}"

    def proof(self, seconds: float) -> Proof:
        """The proof that was found."""
        decider = self.decider
        is_real = isinstance(self.encoding.domain, Reals)
        strength = WITHIN_BOUND if is_real else IN_VALUE if decider.zeros else BITWISE
        return Proof(self.name, strength, tuple(self.reader.sizes), tuple(dict.fromkeys(decider.goals)), seconds)

    def guess(self) -> list[refutation.Guess]:
        """The sizes, and the elements of inputs, at which the last claim was seen to be false."""
        model = self.decider.model
        if model is None:
            return []
        sizes = {n: refutation.size_in(model, s) for n, s in self.reader.sizes.items()}
        return [refutation.Guess(sizes, refutation.elements_in(model, self.reader.inputs))]

    def _differs(self, old: Tensor, new: Tensor) -> str:
        if old.dtype != new.dtype or old.rank != new.rank:
            return "another dtype, or another rank"
        for a, b in zip(old.dims, new.dims, strict=True):
            if not self.decider.valid(equal(a, b)):
                return "another size"
        places = self._places(old)
        return next(filter(None, (self._differs_at(old, new, p) for p in places)), "")

    def _places(self, tensor: Tensor) -> Sequence[tuple[Integer, ...]]:
        """Term index; along axes whose sizes are numbers, each of them one by one if sums are written out."""
        numbers = [d for d in tensor.dims if isinstance(d, int)]
        one_by_one = self.encoding.unrolled and math.prod(numbers) <= MAX_ENUMERATED
        symbols = [self.encoding.symbol("i") for _ in tensor.dims]
        each = [
            range(d) if one_by_one and isinstance(d, int) else (s,) for d, s in zip(tensor.dims, symbols, strict=True)
        ]
        return list(itertools.product(*each))

    def _differs_at(self, old: Tensor, new: Tensor, place: tuple[Integer, ...]) -> str:
        inside = plain(within(place, old.dims))
        if inside is False:
            return ""
        premises = [] if inside is True else [inside]
        self.encoding.is_replacement = False
        with self.encoding.where(*premises):
            a = old.at(place)
        self.encoding.is_replacement = True
        with self.encoding.where(*premises):
            b = new.at(place)
        if isinstance(self.encoding.domain, Reals) and old.dtype.is_floating_point():
            first, second = (self.encoding.domain.lifted(t, old.dtype) for t in (a, b))
            return self._differs_in_reals(first, second, premises)
        return "" if self.decider.equal(a, b, old.dtype, premises) else "an element is not shown to be equal"

    def _differs_in_reals(self, a: Term, b: Term, premises: Sequence[Term]) -> str:
        """The same of real terms: they must be equal, defined alike, and NaN alike where that is told apart."""
        domain = self.encoding.domain
        assert isinstance(domain, Reals)
        within_numbers = list(premises)
        if a.eq(b):
            pass
        elif domain.compares or chooses(a) or chooses(b):
            old, new = is_nan(a), is_nan(b)
            is_alike = self.decider.valid(equal(old, new), premises)
            has_sums = elements(a)[2] and not domain.compares
            if not is_alike and not (has_sums and elements(a) == elements(b)):
                return "one is NaN where the other is not"
            if old is True:
                return ""
            within_numbers += [self.encoding.term(plain(negated(old)))] if is_alike else []
        elif not reads_alike(a, b) and not self.decider.valid(equal(is_nan(a), is_nan(b)), premises):
            return "one is NaN where the other is not"
        if not self.decider.equal_reals(a, b, within_numbers):
            return self.decider.refusal or "an element is not shown to be equal"
        return undefined(self.decider, a, b, premises)

    def _fails(self) -> str:
        """A requirement of the replacement that the original does not provide; empty if there is none."""
        for condition, what in self.encoding.obligations:
            if not self.decider.valid(condition):
                return f"the replacement may not run: {what}"
        return ""

    def _agree(self, a: Tensor, b: Tensor) -> bool:
        """True if two tensors are shown to be equal, at any index."""
        if a.dtype != b.dtype or a.rank != b.rank:
            return False
        if not all(self.decider.valid(equal(x, y)) for x, y in zip(a.dims, b.dims, strict=True)):
            return False
        if a.array is not None and b.array is not None:
            return a.array.shape == b.array.shape and a.array.tobytes() == b.array.tobytes()
        place = tuple(self.encoding.symbol("i") for _ in a.dims)
        inside = plain(within(place, a.dims))
        stated, replaced = len(self.encoding.obligations), self.encoding.is_replacement
        self.encoding.is_replacement = True  # what elements need is stated where a node is read
        with self.encoding.where(inside):
            x, y = a.at(place), b.at(place)
        del self.encoding.obligations[stated:]
        self.encoding.is_replacement = replaced
        if isinstance(self.encoding.domain, Reals) and a.dtype.is_floating_point():
            return bool(self.encoding.domain.lifted(x, a.dtype).eq(self.encoding.domain.lifted(y, a.dtype)))
        strict = self.decider.zeros
        same = self.decider.equal(x, y, a.dtype, [self.encoding.term(inside)])
        if self.decider.zeros and not strict:  # an operator may tell zeros apart
            self.decider.zeros = False
            return False
        return same


def with_facts(model: ir.Model) -> ir.Model:
    """A copy of which dtypes and ranks are known, without nodes that nothing uses: these may run or not."""
    copy = model.clone()
    RemoveUnusedNodesPass()(copy)
    schema.date(copy)
    for node in copy.graph.all_nodes():
        for output in node.outputs:
            output.shape = None
    Facts(copy.graph, copy.opset_imports)
    return copy


def _tolerance(model: ir.Model) -> Tolerance:
    """Of the dtype of the outputs that holds most digits: the strictest."""
    rows = [TOLERANCES.get(v.dtype.numpy()) for v in model.graph.outputs if v.dtype is not None]
    known = [r for r in rows if r is not None]
    return min(known, key=lambda r: r.unit, default=TOLERANCES[np.dtype(np.float32)])


__all__ = ["BITWISE", "IN_VALUE", "WITHIN_BOUND", "Outcome", "Proof", "Refutation", "Unknown", "prove"]
