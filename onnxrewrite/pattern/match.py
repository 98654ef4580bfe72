"""A match: what a pattern's terms were bound to, as the rewrite sees it.

This module knows the graph through ``Facts`` only, and nothing about how matches are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar, overload

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxrewrite.ir import schema, views
from onnxrewrite.ir.facts import Dim, Facts, same_shape
from onnxrewrite.pattern import numbers, paths
from onnxrewrite.pattern.blocks import Repeat
from onnxrewrite.pattern.look import called
from onnxrewrite.pattern.terms import AnyNode, AnyOf, Attr, Call, Capture, Const, Each, Scalar, Term

T = TypeVar("T")
Array = npt.NDArray[Any]


class Refused(Exception):
    """A rewrite may not be applied.

    Attributes:
        reason: The reason in words.
        at: The value that is to blame, if it is one.
        held: The number of the rule's preconditions that held before; None if it is the engine that refuses.
    """

    def __init__(self, reason: str, at: ir.Value | None = None, held: int | None = None):
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.held = held


_OVERRULED = ContextVar("_OVERRULED", default=False)


@contextmanager
def overruled() -> Iterator[None]:
    """Let every precondition pass: inside, ``Match.require`` and ``Match.refuse`` do nothing, in this thread.

    It is for asking whether a guard is needed.  What rules make then may be wrong, and one that relies on ``refuse``
    not to return may raise.
    """
    token = _OVERRULED.set(True)
    try:
        yield
    finally:
        _OVERRULED.reset(token)


class Binding:
    """The state of the matcher: bound terms, the nodes they cover, and what a longer chain has left over.

    Bindings are never changed, only extended into new ones, so that backtracking forgets nothing.
    """

    __slots__ = ("bound", "nodes", "remainder")

    def __init__(
        self,
        bound: dict[Any, Any] | None = None,
        nodes: tuple[ir.Node, ...] = (),
        remainder: tuple[tuple[ir.Value, str], ...] = (),
    ):
        self.bound: dict[Any, Any] = bound if bound is not None else {}
        self.nodes = nodes
        self.remainder = remainder

    def bind(self, term: Any, to: Any) -> Binding:
        """The binding that also binds ``term``."""
        return Binding({**self.bound, term: to}, self.nodes, self.remainder)

    def cover(self, *nodes: ir.Node) -> Binding:
        """The binding that also covers ``nodes``."""
        new = tuple(dict.fromkeys(n for n in nodes if n not in self.nodes))
        return Binding(self.bound, self.nodes + new, self.remainder) if new else self


def _is_row(term: object) -> bool:
    """True for what is bound to matches that carry something from one to the next."""
    return (isinstance(term, Each) and bool(term.carry)) or (isinstance(term, tuple) and term[1] == "layers")


class Match:
    """A place where a pattern applies, and the bindings of its captures there.

    Attributes:
        facts: The facts about the values around.
        anchor: The value at which the pattern was found.
        outputs: The values that the pattern's outputs stand for, which the rewrite replaces.
        nodes: The nodes that the pattern covers, the anchor's first.
        remainder: Operands that a longer ``+`` or ``*`` chain has left over, each with the operator that puts it back.
    """

    def __init__(self, facts: Facts, outputs: Sequence[ir.Value], binding: Binding):
        self.facts = facts
        self.anchor = outputs[0]
        self.outputs = tuple(outputs)
        self.nodes = binding.nodes
        self.remainder = binding.remainder
        self._bound = binding.bound
        self._held = 0
        self._read: set[ir.Node] = set()

    # -- what was bound --------------------------------------------------------------------------------------

    # A constant is a value of the graph, too, but what a rewrite wants of it is the number.
    @overload
    def __getitem__(self, term: Const) -> Array: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self, term: Scalar) -> float: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self, term: Attr[T]) -> T: ...
    @overload
    def __getitem__(self, term: Each[Any]) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, term: Term) -> ir.Value: ...

    def __getitem__(self, term: Any) -> Any:
        """The binding of a term: a value; for ``Const`` an array, for ``Scalar`` a number, for ``Attr`` the attribute.

        Floating-point constants come in float64, so that what is computed from them is rounded once.
        """
        bound = self._bound[term]
        if isinstance(term, Const):
            return self._array(bound)
        if isinstance(term, Call) and isinstance(bound, ir.Node):
            return bound.outputs[0]
        return bound

    def __contains__(self, term: Any) -> bool:
        """True if a term was bound to something that is there, rather than to its default."""
        if term not in self._bound:
            return False
        return not (isinstance(term, Capture | Attr) and self._bound[term] is term.default)

    def value(self, term: Term) -> ir.Value | None:
        """The value behind a term, also for a constant; None where it was bound to a default or a number."""
        bound = self._bound.get(term)
        if isinstance(bound, ir.Node):
            return bound.outputs[0]
        return bound if isinstance(bound, ir.Value) else None

    def bindings(self) -> Iterator[tuple[Any, Any]]:
        """Every term and what it was bound to, also of the matches that an ``Each`` or a ``Repeat`` is made of."""
        for term, bound in self._bound.items():
            yield term, bound
            for inner in bound if isinstance(bound, tuple) else ():
                if isinstance(inner, Match):
                    yield from inner.bindings()

    def node(self, call: Call | AnyNode) -> ir.Node:
        """The node that a call was bound to."""
        bound = self._bound[call]
        node = bound.producer() if isinstance(bound, ir.Value) else bound
        assert isinstance(node, ir.Node)
        self._read.add(node)
        return node

    def alternative(self, term: AnyOf) -> Term:
        """The alternative by which a term was matched."""
        found: Term = self._bound[term, "alternative"]
        return found

    def layers(self, term: Repeat) -> tuple[Match, ...]:
        """The matches of the layers that a term was matched by, the first layer first."""
        found: tuple[Match, ...] = self._bound[term, "layers"]
        return found

    def call(self, term: Term) -> Call:
        """The operator by which a term was matched that has several."""
        found = self._bound[term, "alternative"]
        assert isinstance(found, Call)
        return found

    def attrs(self, call: Call | AnyNode) -> dict[str, Any]:
        """The attributes of a node, as keywords for the node that replaces it."""
        return {name: schema.attribute(self.node(call), name, None) for name in self.node(call).attributes}

    def attr(self, call: Call | AnyNode, name: str) -> Any:
        """One attribute of a node, or the schema's default: the oldest schema's where the model's opset has none."""
        node = self.node(call)
        version = self.facts.version(node)
        return schema.attribute(node, name, schema.oldest_version(node.domain, node.op_type, version) or version)

    def attribute_names(self, call: Call | AnyNode) -> list[str]:
        """The names of all attributes that a node's operator has, sorted."""
        node = self.node(call)
        found = schema.schema(node.domain, node.op_type, self.facts.version(node))
        return sorted(found.attributes) if found is not None else []

    # -- nodes in normalized form ----------------------------------------------------------------------------

    def operand(self, node: ir.Node, index: int = 0) -> ir.Value:
        """An input of a node, which has to be there."""
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is None:
            self.refuse(f"{node.op_type} lacks its input {index}")
        return value

    def made_by(self, value: ir.Value, *op_types: str, because: str) -> ir.Node:
        """The node that computes a value, behind Identities; refuses, ``because``, any but these standard operators."""
        node = paths.made_by(value, *op_types)
        if node is None:
            self.refuse(because, at=value)
        return node

    def axis(self, node: ir.Node, rank: int | None) -> int:
        """The ``axis`` of a node, counted from the front of ``rank`` axes; refuses if it cannot be told."""
        return self._known(views.axis_of(self.facts, node, rank))

    def unit_axes(self, node: ir.Node) -> tuple[int, ...]:
        """The axes that a Squeeze takes out, or an Unsqueeze puts in; refuses if they are not known."""
        return self._known(views.unit_axes(self.facts, node))

    def slice(self, node: ir.Node) -> views.Slice:
        """A Slice of any opset; refuses if its bounds are not constant, or its axes cannot be told."""
        return self._known(views.slice_of(self.facts, node), at=node.outputs[0])

    def piece(self, value: ir.Value, axis: int) -> range:
        """The elements of an axis that a Slice of that axis alone, or a Split, takes; refuses if they are not known."""
        found = self._known(views.piece_of(self.facts, value), at=value)
        self.require(found.axis == axis, "it is a piece along another axis", at=value)
        return found.elements

    def _known(self, found: T | str, at: ir.Value | None = None) -> T:
        if isinstance(found, str):
            self.refuse(found, at)
        return found

    def is_newer(self, call: Call) -> bool:
        """True if a node is written for a newer opset than the model's, so that it has to be lowered."""
        node = self._bound[call]
        return isinstance(node, ir.Node) and self.facts.is_newer(node)

    # -- what is known about it ------------------------------------------------------------------------------

    def dtype(self, term: Term | ir.Value) -> ir.DataType | None:
        """The element type of a term's value; None when unknown."""
        value = self._value(term)
        return None if value is None else self.facts.dtype(value)

    def shape(self, term: Term | ir.Value) -> tuple[Dim, ...] | None:
        """The dimensions of a term's value; None when unknown."""
        value = self._value(term)
        return None if value is None else self.facts.shape(value)

    def rank(self, term: Term | ir.Value) -> int | None:
        """The number of dimensions of a term's value; None when unknown."""
        shape = self.shape(term)
        return None if shape is None else len(shape)

    def dim(self, term: Term | ir.Value, axis: int) -> Dim | None:
        """One dimension of a term's value; None when the rank is unknown or too small."""
        shape = self.shape(term)
        return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]

    def cover(self, *nodes: ir.Node) -> None:
        """Take further nodes into the match, which the rewrite has found by looking up from those of the pattern."""
        self.nodes = tuple(dict.fromkeys((*self.nodes, *nodes)))

    def widen(self, nodes: Sequence[ir.Node], outputs: Sequence[ir.Value] | None = None) -> None:
        """Cover ``nodes`` too, and replace ``outputs`` instead of the pattern's own, or all that the nodes have: for a
        rewrite of a region around the anchor, of a size that no pattern can spell."""
        self.nodes = tuple(dict.fromkeys((*self.nodes, *nodes)))
        self.outputs = tuple(outputs if outputs is not None else (o for n in nodes for o in n.outputs))

    # -- preconditions ---------------------------------------------------------------------------------------

    def require(self, condition: object, reason: str, at: Term | ir.Value | None = None) -> None:
        """Refuse the match, for ``reason``, unless ``condition`` holds.  ``at`` names the value that is to blame."""
        if not condition:
            self.refuse(reason, at)
        self._held += 1

    def known(self, value: T | None, reason: str, at: Term | ir.Value | None = None) -> T:
        """A value that is not None; where it is, the match is refused for ``reason``."""
        self.require(value is not None, reason, at)
        if value is None:
            raise Refused(reason)  # whoever overrules preconditions cannot go on with what is not there
        return value

    def refuse(self, reason: str, at: Term | ir.Value | None = None) -> NoReturn:
        """Refuse the match."""
        if _OVERRULED.get():
            return  # type: ignore[misc]
        value = None if at is None else self._value(at)
        where = "" if value is None or not value.name else f" (at `{value.name}`)"
        raise Refused(f"{reason}{where}", value, self._held)

    def require_same_shape(self, out: Term | ir.Value, source: Term | ir.Value) -> None:
        """Refuse unless the two values are shown to have one shape."""
        known = self.shape(out), self.shape(source)
        shown = " and ".join("unknown" if s is None else f"[{', '.join(map(str, s))}]" for s in known)
        self.require(same_shape(*known), f"the shapes are not shown to be the same: {shown}", at=source)

    def require_one_number(self, term: Term) -> None:
        """Refuse a value, such as a scale, that is there and may have several elements."""
        value = self.value(term)
        one = value is None or self.shape(value) in ((), (1,))
        self.require(one, f"{term!r} is not known to be one number", at=value)

    def overlooked(self, mentioned: Mapping[Call, frozenset[str]]) -> str | None:
        """An attribute off its default that neither the pattern mentions nor the rewrite has read, told as a reason."""
        layers: Iterator[Match] = (m for t, bound in self._bound.items() if _is_row(t) for m in bound)
        for layer in layers:
            told = layer.overlooked(mentioned)
            if told is not None:
                return told
        for call, names in mentioned.items():
            node = self._bound[call] if self.overlooks(call) else None
            if node is None:
                continue
            found = schema.schema(node.domain, node.op_type, self.facts.version(node))
            for name in node.attributes:
                default = found.attributes[name].default if found is not None and name in found.attributes else None
                actual = schema.attribute(node, name, None)
                if name not in names and default not in views.spellings(node, name, actual):
                    return f"the rule does not consider {name}={actual!r} of {called(node)}"
        return None

    def overlooks(self, call: Call) -> bool:
        """True if the rewrite has not looked at the node that a call was bound to."""
        node = self._bound.get(call)
        return isinstance(node, ir.Node) and node not in self._read

    def _value(self, term: Term | ir.Value) -> ir.Value | None:
        return term if isinstance(term, ir.Value) else self.value(term)

    def _array(self, bound: Any) -> Array:
        return numbers.array(self.facts, bound) if isinstance(bound, ir.Value) else np.asarray(bound)
