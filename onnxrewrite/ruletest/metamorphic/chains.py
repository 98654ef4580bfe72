"""Sums and products in another spelling: re-associated, operands swapped, constants on the other side.

The leaves stay what they are; the nodes between them are written anew as a random tree.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxrewrite.pattern.numbers import rounded
from onnxrewrite.ruletest.metamorphic.covered import Chain
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.system.arrays import Array

_POWERS = (2, 3, 4)
"""The powers that a pattern writes as products."""


@dataclass(frozen=True)
class Leaf:
    """An operand of a chain: added or multiplied (+1), subtracted or divided by (-1)."""

    value: ir.Value
    sign: int


def respell_chain(draft: Draft, chain: Chain, literals: Sequence[float], rng: random.Random) -> list[str]:
    """Write one chain anew; the names of its nodes.  The value at its end keeps its name."""
    writer = (_ProductWriter if chain.is_product else _SumWriter)(draft, chain, literals, rng)
    return writer.write()


def respell_power(draft: Draft, node: ir.Node) -> str | None:
    """Sqrt as the power one half, or the other way round; the new node's name, None for another power."""
    base, old = node.inputs[0], node.outputs[0]
    dtype = old.dtype
    if base is None or dtype is None or not dtype.is_floating_point():
        return None
    if node.op_type == "Sqrt":
        half = draft.constant(np.asarray(0.5), dtype)
        new = draft.insert(node, "Pow", [base, half], like=old)
    elif node.op_type == "Pow" and _number(draft, node.inputs[1]) == 0.5:
        new = draft.insert(node, "Sqrt", [base], like=old)
    else:
        return None
    draft.replace(old, new)
    made = new.producer()
    return made.name if made is not None else None


def _number(draft: Draft, value: ir.Value | None) -> float | None:
    array = draft.array(value)
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def meant(number: float, dtype: ir.DataType, literals: Sequence[float]) -> float:
    """The number of the pattern that a constant of ``dtype`` stands for, unrounded; else the constant itself."""
    for literal in literals:
        exact = [literal, -literal, *([1 / literal, -1 / literal] if literal else [])]
        for each in exact:
            if rounded(each, dtype) == number:
                return each
    return number


