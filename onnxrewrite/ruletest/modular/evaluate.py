"""Walking a graph: what is *known* is computed as it is, what depends on float inputs in the ring.

A value is an ordinary array while it depends on no float input (integers, booleans, shapes, weights and what is
computed of them), else a ``Ring`` of elements.  An operator on known values alone is the reference evaluator's.  One
that only moves data is, too, on elements instead of numbers.  The others are in ``OPERATORS``, or are defined by
others: by ``ir.bodies``, by the standard's function bodies, or by a function of the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from onnxrewrite.ir import schema
from onnxrewrite.ir.bodies import BODIES
from onnxrewrite.ir.bodies.emitter import Emit, Unsupported
from onnxrewrite.ir.by_operator import ByOperator
from onnxrewrite.ir.operators import operators
from onnxrewrite.ruletest.modular import arithmetic as ring
from onnxrewrite.ruletest.modular.ring_elements import Constants
from onnxrewrite.system.arrays import Array

MOST = 2**20
"""So many elements at most are computed with: exact arithmetic takes ten times as long as that of floats."""


class NotApplicable(Exception):
    """Something that the ring has no counterpart of; the message says what."""


class Unlucky(Exception):
    """An undefined element where a decision is made; other inputs may do."""


@dataclass(frozen=True)
class Ring:
    """A float tensor as elements of the ring.

    Attributes:
        elements: They are not rounded, whatever the dtype.
        dtype: The dtype that the graph holds them in.
        held: A dtype all of whose numbers they are: that of what was fed and only moved since, or what they were
            rounded to.  None where they were computed.
        unrounded: The elements before rounding to ``held``, where known: a dtype that holds no more leaves them so.
    """

    elements: Array
    dtype: ir.DataType = ir.DataType.FLOAT
    held: ir.DataType | None = None
    unrounded: Array | None = None


Value: TypeAlias = Ring | Array | None
Environment: TypeAlias = dict[ir.Value, Value]


@dataclass(frozen=True)
class Call:
    """A node with its attributes resolved, and the values of its inputs.

    ``version`` is the operator's opset, None where that opset lacks it.
    """

    domain: str
    op_type: str
    version: int | None
    attributes: Mapping[str, ir.Attr]
    inputs: tuple[Value, ...]
    outputs: int

    def get(self, name: str, default: object = None) -> Any:
        """An attribute's value, the schema's default, or ``default``."""
        own = self.attributes.get(name)
        if own is not None:
            return own.value
        found = schema.schema(self.domain, self.op_type, self.version)
        formal = found.attributes.get(name) if found is not None else None
        return default if formal is None or formal.default is None else formal.default

    def proto(self) -> onnx.NodeProto:
        """The node alone, as the reference evaluator takes it."""
        names = [f"i{k}" if v is not None else "" for k, v in enumerate(self.inputs)]
        node = helper.make_node(self.op_type, names, [f"o{k}" for k in range(self.outputs)], domain=self.domain)
        node.attribute.extend(ir.serde.serialize_attribute(a) for a in self.attributes.values())
        return node


Results: TypeAlias = tuple[Array | None, ...]
"""Of an operator that has several, as many as are asked for."""

Operator: TypeAlias = Callable[..., Array | Results]
OPERATORS = ByOperator[Operator]()
"""(domain, operator) to a function of a run, a call and the inputs: elements for floats, other arrays as they are.  A
uint64 result is elements, any other an ordinary array."""

computes = OPERATORS.of

MOVES = frozenset((*operators("view permute select repeat gather join pad shape"), "Identity", "Where"))
"""Operators whose result is made of elements of their inputs and zeros."""

SCATTERS = frozenset(operators("scatter", marks="exact"))
"""Operators that move as well, where they have no reduction."""


DIGITS = {ir.DataType.BFLOAT16: 8, ir.DataType.FLOAT16: 11, ir.DataType.FLOAT: 24, ir.DataType.DOUBLE: 53}
"""Dtypes that stand for reals, and how many binary digits each holds."""


IRRATIONAL = frozenset(operators(marks="irrational"))
"""Operators whose results are no fractions, though what stands for them in the ring may look like one."""


NOT_BY_REFERENCE = frozenset(("Dropout", "MatMulInteger", *operators(marks="rounding")))
"""The reference evaluator makes the first random, sums of products so large that they stood for infinity in the second,
and rounds in the others."""


@dataclass
class Run:
    """One evaluation of one side.

    Attributes:
        constants: Shared by both sides, so that a number is the same element in both.
        order: ``total`` or ``sign``, of which neither keeps all the laws of order, or ``rational``, which keeps them
            all and is only defined on small fractions; see ``arithmetic``.
        loose: The arguments of functions of which not every law holds in the ring, as 64 bits each.
        has_compared: True if any elements were compared in the order ``total`` or ``sign``.
    """

    constants: Constants
    functions: Mapping[tuple[str, str, str], ir.Function]
    order: str
    loose: set[int] = field(default_factory=set)
    has_compared: bool = False

    def elements(self, value: Value) -> Any:
        """A value as an operator computes with it: elements for floats, other arrays as they are."""
        if isinstance(value, Ring):
            return value.elements
        if value is not None and value.dtype == np.uint64:
            raise NotApplicable("uint64, which stands for elements of the ring here")
        return self.constants.carry(value) if value is not None and is_float(value) else value

    def in_ring(self, value: Value) -> Value:
        """A result to compare: floats as elements, also those that are known."""
        return Ring(self.elements(value)) if isinstance(value, np.ndarray) and is_float(value) else value

    def cast(self, value: Ring, to: ir.DataType) -> Ring:
        """A float in another dtype.

        To round is no homomorphism.  What a narrow dtype holds is not rounded here as long as it stays there, for so
        does what is computed in it; where it becomes wider, what was rounded off is gone, and it is another number: a
        hash of what it was, the same on both sides.
        """
        if to not in DIGITS:
            raise NotApplicable(f"Cast of a float to {to}")
        digits, held = DIGITS[value.dtype], value.held
        if held is not None and value.unrounded is not None and DIGITS[to] <= DIGITS[held]:
            return Ring(value.unrounded, to)
        if DIGITS[to] <= digits or (held is not None and DIGITS[held] <= digits):
            return Ring(value.elements, to, held, value.unrounded)
        self.note("Cast", value.elements)
        return Ring(ring.hashed(f"rounded to {value.dtype}", value.elements), to, value.dtype, value.elements)

    def attribute(self, call: Call, name: str, default: float = 0.0) -> Array:
        """A float attribute, which is stored in single precision."""
        return self.constants.carry(np.asarray(call.get(name, default), np.float32))

    def note(self, name: str, *arguments: Array) -> None:
        """Remember what a function was applied to whose laws do not all hold."""
        self.loose.update(np.unique(ring.mixed(name, *arguments)).tolist())

    # -- graphs ----------------------------------------------------------------------------------------------

    def model(self, model: ir.Model, feeds: Mapping[str, Value]) -> list[Value]:
        """The outputs of a model.

        Raises:
            NotApplicable: It cannot be carried over.
            Unlucky: Other inputs may do.
            Exception: Whatever shapes that do not fit raise.
        """
        env: Environment = {v: feeds[str(v.name)] for v in model.graph.inputs if v.name in feeds}
        return self._graph(model.graph, env, {}, model.opset_imports)

    def _graph(
        self,
        graph: ir.Graph | ir.Function,
        env: Environment,
        given: Mapping[str, ir.Attr],
        imports: Mapping[str, int],
    ) -> list[Value]:
        for node in graph:
            call = _call(node, tuple(self._value(v, env) for v in node.inputs), given, imports)
            if (call.domain, call.op_type) == ("", "If"):
                branch = call.get("then_branch" if np.all(self.elements(call.inputs[0])) else "else_branch")
                outputs: Sequence[Value] = self._graph(branch, env, given, imports)
            elif (call.domain, call.op_type) == ("", "Scan") and (call.version or 0) >= 9:
                outputs = self._scan(call, env, given, imports)
            else:
                outputs = self.call(call)
            env.update(zip(node.outputs, outputs, strict=False))
        return [self._value(v, env) for v in graph.outputs]

    def _scan(
        self, call: Call, env: Environment, given: Mapping[str, ir.Attr], imports: Mapping[str, int]
    ) -> list[Value]:
        """The last states, and what the steps put out, joined."""
        body, count = call.get("body"), call.get("num_scan_inputs")
        states, sequences = list(call.inputs[:-count]), call.inputs[-count:]
        axes = call.get("scan_input_axes") or (0,) * count
        backwards = call.get("scan_input_directions") or (0,) * count
        rows: list[list[Value]] = []
        for step in range(np.shape(self.elements(sequences[0]))[axes[0]]):
            places = [-1 - step if back else step for back in backwards]
            slices = [_at(v, place, axis) for v, place, axis in zip(sequences, places, axes, strict=True)]
            inside = {**env, **dict(zip(body.inputs, (*states, *slices), strict=True))}
            made = self._graph(body, inside, given, imports)
            states = made[: len(states)]
            rows.append(made[len(states) :])
        if not rows:
            raise NotApplicable("Scan without steps")
        outputs = list(zip(*rows, strict=True))
        joined = call.get("scan_output_axes") or (0,) * len(outputs)
        reverse = call.get("scan_output_directions") or (0,) * len(outputs)
        each = zip(outputs, joined, reverse, strict=True)
        return [*states, *(self._stacked(row[::-1] if back else row, axis) for row, axis, back in each)]

    def _stacked(self, values: Sequence[Value], axis: int) -> Value:
        made = np.stack([self.elements(v) for v in values], axis)
        return _wrapped(made, _dtype(values), _held(values))

    def _value(self, value: ir.Value | None, env: Environment) -> Value:
        if value is None or value in env:
            return None if value is None else env[value]
        if value.const_value is None:
            raise NotApplicable(f"`{value.name}` is defined outside of the graph")
        env[value] = value.const_value.numpy()
        return env[value]

    def call(self, call: Call) -> Sequence[Value]:
        """The outputs of one operator."""
        key, inputs = (call.domain, call.op_type), call.inputs
        if any(_size(v) > MOST for v in inputs):
            raise NotApplicable(f"{call.op_type} of more than {MOST} elements")
        own = self.functions.get((*key, ""))
        if own is not None:
            return self._function(own, call)
        if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in call.attributes.values()):
            raise NotApplicable(f"{call.op_type}: control flow")
        if schema.NON_DETERMINISTIC.intersection([key]):
            raise NotApplicable(f"{call.op_type} is random")
        is_known = not any(isinstance(v, Ring) for v in inputs)
        if key == ("", "Constant"):
            return [_constant(call)]
        if key == ("", "CastLike") and isinstance(inputs[1], Ring) and isinstance(inputs[0], np.ndarray):
            return [inputs[0] if is_float(inputs[0]) else inputs[0].astype(np.float64)]
        if is_known and not call.domain and call.op_type not in NOT_BY_REFERENCE:
            return _reference(call)
        if key in (("", "Cast"), ("", "CastLike")) and isinstance(inputs[0], Ring):
            return [self.cast(inputs[0], _target(call))]
        if self.order == "rational" and call.op_type in IRRATIONAL:
            raise Unlucky(f"{call.op_type} is not rational")
        if key in OPERATORS:
            found = OPERATORS[key](self, call, *map(self.elements, inputs))
            dtype = _dtype(inputs)
            return [_wrapped(v, dtype) for v in (found if isinstance(found, tuple) else (found,))]
        if _moves(call):
            dtype, held = _dtype(inputs), _held(inputs)
            return [
                _wrapped(v, dtype, held) for v in _reference(replace(call, inputs=tuple(map(self.elements, inputs))))
            ]
        body = _body(call)
        if body is None:
            raise NotApplicable(f"{call.op_type} has no counterpart in the ring")
        return self._function(body, call)

    def _function(self, body: ir.Function, call: Call) -> list[Value]:
        env: Environment = dict.fromkeys(body.inputs)
        env.update(zip(body.inputs, call.inputs, strict=False))
        defaults = {a.name: a for a in body.attributes.values() if a.value is not None}
        found = schema.schema(call.domain, call.op_type, call.version)
        for name, formal in found.attributes.items() if found is not None else ():
            if formal.default is not None:
                defaults[name] = ir.Attr(name, formal.type, formal.default)
        return self._graph(body, env, {**defaults, **call.attributes}, body.opset_imports)


def _moves(call: Call) -> bool:
    """True if an operator moves elements, and computes none."""
    is_plain = call.op_type in SCATTERS and call.get("reduction", b"none") in ("none", b"none")
    return not call.domain and (call.op_type in MOVES or is_plain)


def _at(value: Value, place: int, axis: int) -> Value:
    """The slice of a value at one place of an axis."""
    if not isinstance(value, Ring):
        return None if value is None else np.take(value, place, axis)
    kept = None if value.unrounded is None else np.take(value.unrounded, place, axis)
    return replace(value, elements=np.take(value.elements, place, axis), unrounded=kept)


def is_float(value: Array) -> bool:
    """True if an array holds numbers that stand for reals."""
    return value.dtype.kind == "f" or value.dtype.name == "bfloat16"


def _size(value: Value) -> int:
    return int(np.size(value.elements if isinstance(value, Ring) else value)) if value is not None else 0


def _wrapped(result: object, dtype: ir.DataType = ir.DataType.FLOAT, held: ir.DataType | None = None) -> Value:
    if result is None:
        return None
    array = np.asarray(result)
    return Ring(array, dtype, held) if array.dtype == np.uint64 else array


def _dtype(inputs: Sequence[Value]) -> ir.DataType:
    """The dtype of what is computed of these: that of the first float."""
    return next((v.dtype for v in inputs if isinstance(v, Ring)), ir.DataType.FLOAT)


def _held(inputs: Sequence[Value]) -> ir.DataType | None:
    """A dtype that holds all of what is moved together."""
    held = [v.held for v in inputs if isinstance(v, Ring)]
    known = [h for h in held if h is not None]
    return max(known, key=DIGITS.__getitem__) if known and len(known) == len(held) else None


def _target(call: Call) -> ir.DataType:
    """The dtype that a Cast or a CastLike casts to."""
    if call.op_type == "Cast":
        return ir.DataType(call.get("to"))
    like = call.inputs[1]
    return (
        like.dtype
        if isinstance(like, Ring)
        else ir.DataType.from_numpy(like.dtype)
        if like is not None
        else ir.DataType.FLOAT
    )


def _call(node: ir.Node, inputs: tuple[Value, ...], given: Mapping[str, ir.Attr], imports: Mapping[str, int]) -> Call:
    """The node, attributes of the function around it filled in."""
    attributes = {}
    for name, each in node.attributes.items():
        own = given.get(str(each.ref_attr_name)) if each.is_ref() else each
        if own is not None:
            attributes[name] = own if own.name == name else ir.Attr(name, own.type, own.value)
    domain = schema.normal_domain(node.domain)
    version = node.version or imports.get(domain)
    known = schema.schema(domain, node.op_type, version) is not None
    return Call(domain, node.op_type, version if known else None, attributes, inputs, len(node.outputs))


def _constant(call: Call) -> Array:
    name, attribute = next(iter(call.attributes.items()))
    if name == "value":
        return np.asarray(attribute.value.numpy())
    if name not in ("value_int", "value_ints", "value_float", "value_floats"):
        raise NotApplicable(f"Constant: {name}")
    return np.asarray(attribute.value, np.float32 if "float" in name else np.int64)


def _reference(call: Call) -> Sequence[Array]:
    """The reference evaluator's result."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.ops._op_list import load_op

    node, version = call.proto(), call.version or schema.latest_version()
    types = [_type(v) for v in call.inputs]
    try:
        found = load_op("", call.op_type, version, node=node, input_types=types, evaluator_cls=ReferenceEvaluator)
    except NotImplementedError as error:
        raise NotApplicable(f"{call.op_type} has no reference implementation") from error
    settings = {
        "opsets": {"": version},
        "new_ops": None,
        "log": lambda *_: None,
        "verbose": 0,
        "existing_functions": {},
        "evaluator_cls": ReferenceEvaluator,
    }
    results: Sequence[Array] = found(node, settings).run(*call.inputs)
    if any(isinstance(r, list) for r in results):
        raise NotApplicable(f"{call.op_type}: sequences")
    return results


