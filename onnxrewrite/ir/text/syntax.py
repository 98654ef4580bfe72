"""The elements of text: tokens, and the plain data with positions that the grammar reads from them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir as ir

from onnxrewrite.system.plain import Plain

AttrType = ir.AttributeType

DTYPES: Mapping[str, ir.DataType] = {d.name.lower(): d for d in ir.DataType if d is not ir.DataType.UNDEFINED}
"""The name of a dtype in text, which is ONNX's own, and the dtype."""

ATTRIBUTE_TYPES: Mapping[str, ir.AttributeType] = {t.name.lower(): t for t in AttrType if t is not AttrType.UNDEFINED}
"""The name of an attribute's type in text, which is ONNX's own, and the type."""

NESTED_TYPES = ("seq", "optional", "sparse_tensor", "map", "opaque")
TYPE_WORDS = frozenset(DTYPES) | frozenset(NESTED_TYPES)
FLOAT_WORDS = frozenset({"inf", "infinity", "nan"})
BOOL_WORDS = frozenset({"true", "false"})
TOKEN = re.compile(
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
    """True if an unquoted ``word`` reads as a number or a truth value where an operand may stand."""
    return word in BOOL_WORDS or word.lower() in FLOAT_WORDS


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

    header: Plain
    name: Token
    parameters: list[Token | Attribute]
    body: GraphText


@dataclass(slots=True)
class ModelText:
    """A whole text.  ``header`` is None where it has no ``<ir_version: ...>``."""

    header: Plain | None
    graph: GraphText
    functions: list[FunctionText]

    @property
    def is_complete(self) -> bool:
        """True if the text is an ONNX model in full, so that ONNX's own reading of it holds."""
        return self.header is not None and self.graph.outputs is not None
