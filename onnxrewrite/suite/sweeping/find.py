"""The models of a sweep, and the name of each in its output folder."""

from __future__ import annotations

import functools
import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from onnxrewrite.errors import UsageError
from onnxrewrite.suite.sweeping.journal import outputs

SUFFIX = ".onnx"


@dataclass(frozen=True)
class Found:
    """A model: where it is, and where its output is, relative to the output folder."""

    path: Path
    place: PurePath


@dataclass(frozen=True)
class LeftOut:
    """A file that is no input, or a folder that cannot be read, and why."""

    path: Path
    reason: str


def find(
    given: Sequence[str | os.PathLike[str]], out: Path, place: Callable[[PurePath], PurePath] = lambda path: path
) -> tuple[list[Found], list[LeftOut]]:
    """The models of folders, globs and files, each once, in the order in which they were given, a folder's sorted.

    What an earlier sweep wrote is left out.  Folders are searched with all below, symbolic links followed; names that
    begin with a dot are passed over.

    Args:
        given: Folders, files, or patterns in the syntax of ``glob``; what exists is no pattern.
        out: The output folder; nothing below it is read.
        place: From a model's path, relative to the folder that was given, to the output's in ``out``.

    Raises:
        UsageError: Something does not exist, or nothing is found, or an input lies in the output folder.
    """
    left_out: list[LeftOut] = []
    first: dict[str, Path] = {}
    chosen: list[tuple[Path, PurePath]] = []
    inside, known = Path(os.path.realpath(out)), functools.cache(outputs)
    for path, relative in (pair for each in given for pair in _expanded(os.fspath(each), inside, left_out)):
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
    if not chosen:
        why = f": {left_out[0].path}: {left_out[0].reason}" if left_out else ""
        raise UsageError(f"MODELS: there is no model in {', '.join(os.fspath(g) for g in given) or 'nothing'}{why}")
    places = _apart([relative for _, relative in chosen], [path for path, _ in chosen], place)
    found = [Found(path, own) for (path, _), own in zip(chosen, places, strict=True)]
    for each in found:  # a link in the output folder may lead back to the inputs
        target = str(Path(os.path.realpath((out / each.place).parent), each.place.name))
        if target in first:
            raise UsageError(f"-o {out}: {each.place} there is the input {first[target]}; give another folder")
    return found, left_out


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
