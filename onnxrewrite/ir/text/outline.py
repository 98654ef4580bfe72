"""All that the text of a rewrite depends on but for the numbers of its constants: layers that are alike differ by these
alone, and their rewrites are printed once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import onnx_ir as ir

from onnxrewrite.ir.graph import attributes

_PLAIN = frozenset({ir.AttributeType.INT, ir.AttributeType.STRING})
_LISTS = frozenset({ir.AttributeType.INTS, ir.AttributeType.STRINGS})
_FLOATS = frozenset({ir.AttributeType.FLOAT, ir.AttributeType.FLOATS})


class Outline:
    """The outline of a rewrite.

    Args:
        before: The nodes taken out.
        after: The nodes put there.
        replaced: Each value that is replaced, and what replaces it.
        opset_imports: Domain to version.

    Attributes:
        key: Equal for rewrites whose texts differ by the numbers of constants alone; None where that cannot be told.
        tensors: The constants, in the order in which they are met.
        numbers: Their places in that order, by their ids.
    """

    def __init__(
        self,
        before: Sequence[ir.Node],
        after: Sequence[ir.Node],
        replaced: Iterable[tuple[ir.Value, ir.Value]],
        opset_imports: Mapping[str, int],
    ) -> None:
        self.tensors: list[ir.TensorProtocol] = []
        self.numbers: dict[int, int] = {}
        self._made = {o for n in (*before, *after) for o in n.outputs}
        self._values: dict[ir.Value | None, int] = {None: 0}
        self._said: list[Hashable] = []
        self._is_plain = True
        nodes = [self._node(node) for node in (*before, *after)]
        pairs = [(self._value(old), self._value(new)) for old, new in replaced]
        key = (len(before), *nodes, *pairs, *self._said, *opset_imports.items())
        self.key: Hashable = key if self._is_plain else None

    def _node(self, node: ir.Node) -> Hashable:
        return (
            node.domain,
            node.op_type,
            node.overload,
            tuple([self._attribute(each) for each in attributes(node)]),
            tuple([self._value(value) for value in node.inputs]),
            tuple([self._value(value) for value in node.outputs]),
        )

    def _value(self, value: ir.Value | None) -> int:
        """The number of a value; what its text depends on is said when it is met first."""
        number = self._values.get(value)
        if number is None and value is not None:
            number = self._values[value] = len(self._values)
            tensor = value.const_value if value not in self._made else None
            if value in self._made:
                self._said.append((value.dtype, value.name == ""))
            elif tensor is not None:
                self._said.append((value.dtype, self._tensor(tensor)))
            else:
                self._said.append((value.type, value.shape is not None and _dims(value.shape)))
        return number or 0

    def _tensor(self, tensor: ir.TensorProtocol) -> Hashable:
        number = self.numbers.get(id(tensor))
        if number is None:
            number = self.numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        return number, tensor.dtype, _dims(tensor.shape)

    def _attribute(self, attribute: ir.Attr) -> Hashable:
        kind, value = attribute.type, attribute.value
        if attribute.is_ref() or kind in _PLAIN:
            return attribute.name, kind, attribute.ref_attr_name, value
        if kind in _LISTS:
            return attribute.name, kind, tuple(value)
        if kind in _FLOATS:
            return attribute.name, kind, repr(value)  # 0.0 is not -0.0
        if kind is ir.AttributeType.TENSOR:
            return attribute.name, self._tensor(value)
        self._is_plain = False
        return None


def _dims(shape: ir.ShapeProtocol) -> tuple[int | str | None, ...]:
    return tuple([d if isinstance(d, int) else d.value for d in shape])
