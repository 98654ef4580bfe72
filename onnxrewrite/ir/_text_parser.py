"""From text to an ONNX model: tokens, grammar, names and the types of literals.

``Parser`` reads the grammar of ``onnx.parser`` plus the short forms that ``onnxrewrite.ir.text`` documents
and keeps what it read as plain data with positions.  ``Elaborator`` then resolves names, gives every literal
a type and writes a ``ModelProto``.  Two passes, because a name may be used before the line that defines it.

Must not know: rules, facts, targets, files.  Nothing here looks at a node beyond its ONNX schema.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import numpy as np
import onnx
import onnx.checker
import onnx.shape_inference
import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.ir.schema import Formal, Schema, normal_domain
from onnxrewrite.ir.schema import schema as schema_of

T = TypeVar("T")
Array = np.ndarray[Any, Any]
AttrType = ir.AttributeType
_SMALL = 64  # elements of a constant whose values are worth giving to ONNX's inference, such as a shape

DTYPES: Mapping[str, ir.DataType] = {d.name.lower(): d for d in ir.DataType if d is not ir.DataType.UNDEFINED}
"""The name of a dtype in text, which is ONNX's own, and the dtype."""

ATTRIBUTE_TYPES: Mapping[str, ir.AttributeType] = {
    t.name.lower(): t for t in AttrType if t is not AttrType.UNDEFINED
}
"""The name of an attribute's type in text, which is ONNX's own, and the type."""

_NESTED_TYPES = ("seq", "optional", "sparse_tensor", "map", "opaque")
TYPE_WORDS = frozenset(DTYPES) | frozenset(_NESTED_TYPES)
_FLOAT_WORDS = frozenset({"inf", "infinity", "nan"})
_BOOL_WORDS = frozenset({"true", "false"})
_TOKEN = re.compile(
    r"""(?P<skip>(?:\s+|\#[^\n]*)+)
      | (?P<hash>sha256:[0-9a-f]{12}\b)
      | (?P<float>-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)|-(?i:inf|infinity|nan)\b)
      | (?P<int>-?\d+)
      | (?P<id>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<str>"(?:[^"\\]|\\.)*")
      | (?P<sign>=>|[\[\](){}<>,;:=.@~?])""",
    re.VERBOSE | re.DOTALL,
)


def is_literal_word(word: str) -> bool:
    """Whether an unquoted ``word`` reads as a number or a truth value where an operand may stand."""
    return word in _BOOL_WORDS or word.lower() in _FLOAT_WORDS


# --------------------------------------------------------------------------------------------- what is read


@dataclass(frozen=True, slots=True)
class Token:
    """One word of the text: ``text`` is its value, strings without quotes and escapes."""

    kind: str
    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as written.  ``form`` is ``values``, ``dummy``, ``hash`` or ``external``.

    ``dims`` is None where no type was written; the values then make a scalar or, in braces, a list.
    """

    at: Token
    form: str
    dtype: ir.DataType | None
    dims: tuple[int, ...] | None
    values: tuple[Token, ...] = ()
    braces: bool = False
    location: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Declaration:
    """``type name = literal`` with every part but the name optional."""

    name: Token
    type: onnx.TypeProto | None = None
    value: Literal | None = None
    is_input: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    """``name: type = value``; ``value`` is a token, a literal, a type, a graph, or a tuple of one of them."""

    name: Token
    type: ir.AttributeType | None
    value: Any
    is_reference: bool = False


@dataclass(frozen=True, slots=True)
class NodeText:
    """One statement that makes a node."""

    name: str
    outputs: tuple[Token, ...]
    op: Token
    domain: str
    overload: str
    operands: tuple[Token | Literal, ...]
    attributes: tuple[Attribute, ...]

    def graphs(self) -> Iterator[GraphText]:
        """The graphs in its attributes."""
        for attribute in self.attributes:
            values = attribute.value if isinstance(attribute.value, tuple) else (attribute.value,)
            yield from (value for value in values if isinstance(value, GraphText))


@dataclass(slots=True)
class GraphText:
    """A graph as written; ``inputs`` or ``outputs`` is None where the text leaves them to be found."""

    name: str = ""
    inputs: list[Declaration] | None = None
    outputs: list[Declaration] | None = None
    declarations: list[Declaration] = field(default_factory=list)
    nodes: list[NodeText] = field(default_factory=list)

    def defined(self) -> dict[str, Token]:
        """Every name that a node makes or that has a value, and where."""
        valued = [d.name for d in (*(self.inputs or ()), *self.declarations) if d.value is not None]
        made = [name for node in self.nodes for name in node.outputs if name.text]
        return {token.text: token for token in (*valued, *made)}

    def used(self) -> dict[str, Token]:
        """Every name that a node reads, a node of an inner graph included, and where it is first read."""
        found: dict[str, Token] = {}
        for node in self.nodes:
            for operand in node.operands:
                if isinstance(operand, Token) and operand.text:
                    found.setdefault(operand.text, operand)
            for graph in node.graphs():
                own = {**graph.defined(), **{d.name.text: d.name for d in graph.inputs or ()}}
                reads = {**{d.name.text: d.name for d in graph.outputs or ()}, **graph.used()}
                for name in reads.keys() - own.keys():
                    found.setdefault(name, reads[name])
        return dict(sorted(found.items(), key=lambda item: item[1].offset))


@dataclass(slots=True)
class FunctionText:
    """A model-local function as written."""

    header: Mapping[str, Any]
    name: Token
    parameters: list[Token | Attribute]
    body: GraphText


@dataclass(slots=True)
class ModelText:
    """A whole text.  ``header`` is None where it has no ``<ir_version: ...>``."""

    header: Mapping[str, Any] | None
    graph: GraphText
    functions: list[FunctionText]

    @property
    def is_complete(self) -> bool:
        """Whether the text is an ONNX model in full, so that ONNX's own reading of it holds."""
        return self.header is not None and self.graph.outputs is not None


