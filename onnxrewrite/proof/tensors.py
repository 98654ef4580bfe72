"""Graphs as functions: a tensor is its sizes and a function from an index to an element, a node makes some of others.

An element of an integer tensor that depends on sizes and constants alone is *exact*: a number, or a term of the sort
Int.  Every other element is a term of the sort that the domain gives to its dtype.  Exact integers of 32 bits or more
are taken not to overflow where they are made of sizes, as ``ir.facts`` takes them; numbers wrap around.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import z3

from onnxrewrite.ir import schema
from onnxrewrite.ir.by_operator import ByOperator
from onnxrewrite.proof.domains import Domain
from onnxrewrite.proof.exact_integers import Element
from onnxrewrite.proof.index_terms import (
    Condition,
    Index,
    Integer,
    Term,
    Unprovable,
    all_numbers,
    chosen,
    conjunction,
    equal,
    negated,
    plain,
    same,
    within,
)

MAX_ELEMENTS = 64
"""A constant of more elements is a function that nothing is known of, where an index is no number."""

MAX_UNROLLED = 128
"""So many addends at most are written one by one."""


@dataclass(frozen=True)
class Tensor:
    """A tensor.

    Attributes:
        dtype: Its dtype.
        dims: Its sizes.
        at: The element at an index, which is taken to lie inside.
        array: All elements, of a constant; None else.
    """

    dtype: ir.DataType
    dims: tuple[Integer, ...]
    at: Callable[[Index], Element]
    array: npt.NDArray[Any] | None = field(default=None, compare=False)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)


@dataclass(frozen=True)
class Call:
    """A node with the tensors that it reads.

    Attributes:
        version: The opset version of the operator's domain.
        attributes: Plain values by name, of those that the node has.
        inputs: None for one that is absent.
        known: What is known of the results besides: dtype, and sizes, or None; a size that is not known is None.
    """

    domain: str
    op_type: str
    version: int
    attributes: Mapping[str, Any]
    inputs: tuple[Tensor | None, ...]
    known: tuple[tuple[ir.DataType | None, tuple[Integer | None, ...] | None], ...]

    def tensor(self, place: int = 0) -> Tensor:
        """An input that must be there."""
        found = self.optional(place)
        if found is None:
            raise Unprovable(f"{self.op_type} lacks its input {place}")
        return found

    def optional(self, place: int) -> Tensor | None:
        """An input, None where it is absent."""
        return self.inputs[place] if place < len(self.inputs) else None

    def attribute(self, name: str, default: Term = None) -> Term:
        """An attribute, else the schema's default, else ``default``."""
        if name in self.attributes:
            return self.attributes[name]
        found = schema.schema(self.domain, self.op_type, self.version)
        formal = found.attributes.get(name) if found is not None else None
        return default if formal is None or formal.default is None else formal.default

    def integers(self, name: str) -> list[Integer] | None:
        """A parameter that is a list of integers, an attribute or an input of that name; None where it is absent."""
        found = schema.schema(self.domain, self.op_type, self.version)
        place = schema.formal_index(found, name)
        if place is None:
            given = self.attribute(name)
            return None if given is None else [given] if isinstance(given, int) else list(given)
        tensor = self.optional(place)
        return None if tensor is None else exact_elements(tensor, f"{name} of {self.op_type}")

    def axis(self, rank: int, default: int = 0, name: str = "axis") -> int:
        """An axis, counted from the front."""
        return from_front(self.attribute(name, default), rank)


