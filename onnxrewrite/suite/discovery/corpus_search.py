"""``discover``: a corpus searched, several parts at a time, and the rules that were found, each in a file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from pydantic import TypeAdapter

from onnxrewrite.authoring.write import identifier_of
from onnxrewrite.errors import ModelError
from onnxrewrite.suite.discovery import identity_search, model_search, spelling_search
from onnxrewrite.suite.discovery.finding import (
    FOUND,
    IDENTITIES,
    KERNELS,
    KNOWN,
    MODES,
    NOT_TRIED,
    NOT_WRITTEN,
    REFUTED,
    REGIONS,
    TOO_SLOW,
    Finding,
    Mode,
    Searched,
)
from onnxrewrite.suite.discovery.search_request import Part, Request
from onnxrewrite.suite.sweeping.find import find
from onnxrewrite.system.atomic import write_whole
from onnxrewrite.system.cluster import Cluster, in_cluster
from onnxrewrite.system.plain import Json
from onnxrewrite.system.workers import Died, in_workers, may_have_children

JOURNALS = ".discover"
"""The folder of the journals, in the output folder."""

_DEATHS = 8
"""A model is given up when so many processes have died of it."""

_ORDER = (FOUND, TOO_SLOW, KNOWN, REFUTED, NOT_TRIED, NOT_WRITTEN)


@dataclass(frozen=True)
class Discovery:
    """The findings of a search.

    Attributes:
        models: How each part was searched: the models in the order in which they were given, then the other parts.
        findings: The candidates, each once: those that were found first, then the faster first.
        files: The rule files that were written, by the name of the rule.
        notes: What else there is to tell, such as an executor that failed.
        seconds: The time it took.
    """

    models: tuple[Searched, ...]
    findings: tuple[Finding, ...]
    files: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """True if the time sufficed, and every part could be searched."""
        return all(m.is_complete and not m.error for m in self.models)

    def to_json(self) -> dict[str, Json]:
        """Plain data, in seconds."""
        models = TypeAdapter(tuple[Searched, ...]).dump_python(self.models, mode="json")
        findings = TypeAdapter(tuple[Finding, ...]).dump_python(self.findings, mode="json")
        told: dict[str, Json] = {"models": models, "findings": findings, "files": dict(self.files)}
        return {**told, "notes": list(self.notes), "complete": self.is_complete, "seconds": self.seconds}


Progress = Callable[[str, int, int], object]
"""Told the step, what is done of it, and what is left."""


def discover(
    given: Sequence[str | os.PathLike[str]],
    out: Path,
    request: Request,
    *,
    jobs: int | Cluster = 1,
    budget: float | None = None,
    slow: bool = False,
    progress: Progress | None = None,
) -> Discovery:
    """Search a corpus for regions that a kernel or another region computes as well, or small graphs for identities, and
    write the rules that say so.

    Where an earlier run of the same request stopped, this one goes on: what a journal in the output folder tells is not
    done again.

    Args:
        given: Folders, files, or patterns of ``glob``; identities are of no model.
        out: The folder for rule files and journals.
        request: What is asked for.
        jobs: The number of models at a time, or a cluster that searches them; files have the same paths on its workers.
        budget: Seconds for all of it; what is left then is told.
        slow: True to write rules that are right and not faster, too.
        progress: Told of progress.

    Raises:
        UsageError: Nothing is found, or the rules cannot be used.
        ModelError: The output cannot be written.
    """
    start = time.perf_counter()
    parts = _parts(given, out, request.by)
    request.library  # noqa: B018  (what is wrong with the rules is told before anything is begun)
    asked = replace(request, deadline=None if budget is None else time.time() + budget)
    searched: dict[Part, Searched] = {}
    candidates: dict[Part, list[Finding]] = {}
    notes: list[str] = []
    if progress is not None:
        progress("search", 0, len(parts))
    for part, answer in _answers(asked, out / JOURNALS, parts, jobs, notes):
        if isinstance(answer, Died):
            told = f"the process that searched it {answer.how}"
            searched[part] = Searched(part.name, is_complete=False, error=told, by=part.by)
        else:
            searched[part], candidates[part] = answer
        if progress is not None:
            progress("search", len(searched), len(parts) - len(searched))
    findings = merged(f for part in parts for f in candidates.get(part, ()))
    files = _written([f for f in findings if f.status == FOUND or (slow and f.is_right)], out)
    seconds = time.perf_counter() - start
    return Discovery(tuple(searched[p] for p in parts), tuple(findings), files, tuple(notes), seconds)


def _parts(given: Sequence[str | os.PathLike[str]], out: Path, by: Sequence[Mode]) -> list[Part]:
    """The parts of a search, each of which has a process and a journal of its own."""
    models = [found.path for found in find(given, out)[0]] if {KERNELS, REGIONS}.intersection(by) else []
    made: dict[Mode, list[Part]] = {
        KERNELS: [Part.of_model(model) for model in models],
        REGIONS: [spelling_search.part_of(models)],
        IDENTITIES: [identity_search.PART],
    }
    return [part for each in MODES if each in by for part in made[each]]


_SEARCHES = {KERNELS: model_search.search, REGIONS: spelling_search.search, IDENTITIES: identity_search.search}


Answer: TypeAlias = tuple[Searched, list[Finding]] | Died
"""A part's, or how the last process died that was at it."""