class _Writer:
    """One chain, taken apart and put together."""

    def __init__(self, draft: Draft, chain: Chain, literals: Sequence[float], rng: random.Random):
        self.draft = draft
        self.chain = chain
        self.literals = literals
        self.rng = rng
        self.old = draft.value(chain.root)
        root = self.old.producer()
        assert root is not None
        self.root = root
        self.is_float = self.old.dtype is not None and self.old.dtype.is_floating_point()
        self.made: list[str] = []

    def write(self) -> list[str]:
        """Build the chain anew in place of the old one."""
        if self.old.dtype is None or not (self.is_float or self.old.dtype.is_signed()):
            return sorted(self.chain.nodes)
        leaves = self.prepared(self.leaves(self.root, 1))
        while len(leaves) > 1:
            first, second = (leaves.pop(self.rng.randrange(len(leaves))) for _ in range(2))
            leaves.append(self.combined(first, second))
        new = leaves[0].value if leaves[0].sign > 0 else self.opposite(leaves[0].value)
        made = new.producer()
        if made is None or made.name not in self.made:  # one operand is all that there is
            new = self.node("Identity", new)
        self.draft.replace(self.old, new)
        return self.made

    def node(self, op_type: str, *inputs: ir.Value) -> ir.Value:
        """A node before the old root, which reads what that did."""
        value = self.draft.insert(self.root, op_type, inputs, like=self.old)
        producer = value.producer()
        assert producer is not None
        self.made.append(producer.name or "")
        return value

    def leaves(self, node: ir.Node, sign: int) -> list[Leaf]:
        """The operands of the tree above ``node``, which is taken apart where nothing else needs its values."""
        found: list[Leaf] = []
        for value, its in self.operands(node):
            above = value.producer()
            inner = (
                above is not None
                and above.name in self.chain.nodes
                and value.name not in self.chain.ends
                and len(value.uses()) == 1
                and not value.is_graph_output()
            )
            found += self.leaves(above, sign * its) if inner and above is not None else [Leaf(value, sign * its)]
        return found

    def both(self, op_type: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """A commutative node, its operands in random order."""
        return self.node(op_type, *((a, b) if self.rng.random() < 0.5 else (b, a)))

    def changed(self, leaf: Leaf, array: Array) -> Leaf:
        """A constant leaf on the other side."""
        assert self.old.dtype is not None
        return Leaf(self.draft.constant(array, self.old.dtype), -leaf.sign)

    def operands(self, node: ir.Node) -> list[tuple[ir.Value, int]]:
        """The operands of one node with their signs."""
        raise NotImplementedError

    def prepared(self, leaves: list[Leaf]) -> list[Leaf]:
        """The leaves with some constants on the other side."""
        raise NotImplementedError

    def combined(self, a: Leaf, b: Leaf) -> Leaf:
        """Two of them in one node, or two."""
        raise NotImplementedError

    def opposite(self, value: ir.Value) -> ir.Value:
        """The negative, or the reciprocal."""
        raise NotImplementedError


class _SumWriter(_Writer):
    def operands(self, node: ir.Node) -> list[tuple[ir.Value, int]]:
        signs = {"Sub": (1, -1), "Neg": (-1,)}.get(node.op_type, (1,) * len(node.inputs))
        return [(v, s) for v, s in zip(node.inputs, signs, strict=True) if v is not None]

    def prepared(self, leaves: list[Leaf]) -> list[Leaf]:
        return [self._flipped(leaf) if self.rng.random() < 0.4 else leaf for leaf in leaves]

    def _flipped(self, leaf: Leaf) -> Leaf:
        array = self.draft.array(leaf.value)
        return leaf if array is None else self.changed(leaf, -array)

    def combined(self, a: Leaf, b: Leaf) -> Leaf:
        if a.sign == b.sign:
            variadic = self.is_float and self.draft.opset >= 8 and self.rng.random() < 0.15
            return Leaf(self.both("Sum" if variadic else "Add", a.value, b.value), a.sign)
        if a.sign < 0:
            a, b = b, a
        if self.rng.random() < 0.2:
            return Leaf(self.both("Add", a.value, self.opposite(b.value)), 1)
        return Leaf(self.node("Sub", a.value, b.value), 1)

    def opposite(self, value: ir.Value) -> ir.Value:
        return self.node("Neg", value)


class _ProductWriter(_Writer):
    negations = 0

    def operands(self, node: ir.Node) -> list[tuple[ir.Value, int]]:
        first, *rest = [v for v in node.inputs if v is not None]
        match node.op_type:
            case "Mul":
                return [(first, 1), (rest[0], 1)]
            case "Div":
                return [(first, 1), (rest[0], -1)]
            case "Reciprocal":
                return [(first, -1)]
            case "Neg":
                self.negations += 1
                return [(first, 1)]
        times = _number(self.draft, rest[0])
        assert times is not None
        assert times == int(times)
        return [(first, 1 if times > 0 else -1)] * abs(int(times))

    def prepared(self, leaves: list[Leaf]) -> list[Leaf]:
        if self.is_float:
            leaves = [self._flipped(leaf) if self.rng.random() < 0.4 else leaf for leaf in leaves]
            leaves = self._grouped(leaves)
        for _ in range(self.negations):
            place = self.rng.randrange(len(leaves))
            leaves[place] = self._negated(leaves[place])
        return leaves

    def _flipped(self, leaf: Leaf) -> Leaf:
        """``/ c`` for ``* 1/c`` and back, where the reciprocal is an ordinary number of the dtype."""
        array = self.draft.array(leaf.value)
        dtype = self.old.dtype
        if array is None or dtype is None:
            return leaf
        exact = np.array([meant(float(c), dtype, self.literals) for c in array.ravel()]).reshape(array.shape)
        with np.errstate(all="ignore"):
            made = (1 / exact).astype(dtype.numpy())
            there_and_back = 1 / made.astype(np.float64)
        ordinary = np.isfinite(there_and_back).all() and np.isfinite(made.astype(np.float64)).all()
        return self.changed(leaf, made) if ordinary else leaf

    def _grouped(self, leaves: list[Leaf]) -> list[Leaf]:
        """Equal factors as a power, now and then."""
        for leaf in dict.fromkeys(leaves):
            times = leaves.count(leaf)
            if times in _POWERS and self.rng.random() < 0.5:
                assert self.old.dtype is not None
                exponent = self.draft.constant(np.asarray(float(times)), self.old.dtype)
                power = Leaf(self.node("Pow", leaf.value, exponent), leaf.sign)
                leaves = [*(other for other in leaves if other != leaf), power]
        return leaves

    def _negated(self, leaf: Leaf) -> Leaf:
        array = self.draft.array(leaf.value)
        if array is not None and self.rng.random() < 0.5:
            return replace(self.changed(leaf, -array), sign=leaf.sign)
        return Leaf(self.node("Neg", leaf.value), leaf.sign)

    def combined(self, a: Leaf, b: Leaf) -> Leaf:
        if a.sign == b.sign:
            return Leaf(self.both("Mul", a.value, b.value), a.sign)
        if a.sign < 0:
            a, b = b, a
        if self.rng.random() < 0.15:
            return Leaf(self.both("Mul", a.value, self.opposite(b.value)), 1)
        return Leaf(self.node("Div", a.value, b.value), 1)

    def opposite(self, value: ir.Value) -> ir.Value:
        return self.node("Reciprocal", value)
