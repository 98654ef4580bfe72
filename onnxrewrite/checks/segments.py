"""A model in segments: cut where few values cross, run one after the other, and compared one by one.

A model and its rewritten form have values of the same name in common, and such a value is the same number in both.  So
between two cuts through such values both compute the same function, or one of them is wrong.  Both are fed what the
*original* computed before: a fault is in the first segment that differs, errors do not pile up from layer to layer, and
no more than one segment of a model is open at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx import helper

from onnxrewrite.ir.protos import names_read
from onnxrewrite.reference.runs import Run
from onnxrewrite.runtime.limited import patient
from onnxrewrite.runtime.references import POOLED, referred_bytes
from onnxrewrite.runtime.session import Session, is_short_of_memory, open_session
from onnxrewrite.system.arrays import Feeds, Outputs, is_tensor

FEWEST = 24
"""Nodes of a segment, at the least."""

MOST = 192
"""Nodes within which a segment ends, where the fewest values cross."""

CHEAP = 32
"""So many nodes are rather computed again than a cut given up for their result."""

CROSSING = 128
"""More values than this do not cross a cut."""

_LARGE = 2**20
"""Elements of a weight that makes what it takes part in not cheap."""

_Known: TypeAlias = Mapping[str, onnx.ValueInfoProto]


class Segment(NamedTuple):
    """A segment of a model, and the same of its rewritten form.

    Attributes:
        model: The segment of the model, as one of its own.
        original: A session of it, or why there is none.
        rewritten: A session of the same of the rewritten form, likewise.
        outputs: The values that both compute.
        made: The names of all values that one of them computes.
        done: The number of cuts up to its end.
        waiting: The number of those to come.
    """

    model: onnx.ModelProto
    original: Session | str
    rewritten: Session | str
    outputs: Sequence[str]
    made: frozenset[str]
    done: int
    waiting: int

    def fed(self, values: Feeds) -> Outputs:
        """Those of the values that one of both reads."""
        sides = [side for side in (self.original, self.rewritten) if isinstance(side, Session)]
        return {name: values[name] for side in sides for name in side.fed if name in values}

    @staticmethod
    def computed(side: Session | str, feeds: Feeds) -> Outputs | str:
        """The outputs of one of both, or why there are none."""
        return side if isinstance(side, str) else side.run(feeds)


class _Cut(NamedTuple):
    """The outputs of the model that are computed before a place, and the values that cross it."""

    outputs: Sequence[str]
    crossing: Sequence[str]


class _Graph:
    """The graph of a message, its values by name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model, self.nodes = model, list(model.graph.node)
        self.reads = [tuple(dict.fromkeys(names_read(node))) for node in self.nodes]
        self.producers = {name: place for place, node in enumerate(self.nodes) for name in node.output if name}
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self.sparse = {tensor.values.name: tensor for tensor in model.graph.sparse_initializer}
        self.inputs = {each.name: each for each in model.graph.input}
        self.outputs = {each.name: each for each in model.graph.output}

    @cached_property
    def last(self) -> dict[str, int]:
        """The place of the last node that reads a computed value."""
        return {name: place for place, names in enumerate(self.reads) for name in names if name in self.producers}

    @cached_property
    def costs(self) -> list[int]:
        """One for each node, more for one that reads a large weight."""
        large = {n for n, t in self.weights.items() if t.external_data or np.prod(t.dims, dtype=float) >= _LARGE}
        return [1 if large.isdisjoint(names) else CHEAP for names in self.reads]

    def needed(self, wanted: Iterable[str], known: Collection[str]) -> list[int]:
        """The places of the nodes that compute values from those that are known."""
        found, waiting = set[int](), [name for name in wanted if name not in known]
        while waiting:
            place = self.producers.get(waiting.pop())
            if place is not None and place not in found:
                found.add(place)
                waiting += [name for name in self.reads[place] if name not in known]
        return sorted(found)

    def is_cheap(self, name: str, known: Collection[str]) -> bool:
        """True if few nodes compute a value from those that are known."""
        return sum(self.costs[place] for place in self.needed([name], known)) <= CHEAP

    def extract(self, wanted: Sequence[str], known: _Known) -> onnx.ModelProto:
        """The nodes that compute values from those that are known, as a model of its own."""
        places = self.needed(wanted, known)
        read = dict.fromkeys(name for place in places for name in self.reads[place])
        used = [name for name in dict.fromkeys((*read, *wanted)) if name not in known]
        made = onnx.ModelProto(ir_version=self.model.ir_version, opset_import=self.model.opset_import)
        made.functions.extend(self.model.functions)
        made.graph.name = self.model.graph.name
        made.graph.node.extend(_renamed(self.nodes[place], known) for place in places)
        made.graph.initializer.extend(self.weights[name] for name in used if name in self.weights)
        made.graph.sparse_initializer.extend(self.sparse[name] for name in used if name in self.sparse)
        made.graph.input.extend(self.inputs[name] for name in used if name in self.inputs)
        made.graph.input.extend(known[name] for name in read if name in known)
        made.graph.output.extend(self.outputs.get(name, onnx.ValueInfoProto(name=name)) for name in wanted)
        return made

    def cuts(self, common: Collection[str]) -> Iterator[_Cut]:
        """The places that the fewest values cross, all in common if there are such; the last one is the end."""
        start, told, end, crossing = -1, -1, len(self.nodes) - 1, list[str]()
        missing, width = self._width(self.dear - set(common)), self._width(self.dear)
        while end - start > 2 * FEWEST:
            window = range(start + FEWEST, min(start + MOST, end - FEWEST) + 1)
            before, start = start, min(window, key=lambda place: (missing[place], width[place]))
            made = (name for node in self.nodes[before + 1 : start + 1] for name in node.output)
            crossing = [name for name in (*crossing, *made) if self.last.get(name, -1) > start]
            if len(crossing) <= CROSSING:
                yield _Cut(self._outputs_of(told, start), crossing)
                told = start
        others = [name for name in self.outputs if name not in self.producers]
        yield _Cut([*others, *self._outputs_of(told, end)], ())

    def _outputs_of(self, after: int, last: int) -> list[str]:
        """The outputs of the model that the nodes between two places compute."""
        made = (name for node in self.nodes[after + 1 : last + 1] for name in node.output)
        return [name for name in made if name in self.outputs]

    @cached_property
    def dear(self) -> set[str]:
        """The values that are not cheap to compute from the inputs."""
        costs: dict[str, int] = {}
        for node, reads, own in zip(self.nodes, self.reads, self.costs, strict=True):
            cost = min(CHEAP + 1, own + sum(costs.get(name, 0) for name in reads))
            costs.update(dict.fromkeys(node.output, cost))
        return {name for name in self.last if costs[name] > CHEAP}

    def _width(self, counted: Collection[str]) -> list[int]:
        """The number of those values that cross behind each node."""
        change = [0] * (len(self.nodes) + 1)
        for name in counted:
            change[self.producers[name]] += 1
            change[self.last[name]] -= 1
        return list(itertools.accumulate(change))


