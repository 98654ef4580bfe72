"""The table of semantics against ONNX Runtime: terms are evaluated at random points, and compared with results.

What is compared is the encoding itself, index maps, clamps, sums and functions, and not what an algebra makes of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import z3

from onnxrewrite import io
from onnxrewrite.errors import ModelError
from onnxrewrite.ir import text
from onnxrewrite.proof.deciding import Decider
from onnxrewrite.proof.domains import Domain, Reals
from onnxrewrite.proof.encoding import Reader
from onnxrewrite.proof.ieee_numbers import Bitwise
from onnxrewrite.proof.index_terms import Term, Unprovable, within
from onnxrewrite.proof.polynomials import subterms
from onnxrewrite.proof.tensors import Encoding, Tensor
from onnxrewrite.proof.term_values import Values, evaluate, is_open_zero
from onnxrewrite.runtime.session import open_session

DOMAINS: Mapping[str, Callable[[], Domain]] = {
    "uninterpreted": Domain,
    "bitwise": lambda: Bitwise(arithmetic=True),
    "reals": Reals,
}


@dataclass(frozen=True)
class Agreement:
    """The result of a comparison.

    Attributes:
        points: The number of elements that were compared.
        differs: The first difference; empty where there is none.
    """

    points: int
    differs: str = ""


def agreement(graph: str, domain: str, points: int, *, opset: int = 22, seed: int = 0) -> Agreement:
    """Compare the encoding of a graph in a domain with ONNX Runtime on so many elements, at random sizes and inputs.

    Raises:
        ModelError: ONNX Runtime does not run the graph.
        Unprovable: The graph has no meaning in the domain.
    """
    model = text.parse(graph, opset=opset)
    proto = io.to_proto(model)
    session = open_session(proto, threads=1)
    if isinstance(session, str):
        raise ModelError(session)
    rng = np.random.default_rng(seed)
    encoding = Encoding(DOMAINS[domain]())
    encoding.holds = Decider(encoding, _SECONDS).valid
    reader = Reader(encoding)
    outputs = reader.read(model)
    places = [tuple(z3.Int(f"i{k}", encoding.domain.context) for k in range(o.rank)) for o in outputs]
    elements = []
    for output, place in zip(outputs, places, strict=True):
        with encoding.where(within(place, output.dims)):
            elements.append(output.at(place))
    signs = not any(map(_leaves_zeros_open, elements))
    compared = 0
    for number in itertools.count():
        largest = 7 if number < _SMALL_ROUNDS else 24
        sizes = {n: int(rng.integers(1, largest) if number else 3) for n in reader.sizes}
        feeds = feeds_of(model, sizes, rng, special=() if domain == "reals" else SPECIAL)
        made = session.run(feeds)
        if isinstance(made, str):
            raise ModelError(made)
        for output, element, wanted in zip(outputs, elements, made.values(), strict=True):
            found = _values(output, element, np.asarray(wanted).shape, feeds, sizes)
            problem = (
                _difference_of_reals(found, np.asarray(wanted))
                if domain == "reals"
                else difference(found, np.asarray(wanted), signs=signs)
            )
            compared += np.asarray(wanted).size
            if problem:
                return Agreement(compared, f"{problem}, at sizes {sizes}")
        if compared >= points:
            return Agreement(compared)
    raise AssertionError


def _leaves_zeros_open(element: Term) -> bool:
    """True if an element may be a zero of either sign, as a kernel chooses."""
    terms = () if isinstance(element, bool | int) else subterms(element)
    return any(z3.is_app(t) and is_open_zero(t.decl().name()) for t in terms)


_SECONDS = 60.0
"""For what the reading of a graph asks the solver."""

_SMALL_ROUNDS = 40
"""Rounds of small sizes, at which indices meet the ends of axes most often, before larger ones."""

_GRID = 4096
"""Inputs that are not special are odd multiples of one over this: their sums are not rounded, and none is zero."""

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, np.nan, np.inf, -np.inf, 1e-40, 3e38, 7.0])


def feeds_of(
    model: ir.Model, sizes: Mapping[str, int], rng: np.random.Generator, *, special: Sequence[float] | Values = ()
) -> dict[str, Values]:
    """Inputs at certain sizes; half of the elements are special numbers, where there are some, or integers of the ends
    of their dtype.  The name of an input says what else it is: ``index`` from 0 to 2, ``positive``."""
    found: dict[str, Values] = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        shape = tuple(d if isinstance(d, int) else sizes[str(d.value)] for d in value.shape)
        dtype = value.dtype
        if dtype == ir.DataType.BOOL:
            array: Values = np.asarray(rng.random(shape) < 0.5)
        elif dtype.is_integer():
            low = -100 if dtype.is_signed() else 0
            array = rng.integers(low, 100, shape)
            if str(value.name).startswith("index"):
                array = array % 3  # within any axis of three
            elif len(special):
                array = np.where(rng.random(shape) < 0.5, rng.choice(_extremes(dtype.numpy()), shape), array)
        else:
            array = rng.standard_normal(shape) * 3
            array = np.abs(array) + 0.1 if str(value.name).startswith("positive") else array
            if len(special):
                array = np.where(rng.random(shape) < 0.5, rng.choice(np.asarray(special), shape), array)
            else:
                array = (2 * np.floor(array * _GRID / 2) + 1) / _GRID
        with np.errstate(all="ignore"):
            found[str(value.name)] = array.astype(dtype.numpy())
    return found


def _extremes(dtype: np.dtype[Any]) -> Values:
    """The largest and smallest integers of a dtype, and what floats do not tell from their neighbours."""
    ends = np.iinfo(dtype)
    found = {ends.min, ends.min + 1, ends.max - 1, ends.max, 2**24 + 1, 2**53 + 1}
    return np.array([n for n in sorted(found) if ends.min <= n <= ends.max], dtype)


def difference(found: Values, wanted: Values, *, signs: bool) -> str:
    """The first element in which two arrays differ to the bit, but for what kind of NaN it is, and, without ``signs``,
    for the signs of zeros; empty where there is none."""
    with np.errstate(all="ignore"):
        found = found.astype(wanted.dtype)
        if wanted.dtype.kind in "biu":
            return _first(found != wanted, found, wanted)
        wrong = ~((found == wanted) | (np.isnan(found) & np.isnan(wanted)))
        return _first(wrong | (signs & (wanted == 0) & (np.signbit(found) != np.signbit(wanted))), found, wanted)


def _difference_of_reals(found: Values, wanted: Values) -> str:
    wide = wanted.astype(np.float64)
    scale = np.maximum(np.abs(wide), np.max(np.abs(wide), initial=1.0) * 1e-2)
    with np.errstate(all="ignore"):
        return _first(~(np.abs(found - wide) <= 2e-4 * scale), found, wanted)


def _first(wrong: Values, found: Values, wanted: Values) -> str:
    if not wrong.any():
        return ""
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{found[where]} at {list(where)}, ONNX Runtime has {wanted[where]}"


def _values(
    output: Tensor, element: Term, shape: tuple[int, ...], feeds: Mapping[str, Values], sizes: Mapping[str, int]
) -> Values:
    """All elements of an output."""
    grid = np.indices(shape) if shape else np.zeros((0,), np.int64)
    names = {f"i{k}": grid[k] for k in range(len(shape))}
    names.update({f"size {n}": np.asarray(s) for n, s in sizes.items()})
    told = tuple(int(evaluate(d, feeds, names)) for d in output.dims)
    if told != shape:
        raise Unprovable(f"the shape {list(told)}, ONNX Runtime has {list(shape)}")
    with np.errstate(all="ignore"):
        return np.broadcast_to(evaluate(element, feeds, names), shape)