# -------------------------------------------------------------------------------------------------- grammar


class Source:
    """A text, and where in it an error is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, what: str, at: Token) -> NoReturn:
        """Raise a ``ModelError`` of one line that names the place and shows what stands there."""
        line = self.text.count("\n", 0, at.offset) + 1
        column = at.offset - (self.text.rfind("\n", 0, at.offset) + 1) + 1
        match = _TOKEN.match(self.text, at.offset)
        raw = match.group() if match else self.text[at.offset : at.offset + 1]
        shown = f"'{' '.join(raw.split())}'" if raw else "the end of the text"
        raise ModelError(f"{what} at {line}:{column}: {shown}")

    def tokens(self) -> Iterator[Token]:
        """The words of the text, an ``end`` last."""
        offset = 0
        while offset < len(self.text):
            match = _TOKEN.match(self.text, offset)
            if match is None:
                what = "a string without its end" if self.text[offset] == '"' else "unexpected character"
                self.fail(what, Token("bad", "", offset))
            kind, text = str(match.lastgroup), match.group()
            if kind == "str":
                text = re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
            if kind != "skip":
                yield Token(kind, text, offset)
            offset = match.end()
        yield Token("end", "", offset)


class Parser:
    """Recursive descent over the tokens of one text; one method a phrase."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = list(source.tokens())
        self.position = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.position + ahead, len(self.tokens) - 1)]

    def advance(self) -> Token:
        token = self.next
        self.position += 1
        return token

    def at(self, *signs: str) -> bool:
        return self.next.kind == "sign" and self.next.text in signs

    def follows(self, *signs: str) -> bool:
        return self.peek().kind == "sign" and self.peek().text in signs

    def accept(self, sign: str) -> bool:
        if self.at(sign):
            self.advance()
            return True
        return False

    def expect(self, sign: str) -> Token:
        if not self.at(sign):
            self.source.fail(f"expected '{sign}'", self.next)
        return self.advance()

    def take(self, what: str, *kinds: str) -> Token:
        if self.next.kind not in kinds:
            self.source.fail(f"expected {what}", self.next)
        return self.advance()

    def take_name(self, what: str = "a name") -> Token:
        return self.take(what, "id", "str")

    def listed(self, item: Callable[[], T], open_: str, close: str) -> list[T]:
        """``open item, item, ... close``; may be empty."""
        self.expect(open_)
        items: list[T] = []
        while not self.at(close):
            items.append(item())
            if not self.accept(","):
                break
        if not self.at(close):
            self.source.fail(f"expected ',' or '{close}'", self.next)
        self.advance()
        return items

    # -- model, graph, function

    def model(self) -> ModelText:
        header = dict(self.listed(self.header_entry, "<", ">")) if self.at("<") else None
        if self.starts_graph():
            graph = self.graph()
        else:
            graph = GraphText()
            self.body(graph, until=("<",))
            if not graph.nodes and not graph.declarations:
                self.source.fail("expected a statement", self.next)
        functions = []
        while self.next.kind != "end":
            functions.append(self.function())
        return ModelText(header, graph, functions)

    def header_entry(self) -> tuple[str, Any]:
        key = self.take("a header field", "id")
        self.expect(":")
        if key.text in ("ir_version", "model_version"):
            return key.text, int(self.take("a whole number", "int").text)
        if key.text == "opset_import":
            return key.text, dict(self.listed(self.opset_import, "[", "]"))
        if key.text == "metadata_props":
            return key.text, dict(self.listed(self.string_pair, "[", "]"))
        if key.text in ("producer_name", "producer_version", "domain", "doc_string", "overload"):
            return key.text, self.take("a string", "str").text
        return self.source.fail("unknown header field", key)

    def opset_import(self) -> tuple[str, int]:
        domain = self.take("a domain in quotes", "str").text
        self.expect(":")
        return domain, int(self.take("an opset version", "int").text)

    def string_pair(self) -> tuple[str, str]:
        key = self.take("a string", "str").text
        self.expect(":")
        return key, self.take("a string", "str").text

    def starts_graph(self) -> bool:
        is_named = self.next.kind in ("id", "str") and self.follows("(", "=>")
        return self.at("(", "=>") or (is_named and not self.at_type())

    def graph(self, name: str = "") -> GraphText:
        graph = GraphText(name)
        if self.next.kind in ("id", "str"):
            graph.name = self.advance().text
        graph.inputs = self.listed(self.declaration, "(", ")") if self.at("(") else None
        self.expect("=>")
        graph.outputs = self.listed(self.declaration, "(", ")") if self.at("(") else None
        if self.at("<"):
            graph.declarations += self.listed(self.declaration, "<", ">")
        self.expect("{")
        self.body(graph, until=("}",))
        self.expect("}")
        return graph

    def function(self) -> FunctionText:
        header = dict(self.listed(self.header_entry, "<", ">")) if self.at("<") else {}
        name = self.take_name("a function's name")
        parameters = self.listed(self.parameter, "<", ">") if self.at("<") else []
        return FunctionText(header, name, parameters, self.graph(name.text))

    def parameter(self) -> Token | Attribute:
        return self.attribute() if self.follows(":", "=") else self.take_name()

    def declaration(self) -> Declaration:
        type_ = self.type() if self.at_type() else None
        name = self.take_name()
        if not self.accept("="):
            return Declaration(name, type_)
        if type_ is None:
            return Declaration(name, None, self.literal())
        return Declaration(name, type_, self.literal_body(type_, name))

    # -- types

    def at_type(self) -> bool:
        """Whether a type stands here, not a value that is called like one."""
        if self.next.kind != "id" or self.next.text not in TYPE_WORDS:
            return False
        if self.next.text in _NESTED_TYPES:
            return self.follows("(")
        return not self.follows(",", ")", "=", ">", ":", "(", ".")

    def type(self) -> onnx.TypeProto:
        word = self.take("a type", "id")
        result = onnx.TypeProto()
        if word.text in DTYPES:
            self.tensor_type(DTYPES[word.text], result.tensor_type)
        elif word.text in ("seq", "optional"):
            nested = result.sequence_type if word.text == "seq" else result.optional_type
            self.expect("(")
            nested.elem_type.CopyFrom(self.type())
            self.expect(")")
        elif word.text == "sparse_tensor":
            self.expect("(")
            self.tensor_type(DTYPES[self.take("a dtype", "id").text], result.sparse_tensor_type)
            self.expect(")")
        else:
            self.source.fail("no support for values of this type", word)
        return result

    def tensor_type(self, dtype: ir.DataType, into: Any) -> None:
        """As in ONNX: ``float`` is rank 0, ``float[]`` of unknown rank, ``float[N, ?, 3]`` of rank 3."""
        into.elem_type = int(dtype)
        if not self.at("["):
            into.shape.SetInParent()
            return
        dims = self.listed(self.dimension, "[", "]")
        into.shape.dim.extend(dims)
        if not dims:
            into.ClearField("shape")

    def dimension(self) -> onnx.TensorShapeProto.Dimension:
        if self.accept("?"):
            return onnx.TensorShapeProto.Dimension()
        token = self.take("a dimension", "int", "id", "str")
        if token.kind == "int":
            return onnx.TensorShapeProto.Dimension(dim_value=int(token.text))
        return onnx.TensorShapeProto.Dimension(dim_param=token.text)

    # -- literals

    def at_number(self) -> bool:
        return self.next.kind in ("int", "float") or (
            self.next.kind == "id" and is_literal_word(self.next.text)
        )

    def at_literal(self) -> bool:
        return self.at_number() or self.at("{") or (self.at_type() and self.next.text in DTYPES)

    def literal(self) -> Literal:
        """A constant with or without its type in front."""
        if self.at_number():
            return Literal(self.next, "values", None, None, (self.advance(),))
        if self.at("{"):
            return Literal(self.next, "values", None, None, tuple(self.values()), braces=True)
        at = self.next
        return self.literal_body(self.type(), at)

    def literal_body(self, type_: onnx.TypeProto, at: Token) -> Literal:
        """The part of a constant that comes after its type."""
        dims = type_.tensor_type.shape.dim
        if not type_.HasField("tensor_type") or any(not dim.HasField("dim_value") for dim in dims):
            self.source.fail("a constant needs a tensor type with numbers for dimensions", at)
        dtype, shape = ir.DataType(type_.tensor_type.elem_type), tuple(int(dim.dim_value) for dim in dims)
        if self.accept("~"):
            return Literal(at, "dummy", dtype, shape)
        if self.next.kind == "hash":
            return Literal(at, "hash", dtype, shape, (self.advance(),))
        if self.at("[") or (self.next.text == "external" and self.follows("[")):
            if not self.at("["):
                self.advance()
            return Literal(
                at, "external", dtype, shape, location=tuple(self.listed(self.string_pair, "[", "]"))
            )
        if self.at("{"):
            return Literal(at, "values", dtype, shape, tuple(self.values()), braces=True)
        if self.at_number() or self.next.kind == "str":
            return Literal(at, "values", dtype, shape, (self.advance(),))
        return self.source.fail("expected a constant", self.next)

    def values(self) -> list[Token]:
        return self.listed(self.value, "{", "}")

    def value(self) -> Token:
        if not self.at_number() and self.next.kind != "str":
            self.source.fail("expected a number, true, false or a string", self.next)
        return self.advance()

    # -- statements

    def body(self, graph: GraphText, until: Sequence[str]) -> None:
        while not self.at(*until) and self.next.kind != "end":
            if not self.accept(";"):
                self.statement(graph)

    def statement(self, graph: GraphText) -> None:
        if self.at_type():
            graph.declarations.append(self.declaration())
        elif self.next.text == "input" and self.peek().kind in ("id", "str"):
            self.advance()
            graph.declarations.append(self.input_declaration())
        elif self.next.kind in ("id", "str") and self.follows("=") and self.after_equals_literal():
            graph.declarations.append(self.declaration())
        else:
            graph.nodes.append(self.node())

    def input_declaration(self) -> Declaration:
        found = self.declaration()
        return Declaration(found.name, found.type, found.value, is_input=True)

    def after_equals_literal(self) -> bool:
        start = self.position
        self.position += 2
        found = self.at_literal()
        self.position = start
        return found

    def node(self) -> NodeText:
        name = ""
        if self.accept("["):
            name = "" if self.at("]") else self.take_name("a node's name").text
            self.expect("]")
        outputs = self.names()
        if not outputs:
            self.source.fail("expected a statement", self.next)
        self.expect("=")
        *domain, op = self.dotted()
        overload = self.take_name("an overload").text if self.accept(":") else ""
        attributes = self.listed(self.attribute, "<", ">") if self.at("<") else []
        operands, named = self.operands()
        attributes += named
        if not attributes and self.at("<"):
            attributes = self.listed(self.attribute, "<", ">")
        where = ".".join(part.text for part in domain)
        return NodeText(name, tuple(outputs), op, where, overload, tuple(operands), tuple(attributes))

    def names(self) -> list[Token]:
        """``a, , b``: names of which some may be missing."""
        found = []
        while self.next.kind in ("id", "str") or self.at(","):
            found.append(Token("str", "", self.next.offset) if self.at(",") else self.advance())
            if not self.accept(","):
                break
        return found

    def dotted(self) -> list[Token]:
        parts = [self.take_name("an operator")]
        while self.accept("."):
            parts.append(self.take_name("an operator"))
        return parts

    def operands(self) -> tuple[list[Token | Literal], list[Attribute]]:
        """``(x, 1.0, , axis = 1)``: operands, then attributes."""
        operands: list[Token | Literal] = []
        attributes: list[Attribute] = []

        def item() -> None:
            if self.next.kind == "id" and self.follows("=", ":"):
                attributes.append(self.attribute())
            elif attributes:
                self.source.fail("an operand after an attribute", self.next)
            elif self.at(","):
                operands.append(Token("str", "", self.next.offset))
            else:
                operands.append(self.literal() if self.at_literal() else self.take_name("an operand"))

        self.listed(item, "(", ")")
        return operands, attributes

    # -- attributes

    def attribute(self) -> Attribute:
        name = self.take_name("an attribute's name")
        type_ = None
        if self.accept(":"):
            word = self.take("an attribute's type", "id")
            type_ = ATTRIBUTE_TYPES.get(word.text)
            if type_ is None:
                self.source.fail("unknown attribute type", word)
        self.expect("=")
        if self.accept("@"):
            return Attribute(name, type_, self.take_name(), is_reference=True)
        if self.at("["):
            return Attribute(name, type_, tuple(self.listed(lambda: self.attribute_value(name), "[", "]")))
        return Attribute(name, type_, self.attribute_value(name))

    def attribute_value(self, name: Token) -> Any:
        if self.starts_graph():
            return self.graph(name.text)
        if self.next.kind in ("int", "float", "str") or self.next.text.lower() in _FLOAT_WORDS:
            return self.advance()
        if self.next.text not in TYPE_WORDS:
            self.source.fail("expected an attribute's value", self.next)
        at, type_ = self.next, self.type()
        if self.at(",", ">", ")", "]"):
            return type_
        if self.follows("=", "{") and self.next.kind in ("id", "str"):
            self.advance()
        self.accept("=")
        return self.literal_body(type_, at)


