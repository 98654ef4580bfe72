"""Dimensions: arithmetic on sizes, some of which are symbols, and what can be proved about them.

A size is an int or an ``onnx_ir.SymbolicDim``: a name, an expression in names, or unknown (its value is
None). Every name stands for some number that is not negative; it may be zero, and two names may stand for one
number.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

import onnx_ir as ir
import sympy  # type: ignore[import-untyped]

Dim: TypeAlias = int | ir.SymbolicDim

UNKNOWN = ir.SymbolicDim(None)
"""An element of a shape tensor about which nothing is known; it may be negative."""

_ANONYMOUS = frozenset({"", "?", "-1", "*", "None", "none", "unk", "unknown", "Unknown"})
"""Names that exporters give to every dimension they do not know, so that equal names mean nothing."""

_LONGEST = 300
"""Characters of an expression that is worth parsing: it is then nested no deeper than Python recurses.  Powers are not
parsed at all: no shape needs them, and a few digits of them take forever."""

FAR: Final = 10**9
"""Exporters write this, or more, for the end of an axis: TensorFlow's 10⁹, others the largest integer."""

Bound = TypeVar("Bound")

MAX_RANK: Final = 64
"""Axes; numpy has no array of more."""


def plain(dim: Dim) -> Dim:
    """A symbolic dimension that is a number after all, such as the expression ``6``, as that number."""
    if isinstance(dim, ir.SymbolicDim):
        number = dim.value is not None and dim.value.lstrip("-").isdigit()
        return int(dim.value) if number and dim.value is not None else dim
    return int(dim)


def declared(dim: Dim) -> Dim:
    """A dimension as a file declares it: unknown where its name says so; a name may be any text."""
    dim = plain(dim)
    if isinstance(dim, int):
        return dim if dim >= 0 else UNKNOWN
    if dim.value is None or dim.value in _ANONYMOUS:
        return UNKNOWN
    try:
        if "**" in dim.value or len(dim.value) > _LONGEST:
            raise ValueError
        dim._expr  # noqa: B018  (parses the name)
    except (ValueError, ArithmeticError, TypeError):
        dim = ir.SymbolicDim(dim.value)
        dim._expr_cache = sympy.Symbol(dim.value, integer=True, positive=True)
    return dim


def is_known(dim: Dim) -> bool:
    """True if ``dim`` is a number, a name or an expression."""
    return isinstance(dim, int) or dim.value is not None


def is_size(dim: Dim) -> bool:
    """True if ``dim`` is certainly not negative; an expression is if what it takes away is part of what it has."""
    if isinstance(dim, int):
        return dim >= 0
    return dim.value is not None and ("-" not in dim.value or _is_no_debt(dim._expr))


@functools.lru_cache(maxsize=1 << 14)
def _is_no_debt(expression: sympy.Expr) -> bool:
    """True of a sum in which each term that is taken away is shown to be no more than one that is there, as in
    ``Min(16, s) - Min(8, s)``, the size of a slice; the last may be no more than all that is left."""
    terms = expression.as_coefficients_dict()
    there = {term: count for term, count in terms.items() if count > 0}
    if not all("-" not in str(term) or (isinstance(term, sympy.floor) and _is_no_debt(*term.args)) for term in there):
        return False
    taken = [(term, -count) for term, count in terms.items() if count < 0]
    for number, (term, count) in enumerate(taken, 1):
        larger = next((t for t, n in there.items() if n >= count and _is_at_most(term, t)), None)
        if larger is None:
            left = sympy.Add(*(t * n / count for t, n in there.items()))
            return number == len(taken) and _is_at_most(term, left)
        there[larger] -= count
    return True


def _is_at_most(a: sympy.Expr, b: sympy.Expr) -> bool:
    """True if a size is shown to be no larger than another, whatever the names in them stand for."""
    if a.is_Symbol and a.name.startswith(_ONE_OF):
        return all((y.is_Integer and y >= 1) or a.name == _name_of_one(y) for y in _compared(b))
    return all(any("-" not in str(y - x) for x in _compared(a)) for y in _compared(b))


def names_in(dim: ir.SymbolicDim) -> frozenset[str]:
    """The names in a dimension; none where it is unknown."""
    return _names_in(dim._expr)


@functools.lru_cache(maxsize=1 << 14)
def _names_in(expression: sympy.Expr | None) -> frozenset[str]:
    """The same of an expression; sympy takes long to spell a name."""
    return ir.SymbolicDim(expression).free_symbols()


