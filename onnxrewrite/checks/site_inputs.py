"""The inputs that a site is fed: of a class of values, at sizes, and with the elements that are known of it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.errors import UsageError
from onnxrewrite.inputs.bindings import Binding, InputSpec, evaluate, expression_parts, shape_of
from onnxrewrite.inputs.classes import (
    CANCELLING,
    CLASSES,
    EDGES,
    HUGE,
    MARKS,
    at_marks,
    is_data,
    is_float,
    masked,
    near_mark,
    of_class,
    stream,
    truths,
)
from onnxrewrite.inputs.sample import Sampler, drawn
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import ELEMENTS
from onnxrewrite.system.arrays import Array, Held, Outputs, is_tensor

ORDINARY = CLASSES[0]
"""The class of values that is fed first, and to those that are not fed another one alone."""

_STREAMS = len(EDGES)


def site_feeds(
    sampler: Sampler,
    elements: Mapping[str, Sequence[int | str]],
    binding: Binding,
    values: str = ORDINARY,
    care: int = 0,
    alone: str | None = None,
    turn: int = 0,
) -> Outputs:
    """Inputs of a site; they are of one class of values, or one of them ``alone``, other ones at each ``turn``;
    ``elements`` are known beforehand.

    Raises:
        UsageError: An input is no tensor, or too large to be made.
    """
    made: Outputs = {}
    for spec in sampler.specs:
        concrete = concrete_elements(elements.get(spec.name), binding)
        if concrete is not None:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(spec.elem_type)
            made[spec.name] = np.asarray(concrete, dtype).reshape(shape_of(spec, binding))
            continue
        if not spec.tensor:
            raise UsageError(f"input {spec.name} is no tensor")
        kind = values if alone in (None, spec.name) else ORDINARY
        value = sampler.value(spec, binding, stream(kind) + _STREAMS * turn, care)
        made[spec.name] = _varied(sampler, spec, value, kind, turn)
    return made


def _varied(sampler: Sampler, spec: InputSpec, value: Array, values: str, turn: int) -> Array:
    """The values of one input turned into those of a class."""
    if is_data(spec):
        if values == MARKS:
            return at_marks(value, drawn(spec.name, turn), sampler.marks)
        if values == CANCELLING and turn % 2:
            own_marks = [m for m in sampler.marks if m not in (0.0, 1.0)] or [1.0]
            return near_mark(value, drawn(spec.name, turn), own_marks[turn // 2 % len(own_marks)])
        return value if values == HUGE and sampler.has_sentinel else of_class(value, values)
    if sampler.is_number(spec) and values == HUGE:
        return sampler.extreme(spec, value, turn)
    if sampler.is_number(spec) and values == MARKS:
        return at_marks(value, drawn(spec.name, turn), sampler.marks)
    if spec.elem_type == onnx.TensorProto.BOOL:
        return truths(value, values)
    return masked(value, values) if is_float(spec) else value


def counted(value: Held) -> Held:
    """Truth values, of each row the first true and the last false."""
    if not is_tensor(value) or value.dtype != np.bool_ or not value.ndim or value.shape[-1] < 2:
        return value
    made = value.copy()
    made[..., 0], made[..., -1] = True, False
    return made


def note_elements(value: ir.Value, copied: ir.Value, facts: Facts) -> None:
    """Keep what is known of the elements of a shape tensor with its copy in a part that was cut out."""
    elements = facts.elements(value)
    if elements is not None:
        copied.metadata_props[ELEMENTS] = json.dumps([e if isinstance(e, int) else str(e) for e in elements])


def elements_of(model: ir.Model) -> dict[str, list[int | str]]:
    """The elements that ``ELEMENTS`` gives integer inputs, by name."""
    found = {}
    for value in model.graph.inputs:
        text = value.metadata_props.get(ELEMENTS)
        if text and value.name:
            found[value.name] = list(np.asarray(json.loads(text), dtype=object).reshape(-1))
    return found


def concrete_elements(elements: Sequence[int | str] | None, binding: Mapping[str, int]) -> list[int] | None:
    """The elements as numbers; a dimension that no input of the site has gets a size of its own."""
    if elements is None:
        return None
    names = sorted({n for e in elements if isinstance(e, str) for n in expression_parts(e) | {e} if n.isidentifier()})
    known = {name: 2 + (zlib.crc32(name.encode()) + sum(binding.values())) % 5 for name in names} | dict(binding)
    values = [int(e) if isinstance(e, (int, np.integer)) else evaluate(str(e), known) for e in elements]
    return [v for v in values if v is not None] if None not in values else None
