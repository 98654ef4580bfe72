"""Quantized outputs judged in double: by the distance of an integer from the number before it was rounded.

QuantizeLinear makes round(x/scale + zero), limited to its dtype.  A kernel that multiplies integers computes the same
number in another order, and where that lies next to a half, either neighbour is right: a whole step apart.  To allow a
step would be far too much, for a bias that is lost is often less than one.  The integer must be a correct rounding of a
number that a float could have come to:

    |w - t|  ≤  max( ½ + stated · u · max|t|,  max|o - t| )

with t the number in double, limited to the same range, o and w the integers of the original and of the rewrite, u the
unit roundoff of float32 and ``stated`` of the table in ``tolerance``: at most 0.004 of a step for eight bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from onnxrewrite.reference.double import NotDoublable, double_model, known
from onnxrewrite.reference.evaluation import REFERENCE_LIMIT, quantized_ops, widened
from onnxrewrite.reference.tolerance import TOLERANCES, Comparison, compare, refuse
from onnxrewrite.runtime.session import ModelLike, Session, as_proto, message_bytes, open_session
from onnxrewrite.system.arrays import Array, Feeds, Floats, Held

_FLOAT = onnx.TensorProto.FLOAT
_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16"})


class Unrounded:
    """The numbers that a model's own quantizers round, where nothing before them is rounded; made when first asked."""

    def __init__(self, model: ModelLike) -> None:
        self._model = model
        self._session: Session | str | None = None
        self._names: set[str] = set()

    def numbers(self, feeds: Feeds, name: str) -> Floats | None:
        """An output before it is rounded and limited, in steps; None if that is not known or not finite."""
        if self._session is None:
            self._session = self._open()
        if isinstance(self._session, str) or name not in self._names:
            return None
        outputs = self._session.run(widened(feeds))
        found = None if isinstance(outputs, str) else np.asarray(outputs[name], np.float64)
        return found if found is not None and np.isfinite(found).all() else None

    def compare(self, feeds: Feeds, name: str, original: Held, rewritten: Held) -> Comparison:
        """Judge an output of integers: exactly equal, or right roundings of one number."""
        found = compare(None, original, rewritten)
        exact = None if found.accept else self.numbers(feeds, name)
        return found if exact is None else compare_rounded(exact, np.asarray(original), np.asarray(rewritten))

    def _open(self) -> Session | str:
        if message_bytes(self._model) > REFERENCE_LIMIT:
            return "the weights are too large for a double copy"
        copy, self._names = unrounded(as_proto(self._model))
        if not self._names or quantized_ops(copy):
            return "something is rounded before"
        try:
            return open_session(double_model(copy).model, threads=1)
        except NotDoublable as error:
            return str(error)


def unrounded(model: onnx.ModelProto) -> tuple[onnx.ModelProto, set[str]]:
    """A copy in which the quantizers that make outputs do not round, and the names of these outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (shapes, _), outputs = known(model), {v.name: v for v in copy.graph.output}
    copies = {n.output[0]: n.input[0] for n in model.graph.node if n.op_type == "Identity"}
    read = {name for n in model.graph.node if n.op_type != "Identity" for name in n.input}
    makers = {name: _origin(name, copies) for name in outputs}
    nodes: list[onnx.NodeProto] = []
    found: set[str] = set()
    for node in model.graph.node:
        own = {name for name, maker in makers.items() if maker in node.output}
        one_step = node.op_type == "QuantizeLinear" and shapes.get(node.input[1]) in ((), (1,))
        if not own or not one_step or _family(node.output[0], copies) & read:
            nodes.append(node)
            continue
        nodes += _without_rounding(node)
        found |= own
    for name in found:
        outputs[name].type.tensor_type.elem_type = _FLOAT
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    del copy.graph.value_info[:]
    return copy, found


def _origin(name: str, copies: Mapping[str, str]) -> str:
    """The value that a value is a copy of, or itself."""
    while name in copies:
        name = copies[name]
    return name


def _family(name: str, copies: Mapping[str, str]) -> set[str]:
    """A value and all that are copies of it."""
    return {name} | {each for each in copies if _origin(each, copies) == name}


def _without_rounding(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """x/scale + zero."""
    name, zero = node.output[0], [z for z in node.input[2:3] if z]
    steps = f"{name}::steps" if zero else name
    made = [helper.make_node("Div", list(node.input[:2]), [steps])]
    if zero:
        made.append(helper.make_node("Cast", zero, [f"{name}::zero"], to=_FLOAT))
        made.append(helper.make_node("Add", [steps, f"{name}::zero"], [name]))
    return made


def is_rounded(value: Held) -> bool:
    """True if a quantizer can have made a value."""
    return getattr(getattr(value, "dtype", None), "name", "") in _INTEGERS


def compare_rounded(exact: Floats, original: Array, rewritten: Array) -> Comparison:
    """Judge integers by the numbers that were to be rounded, both errors in steps; see the module's docstring."""
    if original.shape != rewritten.shape or original.dtype != rewritten.dtype or exact.shape != original.shape:
        return refuse(f"{rewritten.dtype}{list(rewritten.shape)}, was {original.dtype}{list(original.shape)}")
    limits = np.iinfo(original.dtype)
    wanted = np.clip(exact, limits.min, limits.max)
    row = TOLERANCES[np.dtype(np.float32)]
    old, new = (np.abs(each.astype(np.float64) - wanted) for each in (original, rewritten))
    bound = max(0.5 + row.stated * row.unit * float(np.abs(wanted).max(initial=0.0)), float(old.max(initial=0.0)))
    worst = int(np.argmax(new))
    where = tuple(int(i) for i in np.unravel_index(worst, original.shape))
    error = float(new.flat[worst])
    reason = f"{rewritten[where]} at {list(where)}, was {original[where]}, where {wanted[where]:.4g} is to be rounded"
    return Comparison(error <= bound, float(old.max()), error, bound, where, reason)