def _type(value: Value) -> onnx.TypeProto:
    """The type of an input; floats in the ring count as single precision."""
    if value is None:
        return onnx.TypeProto()
    is_ring = isinstance(value, Ring)
    array = value.elements if isinstance(value, Ring) else value
    code = onnx.TensorProto.FLOAT if is_ring else helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_type_proto(code, array.shape)


def _body(call: Call) -> ir.Function | None:
    """The definition of an operator by simpler ones; of the standard's the newest where its version has none."""
    types = tuple(_type(v).SerializeToString() for v in call.inputs)
    if (call.domain, call.op_type) in BODIES:
        try:
            return _contributed_body(call.domain, call.proto().SerializeToString(), types)
        except Unsupported as reason:
            raise NotApplicable(f"{call.op_type}: {reason}") from None
    for version in dict.fromkeys((call.version, None)):
        if schema.has_body(schema.schema(call.domain, call.op_type, version)):
            return _standard_body(call.domain, call.op_type, version, call.proto().SerializeToString(), types)
    return None


@lru_cache(maxsize=256)
def _contributed_body(domain: str, text: bytes, types: tuple[bytes, ...]) -> ir.Function:
    node, opset = onnx.NodeProto.FromString(text), schema.latest_version()
    tensors = [onnx.TypeProto.FromString(each).tensor_type for each in types]
    sizes = [tuple(d.dim_value for d in tensor.shape.dim) for tensor in tensors]
    emit = Emit(opset, "inner", dict(zip(node.input, sizes, strict=True)))
    nodes = emit.define(BODIES[domain, node.op_type], node)
    formals = [f"i{k}" for k in range(len(types))]
    imports = [helper.make_opsetid("", opset)]
    made = helper.make_function("contributed", node.op_type, formals, node.output, nodes, imports)
    return ir.serde.deserialize_function(_without_missing(made))


@lru_cache(maxsize=256)
def _standard_body(
    domain: str, op_type: str, version: int | None, node: bytes, types: tuple[bytes, ...]
) -> ir.Function | None:
    latest = version or schema.latest_version(domain)
    defined: Any = onnx.defs.get_schema(op_type, latest, domain)
    if defined.has_function:
        return ir.serde.deserialize_function(defined.function_body)
    for opset in sorted(defined.context_dependent_function_opset_versions, reverse=True):
        text = defined.get_context_dependent_function_with_opset_version(opset, node, list(types))
        if text:
            return ir.serde.deserialize_function(_without_missing(onnx.FunctionProto.FromString(text)))
    return None


def _without_missing(function: onnx.FunctionProto) -> onnx.FunctionProto:
    """The outputs that the body does not compute are inputs, which nobody gives."""
    made = {*function.input, *(name for node in function.node for name in node.output)}
    function.input.extend(name for name in function.output if name not in made)
    return function