# ------------------------------------------------------------------------------------ the type of a literal


def opset_of(opsets: Mapping[str, int], domain: str) -> int | None:
    """The imported version of ``domain``, None where the text does not import it."""
    versions = {normal_domain(name): version for name, version in opsets.items()}
    return versions.get(normal_domain(domain))


def literal_dtype(
    schema: Schema | None,
    position: int,
    dtypes: Sequence[ir.DataType | None],
    *,
    is_fractional: bool,
) -> ir.DataType:
    """The dtype of a number without a type that stands as operand ``position``.

    ``dtypes`` are those of all operands of the node, None where unknown.  In this order: the dtype of another
    operand under the same type variable; float, int64, or the first of ONNX's dtypes that the schema allows.
    An operator without a schema is taken to have one type variable for everything.
    """
    others = [
        dtype for at, dtype in enumerate(dtypes) if at != position and shares_type(schema, position, at)
    ]
    bound = next((dtype for dtype in others if dtype is not None), None)
    if schema is None:
        default = ir.DataType.FLOAT if is_fractional else ir.DataType.INT64
        return default if bound is None or (is_fractional and not bound.is_floating_point()) else bound
    if bound is not None:
        return bound
    formal = _formal(schema, position)
    names = () if formal is None else formal.types
    allowed = sorted(DTYPES[name[7:-1]] for name in names if name.startswith("tensor("))
    preferred = (dtype for dtype in (ir.DataType.FLOAT, ir.DataType.INT64) if dtype in allowed)
    return next(preferred, allowed[0] if allowed else ir.DataType.FLOAT)


