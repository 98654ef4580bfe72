"""The certificate: what was rewritten, how that was checked, and the digests of everything it depends on.

Plain data, and how it is written and read.  This module must not know how a model is rewritten; ``writing`` does.

The file is JSON with sorted keys, one entry of a list or table a line.  ``digest`` is over the same text without the
digest: a checksum against accidents and careless edits, no signature.  What is read must be, byte by byte, what would
be written, so that a changed byte is noticed wherever it stands.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from onnxrewrite.checks.site_record import SiteRecord, line
from onnxrewrite.compiler.request import CheckLevel, Lowering
from onnxrewrite.errors import ModelError
from onnxrewrite.runtime.settings import Level
from onnxrewrite.system import files
from onnxrewrite.system.constraints import Count, Error, Inside, Must, Seconds, Size

VERSION: Final = 5
"""Of the schema; another one is refused."""

SUFFIX: Final = ".certificate.json"
"""The suffix that is added to the name of the output."""

_MOST_WRITTEN: Final = 2
"""Files of an output: the model, and one for all external data."""

MAX_BYTES: Final = 2**28
"""A larger file is no certificate: that of a hundred thousand rewrites has less than half of it."""


@dataclass(frozen=True)
class Files:
    """A model and the files of its external data.

    Attributes:
        path: The model's file, relative to the folder of the certificate where that is possible.
        sha256: Digest of each file by its name, relative to the folder of the model, and inside of that.
    """

    path: str
    sha256: dict[Inside, str]


@dataclass(frozen=True)
class ArrayRecord:
    """An array that was given for the checks: digest of dtype, shape and bytes; its file, None where there was none."""

    path: str | None
    sha256: str


@dataclass(frozen=True)
class CostRecord:
    """A cost model that was chosen by in place of the clock: its name, and the digest of all that it consists of."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Options:
    """Everything that was asked for and bears on the result.

    Attributes:
        lower: The choice of the lower stage.
        threads: Within an operator, where it measures; 0 is ONNX Runtime's choice.
        budget: Seconds for all that is measured.
        rules: Rule files, relative to the folder of the certificate, and packages, beside the library.
        named_sums: True if a dimension that is called like a computation is taken for its result.
        inputs: Arrays for the checks.
        assume: The assumptions that were asked for.
        only_proved: True if only rewrites that are proved were asked for.
        cost: The cost model; None for the clock.
    """

    target: str
    opset: Count | None
    dims: dict[str, Size]
    inputs: dict[str, ArrayRecord]
    check: CheckLevel
    seed: Count
    rules: list[str]
    lower: Lowering
    threads: Count
    budget: Seconds
    named_sums: bool
    assume: list[str]
    only_proved: bool
    cost: CostRecord | None


@dataclass(frozen=True)
class RuleRecord:
    """A rule that took part: the digest of all that it consists of, and the modules that it is written in."""

    sha256: str
    modules: list[str]


@dataclass(frozen=True)
class Rewrite:
    """One rewrite: the rule, the value replaced, the graph or function it lies in, and the id of its site."""

    rule: str
    value: str
    scope: str
    site: str


@dataclass(frozen=True)
class Undone:
    """A rewrite that was turned down: ``by`` a check of its ``site`` or of the ``model``, or for its ``speed``, at its
    site or, where ``value`` is empty, everywhere; its site where that is known."""

    rule: str
    value: str
    by: Literal["site", "model", "speed"]
    reason: str
    site: str | None


@dataclass(frozen=True)
class OutputRecord:
    """The error of one output; None is not finite."""

    name: str
    ok: bool
    error: Error | None
    error_original: Error | None
    allowed: Error | None


@dataclass(frozen=True)
class ModelRecord:
    """The whole model against the original."""

    ok: bool
    skipped: str | None
    identical: bool
    runs: Count
    samples: Count
    bindings: list[dict[str, Size]]
    reference: str
    tolerance: str
    outputs: list[OutputRecord]
    segments: Count = 0


@dataclass(frozen=True)
class SpeedRecord:
    """The time of the result to that of the original, with its interval of 95 %, or its cost by the cost model; and the
    level of ONNX Runtime's optimizations at which the result is fastest."""

    median: Seconds
    low: Seconds
    high: Seconds
    level: Level


