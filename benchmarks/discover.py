"""Discovery: whether ``discover`` finds again what people have written, and anything that they have not.

    python -m benchmarks.discover [--only again|new] [--by kernels|regions|identities] [--models N] [--nodes N]
                                  [--regions N] [--count N] [--deepen N] [--depth N] [--budget SECONDS] [--jobs N]
                                  [--folder DIR] [--json FILE]

*again*: all rules of the lower stage are removed, and the golden and shared models are searched.  A rule that fires
there is found again if a rule that was found, and that the fuzzer does not refute, replaces the same value, or a view
of it, by one of the same operators.  Only operators that compute something count, no view and no constant, unless the
rule builds nothing else.
*new*: with all rules in place, what is found is tried again at ten times the fuzzer's depth, on other graphs; in all
modes of ``discover``, or those that ``--by`` names.

Goals: 60 % of the rules that fire are found again; ten new ones that are right, and faster by more than 3 % at some
size.  ``--models N`` takes the first N models, golden models first.  The figures say of how many models they are.
A run with ``--folder`` goes on where an earlier one of the same options stopped.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import onnx_ir as ir

from benchmarks import report
from benchmarks.checking import models as shared_models
from benchmarks.forks import forked
from onnxrewrite.authoring.capture_checks import load_rule
from onnxrewrite.authoring.staged_model import found_by
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver, Review
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.rewrite.trace import Site
from onnxrewrite.ruletest.fuzz import INSTANCES, fuzz
from onnxrewrite.ruletest.fuzz.verdict import PASSED, REFUTED
from onnxrewrite.suite.discovery.corpus_search import Discovery, discover
from onnxrewrite.suite.discovery.finding import FOUND, KERNELS, MODES, Finding, Mode
from onnxrewrite.suite.discovery.search_request import DEEPENS, Request

GOLDEN = Path(__file__).resolve().parents[1] / "golden_models"

AGAIN, NEW = 60, 10
"""Percent of the rules that fire; the number of new ones."""

DEPTH = 10
"""Times the fuzzer's depth, for what is new."""

_TARGET = "onnxruntime-cpu"

_PLAIN = frozenset({*operators("view permute select repeat join shape generate"), "Constant", "Cast", "Identity"})
"""Operators that say nothing of what a rule is about."""


class Fired(NamedTuple):
    """A place where a rule of the lower stage fires: the values that it takes in and views of its results, and the
    operators that it builds."""

    rule: str
    model: str
    value: str
    values: frozenset[str]
    built: frozenset[str]


@dataclass(frozen=True)
class Options:
    """What is asked for: ``folder`` holds what was found, by part."""

    paths: tuple[Path, ...]
    request: Request
    folder: Path
    depth: int
    budget: float | None
    jobs: int


def corpus() -> list[Path]:
    """The golden models, then the shared ones."""
    return [*sorted(GOLDEN.glob("*/model.onnx")), *shared_models()]


def fired(path: Path, library: Sequence[Rule]) -> list[Fired]:
    """The places where rules of the lower stage fire in a model."""
    found: list[Fired] = []

    def note(site: Site) -> None:
        made = frozenset(f"{n.domain}.{n.op_type}".lstrip(".") for n in site.after)
        built = made - _PLAIN or made
        taken = {o.name or "" for n in site.before for o in n.outputs}
        views = {v.name or "" for each in site.outputs for v in _views(each)}
        found.append(Fired(site.rule, str(path), site.value, frozenset(taken | views), built))

    staged = found_by(path, Stage.LOWER, library, _TARGET)
    driver = Driver(staged.model, library, target(_TARGET), review=Review(record=note))
    driver.run_stage(Stage.LOWER, [r for r in library if r.stage is Stage.LOWER])
    return found


def _views(value: ir.Value) -> Iterator[ir.Value]:
    """A value, and all that is it in another shape or order."""
    yield value
    for node in value.consumers():
        if node.op_type in _VIEWS and node.inputs[0] is value:
            yield from _views(node.outputs[0])


_VIEWS = frozenset(operators("view permute"))


def found_again(places: Sequence[Fired], findings: Sequence[Finding]) -> Mapping[str, set[str]]:
    """Each rule that fires, to the names of the right rules that were found in its stead."""
    right = [f for f in findings if f.is_right]
    again: dict[str, set[str]] = {p.rule: set() for p in places}
    for place in places:
        for each in right:
            here = place.values.intersection(each.places.get(place.model, ()))
            if here and place.built.intersection(each.substitute):
                again[place.rule].add(each.name)
    return again


def again(given: Options, library: Sequence[Rule], tell: report.Report) -> None:
    """Report how many of the rules that fire are found again."""
    lower = frozenset(r.name for r in library if r.stage is Stage.LOWER)
    places = [p for path in given.paths for p in fired(path, library)]
    found = _discovered(given, "again", lower, (KERNELS,))
    known = found_again(places, found.findings)
    models: dict[str, set[str]] = defaultdict(set)
    for place in places:
        models[place.rule].add(place.model)
    rows: list[report.Row] = [
        {"rule": rule, "models": len(models[rule]), "found again as": ", ".join(sorted(names)) or "nothing"}
        for rule, names in sorted(known.items())
    ]
    tell.table("Rules that fire", rows or [{"rule": "none", "models": 0, "found again as": ""}])
    _searched(found, tell)
    share = 100 * sum(map(bool, known.values())) / max(len(known), 1)
    tell.goal(f"found again of {len(known)} rules, in {len(given.paths)} models", share, AGAIN, unit="%", least=True)


