"""The grammar: that of ``onnx.parser``, plus the short forms that ``onnxrewrite.ir.text`` documents.

What is read is kept as it is written; names and types are ``elaborate``'s, for a name may be used before the line
that defines it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import onnx
import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.ir.text.syntax import (
    ATTRIBUTE_TYPES,
    DTYPES,
    FLOAT_WORDS,
    NESTED_TYPES,
    TOKEN,
    TYPE_WORDS,
    Attribute,
    Declaration,
    FunctionText,
    GraphText,
    Literal,
    ModelText,
    NodeText,
    Token,
    is_literal_word,
)

T = TypeVar("T")


_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|(.))", re.DOTALL)


def _unescaped(text: str) -> str:
    """The value of a quoted string: ``u`` and four digits after a backslash are a unit of UTF-16, as in JSON; any other
    character after a backslash stands for itself."""
    if "\\" not in text:
        return text
    units = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


class Source:
    """A text, and where in it an error is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, what: str, at: Token) -> NoReturn:
        """Raise a ``ModelError`` of one line that names the place and shows what stands there."""
        line = self.text.count("\n", 0, at.offset) + 1
        column = at.offset - (self.text.rfind("\n", 0, at.offset) + 1) + 1
        match = TOKEN.match(self.text, at.offset)
        raw = match.group() if match else self.text[at.offset : at.offset + 1]
        shown = f"'{' '.join(raw.split())}'" if raw else "the end of the text"
        raise ModelError(f"{what} at {line}:{column}: {shown}")

    def tokens(self) -> Iterator[Token]:
        """The words of the text, an ``end`` last."""
        offset = 0
        while offset < len(self.text):
            match = TOKEN.match(self.text, offset)
            if match is None:
                what = "a string without its end" if self.text[offset] == '"' else "unexpected character"
                self.fail(what, Token("bad", "", offset))
            kind, text = str(match.lastgroup), match.group()
            if kind == "str":
                text = _unescaped(text[1:-1])
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

    def header_entry(self) -> tuple[str, object]:
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
        """True if a type stands here, not a value with the name of one."""
        if self.next.kind != "id" or self.next.text not in TYPE_WORDS:
            return False
        if self.next.text in NESTED_TYPES:
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
        return self.next.kind in ("int", "float") or (self.next.kind == "id" and is_literal_word(self.next.text))

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
            return Literal(at, "external", dtype, shape, location=tuple(self.listed(self.string_pair, "[", "]")))
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
        if self.next.kind in ("int", "float", "str") or self.next.text.lower() in FLOAT_WORDS:
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