def shares_type(schema: Schema | None, one: int, other: int) -> bool:
    """Whether the schema gives two operands of a node one dtype."""
    if schema is None:
        return True
    a, b = _formal(schema, one), _formal(schema, other)
    if a is None or b is None or a.type_var != b.type_var:
        return False
    has_body = any(each.type is AttrType.GRAPH for each in schema.attributes.values())
    return not (a.variadic and has_body)  # what a Loop carries, each with a type of its own


def _formal(schema: Schema, position: int) -> Formal | None:
    """The formal parameter of operand ``position``; the last one repeats where it is variadic."""
    if position < len(schema.inputs):
        return schema.inputs[position]
    last = schema.inputs[-1] if schema.inputs else None
    return last if last is not None and last.variadic else None


def strings_of(tensor: ir.TensorProtocol) -> list[bytes]:
    """The elements of a string tensor, in order; NumPy would drop zero bytes at their ends."""
    return list(ir.to_proto(tensor).string_data)


def tensor_hash(tensor: ir.TensorProtocol) -> str:
    """``sha256:`` and 12 hexadecimal digits over dtype, shape and bytes of a tensor."""
    state = hashlib.sha256(f"{tensor.dtype.name}{list(tensor.shape.numpy())}".encode())
    if tensor.dtype is ir.DataType.STRING:
        for item in strings_of(tensor):
            state.update(len(item).to_bytes(8, "little") + item)
    else:
        state.update(tensor.tobytes())
    return f"sha256:{state.hexdigest()[:12]}"


# ------------------------------------------------------------------------------------------ names and types


