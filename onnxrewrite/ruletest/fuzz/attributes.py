"""Legal values for attributes, given what a node reads: no schema says which axes, windows and words there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.schema import AttributeValue
from onnxrewrite.ruletest.fuzz.operand_position import DoesNotFit, Shape, Spot
from onnxrewrite.ruletest.fuzz.operands import axes_of
from onnxrewrite.ruletest.metamorphic.mutations import words

Drawn: TypeAlias = "Callable[[Spot], AttributeValue]"

EQUATIONS = {
    1: ("ij->ji", "ijk->ikj", "ij->i", "...ij->...ji"),
    2: (
        "ij,jk->ik",
        "ij,kj->ik",
        "ji,jk->ik",
        "bij,bjk->bik",
        "bij,bkj->bik",
        "bhid,bhjd->bhij",
        "i,j->ij",
        "ij,ij->ij",
    ),
}
"""Equations of Einsum by the number of operands."""


def drawn(spot: Spot, formal: schema.Attribute) -> AttributeValue:
    """A legal value for an attribute.

    Raises:
        DoesNotFit: There is none, for such operands.
    """
    own = _BY_NAME.get(formal.name)
    if own is not None and formal.type not in (ir.AttributeType.TENSOR, ir.AttributeType.GRAPH):
        return own(spot)
    match formal.type:
        case ir.AttributeType.INT:
            return spot.rng.choice((0, 1) if formal.name in schema.FLAGS else (1, 2, 0, 3))
        case ir.AttributeType.FLOAT:
            return round(spot.rng.choice((1, 1, 1, -1)) * spot.rng.uniform(0.05, 2.0), 3)
        case ir.AttributeType.STRING:
            return spot.rng.choice(words(spot.node.op_type, formal.name) or (formal.default,))
    return None


def _axis(s: Spot) -> int:
    rank = len(s.of(0)) + (s.node.op_type == "Flatten") + (s.node.op_type == "OneHot")
    if not rank:
        raise DoesNotFit("no axes")
    return s.rng.choice((s.rng.randrange(-rank, rank), rank - 1, -1, 0))


def _axes(s: Spot) -> list[int]:
    if s.node.op_type == "Squeeze":
        ones = [axis for axis, size in enumerate(s.of(0)) if size == 1]
        if not ones:
            raise DoesNotFit("no axis of size 1")
        return [s.rng.choice(ones)]
    if s.node.op_type == "Unsqueeze":
        return [s.rng.randint(0, len(s.of(0)))]
    if s.node.op_type == "Slice":
        return [s.rng.randrange(max(1, len(s.of(0))))]
    return axes_of(len(s.of(0)), s.rng)


def _perm(s: Spot) -> list[int]:
    order = list(range(len(s.of(0))))
    if not order:
        raise DoesNotFit("no axes")
    ways = [order[::-1], s.rng.sample(order, len(order)), s.rng.sample(order, len(order)), order[1:] + order[:1]]
    if len(order) > 1:
        ways.append([*order[:-2], order[-1], order[-2]])
    return s.rng.choice(ways)


def _window(s: Spot) -> list[int]:
    if s.node.op_type in ("Conv", "ConvTranspose"):
        return list(s.of(1)[2:])
    return [s.rng.randint(1, max(1, min(3, d))) for d in s.spatial()]


def _steps(s: Spot) -> list[int]:
    spatial = s.spatial()
    return s.rng.choice(([1] * len(spatial), [2] * len(spatial), [s.rng.choice((1, 2)) for _ in spatial]))


def _pads(s: Spot) -> list[int]:
    if s.node.op_type == "Pad":
        rank = len(s.of(0))
        begin = [0 if axis < min(rank - 1, 2) else s.rng.choice((0, 1, 2)) for axis in range(rank)]
        return [*begin, *(begin if s.rng.random() < 0.5 else [s.rng.choice((0, 1)) if n else 0 for n in begin])]
    count = len(s.spatial())
    return s.rng.choice(([0] * (2 * count), [1] * (2 * count), [s.rng.choice((0, 1)) for _ in range(2 * count)]))


def _group(s: Spot) -> int:
    channels = s.of(0)[1] if len(s.of(0)) > 2 else 1
    divisors = [d for d in range(1, channels + 1) if channels % d == 0]
    return s.rng.choice((1, s.rng.choice(divisors or [1])))


def _block(s: Spot) -> int:
    if len(s.of(0)) != 4:
        raise DoesNotFit("no image")
    _, channels, height, width = s.of(0)
    sizes = [
        b
        for b in (2, 3, 1)
        if (not channels % (b * b) if s.node.op_type == "DepthToSpace" else not (height % b or width % b))
    ]
    return s.rng.choice(sizes[:1] * 3 + sizes)


def _equation(s: Spot) -> str:
    found = [e for e in EQUATIONS.get(len(s.shapes), ()) if _fits(e, s.shapes)]
    if not found:
        raise DoesNotFit("no equation")
    return s.rng.choice(found)


def _fits(equation: str, shapes: Sequence[Shape | None]) -> bool:
    sizes: dict[str, int] = {}
    for letters, shape in zip(equation.partition("->")[0].split(","), shapes, strict=True):
        if shape is None:
            continue
        if "." not in letters and len(letters) != len(shape):
            return False
        for letter, size in zip(reversed(letters.replace(".", "")), reversed(shape), strict=False):
            if sizes.setdefault(letter, size) != size:
                return False
    return True


def _heads(s: Spot) -> int:
    return s.rng.choice([d for d in (1, 2, 3, 4) if s.of(0, 1)[-1] % d == 0] or [1])


def _outputs(s: Spot) -> int:
    return max(1, len(s.node.outputs))


def _kind(s: Spot) -> float:
    """The p of a norm."""
    return s.rng.choice((1, 2))


_BY_NAME: dict[str, Drawn] = {
    "axis": _axis, "axes": _axes, "perm": _perm, "kernel_shape": _window, "strides": _steps, "dilations": _steps,
    "pads": _pads, "group": _group, "num_groups": _group, "blocksize": _block, "equation": _equation,
    "num_outputs": _outputs,
    "num_heads": _heads, "q_num_heads": _heads, "kv_num_heads": _heads, "p": _kind,
    "epsilon": lambda s: s.rng.choice((1e-5, 1e-6, 1e-12, 1e-3)),
    "scale": lambda s: s.rng.choice((1.0, 0.5, 1 / math.sqrt(max(1, s.of(0)[-1] if s.of(0) else 1)))),
    "hidden_size": lambda s: 2,
    "starts": lambda s: [s.rng.choice((0, 1, -1))], "ends": lambda s: [s.rng.choice((2, 3, 2**31 - 1))],
    "repeats": lambda s: [s.rng.choice((1, 2)) for _ in s.of(0)],
    "fmod": lambda s: s.rng.choice((0, 1)),
    "stash_type": lambda s: 1,
}  # fmt: skip
