"""Many rules up the ladder, several at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.fuzz.counterexample import save
from onnxrewrite.ruletest.fuzz.fuzzer import INSTANCES, fuzz
from onnxrewrite.ruletest.fuzz.verdict import PROVED, REFUTED, UNTRIED, Counterexample, Verdict
from onnxrewrite.ruletest.fuzz.verdict_cache import Memory, to_json
from onnxrewrite.system.atomic import write_whole
from onnxrewrite.system.plain import Json, Plain
from onnxrewrite.system.workers import Died, in_workers

Answer: TypeAlias = tuple[dict[str, Json], str | None]
"""A verdict as plain data, and the path of the test that was written."""


@dataclass(frozen=True)
class Request:
    """Options for trying each rule.

    Attributes:
        rules: Files or packages with rules beside the library's and those of plugins.
        seed: Of all that is random.
        count: The number of graphs to try a rule on.
        folder: The folder to save counterexamples in, one inside for each rule; None not to save them.
        remembers: True if verdicts of earlier runs count.
        proves: True if a proof of what passes is asked for, too.
        scripts: The folder for the scripts of proofs; None not to write them.
        thorough: True to make counterexamples small, and to ask whether guards are too strict.
    """

    rules: tuple[str, ...] = ()
    seed: int = 0
    count: int = INSTANCES
    folder: Path | None = None
    remembers: bool = True
    proves: bool = False
    scripts: Path | None = None
    thorough: bool = True


def verify(names: Sequence[str], request: Request, jobs: int = 1) -> Iterator[Plain]:
    """The verdict on each rule, as plain data, as they come; ``jobs`` rules are tried at a time.

    Rules are tried in processes of their own, for some graphs make ONNX Runtime abort: that costs the verdict of the
    rule that was being tried, no other.

    ``cached`` says whether a verdict was remembered, ``saved`` is the path of the test that was written.
    """
    memory, library = Memory(), registry.load(request.rules)
    seed, count, proves = request.seed, request.count, request.proves
    keys = {name: memory.key(_named(library, name), seed, count, proves=proves) for name in names}
    unknown = []
    for name, key in keys.items():
        known = memory.get(key) if request.remembers else None
        is_whole = known is not None and not (request.scripts is not None and known["script"])
        if known is not None and is_whole and (request.folder is None or known["counterexample"] is None):
            yield {**known, "cached": True, "saved": None}
        else:
            unknown.append(name)
    for name, tried in _answers(request, unknown, jobs):
        if isinstance(tried, Died):
            died = Verdict(name, UNTRIED, f"the process that tried it {tried.how}")
            yield {**to_json(died), "cached": False, "saved": None}
            continue
        memory.put(keys[name], tried[0])
        yield {**tried[0], "cached": False, "saved": tried[1]}


def _answers(request: Request, names: Sequence[str], jobs: int) -> Iterator[tuple[str, Answer | Died]]:
    """The answers of workers.  A rule of which one died is tried again without overruling its guards: what they keep
    away may be what ended it, which is told."""
    died = dict[str, Died]()
    for name, tried in in_workers(partial(_tried, request), names, jobs):
        if isinstance(tried, Died):
            died[name] = tried
        else:
            yield name, tried
    for name, tried in in_workers(partial(_tried, replace(request, thorough=False)), list(died), jobs):
        if not isinstance(tried, Died):
            tried[0]["warnings"] = [f"a process that tried it without its guards {died[name].how}"]
        yield name, tried


_library = cache(registry.load)
"""The rules of a worker, which does not live long enough to see them change."""


def _named(library: registry.Registry, name: str) -> Rule:
    (rule,) = library.named(name)
    return rule


def _proved(verdict: Verdict, rule: Rule, library: Sequence[Rule], request: Request) -> Verdict:
    """The verdict with a proof, or with the reason why there is none; a form that a run refutes refutes the rule."""
    from onnxrewrite.ruletest.proving import prove_rule

    found = prove_rule(rule, library, seed=request.seed)
    if found.refutation is not None:
        form, refuted = found.refutation
        counterexample = Counterexample(form.before, form.after, refuted.reason, (), form.trial.target, refuted.feeds)
        return replace(verdict, status=REFUTED, reason=refuted.reason, counterexample=counterexample)
    if not found.is_proved:
        return replace(verdict, proof=f"none: {found.reason}")
    script = found.text
    if request.scripts is not None:
        write_whole(request.scripts / f"{rule.name}.smt2", script, "--scripts")
    digest = hashlib.sha256(script.encode()).hexdigest()
    return replace(verdict, status=PROVED, proof=f"{found.strength}, of {found.extent}", script=digest)


def _tried(request: Request, name: str) -> Answer:
    """The verdict on a rule, and the path of the test that was written."""
    library = _library(request.rules)
    rule = _named(library, name)
    verdict = fuzz(rule, list(library), seed=request.seed, count=request.count, thorough=request.thorough)
    if request.proves and verdict.passed:
        verdict = _proved(verdict, rule, list(library), request)
    if request.folder is None or verdict.counterexample is None:
        return to_json(verdict), None
    saved = save(verdict.counterexample, rule, request.folder / rule.name, request.rules)
    return to_json(verdict), str(saved)
