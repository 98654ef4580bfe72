"""The table of semantics against ONNX Runtime: terms are evaluated at random points, and compared with results.

A term is evaluated for all elements of an output at once, by numpy; what is compared is the encoding itself, index
maps, clamps, sums and functions, and not what an algebra makes of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
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
from onnxrewrite.proof.polynomials import applied, subterms
from onnxrewrite.proof.tensors import Encoding, Tensor
from onnxrewrite.runtime.session import open_session

Values = npt.NDArray[Any]

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
    return any(z3.is_app(t) and _is_open_zero(t.decl().name()) for t in terms)


def _is_open_zero(name: str) -> bool:
    return " of zeros" in name or name.startswith("WhereTrue")


_JOINS = {"sum over": np.add, "product over": np.multiply, "max over": np.maximum, "min over": np.minimum}
"""Folds to functions of two."""

_SECONDS = 60.0
"""For what the reading of a graph asks the solver."""

_SMALL_ROUNDS = 40
"""Rounds of small sizes, at which indices meet the ends of axes most often, before larger ones."""

_AT_ONCE = 2**20
"""So many summands are evaluated at once."""

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


# -- terms as arrays -------------------------------------------------------------------------------------------------


def evaluate(term: Term, feeds: Mapping[str, Values], names: Mapping[str, Values]) -> Values:
    """A term for many values of its variables at once.

    Args:
        term: The term, or a Python number.
        feeds: The inputs.
        names: The values of variables, which are broadcast.
    """
    if isinstance(term, bool | int):
        return np.asarray(term)
    return _Evaluation(feeds, names).of(term)


class _Evaluation:
    def __init__(self, feeds: Mapping[str, Values], names: Mapping[str, Values]):
        self._feeds, self._names = feeds, names
        self._known: dict[int, Values] = {}

    def of(self, term: Term) -> Values:
        key = term.get_id()
        if key not in self._known:
            self._known[key] = self._of(term)
        return self._known[key]

    def _of(self, term: Term) -> Values:
        if z3.is_int_value(term):
            return np.asarray(term.as_long())
        if z3.is_rational_value(term):
            return np.asarray(float(term.as_fraction()))
        if z3.is_bv_value(term):
            return np.asarray(term.as_signed_long(), f"i{max(term.size() // 8, 1)}")
        if z3.is_fp(term) and z3.is_fp_value(term):
            return _float_of(term)
        name, parts = term.decl().name(), term.children()
        if not parts and name in self._names:
            return self._names[name]
        if name.startswith("input "):
            return self._element(self._feeds[name[6:]], [self.of(p) for p in parts])
        if name.endswith(" over"):
            return self._folded(name, *parts)
        if term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            return self._function(name, term)
        return self._operation(term, parts)

    def _element(self, array: Values, index: Sequence[Values]) -> Values:
        if array.dtype.kind == "u":  # bits are signed here
            array = array.view(f"i{array.itemsize}")
        if not index:
            return np.asarray(array)
        inside = tuple(np.clip(i, 0, max(n - 1, 0)) for i, n in zip(index, array.shape, strict=True))
        return np.asarray(array[inside])

    def _folded(self, name: str, function: Term, length: Term) -> Values:
        join = _JOINS[name]
        count = int(np.max(self.of(length)))
        variable = z3.Int(f"at!{len(self._names)}", term_context(function))
        body = applied(function, variable)
        shape = np.broadcast_shapes(*(v.shape for v in self._names.values()))
        step = max(_AT_ONCE // max(math.prod(shape), 1), 1)
        result: Values | None = None
        for start in range(0, count, step):
            places = np.arange(start, min(start + step, count)).reshape(-1, *(1 for _ in shape))  # an axis of its own
            made = _Evaluation(self._feeds, {**self._names, variable.decl().name(): places}).of(body)
            if made.ndim <= len(shape):  # the same at all places
                made = np.broadcast_to(made, (len(places), *made.shape))
            folded = np.asarray(join.reduce(made, axis=0, dtype=made.dtype))
            result = folded if result is None else join(result, folded)
        return np.asarray(float(join.identity or 0)) if result is None else result

    def _function(self, name: str, term: Term) -> Values:
        parts = [self.of(p) for p in term.children()]
        if name in _FUNCTIONS:
            return np.asarray(_FUNCTIONS[name](*parts))
        if name.startswith("integer of ") or name.endswith(" of integer") or _is_open_zero(name):
            return parts[0]
        if not parts:  # a number, told by its name
            return np.asarray(float(name.split(" ")[1]))
        raise Unprovable(f"{name} is not evaluated")

    def _operation(self, term: Term, parts: Sequence[Term]) -> Values:
        kind = term.decl().kind()
        if kind == z3.Z3_OP_ITE:
            return np.where(self.of(parts[0]), self.of(parts[1]), self.of(parts[2]))
        if kind in (z3.Z3_OP_TO_REAL,):
            return self.of(parts[0]).astype(np.float64)
        if kind == z3.Z3_OP_FPA_TO_FP:
            return self.of(parts[-1]).astype(_FLOATS[term.sort().ebits(), term.sort().sbits()])
        if kind == z3.Z3_OP_FPA_ROUND_TO_INTEGRAL:
            modes = {z3.Z3_OP_FPA_RM_TOWARD_NEGATIVE: np.floor, z3.Z3_OP_FPA_RM_TOWARD_POSITIVE: np.ceil}
            return np.asarray(modes.get(parts[0].decl().kind(), np.rint)(self.of(parts[1])))
        if kind == z3.Z3_OP_FPA_TO_FP_UNSIGNED:
            return _unsigned(self.of(parts[-1])).astype(_FLOATS[term.sort().ebits(), term.sort().sbits()])
        if kind in (z3.Z3_OP_EXTRACT, z3.Z3_OP_SIGN_EXT, z3.Z3_OP_ZERO_EXT):
            bits = self.of(parts[0])
            return (_unsigned(bits) if kind == z3.Z3_OP_ZERO_EXT else bits).astype(f"i{max(term.size() // 8, 1)}")
        given = [self.of(p) for p in parts if not z3.is_fprm(p)]
        if kind in _VARIADIC:
            result = given[0]
            for each in given[1:]:
                result = _VARIADIC[kind](result, each)
            return np.asarray(result)
        found = _OPERATIONS.get(kind)
        if found is None:
            raise Unprovable(f"{term.decl().name()} is not evaluated")
        return np.asarray(found(*given))


def term_context(term: Term) -> Term:
    """The context of a term."""
    return term.ctx


def _unsigned(bits: Values) -> Values:
    return bits.view(f"u{bits.itemsize}")


_FLOATS = {(5, 11): np.float16, (8, 8): ml_dtypes.bfloat16, (8, 24): np.float32, (11, 53): np.float64}


def _float_of(term: Term) -> Values:
    dtype = np.dtype(_FLOATS[term.ebits(), term.sbits()])
    bits = z3.simplify(z3.fpToIEEEBV(term, term.ctx)) if not term.isNaN() else None
    if bits is None:
        return np.asarray(np.nan, dtype)
    return np.array(bits.as_long(), f"u{dtype.itemsize}").view(dtype)


_erf = np.vectorize(math.erf, otypes=[float])

_FUNCTIONS: dict[str, Callable[..., Term]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "quotient": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
}

_VARIADIC: dict[int, Callable[..., Term]] = {
    z3.Z3_OP_ADD: np.add,
    z3.Z3_OP_SUB: np.subtract,
    z3.Z3_OP_MUL: np.multiply,
    z3.Z3_OP_AND: np.logical_and,
    z3.Z3_OP_OR: np.logical_or,
    z3.Z3_OP_XOR: np.logical_xor,
    z3.Z3_OP_BADD: np.add,
    z3.Z3_OP_BMUL: np.multiply,
    z3.Z3_OP_BAND: np.bitwise_and,
    z3.Z3_OP_BOR: np.bitwise_or,
    z3.Z3_OP_BXOR: np.bitwise_xor,
}

_OPERATIONS: dict[int, Callable[..., Term]] = {
    z3.Z3_OP_UMINUS: np.negative,
    z3.Z3_OP_DIV: np.divide,
    z3.Z3_OP_IDIV: lambda a, b: a // b,
    z3.Z3_OP_MOD: lambda a, b: a % b,
    z3.Z3_OP_LE: np.less_equal,
    z3.Z3_OP_LT: np.less,
    z3.Z3_OP_GE: np.greater_equal,
    z3.Z3_OP_GT: np.greater,
    z3.Z3_OP_EQ: lambda a, b: (a == b) | ((a != a) & (b != b)),
    z3.Z3_OP_DISTINCT: np.not_equal,
    z3.Z3_OP_NOT: np.logical_not,
    z3.Z3_OP_IMPLIES: lambda a, b: ~a | b,
    z3.Z3_OP_TRUE: lambda: True,
    z3.Z3_OP_FALSE: lambda: False,
    z3.Z3_OP_FPA_ADD: np.add,
    z3.Z3_OP_FPA_SUB: np.subtract,
    z3.Z3_OP_FPA_MUL: np.multiply,
    z3.Z3_OP_FPA_DIV: np.divide,
    z3.Z3_OP_FPA_NEG: np.negative,
    z3.Z3_OP_FPA_ABS: np.abs,
    z3.Z3_OP_FPA_EQ: np.equal,
    z3.Z3_OP_FPA_LT: np.less,
    z3.Z3_OP_FPA_LE: np.less_equal,
    z3.Z3_OP_FPA_GT: np.greater,
    z3.Z3_OP_FPA_GE: np.greater_equal,
    z3.Z3_OP_FPA_IS_NAN: np.isnan,
    z3.Z3_OP_FPA_IS_ZERO: lambda a: a == 0,
    z3.Z3_OP_FPA_IS_NEGATIVE: lambda a: np.signbit(a) & ~np.isnan(a),
    z3.Z3_OP_BSUB: np.subtract,
    z3.Z3_OP_BNEG: np.negative,
    z3.Z3_OP_BNOT: np.invert,
    z3.Z3_OP_ULT: lambda a, b: _unsigned(a) < _unsigned(b),
    z3.Z3_OP_ULEQ: lambda a, b: _unsigned(a) <= _unsigned(b),
    z3.Z3_OP_UGT: lambda a, b: _unsigned(a) > _unsigned(b),
    z3.Z3_OP_UGEQ: lambda a, b: _unsigned(a) >= _unsigned(b),
    z3.Z3_OP_SLT: np.less,
    z3.Z3_OP_SLEQ: np.less_equal,
    z3.Z3_OP_SGT: np.greater,
    z3.Z3_OP_SGEQ: np.greater_equal,
}
