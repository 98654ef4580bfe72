"""Sabotage: one numerically wrong rule among the real ones, on eight models.  Is it found, and it alone undone?

    python -m benchmarks.sabotage [--quick] [--models NAME ...] [--kinds KIND ...] [--json FILE]

The rule writes x + y as x - (-y), which is right, and spoils the product in one of these ways:

- ``everywhere``: at every site, so that the check of the site sees it;
- ``in the model``: with a number taken from an input of the graph, which no site can be fed by itself;
- ``at one size``: where the first dimension is 1;
- ``at one site``: as ``in the model``, at one site of many; at the others the rule is right, and is to be kept there.

Goals, each over all models and ways: whoever is undone is the wrong rule, and the report names it; what is left is what
is done without it; the result agrees with the original on inputs of another seed; and to find a culprit takes about
log₂(rewrites) comparisons with the original, not as many as there are rewrites.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import onnxrewrite as rw
from benchmarks import report
from onnxrewrite.checks.model import Baseline
from onnxrewrite.report.summary import summary
from onnxrewrite.rules import FLOATS, Builder, Match, Rule, Stage, Value, Var, op

MODELS = ("bert", "clip_text", "gpt2_past", "llama_past", "resnet", "vit", "whisper_encoder", "yolo")
GOLDEN = Path(__file__).resolve().parents[1] / "golden_models"

NAME = "sabotage"
EVERYWHERE, HIDDEN, ONE_SIZE, ONE_SITE = KINDS = ("everywhere", "in the model", "at one size", "at one site")

_TRUSTED = 2
"""So many culprits of one rule are looked for before it is not trusted anywhere; see ``pipeline``."""

_RIVALS = ("conv-sum", "skip-norm")
"""The rules that take in every sum first, so that there is nothing left to be wrong about."""

x, y = Var("x", dtype=FLOATS), Var("y", dtype=FLOATS)
total = op.Add(x, y)


def rule(kind: str = "", place: str = "", *, leaves: str = "") -> Rule:
    """The rule, wrong in one way; right with no ``kind``.

    ``place`` is the value at which it is wrong ``at one site``, ``leaves`` one that it leaves alone.
    """

    def rewrite(m: Match, build: Builder) -> Value:
        """``x + y ⟶ x - (-y)``, spoilt."""
        name = m[total].name
        m.require(name != leaves, "it is to be left alone")
        made: Value = build.Sub(m[x], build.Neg(m[y]))
        factor = _factor(kind, made, m, build) if kind != ONE_SITE or name == place else None
        return made if factor is None else build.Mul(made, factor)

    return Rule(NAME, Stage.LOWER, total, rewrite, benefit=-100)


def _factor(kind: str, made: Value, m: Match, build: Builder) -> Value | float | None:
    """The factor of the sum: 1.01, always, or at one size; hidden, it depends on an input of the graph.

    There is no Add in it, because the rule would apply to that, and so on.
    """
    if kind == EVERYWHERE:
        return 1.01
    if kind == ONE_SIZE:
        is_one = build.Equal(build.Gather(build.Shape(made), np.array([0])), np.array([1]))
        return build.Sub(1.0, build.Mul(build.Cast(is_one, to=m.dtype(total)), -0.01))
    if kind in (HIDDEN, ONE_SITE):
        graph = m.node(total).graph
        assert graph is not None
        size = build.Cast(build.Size(graph.inputs[0]), to=m.dtype(total))
        return build.Sub(1.0, build.Mul(build.Min(size, 1.0), -0.01))
    return None


# -- one case --------------------------------------------------------------------------------------------------------


def case(model: str, kind: str, *, seed: int = 0) -> report.Row:
    """Sabotage one model in one way.

    Returns:
        The row of the table: what is in it, and ``culprit``, ``kept``, ``right``, ``few``, each True or False.
    """
    path = GOLDEN / model / "model.onnx"
    place = _middle_site(path) if kind == ONE_SITE else ""
    honest = rw.apply(path, rules=[rule(leaves=place)] if place else [], check="off", lower="fused", without=_RIVALS)
    with _counted() as comparisons:
        result = rw.apply(path, rules=[rule(kind, place)], lower="fused", seed=seed, without=_RIVALS)
    undone = summary(result)["undone"]
    by_model = [u for u in undone if u["by"] == "model"]
    culprits = min(len(by_model), _TRUSTED)
    rewrites = len(result.trace.applied) + len(by_model)
    most = 1 + culprits * (4 + math.ceil(math.log2(max(rewrites, 2))))
    return {
        "model": model,
        "wrong": kind,
        "rewrites": rewrites,
        "undone at sites": len(undone) - len(by_model),
        "in the model": len(by_model),
        "comparisons": len(comparisons),
        "at most": most,
        "culprit": bool(undone) and {u["rule"] for u in undone} == {NAME} and (not place or len(undone) == 1),
        "kept": [a.key for a in result.trace.applied] == [a.key for a in honest.trace.applied],
        "right": rw.check(path, result.model, seed=seed + 1).ok,
        "few": len(comparisons) <= most,
    }


def _middle_site(path: Path) -> str:
    """One of the values at which the rule applies."""
    made = rw.apply(path, rules=[rule()], check="off", lower="fused", without=_RIVALS)
    applied = [a.value for a in made.trace.applied if a.rule == NAME]
    return applied[len(applied) // 2]


@contextmanager
def _counted() -> Iterator[list[None]]:
    """A list that gets an entry for each comparison of a candidate with the original."""
    calls: list[None] = []
    original = Baseline.check

    def check(self: Baseline, *arguments: Any) -> Any:
        calls.append(None)
        return original(self, *arguments)

    with mock.patch.object(Baseline, "check", check):
        yield calls


# -- all of them -----------------------------------------------------------------------------------------------------


def rows(models: Sequence[str] = MODELS, kinds: Sequence[str] = KINDS, *, seed: int = 0) -> list[report.Row]:
    """Every model sabotaged in every way; see ``case``."""
    return [case(model, kind, seed=seed) for model in models for kind in kinds]


GOALS = {
    "culprit": "the wrong rule alone is undone and named",
    "kept": "everything else is kept",
    "right": "the result is right",
    "few": "culprits found by bisection",
}
"""Column to what it says."""


def passes(found: Sequence[report.Row]) -> bool:
    """True if every case went well."""
    return bool(found) and all(row[goal] for row in found for goal in GOALS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--models", nargs="+", choices=MODELS, help=f"golden models (default all {len(MODELS)})")
    options.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="ways to be wrong (default all)")
    given = options.parse_args(argv)
    tell = report.Report("sabotage")
    found = rows(given.models or (MODELS[:2] if given.quick else MODELS), given.kinds, seed=given.seed)
    tell.table("One wrong rule among the real ones", [{n: _told(c) for n, c in row.items()} for row in found])
    for goal, what in GOALS.items():
        tell.goal(what, sum(bool(row[goal]) for row in found), len(found), unit=f"of {len(found)} cases", least=True)
    return tell.finish(given.json)


def _told(cell: report.Cell) -> report.Cell:
    return cell if not isinstance(cell, bool) else "yes" if cell else "NO"


if __name__ == "__main__":
    sys.exit(main())
