"""``mine``: subgraphs that recur, that no rule takes in, and what they cost.

A subgraph grows from one operator, all of its occurrences at once, by the neighbour that most of them have.  Each node
is looked at a bounded number of times, so that the time is in proportion to the graph.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import onnx_ir as ir

from onnxrewrite import pipeline
from onnxrewrite.authoring.region import between, leak, sizes
from onnxrewrite.authoring.stage import found_by
from onnxrewrite.errors import UsageError
from onnxrewrite.ir import io
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import scopes, subgraphs, use_count
from onnxrewrite.ir.passing import resolve
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.rewrite.trace import RULE_KEY

MOST = 24
"""A subgraph grows to so many nodes."""

_BEGINNINGS = 3
"""From each operator it grows in so many first directions."""

_READERS = 4
"""A value that more nodes read is no inner value of a pattern."""

_STARTS, _ENDS = 6, 3
"""What begins or ends at more values than this is no pattern that anybody reads."""

Label: TypeAlias = Hashable
Step: TypeAlias = tuple[int, bool, int, int, Label]
"""A way from a node of a subgraph to a neighbour: the node's number, whether it reads the neighbour, the places."""


@dataclass(frozen=True)
class Recurring:
    """A subgraph that recurs.

    Attributes:
        operators: Its operators, producers first.
        places: How often it is there.
        models: In which models, and how often in each.
        seconds: What a run of these models spends there; None where that was not measured.
        model: The model that ``starts`` and ``ends`` are names of.
        starts: The values at which its first place begins.
        ends: The values at which that ends.
        name: What a rule for it could be called.
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

    def to_json(self) -> dict[str, Any]:
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
        target: What the results must run on.
        profile: Run the models, and rank by the time that is spent there; else by how many nodes it is in all.
        top: How many to give at the most.

    Returns:
        The costliest first; no two have a node in common.

    Raises:
        ModelError, RuleError, UsageError: Bad models, rules or target.
    """
    given = [models] if isinstance(models, str | Path) or not isinstance(models, Sequence) else list(models)
    if not given:
        raise UsageError("give at least one model")
    files = list(rules)
    left = [_Left.of(source, number, files, target, profile) for number, source in enumerate(given)]
    found = _chosen(_grown(left), top)
    often: Counter[str] = Counter()
    records = []
    for each in found:
        often[each.base] += 1
        number = often[each.base]
        records.append(each.record(each.base if number == 1 else f"{each.base}-{number}", is_timed=profile))
    return records


# ---------------------------------------------------------------------------------------- what no rule has taken


@dataclass
class _Left:
    """What rules have left of one model.

    Attributes:
        name: The model's.
        driver: The rewritten model.
        labels: The nodes that no rule has taken in, with what makes two of them alike.
        weights: What they cost: seconds, or 1 each.
        names: The values that were there before anything was raised, where ``capture`` looks.
        sizes: The shape arithmetic of each graph.
        order: Where each node stands in its graph.
    """

    name: str
    driver: Driver
    labels: dict[ir.Node, Label]
    weights: dict[ir.Node, float]
    names: frozenset[str | None]
    sizes: dict[ir.Graph, set[ir.Value]]
    order: dict[ir.Node, int]

    @classmethod
    def of(cls, source: io.Source, number: int, rules: Sequence[str], target: str, profile: bool) -> _Left:
        """What is left of a model by ``apply`` with all rules, at the opset that these need."""
        loaded = io.load(source)
        result = pipeline.apply(loaded, rules=rules, target=target, check="off", lower="fused")
        stages = {rule.name: rule.stage for rule in result.rules}
        names = _names(found_by(loaded, Stage.RAISE, result.rules, target))
        name = str(source) if isinstance(source, str | Path) else f"model {number + 1}"
        left = cls.in_model(name, Driver(result.model, [], result.target), stages, names)
        return replace(left, weights=_seconds(loaded, left.driver)) if profile else left

    @classmethod
    def in_model(cls, name: str, driver: Driver, stages: Mapping[str, Stage], names: frozenset[str | None]) -> _Left:
        """The nodes of a rewritten model that none of these rules has made, but for those that only tidy up."""
        labels, of_shapes = {}, {}
        for graph in scopes(driver.model):
            facts = driver.facts(graph)
            of_shapes[graph] = sizes(graph, facts)
            for node in graph:
                if not _is_taken(node, stages) and _is_work(node, facts, of_shapes[graph]):
                    labels[node] = _label(node, facts)
        order = {n: i for graph in scopes(driver.model) for i, n in enumerate(graph)}
        return cls(name, driver, labels, dict.fromkeys(labels, 1.0), names, of_shapes, order)


