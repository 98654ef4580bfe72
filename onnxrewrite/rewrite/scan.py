"""Scans on the tape: a body that a rule writes as a function of what one step has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import onnx_ir as ir

from onnxrewrite.ir.dims import Dim
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.match import Refused

if TYPE_CHECKING:
    from onnxrewrite.rewrite.build import Builder

Values: TypeAlias = Sequence[ir.Value]

Step: TypeAlias = "Callable[[Builder, Values, Values], tuple[Values, Values]]"
"""One step: given a tape, the states and the slices of the sequences, the new states and what is put out."""


def scan(
    build: Builder,
    facts: Facts,
    step: Step,
    states: Values,
    sequences: Sequence[tuple[ir.Value, int]],
    axes: Sequence[int],
) -> tuple[ir.Value, ...]:
    """See ``Builder.scan``."""
    taken = [
        *(_formal(facts.shape(v), v, None) for v in states),
        *(_formal(facts.shape(v), v, a) for v, a in sequences),
    ]
    inner = build.inside()
    new, out = step(inner, taken[: len(states)], taken[len(states) :])
    made = {o for n in inner.nodes for o in n.outputs}
    results = list[ir.Value]()
    for value in (*new, *out):  # a body gives what it has computed, each once
        results.append(value if value in made and value not in results else inner.Identity(value))
    body = ir.Graph(taken, results, nodes=inner.nodes, name="step")
    for number, value in enumerate(_named(body)):
        value.name = f"step {number}"
    parameters: dict[str, object] = {
        "num_scan_inputs": len(sequences),
        "scan_input_axes": [axis for _, axis in sequences],
    }
    steps = facts.shape(sequences[0][0])
    length = None if steps is None else steps[sequences[0][1]]
    found = build.with_body("Scan", [*states, *(v for v, _ in sequences)], parameters, {"body": body}, len(results))
    for place, (value, like) in enumerate(zip(found, results, strict=True)):
        shape = facts.shape(like)
        value.type = like.type
        if shape is not None and place < len(new):
            value.shape = ir.Shape(shape)
        elif shape is not None and length is not None:
            value.shape = ir.Shape([length, *shape])
    # Joined along another axis than the first, an empty result ends ONNX Runtime's process by a division by zero.
    joined = (_moved(build, value, axis) for value, axis in zip(found[len(new) :], axes, strict=True))
    return (*found[: len(new)], *joined)


def _moved(build: Builder, value: ir.Value, axis: int) -> ir.Value:
    """A value whose first axis is moved to another place."""
    rank = len(value.shape) if value.shape is not None else 0
    if axis == 0:
        return value
    if not rank:
        raise Refused(f"the rank of what a step puts out is not known, and it is joined along axis {axis}")
    return build.Transpose(value, perm=[*range(1, axis + 1), 0, *range(axis + 1, rank)])


def _named(body: ir.Graph) -> list[ir.Value]:
    return [*body.inputs, *(o for n in body for o in n.outputs)]


def _formal(shape: Sequence[Dim] | None, value: ir.Value, axis: int | None) -> ir.Value:
    """An input of a body: a state, or the slice of a sequence along an axis."""
    if shape is None or value.type is None:
        raise Refused(f"the shape of `{value.name}` is not known")
    dims = [d for place, d in enumerate(shape) if place != axis]
    return ir.Value(type=value.type, shape=ir.Shape(dims))