@dataclass(slots=True)
class Scope:
    """What is known of the names of one graph and of the graphs around it."""

    opsets: Mapping[str, int]
    types: dict[str, onnx.TypeProto] = field(default_factory=dict)
    tensors: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def inner(self, hidden: Collection[str]) -> Scope:
        """A scope that sees this one, but for the ``hidden`` names, and tells it nothing."""
        types = {name: type_ for name, type_ in self.types.items() if name not in hidden}
        tensors = {name: tensor for name, tensor in self.tensors.items() if name not in hidden}
        return Scope(self.opsets, types, tensors)

    def know(self, tensor: onnx.TensorProto) -> None:
        """Take in an initializer."""
        self.types[tensor.name] = _tensor_type(ir.DataType(tensor.data_type), tensor.dims)
        if np.prod(tensor.dims) <= _SMALL and tensor.data_location != onnx.TensorProto.EXTERNAL:
            self.tensors[tensor.name] = tensor

    def dtype(self, name: str) -> ir.DataType | None:
        """The dtype of a tensor, None where unknown."""
        type_ = self.types.get(name)
        return (
            ir.DataType(type_.tensor_type.elem_type)
            if type_ is not None and type_.tensor_type.elem_type
            else None
        )


class Elaborator:
    """From what was read to a ``ModelProto``: names resolved, literals typed, nothing left to guess."""

    def __init__(
        self, parser: Parser, opset: int, domains: Mapping[str, int], weights: Mapping[str, Array]
    ) -> None:
        self.fail = parser.source.fail
        self.text = parser.model()
        self.opset, self.domains, self.weights = opset, domains, weights
        taken = {token.text for token in parser.tokens}
        self.fresh = (name for name in (f"c{n}" for n in range(2**62)) if name not in taken)

    def model(self, ir_version: int) -> onnx.ModelProto:
        header = dict(self.text.header or {})
        opsets = header.pop("opset_import", None) or self.opsets(self.text.graph)
        metadata = header.pop("metadata_props", {})
        model = onnx.ModelProto(**{"ir_version": ir_version, **header})
        model.opset_import.extend(_opset_protos(opsets))
        model.metadata_props.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in metadata.items())
        model.graph.CopyFrom(self.graph(self.text.graph, Scope(opsets), is_main=True))
        model.functions.extend(self.function(function) for function in self.text.functions)
        return model

    def opsets(self, graph: GraphText) -> dict[str, int]:
        """The default domain, then the others that nodes use, by name."""
        used = {domain for domain in _domains(graph) if domain not in ("", "ai.onnx")}
        return {"": self.domains.get("", self.opset), **{d: self.domains.get(d, 1) for d in sorted(used)}}

    def function(self, text: FunctionText) -> onnx.FunctionProto:
        header = dict(text.header)
        scope = Scope(header.pop("opset_import", None) or self.opsets(text.body))
        function = onnx.FunctionProto(name=text.name.text, **header)
        function.opset_import.extend(_opset_protos(scope.opsets))
        for parameter in text.parameters:
            if isinstance(parameter, Token):
                function.attribute.append(parameter.text)
            else:
                function.attribute_proto.append(self.attribute(parameter, None, scope, ""))
        graph = self.graph(text.body, scope)
        function.input.extend(value.name for value in graph.input)
        function.output.extend(value.name for value in graph.output)
        typed = (*graph.input, *graph.output, *graph.value_info)
        function.value_info.extend(value for value in typed if value.HasField("type"))
        function.node.extend(_constant_node(tensor) for tensor in graph.initializer)
        function.node.extend(graph.node)
        return function

    # -- graphs

    def graph(
        self, text: GraphText, outer: Scope, *, is_main: bool = False, is_inner: bool = False
    ) -> onnx.GraphProto:
        """One graph.  Only the main one may leave inputs to be found; only an inner one reads outer names."""
        inputs = self.inputs(text, is_main)
        input_names = {declared.name.text for declared in inputs}
        self.check_names(text, input_names, is_inner)
        scope = outer.inner(hidden=text.defined().keys() | input_names)
        for declared in (*inputs, *text.declarations, *(text.outputs or ())):
            if declared.type is not None:
                scope.types[declared.name.text] = declared.type
        graph = onnx.GraphProto(name=text.name or "graph", input=map(_value_info, inputs))
        for declared in (*inputs, *text.declarations):
            if declared.value is not None:
                graph.initializer.append(self.initializer(declared.name, declared.value, scope))
            elif declared.name.text not in input_names:
                graph.value_info.append(_value_info(declared))
        for node in text.nodes:
            self.node(node, scope, graph)
        for declared in self.outputs(text):
            is_known = (is_main and not self.text.is_complete) or declared.name.text in input_names
            type_ = declared.type or (scope.types.get(declared.name.text) if is_known else None)
            graph.output.append(_value_info(Declaration(declared.name, type_)))
        return graph

    def inputs(self, text: GraphText, is_main: bool) -> list[Declaration]:
        """The inputs in order: as the header lists them, or by where the text mentions them first."""
        if text.inputs is not None or not is_main:
            found = [*(text.inputs or ()), *(d for d in text.declarations if d.is_input)]
        else:
            found = self.found_inputs(text)
        if not is_main or self.text.is_complete:
            return found
        return [d if d.type is not None else Declaration(d.name, self.input_type(d), d.value) for d in found]

    def input_type(self, declared: Declaration) -> onnx.TypeProto:
        """The type of an input without one: that of its default value, else float of unknown rank."""
        if declared.value is None:
            return _tensor_type(ir.DataType.FLOAT)
        dtype, array = self.array(declared.value, self.own_dtype(declared.value), declared.name.text)
        return _tensor_type(dtype, array.shape)

    def found_inputs(self, text: GraphText) -> list[Declaration]:
        defined = text.defined()
        first = {d.name.text: d.name for d in text.outputs or ()}
        for name, token in text.used().items():
            first[name] = min(token, first.get(name, token), key=lambda t: t.offset)
        found = {name: Declaration(token) for name, token in first.items() if name not in defined}
        for declared in text.declarations:
            name = declared.name.text
            if declared.is_input or name not in defined:
                found[name] = declared
        return sorted(found.values(), key=lambda d: min(d.name.offset, first.get(d.name.text, d.name).offset))

    def check_names(self, text: GraphText, inputs: Collection[str], is_inner: bool) -> None:
        """Every name is made once and, but for outer names in an inner graph, made before it is read."""
        made = [name for node in text.nodes for name in node.outputs if name.text]
        valued = [d.name for d in (*(text.inputs or ()), *text.declarations) if d.value is not None]
        seen: set[str] = set()
        for name in (*valued, *made):
            if name.text in seen or (name in made and name.text in inputs):
                self.fail("a second definition of this name", name)
            seen.add(name.text)
        if is_inner:
            return
        for name in (*text.used().values(), *(d.name for d in text.outputs or ())):
            if name.text not in seen and name.text not in inputs:
                self.fail("a name that nothing defines and that is no input", name)

    def outputs(self, text: GraphText) -> list[Declaration]:
        """The outputs: as the header lists them, or every value made by a node that no node reads."""
        if text.outputs is not None:
            return text.outputs
        used = text.used()
        return [Declaration(n) for node in text.nodes for n in node.outputs if n.text and n.text not in used]

    def initializer(self, name: Token, value: Literal, scope: Scope) -> onnx.TensorProto:
        tensor = self.tensor(value, self.own_dtype(value), name.text, has_bits=self.text.is_complete)
        scope.know(tensor)
        return tensor

    # -- nodes

    def node(self, text: NodeText, scope: Scope, graph: onnx.GraphProto) -> None:
        schema = schema_of(text.domain, text.op.text, opset_of(scope.opsets, text.domain))
        node = onnx.NodeProto(
            name=text.name, op_type=text.op.text, domain=text.domain, overload=text.overload
        )
        node.output.extend(name.text for name in text.outputs)
        seed = text.outputs[0].text
        node.attribute.extend(self.attribute(attribute, schema, scope, seed) for attribute in text.attributes)
        dtypes = [o.dtype if isinstance(o, Literal) else scope.dtype(o.text) for o in text.operands]
        for position, operand in enumerate(text.operands):
            if isinstance(operand, Literal):
                dtype = operand.dtype or self.operand_dtype(operand, schema, position, dtypes)
                graph.initializer.append(self.tensor(operand, dtype, next(self.fresh)))
                scope.know(graph.initializer[-1])
                node.input.append(graph.initializer[-1].name)
            else:
                node.input.append(operand.text)
        graph.node.append(node)
        for name, type_ in _inferred_types(node, schema, scope).items():
            scope.types.setdefault(name, type_)

    def operand_dtype(
        self,
        literal: Literal,
        schema: Schema | None,
        position: int,
        dtypes: Sequence[ir.DataType | None],
    ) -> ir.DataType:
        own = self.own_dtype(literal)
        if own in (ir.DataType.BOOL, ir.DataType.STRING):
            return own
        return literal_dtype(schema, position, dtypes, is_fractional=own is ir.DataType.FLOAT)

    def own_dtype(self, literal: Literal) -> ir.DataType:
        """The dtype that it has by itself: ``1`` int64, ``0.5`` float, ``true`` bool, ``"a"`` string."""
        if literal.dtype is not None:
            return literal.dtype
        kinds = {"bool" if t.kind == "id" and t.text in _BOOL_WORDS else t.kind for t in literal.values}
        if kinds <= {"int"}:
            return ir.DataType.INT64
        if len(kinds) == 1 and kinds <= {"bool", "str"}:
            return ir.DataType.BOOL if "bool" in kinds else ir.DataType.STRING
        return ir.DataType.FLOAT

    # -- attributes

    def attribute(
        self, text: Attribute, schema: Schema | None, scope: Scope, seed: str
    ) -> onnx.AttributeProto:
        formal = schema.attributes.get(text.name.text) if schema is not None else None
        wanted = text.type or (formal.type if formal is not None else None)
        proto = onnx.AttributeProto(name=text.name.text)
        if text.is_reference:
            if wanted is None:
                self.fail("a reference to an attribute needs a type, as in 'a: float = @b'", text.name)
            proto.type = onnx.AttributeProto.AttributeType.Value(wanted.name)
            proto.ref_attr_name = text.value.text
            return proto
        is_list = isinstance(text.value, tuple)
        values = text.value if is_list else (text.value,)
        type_ = self.attribute_type(text, values, is_list, wanted)
        if text.type is not None and type_ is not text.type:
            self.fail(
                f"an attribute said to be {text.type.name.lower()} that is {type_.name.lower()}", text.name
            )
        proto.type = onnx.AttributeProto.AttributeType.Value(type_.name)
        converted = [self.attribute_value(value, type_, scope, seed) for value in values]
        _fill(proto, type_, converted)
        return proto

    def attribute_type(
        self, text: Attribute, values: Sequence[Any], is_list: bool, wanted: ir.AttributeType | None
    ) -> ir.AttributeType:
        kinds = {_kind(value) for value in values}
        if not kinds:
            if wanted is None or wanted not in _LIST_OF.values():
                self.fail("an empty list needs a type, as in 'a: ints = []'", text.name)
            return wanted
        if kinds == {AttrType.INT} and wanted in (AttrType.FLOAT, AttrType.FLOATS):
            kinds = {AttrType.FLOAT}
        if len(kinds) > 1 and not kinds <= {AttrType.INT, AttrType.FLOAT}:
            self.fail("a list of values of different kinds", text.name)
        kind = next(iter(kinds)) if len(kinds) == 1 else AttrType.FLOAT
        return _LIST_OF[kind] if is_list else kind

    def attribute_value(self, value: Any, type_: ir.AttributeType, scope: Scope, seed: str) -> Any:
        if isinstance(value, Literal):
            return self.tensor(value, self.own_dtype(value), "", seed=seed, has_bits=self.text.is_complete)
        if isinstance(value, GraphText):
            return self.graph(value, scope, is_inner=True)
        if isinstance(value, onnx.TypeProto):
            return value
        if type_ in (AttrType.INT, AttrType.INTS):
            return self.whole(value, -(2**63), 2**63 - 1, "int64")
        if type_ in (AttrType.FLOAT, AttrType.FLOATS):
            return float(value.text)
        return value.text.encode("utf-8", "surrogateescape")

    # -- tensors

    def tensor(
        self, literal: Literal, dtype: ir.DataType, name: str, *, seed: str = "", has_bits: bool = False
    ) -> onnx.TensorProto:
        """The tensor of a literal.

        ``has_bits`` is ONNX's own reading: in braces, a whole number that stands for a floating-point value
        of 16 bits or less is its bit pattern.
        """
        if literal.form == "external":
            proto = onnx.TensorProto(name=name, data_type=int(dtype), dims=literal.dims)
            proto.data_location = onnx.TensorProto.EXTERNAL
            proto.external_data.extend(
                onnx.StringStringEntryProto(key=k, value=v) for k, v in literal.location
            )
            return proto
        _, array = self.array(literal, dtype, seed or name, has_bits=has_bits)
        return ir.to_proto(_tensor(array, dtype, name))

    def array(
        self, literal: Literal, dtype: ir.DataType, seed: str, *, has_bits: bool = False
    ) -> tuple[ir.DataType, Array]:
        """The values of a literal, as ``dtype``, in its shape."""
        dims = literal.dims if literal.dims is not None else (len(literal.values),) * literal.braces
        if literal.form == "external":
            return dtype, np.empty(dims, np.uint8)
        if literal.form == "dummy":
            return dtype, self.dummy(literal, dtype, dims, seed)
        if literal.form == "hash":
            return dtype, self.weight(literal, dtype, dims, seed)
        is_complex = dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)
        count = int(np.prod(dims)) * (2 if is_complex else 1)
        if len(literal.values) != count:
            self.fail(f"{len(literal.values)} values for a shape of {count}", literal.at)
        return dtype, self.numbers(literal.values, dtype, has_bits and literal.braces).reshape(dims)

    def numbers(self, values: Sequence[Token], dtype: ir.DataType, has_bits: bool) -> Array:
        target = dtype.numpy()
        if dtype is ir.DataType.STRING:
            return np.array([self.string(value) for value in values], dtype=object)
        if dtype is ir.DataType.BOOL:
            return np.array([self.truth(value) for value in values], dtype=target)
        if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
            parts = np.array([self.fraction(value, None) for value in values])
            return (parts[::2] + 1j * parts[1::2]).astype(target)
        if not dtype.is_floating_point():
            low, high = _integer_range(dtype)
            whole = [self.whole(value, low, high, dtype.name.lower()) for value in values]
            return np.array(whole, dtype=np.uint64 if dtype is ir.DataType.UINT64 else np.int64).astype(
                target
            )
        if has_bits and dtype.bitwidth in (8, 16) and all(value.kind == "int" for value in values):
            bits = [self.whole(value, 0, 2**dtype.bitwidth - 1, "bit pattern") for value in values]
            return np.array(bits, dtype=f"uint{dtype.bitwidth}").view(target)
        return np.array([self.fraction(value, dtype) for value in values], dtype=np.float64).astype(target)

    def string(self, value: Token) -> bytes:
        if value.kind != "str":
            self.fail("not a string", value)
        return value.text.encode("utf-8", "surrogateescape")

    def truth(self, value: Token) -> bool:
        if value.text not in ("true", "false", "0", "1"):
            self.fail("not a bool", value)
        return value.text in ("true", "1")

    def whole(self, value: Token, low: int, high: int, what: str) -> int:
        if value.kind != "int" or not low <= int(value.text) <= high:
            self.fail(f"not a value of {what}", value)
        return int(value.text)

    def fraction(self, value: Token, dtype: ir.DataType | None) -> float:
        """A floating-point number, refused where ``dtype`` has no finite value near it."""
        if value.kind not in ("int", "float") and value.text.lower() not in _FLOAT_WORDS:
            self.fail("not a number", value)
        number = float(value.text)
        if dtype is not None:
            with np.errstate(all="ignore"):
                held = float(np.float64(number).astype(dtype.numpy()))
            if not (held == number or np.isfinite(held) or (held != held and number != number)):
                self.fail(f"not a value of {dtype.name.lower()}", value)
        return number

    def dummy(self, literal: Literal, dtype: ir.DataType, dims: Sequence[int], seed: str) -> Array:
        """Standard normal values, for integers 0 to 7, always the same for one name."""
        random = np.random.default_rng(zlib.crc32(seed.encode()))
        if dtype.is_floating_point():
            return random.standard_normal(dims).astype(dtype.numpy())
        if dtype is ir.DataType.BOOL or dtype.is_integer():
            high = min(8, 2 ** (dtype.bitwidth - 1)) if dtype is not ir.DataType.BOOL else 2
            return random.integers(0, high, dims).astype(dtype.numpy())
        return self.fail(f"no dummy values of {dtype.name.lower()}", literal.at)

    def weight(self, literal: Literal, dtype: ir.DataType, dims: tuple[int, ...], name: str) -> Array:
        """The array that ``weights`` holds for a hash, by the value's name or by the hash itself."""
        (digest,) = literal.values
        found = self.weights.get(name, self.weights.get(digest.text))
        if found is None:
            self.fail(f"a hash is no value; pass weights={{'{name}': array}}", digest)
        array = np.ascontiguousarray(found).reshape(np.shape(found))
        if dtype is ir.DataType.STRING:
            array = array.astype(object)
        if array.dtype != dtype.numpy() or array.shape != dims:
            self.fail(
                f"weights['{name}'] is {array.dtype}{list(array.shape)}, which is not the type here",
                literal.at,
            )
        actual = tensor_hash(_tensor(array, dtype, name))
        if actual != digest.text:
            self.fail(f"weights['{name}'] has {actual}, which is not the hash here", digest)
        return array