def _names(driver: Driver) -> frozenset[str | None]:
    """The names of all values."""
    graphs = scopes(driver.model)
    return frozenset(v.name for g in graphs for v in (*g.inputs, *(o for n in g for o in n.outputs)))


def _is_taken(node: ir.Node, stages: Mapping[str, Stage]) -> bool:
    """Whether a rule that does more than tidy up has made a node."""
    made = [r for r in node.metadata_props.get(RULE_KEY, "").split(",") if r]
    return any(stages.get(rule, Stage.RAISE) is not Stage.CANONICALIZE for rule in made)


def _is_work(node: ir.Node, facts: Facts, of_shapes: set[ir.Value]) -> bool:
    """Whether a node computes something of the model's data, and a pattern can have it."""
    if subgraphs(node) or node.op_type in ("Identity", "Constant") or all(o in of_shapes for o in node.outputs):
        return False
    return any(v is not None and facts.tensor(resolve(v)) is None for v in node.inputs)


def _label(node: ir.Node, facts: Facts) -> Label:
    constant = tuple(None if v is None else facts.tensor(resolve(v)) is not None for v in node.inputs)
    return (node.domain, node.op_type, node.overload, len(node.outputs), constant)


def _seconds(model: ir.Model, driver: Driver) -> dict[ir.Node, float]:
    """What a run of the model spends on what each node of the rewritten one stands for."""
    from onnxrewrite.measure.kernels import run_profiled
    from onnxrewrite.measure.lineage import covered, origins
    from onnxrewrite.measure.opportunities import side
    from onnxrewrite.measure.sessions import DEFAULT
    from onnxrewrite.measure.workload import workload

    run = run_profiled({"model": model}, workload(model).feeds, DEFAULT)["model"]
    measured = side(run.kernels, covered(model, run.optimized))
    of_name: dict[str, float] = defaultdict(float)
    for kernel in measured.kernels:
        names = measured.nodes.get(kernel.name, ())
        for name in names:
            of_name[name] += kernel.seconds / len(names)
    nodes = [n for graph in scopes(driver.model) for n in graph]
    shared = Counter(name for n in nodes for name in origins(n))
    return {n: sum(of_name.get(name, 0.0) / shared[name] for name in origins(n)) for n in nodes}


# --------------------------------------------------------------------------------------------------- growing


class _Occurrence:
    """One place of a subgraph that grows."""

    def __init__(self, left: _Left, node: ir.Node):
        self.left = left
        self.nodes: list[ir.Node] = []
        self.steps: dict[Step, ir.Node] = {}
        self.add(node)

    def add(self, node: ir.Node) -> None:
        """Take a node in, with the ways that lead on from it."""
        number = len(self.nodes)
        self.nodes.append(node)
        for step, other in _neighbours(self.left, node, number):
            if other not in self.nodes:
                self.steps.setdefault(step, other)
        self.steps = {s: n for s, n in self.steps.items() if n is not node}

    def copy(self) -> _Occurrence:
        """One that grows on its own."""
        made = _Occurrence.__new__(_Occurrence)
        made.left, made.nodes, made.steps = self.left, list(self.nodes), dict(self.steps)
        return made