def from_front(axis: Term, rank: int) -> int:
    """An axis that may be counted from the back."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise Unprovable(f"the axis {axis} of {rank}")
    return axis % rank


def exact_elements(tensor: Tensor, what: str) -> list[Integer]:
    """All elements of a short tensor of rank 0 or 1, which must be exact."""
    if tensor.rank > 1 or not all_numbers(tensor.dims):
        raise Unprovable(f"the length of the {what} is not known")
    places = [(k,) for k in range(tensor.dims[0])] if tensor.rank else [()]
    found = [tensor.at(place) for place in places]
    if not all(map(is_exact, found)):
        raise Unprovable(f"the {what} is computed of data")
    return found


def is_exact(element: Element) -> bool:
    """True if an element is an exact integer, or a truth value that is known."""
    return isinstance(element, int) or (isinstance(element, z3.ExprRef) and z3.is_int(element))


Outputs: TypeAlias = Tensor | Sequence[Tensor | None]
Meaning: TypeAlias = "Callable[[Encoding, Call], Outputs]"
SEMANTICS = ByOperator[Meaning]()
"""(domain, operator) to what it computes."""

means = SEMANTICS.of


@dataclass(frozen=True)
class _Opaque:
    """A node that nothing is known of but that equal operands give equal results."""

    signature: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]


class Encoding:
    """Two graphs in one domain, and what is known when the first of them runs.

    Args:
        domain: What an element is.
        unrolled: True if sizes and indices are numbers, and sums are written out.

    Attributes:
        premises: Conditions that hold where the original runs.
        obligations: Conditions that must hold for the replacement to run, each with what it is of.
        is_replacement: True while the replacement is read.
        agree: Says whether two tensors are equal; set by who asks for a proof.
        holds: Says whether a condition holds wherever the original runs; likewise.
    """

    def __init__(self, domain: Domain, *, unrolled: bool = False):
        self.domain = domain
        self.unrolled = unrolled
        self.premises: list[Term] = []
        self.obligations: list[tuple[Term, str]] = []
        self.is_replacement = False
        self.agree: Callable[[Tensor, Tensor], bool] = lambda a, b: a is b
        self.holds: Callable[[Condition], bool] = lambda condition: condition is True
        self.digits: dict[int, tuple[Term, tuple[tuple[Integer, Integer], ...]]] = {}
        self.parts: dict[Term, tuple[Integer, Integer, Integer, Integer, Integer]] = {}
        self.unravelled: dict[Term, tuple[Integer, Index, tuple[Integer, ...]]] = {}
        self._path: list[Term] = []
        self._every: tuple[Term, ...] = ()
        self._opaque: list[_Opaque] = []
        self._divisors: list[Tensor] = []
        self._count = 0

    # -- conditions ------------------------------------------------------------------------------------------

    def require(self, condition: Condition, what: str) -> None:
        """A condition without which an operator does not run: known of the original, to be shown of the replacement."""
        condition = plain(condition)
        if condition is True:
            return
        if self._path:
            condition = z3.Implies(conjunction(self._path), self.term(condition))
        if not self.is_replacement:
            if condition is False:
                raise Unprovable(f"the original never runs: {what}")
            self.premises.append(z3.ForAll(list(self._every), condition) if self._every else condition)
        else:
            self.obligations.append((self.term(condition), what))

    def require_sizes(self, sizes: Sequence[Integer], what: str) -> None:
        """Sizes none of which may be zero: the kernel refuses what the standard does not."""
        for size in sizes:
            self.require(size > 0, what)

    def define(self, condition: Condition) -> None:
        """A fact about terms that were made up, true whatever they stand for."""
        condition = plain(condition)
        if condition is not True:
            self.premises.append(self.term(condition))

    def term(self, condition: Condition) -> Term:
        """A condition as a term of z3."""
        return z3.BoolVal(condition, self.domain.context) if isinstance(condition, bool) else condition

    @contextmanager
    def where(self, *conditions: Condition) -> Iterator[None]:
        """While elements are computed that count only where conditions hold."""
        added = [c for c in map(plain, conditions) if c is not True]
        self._path += [self.term(c) for c in added]
        yield
        if added:
            del self._path[-len(added) :]

    def everywhere(self, dims: Sequence[Integer], at: Callable[[Index], object]) -> None:
        """State what is needed at each index of some sizes, also where nothing reads."""
        index = tuple(self.symbol("j") for _ in dims)
        self._every = index
        with self.where(within(index, dims)):
            at(index)
        self._every = ()

    def choose(
        self, condition: Condition, yes: Callable[[], Element], no: Callable[[], Element], dtype: ir.DataType
    ) -> Element:
        """One of two elements of a dtype."""
        condition = plain(condition)
        if isinstance(condition, bool):
            return yes() if condition else no()
        with self.where(condition):
            first = yes()
        with self.where(negated(condition)):
            second = no()
        return self.either(condition, first, second, dtype)

    def either(self, condition: Condition, yes: Element, no: Element, dtype: ir.DataType) -> Element:
        """One of two elements that are known."""
        if dtype == ir.DataType.BOOL or (is_exact(yes) and is_exact(no)):
            return chosen(condition, yes, no)
        return chosen(condition, self.domain.lifted(yes, dtype), self.domain.lifted(no, dtype))

    def symbol(self, name: str) -> Term:
        """A new integer, of which nothing is known."""
        self._count += 1
        return z3.Int(f"{name}!{self._count}", self.domain.context)

    # -- tensors ---------------------------------------------------------------------------------------------

    def tensor(self, dtype: ir.DataType, dims: Sequence[Integer], at: Callable[[Index], Element]) -> Tensor:
        """A tensor that computes each element once."""
        known: dict[Term, tuple[Element, Term]] = {}

        def once(index: Index) -> Element:
            places = tuple(i if isinstance(i, int) else ("z", i.get_id()) for i in index)
            key = places, tuple(c.get_id() for c in self._path)
            if key not in known:  # terms are held beside, for z3 gives the number of one that is gone to another
                known[key] = at(index), (index, tuple(self._path))
            return known[key][0]

        return Tensor(dtype, tuple(map(plain, dims)), once)

    def constant(self, array: npt.NDArray[Any], dtype: ir.DataType) -> Tensor:
        """A constant."""
        array = np.asarray(array)
        if dtype == ir.DataType.STRING or dtype.is_floating_point() != (dtype not in _WHOLE):
            raise Unprovable(f"a constant of {dtype.name.lower()}")
        if array.size > MAX_ELEMENTS and dtype.is_floating_point() and not np.isfinite(array.astype(np.float64)).all():
            raise Unprovable("a constant of many elements, one of which is no number")
        lookup = _Constant(self, array, dtype)
        return Tensor(dtype, array.shape, lookup, array)

    def input(self, name: str, dtype: ir.DataType, dims: Sequence[Integer]) -> Tensor:
        """An input of a graph: any element at any index."""
        domain = self.domain
        return self.tensor(dtype, dims, lambda index: domain.application(f"input {name}", dtype, index))

    def opaque(self, call: Call) -> Sequence[Tensor]:
        """The results of a node of which nothing is known but that equal operands give equal results."""
        attributes = sorted((k, _told(v)) for k, v in call.attributes.items())
        signature = f"{call.domain} {call.op_type} {self._since(call)} {attributes} {len(call.known)}"
        for each in self._opaque:
            if each.signature == signature and self._agree(each.inputs, call.inputs):
                return each.outputs
        if self.is_replacement:  # what it requires is not known
            self.obligations.append((self.term(False), f"{call.op_type}, which the original has not got"))
        outputs = tuple(self._unknown(call, len(self._opaque), k) for k in range(len(call.known)))
        self._opaque.append(_Opaque(signature, call.inputs, outputs))
        return outputs

    def _since(self, call: Call) -> int:
        found = schema.schema(call.domain, call.op_type, call.version)
        return call.version if found is None else found.since_version

    def _agree(self, a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> bool:
        if len(a) != len(b) or any((x is None) != (y is None) for x, y in zip(a, b, strict=True)):
            return False
        return all(x is y or self.agree(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None)

    def _unknown(self, call: Call, number: int, place: int) -> Tensor:
        dtype, sizes = call.known[place]
        if dtype is None or sizes is None:
            raise Unprovable(f"{call.op_type} has no meaning here, and dtype and rank of its result are not known")
        name = f"{call.op_type} {number}.{place}"
        dims = [z3.Int(f"size {name}.{axis}", self.domain.context) if n is None else n for axis, n in enumerate(sizes)]
        for dim in dims:
            self.define(dim >= 0)
        return self.tensor(dtype, dims, lambda index: self.domain.application(name, dtype, index))

    def divides(self, divisor: Tensor) -> None:
        """A divisor of integers, by which a kernel that divides by zero ends the process: the replacement has none that
        the original has not, but for constants."""
        if divisor.array is not None and np.asarray(divisor.array).all():
            return
        if not self.is_replacement:
            self._divisors.append(divisor)
        elif not any(divisor is each or self.agree(divisor, each) for each in self._divisors):
            self.obligations.append((self.term(False), "a division by what may be zero"))

    # -- sizes -----------------------------------------------------------------------------------------------

    def joined(self, a: Integer, b: Integer) -> Integer:
        """The size to which two are broadcast."""
        if (isinstance(a, int) and a == 1) or same(a, b):
            return b
        if isinstance(b, int) and b == 1:
            return a
        if isinstance(a, int) and isinstance(b, int):
            raise Unprovable(f"sizes {a} and {b} are not broadcast")
        if isinstance(b, int):
            a, b = b, a
        self.require(z3.Or(equal(a, b), equal(b, 1), *([] if isinstance(a, int) else [equal(a, 1)])), "broadcasting")
        return a if isinstance(a, int) else plain(chosen(equal(a, 1), b, a))

    def broadcast(self, shapes: Sequence[Sequence[Integer]]) -> tuple[Integer, ...]:
        """The shape to which shapes are broadcast."""
        rank = max(map(len, shapes), default=0)
        dims: list[Integer] = [1] * rank
        for shape in shapes:
            for axis in range(1, len(shape) + 1):
                dims[-axis] = self.joined(dims[-axis], shape[-axis])
        return tuple(dims)

    def narrowed(self, index: Index, dims: Sequence[Integer], wide: Sequence[Integer]) -> Index:
        """The index into an operand of sizes ``dims`` for one into what it is broadcast to."""
        found: list[Integer] = []
        for axis in range(len(dims), 0, -1):
            place, size = index[-axis], dims[-axis]
            if isinstance(size, int) and size == 1:
                found.append(0)
            elif same(size, wide[-axis]) or isinstance(size, int):
                found.append(place)
            else:
                found.append(plain(chosen(equal(size, 1), 0, place)))
        return tuple(found)

    # -- sums and other folds --------------------------------------------------------------------------------

    def total(
        self, lengths: Sequence[Integer], body: Callable[[Index], Element], fold: str, dtype: ir.DataType
    ) -> Term:
        """Σ over all indices below ``lengths``, or another fold: ``max``, ``min``, ``product``."""
        known = {k: n for k, n in enumerate(lengths) if self.unrolled and isinstance(n, int)}
        if math.prod(known.values()) > MAX_UNROLLED:
            known = {}
        bound: dict[int, Term] = {k: self.symbol("k") for k in range(len(lengths)) if k not in known}
        parts = []
        for place in np.ndindex(*known.values()):
            at = {**bound, **dict(zip(known, map(int, place), strict=True))}
            with self.where(within(list(bound.values()), [lengths[k] for k in bound])):
                parts.append(self.domain.lifted(body(tuple(at[k] for k in range(len(lengths)))), dtype))
        inner = self.domain.folded(fold, parts, dtype) if known else parts[0]
        for k in reversed(list(bound)):
            inner = self.domain.fold(fold, bound[k], lengths[k], inner, dtype)
        return inner


_WHOLE = frozenset(d for d in ir.DataType if d.is_integer() or d == ir.DataType.BOOL)


def _told(value: Term) -> str:
    """An attribute as text; a tensor by its contents, anything else that is no plain value is refused."""
    if isinstance(value, int | float | str | tuple):
        return repr(value)
    if isinstance(value, ir.TensorProtocol):
        array = value.numpy()
        return f"{value.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    raise Unprovable("a node has a graph inside")


class _Constant:
    """The elements of a constant at any index."""

    def __init__(self, encoding: Encoding, array: npt.NDArray[Any], dtype: ir.DataType):
        self._encoding, self._array, self._dtype = encoding, array, dtype

    def __call__(self, index: Index) -> Element:
        array = self._array
        if all_numbers(index):
            return self._element(array[tuple(index)])
        if array.size and (_bits(array) == _bits(array.flat[0])).all():
            return self._element(array.flat[0])
        if self._dtype.is_integer() and (steps := _steps(array)) is not None:
            return plain(sum((i * s for i, s in zip(index, steps, strict=True)), int(array.flat[0])))
        if array.size > MAX_ELEMENTS:
            digest = hashlib.sha256(repr((array.dtype.str, array.shape)).encode() + array.tobytes()).hexdigest()[:12]
            return self._encoding.domain.application(f"constant {digest}", self._dtype, index)
        return self._looked_up(index)

    def _element(self, value: Term) -> Element:
        if self._dtype == ir.DataType.BOOL:
            return bool(value)
        return int(value) if self._dtype.is_integer() else self._encoding.domain.number(value, self._dtype)

    def _looked_up(self, index: Index) -> Element:
        places = list(np.ndindex(*self._array.shape))
        found = self._element(self._array[places[-1]])
        for place in reversed(places[:-1]):
            here = conjunction(equal(i, k) for i, k in zip(index, place, strict=True))
            found = self._encoding.either(here, self._element(self._array[place]), found, self._dtype)
        return found


def _bits(array: npt.NDArray[Any]) -> Term:
    array = np.atleast_1d(np.asarray(array))
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind not in "biu" else array


def _steps(array: npt.NDArray[Any]) -> list[int] | None:
    """The increments along each axis of integers that grow evenly along all; None where they do not."""
    if not array.size:
        return None
    wide = array.astype(object)
    first = wide.flat[0]
    units = [tuple(int(a == b) for b in range(array.ndim)) for a in range(array.ndim)]
    steps = [int(wide[u] - first) if array.shape[a] > 1 else 0 for a, u in enumerate(units)]
    grown = all(wide[p] == first + sum(i * s for i, s in zip(p, steps, strict=True)) for p in np.ndindex(*array.shape))
    return steps if grown else None
