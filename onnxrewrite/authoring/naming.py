"""Names that a person would give: from what the exporter called a value, else from what it is for."""

from __future__ import annotations

import builtins
import functools
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from onnxrewrite.authoring.generalize import Draft, Inner, Kind, Operand, Slot
from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts

_PARTS = re.compile(r"[./:\s]+")
_WORD = re.compile(r"(?:[a-z]{2,}[a-z0-9]*|[a-z](?=_[a-z]))(?:_[a-z0-9]+)*")
_NUMBERS = re.compile(r"_\d+_")
_COUNTED = re.compile(r"(?:(?:_output)?_\d+)+$")

_DULL = frozenset(
    "onnx val value v x input inputs output outputs tensor const constant initializer self model module layer layers "
    "block blocks encoder decoder node item data arg args p w b t c init data0".split()
)
"""Words in names that carry no information."""

_ROLES = {"weight": "weight", "w": "weight", "b": "bias", "c": "bias", "bias": "bias", "scale": "scale"}
"""Names of inputs in operators' schemas to their usual names."""

_NAMES: dict[str, tuple[str, str]] = {
    "MatMul": ("matmul", "weight"),
    "Gather": ("", "indices"),
    "Mul": ("", "scale"),
    "Div": ("", "divisor"),
    "Add": ("", "bias"),
    "Sub": ("difference", "shift"),
    "Pow": ("", "exponent"),
    "Max": ("", "floor"),
    "Min": ("", "ceiling"),
    "Where": ("", "fill"),
    "PRelu": ("", "slope"),
    "ReduceMean": ("mean", ""),
    "LayerNormalization": ("norm", ""),
    "Sqrt": ("root", ""),
}
"""Operator to a name for its result, where its own would say less, and one for a constant that it reads."""

_LETTERS = "xyzuvw"

RESERVED = frozenset(
    "op any_of microsoft rule Attr Builder Const Match Operators Rejects Rewrites Scalar Value Var FLOATS SQRT2 "
    "math annotations m build Sequence Any FILL_IN ir same_shape reshaped_as result turned".split()
)


class Names:
    """Names that are in use, so that each is given once."""

    def __init__(self, taken: Iterable[str] = ()):
        self._taken = {*RESERVED, *taken}

    def fresh(self, base: str) -> str:
        """``base``, or ``base_2``, ``base_3``, ... where that is taken or means something in Python."""
        base = f"{base}_value" if keyword.iskeyword(base) or hasattr(builtins, base) else base
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


def of_slots(draft: Draft, facts: Facts, names: Names, given: Mapping[ir.Value, str]) -> dict[Slot, str]:
    """A name for each capture: the one ``given`` to its value; those that would share one are told apart by what stands
    before it, or by a number."""
    roles = of_attention(draft)
    wanted = {slot: (roles[slot], "") if slot in roles else _wanted(slot, facts) for slot in draft.slots}
    inputs = [s for s in draft.slots if _is_input(s, facts)]
    if len(inputs) == 1:
        wanted[inputs[0]] = ("", "")
    wanted |= {slot: (given[slot.values[0]], "") for slot in draft.slots if slot.values[0] in given}
    often = Counter(short for short, _ in wanted.values())
    letters = iter(_LETTERS)
    found: dict[Slot, str] = {}
    for slot in sorted(wanted, key=lambda s: s.values[0] not in given):
        short, long = wanted[slot]
        better = long if often[short] > 1 and long else short
        found[slot] = names.fresh(better or next(letters, "x"))
    return {slot: found[slot] for slot in wanted}


