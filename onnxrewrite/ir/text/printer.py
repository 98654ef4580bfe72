"""From a graph to its text: deterministic, constants of a few elements where they are used."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxrewrite.errors import printable
from onnxrewrite.ir.schema import schema as schema_of
from onnxrewrite.ir.text.literals import literal_dtype, opset_of, strings_of, tensor_hash
from onnxrewrite.ir.text.syntax import TYPE_WORDS, is_literal_word

INLINE_ELEMENTS = 8
"""A constant of at most so many elements is written where it is used; a larger one has a name and a hash."""

LOAD_LIMIT = 64 * 2**20
"""External data of more bytes is named, not loaded."""

_FLOAT_KINDS = (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS)
_GRAPH_KINDS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_INDENT = "  "


def _quoted(text: str | bytes) -> str:
    decoded = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
    escaped = decoded.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(escaped)}"'


def _identifier(name: str) -> str:
    """A name, in quotes where it would not read as one."""
    is_plain = name.isascii() and name.isidentifier()
    is_word = name in TYPE_WORDS or name in ("input", "external") or is_literal_word(name)
    return name if is_plain and not is_word else _quoted(name)


def _operator(node: ir.Node) -> str:
    domain = [_identifier(part) for part in node.domain.split(".")] if node.domain else []
    overload = f":{_identifier(node.overload)}" if node.overload else ""
    return ".".join([*domain, _identifier(node.op_type)]) + overload


def _number(value: Any, dtype: ir.DataType) -> str:
    """The shortest text that reads as exactly this value of ``dtype``."""
    if dtype is ir.DataType.BOOL:
        return "true" if value else "false"
    if not dtype.is_floating_point():
        return str(int(value))
    kind = dtype.numpy().type
    with np.errstate(over="ignore"):
        return _shortest(float(kind(value)), kind)


def _shortest(value: float, kind: type[np.generic]) -> str:
    """The shortest text of a float that is a number of a numpy dtype."""
    if not math.isfinite(value):
        return str(value)
    texts = (f"{value:.{digits}g}" for digits in range(_digits(value, kind), 18))
    mantissa, has_exponent, exponent = next(t for t in texts if float(kind(float(t))) == value).partition("e")
    if has_exponent:
        return f"{mantissa}e{int(exponent)}"
    return mantissa if "." in mantissa else f"{mantissa}.0"


def _digits(value: float, kind: object) -> int:
    """The minimum number of digits of a number, as numpy knows it for its own dtypes; 1 for others."""
    if kind not in (np.float16, np.float32, np.float64):
        return 1
    mantissa = np.format_float_scientific(kind(value)).partition("e")[0]
    return len(mantissa.lstrip("-").replace(".", ""))


@functools.lru_cache(maxsize=4096)
def _implied(
    domain: str,
    op_type: str,
    version: int | None,
    position: int,
    dtypes: tuple[ir.DataType | None, ...],
    is_fractional: bool,
) -> ir.DataType:
    """The dtype of a number without a type, as ``literal_dtype`` has it."""
    return literal_dtype(schema_of(domain, op_type, version), position, dtypes, is_fractional=is_fractional)


_NUMBERS: weakref.WeakKeyDictionary[ir.TensorProtocol, str] = weakref.WeakKeyDictionary()
"""Tensors do not change, and a weight is printed once for each rewrite that reads it."""


def _numbers(tensor: ir.TensorProtocol) -> list[str]:
    if tensor.dtype is ir.DataType.STRING:
        return [_quoted(item) for item in strings_of(tensor)]
    array = tensor.numpy().ravel()
    if tensor.dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return [_number(part, ir.DataType.DOUBLE) for item in array for part in (item.real, item.imag)]
    if not tensor.dtype.is_floating_point():
        return [_number(item, tensor.dtype) for item in array]
    with np.errstate(over="ignore"):
        return [_shortest(item, array.dtype.type) for item in array.astype(np.float64).tolist()]


def _tensor_type(tensor: ir.TensorProtocol) -> str:
    dims = ",".join(str(dim) for dim in tensor.shape.numpy())
    return tensor.dtype.name.lower() + (f"[{dims}]" if dims else "")


def values_of(tensor: ir.TensorProtocol, *, braces: bool) -> str:
    """The part of a constant after its type."""
    if tensor.size <= INLINE_ELEMENTS:
        numbers = _NUMBERS.get(tensor)
        if numbers is None:
            numbers = _NUMBERS[tensor] = ", ".join(_numbers(tensor))
        is_bare = tensor.shape.rank() == 0 and not braces and "," not in numbers
        return numbers if is_bare else f"{{{numbers}}}"
    if isinstance(tensor, ir.ExternalTensor) and tensor.nbytes > LOAD_LIMIT:
        found = {"location": tensor.location, "offset": tensor.offset, "length": tensor.length}
        parts = [f'"{key}": {_quoted(str(value))}' for key, value in found.items() if value is not None]
        return f"external [{', '.join(parts)}]"
    return tensor_hash(tensor)


def _typed(type_: ir.TypeProtocol | None, shape: ir.ShapeProtocol | None) -> str:
    """A type in text, empty where unknown."""
    if type_ is None:
        return ""
    if type(type_) is not ir.TensorType and isinstance(type_, (ir.SequenceType, ir.OptionalType)):
        word = "seq" if isinstance(type_, ir.SequenceType) else "optional"
        return f"{word}({_typed(type_.elem_type, shape)})"
    dims = "[]" if shape is None else "[" + ",".join(map(_dim, shape)) + "]" if shape.rank() else ""
    tensor = type_.dtype.name.lower() + dims
    return f"sparse_tensor({tensor})" if type(type_) is ir.SparseTensorType else tensor


def _dim(dim: int | ir.SymbolicDimProtocol) -> str:
    if isinstance(dim, int):
        return str(dim)
    return "?" if dim.value is None else _identifier(str(dim.value))


def _imports(opsets: Mapping[str, int], is_sorted: bool) -> str:
    items = sorted(opsets.items()) if is_sorted else opsets.items()
    return "[" + ", ".join(f"{_quoted(domain)} : {version}" for domain, version in items) + "]"


def model_header(model: ir.Model, canonical: bool) -> str:
    fields = [f"ir_version: {model.ir_version}", f"opset_import: {_imports(model.opset_imports, canonical)}"]
    if not canonical:
        for key in ("producer_name", "producer_version", "domain"):
            if value := getattr(model, key):
                fields.append(f"{key}: {_quoted(value)}")
        if model.model_version:
            fields.append(f"model_version: {model.model_version}")
        if model.metadata_props:
            pairs = (f"{_quoted(key)} : {_quoted(value)}" for key, value in sorted(model.metadata_props.items()))
            fields.append(f"metadata_props: [{', '.join(pairs)}]")
    return f"<{', '.join(fields)}>"


def _inner_graphs(node: ir.Node) -> Iterator[ir.Graph]:
    for _, attribute in sorted(node.attributes.items()):
        if not attribute.is_ref() and attribute.type in _GRAPH_KINDS:
            yield from [attribute.value] if attribute.type is ir.AttributeType.GRAPH else attribute.value


def read_by(node: ir.Node) -> Iterator[ir.Value]:
    """Every value that a node reads, by itself or in an inner graph, in order."""
    yield from (value for value in node.inputs if value is not None)
    for graph in _inner_graphs(node):
        for inner in graph:
            yield from read_by(inner)
        yield from graph.outputs


def structural_order(nodes: Sequence[ir.Node], outputs: Iterable[ir.Value]) -> list[ir.Node]:
    """Operands before users, in the order in which a walk from the outputs meets them; unused nodes last."""
    own, done, order = set(nodes), set[ir.Node](), list[ir.Node]()
    roots = [value.producer() for value in outputs]
    pending = [(root, False) for root in (*reversed(nodes), *reversed(roots)) if root is not None and root in own]
    while pending:
        node, is_ready = pending.pop()
        if is_ready:
            order.append(node)
        if is_ready or node in done:
            continue
        done.add(node)
        pending.append((node, True))
        producers = [value.producer() for value in read_by(node)]
        pending += [(each, False) for each in reversed(producers) if each is not None and each in own]
    return order


class Printer:
    """Prints one graph with its inner graphs; holds the names of their values."""

    def __init__(self, canonical: bool, opsets: Mapping[str, int]) -> None:
        self.canonical = canonical
        self.opsets = opsets
        self.names: dict[ir.Value, str] = {}

    def name(self, value: ir.Value) -> str:
        if value not in self.names:
            own = value.name if not self.canonical else None
            self.names[value] = _identifier(own) if own is not None else f"v{len(self.names)}"
        return self.names[value]

    def declared(self, value: ir.Value) -> str:
        return f"{_typed(value.type, value.shape)} {self.name(value)}".lstrip()

    def graph(self, graph: ir.Graph | ir.GraphView, indent: str = "") -> list[str]:
        """The lines of a graph; the first is not indented, for it may stand after an attribute's name."""
        inputs = ", ".join(self.declared(value) for value in graph.inputs)
        order = structural_order(list(graph), graph.outputs) if self.canonical else list(graph)
        body = [line for node in order for line in self.node(node, indent + _INDENT)]
        outputs = ", ".join(self.declared(value) for value in graph.outputs)
        title = f"{_identifier(graph.name)} " if graph.name and not self.canonical else ""
        head = f"{title}({inputs}) => ({outputs})"
        constants = self.initializers(graph)
        if not constants:
            return [f"{head} {{", *body, f"{indent}}}"]
        listed = ",\n".join(f"{indent}{_INDENT}{constant}" for constant in constants)
        return [head, f"{indent}<", listed, f"{indent}>", f"{indent}{{", *body, f"{indent}}}"]

    def initializers(self, graph: ir.Graph | ir.GraphView) -> list[str]:
        """The constants that are not written where they are used."""
        named = [value for value in graph.initializers.values() if not self.is_inline(value) or not value.uses()]
        if self.canonical:
            met = {value: at for at, value in enumerate(self.names)}
            named.sort(key=lambda value: met.get(value, len(met)))
        lines = []
        for value in named:
            if value.const_value is not None:
                lines.append(self.constant(value, value.const_value))
        return lines

    def constant(self, value: ir.Value, tensor: ir.TensorProtocol) -> str:
        """A constant with its name."""
        return f"{_tensor_type(tensor)} {self.name(value)} = {self.values(tensor, braces=True)}"

    def values(self, tensor: ir.TensorProtocol, *, braces: bool) -> str:
        """The part of a constant after its type."""
        return values_of(tensor, braces=braces)

    @staticmethod
    def is_inline(value: ir.Value) -> bool:
        is_fixed = value.is_initializer() and not value.is_graph_input() and not value.is_graph_output()
        return is_fixed and value.const_value is not None and value.const_value.size <= INLINE_ELEMENTS

    def function(self, function: ir.Function) -> list[str]:
        fields = [f"domain: {_quoted(function.domain)}"]
        if function.overload:
            fields.append(f"overload: {_quoted(function.overload)}")
        fields.append(f"opset_import: {_imports(function.opset_imports, self.canonical)}")
        undefined = ir.AttributeType.UNDEFINED
        parameters = ", ".join(
            _identifier(name) if attribute.type is undefined else "".join(self.attribute(attribute, ""))
            for name, attribute in sorted(function.attributes.items())
        )
        inputs = ", ".join(self.name(value) for value in function.inputs)
        order = structural_order(list(function), function.outputs) if self.canonical else list(function)
        body = [line for node in order for line in self.node(node, _INDENT)]
        outputs = ", ".join(self.name(value) for value in function.outputs)
        title = _identifier(function.name) + (f" <{parameters}>" if parameters else "")
        return [f"<{', '.join(fields)}>", f"{title} ({inputs}) => ({outputs}) {{", *body, "}"]

    def node(self, node: ir.Node, indent: str = "") -> list[str]:
        label = f"[{_identifier(node.name)}] " if node.name and not self.canonical else ""
        operands = ", ".join(self.operand(node, at) for at in range(len(node.inputs)))
        attributes = [self.attribute(each, indent + _INDENT) for _, each in sorted(node.attributes.data.items())]
        outputs = ", ".join(self.output(value) for value in node.outputs)
        head = f"{indent}{label}{outputs} = {_operator(node)}"
        if not attributes:
            return [f"{head}({operands})"]
        if all(len(lines) == 1 for lines in attributes):
            return [f"{head} <{', '.join(lines[0] for lines in attributes)}> ({operands})"]
        lines = [f"{head} ({operands}) <"]
        for attribute in attributes:
            lines += [f"{indent}{_INDENT}{attribute[0]}", *attribute[1:]]
            lines[-1] += "," if attribute is not attributes[-1] else ""
        return [*lines, f"{indent}>"]

    def output(self, value: ir.Value) -> str:
        return '""' if value.name == "" else self.name(value)

    def inline(self, value: ir.Value) -> ir.TensorProtocol | None:
        """The constant that is written where ``value`` is used; None where its name is."""
        return value.const_value if self.is_inline(value) else None

    def operand(self, node: ir.Node, position: int) -> str:
        value = node.inputs[position]
        if value is None:
            return '""'
        tensor = self.inline(value)
        if tensor is None:
            return self.name(value)
        values = self.values(tensor, braces=False)
        return values if self.reads_alike(node, position, tensor) else f"{_tensor_type(tensor)} {values}"

    def reads_alike(self, node: ir.Node, position: int, tensor: ir.TensorProtocol) -> bool:
        """True if the constant reads the same without its type, whatever ``parse`` knows of the others."""
        has_form = tensor.shape.rank() == 0 or (tensor.shape.rank() == 1 and tensor.size > 0)
        if not has_form or tensor.dtype is ir.DataType.BOOL:
            return has_form
        if tensor.dtype not in (ir.DataType.FLOAT, ir.DataType.INT64):
            return False
        asked = node.domain, node.op_type, opset_of(self.opsets, node.domain), position
        dtypes = tuple(value.dtype if value is not None else None for value in node.inputs)
        is_fractional = tensor.dtype is ir.DataType.FLOAT
        found = (_implied(*asked, known, is_fractional) for known in (dtypes, ()))
        return all(dtype is tensor.dtype for dtype in found)

    def attribute(self, attribute: ir.Attr, indent: str) -> list[str]:
        """The lines of ``name = value``; more than one where it holds graphs."""
        name, kind = _identifier(attribute.name), attribute.type
        if attribute.is_ref():
            return [f"{name}: {kind.name.lower()} = @{_identifier(str(attribute.ref_attr_name))}"]
        is_list = kind.name.endswith("S")
        values = attribute.value if is_list else (attribute.value,)
        if not values:
            return [f"{name}: {kind.name.lower()} = []"]
        parts = [self.attribute_value(value, kind, indent) for value in values]
        joined = parts[0]
        for part in parts[1:]:
            joined = [*joined[:-1], f"{joined[-1]}, {part[0]}", *part[1:]]
        opening, closing = ("[", "]") if is_list else ("", "")
        joined = [f"{name} = {opening}{joined[0]}", *joined[1:]]
        return [*joined[:-1], joined[-1] + closing]

    def attribute_value(self, value: Any, kind: ir.AttributeType, indent: str) -> list[str]:
        if kind in _GRAPH_KINDS:
            return self.graph(value, indent)
        if kind in _FLOAT_KINDS:
            return [_number(value, ir.DataType.FLOAT)]
        if kind in (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS):
            return [f"{_tensor_type(value)} {self.values(value, braces=False)}"]
        if kind in (ir.AttributeType.TYPE_PROTO, ir.AttributeType.TYPE_PROTOS):
            return [_typed(value.type, value.shape)]
        return [_quoted(value) if isinstance(value, (str, bytes)) else str(int(value))]