# --------------------------------------------------------------------------------------- small proto makers

_LIST_OF = {
    AttrType.INT: AttrType.INTS,
    AttrType.FLOAT: AttrType.FLOATS,
    AttrType.STRING: AttrType.STRINGS,
    AttrType.TENSOR: AttrType.TENSORS,
    AttrType.GRAPH: AttrType.GRAPHS,
    AttrType.TYPE_PROTO: AttrType.TYPE_PROTOS,
}
_FIELDS = {AttrType.INT: "i", AttrType.FLOAT: "f", AttrType.STRING: "s"}
_MESSAGES = {AttrType.TENSOR: "t", AttrType.GRAPH: "g", AttrType.TYPE_PROTO: "tp"}


def _kind(value: Any) -> ir.AttributeType:
    """The attribute type of one value as written."""
    if isinstance(value, Token):
        return {"int": AttrType.INT, "str": AttrType.STRING}.get(value.kind, AttrType.FLOAT)
    by_class = {Literal: AttrType.TENSOR, GraphText: AttrType.GRAPH, onnx.TypeProto: AttrType.TYPE_PROTO}
    return by_class[type(value)]


def _fill(proto: onnx.AttributeProto, type_: ir.AttributeType, values: Sequence[Any]) -> None:
    if type_ in _FIELDS:
        setattr(proto, _FIELDS[type_], values[0])
    elif type_ in _MESSAGES:
        getattr(proto, _MESSAGES[type_]).CopyFrom(values[0])
    else:
        getattr(proto, type_.name.lower()).extend(values)