def of_attention(draft: Draft) -> dict[Slot, str]:
    """The roles of the inputs of softmax(query·key + mask)·value, where there is one such formula in a draft."""
    softmaxes = [s for s in draft.steps if s.node.op_type == "Softmax"]
    if len(softmaxes) != 1:
        return {}
    steps = {s.node: s for s in draft.steps}
    found: dict[Slot, set[str]] = {}

    def visit(operand: Operand, role: str) -> bool:
        """Give a role to the inputs above an operand; True if the Softmax is there."""
        if isinstance(operand, Slot):
            if operand.kind is Kind.VAR and not operand.is_shape:
                found.setdefault(operand, set()).add(role)
            return False
        step = steps[operand.node] if isinstance(operand, Inner) else None
        if step is None:
            return False
        if step is softmaxes[0]:
            visit(step.operands[0], "scores")
            return True
        if step.node.op_type == "MatMul" and role in ("scores", "") and len(step.operands) == 2:
            left = visit(step.operands[0], "query" if role == "scores" else "")
            return visit(step.operands[1], "key" if role == "scores" else "value" if left else "") or left
        if step.node.op_type == "Add" and role == "scores":
            role = "mask"
        below = [visit(o, role if isinstance(o, Slot) or role != "mask" else "scores") for o in step.operands]
        return any(below)

    for output in draft.outputs:
        visit(output, "")
    given = {slot: roles - {""} for slot, roles in found.items()}
    return {s: r.pop() for s, r in given.items() if len(r) == 1 and not r & {"scores"}}


def _is_input(slot: Slot, facts: Facts) -> bool:
    """True if it stands for a tensor to compute with: neither a constant nor a shape."""
    value = slot.values[0]
    return slot.kind is Kind.VAR and not slot.is_shape and isinstance(value, ir.Value) and facts.tensor(value) is None


def _wanted(slot: Slot, facts: Facts) -> tuple[str, str]:
    """A short name, and one that says more; both are empty where nothing is known."""
    if slot.kind is Kind.ATTR:
        return slot.formal or "attribute", ""
    if slot.is_shape:
        return "shape", ""
    value = slot.values[0]
    told = telling(value.name or "") if isinstance(value, ir.Value) else []
    if told and (_is_input(slot, facts) or _says_what_it_is(value.name or "")):
        return told[-1], "_".join(told[-2:])
    if _is_input(slot, facts):
        return "", ""
    role, where = _role(slot, facts), telling(slot.node.outputs[0].name or "")[-1:]
    return role, "_".join([*where, role])


def _role(slot: Slot, facts: Facts) -> str:
    """The role of a constant."""
    if slot.kind is Kind.SCALAR and slot.node.op_type == "Add" and _is_tiny(slot, facts):
        return "epsilon"
    own = slot.formal.lower() if re.fullmatch(r"[A-Za-z_]{4,}", slot.formal) else "constant"
    op_type = slot.node.op_type
    is_layer = op_type in ("Gemm", "Conv", "ConvTranspose") or op_type.endswith("Normalization")
    return _NAMES.get(op_type, ("", ""))[1] or (_ROLES.get(slot.formal.lower()) if is_layer else None) or own


def _is_tiny(slot: Slot, facts: Facts) -> bool:
    numbers = [facts.number(t) for v in slot.values if (t := facts.tensor(v)) is not None]
    return bool(numbers) and all(n is not None and 0 < n < 1e-2 for n in numbers)


def telling(name: str) -> list[str]:
    """The words in an exporter's name that say what a value is, the nearest last; numbers and operators do not.

    Of ``bert.encoder.layer.3.attention.self.query.weight`` these are bert, query and weight.
    """
    parts = (_NUMBERS.sub("_", _COUNTED.sub("", part)).strip("_").lower() for part in _PARTS.split(name))
    return [p for p in parts if _WORD.fullmatch(p) and p not in _DULL and not _is_operator(p)]


def _says_what_it_is(name: str) -> bool:
    """True if the last word of a name is a telling one; else it is a path to the node that made it."""
    return bool(telling(_PARTS.split(name)[-1]))


@functools.cache
def _operators() -> frozenset[str]:
    return frozenset(name.lower() for name in schema.operator_names())


def _is_operator(part: str) -> bool:
    return part.replace("_", "") in _operators() or part.startswith(("node_", "val_", "onnx"))


def of_step(node: ir.Node) -> str:
    """A name for the result of a node: its operator in words, ``reduce_max`` for ReduceMax."""
    if _NAMES.get(node.op_type, ("", ""))[0]:
        return _NAMES[node.op_type][0]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"\W", "_", node.op_type)).lower()
