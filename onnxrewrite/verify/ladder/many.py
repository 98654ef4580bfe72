"""Many rules up the ladder, several at a time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxrewrite.rewrite import registry
from onnxrewrite.verify.ladder.climb import INSTANCES, climb
from onnxrewrite.verify.ladder.record import Memory, to_json
from onnxrewrite.verify.ladder.save import save


@dataclass(frozen=True)
class Request:
    """What to do with each rule.

    Attributes:
        rules: Files or packages with rules beside the library's and those of plugins.
        seed: Of all that is random.
        count: How many graphs to try a rule on.
        folder: Where counterexamples are saved, a folder for each rule; None for nowhere.
        remembers: Whether verdicts of earlier runs count.
    """

    rules: tuple[str, ...] = ()
    seed: int = 0
    count: int = INSTANCES
    folder: Path | None = None
    remembers: bool = True


def verify(names: Sequence[str], request: Request, jobs: int = 1) -> Iterator[dict[str, Any]]:
    """The verdict on each rule, as plain data, in the order of ``names``.

    ``cached`` says whether it was remembered, ``saved`` is the path of the test that was written.
    """
    if jobs == 1 or len(names) == 1:
        yield from (_verified(name, request) for name in names)
        return
    context = multiprocessing.get_context("spawn")  # a fork inherits the threads of ONNX Runtime, without what they do
    with ProcessPoolExecutor(max_workers=min(jobs, len(names)), mp_context=context) as pool:
        yield from pool.map(_verified, names, [request] * len(names))


_LIBRARIES: dict[tuple[str, ...], registry.Registry] = {}


def _verified(name: str, request: Request) -> dict[str, Any]:
    if request.rules not in _LIBRARIES:
        _LIBRARIES[request.rules] = registry.load(request.rules)
    library = _LIBRARIES[request.rules]
    (rule,) = library.named(name)
    memory = Memory()
    key = memory.key(rule, request.seed, request.count)
    known = memory.get(key) if request.remembers else None
    if known is not None and (request.folder is None or known["counterexample"] is None):
        return {**known, "cached": True, "saved": None}
    verdict = climb(rule, list(library), seed=request.seed, count=request.count)
    data = to_json(verdict)
    memory.put(key, data)
    saved = None
    if request.folder is not None and verdict.counterexample is not None:
        saved = save(verdict.counterexample, rule, request.folder / rule.name, request.rules)
    return {**data, "cached": False, "saved": None if saved is None else str(saved)}
