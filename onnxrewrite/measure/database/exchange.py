"""Files of signed rows: an envelope a line, in the order of the digests of rows, so that equal sets are equal files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxrewrite.errors import UsageError
from onnxrewrite.measure.database import signing
from onnxrewrite.measure.database.rows import Row, RowError, ort_build, parsed
from onnxrewrite.system import files
from onnxrewrite.system.atomic import write_whole

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

LIMIT: Final = 2**30
"""Bytes of a file."""


@dataclass(frozen=True)
class Signed:
    """A row, the key that signed it, and its envelope in a line."""

    row: Row
    source: str
    envelope: str

    @property
    def key(self) -> tuple[str, str]:
        """Two that are equal in it are one."""
        return self.row.digest, self.source


@dataclass
class Rows:
    """A set of rows, and what was refused.

    Attributes:
        signed: The rows, by their digest and that of the key.
        refused: Reason to number.
    """

    signed: dict[tuple[str, str], Signed] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, other: Rows) -> None:
        """Take in another set: the union."""
        self.signed |= other.signed
        self.refused += other.refused

    def refuse_stale(self, rules: Mapping[str, str]) -> None:
        """Refuse rows of other builds of ONNX Runtime, and of rules that are others now; ``rules``: name to digest."""
        here = ort_build()
        for key, each in list(self.signed.items()):
            reason = _stale(each.row, here, rules)
            if reason:
                self.refused[reason] += 1
                del self.signed[key]


def read(paths: Sequence[str | os.PathLike[str]], keys: Sequence[str | os.PathLike[str]]) -> Rows:
    """The rows of files, those that one of the public keys has signed.

    Raises:
        UsageError: A file or a key cannot be read, or no key is named.
    """
    if not keys:
        raise UsageError("rows are taken only if they are signed: name the public keys with --signed-by KEY.pub")
    known = signing.public_keys(keys)
    found = Rows()
    for path in paths:
        found.add(_read(path, known))
    return found


def write(path: Path, rows: Iterable[Signed], option: str) -> None:
    """Write rows, in their order; ModelError if that cannot be done."""
    lines = (each.envelope for each in sorted(rows, key=lambda each: each.key))
    write_whole(path, "".join(f"{line}\n" for line in lines), option)


def signed(row: Row, key: Any) -> Signed:
    """A row, signed now by a ``signing.private_key``."""
    return Signed(row, key.public_key.keyid, _line(signing.sealed(row.written(), key)))


def _read(path: str | os.PathLike[str], keys: Sequence[SSlibKey]) -> Rows:
    try:
        lines = files.read_bytes(path, LIMIT).splitlines()
    except OSError as error:
        raise UsageError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from None
    found = Rows()
    for line in filter(bytes.strip, lines):
        try:
            each = _opened(line, keys)
            found.signed[each.key] = each
        except RowError as error:
            found.refused[str(error)] += 1
    return found


def _opened(line: bytes, keys: Sequence[SSlibKey]) -> Signed:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise RowError("no envelope") from None
    if not isinstance(data, dict):
        raise RowError("no envelope")
    content, source = signing.opened(data, keys)
    row = parsed(content)
    if row.machine_class.fingerprint is None:
        raise RowError("without the fingerprint of a machine")
    return Signed(row, source, _line(data))


def _stale(row: Row, ort: str, rules: Mapping[str, str]) -> str:
    if row.ort != ort:
        return f"of another build of ONNX Runtime: {row.ort}"
    changed = [name for name, digest in row.question.rules.items() if rules.get(name, digest) != digest]
    return f"of another version of the rule {changed[0]}" if changed else ""


def _line(data: Mapping[str, Any]) -> str:
    told = {name: data[name] for name in ("payload", "payloadType", "signatures")}
    return json.dumps(told, sort_keys=True, separators=(",", ":"))
