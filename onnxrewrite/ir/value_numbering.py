"""Nodes that compute the same, found by what they compute: operator, attributes and inputs."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.graph import subgraphs
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.skip_identity import resolve

Expression: TypeAlias = tuple[Hashable, ...]

Results: TypeAlias = Sequence[ir.Value]

_SMALL = 4096
"""Constants of no more elements stand for their content in an expression."""

_LARGEST = 64 * 2**20
"""Those of more bytes stay where they lie, and are the same only if they are one: comparing would load them."""

_SAMPLED = 16
"""Larger ones are compared to the end only if they are equal at so many places."""

_REDUCTIONS = frozenset(operators("reduce"))
_VIEW = frozenset(operators("view"))
_BROADCAST = frozenset(operators("broadcast"))
_COMMUTATIVE = frozenset(operators("broadcast", marks="commutative"))

_FROM_FRONT = -1
"""The kind of what stands for an attribute whose axes are counted from the front."""

_FLOATS = (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS)


class ValueNumbering:
    """The first node met of every expression.

    A node whose inputs change is met again under another expression; what stands under the old one is looked at
    before it is believed.
    """

    def __init__(self) -> None:
        self._first: dict[Expression, ir.Node] = {}
        self._constants = Constants()

    def find(self, node: ir.Node) -> ir.Node | None:
        """The node of the same graph that was met first with the same operator, attributes and inputs, and so the same
        outputs; None if that is ``node`` itself.

        Constants of equal content are the same, also if one that is broadcast has more axes of size 1 in front, and so
        is what Identities pass on; two operands of a commutative operator may change places; views are told by the
        shapes that they make.  Whether the operator is
        random is the caller's question.  What is computed from constants alone has twins, too: a quantized weight is
        not folded.
        """
        if not node.inputs or subgraphs(node):
            return None
        return self._met_first(node, expression) or self._met_first(node, _view)

    def _met_first(self, node: ir.Node, described: Callable[[ir.Node, Constants], Expression | None]) -> ir.Node | None:
        """The node that was met first with the same description; None if that is ``node`` itself, or has none."""
        key = described(node, self._constants)
        first = self._first.setdefault(key, node) if key is not None else node
        if first is node or key is None:
            return None
        if first.graph is not node.graph or described(first, self._constants) != key:
            self._first[key] = node
            return None
        return first


class Constants:
    """Keys for the contents of constants; equal for those that are equal to the bit.

    Large ones are read where they lie: a few elements of each, and all of those that agree in these.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[ir.TensorProtocol], int]] = {}
        self._alike: dict[Hashable, list[weakref.ref[ir.TensorProtocol]]] = {}
        self._count = 0

    def key(self, tensor: ir.TensorProtocol) -> Hashable:
        """The same for tensors of the same dtype, shape and bits."""
        return len(tensor.shape), self.broadcast_key(tensor)

    def broadcast_key(self, tensor: ir.TensorProtocol) -> Hashable:
        """The same for tensors of the same dtype and bits, and of shapes that differ by ones in front."""
        return self._number(tensor) if tensor.size > _SMALL else _content(tensor, _without_ones(tensor))

    def _number(self, tensor: ir.TensorProtocol) -> int:
        reference, number = self._known.get(id(tensor), (None, 0))
        if reference is None or reference() is not tensor:  # another one may have had its id
            number = self._new_number(tensor)
            self._known[id(tensor)] = weakref.ref(tensor), number
        return number

    def _new_number(self, tensor: ir.TensorProtocol) -> int:
        """That of the first tensor met that is equal to this one; a new one if there is none."""
        self._count += 1
        if tensor.dtype == ir.DataType.STRING or tensor.dtype.bitwidth < 8 or tensor.nbytes > _LARGEST:
            return self._count
        flat = tensor.numpy().reshape(-1)
        sample = flat[np.linspace(0, flat.size - 1, _SAMPLED).astype(np.int64)].tobytes()
        alike = self._alike.setdefault((tensor.dtype, _without_ones(tensor), sample), [])
        for other in (r() for r in alike):
            if other is not None and np.array_equal(flat.view(np.uint8), other.numpy().reshape(-1).view(np.uint8)):
                return self._known[id(other)][1]
        alike.append(weakref.ref(tensor))
        return self._count


def expression(node: ir.Node, constants: Constants) -> Expression:
    """The computation of a node as a key: equal for two nodes of one graph that compute the same."""
    operator = (node.domain, node.op_type, node.overload, node.version, id(node.graph), len(node.outputs))
    inputs = _broadcast(node, constants) or [_value(i, constants) for i in node.inputs]
    defaults = _defaults(node.domain, node.op_type) if node.attributes else {}
    told = node.attributes.data.items()
    attributes = {n: _attribute(a) for n, a in told if n not in defaults or a.is_ref() or repr(a.value) != defaults[n]}
    if not node.domain and node.op_type in _REDUCTIONS and (counted := _axes(node)) is not None:
        place, axes = counted
        if isinstance(place, int):
            inputs[place] = axes
        else:
            attributes[place] = axes
    return (*operator, tuple(inputs), tuple(sorted(attributes.items())))