@dataclass(frozen=True)
class Certificate:
    """The record of the rewrites of a model, and of their checks.

    Attributes:
        versions: Of everything that has a part in it.
        input: The model as it was; None for one that came from no file.
        output: The model as it was written; None for one that was not.
        options: The requested options.
        rules: The rules that took part, by name.
        modules: Digests of the modules that they are written in.
        sites: Both sides of the rewrites, by id; equal ones stand here once.
        proofs: Scripts of SMT-LIB whose goals have no model, by SHA-256, of the sites that have a proof.
        rewrites: The applied rewrites, in order.
        undone: The rewrites that were turned down, by a check or for their speed.
        assumes: Assumptions about the data, each to the rules that make it; to none where all would.
        structure: Problems of the output's structure, which are those of the input.
        model: The check of the whole model; None where none was asked for.
        speed: The speed of the whole model; None where it was not measured.
    """

    versions: dict[str, str]
    input: Files | None
    output: Files | None
    options: Options
    rules: dict[str, RuleRecord]
    modules: dict[str, str]
    sites: dict[str, SiteRecord]
    proofs: dict[str, str]
    rewrites: list[Rewrite]
    undone: list[Undone]
    assumes: dict[str, list[str]]
    structure: list[str]
    model: ModelRecord | None
    speed: SpeedRecord | None

    def to_bytes(self) -> bytes:
        """The certificate as it stands in a file; equal ones give equal bytes."""
        return signed({"certificate": VERSION, **vars(self)})


def path_for(output: str | os.PathLike[str]) -> Path:
    """The path of the certificate of an output."""
    return Path(f"{os.fspath(output)}{SUFFIX}")


def read(path: str | os.PathLike[str]) -> Certificate:
    """Read a certificate.

    Raises:
        ModelError: There is none, it is none, it was changed after it was written, or it is of another version.
    """
    where = os.fspath(path)
    try:
        content = files.read_bytes(path, MAX_BYTES)
    except FileNotFoundError:
        raise ModelError(f"{where}: no such certificate") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise ModelError(f"{where}: is larger than any certificate; give a file *{SUFFIX}") from None
        raise ModelError(f"{where}: cannot be read: {error.strerror or error}") from None
    try:
        return _certificate(content)
    except RecursionError:
        raise ModelError(f"{where}: is nested more deeply than any certificate") from None
    except _Unusable as error:
        raise ModelError(f"{where}: {error}") from None


class _Unusable(Exception):
    """The bytes are not a certificate; the message says why."""


def _certificate(content: bytes) -> Certificate:
    try:
        data = json.loads(content.decode("ascii"), parse_constant=_no_number)
    except ValueError:
        raise _Unusable(f"is not JSON as a certificate is written; give a file *{SUFFIX}") from None
    if not isinstance(data, dict) or "certificate" not in data:
        raise _Unusable(f"is JSON, but no certificate; give a file *{SUFFIX}")
    version, digest = data["certificate"], data.pop("digest", None)
    if version != VERSION or isinstance(version, bool):
        raise _Unusable(f"is a certificate of version {_short(version)}, this program reads {VERSION}")
    if digest is None:
        raise _Unusable("is not whole: digest is missing; write it anew with onnxrewrite apply")
    if not _is_as_written(data, digest, content):
        raise _Unusable("was changed after it was written: its digest does not fit; write it anew")
    del data["certificate"]
    certificate: Certificate = _parsed(Certificate, data, "")
    lost = next((r.site for r in certificate.rewrites if r.site not in certificate.sites), None)
    if lost is not None:
        raise _Unusable(f"is not whole: sites.{_short(lost)} is missing")
    scripts = (site.proof.sha256 for site in certificate.sites.values() if site.proof is not None)
    unproved = next((digest for digest in scripts if digest not in certificate.proofs), None)
    if unproved is not None:
        raise _Unusable(f"is not whole: proofs.{_short(unproved)} is missing")
    for name, told in (("input", certificate.input), ("output", certificate.output)):
        if told is not None and PurePath(told.path).name not in told.sha256:
            raise _Unusable(f"is not whole: {name}.sha256 lacks the model, {_short(told.path)}")
    written = certificate.output.sha256 if certificate.output is not None else {}
    folder = next((name for name in written if PurePath(name).name != name), None)
    if folder is not None or len(written) > _MOST_WRITTEN:
        raise _Unusable(f"is no valid certificate: output.sha256 names {_short(folder or [*written])}, not two files")
    return certificate


