"""The strings of a protobuf, which are to be text in UTF-8.

Protobuf reads other bytes without complaint, and gives them as bytes.  What only describes is repaired, for a stray
byte in a comment spoils no model; a name is not guessed.  This module must not know graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from onnxrewrite.errors import ModelError

_TYPES: Final = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING)

_COMMENTS: Final = ("doc_string", "metadata_props")

_OF_TENSOR: Final = ("name", "doc_string", "external_data", "metadata_props")
"""All text of a tensor; its numbers, which are bytes, too, are not to be copied."""


def repair_strings(proto: onnx.ModelProto, where: str) -> list[str]:
    """Replace what is no text in comments, and say so; ModelError for any other string that is none."""
    said: list[str] = []
    stack: list[tuple[Message, bool]] = [(proto, False)]
    while stack:
        message, is_comment = stack.pop()
        for name, inner in _fields(message):
            comments = is_comment or name in _COMMENTS
            for each in inner:
                if isinstance(each, Message):
                    stack.append((each, comments))
                elif isinstance(each, bytes) and not comments:
                    raise ModelError(f"{where}: the {name.replace('_', ' ')} {each!r} is no text in UTF-8")
                elif isinstance(each, bytes):
                    setattr(message, name, each.decode(errors="replace"))
                    said.append(f"{name if name == 'doc_string' else 'metadata'}: {each[:40]!r} is no text in UTF-8")
    return said


def _fields(message: Message) -> Iterator[tuple[str, Iterable[object]]]:
    """The messages and strings in a message, by field; a string that is no text as bytes."""
    if isinstance(message, onnx.TensorProto):
        found = [(name, getattr(message, name)) for name in _OF_TENSOR]
    else:
        found = [(field.name, held) for field, held in message.ListFields() if field.type in _TYPES]
    for name, held in found:
        yield name, [held] if isinstance(held, str | bytes | Message) else held
