"""``s3://bucket/zoo`` and other names of fsspec: models fetched to a temporary folder, results stored from it.

Whatever fsspec has a file system for; the packages and credentials that it needs are the user's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import onnx_ir as ir

from onnxrewrite.errors import ModelError, UsageError, one_line
from onnxrewrite.io import external
from onnxrewrite.system import temporary

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://.")

_MARKS = (
    "etag",
    "md5hash",
    "md5",
    "checksum",
    "sha256",
    "generation",
    "lastmodified",
    "last-modified",
    "mtime",
    "created",
)
"""Details of a file of which at least one changes with its contents, by the names that file systems have for them."""


class StorageError(ModelError):
    """A storage does not answer; another attempt may succeed."""


def is_url(text: str) -> bool:
    """True for ``s3://bucket/name`` and its like, which is no path of this machine."""
    return _URL.match(text) is not None


def below(url: str, name: str | PurePath) -> str:
    """The URL of a file in a folder."""
    return f"{url.rstrip('/')}/{PurePath(name).as_posix()}"


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    """Whatever a file system raises becomes one line."""
    try:
        yield
    except (ModelError, UsageError):
        raise
    except FileNotFoundError:
        raise ModelError(f"{url}: no such file") from None
    except Exception as error:  # each file system has errors of its own
        raise StorageError(f"{url}: {one_line(error)}") from None


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises:
        UsageError: fsspec, or what it needs for this kind of URL, is not installed, or there is no such kind.
    """
    try:
        import fsspec

        found: tuple[Any, str] = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{url}: {one_line(error)}; pip install onnxrewrite[remote] has what all kinds need") from None
    except ValueError as error:
        raise UsageError(f"{url}: {one_line(error)}") from None
    return found


def canonical(url: str) -> str:
    """The spelling that a file system has for a URL."""
    fs, path = file_system(url)
    return str(fs.unstrip_protocol(path))


def models_below(url: str, suffix: str) -> list[tuple[str, PurePath]]:
    """URL and path relative to ``url`` of all models that it means: a folder with all below, a pattern, or a file.

    Raises:
        UsageError: There is none.
        StorageError: The storage does not answer.
    """
    fs, root = file_system(url)
    with _told(url):
        fs.invalidate_cache()
        if any(c in root for c in "*?["):
            head = PurePosixPath(*_before_magic(root))
            paths = [p for p in fs.glob(root) if fs.isfile(p)]
        elif fs.isfile(root):
            return [(url, PurePath(PurePosixPath(root).name))]
        else:
            head, paths = PurePosixPath(root), fs.find(root)
    found = []
    for path in sorted(paths):
        relative = PurePosixPath(path).relative_to(head) if PurePosixPath(path).is_relative_to(head) else None
        own = relative or PurePosixPath(PurePosixPath(path).name)
        if own.suffix.lower() == suffix and not any(part.startswith(".") for part in own.parts):
            found.append((fs.unstrip_protocol(path), PurePath(own)))
    if not found:
        raise UsageError(f"MODELS: there is no model in {url}")
    return found


def _before_magic(path: str) -> Sequence[str]:
    parts = PurePosixPath(path).parts[:-1]
    magic = next((n for n, part in enumerate(parts) if any(c in part for c in "*?[")), len(parts))
    return parts[:magic]


def token(url: str) -> str:
    """A digest of what the storage says of a file, which changes when the file does; empty where it says too little.

    Raises:
        ModelError: There is no such file.
        StorageError: The storage does not answer.
    """
    fs, path = file_system(url)
    with _told(url):
        told = {str(name).lower().replace("_", ""): value for name, value in fs.info(path).items()}
    marks = {name: str(told[name]) for name in _MARKS if told.get(name) is not None}
    if not marks:
        return ""
    return hashlib.sha256(json.dumps([marks, str(told.get("size"))], sort_keys=True).encode()).hexdigest()


def unchanged(tokens: dict[str, str]) -> bool:
    """True if all files are there, and as they were when their tokens were taken.

    Raises:
        StorageError: The storage does not answer.
    """
    try:
        return all(known and token(url) == known for url, known in tokens.items())
    except StorageError:
        raise
    except ModelError:
        return False


@dataclass
class Staging:
    """The place of one job on this machine.

    Attributes:
        model: The model's file.
        out: The output folder.
        tokens: Tokens of the files that were fetched.
    """

    model: Path
    out: Path
    url: str = ""
    tokens: dict[str, str] = field(default_factory=dict)

    def store(self, written: Iterable[Path]) -> dict[str, str]:
        """Store what was written, if the output folder is elsewhere; the tokens of the stored files.

        Raises:
            StorageError: It cannot be stored.
        """
        stored = {}
        for path in written if self.url else ():
            url = below(self.url, path.relative_to(self.out))
            store_file(path, url)
            stored[url] = token(url)
        return stored


def store_file(path: Path, url: str) -> None:
    """Store a file, whole or not at all where the storage can do that."""
    fs, target = file_system(url)
    with _told(url):
        fs.makedirs(fs._parent(target), exist_ok=True)
        with fs.transaction, path.open("rb") as source, fs.open(target, "wb") as file:
            shutil.copyfileobj(source, file, 2**22)


@contextlib.contextmanager
def staged(model: str, out: str) -> Iterator[Staging]:
    """The files of a job on this machine: fetched, and to be stored, where they are elsewhere.

    Raises:
        ModelError: There is no such file.
        StorageError: A storage does not answer.
    """
    with contextlib.ExitStack() as stack:
        place = Staging(Path(model), Path(out))
        if is_url(model) or is_url(out):
            folder = stack.enter_context(temporary.folder())
            if is_url(model):
                place.model, place.tokens = _fetched(model, folder / "in")
            if is_url(out):
                place.out, place.url = folder / "out", out
                place.out.mkdir()
        yield place


def _fetched(url: str, folder: Path) -> tuple[Path, dict[str, str]]:
    """The model and the files of its weights; what is no model is fetched alone."""
    path = folder / PurePosixPath(url).name
    tokens = {url: _fetch(url, path)}
    for name in _data_files(path):
        where = below(url.rpartition("/")[0], name)
        tokens[where] = _fetch(where, folder / name)
    return path, tokens


def _fetch(url: str, path: Path) -> str:
    """Fetch a file; its token of before: what changes meanwhile is not taken for what was fetched."""
    known = token(url)
    fs, source = file_system(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _told(url):
        fs.get_file(source, str(path))
    return known


def _data_files(path: Path) -> list[str]:
    """The files beside it in which weights of a model lie; those of places outside of its folder are not fetched."""
    try:
        tensors = [slot.tensor for slot in external.slots(ir.load(path))]
    except Exception:  # it is told of as any other broken model is, by those who read it
        return []
    names = {PurePosixPath(str(t.location)) for t in tensors if isinstance(t, ir.ExternalTensor)}
    return sorted(str(name) for name in names if not name.is_absolute() and ".." not in name.parts)


def list_names(url: str) -> list[str]:
    """The names of the files in a folder; none where there is no such folder.

    Raises:
        StorageError: The storage does not answer.
    """
    fs, path = file_system(url)
    try:
        with _told(url):
            fs.invalidate_cache()
            return sorted(PurePosixPath(each).name for each in fs.ls(path, detail=False))
    except StorageError:
        raise
    except ModelError:
        return []


def read_bytes(url: str) -> bytes:
    """The contents of a file; ModelError if there is none, StorageError if the storage does not answer."""
    fs, path = file_system(url)
    with _told(url):
        return bytes(fs.cat_file(path))


def write_bytes(url: str, contents: bytes) -> None:
    """Write a file, and the folders above it; StorageError if the storage does not take it."""
    fs, path = file_system(url)
    with _told(url):
        fs.makedirs(fs._parent(path), exist_ok=True)
        with fs.transaction, fs.open(path, "wb") as file:
            file.write(contents)


def remove(urls: Iterable[str]) -> None:
    """Remove files; StorageError if the storage does not do so."""
    for url in urls:
        fs, path = file_system(url)
        with _told(url):
            fs.rm_file(path)
