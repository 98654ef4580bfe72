"""Rules by code: patterns that nearly match the graphs of ``graphs.py``, for us and for ``onnxscript.rewriter``.

A pattern is a piece of one of those graphs, 2 to 7 operators around a random node, with one thing changed at its far
end: another constant, another attribute, an operator that does not occur there.  So it matches nowhere, and finding
that out takes the way that a real rule of a real library takes: most of them fail at the first operator or two, some
at the last.  Since anchors are drawn as often as operators occur, no index by operator gets rid of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import pattern as peer

from benchmarks import graphs
from onnxrewrite.rules import Builder, Const, Match, Rule, Stage, Term, Value, Var, any_of, op

_SAMPLE = 3000
"""Patterns are cut out of graphs of so many nodes."""

_MOST = 7
"""Operators in a pattern."""

_FOREIGN = "Mish Celu Selu Elu Sinh Cosh Atan Softsign Softplus HardSigmoid HardSwish Ceil Sin Cos".split()
_FOREIGN_PAIR = "Mod PRelu Min BitShift MatMulInteger".split()
"""Operators that occur in no graph, of one operand and of two."""


# -- formulas: what both matchers are given --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Anything:
    """Any value, the same one wherever the object is used; ``constant`` where we ask for a constant."""

    name: str
    constant: bool = False


@dataclass(frozen=True)
class Number:
    """A scalar constant."""

    value: float


@dataclass(frozen=True, eq=False)
class Node:
    """One operator; ``algebraic`` where our pattern says ``a * b`` and not ``op.Mul(a, b)``."""

    op_type: str
    operands: tuple[Formula | None, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    algebraic: bool = False


@dataclass(frozen=True, eq=False)
class Either:
    """One of several."""

    alternatives: tuple[Node, ...]


Formula: TypeAlias = Anything | Number | Node | Either


def formulas(count: int, seed: int = 0) -> list[Node]:
    """Different formulas, none of which occurs in a graph of ``graphs.KINDS``."""
    cutter = _Cutter(seed)
    found: dict[str, Node] = {}
    while len(found) < count:
        formula = cutter.cut()
        if formula is not None:
            found.setdefault(repr(as_term(formula)), formula)
    return list(found.values())


class _Cutter:
    """Cuts pieces out of graphs and spoils them."""

    def __init__(self, seed: int):
        self.dice = np.random.default_rng(seed)
        self.samples = [list(make(_SAMPLE, seed).graph) for make in graphs.KINDS.values()]
        nodes = [n for sample in self.samples for n in sample]
        self.arity = {n.op_type: len(n.inputs) for n in nodes}
        self.seen = {(n.op_type, p.op_type) for n in nodes for v in n.inputs if (p := _producer(v)) is not None}

    def cut(self) -> Node | None:
        """A spoilt piece; None where there was too little to cut."""
        sample = self.samples[self.dice.integers(len(self.samples))]
        root = sample[self.dice.integers(len(sample))]
        depths = self._piece(root, int(self.dice.integers(2, _MOST + 1)))
        if len(depths) < 2:
            return None
        far = max(depths, key=lambda n: (depths[n], self.dice.random()))
        either = list(depths)[self.dice.integers(1, len(depths))] if self.dice.random() < 0.15 else None
        made: dict[ir.Value, Formula] = {}

        def formula(value: ir.Value | None, parent: str) -> Formula | None:
            if value is None:
                return None
            if value not in made:
                made[value] = self._leaf(value, len(made))
                node = _producer(value)
                if node is not None and node in depths:
                    made[value] = operation(node, parent)
            return made[value]

        def operation(node: ir.Node, parent: str) -> Formula:
            operands = tuple(formula(v, node.op_type) for v in node.inputs)
            result = self._node(node, operands)
            if node is far:
                result = self._spoilt(result, node, parent)
            if node is either:
                return Either((result, Node(self._choice(_FOREIGN), operands[:1])))
            return result

        whole = operation(root, "")
        return whole if isinstance(whole, Node) else None

    def _piece(self, root: ir.Node, size: int) -> dict[ir.Node, int]:
        """Up to ``size`` nodes that the root is computed by, to their distance from it."""
        depths = {root: 0}
        while len(depths) < size:
            border = {p: n for n in depths for v in n.inputs if (p := _producer(v)) is not None and p not in depths}
            if not border:
                break
            chosen = list(border)[self.dice.integers(len(border))]
            depths[chosen] = depths[border[chosen]] + 1
        return depths

    def _leaf(self, value: ir.Value, number: int) -> Formula:
        tensor = value.const_value
        if tensor is not None and tensor.size == 1 and tensor.dtype == ir.DataType.FLOAT:
            return Number(float(tensor.numpy().item()))
        return Anything(f"x{number}", constant=tensor is not None and self.dice.random() < 0.5)

    def _node(self, node: ir.Node, operands: tuple[Formula | None, ...]) -> Node:
        """The node itself; about half of its attributes are asked for."""
        asked = [(a.name, a.value) for a in node.attributes.values() if self.dice.random() < 0.5]
        return Node(node.op_type, operands, tuple(asked), node.op_type in _ALGEBRA and self.dice.random() < 0.6)

    def _spoilt(self, formula: Node, node: ir.Node, parent: str) -> Node:
        """The same with one thing changed."""
        numbers = [i for i, o in enumerate(formula.operands) if isinstance(o, Number)]
        ways: list[Callable[[], Node]] = [lambda: self._foreign(formula)]
        if numbers:
            ways += [lambda: self._other_number(formula, numbers[0])] * 3
        if node.attributes:
            ways += [lambda: self._other_attribute(formula, node)] * 2
        unseen = [o for o, n in self.arity.items() if n == len(node.inputs) and (parent, o) not in self.seen]
        unseen = [o for o in unseen if o not in _ALGEBRA and o != "Identity"]
        if unseen and parent not in _ALGEBRA:
            ways += [lambda: Node(self._choice(unseen), formula.operands)] * 2
        return ways[self.dice.integers(len(ways))]()

    def _other_number(self, formula: Node, place: int) -> Node:
        operands = list(formula.operands)
        operands[place] = Number(float(np.float32(self.dice.uniform(1.01, 9.99))))
        return replace(formula, operands=tuple(operands))

    def _other_attribute(self, formula: Node, node: ir.Node) -> Node:
        name = self._choice(list(node.attributes))
        value = node.attributes[name].value
        kept = tuple(each for each in formula.attributes if each[0] != name)
        other: Any = [v + 4 for v in value] if isinstance(value, list | tuple) else value + 11
        return replace(formula, attributes=(*kept, (name, other)))

    def _foreign(self, formula: Node) -> Node:
        if len(formula.operands) == 2:
            return Node(self._choice(_FOREIGN_PAIR), formula.operands)
        return Node(self._choice(_FOREIGN), formula.operands[:1])

    def _choice(self, names: list[str]) -> str:
        return names[self.dice.integers(len(names))]


def _producer(value: ir.Value | None) -> ir.Node | None:
    """The node that computes a value, behind Identities."""
    node = value.producer() if value is not None else None
    while node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node


# -- for us ----------------------------------------------------------------------------------------------------------

_ALGEBRA: dict[str, Callable[..., Term]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Pow": lambda a, b: a**b,
    "Neg": lambda a: -a,
    "Sqrt": lambda a: op.Sqrt(a),
}


def synthetic_rules(count: int, seed: int = 0) -> list[Rule]:
    """``formulas`` as rules of ours."""
    return [
        Rule(name=f"synthetic-{number:04}", stage=Stage.CANONICALIZE, pattern=as_term(formula), rewrite=_never)
        for number, formula in enumerate(formulas(count, seed))
    ]


def as_term(formula: Node) -> Term:
    """A formula as a pattern of ours; what is one object in it becomes one object."""
    made: dict[int, Any] = {}

    def build(part: Formula | None) -> Any:
        match part:
            case None:
                return None
            case Number(value=value):
                return value
            case _ if id(part) in made:
                return made[id(part)]
            case Anything(name=name, constant=constant):
                result: Term = Const(name) if constant else Var(name)
            case Either(alternatives=alternatives):
                result = any_of(*map(build, alternatives))
            case Node(op_type=op_type, operands=operands, attributes=attributes, algebraic=algebraic):
                below = [build(o) for o in operands]
                if algebraic and any(isinstance(o, Term) for o in below):
                    result = _ALGEBRA[op_type](*below)
                else:
                    result = getattr(op, op_type)(*below, **{k: _plain(v) for k, v in attributes})
        made[id(part)] = result
        return result

    whole = build(formula)
    assert isinstance(whole, Term)
    return whole


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def _never(m: Match, build: Builder) -> Value:
    """Nothing ⟶ nothing, for the pattern is to match nowhere."""
    m.refuse("a synthetic pattern is not to match")


# -- for onnxscript --------------------------------------------------------------------------------------------------


def peer_rules(count: int, seed: int = 0) -> list[peer.RewriteRule]:
    """The same ``formulas`` as rules of ``onnxscript.rewriter``.

    Its patterns are literal: ``RewriteRuleSet(rules, commute=True)`` makes it try both orders of every Add, Mul and so
    on, which is the nearest that it has to what our patterns mean; it knows nothing of chains, reciprocals or squares.
    Nor does it ask whether an operand is constant, but in a condition.
    """
    return [_peer_rule(formula, f"synthetic-{number:04}") for number, formula in enumerate(formulas(count, seed))]


def _peer_rule(formula: Node, name: str) -> peer.RewriteRule:
    names: dict[str, None] = {}
    _collect(formula, names)

    def pattern(op: Any, *values: Any) -> Any:
        bound = dict(zip(names, values, strict=True))
        made: dict[int, Any] = {}

        def build(part: Formula | None) -> Any:
            match part:
                case None:
                    return None
                case Number(value=value):
                    return value
                case Anything(name=name):
                    return bound[name]
                case _ if id(part) in made:
                    return made[id(part)]
                case Either(alternatives=alternatives):
                    result = peer.OrValue([build(a) for a in alternatives])
                case Node(op_type=op_type, operands=operands, attributes=attributes):
                    result = getattr(op, op_type)(*map(build, operands), **{k: _listed(v) for k, v in attributes})
            made[id(part)] = result
            return result

        return build(formula)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    pattern.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in ("op", *names)])  # type: ignore[attr-defined]
    return peer.RewriteRule(pattern, _never_peer, name=name)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


def _collect(part: Formula | None, names: dict[str, None]) -> None:
    match part:
        case Anything(name=name):
            names[name] = None
        case Node(operands=below) | Either(alternatives=below):
            for each in below:
                _collect(each, names)


def _never_peer(op: Any, **_: Any) -> None:
    raise AssertionError("a synthetic pattern is not to match")