def _search(request: Request, folder: Path, part: Part) -> tuple[Searched, list[Finding]]:
    """Search one part."""
    return _SEARCHES[part.by](request, folder, part)


def _search_in(place: Path, request: Request, folder: Path, part: Part) -> tuple[Searched, list[Finding]]:
    """Search one part in a folder, for paths are as they were given there."""
    os.chdir(place)
    return _search(request, folder, part)


def _hosted(place: Path, request: Request, folder: Path, part: Part) -> Answer:
    """Search one part on the worker of a cluster, in a process apart."""
    may_have_children()
    ((_, answer),) = in_workers(partial(_search_in, place, request, folder), [part], 1, tries=_DEATHS)
    return answer


def _answers(
    request: Request, folder: Path, parts: Sequence[Part], jobs: int | Cluster, notes: list[str]
) -> Iterator[tuple[Part, Answer]]:
    """Each part with its answer, as they come; in processes of their own, for some graphs make ONNX Runtime abort.

    A part whose process died is searched again, without the region that it was at.
    """

    def here(which: Sequence[Part], count: int = 1) -> Iterator[tuple[Part, Answer]]:
        return in_workers(partial(_search, request, folder), which, count, tries=_DEATHS)

    if not isinstance(jobs, Cluster):
        return here(parts, jobs)
    return in_cluster(partial(_hosted, Path.cwd(), request, folder), parts, jobs, here, notes)


def merged(found: Iterable[Finding]) -> list[Finding]:
    """Findings of several models: the same candidate once, with all its places; those of one name get numbers."""
    by_key: dict[str, Finding] = {}
    for each in found:
        earlier = by_key.get(each.key)
        by_key[each.key] = each if earlier is None else replace(earlier, places={**earlier.places, **each.places})
    ordered = sorted(by_key.values(), key=lambda f: (_ORDER.index(f.status), f.best or 1.0, f.name, f.key))
    names: set[str] = set()
    renamed = []
    for each in ordered:
        name, number = each.name, 1
        while name in names:
            number += 1
            name = f"{each.name}-{number}"
        names.add(name)
        renamed.append(each if name == each.name else replace(each, name=name, text=_renamed(each, name)))
    return renamed


def _renamed(finding: Finding, name: str) -> str:
    """The text of a rule under another name."""
    old, new = f"to_{identifier_of(finding.name)}", f"to_{identifier_of(name)}"
    text = re.sub(rf"\b{re.escape(old)}\b", new, finding.text)
    return text.replace(f'"{finding.name}"', f'"{name}"')


def _written(findings: Sequence[Finding], out: Path) -> dict[str, str]:
    """Write rules; their files by name."""
    files = {f.name: f"{identifier_of(f.name)}.py" for f in findings}
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"-o {out}: cannot be made: {error.strerror or error}") from None
    for each in findings:
        write_whole(out / files[each.name], each.text, "-o")
    return files