def new(given: Options, library: Sequence[Rule], tell: report.Report) -> None:
    """Report what is found that there is no rule for, and whether it is right at ten times the fuzzer's depth."""
    found = _discovered(given, "new", frozenset(), given.request.by)
    fresh = [f for f in found.findings if f.status == FOUND]
    folder = given.folder / "new"

    def tried(name: str) -> tuple[str, str]:
        rule = load_rule(folder / found.files[name], name)
        seed = given.request.seed + 2  # discovery has tried it on graphs of the two before
        verdict = fuzz(rule, library, seed=seed, count=given.depth * INSTANCES, thorough=False)
        return verdict.status, verdict.reason

    said = {o.task: o.result or (o.failure, "") for o in forked([f.name for f in fresh], tried, limit=3600)}
    rows: list[report.Row] = [
        {
            "rule": f.name,
            "by": f.by,
            "nodes": len(f.operators),
            "places": sum(map(len, f.places.values())),
            "models": len(f.places),
            "best ratio": f.best,
            "verdict": said[f.name][0],
            "reason": said[f.name][1],
        }
        for f in fresh
    ]
    tell.table("New rules", rows or [{"rule": "none"}])
    _searched(found, tell)
    verdicts = [verdict for verdict, _ in said.values()]
    wrong, right = verdicts.count(REFUTED), sum(v in PASSED for v in verdicts)
    tell.goal(f"new rules refuted at {given.depth} × the depth", wrong, 0, unit="rules")
    what = f"new rules that are right and faster, in {len(given.paths)} models"
    tell.goal(what, right, NEW, unit="rules", least=True)


def _discovered(given: Options, part: str, without: frozenset[str], by: tuple[Mode, ...]) -> Discovery:
    asked = replace(given.request, without=without, by=by)
    names = [str(path) for path in given.paths]
    return discover(names, given.folder / part, asked, jobs=given.jobs, budget=given.budget)


def _searched(found: Discovery, tell: report.Report) -> None:
    """Report how much was looked at."""
    rows: list[report.Row] = [
        {
            "model": str(Path(m.model).parent.name if m.model.endswith("model.onnx") else Path(m.model).stem),
            "regions": m.regions,
            "left out": m.left,
            "evaluations": m.evaluations,
            "cut short": m.cut_short,
            "died": m.died,
            "complete": "yes" if m.is_complete and not m.error else m.error or "no",
            "search (s)": m.seconds,
        }
        for m in found.models
    ]
    tell.table("Models", rows)
    counts: dict[str, int] = defaultdict(int)
    for each in found.findings:
        counts[each.status] += 1
    tell.table("Candidates", [{"status": s, "candidates": n} for s, n in counts.items()] or [{"status": "none"}])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--only", nargs="+", choices=("again", "new"), default=("again", "new"))
    options.add_argument("--by", nargs="+", choices=MODES, default=MODES, help="the modes of the part new")
    options.add_argument("--models", type=int, metavar="N", help="the first N models (default: all; 1 with --quick)")
    options.add_argument("--nodes", type=int, help="the most nodes of a region (default: 12; 4 with --quick)")
    options.add_argument("--regions", type=int, default=3000, help="the most regions of a model (default: 3000)")
    options.add_argument("--count", type=int, help=f"graphs for each rule (default: {INSTANCES}; 20 with --quick)")
    options.add_argument("--deepen", type=int, default=DEEPENS, help=f"times the graphs if faster (default: {DEEPENS})")
    options.add_argument("--depth", type=int, default=DEPTH, help=f"times the depth for new rules (default: {DEPTH})")
    options.add_argument("--budget", type=float, metavar="SECONDS", help="for each part")
    options.add_argument("--jobs", type=int, default=1, help="models at a time")
    options.add_argument("--folder", type=Path, metavar="DIR", help="keep what is found there, and go on from it")
    given = options.parse_args(arguments)
    paths = tuple(corpus()[: given.models or (1 if given.quick else None)])
    request = Request(
        by=tuple(given.by),
        nodes=given.nodes or (4 if given.quick else 12),
        regions=given.regions,
        count=given.count or (20 if given.quick else INSTANCES),
        deepens=given.deepen,
        seed=given.seed,
    )
    library = list(registry.load(plugins=False))
    tell = report.Report("discover")
    with tempfile.TemporaryDirectory() as made:
        folder = given.folder or Path(made)
        asked = Options(paths, request, folder, given.depth, given.budget, given.jobs)
        if "again" in given.only:
            again(asked, library, tell)
        if "new" in given.only:
            new(asked, library, tell)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