def _neighbours(left: _Left, node: ir.Node, number: int) -> Iterator[tuple[Step, ir.Node]]:
    """The ways from a node to others that no rule has taken."""
    for place, value in enumerate(node.inputs):
        source = resolve(value) if value is not None else None
        producer = source.producer() if source is not None else None
        if source is None or producer not in left.labels or producer is node or producer.graph is not node.graph:
            continue
        if use_count(source) <= _READERS:
            yield (number, True, place, source.index() or 0, left.labels[producer]), producer
    for value in node.outputs:
        uses = value.uses() if use_count(value) <= _READERS else ()
        for reader, place in sorted(uses, key=lambda u: (left.order[u[0]], u[1])):
            if reader in left.labels and reader.graph is node.graph:
                yield (number, False, place, value.index() or 0, left.labels[reader]), reader


class _Grown(NamedTuple):
    """A subgraph at one size."""

    occurrences: tuple[tuple[_Left, tuple[ir.Node, ...]], ...]
    weight: float


def _grown(left: Sequence[_Left]) -> list[_Grown]:
    """Subgraphs of all beginnings and sizes."""
    beginnings: dict[Label, list[_Occurrence]] = defaultdict(list)
    for each in left:
        for node, label in each.labels.items():
            beginnings[label].append(_Occurrence(each, node))
    found: list[_Grown] = []
    for occurrences in beginnings.values():
        often = Counter(step for o in occurrences for step in o.steps)
        first = sorted((s for s, n in often.items() if n > 1), key=lambda s: (-often[s], repr(s)))
        for step in first[:_BEGINNINGS]:
            found += _grow([o.copy() for o in occurrences], step)
    return found


def _grow(occurrences: list[_Occurrence], step: Step | None) -> Iterator[_Grown]:
    """One subgraph at every size at which to go on would lose some of its places."""
    last: _Grown | None = None
    while step is not None and len(occurrences[0].nodes) < MOST:
        occurrences = _extended(occurrences, step)
        if len(occurrences) < 2:
            break
        if last is not None and len(occurrences) < len(last.occurrences):
            yield last
        weight = sum(o.left.weights.get(n, 0.0) for o in occurrences for n in o.nodes)
        last = _Grown(tuple((o.left, tuple(o.nodes)) for o in occurrences), weight)
        often = Counter(s for o in occurrences for s in o.steps)
        step = min((s for s, n in often.items() if n > 1), key=lambda s: (-often[s], repr(s)), default=None)
    if last is not None:
        yield last


def _extended(occurrences: Iterable[_Occurrence], step: Step) -> list[_Occurrence]:
    """Those that can take the step, as long as no two have a node in common."""
    kept: list[_Occurrence] = []
    taken: set[ir.Node] = set()
    for each in occurrences:
        other = each.steps.get(step)
        if other is None or other in taken or not taken.isdisjoint(each.nodes):
            continue
        each.add(other)
        taken.update(each.nodes)
        kept.append(each)
    return kept


# -------------------------------------------------------------------------------------------------- choosing


class _Choice(NamedTuple):
    """A subgraph that can be captured, with its border at the first place."""

    grown: _Grown
    starts: tuple[str, ...]
    ends: tuple[str, ...]

    @property
    def base(self) -> str:
        """What a rule for it could be called: after its first and last operator."""
        first, nodes = self.grown.occurrences[0]
        operators = [n.op_type.lower() for n in sorted(nodes, key=first.order.__getitem__)]
        return "-".join(dict.fromkeys(("my", operators[0], operators[-1])))

    def record(self, name: str, *, is_timed: bool) -> Recurring:
        """What is told of it."""
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


def _chosen(grown: Iterable[_Grown], top: int) -> list[_Choice]:
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


def _border(left: _Left, nodes: Sequence[ir.Node]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
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
    """What some nodes compute and others need, the last first: that is where a pattern is anchored."""
    found: list[ir.Value] = []
    while (leaking := leak(nodes, found, of_shapes)) is not None and len(found) <= _ENDS:
        found.append(leaking[0])
    return found[::-1]


def _is_free(left: _Left, nodes: Sequence[ir.Node], ends: int) -> bool:
    """Whether some nodes compute no more than ``ends`` values that others need."""
    graph = nodes[0].graph
    assert isinstance(graph, ir.Graph)
    return len(_ends(nodes, left.sizes[graph])) == ends