def _is_as_written(data: Mapping[str, object], digest: object, content: bytes) -> bool:
    """True if ``content`` is what would be written."""
    try:
        return digest == _digest(data) and _written({**data, "digest": digest}).encode() == content
    except ValueError:  # a number so large that it was read as infinity
        return False


def _no_number(text: str) -> None:
    raise ValueError(text)


# ----------------------------------------------------------------------------------------------------- as text


def signed(data: Mapping[str, object]) -> bytes:
    """Plain data as a certificate stands in a file, with the digest that fits whatever it holds."""
    bare = {key: value for key, value in data.items() if key != "digest"}
    return _written({**bare, "digest": _digest(bare)}).encode()


def _written(data: Mapping[str, object]) -> str:
    """One line for each entry of what ``data`` holds; ASCII."""
    parts = []
    for key, value in sorted(data.items()):
        value = vars(value) if is_dataclass(value) else value
        if isinstance(value, dict):
            entries = ",\n".join(f"  {line(name)}: {line(each)}" for name, each in sorted(value.items()))
            text = f"{{\n{entries}\n }}" if value else "{}"
        elif isinstance(value, list):
            entries = ",\n".join(f"  {line(each)}" for each in value)
            text = f"[\n{entries}\n ]" if value else "[]"
        else:
            text = line(value)
        parts.append(f" {line(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _digest(data: Mapping[str, object]) -> str:
    return hashlib.sha256(_written(data).encode()).hexdigest()


# -------------------------------------------------------------------------------------------------- from data


def _parsed(kind: Any, data: object, where: str) -> Any:
    """``data`` as a ``kind``: a dataclass, a list or dict of something, something or None, a plain type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _record(kind, data, where)
    if origin is types.UnionType or origin is Union:
        return None if data is None else _parsed(arguments[0], data, where)
    if origin is Annotated:
        return _accepted(arguments[1], _parsed(arguments[0], data, where), where)
    if origin is Literal:
        return _accepted(Must(f"one of {', '.join(arguments)}", lambda d: d in arguments), data, where)
    if origin is list and isinstance(data, list):
        return [_parsed(arguments[0], each, f"{where}[{i}]") for i, each in enumerate(data)]
    if origin is dict and isinstance(data, dict):
        parsed = ((_parsed(arguments[0], k, where), v, f"{where}.{_short(k)}") for k, v in data.items())
        return {key: _parsed(arguments[1], each, at) for key, each, at in parsed}
    is_number = kind is float and type(data) in (int, float)
    if origin is None and (is_number or type(data) is kind):
        return data
    wanted = (origin or kind).__name__
    raise _Unusable(f"is no valid certificate: {where.lstrip('.')} is {_short(data)}, not {wanted}")


def _accepted(must: Must, data: object, where: str) -> Any:
    if not must.accepts(data):
        raise _Unusable(f"is no valid certificate: {where.lstrip('.')} is {_short(data)}, not {must.wanted}")
    return data


def _record(kind: Any, data: Any, where: str) -> Any:
    hints = _hints(kind)
    if not isinstance(data, dict):
        raise _Unusable(f"is no valid certificate: {where.lstrip('.')} is {_short(data)}, not {kind.__name__}")
    for what, names in (("missing", hints.keys() - data.keys()), ("unknown", data.keys() - hints.keys())):
        if names:
            raise _Unusable(f"is no valid certificate: {f'{where}.{_short(min(names))}'.lstrip('.')} is {what}")
    return kind(**{name: _parsed(hint, data[name], f"{where}.{name}") for name, hint in hints.items()})


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in fields(kind)}


def _short(value: object) -> str:
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ----------------------------------------------------------------------------------------------------- digests


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """The keys whose value is another one now, or which only one side has."""
    return (key for key in sorted({*then, *now}) if then.get(key) != now.get(key))
