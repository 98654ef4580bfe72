"""``tune``: measurements that travel between machines, in files of signed rows, and what the database of one holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypedDict

from onnxrewrite.errors import UsageError
from onnxrewrite.measure.database import exchange, signing
from onnxrewrite.measure.database.known import Database
from onnxrewrite.measure.database.rows import digests, ort_build
from onnxrewrite.measure.database.store import HERE, Kept, Store, imported
from onnxrewrite.rewrite import registry
from onnxrewrite.system import files

PATIENCE: Final = 10.0
"""Seconds that are waited for another process: who asks for the database itself wants all of it."""


class Group(TypedDict):
    """Rows that have this in common, their number, and the first and last day of them."""

    machine_class: str
    ort: str
    source: str
    kind: str
    rows: int
    first: str
    last: str


class Overview(TypedDict):
    """The contents of a database: ``quarantine`` is from the id of a key to the reason."""

    file: str
    groups: list[Group]
    quarantine: dict[str, str]


@dataclass(frozen=True)
class Taken:
    """The outcome of reading rows from files.

    Attributes:
        rows: The number of rows that are signed and valid.
        added: Of them those that were not known.
        refused: Reason to number.
    """

    rows: int
    added: int
    refused: Mapping[str, int]


def database() -> Store:
    """The database of this machine."""
    return Store(patience=PATIENCE)


def export(path: Path, key: str | Path, *, store: Store | None = None, every: bool = False) -> int:
    """Write the rows of this machine's class to a file, those that were measured here signed; their number.

    Args:
        path: The file, which is replaced.
        key: The file of the private key.
        store: The database; by default that of this machine.
        every: Write the rows of other classes, too.

    Raises:
        UsageError: The key cannot be used.
        ModelError: The database cannot be read, or the file not be written.
    """
    private = signing.private_key(key)
    known = Database(store or database())
    rows = [replace(each, row=known.told(each.row)) for each in _rows(known.store)]
    outside = known.store.quarantined()
    wanted = [r for r in rows if r.source not in outside and r.row.machine_class.fingerprint is not None]
    if not every:
        wanted = [r for r in wanted if known.machine_class.is_alike(r.row.machine_class)]
    made = [
        exchange.signed(r.row, private) if r.source == HERE else exchange.Signed(r.row, r.source, r.envelope)
        for r in wanted
    ]
    found = {each.key: each for each in made}
    exchange.write(path, found.values(), "tune export")
    return len(found)


def take(paths: Sequence[str | Path], keys: Sequence[str | Path], *, store: Store | None = None) -> Taken:
    """Import the rows of files: those that one of the public keys has signed, of this build of ONNX Runtime and of
    rules as they are here.

    Raises:
        UsageError: A file or a key cannot be read.
        ModelError: The database cannot be written.
    """
    found = exchange.read(paths, keys)
    found.refuse_stale(digests(*registry.load()))
    kept = store or database()
    here = Database(kept)
    own = {here.told(each.row).digest for each in _rows(kept) if each.source == HERE}
    added = kept.add(imported(each for each in found.signed.values() if each.row.digest not in own))
    kept.require()
    return Taken(len(found.signed), added, found.refused)


def merge(paths: Sequence[str | Path], keys: Sequence[str | Path], out: Path) -> Taken:
    """Write the union of files, of which ``out`` may be one, to ``out``; where that is a file already, nothing that is
    valid in it is lost.

    Raises:
        UsageError: A file or a key cannot be read.
        ModelError: ``out`` cannot be written.
    """
    before = exchange.read([out], keys) if files.is_regular(out) else exchange.Rows()
    if before.refused:
        raise UsageError(f"-o {out}: has rows that would be lost: {_told(before.refused)}")
    old = len(before.signed)
    before.add(exchange.read(paths, keys))
    exchange.write(out, before.signed.values(), "-o")
    return Taken(len(before.signed), len(before.signed) - old, before.refused)


def overview(store: Store | None = None) -> Overview:
    """The contents of a database; ModelError if it cannot be read."""
    kept = store or database()
    days: dict[tuple[str, str, str, str], list[str]] = {}
    for each in _rows(kept):
        name = each.row.machine_class.name, each.row.ort, each.source, each.row.question.kind
        days.setdefault(name, []).append(each.row.date)
    groups: list[Group] = [
        {
            "machine_class": machine_class,
            "ort": ort,
            "source": source,
            "kind": kind,
            "rows": len(dates),
            "first": min(dates),
            "last": max(dates),
        }
        for (machine_class, ort, source, kind), dates in sorted(days.items())
    ]
    return {"file": str(kept.path), "groups": groups, "quarantine": kept.quarantined()}


def forget(store: Store | None = None, *, source: str | None = None, stale: bool = False, every: bool = False) -> int:
    """Forget rows; their number.

    Args:
        store: The database; by default that of this machine.
        source: Those of a key, by the beginning of its id.
        stale: Those of other builds of ONNX Runtime, and of rules that are others now.
        every: All, and what was decided, and which checks have passed.

    Raises:
        UsageError: Nothing is chosen, or there is no such source.
        ModelError: The database cannot be written.
    """
    kept = store or database()
    rows = _rows(kept)
    if not (source is not None or stale or every):
        raise UsageError("say what is forgotten: --source KEY, --stale or --all")
    chosen = rows if every else []
    if source is not None:
        name = _source(source, {each.source for each in rows if each.source != HERE})
        chosen = [*chosen, *(each for each in rows if each.source == name)]
    if stale:
        now = digests(*registry.load())
        chosen = [*chosen, *(each for each in rows if _is_stale(each, now))]
    distinct = {(each.row.digest, each.source): each for each in chosen}
    kept.forget(distinct.values())
    if every:
        kept.forget_decisions()
    kept.require()
    return len(distinct)


def release(source: str, store: Store | None = None) -> str:
    """End the quarantine of a key, told by the beginning of its id; the whole id.

    Raises:
        UsageError: No such key is in quarantine.
        ModelError: The database cannot be written.
    """
    kept = store or database()
    name = _source(source, set(kept.quarantined()))
    kept.release(name)
    kept.require()
    return name


def _source(begin: str, known: set[str]) -> str:
    found = [each for each in sorted(known) if begin and each.startswith(begin)]
    if len(found) != 1:
        raise UsageError(f"{begin}: {'several keys begin' if found else 'no key begins'} like this; see tune list")
    return found[0]


def _rows(store: Store) -> list[Kept]:
    found = store.rows()
    store.require()
    return found


def _is_stale(each: Kept, rules: Mapping[str, str]) -> bool:
    named = each.row.question.rules.items()
    return each.row.ort != ort_build() or any(rules.get(name, digest) != digest for name, digest in named)


def _told(refused: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(refused.items()))