def at_least(dim: Dim) -> int:
    """A lower bound of a size: what it is where all names are zero, for without a minus it only grows."""
    if isinstance(dim, int):
        return dim
    return 0 if dim.value is None or "-" in dim.value else size_where(dim, 0) or 0


@functools.lru_cache(maxsize=1 << 14)
def size_where(dim: ir.SymbolicDim, number: int) -> int | None:
    """A size where every name in it stands for ``number``; None if it is unknown, or none there."""
    try:
        size = dim.evaluate(dict.fromkeys(names_in(dim), number))
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return size if isinstance(size, int) else None


def slice_end(end: Bound, step: int | None) -> Bound | int:
    """The end of a Slice as ONNX Runtime takes it: backwards, the largest integers are the front, as the smallest are,
    where the standard clamps them to the other end, and nothing is left."""
    is_largest = isinstance(end, int) and end in (2**31 - 1, 2**63 - 1)
    return -(2**63) + 1 if is_largest and step is not None and step < 0 else end


def sliced_places(places: range, start: int, end: int, step: int) -> range:
    """The places that a Slice takes of some: a start in front of them is the first, backwards, too, unlike Python's."""
    return places[max(start, -len(places)) : slice_end(end, step) : step]


def same_dim(a: Dim, b: Dim) -> bool:
    """True if two dimensions are provably equal."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    if a.value is None or b.value is None:
        return False
    if a.value == b.value:
        return True
    if names_in(a) != names_in(b):
        return False
    return _same_expression(_expression(a), _expression(b))


@functools.lru_cache(maxsize=1 << 16)
def _same_expression(a: object, b: object) -> bool:
    """The same of expressions; to simplify one takes long, and the same are asked for again and again."""
    difference = ir.SymbolicDim(a) - ir.SymbolicDim(b)
    if isinstance(difference, int) or difference.value == "0":
        return difference == 0 or str(difference) == "0"
    is_polynomial = "(" not in str(difference) or difference._expr.is_polynomial()  # type: ignore[union-attr]
    if is_polynomial:
        return str(sympy.expand(difference._expr)) == "0"
    return not _is_seen_to_differ(difference) and difference.simplify().value == "0"


_TRIED = (2, 1_009, 1_000_003)
"""The first name is tried as each of these, the next one as one more, ...: small, and beyond what sizes are cut to."""


def _is_seen_to_differ(difference: ir.SymbolicDim) -> bool:
    """True if a difference is not 0 at some sizes."""
    names = sorted(names_in(difference))
    try:
        return any(
            difference.evaluate({name: first + number for number, name in enumerate(names)}) != 0 for first in _TRIED
        )
    except (TypeError, ValueError, ZeroDivisionError):
        return False


def same_shape(a: Sequence[Dim] | None, b: Sequence[Dim] | None) -> bool:
    """True if two shapes are known and provably equal."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(same_dim(x, y) for x, y in zip(a, b, strict=True))


def product(dims: Iterable[Dim]) -> Dim:
    """The number of elements of a shape."""
    numbers, symbols = 1, list[ir.SymbolicDim]()
    for dim in dims:
        if isinstance(dim, int):
            numbers *= dim
        else:
            symbols.append(dim)
    return _product(numbers, *symbols) if symbols and numbers else numbers


@functools.lru_cache(maxsize=1 << 14)
def _product(number: int, *symbols: ir.SymbolicDim) -> Dim:
    """Shapes of a model have the same symbols again and again."""
    result: Dim = number
    for each in symbols:
        result = result * each
    return plain(result)


