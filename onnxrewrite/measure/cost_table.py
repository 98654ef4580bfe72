"""Costs by a table: milliseconds that were measured elsewhere, of regions, of whole models and of operators."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from onnxrewrite.errors import UsageError
from onnxrewrite.measure.cost_models import Bytes, Call, Cost, Operations, Region
from onnxrewrite.measure.database import exchange
from onnxrewrite.measure.database.rows import Row
from onnxrewrite.measure.region_text import near, sides
from onnxrewrite.runtime.kernel_work import VIEWS
from onnxrewrite.system import files

CLOCK: Final = "clock"
"""The name of what ``apply`` goes by unless it is told otherwise; it is no cost model, for it compares."""

_NAMED: Final[Mapping[str, Cost]] = {"bytes": Bytes(), "operations": Operations()}

_Key: TypeAlias = tuple[str, tuple[str, ...]]
"""A region in text, or an operator; and its sizes."""

_Milliseconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class _RegionLine:
    region: str
    sizes: tuple[str, ...]
    milliseconds: _Milliseconds


@dataclass(frozen=True)
class _OperatorLine:
    operator: str
    sizes: tuple[str, ...]
    milliseconds: _Milliseconds


_Line: TypeAlias = _RegionLine | _OperatorLine


@dataclass(frozen=True, repr=False)
class Table:
    """Milliseconds of a table.

    A region or a model that is in it costs what the table says.  Any other costs the sum of its operators, of which
    those that only view another tensor are free; it is not known where one is not in the table at its size class.

    Attributes:
        name: The name of the file.
        sha256: Of its contents.
        regions: By canonical text and sizes.
        operators: By operator, ``DOMAIN.OPERATOR`` for one that is not the standard's, and size class: the dtypes and
            shapes of its inputs, sizes above 16 to a power of two, as ``float[128,64]``.
    """

    name: str
    sha256: str
    regions: Mapping[_Key, float] = field(hash=False)
    operators: Mapping[_Key, float] = field(hash=False)

    def __repr__(self) -> str:
        return f"Table({self.name})"

    def __fingerprint__(self) -> str:
        return self.sha256

    def of(self, region: Region) -> float | None:
        """See ``Cost``: in milliseconds."""
        found = self.regions.get(region.told()) if self.regions else None
        return self._of_operators(region.calls) if found is None and self.operators else found

    def _of_operators(self, calls: Sequence[Call] | None) -> float | None:
        total = 0.0
        for call in calls or ():
            if call.op_type in VIEWS and not call.domain:
                continue
            found = self.operators.get(_key(call))
            if found is None:
                return None
            total += found
        return None if calls is None else total


def cost_named(name: str | os.PathLike[str], *, signed_by: Sequence[str], threads: int) -> Cost | None:
    """The cost model of a name, or of the file of a table; None for the clock.

    Args:
        name: ``clock``, ``bytes``, ``operations``, or a file.
        signed_by: Files of public keys, one of which must have signed rows of ``tune export``.
        threads: Of these rows, those are used that were measured with so many threads.

    Raises:
        UsageError: The file cannot be read, has nothing that can be used, or a line that cannot be.
    """
    told = os.fspath(name)
    return None if told == CLOCK else _NAMED.get(told) or table(told, signed_by=signed_by, threads=threads)


def table(path: str, *, signed_by: Sequence[str] = (), threads: int = 0) -> Table:
    """The table of a file: a line of JSON for each entry, which is a signed row of ``tune export``, or has ``region``
    or ``operator``, ``sizes`` and ``milliseconds``.

    Raises:
        UsageError: As for ``cost_named``.
    """
    try:
        content = files.read_bytes(path, exchange.LIMIT)
    except FileNotFoundError:
        raise UsageError(f"cost {path}: is neither clock, bytes nor operations, and there is no such file") from None
    except OSError as error:
        raise UsageError(f"cost {path}: cannot be read: {error.strerror or error}") from None
    lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
    plain = [(number, line) for number, line in lines if not _is_envelope(line)]
    regions, operators = defaultdict[_Key, list[float]](list), defaultdict[_Key, list[float]](list)
    for number, line in plain:
        entry = _entry(line, f"cost {path}, line {number}")
        if isinstance(entry, _RegionLine):
            regions[entry.region, entry.sizes].append(entry.milliseconds)
        else:
            operators[entry.operator, entry.sizes].append(entry.milliseconds)
    if len(plain) < len(lines):
        rows = exchange.read([path], signed_by).signed.values()
        for key, milliseconds in _of_rows((each.row for each in rows), threads):
            regions[key].append(milliseconds)
    if not regions and not operators:
        raise UsageError(f"cost {path}: has no entry that can be used, with {threads} threads")
    digest = hashlib.sha256(content).hexdigest()
    return Table(os.path.basename(path), digest, _medians(regions), _medians(operators))


def _medians(entries: Mapping[_Key, list[float]]) -> dict[_Key, float]:
    return {key: statistics.median(found) for key, found in entries.items()}


def _is_envelope(line: bytes) -> bool:
    return b'"payload"' in line


def _entry(line: bytes, where: str) -> _Line:
    try:
        return _LINE.validate_python(json.loads(line))
    except (ValueError, RecursionError, ValidationError):
        raise UsageError(
            f"{where}: is no entry; it must be a row of tune export, or have region or operator, sizes and milliseconds"
        ) from None


_LINE: Final[TypeAdapter[_Line]] = TypeAdapter(_Line)


def _of_rows(rows: Iterable[Row], threads: int) -> Iterable[tuple[_Key, float]]:
    """The sides of rows, and the medians of their times."""
    for row in rows:
        asked = row.question
        if asked.kind == "levels" or asked.setting.threads != threads:
            continue
        texts = sides(asked.region) if asked.kind == "rewrite" else _digests(asked.region)
        for side, text in zip(("before", "after"), texts, strict=True):
            yield (text, asked.sizes), 1e3 * row.figures.median(side)


def _digests(region: str) -> list[str]:
    """The texts of both models of a comparison."""
    return [f"{line.partition(' ')[2]}\n" for line in region.splitlines()]


def _key(call: Call) -> _Key:
    name = f"{call.domain}.{call.op_type}" if call.domain else call.op_type
    return name, tuple(f"{t.dtype}[{','.join(str(near(size)) for size in t.shape)}]" for t in call.inputs)
