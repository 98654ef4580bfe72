"""The tape: what a rewrite builds, before any of it touches the graph."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, overload

import ml_dtypes  # noqa: F401  (registers bfloat16 and the float8 types with numpy)
import numpy as np
import onnx_ir as ir

from onnxrewrite.errors import RuleError, one_line
from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.text.literals import tensor_hash
from onnxrewrite.pattern.match import Match, Refused
from onnxrewrite.pattern.terms import Term
from onnxrewrite.rewrite import edit
from onnxrewrite.rewrite.scan import Step, scan
from onnxrewrite.system.arrays import Array

Input = ir.Value | Array | float | int | bool | None

_HEAVY = 2**20
"""Constants of so many bytes are held once."""

_HELD: weakref.WeakValueDictionary[str, ir.Tensor[Array]] = weakref.WeakValueDictionary()


class Emit(Protocol):
    """Builds a node of one operator: its first output, or all of them where their number is given."""

    @overload
    def __call__(self, *inputs: Input, outputs: int, **parameters: Any) -> tuple[ir.Value, ...]: ...
    @overload
    def __call__(self, *inputs: Input, **parameters: Any) -> ir.Value: ...


class Builder:
    """Builds nodes on a tape: ``build.Gelu(x)``, ``build.microsoft.QuickGelu(x, alpha=1.702)``.

    An operator is a method.  Its positional arguments are inputs: values, None for an absent one, or numbers and
    arrays, which become constants of the dtype that the schema asks for.  Keywords are attributes, or inputs by the
    schema's name: ``build.ReduceMean(x, axes=(-1,))`` is right in every opset.  An operator that the model's opset does
    not have yet is built in the oldest version that has it; the lower stage makes it runnable.

    Attributes:
        nodes: The nodes built so far, in order.
        constants: The constants made so far.
    """

    def __init__(self, facts: Facts, match: Match, opset_imports: dict[str, int], domain: str = ""):
        self._facts = facts
        self._match = match
        self._imports = opset_imports
        self._domain = domain
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []

    @property
    def microsoft(self) -> Builder:
        """The same tape for ONNX Runtime's contrib operators."""
        return self.domain("com.microsoft")

    def domain(self, name: str) -> Builder:
        """The same tape for the operators of another domain."""
        other = Builder(self._facts, self._match, self._imports, name)
        other.nodes, other.constants = self.nodes, self.constants
        return other

    @property
    def opset(self) -> int:
        """The model's opset version of the standard operators."""
        return self._imports.get("", 1)

    def __getattr__(self, op_type: str) -> Emit:
        if op_type.startswith("_") or not op_type[0].isupper():
            raise AttributeError(op_type)

        def emit(*inputs: Input, outputs: int | None = None, **parameters: object) -> Any:
            results = self.node(op_type, inputs, parameters, outputs or 1)
            return results[0] if outputs is None else results

        return emit

    def node(
        self, op_type: str, inputs: Sequence[Input], parameters: dict[str, Any] | None = None, outputs: int = 1
    ) -> tuple[ir.Value, ...]:
        """Build one node; its outputs."""
        version, found = self._schema(op_type)
        attributes, values = self._arguments(op_type, found, list(inputs), parameters or {})
        if any(v is not None and self._facts.dtype(v) == ir.DataType.DOUBLE for v in values):
            _refuse_rounded(attributes, parameters or {})
        while values and values[-1] is None:
            values.pop()
        node = ir.Node(
            self._domain,
            op_type,
            values,
            attributes,
            num_outputs=outputs,
            version=version,
        )
        self.nodes.append(node)
        self._facts.infer(node)
        return tuple(node.outputs)

    def again(self, node: ir.Node, *operands: Input, **changed: Any) -> tuple[ir.Value, ...]:
        """Build a node once more, its first inputs replaced by ``operands``, and with some parameters changed."""
        if any(each.is_ref() for each in node.attributes.values()):
            raise Refused(f"{node.op_type} refers to an attribute of the function that it is in")
        attributes = {name: each.value for name, each in node.attributes.items()} | changed
        inputs = [*operands, *node.inputs[len(operands) :]]
        return self.domain(node.domain).node(node.op_type, inputs, attributes, len(node.outputs))

    def scan(
        self, step: Step, states: Sequence[ir.Value], sequences: Sequence[tuple[ir.Value, int]], axes: Sequence[int]
    ) -> tuple[ir.Value, ...]:
        """Build a Scan: its last states, then what its steps put out, joined.

        Args:
            step: Called once with a tape for the body, the states and the slices of the sequences at one step; gives
                the new states, and what is put out.  It may read any value that is there outside.
            states: The first states, of the shapes of the new ones.
            sequences: The sequences, each with the axis along which it is taken apart, counted from the front.
            axes: Of each output, where the steps are joined along a new axis.
        """
        return scan(self, self._facts, step, states, sequences, axes)

    def inside(self) -> Builder:
        """A tape for the body of a node; its constants lie outside."""
        other = Builder(self._facts, self._match, self._imports, self._domain)
        other.constants = self.constants
        return other

    def with_body(
        self,
        op_type: str,
        inputs: Sequence[Input],
        parameters: dict[str, Any],
        bodies: Mapping[str, ir.Graph],
        outputs: int = 1,
    ) -> tuple[ir.Value, ...]:
        """Build one node with graphs, of nodes on a tape of ``inside``; its outputs."""
        made = self.node(op_type, inputs, parameters, outputs)
        producer = made[0].producer()
        assert producer is not None
        for name, body in bodies.items():
            producer.attributes[name] = ir.AttrGraph(name, body)
        return made

    def parts(self, node: ir.Node) -> list[ir.Value | None]:
        """Build what an operator of ONNX Runtime computes, by operators of the standard: its outputs, None for one that
        its body leaves out.  Refuses where there is no body, or where that does not cover the use."""
        from onnxrewrite.rewrite.decompose import parts

        return parts(self, self._facts, node)

    def const(self, array: Any, like: Term | ir.Value | ir.DataType | None = None) -> ir.Value:
        """A constant tensor.

        Args:
            array: Anything numpy takes.
            like: The dtype, or a term or value that has it; without it float64 becomes float32 and the rest stays.

        Refuses what the dtype cannot hold: a fraction or a NaN in an integer, a finite number that becomes infinite.
        """
        data = np.asarray(array)
        dtype = self._dtype(like)
        if dtype == ir.DataType.STRING or data.dtype.kind in "OSU":
            raise Refused("strings are left alone")
        if dtype is None:
            dtype = ir.DataType.FLOAT if data.dtype == np.float64 else ir.DataType.from_numpy(data.dtype)
        tensor = ir.Tensor(_converted(data, dtype), dtype=dtype)  # ``ir.tensor`` first asks for much that this is not
        if tensor.nbytes >= _HEAVY:
            tensor = _held_once(tensor)
        value = ir.Value(type=ir.TensorType(dtype), shape=ir.Shape(data.shape), const_value=tensor)
        self.constants.append(value)
        return value

    def constant(self, tensor: ir.TensorProtocol) -> ir.Value:
        """A constant that is a tensor already, whatever its dtype."""
        value = ir.Value(type=ir.TensorType(tensor.dtype), shape=ir.Shape(list(tensor.shape)), const_value=tensor)  # type: ignore[arg-type]
        self.constants.append(value)
        return value

    def adopt(self, node: ir.Node) -> None:
        """Take a node onto the tape that was built elsewhere; what it reads must be of the graph, or there already."""
        imported = self._imports.get(node.domain, 1)
        if node.version is None:
            node.version = schema.oldest_version(node.domain, node.op_type, imported)
        elif node.version == imported:
            node.version = None
        self.nodes.append(node)
        self._facts.infer(node)

    def evaluate(self, node: ir.Node) -> list[Array]:
        """The outputs of a node whose inputs are constant, in the model's opset; refuses if it cannot be run, or would
        take too much memory or time."""
        from onnxrewrite.runtime.bounds import refusal, refusal_of
        from onnxrewrite.runtime.constants import evaluate

        too_much = refusal(node, self._facts)
        if too_much is not None:
            raise Refused(too_much)
        try:
            found = evaluate(node, self._imports)
        except Exception as error:
            raise Refused(f"{node.op_type} cannot be run here: {one_line(error)}") from error
        too_much = refusal_of(node, self._facts, [array.nbytes for array in found if array is not None])
        if too_much is not None:
            raise Refused(too_much)
        return found

    def tabulate(self, nodes: Sequence[ir.Node], of: ir.Value, values: Array, result: ir.Value) -> Array:
        """The array of ``result`` if ``nodes``, producers first, read ``values`` for ``of``; refuses if that fails."""
        from onnxrewrite.runtime.constants import evaluate_part

        try:
            return evaluate_part(nodes, {of: values}, [result], self._imports)[0]
        except Exception as error:
            raise Refused(f"it cannot be run here: {one_line(error)}") from error

    def refuse(self, reason: str) -> None:
        """Refuse the match, for a reason found while building."""
        raise Refused(reason)

    def discard(self) -> None:
        """Take back everything built: the nodes are no longer users of the values they read."""
        for node in self.nodes:
            edit.detach(node)
            for output in node.outputs:
                self._facts.forget(output)
        self.nodes.clear()
        self.constants.clear()

    def _dtype(self, like: Term | ir.Value | ir.DataType | None) -> ir.DataType | None:
        if like is None or isinstance(like, ir.DataType):
            return like
        if not isinstance(like, ir.Value) and like not in self._match:
            raise KeyError(f"{like!r} stands for nothing here, so that a constant cannot be like it")
        return self._match.dtype(like)

    def _schema(self, op_type: str) -> tuple[int | None, schema.Schema | None]:
        """The version to write the node for, None for the model's own, and the schema of that version."""
        imported = self._imports.get(self._domain, 1)
        version = schema.oldest_version(self._domain, op_type, imported)
        return version, schema.schema(self._domain, op_type, version or imported)

    def _arguments(
        self, op_type: str, found: schema.Schema | None, inputs: list[Input], parameters: dict[str, Any]
    ) -> tuple[list[ir.Attr], list[ir.Value | None]]:
        attributes = []
        for name, given in parameters.items():
            index = schema.formal_index(found, name)
            if index is not None:
                inputs += [None] * (index + 1 - len(inputs))
                inputs[index] = given
            elif given is not None:
                kind = found.attributes[name].type if found is not None and name in found.attributes else None
                attributes.append(_attribute(op_type, name, given, kind))
        return attributes, [self._operand(v, i, found, inputs) for i, v in enumerate(inputs)]

    def _operand(self, given: Input, index: int, found: schema.Schema | None, inputs: list[Input]) -> ir.Value | None:
        """A value stays; a number or an array becomes a constant of the dtype that the schema asks for here."""
        if given is None or isinstance(given, ir.Value):
            return given
        data = np.asarray(given)
        if found is None or not found.inputs:
            return self.const(data)
        formal = found.inputs[min(index, len(found.inputs) - 1)]
        for position, other in enumerate(inputs):
            its = found.inputs[min(position, len(found.inputs) - 1)]
            if isinstance(other, ir.Value) and its.type_var == formal.type_var:
                return self.const(data, like=self._facts.dtype(other))
        if formal.types == {"tensor(int64)"} or data.dtype.kind == "i":
            return self.const(data, like=ir.DataType.INT64)
        return self.const(data)


