"""``mine``: subgraphs that recur, that no rule takes in, and what they cost."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.authoring.growth import Grown, grown
from onnxrewrite.authoring.region import between, leak
from onnxrewrite.authoring.unmatched import Left
from onnxrewrite.errors import UsageError
from onnxrewrite.ir.skip_identity import resolve
from onnxrewrite.system.plain import Json

_STARTS, _ENDS = 6, 3
"""The most values at which a pattern begins, and at which it ends: with more it is not readable."""


@dataclass(frozen=True)
class Recurring:
    """A subgraph that recurs.

    Attributes:
        operators: Its operators, producers first.
        places: The number of its places.
        models: In which models, and how often in each.
        seconds: The time that a run of these models spends there; None where that was not measured.
        model: The model that ``starts`` and ``ends`` are names of.
        starts: The values at which its first place begins.
        ends: The values at which that ends.
        name: A name for its rule.
    """

    operators: tuple[str, ...]
    places: int
    models: Mapping[str, int]
    seconds: float | None
    model: str
    starts: tuple[str, ...]
    ends: tuple[str, ...]
    name: str

    @property
    def command(self) -> str:
        """The command that cuts it out."""
        words = ["onnxrewrite", "capture", self.model]
        words += [w for s in self.starts for w in ("--from", s)]
        words += [w for e in self.ends for w in ("--to", e)]
        return shlex.join([*words, "--name", self.name])

    def to_json(self) -> dict[str, Json]:
        """Plain data, in seconds."""
        return {
            "operators": list(self.operators),
            "places": self.places,
            "models": dict(self.models),
            "seconds": self.seconds,
            "model": self.model,
            "from": list(self.starts),
            "to": list(self.ends),
            "name": self.name,
            "command": self.command,
        }


def mine(
    models: Sequence[io.Source] | io.Source,
    *,
    rules: Iterable[str] = (),
    target: str = "onnxruntime-cpu",
    profile: bool = False,
    top: int = 10,
) -> list[Recurring]:
    """Subgraphs that recur in models after all rules have run, and that none of them has taken in.

    Args:
        models: Paths, ``onnx.ModelProto`` or ``onnx_ir.Model``; they are not changed.
        rules: Files or packages with rules beside the library's.
        target: The target that the results must run on.
        profile: Run the models, and rank by the time that is spent there; else by how many nodes it is in all.
        top: The number to give at the most.

    Returns:
        The costliest first; no two have a node in common.

    Raises:
        ModelError, RuleError, UsageError: Bad models, rules or target.
    """
    given = [models] if isinstance(models, str | Path) or not isinstance(models, Sequence) else list(models)
    if not given:
        raise UsageError("give at least one model")
    files = list(rules)
    left = [Left.of(source, number, files, target, profile) for number, source in enumerate(given)]
    found = chosen(grown(left), top)
    often: Counter[str] = Counter()
    records = []
    for each in found:
        often[each.base] += 1
        number = often[each.base]
        records.append(each.record(each.base if number == 1 else f"{each.base}-{number}", is_timed=profile))
    return records


class _Choice(NamedTuple):
    """A subgraph that can be captured, with its border at the first place."""

    grown: Grown
    starts: tuple[str, ...]
    ends: tuple[str, ...]

    @property
    def base(self) -> str:
        """A name for its rule: after its first and last operator."""
        first, nodes = self.grown.occurrences[0]
        operators = [n.op_type.lower() for n in sorted(nodes, key=first.order.__getitem__)]
        return "-".join(dict.fromkeys(("my", operators[0], operators[-1])))

    def record(self, name: str, *, is_timed: bool) -> Recurring:
        """The record of it, with the name of its rule."""
        first, nodes = self.grown.occurrences[0]
        operators = tuple(n.op_type for n in sorted(nodes, key=first.order.__getitem__))
        models = Counter(each.name for each, _ in self.grown.occurrences)
        return Recurring(
            operators=operators,
            places=len(self.grown.occurrences),
            models=dict(models),
            seconds=self.grown.weight if is_timed else None,
            model=first.name,
            starts=self.starts,
            ends=self.ends,
            name=name,
        )


def chosen(grown: Iterable[Grown], top: int) -> list[_Choice]:
    """The costliest that can be captured; of what overlaps, the costlier, or what recurs more often."""
    found: list[_Choice] = []
    taken: set[ir.Node] = set()
    tried: set[frozenset[ir.Node]] = set()
    for each in sorted(grown, key=lambda g: (-g.weight, -len(g.occurrences))):
        first = frozenset(each.occurrences[0][1])
        if len(found) == top:
            break
        if first in tried or any(n in taken for _, nodes in each.occurrences for n in nodes):
            continue
        tried.add(first)
        border = _border(*each.occurrences[0])
        if border is None or not all(_is_free(left, nodes, len(border[1])) for left, nodes in each.occurrences):
            continue
        found.append(_Choice(each, *border))
        taken.update(n for _, nodes in each.occurrences for n in nodes)
    return found


def _border(left: Left, nodes: Sequence[ir.Node]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The names of the values at which some nodes begin and end; None where ``capture`` could not take just these."""
    graph = nodes[0].graph
    assert isinstance(graph, ir.Graph)
    facts, of_shapes, inside = left.driver.facts(graph), left.sizes[graph], set(nodes)
    ordered = sorted(nodes, key=left.order.__getitem__)
    read = [resolve(v) for n in ordered for v in n.inputs if v is not None]
    starts = [
        v for v in dict.fromkeys(read) if facts.tensor(v) is None and v not in of_shapes and v.producer() not in inside
    ]
    ends = _ends(nodes, of_shapes)
    names = tuple(v.name for v in starts), tuple(v.name for v in ends)
    if not 0 < len(starts) <= _STARTS or not 0 < len(ends) <= _ENDS or not left.names.issuperset(names[0] + names[1]):
        return None
    try:
        region = between(graph, facts, starts, ends)
    except UsageError:
        return None
    return names if set(region.nodes) == inside else None  # type: ignore[return-value]


def _ends(nodes: Sequence[ir.Node], of_shapes: set[ir.Value]) -> list[ir.Value]:
    """The values that some nodes compute and others need, the last first: that is where a pattern is anchored."""
    found: list[ir.Value] = []
    while (leaking := leak(nodes, found, of_shapes)) is not None and len(found) <= _ENDS:
        found.append(leaking[0])
    return found[::-1]


def _is_free(left: Left, nodes: Sequence[ir.Node], ends: int) -> bool:
    """True if some nodes compute exactly ``ends`` values that others need."""
    graph = nodes[0].graph
    assert isinstance(graph, ir.Graph)
    return len(_ends(nodes, left.sizes[graph])) == ends