def _renamed(node: onnx.NodeProto, known: Collection[str]) -> onnx.NodeProto:
    """A node that computes what is known already, and something else: what is known is not called so twice."""
    if not any(name in known for name in node.output):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.output[:] = [f"{name}.again" if name in known else name for name in node.output]
    return copy


def segments(
    original: onnx.ModelProto, rewritten: onnx.ModelProto | None, held: Sequence[Outputs], *, threads: int = 0
) -> Iterator[Segment]:
    """The segments of a model and of its rewritten form, one after the other.

    Args:
        original: The model; its nodes are in order.
        rewritten: Its rewritten form, likewise; None for the model alone.
        held: The outputs of the segments so far in each run; the caller adds those of a segment before the next one.
        threads: Of sessions; 0 is ONNX Runtime's choice.
    """
    old = _Graph(original)
    new = old if rewritten is None else _Graph(rewritten)
    common = {name for name in old.producers if name in new.producers or name in new.weights}
    known, computed = dict[str, onnx.ValueInfoProto](), dict[str, onnx.ValueInfoProto]()
    done, outputs = set[int](), list[str]()
    cuts = list(old.cuts(common))
    for number, cut in enumerate(cuts, 1):
        outputs += [name for name in cut.outputs if name not in known]
        given = [name for name in cut.crossing if name in common and name not in known]
        wanted = list(dict.fromkeys((*outputs, *given)))
        if not wanted:
            continue
        known_then = {*known, *wanted}
        if cut.crossing and not (given and all(n in known_then or old.is_cheap(n, known_then) for n in cut.crossing)):
            continue
        places = set(new.needed(wanted, computed))
        # What a fused node computes beside an output of this segment would be computed again in the next one.
        reached = (n for place in sorted(places) for n in new.nodes[place].output)
        beside = (n for n in reached if new.last.get(n, -1) not in {-1, *places} and new.last[n] not in done)
        wanted += [n for n in beside if n in common and n not in known_then and old.is_cheap(n, known_then)]
        model = old.extract(wanted, known)
        first = _opened(model, threads)
        same = new.extract(wanted, computed)
        second = first if new is old else _opened(same, threads)
        if cut.crossing and (isinstance(first, str) or isinstance(second, str)):
            continue  # types and sizes that it has as a whole cannot be inferred
        made = frozenset(name for side in (model, same) for node in side.graph.node for name in node.output)
        yield Segment(model, first, second, wanted, made, number, len(cuts) - number)
        for side in (first, second):
            if isinstance(side, Session):
                side.close()
        told = described(wanted, held)
        known |= told
        computed |= {name: info for name, info in told.items() if name in new.producers}
        done |= places
        outputs = []