def _tensor(array: Array, dtype: ir.DataType, name: str) -> ir.TensorProtocol:
    if dtype is ir.DataType.STRING:
        return ir.StringTensor(array, shape=ir.Shape(array.shape), name=name)
    return ir.Tensor(array, dtype=dtype, name=name)


def _integer_range(dtype: ir.DataType) -> tuple[int, int]:
    if dtype.is_signed():
        return -(2 ** (dtype.bitwidth - 1)), 2 ** (dtype.bitwidth - 1) - 1
    return 0, 2**dtype.bitwidth - 1


def _tensor_type(dtype: ir.DataType, dims: Sequence[int] | None = None) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(int(dtype), dims)


def _value_info(declared: Declaration) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=declared.name.text, type=declared.type)


def _constant_node(tensor: onnx.TensorProto) -> onnx.NodeProto:
    """What stands for an initializer in a function, which has none."""
    return onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)


def _opset_protos(opsets: Mapping[str, int]) -> list[onnx.OperatorSetIdProto]:
    return [onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in opsets.items()]


def _domains(graph: GraphText) -> Iterator[str]:
    for node in graph.nodes:
        yield node.domain
        for inner in node.graphs():
            yield from _domains(inner)


def _inferred_types(
    node: onnx.NodeProto, schema: Schema | None, scope: Scope
) -> Mapping[str, onnx.TypeProto]:
    """What is known of the outputs of one node: as ONNX infers it, else by the schema's type variables."""
    if schema is None:
        return {}
    variables = {formal.type_var: formal.types for formal in schema.outputs}
    known = {
        v: DTYPES[next(iter(t))[7:-1]]
        for v, t in variables.items()
        if len(t) == 1 and "tensor(" in min(t)[:7]
    }
    for position, name in enumerate(node.input):
        formal, dtype = _formal(schema, position), scope.dtype(name)
        if formal is not None and not formal.variadic and dtype is not None:
            known.setdefault(formal.type_var, dtype)
    last = schema.outputs[-1:] * len(node.output) if schema.outputs and schema.outputs[-1].variadic else ()
    pairs = zip((*schema.outputs, *last), node.output, strict=False)
    bound = {n: _tensor_type(known[f.type_var]) for f, n in pairs if n and f.type_var in known}
    return {**bound, **_inferred_by_onnx(node, scope)}


def _inferred_by_onnx(node: onnx.NodeProto, scope: Scope) -> Mapping[str, onnx.TypeProto]:
    version = opset_of(scope.opsets, node.domain)
    if version is None or any(name and name not in scope.types for name in node.input):
        return {}
    has_graph = any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
    types = scope.types if has_graph else {name: scope.types[name] for name in node.input if name}
    imports = _opset_protos(scope.opsets)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, normal_domain(node.domain))
        return onnx.shape_inference.infer_node_outputs(
            schema, node, types, scope.tensors, opset_imports=imports
        )
    except (onnx.defs.SchemaError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
        return {}
    except (RuntimeError, ValueError):  # what pybind makes of the rest
        return {}


def build(
    text: str, opset: int, domains: Mapping[str, int], ir_version: int, weights: Mapping[str, Array]
) -> onnx.ModelProto:
    """The ``ModelProto`` of a text; raises ``ModelError``."""
    return Elaborator(Parser(Source(text)), opset, domains, weights).model(ir_version)
