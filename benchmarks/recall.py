"""Recall: whether a model that is spelled as no exporter spells it is raised to the same graph.

    python -m benchmarks.recall [--models NAME ...] [--only FAMILY ...] [--count 200] [--seed 0] [--json FILE]

Each golden model is spelled anew at random, again and again (``spellings/``), and raised by the rules that canonicalize
and raise.  The result is to be the graph that the model itself is raised to, as ``portraits.py`` compares graphs.  What
does not compute what the model does, in ONNX Runtime without optimization, is a mistake of this benchmark: it is left
out, counted, and misses a goal.

For each miss the work list shows the fewest steps that cause it, and the first node by which the graphs differ.  A
family is missed where a step of it is among these; its share is of the spellings that it has a part in.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx_ir as ir

from benchmarks import drift, motifs, report
from benchmarks.portraits import Portrait, Studio
from benchmarks.spellings import compose, whole
from benchmarks.spellings.compose import Step
from benchmarks.spellings.registry import SPELLINGS
from onnxrewrite import io
from onnxrewrite.inputs.sample import Sampler, Trial, usable
from onnxrewrite.runtime.session import Session, open_session, skeleton
from onnxrewrite.system.arrays import Outputs

GOLDEN = Path(__file__).resolve().parents[1] / "golden_models"
GOAL = 99.0
"""Percent."""

_QUICK = 3
_STATIC = 0.2
"""The share of spellings in which all sizes are numbers."""

_TOLERANCE = 1e-4
"""An output may differ by so much of its largest element: sums are taken in another order, and a variance loses digits
as E[x²] - µ²."""

_SHOWN = 4
"""So many steps of a miss are shown."""


@dataclass
class Base:
    """A model, and the graph that it is raised to."""

    model: ir.Model
    studio: Studio

    @cached_property
    def raised(self) -> ir.Model:
        """The model, raised."""
        return drift.raised(io.to_proto(self.model))

    @cached_property
    def portrait(self) -> Portrait:
        """Its portrait."""
        return self.studio.portrait(self.raised)

    def other(self, steps: Sequence[Step]) -> Portrait | None:
        """The portrait of the model as spelled by the steps, raised; None where it is the same."""
        found = self.studio.portrait(drift.raised(io.to_proto(compose.spelled(self.model, steps))))
        return None if found == self.portrait else found


@dataclass
class Miss:
    """A spelling that was raised to another graph.

    Attributes:
        steps: The fewest that cause it.
        sizes: ``static`` or ``named``.
        difference: The operators more and less, and the first nodes that are not in the other graph.
    """

    steps: list[Step]
    sizes: str
    difference: str


@dataclass
class Recall:
    """What became of the spellings of one model."""

    name: str
    spellings: int = 0
    wrong: list[str] = field(default_factory=list)
    misses: list[Miss] = field(default_factory=list)
    tried: Counter[str] = field(default_factory=Counter)
    motifs: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)

    def row(self) -> report.Row:
        """A row of the table."""
        shares = {m.name: f"{self.found[m.name]} of {self.motifs[m.name]}" for m in motifs.MOTIFS}
        same = self.spellings - len(self.misses)
        return {
            "model": self.name,
            "spellings": self.spellings,
            "same graph": same,
            "share (%)": share(same, self.spellings),
            "wrong spellings": len(self.wrong),
            **shares,
        }


def share(part: int, total: int) -> float:
    """In percent; all of nothing."""
    return 100 * part / total if total else 100.0


class Subject:
    """A golden model, as its spellings are compared with it: by what it computes, and by what it is raised to."""

    def __init__(self, name: str):
        self.name = name
        model = io.load(GOLDEN / name / "model.onnx")
        session = open_session(model)
        assert isinstance(session, Session), session
        self._trials: list[Trial] = usable(Sampler(skeleton(model)), session)[0]
        studio = Studio()
        self.bases = {"named": Base(model, studio)}
        if sizes := self._trials[0].binding:
            self.bases["static"] = Base(whole.with_sizes(model, sizes), studio)

    def recall(self, count: int, seed: int, only: Sequence[str]) -> Recall:
        """Spell the model anew so many times."""
        found = Recall(self.name)
        for number in range(count):
            rng = random.Random(f"{seed}/{self.name}/{number}")
            self._spell(found, rng, only)
        return found

    def _spell(self, found: Recall, rng: random.Random, only: Sequence[str]) -> None:
        sizes = "static" if "static" in self.bases and rng.random() < _STATIC else "named"
        base = self.bases[sizes]
        steps = compose.draw(base.model, rng, only)
        made = compose.spelled(base.model, steps)
        fault = self.fault(made, is_static=sizes == "static")
        if fault is not None:
            found.wrong.append(f"{fault}: {_shown(compose.smallest(steps, lambda some: self._is_wrong(base, some)))}")
            return
        found.spellings += 1
        found.tried.update({s.family for s in steps})
        raised = drift.raised(io.to_proto(made))
        found.motifs += motifs.found(base.raised)
        found.found += motifs.found(base.raised) & motifs.found(raised)
        if base.studio.portrait(raised) != base.portrait:
            found.misses.append(_miss(base, steps, sizes))

    def _is_wrong(self, base: Base, steps: Sequence[Step]) -> bool:
        return self.fault(compose.spelled(base.model, steps), base is not self.bases["named"]) is not None

    def fault(self, model: ir.Model, is_static: bool = False) -> str | None:
        """How what a spelling computes differs from what the model does; None where it does not."""
        session = open_session(model)
        if not isinstance(session, Session):
            return f"does not open, {session.splitlines()[0][:160]}"
        try:
            return next(filter(None, (_difference(session, t) for t in self._trials[: 1 if is_static else None])), None)
        finally:
            session.close()


def _miss(base: Base, steps: Sequence[Step], sizes: str) -> Miss:
    fewest = compose.smallest(steps, lambda some: base.other(some) is not None)
    other = base.other(fewest)
    assert other is not None
    return Miss(fewest, sizes, base.portrait.difference(other))


def _difference(session: Session, trial: Trial) -> str | None:
    made = session.run(trial.feeds)
    if isinstance(made, str):
        return f"does not run, {made.splitlines()[0][:160]}"
    return next((f"differs in {name}" for name in trial.outputs if not _close(made, trial.outputs, name)), None)


def _close(made: Outputs, known: Outputs, name: str) -> bool:
    a, b = np.asarray(made[name]), np.asarray(known[name])
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f" or not a.size:
        return np.array_equal(a, b)
    return np.allclose(a, b, rtol=0, atol=_TOLERANCE * float(np.nanmax(np.abs(b))), equal_nan=True)


def _shown(steps: Sequence[Step]) -> str:
    return "; ".join([*map(str, steps[:_SHOWN]), *([f"… {len(steps)} steps"] if len(steps) > _SHOWN else [])])


def models() -> list[str]:
    """The golden models."""
    return sorted(path.parent.name for path in GOLDEN.glob("*/model.onnx"))


def families() -> list[str]:
    """The families of spellings."""
    return sorted({s.family for s in SPELLINGS.values()} | set(compose.WHOLE))


def by_family(found: Sequence[Recall]) -> Iterator[report.Row]:
    """For each family, the share of the spellings with it in which it is not among the causes of a miss."""
    for family in families():
        tried = sum(each.tried[family] for each in found)
        missed = sum(any(s.family == family for s in m.steps) for each in found for m in each.misses)
        if tried:
            yield {
                "family": family,
                "spellings": tried,
                "cause of a miss": missed,
                "share (%)": share(tried - missed, tried),
            }


def work_list(found: Sequence[Recall]) -> Iterator[report.Row]:
    """The misses, those of the same spellings together, the most frequent first."""
    causes = Counter(" + ".join(sorted({s.spelling for s in m.steps})) for each in found for m in each.misses)
    for cause, count in causes.most_common():
        of = [
            (each.name, m)
            for each in found
            for m in each.misses
            if {s.spelling for s in m.steps} == {*cause.split(" + ")}
        ]
        name, first = min(of, key=lambda pair: len(pair[1].steps))
        yield {
            "cause": cause,
            "misses": count,
            "models": " ".join(sorted({n for n, _ in of})),
            "for example": f"{name}, {first.sizes}: {_shown(first.steps)}",
            "difference": first.difference,
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--models", nargs="+", metavar="NAME", choices=models(), help="default: all golden models")
    options.add_argument("--only", nargs="+", metavar="FAMILY", choices=families(), help=", ".join(families()))
    options.add_argument("--count", type=int, help="spellings of each model (default 200)")
    given = options.parse_args(argv)
    tell, found = report.Report("recall"), []
    for name in given.models or models():
        found.append(
            Subject(name).recall(given.count or (_QUICK if given.quick else 200), given.seed, given.only or ())
        )
        tell.table(name, [found[-1].row()])
    tell.table("models", [each.row() for each in found])
    families_found = list(by_family(found))
    tell.table("families", families_found)
    if missed := list(work_list(found)):
        tell.table("work list", missed)
    if wrong := [{"model": each.name, "wrong spelling": text} for each in found for text in each.wrong]:
        tell.table("wrong spellings", wrong)
    for row in (each.row() for each in found):
        tell.goal(f"{row['model']}: raised to the same graph", float(row["share (%)"] or 0), GOAL, unit="%", least=True)
    tell.goal("spellings that compute something else", len(wrong), 0, unit="spellings")
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
