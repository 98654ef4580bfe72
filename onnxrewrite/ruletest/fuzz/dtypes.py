"""The dtypes of the values of a sketch: an unknown for each type variable of each schema, and for each value.

Unification over the whole pattern: what an operator says of one operand holds wherever that value stands.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable

import onnx_ir as ir

from onnxrewrite.ir.text.syntax import DTYPES
from onnxrewrite.ruletest.fuzz.sketch import CannotGrow, Leaf, Role, Sketch

D = ir.DataType

ORDER = (
    *(D.FLOAT, D.INT64, D.BOOL, D.INT32, D.UINT8, D.FLOAT16, D.DOUBLE, D.INT8, D.BFLOAT16),
    *(D.UINT32, D.UINT64, D.INT16, D.UINT16, D.STRING),
)
"""The dtypes that graphs are grown in, those that models have most first."""

_TAKES_DTYPE = ("to", "dtype", "output_dtype")
"""Attributes that say the dtype of an output."""

_ANY = frozenset(ORDER)


def assign(sketch: Sketch, rng: random.Random, *, is_plain: bool) -> None:
    """Give every value of a sketch a type, and the attributes that name a dtype their value.

    Args:
        sketch: Is changed.
        rng: Chooses where there is a choice.
        is_plain: True to take the most usual dtype everywhere.

    Raises:
        CannotGrow: There is none that all operators take.
    """
    classes = _Classes()
    for leaf in sketch.leaves.values():
        classes.restrict(leaf.value, _of_leaf(leaf), str(leaf.value.name))
    for node in sketch.nodes:
        _unify(sketch, node, classes)
    chosen: dict[Hashable, ir.DataType] = {}
    for node in sketch.nodes:
        for value in (*node.inputs, *node.outputs):
            if value is None:
                continue
            root = classes.root(value)
            if root not in chosen:
                chosen[root] = _chosen(classes.options(root), rng, is_plain)
            value.type = ir.TensorType(chosen[root])
        _name(sketch, node)


def _of_leaf(leaf: Leaf) -> frozenset[ir.DataType]:
    """The dtypes that a leaf may have by itself: of a given number, those that can hold it."""
    options = _ANY if leaf.dtypes is None else leaf.dtypes
    if leaf.role is Role.NUMBER:
        options -= {D.STRING}
    if isinstance(leaf.given, bool) or leaf.given is None or not isinstance(leaf.given, int | float):
        return options
    options -= {D.BOOL}
    if leaf.given != round(leaf.given):
        return frozenset(d for d in options if d.is_floating_point())
    return frozenset(d for d in options if d.is_floating_point() or d.is_signed() or leaf.given >= 0)


def _unify(sketch: Sketch, node: ir.Node, classes: _Classes) -> None:
    """Unite and restrict the dtypes of a node's operands and results as its schema requires."""
    found = sketch.schema(node)
    if found is None:
        for value in (*node.inputs, *node.outputs):
            if value is not None:
                classes.unite(value, (node, "T"), node.op_type)
        return
    for formals, values in ((found.inputs, node.inputs), (found.outputs, node.outputs)):
        for place, value in enumerate(values):
            if value is None or not formals:
                continue
            formal = formals[min(place, len(formals) - 1)]
            key: Hashable = (node, formal.type_var, place) if formal.mixed else (node, formal.type_var)
            classes.restrict(key, frozenset(_dtypes(formal.types)), node.op_type)
            classes.unite(value, key, node.op_type)
    for name in _TAKES_DTYPE:
        given = node.attributes.get(name)
        if given is not None and given.type == ir.AttributeType.INT:
            classes.restrict(node.outputs[0], frozenset({D(given.as_int())}), node.op_type)


def _dtypes(types: Iterable[str]) -> list[ir.DataType]:
    """ONNX type strings of tensors as dtypes."""
    names = (t.removeprefix("tensor(").removesuffix(")") for t in types if t.startswith("tensor("))
    return [DTYPES[name] for name in names if name in DTYPES]


def _chosen(options: frozenset[ir.DataType], rng: random.Random, is_plain: bool) -> ir.DataType:
    ordered = [d for d in ORDER if d in options]
    if is_plain or len(ordered) == 1 or rng.random() < 0.3:
        return ordered[0]
    usual = [d for d in ordered if d != D.STRING]
    return rng.choice(usual[: max(1, ORDER.index(D.INT8))] or ordered)


def _name(sketch: Sketch, node: ir.Node) -> None:
    """Write into open attributes which dtype was chosen."""
    for opened in sketch.open[node]:
        if opened.formal.name in _TAKES_DTYPE:
            dtype = node.outputs[0].dtype
            assert dtype is not None
            node.attributes[opened.formal.name] = ir.AttrInt64(opened.formal.name, int(dtype))


class _Classes:
    """Values and type variables that have the same dtype, and which that may be."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}
        self._options: dict[Hashable, frozenset[ir.DataType]] = {}

    def root(self, key: Hashable) -> Hashable:
        """The representative of the class of a key."""
        while key in self._above:
            key = self._above[key]
        return key

    def options(self, key: Hashable) -> frozenset[ir.DataType]:
        """The dtypes that a class may have."""
        return self._options.get(self.root(key), _ANY)

    def restrict(self, key: Hashable, options: frozenset[ir.DataType], at: str) -> None:
        """Take from a class all dtypes but these."""
        root = self.root(key)
        self._options[root] = self.options(root) & options
        if not self._options[root]:
            raise CannotGrow(f"no dtype is taken by all operators around {at}")

    def unite(self, one: Hashable, other: Hashable, at: str) -> None:
        """Make one class of two."""
        above, below = self.root(other), self.root(one)
        if above != below:
            options = self.options(below)
            self._above[below] = above
            self.restrict(above, options, at)
