"""Transposes in two, in pairs, and on the other side of elementwise operators."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script

_UNARY = "Relu Sigmoid Tanh Erf Exp Neg Sqrt Abs Gelu HardSwish HardSigmoid Reciprocal Identity"
_BINARY = "Add Sub Mul Div Max Min Pow"


def _perm(s: Script, node: ir.Node) -> list[int] | None:
    rank = s.rank(node.inputs[0])
    if rank is None:
        return None
    return list(node.attributes.get_ints("perm", tuple(reversed(range(rank)))))


def _inverse(perm: Sequence[int]) -> list[int]:
    return [list(perm).index(i) for i in range(len(perm))]


@spelling("Transpose")
def transpose_in_two(s: Script) -> bool:
    """One Transpose as two, an exchange of two axes the second."""
    perm = _perm(s, s.place)
    if perm is None or len(perm) < 3:
        return False
    a, b = s.rng.sample(range(len(perm)), 2)
    first, second = list(perm), list(range(len(perm)))
    first[a], first[b] = first[b], first[a]
    second[a], second[b] = b, a
    return s.put(s.new("Transpose", s.new("Transpose", s.place.inputs[0], perm=first), perm=second))


@spelling("Add", "Mul", "Relu", "MatMul", "Softmax", "Sigmoid", "Tanh", "Conv")
def pair_between(s: Script) -> bool:
    """An operand through a Transpose and the one that undoes it."""
    found = [i for i, v in enumerate(s.place.inputs) if not s.is_constant(v) and (s.rank(v) or 0) > 1]
    if not found:
        return False
    x = s.place.inputs[index := s.rng.choice(found)]
    perm = list(range(s.rank(x) or 0))
    while perm == sorted(perm):
        s.rng.shuffle(perm)
    return s.operand(index, s.new("Transpose", s.new("Transpose", x, perm=perm), perm=_inverse(perm)))


@spelling(*_UNARY.split(), *_BINARY.split())
def in_another_frame(s: Script) -> bool:
    """An elementwise operator between Transposes: of its operands, and back."""
    node = s.place
    rank = s.rank(node.outputs[0])
    whole = [i for i, v in enumerate(node.inputs) if s.rank(v) == rank]
    numbers = [i for i, v in enumerate(node.inputs) if s.number(v) is not None and s.rank(v) == 0]
    if rank is None or rank < 2 or len(whole) + len(numbers) != len(node.inputs):
        return False
    perm = list(range(rank))
    while perm == sorted(perm):
        s.rng.shuffle(perm)
    operands = [s.new("Transpose", v, perm=perm) if i in whole else v for i, v in enumerate(node.inputs)]
    attributes = {a.name: a.value for a in node.attributes.values()}
    return s.put(s.new("Transpose", s.new(node.op_type, *operands, **attributes), perm=_inverse(perm)))


@spelling("Transpose")
def before_elementwise(s: Script) -> bool:
    """Transpose(f(x)) as f(Transpose(x)), for an elementwise f that nothing else reads."""
    perm = _perm(s, s.place)
    inner = s.made_by(s.place.inputs[0], *_UNARY.split(), *_BINARY.split())
    if perm is None or inner is None or len(inner.outputs[0].uses()) > 1 or inner.outputs[0].is_graph_output():
        return False
    if any(s.rank(v) not in (0, len(perm)) for v in inner.inputs):
        return False
    operands = [s.new("Transpose", v, perm=perm) if s.rank(v) else v for v in inner.inputs]
    attributes = {a.name: a.value for a in inner.attributes.values()}
    return s.put(s.new(inner.op_type, *operands, **attributes))


@spelling("Mul", "Div", "Relu", "Sigmoid", "Tanh")
def after_elementwise(s: Script) -> bool:
    """f(Transpose(x)) as Transpose(f(x)), for an elementwise f of one tensor, and numbers."""
    node = s.place
    found = [i for i, v in enumerate(node.inputs) if s.made_by(v, "Transpose")]
    others = [v for i, v in enumerate(node.inputs) if i not in found]
    if len(found) != 1 or not all(s.rank(v) == 0 for v in others):
        return False
    inner = s.made_by(node.inputs[found[0]], "Transpose")
    assert inner is not None
    perm = _perm(s, inner)
    operands = [inner.inputs[0] if i in found else v for i, v in enumerate(node.inputs)]
    return perm is not None and s.put(s.new("Transpose", s.new(node.op_type, *operands), perm=perm))