def _opened(model: onnx.ModelProto, threads: int) -> Session | str:
    return open_session(model, threads=threads, pooled=referred_bytes(model) <= POOLED)


def described(names: Iterable[str], held: Sequence[Outputs]) -> dict[str, onnx.ValueInfoProto]:
    """Inputs for those of some values that are tensors; a size that is not the same in all runs is left open."""
    found = {}
    for name in names:
        values = [run[name] for run in held if name in run]
        if values and all(map(is_tensor, values)):
            arrays = [np.asarray(value) for value in values]
            sizes = [each[0] if len(set(each)) == 1 else None for each in zip(*(a.shape for a in arrays), strict=True)]
            dtype = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
            found[name] = helper.make_tensor_value_info(name, dtype, sizes)
    return found


def _copied(outputs: Outputs) -> Outputs:
    """Values without the session that computed them: as long as one of them is held, all of its memory is."""
    return {name: np.array(value) if is_tensor(value) else value for name, value in outputs.items()}


class SegmentRunner:
    """A model that is run in segments, as a session runs it.

    Args:
        model: The model, its nodes in order.
        threads: Of sessions; 0 is ONNX Runtime's choice.

    Attributes:
        overrun: That a run took longer than it may: none is tried again.
    """

    def __init__(self, model: onnx.ModelProto, *, threads: int = 0) -> None:
        self.overrun = ""
        self._model, self._threads = model, threads

    def run(self, feeds: Feeds) -> Outputs | str:
        """Outputs by name, or one line saying why there are none."""
        held: Outputs = {}
        for segment in segments(self._model, None, [held], threads=self._threads):
            made = self.overrun or segment.computed(segment.original, {**feeds, **held})
            if isinstance(made, str):
                self.overrun = segment.original.overrun if isinstance(segment.original, Session) else ""
                return made
            held |= _copied(made)
        return {each.name: held[each.name] for each in self._model.graph.output}


class Step(NamedTuple):
    """A segment that both models ran.

    Attributes:
        segment: The segment.
        runs: Of the original; those at which it does not run are left out.
        made: The outputs of the rewritten model in these runs.
        failure: What kept the rewritten model from running; empty if nothing did.
        dropped: Runs at which the original failed, and why.
    """

    segment: Segment
    runs: list[Run]
    made: list[Outputs]
    failure: str
    dropped: list[tuple[Run, str]]


def side_by_side(
    original: onnx.ModelProto, rewritten: onnx.ModelProto, runs: Sequence[Run], *, threads: int = 0
) -> Iterator[Step]:
    """Both models, segment by segment, each fed what the original computed before.

    Raises:
        MemoryError: The rewritten model is short of it.
    """
    feeds, held = list(runs), [Outputs() for _ in runs]
    for segment in segments(original, rewritten, held, threads=threads):
        step = Step(segment, [], [], "", [])
        if isinstance(segment.rewritten, Session):
            segment.rewritten.seconds = patient(segment.rewritten.seconds)
        kept = list[int]()
        for place, (run, values) in enumerate(zip(feeds, held, strict=True)):
            fed = segment.fed({**run.feeds, **values})
            old = segment.computed(segment.original, fed)
            if isinstance(old, str):
                step.dropped.append((run, old))
                continue
            kept.append(place)
            values |= _copied(old)
            step.runs.append(replace(run, feeds=fed, outputs=old))
            new = segment.computed(segment.rewritten, fed)
            if isinstance(new, str):
                if is_short_of_memory(new):
                    raise MemoryError
                yield step._replace(failure=f"{run.describe()} the rewritten model fails: {new}")
                return
            step.made.append(new)
        feeds[:], held[:] = [feeds[i] for i in kept], [held[i] for i in kept]
        yield step


def again(model: onnx.ModelProto, runs: Sequence[Run], *, threads: int = 0) -> list[Outputs] | str | None:
    """The outputs of a segment as another rewritten form computes them, or why there are none.

    It is fed what was fed in these runs; None where it reads something else.
    """
    graph, first = _Graph(model), runs[0]
    fed = [dict(run.feeds) for run in runs]
    known = described((n for n in first.feeds if n in graph.producers or n in graph.inputs), fed)
    part = graph.extract(list(first.outputs), known)
    read, made = ({each.name for each in some} for some in (part.graph.input, part.graph.output))
    if not read <= known.keys() or not made <= graph.producers.keys() | read:
        return None
    session, outputs = _opened(part, threads), list[Outputs]()
    if isinstance(session, str):
        return session
    with closing(session):
        for run in runs:
            computed = session.run({name: run.feeds[name] for name in read})
            if isinstance(computed, str):
                return computed
            outputs.append(_copied(computed))
    return outputs
