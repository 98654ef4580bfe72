"""Patterns with repetition and bodies: layers in a row, the bodies of Loop, Scan and If, values of outer scopes.

A pattern for 28 layers says what one of them is and what it takes from the one before::

    x, w = Var("x"), Const("w")
    layers = Repeat(op.Relu(op.MatMul(x, w)), x, times=28)

``match.layers(layers)`` are 28 matches, the first layer first, each with a ``w`` of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxrewrite.pattern.terms import Attr, Capture, Operands, Part, Term


class Repeat(Term):
    """Layers in a row, each of which takes what the one before it gives; it stands for what the last one gives.

    ``match.layers(repeat)`` are the matches of the layers, the first one first.  Captures of a layer are bound anew in
    each, but for those in ``shared``, which must be the same everywhere.  What is carried is outside of the layers what
    the first of them takes.

    Args:
        block: What a layer gives.
        carry: What it takes from the layer before: a capture that stands for its ``block``; where several values are
            carried, the captures and the terms that they stand for, one of which is ``block``.
        times: The number of layers; without it, as many as there are.
        shared: Terms, with all below them, and attributes that are the same in all layers.
        at_least: There must be so many, where ``times`` does not say how many.
    """

    def __init__(
        self,
        block: Term,
        carry: Capture | Mapping[Capture, Term],
        *,
        times: int | None = None,
        shared: Sequence[Term | Attr[Any]] = (),
        at_least: int = 2,
    ):
        self.block = block
        self.carry = dict(carry) if isinstance(carry, Mapping) else {carry: block}
        self.times = times
        self.shared = tuple(shared)
        self.at_least = max(at_least, 1) if times is None else times
        if block not in self.carry.values():
            raise ValueError("one of the values that a Repeat carries must be what its block gives")
        if times is not None and times < 1:
            raise ValueError(f"a Repeat has one layer at least, not {times}")

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms directly below: what a layer gives."""
        return (self.block, *(t for t in self.carry.values() if t is not self.block))

    def _written(self, below: Callable[[Term], str]) -> str:
        carried = ", ".join(
            name.name if term is self.block else f"{name.name}={below(term)}" for name, term in self.carry.items()
        )
        times = "" if self.times is None else f", times={self.times}"
        return f"Repeat({below(self.block)}, {carried}{times})"


class Body(Part):
    """The graph that a node has for an attribute, given for that: ``op.Scan(h, x, body=Body([h1, y], [h0, x0]))``.

    Terms of the body and of the graph around it may share captures: what both read is a value of the graph around.

    Args:
        outputs: A term for each output; a last ``Each`` takes the rest.
        inputs: A capture for each input; likewise.
    """

    def __init__(self, outputs: Sequence[Term | Operands], inputs: Sequence[Capture | Operands] = ()):
        self.outputs = tuple(outputs)
        self.inputs = tuple(inputs)

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms of its outputs and inputs."""
        return tuple(t for t in (*self.outputs, *self.inputs) if isinstance(t, Term))

    def __repr__(self) -> str:
        return f"Body([{', '.join(map(repr, self.outputs))}], [{', '.join(map(repr, self.inputs))}])"


class Outer(Term):
    """A value of a graph around the one that reads it, which matches ``of`` there.

    A pattern does not go from a body to what is computed outside of it unless this says so.  The nodes outside are not
    covered: they stay where they are.
    """

    def __init__(self, of: Term):
        self.of = of

    @property
    def parts(self) -> tuple[Term, ...]:
        """The term of the value."""
        return (self.of,)

    def _written(self, below: Callable[[Term], str]) -> str:
        return f"Outer({below(self.of)})"
