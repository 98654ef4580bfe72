"""Sums and products of a pattern against the chains of a graph.

An operand of the pattern takes a leaf or a whole subtree; numbers are compared last and all together; what is left
over is the remainder, which only the pattern's anchor may have.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxrewrite.pattern import chain, numbers
from onnxrewrite.pattern.chain import Piece, is_optional, leaves_of
from onnxrewrite.pattern.look import passed, resolve
from onnxrewrite.pattern.match import Binding
from onnxrewrite.pattern.misses import described, shown
from onnxrewrite.pattern.terms import Capture, Const, Product, Sum, Term, flipped

if TYPE_CHECKING:
    from onnxrewrite.pattern.recursive import RecursiveMatcher


class ChainMatch:
    """One n-ary term against the chain above one value."""

    def __init__(self, matcher: RecursiveMatcher, item: Sum | Product, value: ir.Value, root: bool):
        self.matcher = matcher
        self.facts = matcher.facts
        self.item = item
        self.value = value
        self.root = root
        self.is_product = isinstance(item, Product)
        self.dtype = self.facts.dtype(value)
        self._divides = self.dtype is not None and self.dtype.is_floating_point()
        self.tree = matcher.grown(value, self.is_product)[0]
        self.pieces = sorted(self.tree.walk(), key=self._last)
        self.literals, self.scalars, self.operands, self._needs_numbers, self._required = chain.plan(item)

    def run(self, binding: Binding) -> Iterator[Binding]:
        """Every way to spread the pattern's operands over the chain."""
        if self._required > self.tree.leaves.bit_count():
            self.matcher.miss(
                binding,
                lambda: f"expected {self._kind()}, found {self._short(binding)}",
                self.item,
                found=self.value,
            )
            return
        if self.matcher.misses is not None:  # what is missing further up is nearer than what is missing here
            binding = binding.bind((self.item, "entered"), self.value)
        if not self._is_doomed(0, 0):
            for taken, matched in self._assign(0, (), binding):
                yield from self._finish(taken, matched)

    def _last(self, piece: Piece) -> int:
        """Constants are tried after other values, the whole chain last, so that what is optional is found."""
        is_constant = piece.value is None or self.facts.tensor(resolve(piece.value)) is not None
        return 2 if piece is self.tree else int(is_constant)

    def _kind(self) -> str:
        return "a product" if self.is_product else "a sum"

    def _short(self, binding: Binding) -> str:
        """The words for what stands there: a sum or product of fewer operands, or something else."""
        node = resolve(self.value).producer()
        if node is not None and self.tree.leaves.bit_count() > 1:
            return f"only {shown(node, self.facts)}"
        return self.matcher.describe(self.value, binding)

    # -- operands --------------------------------------------------------------------------------------------

    def _assign(
        self, index: int, taken: tuple[Piece, ...], binding: Binding
    ) -> Iterator[tuple[tuple[Piece, ...], Binding]]:
        """Give every operand that is not a number a piece of its own, or its default."""
        if index == len(self.operands):
            yield taken, binding
            return
        item, sign = self.operands[index]
        used = leaves_of(taken)
        for piece in self._candidates(index):
            if piece.value is None or piece.leaves & used:
                continue
            if piece is self.tree and self._others_required(index):
                continue
            if self._is_doomed(index + 1, used | piece.leaves):
                continue
            for matched in self._operand(item, sign, piece, binding):
                yield from self._assign(index + 1, (*taken, piece), matched)
        if isinstance(item, Capture) and item.optional and not self._is_doomed(index + 1, used):
            for matched in self.matcher._absent(item, binding):
                yield from self._assign(index + 1, taken, matched)

    def _candidates(self, index: int) -> Sequence[Piece]:
        """The pieces to try for an operand."""
        return self.pieces

    def _is_doomed(self, index: int, used: int) -> bool:
        """True if it is known that nothing will come of giving leaves to the operands from ``index`` on."""
        return False

    def _operand(self, item: Term, sign: int, piece: Piece, binding: Binding) -> Iterator[Binding]:
        """One operand against one piece.  ``- c`` is ``+ -c`` and ``/ c`` is ``* 1/c``: a constant of the
        other sign is bound to its opposite, an array.
        """
        assert piece.value is not None
        if piece.sign == sign:
            yield from self.matcher.term(item, piece.value, binding)
        elif isinstance(item, Const) and item not in binding.bound and (self._divides or not self.is_product):
            for matched in self.matcher.term(item, piece.value, binding):
                array = numbers.array(self.facts, resolve(piece.value))
                with np.errstate(divide="ignore"):
                    yield matched.bind(item, 1 / array if self.is_product else -array)
        elif (opposite := flipped(item, self.is_product)) is not None:
            yield from self.matcher.term(opposite, piece.value, binding)

    def _others_required(self, index: int) -> bool:
        """True if any other operand has to be there, so that this one cannot be the whole chain."""
        others = [i for n, (i, _) in enumerate(self.operands) if n != index] + [i for i, _ in self.scalars]
        return self._needs_numbers or any(not is_optional(i) for i in others)

    def _finish(self, taken: tuple[Piece, ...], binding: Binding) -> Iterator[Binding]:
        """Compare the numbers, then look at what is left over."""
        for consumed, matched in self._numbers(taken, binding):
            whole = (*taken, *consumed)
            rest = self._remainder(whole)
            if rest and not self._may_remain(whole, rest):
                self.matcher.miss(binding, partial(self._longer, rest), self.item, further=len(self.operands))
                continue
            extended = matched.cover(*self._covered(whole))
            yield Binding(extended.bound, extended.nodes, self._put_back(rest)) if rest else extended

    def _without_number(self, taken: tuple[Piece, ...], binding: Binding) -> str:
        rest = [p.value for p in self._remainder(taken) if p.value is not None]
        found = self.matcher.describe(rest[0], binding) if rest else "none"
        if self.literals:
            return f"expected constant {self.literals[0][0]:.6g}, found {found}"
        return f"expected a constant with one element for {self.scalars[0][0].name}, found {found}"

    def _longer(self, rest: Sequence[Piece]) -> str:
        more = " and ".join(described(self.facts, self.matcher.graph, p.value) for p in rest if p.value is not None)
        return f"the chain at `{self.value.name}` is longer than the pattern{', by ' if more else ''}{more}"

    def _covered(self, taken: tuple[Piece, ...]) -> Iterator[ir.Node]:
        """The nodes that are taken apart, with the Identities behind them."""
        split = {id(piece) for piece in _split(self.tree, {id(t) for t in taken}, leaves_of(taken))}
        for piece in self.pieces:
            if piece.node is not None and piece.value is not None and id(piece) in split:
                yield from (piece.node, *passed(piece.value))

    def _remainder(self, taken: tuple[Piece, ...]) -> list[Piece]:
        """The largest pieces that the pattern left alone."""
        used = leaves_of(taken)

        def untouched(piece: Piece) -> list[Piece]:
            if not piece.leaves & used:
                return [piece]
            return [found for part in piece.parts for found in untouched(part)]

        return untouched(self.tree)

    def _put_back(self, rest: list[Piece]) -> tuple[tuple[ir.Value, str], ...]:
        more, less = ("Mul", "Div") if self.is_product else ("Add", "Sub")
        return tuple((p.value, more if p.sign > 0 else less) for p in rest if p.value is not None)

    def _may_remain(self, taken: tuple[Piece, ...], rest: list[Piece]) -> bool:
        """True if ``rest`` may be left over: at the anchor, if all of it has values, and only where no part of the
        chain holds all that was taken, for there the pattern is found from the value of that part.
        """
        used = leaves_of(taken)
        return (
            self.root
            and all(p.value is not None for p in rest)
            and not any(used & ~part.leaves == 0 for part in self.tree.parts)
        )

    # -- numbers ---------------------------------------------------------------------------------------------

    def _signed(self, group: tuple[Piece, ...]) -> list[tuple[float, int]]:
        return [(p.number or 0, p.sign) for p in group]

    def _numbers(self, taken: tuple[Piece, ...], binding: Binding) -> Iterator[tuple[tuple[Piece, ...], Binding]]:
        """Every way to account for the pattern's numbers with the chain's."""
        used = leaves_of(taken)
        numeric = [p for p in self.pieces if not p.parts and not p.leaves & used and p.number is not None]
        groups = [tuple(numeric)] if numeric else []
        groups += [(p,) for p in numeric] if len(numeric) > 1 else []
        if not self.scalars and not self._needs_numbers:
            yield from ((group, binding) for group in (*groups, ()) if self._equal(self._signed(group)))
            return
        if len(self.scalars) > 1:
            yield from self._several_scalars(numeric, binding)
            return
        asks = self._needs_numbers or not all(is_optional(scalar) for scalar, _ in self.scalars)
        if asks and not groups:
            self.matcher.miss(
                binding, lambda: self._without_number(taken, binding), self.item, further=len(self.operands)
            )
        for group in groups:
            yield from ((group, matched) for matched in self._group(group, binding))
        if self.scalars and is_optional(self.scalars[0][0]):
            yield from self._scalar_absent(groups, binding)

    def _group(self, group: tuple[Piece, ...], binding: Binding) -> Iterator[Binding]:
        """The pattern's literals and at most one scalar against these numbers."""
        found = self._signed(group)
        if not self.scalars:
            if self._equal(found):
                yield binding
            else:
                self.matcher.miss(
                    binding, lambda: f"{self._unequal(found)}{self._at(group)}", self.item, further=len(self.operands)
                )
            return
        (capture, sign) = self.scalars[0]
        if self.is_product:
            number = numbers.product([*found, *((v, -s) for v, s in self.literals)])
            number = number if sign > 0 else numbers.product([(number, -1)])
        else:
            number = sign * numbers.total([*found, *((v, -s) for v, s in self.literals)])
        if len(found) == 1 and not self.literals and found[0][1] == sign:
            number = found[0][0]
        if math.isnan(number):
            self.matcher.miss(binding, lambda: f"{capture.name} is no number", capture)
        elif capture not in binding.bound:
            yield binding.bind(capture, number)
        elif binding.bound[capture] == number:
            yield binding

    def _several_scalars(self, numeric: list[Piece], binding: Binding) -> Iterator[tuple[tuple[Piece, ...], Binding]]:
        """Several scalars in one chain take one number each, in the order of both."""
        if self.literals or len(numeric) != len(self.scalars):
            return
        for (capture, sign), piece in zip(self.scalars, numeric, strict=True):
            if piece.sign != sign or piece.value is None:
                return
            found = list(self.matcher.term(capture, piece.value, binding))
            if not found:
                return
            binding = found[0]
        yield tuple(numeric), binding

    def _scalar_absent(
        self, groups: list[tuple[Piece, ...]], binding: Binding
    ) -> Iterator[tuple[tuple[Piece, ...], Binding]]:
        """An optional scalar that is not there: the literals alone have to account for the numbers."""
        for matched in self.matcher._absent(self.scalars[0][0], binding):
            if not self.literals:
                yield (), matched
            for group in groups if self.literals else ():
                if self._equal(self._signed(group)):
                    yield group, matched

    def _equal(self, found: list[tuple[float, int]]) -> bool:
        if not found and not self.literals:
            return True
        if self.dtype is None:
            return False
        equal = numbers.product_equals if self.is_product else numbers.total_equals
        return equal(found, self.literals, self.dtype)

    def _at(self, group: tuple[Piece, ...]) -> str:
        """The place of a single number in words: the node that reads it."""
        readers = (p.node for p in self.pieces if len(group) == 1 and group[0] in p.parts)
        node = next((n for n in readers if n is not None), None)
        return f" (at `{node.name}`)" if node is not None and node.name else ""

    def _unequal(self, found: list[tuple[float, int]]) -> str:
        """The two numbers as the graph spells them: as divisors where it divides by its one constant."""
        combine = numbers.product if self.is_product else numbers.total
        flip = self.is_product and len(found) == 1 and found[0][1] < 0
        expected = numbers.product([(combine(self.literals), -1)]) if flip else combine(self.literals)
        return numbers.tell(expected, found[0][0] if flip else combine(found), self.dtype)


def _split(piece: Piece, taken: Container[int], used: int) -> Iterator[Piece]:
    """The pieces that are taken apart: the pattern took something above them, by identities and leaves."""
    if piece.leaves & used and id(piece) not in taken:
        yield piece
        for part in piece.parts:
            yield from _split(part, taken, used)