def quotient(dividend: Dim, divisor: Dim) -> Dim:
    """``dividend / divisor`` where that is known to leave no remainder, as in ``Reshape`` with -1."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor
    if not is_known(dividend) or not is_known(divisor):
        return UNKNOWN
    return _ratio(_expression(dividend), _expression(divisor))


@functools.lru_cache(maxsize=1 << 14)
def _ratio(dividend: sympy.Expr, divisor: sympy.Expr) -> Dim:
    """The same of expressions, see ``_product``."""
    ratio = sympy.cancel(dividend / divisor)
    whole = all(c.is_integer for c in ratio.as_coefficients_dict().values())
    if ratio.is_polynomial() and whole:
        return plain(ir.SymbolicDim(ratio))
    return plain(ir.SymbolicDim(sympy.floor(ratio)))


def is_zero_with(size: Dim, other: Dim) -> bool:
    """True if a size is shown to be zero where another one is: what may be zero in the other is a factor of it."""
    return is_known(size) and is_known(other) and _is_zero_with(_expression(size), _expression(other))


@functools.lru_cache(maxsize=1 << 14)
def _is_zero_with(size: sympy.Expr, other: sympy.Expr) -> bool:
    """The same of expressions, see ``_product``."""
    factors = (factor for factor in sympy.Mul.make_args(other) if not factor.is_number)
    return all(sympy.cancel(size / factor).is_polynomial() for factor in factors)


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two sizes; unknown unless it can be told or written down."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if same_dim(a, b):
        return a
    if not is_size(a) or not is_size(b):
        return UNKNOWN
    for number, other in ((a, b), (b, a)):
        if isinstance(number, int) and at_least(other) >= number:
            return number
        if isinstance(number, int) and "-" in str(other) and is_size(plain(number - other)):
            return other
        if isinstance(number, int) and "-" in str(other):
            return _shorter(_expression(other), number)
        if number == 1:
            return ir.SymbolicDim(_name_of_one(_expression(other)))
    return UNKNOWN if "-" in f"{a}{b}" else _minimum(a, b)


@functools.lru_cache(maxsize=1 << 14)
def _shorter(piece: sympy.Expr, number: int) -> Dim:
    """The first ``number`` elements of a piece of an axis, ``Min(e, s) - Min(b, s)``, as a piece of the axis, too."""
    before = next((-t for t in sympy.Add.make_args(piece) if t.could_extract_minus_sign()), sympy.Integer(0))
    behind = piece + before
    whole, end = _uncut_axis(behind)
    start = _uncut_axis(before)[1] if isinstance(before, sympy.Min) else 1
    if start is None or (before != sympy.Min(start, whole) if start > 1 else str(before) != _name_of_one(whole)):
        return UNKNOWN
    shorter = start + number if end is None else min(start + number, end)
    return plain(minimum(plain(ir.SymbolicDim(whole)), shorter) - ir.SymbolicDim(before))


def _uncut_axis(size: sympy.Expr) -> tuple[sympy.Expr, int | None]:
    """The axis that is cut at a number in ``Min(c, s)``, and the number; the size itself where it is none."""
    numbers = [int(each) for each in size.args if each.is_Integer] if isinstance(size, sympy.Min) else []
    return (sympy.Min(*(e for e in size.args if not e.is_Integer)), numbers[0]) if numbers else (size, None)


@functools.lru_cache(maxsize=1 << 14)
def _minimum(a: Dim, b: Dim) -> Dim:
    """The same of two of which either may be the smaller, written down."""
    given = {*_compared(_expression(a)), *_compared(_expression(b))}
    smaller = sympy.Min(*given)
    kept = {*_compared(smaller)}
    # sympy takes names for positive; what it leaves out for that may be the smaller one where a name is zero.
    is_shown = kept <= given and all(any(_is_at_most(k, g) for k in kept) for g in given - kept)
    return plain(ir.SymbolicDim(smaller)) if is_shown else UNKNOWN


def _compared(size: sympy.Expr) -> tuple[sympy.Expr, ...]:
    """The sizes of which one is the smallest; itself where it is none of these."""
    return tuple(size.args) if isinstance(size, sympy.Min) else (size,)


_ONE_OF = "_d_of_"
"""One element of so many, or none of none, for which sympy has no term: a name, the same for the same size."""


def _name_of_one(size: sympy.Expr) -> str:
    text = str(_uncut_axis(size)[0])
    if text.isidentifier():
        return _ONE_OF + text
    return "_".join([_ONE_OF.rstrip("_"), *re.findall(r"\w+", text)[:6], hashlib.sha256(text.encode()).hexdigest()[:8]])


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of two sizes; unknown unless it can be told."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if same_dim(a, b):
        return a
    for number, other in ((a, b), (b, a)):
        if isinstance(number, int) and is_size(other) and at_least(other) >= number:
            return other
        if number == 0:
            return _excess(other)
    return UNKNOWN


def _excess(difference: Dim) -> Dim:
    """``Max(0, c - s)`` of a number and a size, as ``c - Min(c, s)``; unknown for others."""
    number = int(_expression(difference).as_coeff_Add()[0]) if is_known(difference) else 0
    return number - minimum(number, plain(number - difference)) if number > 0 else UNKNOWN


def broadcast(shapes: Sequence[Sequence[Dim]]) -> list[Dim]:
    """The shape that broadcasting results in; unknown where different symbols meet, each of which may be 1."""
    shapes = [_opened(shape, shapes) for shape in shapes]
    rank = max((len(s) for s in shapes), default=0)
    dims: list[Dim] = []
    for axis in range(1, rank + 1):
        met: list[Dim] = []
        for shape in shapes:
            if axis <= len(shape) and shape[-axis] != 1 and not any(same_dim(shape[-axis], m) for m in met):
                met.append(shape[-axis])
        numbers = [d for d in met if isinstance(d, int)]
        if numbers:
            dims.append(numbers[0])
        elif len(met) <= 1:
            dims.append(met[0] if met else 1)
        else:
            dims.append(_dominant(met))
    return dims[::-1]


def _dominant(met: Sequence[Dim]) -> Dim:
    """The one symbol that all others give way to.

    ``a`` where it meets ``Min(c, a)``: neither is 1 unless both are.  A size that is at least two is never 1, so what
    meets it is equal or 1.
    """
    for dim in met:
        if at_least(dim) >= 2 or all(_is_smaller(o, dim) for o in met if o is not dim):
            return dim
    return UNKNOWN


def is_cut_to(dim: Dim, length: Dim) -> bool:
    """True if ``dim`` is ``Min(c, length)``, as of a table of two rows or more that is cut to a length: equal to it
    wherever they are broadcast against each other, for it is 1 only where the length is."""
    return _is_smaller(dim, length) and any(each.is_Integer and each > 1 for each in _expression(dim).args)


def is_one_of(dim: Dim) -> bool:
    """True for ``Min(1, s)``: it is 1 where nothing is empty."""
    return str(dim).startswith(_ONE_OF)


def between(size: Dim, start: Dim, end: Dim) -> Dim:
    """The number of elements from ``start`` to ``end`` of an axis; unknown unless they are shown to be in order."""
    if isinstance(start, int) and isinstance(end, int) and end < 0 <= start and end > -FAR:
        lost = minimum(size, start - end)
        return size - lost if is_known(lost) else UNKNOWN
    first, last = _place(size, start), _place(size, end)
    count = plain(last - first) if is_known(last) and is_known(first) else UNKNOWN
    return count if is_size(count) else UNKNOWN


def _place(size: Dim, bound: Dim) -> Dim:
    """The place of a bound, which is counted from the end if it is negative, and may lie beyond either end."""
    if not isinstance(bound, int):
        return minimum(size, bound)
    if abs(bound) >= FAR:
        return size if bound > 0 else 0
    return minimum(size, bound) if bound >= 0 else size - minimum(size, -bound)


def is_window_to(dims: Sequence[Dim], wanted: Sequence[Dim]) -> bool:
    """True if the last two sizes are those of a table of two columns or more, cut to ``e`` columns and to rows that end
    where they do, and ``[s, e]`` is wanted: they are that wherever one is broadcast against the other."""
    return len(dims) > 1 and len(wanted) > 1 and same_shape(_opened(dims, [wanted])[-2:], wanted[-2:])


def _opened(shape: Sequence[Dim], others: Sequence[Sequence[Dim]]) -> Sequence[Dim]:
    """A shape as it is beside others: where ``Min(c, e)`` columns meet ``e``, and c is not 1, e is no more than c, and
    so is no smaller size; rows that are cut at c are all there then."""
    end = next((o[-1] for o in others if len(o) and len(shape) > 1 and is_cut_to(shape[-1], o[-1])), None)
    if end is None or isinstance(shape[-2], int) or not is_known(shape[-2]):
        return shape
    return [*shape[:-2], _uncut(shape[-2], shape[-1], end), end]


def _uncut(rows: ir.SymbolicDim, columns: Dim, end: Dim) -> Dim:
    """``rows`` where ``columns``, which is ``Min(c, end)``, is ``end``."""
    (table,) = (each for each in _expression(columns).args if each.is_Integer)
    cuts = [each for each in _expression(rows).atoms(sympy.Min) if table in each.args]
    within = {each: sympy.Min(*(a for a in each.args if a != table)) for each in cuts}
    known = {c: r for c, r in within.items() if is_size(plain(end - ir.SymbolicDim(r)))}
    return plain(ir.SymbolicDim(_expression(rows).subs(known))) if known else rows


def _is_smaller(dim: Dim, length: Dim) -> bool:
    """True if ``dim`` is ``Min(c, length)`` for some c."""
    if isinstance(dim, int) or not is_known(length):
        return False
    if not str(dim).startswith("Min("):
        return is_one_of(dim) and str(dim) == _name_of_one(_expression(length))
    expression = _expression(dim)
    two = isinstance(expression, sympy.Min) and len(expression.args) == 2
    return two and any(same_dim(plain(ir.SymbolicDim(each)), length) for each in expression.args)


def _expression(dim: Dim) -> sympy.Expr:
    return sympy.Integer(dim) if isinstance(dim, int) else dim._expr
