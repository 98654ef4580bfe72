"""From the steps of a draft to formulas: what is long or used twice has a name, and each output is one formula."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnxrewrite.authoring import naming
from onnxrewrite.authoring.generalize import Draft, Form, Inner, Number, Operand, Slot, Step
from onnxrewrite.pattern.numbers import rounded

WIDTH = 110
"""A line is broken, or a part of it gets a name of its own, where it would be longer."""

PART = 48
"""A part of a formula that is longer gets a name of its own."""

_LARGEST, _MANY = 4096, 8
"""A number is looked for among the roots of whole numbers up to that, where it has so many digits."""

_WHOLE = 1_000_000
"""Smaller whole numbers are written without a point."""

_SUM, _PRODUCT, _UNARY, _POWER, _ATOM = range(5)

_SIGNS = {"Add": ("+", _SUM), "Sub": ("-", _SUM), "Mul": ("*", _PRODUCT), "Div": ("/", _PRODUCT)}

_KNOWN = (
    (math.sqrt(2), "SQRT2", _ATOM),
    (1 / math.sqrt(2), "1 / SQRT2", _PRODUCT),
    (math.sqrt(2 / math.pi), "math.sqrt(2 / math.pi)", _ATOM),
)
"""Numbers that have a better name than their digits."""


class Text(NamedTuple):
    """A piece of Python, and how strongly it holds together."""

    code: str
    strength: int = _ATOM

    def beside(self, strength: int, *, right: bool = False) -> str:
        """The piece as an operand of something of that strength."""
        is_weak = self.strength < strength or (right and self.strength == strength)
        return f"({self.code})" if is_weak else self.code


class Formulas:
    """Writes the steps of a draft as assignments and one formula for each output; steps that are ``called`` something
    get that name."""

    def __init__(
        self,
        draft: Draft,
        slots: Mapping[Slot, str],
        names: naming.Names,
        spelled: bool,
        called: Mapping[ir.Node, str] = MappingProxyType({}),
    ):
        self._given = called
        self._slots = slots
        self._names = names
        self._spelled = spelled
        self._texts: dict[ir.Node, Text] = {}
        self._indexed = {i.node for i in _inners(draft) if i.index > 0}
        self.lines: list[str] = []
        uses = Counter(i.node for i in _inners(draft))
        for step in draft.steps:
            text = self._step(step)
            if uses[step.node] > 1 or step.node in called or step.node in self._indexed or len(text.code) > WIDTH - 20:
                text = self._called(text, step.node)
            self._texts[step.node] = text
        self.outputs = [self._operand(inner) for inner in draft.outputs]

    def _called(self, text: Text, node: ir.Node) -> Text:
        """A piece that is given a name."""
        name = self._given.get(node) or self._names.fresh(naming.of_step(node))
        self.lines.append(f"{name} = {text.code}")
        return Text(name)

    # -- one step --------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> Text:
        operands = self._operands(step)
        forms = [self._form(form, step, operands) for form in step.forms]
        if len(forms) == 1:
            return forms[0]
        return Text(f"any_of({', '.join(f.code for f in forms)})")

    def _operands(self, step: Step) -> list[Text]:
        """The operands; what is long, or would be written several times, gets a name."""
        found = [self._operand(o) for o in step.operands]
        free = [p for p, o in enumerate(step.operands) if isinstance(o, Inner) and self._may_be_called(o)]
        free.sort(key=lambda p: -len(found[p].code))
        for place in free:
            total = sum(len(text.code) for text in found)
            if len(found[place].code) > PART or total > WIDTH - 40 or len(step.forms) > 1:
                inner = step.operands[place]
                assert isinstance(inner, Inner)
                self._texts[inner.node] = self._called(found[place], inner.node)
                found = [self._operand(o) for o in step.operands]
        return found

    def _may_be_called(self, inner: Inner) -> bool:
        return inner.node not in self._indexed and not self._texts[inner.node].code.isidentifier()

    def _operand(self, operand: Operand) -> Text:
        match operand:
            case None:
                return Text("None")
            case Slot():
                return Text(self._slots[operand])
            case Number():
                return number(operand)
            case Inner(node=node, index=index):
                text = self._texts[node]
                return Text(f"{text.code}[{index}]") if node in self._indexed else text

    def _form(self, form: Form, step: Step, operands: Sequence[Text]) -> Text:
        algebra = None if self._spelled or form.domain or form.parameters else self._algebra(form, step, operands)
        return algebra or self._call(form, operands)

    def _algebra(self, form: Form, step: Step, operands: Sequence[Text]) -> Text | None:
        """A sum, a product or a power as Python writes it; None for any other operator."""
        are_terms = [not isinstance(o, Number) for o in step.operands]
        match form.op_type, list(operands):
            case ("Add" | "Sub" | "Mul" | "Div") as op_type, [a, b] if any(are_terms) and (
                op_type != "Div" or step.divides
            ):
                sign, strength = _SIGNS[op_type]
                if op_type == "Mul" and b.code.startswith("1 / ") and step.divides:
                    return Text(f"{a.beside(strength)} / {b.code.removeprefix('1 / ')}", strength)
                if op_type == "Add" and b.code.startswith("-") and b.strength == _UNARY:
                    return Text(f"{a.beside(strength)} - {b.code.removeprefix('-')}", strength)
                is_strict = sign in "-/" or b.strength != strength
                return Text(f"{a.beside(strength)} {sign} {b.beside(strength, right=is_strict)}", strength)
            case "Neg", [a]:
                return Text(f"-{a.beside(_UNARY)}", _UNARY)
            case "Reciprocal", [a] if step.divides:
                return Text(f"1 / {a.beside(_PRODUCT, right=True)}", _PRODUCT)
            case "Pow", [a, b] if isinstance(step.operands[1], Number) and are_terms[0]:
                exponent = step.operands[1].value
                whole = int(exponent) if math.isfinite(exponent) and float(exponent).is_integer() else b.code
                return Text(f"{a.beside(_POWER, right=True)}**{whole}", _POWER)
        return None

    def _call(self, form: Form, operands: Sequence[Text]) -> Text:
        domain = {"": "op", "com.microsoft": "microsoft"}.get(form.domain, f"Operators({form.domain!r})")
        given = [t.code for t in operands]
        given += [f"{key}={self._parameter(value)}" for key, value in form.parameters.items()]
        return Text(f"{domain}.{form.op_type}({', '.join(given)})")

    def _parameter(self, value: object) -> str:
        if isinstance(value, Slot | Number | Inner):
            return self._operand(value).code
        return literal(value)


def _inners(draft: Draft) -> Iterator[Inner]:
    for step in draft.steps:
        parameters = (v for form in step.forms for v in form.parameters.values())
        yield from (o for o in (*step.operands, *parameters) if isinstance(o, Inner))
    yield from draft.outputs


def number(given: Number) -> Text:
    """The shortest text that is this number in its own dtype."""
    value = given.value
    for known, code, strength in _KNOWN:
        if isinstance(value, float) and given.dtype is not None and value == rounded(known, given.dtype):
            return Text(code, strength)
    root = _root(value, given.dtype)
    if root is not None:
        return root
    if isinstance(value, float) and not math.isfinite(value):
        return Text("-math.inf" if value < 0 else "math.inf", _UNARY if value < 0 else _ATOM)
    return Text(_shortest(value, given.dtype), _UNARY if value < 0 else _ATOM)


def _root(value: float, dtype: ir.DataType | None) -> Text | None:
    """A number of many digits as the root of a whole one, or what that divides: attention is scaled so."""
    if not isinstance(value, float) or dtype != ir.DataType.FLOAT or not 0 < value < _LARGEST:
        return None
    if len(_shortest(value, dtype)) < _MANY:
        return None
    for square, code, strength in ((value**2, "{}", _ATOM), (value**-2, "1 / {}", _PRODUCT)):
        whole = round(square)
        root = math.sqrt(whole) if strength == _ATOM else 1 / math.sqrt(whole or 1)
        if 1 < whole < _LARGEST and rounded(root, dtype) == value:
            return Text(code.format(f"math.sqrt({whole})"), strength)
    return None


def _shortest(value: float, dtype: ir.DataType | None) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE:
        return str(int(value))
    if isinstance(value, float) and dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return repr(float(str(dtype.numpy().type(value))))
    return repr(value)


def literal(value: object) -> str:
    """An attribute's value; floats are stored in float32."""
    if isinstance(value, tuple | list):
        items = [literal(v) for v in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(value, float):
        return f'float("{value}")' if not math.isfinite(value) else repr(float(str(np.float32(value))))
    is_plain = isinstance(value, str) and value.isprintable() and not re.search(r'["\\]', value)
    return f'"{value}"' if is_plain else repr(value)
