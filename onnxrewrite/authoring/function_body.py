"""The draft of a pattern as a function of its captures: what a custom operator in its place computes."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir
from onnx import helper

from onnxrewrite.authoring.generalize import Draft, Inner, Kind, Number, Slot, Step
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.skip_identity import resolve


def function_of(draft: Draft, names: Mapping[Slot, str], facts: Facts) -> onnx.FunctionProto | None:
    """The function whose inputs are the captured values, in the order of ``names``, and whose attributes the others.

    Constants follow the dtype of an operand, so that it is the same for all dtypes.

    Args:
        draft: The pattern.
        names: The names of its captures.
        facts: About the graph that it was taken from.

    Returns:
        None where a parameter is captured that is neither a number nor numbers.
    """
    try:
        return _Body(draft, names, facts).function()
    except _CannotBeWritten:
        return None


_KINDS = {int: "int", float: "float"}
"""The type of an attribute's numbers to its name in the attributes of Constant."""


class _CannotBeWritten(Exception):
    """A capture that a function cannot have."""


class _Body:
    def __init__(self, draft: Draft, names: Mapping[Slot, str], facts: Facts):
        self._draft = draft
        self._slots = names
        self._facts = facts
        self._nodes: list[onnx.NodeProto] = []
        self._inner: dict[Inner, str] = {}

    def function(self) -> onnx.FunctionProto:
        for step in self._draft.steps:
            self._step(step)
        first = self._draft.steps[0].node.graph
        assert isinstance(first, ir.Graph)
        nodes = [step.node for step in self._draft.steps if not step.node.domain]
        imports = {**first.opset_imports}
        imports[""] = max([imports[""], *(node.version or 1 for node in nodes)])  # what was raised may be newer
        return helper.make_function(
            "traced",
            "traced",
            [name for slot, name in self._slots.items() if slot.kind is not Kind.ATTR],
            [self._inner[output] for output in self._draft.outputs],
            self._nodes,
            [helper.make_opsetid(*each) for each in imports.items()],
            [name for slot, name in self._slots.items() if slot.kind is Kind.ATTR],
        )

    def _step(self, step: Step) -> None:
        node, given = step.node, step.forms[0].parameters
        operands: dict[int, object] = dict(zip(step.places, step.operands, strict=True))
        operands |= {place: given.get(name) for place, name in step.named.items()}
        inputs = [self._input(node, place, operands.get(place)) for place in range(len(node.inputs))]
        captured = {name: slot for name, slot in given.items() if isinstance(slot, Slot) and slot.kind is Kind.ATTR}
        made = ir.to_proto(node)
        made.ClearField("input")
        made.ClearField("metadata_props")
        made.input.extend(inputs)
        for index, output in enumerate(made.output):
            self._inner[Inner(node, index)] = made.output[index] = f"{len(self._nodes)}_{output}" if output else ""
        for attribute in made.attribute:
            if attribute.name in captured:
                kind, name = attribute.type, attribute.name
                attribute.Clear()
                attribute.name, attribute.type, attribute.ref_attr_name = name, kind, self._slots[captured[name]]
        self._nodes.append(made)

    def _input(self, node: ir.Node, place: int, operand: object) -> str:
        """The name of an operand, or of a parameter."""
        if isinstance(operand, Slot):
            return self._parameter(operand) if operand.kind is Kind.ATTR else self._slots[operand]
        if isinstance(operand, Inner):
            return self._inner[operand]
        value = node.inputs[place]
        return "" if value is None else self._constant(resolve(value), follows=isinstance(operand, Number))

    def _parameter(self, slot: Slot) -> str:
        """The name of an attribute as an operand."""
        value = slot.values[0]
        kind = _KINDS.get(type(value[0]) if isinstance(value, tuple) and value else type(value))
        if kind is None:
            raise _CannotBeWritten
        name, made = f"{len(self._nodes)}_parameter", onnx.AttributeProto()
        made.name, made.ref_attr_name = f"value_{kind}{'s' * isinstance(value, tuple)}", self._slots[slot]
        made.type = helper.make_attribute(made.name, value).type
        node = helper.make_node("Constant", [], [name])
        node.attribute.append(made)
        self._nodes.append(node)
        return name

    def _constant(self, value: ir.Value, *, follows: bool) -> str:
        """The name of a constant, of the dtype of an operand that it ``follows``."""
        tensor = self._facts.tensor(value)
        if tensor is None:
            raise _CannotBeWritten
        name = f"{len(self._nodes)}_constant"
        self._nodes.append(helper.make_node("Constant", [], [name], value=ir.to_proto(tensor)))
        like = next((s for s in self._slots if s.is_float and s.values[0].dtype == tensor.dtype), None)
        if not follows or like is None:
            return name
        cast = f"{len(self._nodes)}_constant"
        self._nodes.append(helper.make_node("CastLike", [name, self._slots[like]], [cast]))
        return cast