def _held_once(tensor: ir.Tensor[Array]) -> ir.Tensor[Array]:
    """A tensor whose elements lie where those of an equal one do that is still held: copies of a model are rewritten
    alike."""
    known = _HELD.setdefault(tensor_hash(tensor), tensor)
    if known is tensor:
        return tensor
    first, second = (each.numpy().reshape(-1).view(np.uint8) for each in (known, tensor))
    return ir.Tensor(known.numpy(), dtype=tensor.dtype) if np.array_equal(first, second) else tensor


def _converted(data: Array, dtype: ir.DataType) -> Array:
    """``data`` in another dtype, the shape kept; refuses if a number does not survive."""
    with np.errstate(over="ignore", invalid="ignore"):
        result = np.ascontiguousarray(data.astype(dtype.numpy())).reshape(data.shape)
    if result.dtype == data.dtype:
        return result
    if dtype.is_floating_point():
        lost = ~np.isfinite(result.astype(np.float64)) & np.isfinite(data.astype(np.float64))
    elif dtype.is_integer():
        lost = np.asarray((result.astype(np.int64) if dtype.bitwidth < 64 else result) != data)
    else:
        return result
    if lost.any():
        raise Refused(f"a constant of {float(data[lost].flat[0]):.6g} does not fit into {dtype.name.lower()}")
    return result


def _refuse_rounded(attributes: Sequence[ir.Attr], given: dict[str, Any]) -> None:
    """Attributes are float32, which holds the numbers of a double model only by chance."""
    for attribute in attributes:
        if attribute.type == ir.AttributeType.FLOAT and attribute.value != float(given[attribute.name]):
            raise Refused(f"{attribute.name} = {given[attribute.name]} does not fit a float32 attribute")


def _attribute(op_type: str, name: str, given: Any, kind: ir.AttributeType | None) -> ir.Attr:
    if isinstance(given, ir.Graph):
        raise RuleError(f"{op_type}: attribute {name}: a graph belongs to the node that has it")
    if isinstance(given, np.ndarray | np.generic):
        given = given.tolist()
    if isinstance(given, list):
        given = tuple(given)
    try:
        if kind == ir.AttributeType.FLOAT:
            given = float(np.float32(given))  # as it will be stored
        elif kind == ir.AttributeType.FLOATS:
            given = tuple(float(np.float32(g)) for g in given)
        elif kind == ir.AttributeType.INT:
            given = int(given)
        return ir.convenience.convert_attribute(name, given, kind)
    except (TypeError, ValueError) as error:
        raise RuleError(f"{op_type}: attribute {name}={given!r}: {error}") from None