@functools.cache
def _defaults(domain: str, op_type: str) -> Mapping[str, str]:
    """The defaults of an operator's attributes that are the same in all its versions, written out, in which 0.0 is not
    -0.0: to say them is to say nothing."""
    found: dict[str, set[str | None]] = {}
    for version in schema.versions(domain, op_type):
        for name, attribute in version.attributes.items():
            told = None if attribute.default is None else repr(attribute.default)
            found.setdefault(name, set()).add(told)
    return {name: told for name, (told, *others) in found.items() if told is not None and not others}


def _view(node: ir.Node, constants: Constants) -> Expression | None:
    """A view by constants, told by the shape that it makes, whichever operator it is; None of any other node.

    What is made by a computed shape may be read by what computes that shape, and could not take the place of another.
    """
    result = node.outputs[0].shape
    if node.domain or node.op_type not in _VIEW or result is None:
        return None
    by_constants = all(v is None or resolve(v).const_value is not None for v in node.inputs[1:])
    known = all(isinstance(d, int) or d.value is not None for d in result.dims)
    return (
        (id(node.graph), _value(node.inputs[0], constants), *map(str, result.dims)) if known and by_constants else None
    )


def _broadcast(node: ir.Node, constants: Constants) -> list[Hashable]:
    """The operands of an elementwise operator, and the rank of its result; none of any other operator."""
    result = node.outputs[0].shape
    if node.domain or node.op_type not in _BROADCAST or result is None:
        return []
    operands = [_value(i, constants, is_broadcast=True) for i in node.inputs]
    if node.op_type in _COMMUTATIVE and len(operands) == 2:
        operands.sort(key=hash)
    return [len(result), *operands]


def _axes(node: ir.Node) -> tuple[int | str, tuple[Hashable, ...]] | None:
    """The axes of a reduction, each counted from the front, and the input or attribute that gives them; None where it
    reduces all, or nobody knows."""
    source, given = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    if source is None or source.shape is None:
        return None
    place: int | str = 1 if given is not None else "axes" if "axes" in node.attributes else "axis"
    if given is not None:
        tensor = resolve(given).const_value
        axes = tensor.numpy().ravel().tolist() if tensor is not None and tensor.size <= _SMALL else None
    else:
        known = node.attributes.get(str(place))
        axes = np.ravel(known.value).tolist() if known is not None and not known.is_ref() else None
    return (place, (_FROM_FRONT, *sorted(a % len(source.shape) for a in axes))) if axes and len(source.shape) else None


def same_work(before: Sequence[ir.Node], after: Sequence[ir.Node], outputs: Results, results: Results) -> bool:
    """True if nodes compute what others do in the very same way: the same operators, attributes and constants, and
    operands in the same order.

    Args:
        before: Nodes, sorted.
        after: Others, sorted.
        outputs: Values that the first compute.
        results: As many that the others compute.
    """
    if len(before) != len(after) or any(a.op_type != b.op_type for a, b in zip(before, after, strict=True)):
        return False
    known: dict[Expression, int] = {}
    numbers: dict[ir.Node, int] = {}

    def key(value: ir.Value | None) -> Hashable:
        if value is None:
            return None
        node, tensor = value.producer(), value.const_value
        if node is not None and node in numbers:
            return numbers[node], value.index()
        return id(value) if tensor is None else _tensor(tensor)

    for node in (*before, *after):
        attributes = tuple(sorted((name, _attribute(a)) for name, a in node.attributes.items()))
        operator = (node.domain, node.op_type, node.overload, node.version, len(node.outputs), attributes)
        numbers[node] = known.setdefault((*operator, *map(key, node.inputs)), len(known))
    return all(key(old) == key(new) for old, new in zip(outputs, results, strict=True))


def same_tensor(a: ir.TensorProtocol, b: ir.TensorProtocol) -> bool:
    """True if two tensors are the same object, or small and equal to the bit."""
    return a is b or (a.size <= _SMALL and _tensor(a) == _tensor(b))


def _value(value: ir.Value | None, constants: Constants, *, is_broadcast: bool = False) -> Hashable:
    if value is None:
        return None
    value = resolve(value)
    tensor = value.const_value
    if tensor is None:
        return id(value)
    return constants.broadcast_key(tensor) if is_broadcast else constants.key(tensor)


def _tensor(tensor: ir.TensorProtocol) -> Hashable:
    return id(tensor) if tensor.size > _SMALL else _content(tensor, tuple(tensor.shape.dims))


def _content(tensor: ir.TensorProtocol, shape: Hashable) -> Hashable:
    text = tensor.dtype == ir.DataType.STRING
    content = tuple(tensor.numpy().ravel().tolist()) if text else tensor.tobytes()
    return (int(tensor.dtype), shape, content)


def _without_ones(tensor: ir.TensorProtocol) -> tuple[Hashable, ...]:
    """The shape of a tensor, ones in front left out."""
    return tuple(itertools.dropwhile(lambda size: size == 1, tensor.shape.numpy()))


def _attribute(attribute: ir.Attr) -> tuple[Hashable, ...]:
    kind = int(attribute.type)
    if attribute.is_ref():
        return (kind, True, attribute.ref_attr_name)
    if attribute.type == ir.AttributeType.TENSOR:
        return (kind, False, _tensor(attribute.as_tensor()))
    if attribute.type in _FLOATS:
        return (kind, False, np.asarray(attribute.value, np.float32).tobytes())  # 0.0 is not -0.0
    value = attribute.value
    if isinstance(value, list | tuple):
        value = tuple(value)
    return (kind, False, value if isinstance(value, Hashable) else id(value))
