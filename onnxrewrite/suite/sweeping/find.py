"""The models of a sweep, and the name of each in its output folder."""

from __future__ import annotations

import functools
import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

from onnxrewrite.errors import UsageError
from onnxrewrite.suite.sweeping.journal import outputs
from onnxrewrite.suite.sweeping.storage import canonical, is_url, models_below

SUFFIX = ".onnx"


@dataclass(frozen=True)
class Found:
    """A model: where it is, and where its output is, relative to the output folder; ``url``: if it is elsewhere."""

    path: Path
    place: PurePath
    url: str = ""

    @property
    def name(self) -> str:
        """Its path, as it was given, or its URL."""
        return self.url or str(self.path)


@dataclass(frozen=True)
class LeftOut:
    """A file that is no input, or a folder that cannot be read, and why."""

    path: Path
    reason: str


def find(
    given: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    place: Callable[[PurePath], PurePath] = lambda path: path,
) -> tuple[list[Found], list[LeftOut]]:
    """The models of folders, globs and files, each once, in the order in which they were given, a folder's sorted.

    What an earlier sweep wrote is left out.  Folders are searched with all below, symbolic links followed; names that
    begin with a dot are passed over.

    Args:
        given: Folders, files, or patterns in the syntax of ``glob``; what exists is no pattern.  URLs of these: in a
            storage elsewhere, what earlier sweeps wrote to other folders is not known.
        out: The output folder, or its URL; nothing below it is read.
        place: From a model's path, relative to the folder that was given, to the output's in ``out``.

    Raises:
        UsageError: Something does not exist, or nothing is found, or an input lies in the output folder.
    """
    left_out: list[LeftOut] = []
    first: dict[str, Path] = {}
    chosen: list[tuple[Path, PurePath]] = []
    urls = dict(pair for each in given if is_url(os.fspath(each)) for pair in _remote(os.fspath(each), str(out)))
    local = [os.fspath(each) for each in given if not is_url(os.fspath(each))]
    inside = Path(os.devnull if is_url(str(out)) else os.path.realpath(out))
    known = functools.cache(outputs)
    for path, relative in (pair for each in local for pair in _expanded(each, inside, left_out)):
        real = Path(os.path.realpath(path))
        if any(real in known(folder) for folder in real.parents):
            left_out.append(LeftOut(path, "an earlier sweep wrote it"))
        elif inside in real.parents:
            raise UsageError(f"-o {out}: {path} lies there and is to be read; give another folder")
        elif str(real) in first:
            left_out.append(LeftOut(path, f"the same file as {first[str(real)]}"))
        else:
            first[str(real)] = path
            chosen.append((path, relative))
    if not chosen and not urls:
        why = f": {left_out[0].path}: {left_out[0].reason}" if left_out else ""
        raise UsageError(f"MODELS: there is no model in {', '.join(os.fspath(g) for g in given) or 'nothing'}{why}")
    fetched = {url: Path(PurePosixPath(url.partition("://")[2])) for url in urls}
    origins = [*(path for path, _ in chosen), *fetched.values()]
    places = _apart([*(relative for _, relative in chosen), *urls.values()], origins, place)
    names = [*[""] * len(chosen), *urls]
    found = [Found(path, own, url) for path, own, url in zip(origins, places, names, strict=True)]
    for each in found if not is_url(str(out)) else ():  # a link in the output folder may lead back to the inputs
        target = str(Path(os.path.realpath((Path(out) / each.place).parent), each.place.name))
        if target in first:
            raise UsageError(f"-o {out}: {each.place} there is the input {first[target]}; give another folder")
    return found, left_out


def _remote(url: str, out: str) -> Iterator[tuple[str, PurePath]]:
    """The models that a URL means, but for those below the output folder."""
    inside = f"{canonical(out).rstrip('/')}/" if is_url(out) else "\0"
    if f"{canonical(url).rstrip('/')}/".startswith(inside):
        raise UsageError(f"-o {out}: {url} lies there and is to be read; give another folder")
    yield from ((found, relative) for found, relative in models_below(url, SUFFIX) if not found.startswith(inside))


def _expanded(given: str, out: Path, left_out: list[LeftOut]) -> Iterator[tuple[Path, PurePath]]:
    """The files that are meant, with their paths relative to the folder that was given."""
    path = Path(given)
    if os.path.isdir(path):
        yield from ((found, found.relative_to(path)) for found in _below(path, out, left_out))
        return
    if os.path.lexists(path):
        yield path, PurePath(path.name)
        return
    if not glob.has_magic(given):
        raise UsageError(f"MODELS: {given}: no such file or folder")
    root = _fixed(path)
    matches = sorted(map(Path, glob.glob(given, recursive=True)), key=lambda p: (len(p.parts), p))
    if not matches:
        raise UsageError(f"MODELS: nothing matches {given}")
    for match in matches:
        for found in _below(match, out, left_out) if os.path.isdir(match) else [match]:
            yield found, found.relative_to(root)


def _fixed(pattern: Path) -> Path:
    """The folders of a pattern before its first star."""
    parts = pattern.parts[:-1]
    magic = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return Path(*parts[:magic])


def _below(folder: Path, out: Path, left_out: list[LeftOut]) -> Iterator[Path]:
    """The model files below a folder, sorted; each folder is entered once, whatever links lead to it."""
    entered: set[str] = set()

    def unreadable(error: OSError) -> None:
        left_out.append(LeftOut(Path(error.filename), error.strerror or str(error)))

    for where, folders, names in os.walk(folder, followlinks=True, onerror=unreadable):
        real = os.path.realpath(where)
        if real in entered or (real == str(out) and where != str(folder)):
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(names):
            path = Path(where, name)
            if path.suffix.lower() == SUFFIX and not name.startswith(".") and (path.is_file() or path.is_symlink()):
                yield path


def _apart(
    relative: Sequence[PurePath], paths: Iterable[Path], place: Callable[[PurePath], PurePath]
) -> list[PurePath]:
    """The places, where several would be one with as many of their folders in front as tell them apart."""
    named, above = list(relative), [list(Path(os.path.abspath(p)).parts[1:-1]) for p in paths]
    for own, folders in zip(named, above, strict=True):
        del folders[max(0, len(folders) - len(own.parts) + 1) :]
    while True:
        count = Counter(_folded(place(n)) for n in named)
        clashing = [n for n, own in enumerate(named) if count[_folded(place(own))] > 1 and above[n]]
        if not clashing:
            break
        for n in clashing:
            named[n] = PurePath(above[n].pop()) / named[n]
    met: Counter[str] = Counter()
    for n, own in enumerate(named):  # names that differ in case only, which some file systems take for one
        met[_folded(place(own))] += 1
        if met[_folded(place(own))] > 1:
            named[n] = own.with_name(f"{own.stem}-{met[_folded(place(own))]}{own.suffix}")
    return [place(n) for n in named]


def _folded(place: PurePath) -> str:
    return place.as_posix().casefold()
