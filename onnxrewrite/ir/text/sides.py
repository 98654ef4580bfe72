"""Two pieces of a graph side by side: what a rewrite takes out, and what it puts there."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.ir.graph import outer_values
from onnxrewrite.ir.text.outline import Outline
from onnxrewrite.ir.text.printer import INLINE_ELEMENTS, Printer, structural_order, values_of

_MANY = 4096
"""So many stencils are remembered."""

_GAP = "\0"
"""Stands on both sides of a gap; no text has it."""

_Gap: TypeAlias = tuple[int, bool]
"""The number of a constant, and whether its numbers stand in braces in any case."""


class _PartPrinter(Printer):
    """Prints nodes that lie in a graph, or on a tape and in none yet."""

    def __init__(self, opsets: Mapping[str, int], made: set[ir.Value], numbers: Mapping[int, int]) -> None:
        super().__init__(canonical=True, opsets=opsets)
        self.made = made
        self.numbers = numbers
        self.gaps: list[_Gap] = []
        self.inlined: dict[ir.Value, ir.TensorProtocol | None] = {}

    def inline(self, value: ir.Value) -> ir.TensorProtocol | None:
        if value not in self.inlined:
            tensor = self.tensor(value)
            is_small = tensor is not None and tensor.size <= INLINE_ELEMENTS
            self.inlined[value] = tensor if is_small else None
        return self.inlined[value]

    def values(self, tensor: ir.TensorProtocol, *, braces: bool) -> str:
        """A gap for a constant that has a number."""
        number = self.numbers.get(id(tensor))
        if number is None:
            return super().values(tensor, braces=braces)
        self.gaps.append((number, braces))
        return f"{_GAP}{len(self.gaps) - 1}{_GAP}"

    def tensor(self, value: ir.Value) -> ir.TensorProtocol | None:
        """The constant behind a value that neither side computes."""
        return value.const_value if value not in self.made else None

    def part(self, nodes: Sequence[ir.Node], outputs: Sequence[ir.Value]) -> Iterator[str]:
        """A line for each value that is read from outside and not named yet, and the lines of the nodes."""
        order = structural_order(nodes, outputs) if len(nodes) > 1 else nodes
        read = (v for n in order for v in (*n.inputs, *outer_values(n)) if v is not None and v not in self.made)
        yield from map(self.read, (v for v in dict.fromkeys(read) if v not in self.names and self.inline(v) is None))
        for node in order:
            yield from self.node(node)

    def read(self, value: ir.Value) -> str:
        """The declaration of a value from outside."""
        tensor = self.tensor(value)
        return self.declared(value) if tensor is None else self.constant(value, tensor)

    def result(self, old: ir.Value, new: ir.Value) -> Iterator[str]:
        """The lines that give ``new`` the name of ``old``, which it replaces; none where it is printed by that name."""
        if new in self.made and new not in self.names:
            self.names[new] = self.name(old)
            return
        tensor = self.tensor(new)
        if tensor is not None:
            yield self.constant(old, tensor)
            return
        if new not in self.names:
            yield self.read(new)
        yield f"{self.name(old)} = Identity({self.name(new)})"


class _Stencil:
    """The text of both sides with gaps for the numbers of constants."""

    def __init__(self, before: Sequence[str], after: Sequence[str], gaps: Sequence[_Gap]) -> None:
        self._before = [line.split(_GAP) for line in before]
        self._after = [line.split(_GAP) for line in after]
        self._gaps = gaps

    def filled(self, tensors: Sequence[ir.TensorProtocol]) -> tuple[list[str], list[str]]:
        """The text for certain constants."""
        texts = [values_of(tensors[number], braces=braces) for number, braces in self._gaps]
        return _joined(self._before, texts), _joined(self._after, texts)


def _joined(lines: Sequence[Sequence[str]], texts: Sequence[str]) -> list[str]:
    """Lines of pieces, every other of which is the number of a text."""
    return [
        line[0] if len(line) == 1 else "".join([texts[int(p)] if at % 2 else p for at, p in enumerate(line)])
        for line in lines
    ]


_STENCILS: dict[Hashable, _Stencil] = {}


def print_rewrite(
    before: Sequence[ir.Node],
    after: Sequence[ir.Node],
    replaced: Sequence[tuple[ir.Value, ir.Value]],
    opset_imports: Mapping[str, int],
) -> tuple[list[str], list[str]]:
    """The text of both sides, as lines of two snippets in which the same value has the same name.

    Args:
        before: The nodes taken out.
        after: The nodes put there; they may be in no graph yet.
        replaced: Each value that is replaced, and what replaces it, which bears its name in the text.
        opset_imports: Domain to version.

    Names are ``v0``, ``v1``, ...: rewrites that are equal but for names, and for the order of independent nodes, print
    equally.  Of a constant of more than a few elements only dtype, shape and a digest are printed.
    """
    outline = Outline(before, after, replaced, opset_imports)
    stencil = _STENCILS.get(outline.key) if outline.key is not None else None
    if stencil is None:
        printer = _PartPrinter(opset_imports, {o for n in (*before, *after) for o in n.outputs}, outline.numbers)
        old = list(printer.part(before, [v for v, _ in replaced]))
        moved = [line for pair in replaced for line in printer.result(*pair)]
        stencil = _Stencil(old, [*printer.part(after, [v for _, v in replaced]), *moved], printer.gaps)
        if len(_STENCILS) >= _MANY:
            _STENCILS.clear()
        if outline.key is not None:
            _STENCILS[outline.key] = stencil
    return stencil.filled(outline.tensors)
