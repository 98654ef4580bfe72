"""A sketch filled in, node by node: shapes that fit, attributes that are legal, constants with numbers in them.

What a pattern captures twice is drawn together: a constant is often equal to one before it, or its negative or
reciprocal, an attribute equal to one of the same name, a permutation the inverse of one.  So a guard that demands such
a thing lets varied graphs through.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.operators import TRAITS, operators
from onnxrewrite.ir.schema import AttributeValue
from onnxrewrite.ruletest.fuzz.attributes import drawn
from onnxrewrite.ruletest.fuzz.hints import Hints
from onnxrewrite.ruletest.fuzz.operand_position import DoesNotFit, Shape, Spot, known_attributes, static_shape
from onnxrewrite.ruletest.fuzz.operands import DIVISORS, OPERANDS, POSITIVE, STRUCTURE
from onnxrewrite.ruletest.fuzz.sketch import CannotGrow, Leaf, Open, Role, Sketch
from onnxrewrite.ruletest.metamorphic.mutations import COUNTS
from onnxrewrite.system.arrays import Array

BASES: tuple[Shape, ...] = (
    *((2, 3, 5, 5), (2, 4, 4, 4), (1, 4, 3, 2), (2, 6, 2, 3), (2, 2, 2, 2), (3, 2, 4, 2), (2, 3, 1, 2)),
    *(
        (2, 5, 3),
        (2, 3, 3),
        (2, 2, 2),
        (1, 4, 2),
        (2, 1, 3),
        (3, 3),
        (2, 2),
        (4, 6),
        (1, 3),
        (2, 3),
        (3,),
        (1,),
        (4,),
        (),
    ),
)
"""Shapes of what a model is fed: sizes all alike and all different, one sample and several, ones in between."""

RANKS = (4, 4, 4, 3, 3, 3, 2, 2, 2, 1, 4, 3, 2, 1, 0)
"""So often each rank is fed, where nothing asks for one."""

_ASKS_RANK = {name: (traits.rank,) for name, traits in TRAITS.items() if traits.rank is not None} | dict.fromkeys(
    operators(marks="images"), (4, 4, 3)
)
"""Operator to the ranks that its first operand has, where it does not take any."""

_KINDS, _NEUTRAL = 8, 6
"""Kinds of numbers; at every so-manieth turn constants are ones and zeros."""

_MOST_ELEMENTS = 2**18
"""A result of more is not what a rule differs in, and takes long to check."""

_PASSES = frozenset(operators("pointwise broadcast softmax quantize pad"))
"""Operators whose result has the rank of their first operand."""

_CONSTANT_STRUCTURE, _CONSTANT_INDEX = 0.85, 0.6
"""The shares of shape operands, and of index operands, that are constants where the pattern does not demand one."""


def settle(sketch: Sketch, asked: Hints, rng: random.Random, turn: int = 0) -> ir.Model:
    """The graph of a sketch whose dtypes are assigned.

    Args:
        sketch: Is changed.
        asked: The hints of the rule.
        rng: Makes choices.
        turn: Selects what must not be left to chance: the shape that is fed, the kind of a number.

    Raises:
        CannotGrow: The drawn parts do not fit together.
    """
    settling = _Settling(sketch, asked, rng, turn)
    for node in sketch.nodes:
        try:
            settling.node(node)
        except DoesNotFit as reason:
            raise CannotGrow(str(reason)) from None
    return settling.model()


class _Settling:
    def __init__(self, sketch: Sketch, asked: Hints, rng: random.Random, turn: int):
        self._turn = turn
        self._sketch = sketch
        self._asked = asked
        self._rng = rng
        self._imports = {"": sketch.opset} | {n.domain: 1 for n in sketch.nodes if n.domain}
        self._facts = Facts(ir.Graph([], [], nodes=[]), dict(self._imports))
        self._of_rank: dict[int | None, Shape] = {}
        self._base = self._drawn_base(None)
        self._done: list[ir.Node] = []
        self._inputs: list[ir.Value] = []
        self._constants: list[ir.Value] = []
        self._attributes: dict[Hashable, AttributeValue] = {}
        self._of_name: dict[str, list[Any]] = {}
        self._numbers: list[float] = []
        self._arrays: list[Array] = []

    def model(self) -> ir.Model:
        """The graph, all nodes of which are settled."""
        graph = ir.Graph(
            self._inputs, self._sketch.outputs, nodes=self._sketch.nodes, initializers=self._constants,
            opset_imports=self._imports, name="grown",
        )  # fmt: skip
        return ir.Model(graph, ir_version=10)

    def node(self, node: ir.Node) -> None:
        """Settle what a node reads, and its attributes."""
        leaves = [(i, self._leaf(v)) for i, v in enumerate(node.inputs)]
        for index, leaf in leaves[:1]:
            if leaf is not None:
                self._settle(leaf, self._spot(node, index))
        for opened in self._sketch.open[node]:
            self._open(node, opened)
        for index, leaf in leaves[1:]:
            if leaf is not None and leaf.value.shape is None:
                self._settle(leaf, self._spot(node, index))
        self._facts.infer(node)
        self._done.append(node)
        for dims in ([d for d in o.shape or () if isinstance(d, int)] for o in node.outputs):
            if not 0 < math.prod(dims) <= _MOST_ELEMENTS or min(dims, default=1) < 1:
                raise DoesNotFit("an empty result, or one of a negative or a huge size")

    def _leaf(self, value: ir.Value | None) -> Leaf | None:
        """The leaf that a value is and that is not settled yet."""
        return self._sketch.leaves.get(value) if value is not None and value.shape is None else None

    def _spot(self, node: ir.Node, index: int) -> Spot:
        sizes = (1, 2, 3, 4, *self._asked.sizes) if self._rng.random() < 0.3 else (2, 3, 4)
        earlier = [
            s
            for v in (*self._inputs, *(o for n in self._done for o in n.outputs))
            if (s := static_shape(v)) is not None
        ]
        shapes = [static_shape(v) for v in node.inputs]
        attributes = known_attributes(node, self._sketch.schema(node))
        return Spot(node, index, shapes, self._rng, attributes, sizes, earlier, self._asked_rank(node.outputs[0]))

    # -- attributes ------------------------------------------------------------------------------------------

    def _asked_rank(self, value: ir.Value, depth: int = 4) -> int | None:
        """The rank that what reads a value asks for."""
        for node, index in value.uses() if depth else ():
            if index:
                continue
            perm = node.attributes.get("perm")
            if node.op_type == "Transpose" and perm is not None:
                return len(perm.as_ints())
            if node.op_type in _ASKS_RANK:
                return self._rng.choice(_ASKS_RANK[node.op_type])
            found = self._asked_rank(node.outputs[0], depth - 1) if node.op_type in _PASSES else None
            if found is not None:
                return found
        return None

    def _open(self, node: ir.Node, opened: Open) -> None:
        name = opened.formal.name
        if name in node.attributes:
            return
        key = opened.term if opened.term is not None else (node, name)
        if key not in self._attributes:
            self._attributes[key] = self._attribute(self._spot(node, 0), opened)
        value = self._attributes[key]
        if value is not None:
            node.attributes[name] = ir.convenience.convert_attribute(name, value, opened.formal.type)

    def _attribute(self, spot: Spot, opened: Open) -> AttributeValue:
        formal = opened.formal
        if not formal.required and self._rng.random() < 0.35:
            return None
        fresh = drawn(spot, formal)
        if fresh is None:
            return None
        value: AttributeValue = self._as_before(formal.name, fresh)
        self._of_name.setdefault(formal.name, []).append(value)
        return value

    def _as_before(self, name: str, fresh: AttributeValue) -> Any:
        """The drawn value, one of the rule's hints, or one related to an earlier attribute of the same name."""
        before = [v for v in self._of_name.get(name, ()) if type(v) is type(fresh) and _length(v) == _length(fresh)]
        chance = self._rng.random()
        if before and chance < 0.4:
            return self._rng.choice(before)
        if before and name == "perm" and chance < 0.6:
            return np.argsort(np.asarray(self._rng.choice(before))).tolist()
        asked = [v for v in self._asked_for(name, fresh) if _is_like(v, fresh)]
        return self._rng.choice(asked) if asked and self._rng.random() < 0.4 else fresh

    def _asked_for(self, name: str, fresh: object) -> Sequence[AttributeValue]:
        if isinstance(fresh, str):
            return self._asked.words
        if isinstance(fresh, list):
            return [list(v) for v in self._asked.lists]
        if name in COUNTS:
            return ()
        if isinstance(fresh, int):
            return [int(n) for n in self._asked.numbers if n == round(n) and abs(n) < 8]
        return self._asked.numbers

    # -- leaves ----------------------------------------------------------------------------------------------

    def _settle(self, leaf: Leaf, spot: Spot) -> None:
        """Give a leaf its shape, and if it is a constant its numbers."""
        wanted = self._wanted(leaf, spot)
        contents = wanted if isinstance(wanted, np.ndarray) else None
        shape = tuple(contents.shape) if contents is not None else wanted
        assert isinstance(shape, tuple)
        shape = self._ranked(leaf, shape, spot)
        if leaf.given is not None:
            self._hold(leaf, _given(leaf.given, shape))
        elif leaf.role is Role.FED and not self._is_structure(spot, contents):
            leaf.value.shape = ir.Shape(shape)
            self._inputs.append(leaf.value)
        elif contents is not None:
            self._hold(leaf, self._as_asked(contents))
        elif leaf.role is Role.NUMBER or not shape:
            self._hold(leaf, np.full(shape, self._number(leaf, spot)))
        else:
            self._hold(leaf, self._array(leaf, spot, shape))

    def _wanted(self, leaf: Leaf, spot: Spot) -> Shape | Array:
        """The shape that an operand should have, or what should be in it."""
        maker = OPERANDS.get(spot.place)
        if maker is not None and (spot.index or _is_known(spot)):
            found = maker(spot)
            if found is not None:
                return found
        if leaf.role is Role.NUMBER:
            return ()
        known = [s for s in spot.shapes if s is not None]
        if known:
            return self._beside(leaf, max(known, key=len))
        return self._own(leaf.rank if leaf.rank is not None else self._asked_rank(leaf.value))

    def _own(self, rank: int | None) -> Shape:
        """The shape of an input that nothing else decides: mostly the one that all such inputs of its rank share."""
        if self._rng.random() < 0.2:
            return self._drawn_base(rank)
        first = self._base if rank is None or len(self._base) == rank else self._drawn_base(rank)
        return self._of_rank.setdefault(rank, first)

    def _drawn_base(self, rank: int | None) -> Shape:
        rank = self._rng.choice(RANKS) if rank is None else rank
        known = [b for b in BASES if len(b) == rank] or [tuple(self._rng.choices((1, 2, 3), k=rank))]
        base = known[(self._turn + len(self._of_rank)) % len(known)]
        if base and self._asked.sizes and self._rng.random() < 0.3:
            place = self._rng.randrange(len(base))
            base = (*base[:place], self._rng.choice(self._asked.sizes), *base[place + 1 :])
        return base

    def _beside(self, leaf: Leaf, shape: Shape) -> Shape:
        """A shape that goes with another by broadcasting."""
        rank = len(shape)
        ways: list[Shape] = [shape, shape, (*shape[:-1], 1)[:rank], (1,) * rank, shape[-1:]]
        if rank > 1:
            ways += [(*[1] * (rank - 1), shape[-1]), (shape[-2], 1), (1, *shape[1:])]
        if rank > 2:
            ways += [(shape[1], *[1] * (rank - 2)), (1, shape[1], *[1] * (rank - 2))]
        if leaf.role is not Role.FED:
            return self._rng.choice([*ways[1:], ()])
        others = [_fitting(static_shape(v), shape) for v in self._inputs]
        whole = [o for o in others if o is not None]
        if whole and self._rng.random() < 0.5:
            return self._rng.choice(whole)
        return shape if self._rng.random() < 0.65 else self._rng.choice(ways)

    def _ranked(self, leaf: Leaf, shape: Shape, spot: Spot) -> Shape:
        """The shape at the rank that the pattern asks for: with first axes of another operand, or without its own."""
        if leaf.rank is None or len(shape) == leaf.rank:
            return shape
        more = leaf.rank - len(shape)
        if more < 0:
            return shape[-more:]
        known = next((s for s in spot.shapes if s is not None and len(s) >= more), None)
        return self._own(leaf.rank) if known is None else (*known[:more], *shape)

    def _is_structure(self, spot: Spot, contents: Array | None) -> bool:
        """True if an operand with these contents, which could also be fed, is a constant, as it mostly is."""
        if contents is None:
            return False
        often = _CONSTANT_STRUCTURE if spot.place in STRUCTURE else _CONSTANT_INDEX
        return self._rng.random() < often

    # -- numbers ---------------------------------------------------------------------------------------------

    def _hold(self, leaf: Leaf, array: Array) -> None:
        """Make a leaf a constant."""
        value, dtype = leaf.value, leaf.value.dtype
        assert dtype is not None
        if dtype == ir.DataType.STRING:
            raise DoesNotFit("text")
        with np.errstate(all="ignore"):
            data = array.astype(dtype.numpy())
        value.const_value = ir.tensor(data, dtype=dtype, name=value.name)
        value.shape = ir.Shape(data.shape)
        self._constants.append(value)

    def _as_asked(self, contents: Array) -> Array:
        """A list of integers, or one of its length that the rule asks for, or one before."""
        if contents.dtype == np.int64 and contents.ndim == 1:
            lists = [v for v in self._asked.lists if len(v) == contents.size]
            if lists and self._rng.random() < 0.3:
                return np.array(self._rng.choice(lists), np.int64)
        same = [a for a in self._arrays if a.dtype == contents.dtype and a.shape == contents.shape]
        if same and self._rng.random() < 0.4:
            contents = self._rng.choice(same)
            if contents.dtype == np.float32 and self._rng.random() < 0.5:
                contents = 1 / contents
        self._arrays.append(contents)
        return contents

    def _array(self, leaf: Leaf, spot: Spot, shape: Shape) -> Array:
        """Numbers for a constant tensor."""
        dtype = leaf.value.dtype
        assert dtype is not None
        rng = np.random.default_rng(self._rng.getrandbits(32))
        same = [a for a in self._arrays if a.shape == shape]
        if same and self._rng.random() < 0.25:
            return self._rng.choice(same)
        if dtype == ir.DataType.BOOL:
            return rng.integers(0, 2, shape).astype(np.bool_)
        if dtype.is_integer():
            array = rng.integers(-4 if dtype.is_signed() else 1, 6, shape)
            array = np.where(array == 0, 3, array) if spot.place in DIVISORS else array
        else:
            array = np.asarray(rng.integers(8, 32, shape) / 16)  # short enough for products of them to be exact
            if spot.place not in POSITIVE and self._rng.random() < 0.5:
                array = array * rng.choice((-1, 1, 1), shape)
            if self._turn % _NEUTRAL == 1 and leaf.value.uses():
                array = np.full(shape, 1.0 if spot.index < 2 or spot.place in POSITIVE else 0.0)
        self._arrays.append(array)
        return array

    def _drawn_number(self, dtype: ir.DataType, sizes: Sequence[int]) -> float:
        """The first number of a graph is of another kind at each turn, others of any."""
        kind = self._turn % _KINDS if not self._numbers else self._rng.randrange(_KINDS)
        if kind < 2 and self._asked.numbers:
            return self._rng.choice(self._asked.numbers) * self._rng.choice((1, 1, 1, -1, 2, 10))
        if kind < 4 and self._numbers:
            before = self._rng.choice(self._numbers)
            return self._rng.choice((before, before, -before, 1 / before if before else 0.0))
        if kind == 4 and sizes:
            size = self._rng.choice(sizes)
            return self._rng.choice((size, size, math.sqrt(size), 1 / size, 1 / math.sqrt(size)))
        if kind == 5:
            return self._rng.choice((0, 1))
        sign = -1 if kind == 6 else 1
        return sign * (self._rng.randint(1, 9) if dtype.is_integer() else self._rng.randint(2, 24) / 8)

    def _number(self, leaf: Leaf, spot: Spot) -> float:
        """A number: any, one that the rule asks for, one that goes with one before, or with a size."""
        dtype = leaf.value.dtype
        assert dtype is not None
        if dtype == ir.DataType.BOOL:
            return float(self._rng.random() < 0.5)
        place = spot.place
        number = self._drawn_number(dtype, [d for s in spot.shapes if s for d in s if d > 0])
        if dtype.is_integer():
            info = np.iinfo(dtype.numpy())
            number = round(number) if dtype.is_signed() else abs(round(number))
            number = number if info.min <= number <= info.max else number % 100
            number = number or (3 if place in DIVISORS else 0)
        if place in POSITIVE:
            number = abs(number) or 0.5
        if place == ("BitShift", 1):
            number = number % 8
        self._numbers.append(number)
        return number


def _fitting(shape: Shape | None, other: Shape) -> Shape | None:
    """A shape that broadcasts with another of its rank; None where it does not."""
    if (
        shape is None
        or len(shape) != len(other)
        or any(a != b and 1 not in (a, b) for a, b in zip(shape, other, strict=True))
    ):
        return None
    return shape


def _is_known(spot: Spot) -> bool:
    """True if the shape of the first operand follows from other operands, or from the operator alone."""
    return (spot.node.op_type, 0) in STRUCTURE or any(s is not None for s in spot.shapes[1:])


def _given(given: object, shape: Shape) -> Array:
    array = np.array(given, np.float64 if isinstance(given, float) else None)
    return array if array.ndim or not shape else np.full((1,) * len(shape) if math.prod(shape) <= 1 else (1,), given)


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | tuple) else 0


def _is_like(asked: Any, fresh: Any) -> bool:
    """True if one of the rule's hints can take the place of a drawn value."""
    if isinstance(fresh, list):
        return len(asked) == len(fresh) and (sorted(asked) == sorted(fresh) or len(fresh) < 2 or min(fresh) < 0)
    return True
