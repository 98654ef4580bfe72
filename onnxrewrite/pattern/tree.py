"""Many patterns, one decision tree: what all of them ask is asked once.

Each entry of a tree is a set of conditions, (question, answers): the entry holds at a value if every question has one
of its answers there.  The tree asks the question that most entries ask, files these under their answers, and keeps
the rest aside as ``otherwise``; below each answer it goes on with what is left.  A walk follows, from one value, every
branch that has the answer found there, and collects the entries at which nothing is left to ask::

    operator at the anchor?
    ├─ Mul ─► number at input 1?
    │         ├─ 0.5 ─► half
    │         └─ otherwise: operator at input 0?
    │                       └─ Sigmoid ─► swish
    └─ MatMul ─► ...

A switch is a dict, so the cost of a walk grows with what is similar to the value, not with the number of entries: a
thousand rules for the price of ten.  The idea is that of pattern matching compilers (Maranget, 2008, "Compiling
pattern matching to good decision trees") and of MLIR's PDL interpreter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from onnxrewrite.pattern.questions import Probe, Question

P = TypeVar("P")


class Condition(NamedTuple):
    """One of these answers is needed."""

    question: Question
    answers: frozenset[Hashable]


class _Entry(NamedTuple, Generic[P]):
    """The conditions left to check before ``payload`` is accepted."""

    conditions: tuple[Condition, ...]
    payload: P


class _Switch(Generic[P]):
    """A question, what follows each answer, and what follows whatever the answer is.

    Where only one entry is left there is nothing to tell apart: it is the ``last``, with all that it still asks.
    """

    __slots__ = ("accepted", "cases", "key", "last", "otherwise", "question")

    def __init__(self) -> None:
        self.accepted: tuple[P, ...] = ()
        self.last: _Entry[P] | None = None
        self.question: Question | None = None
        self.key = 0  # that of the question, under which a probe knows its answers
        self.cases: dict[Hashable, tuple[_Switch[P], ...]] = {}
        self.otherwise: _Switch[P] | None = None


class Tree(Generic[P]):
    """A decision tree over entries, built when it is first walked."""

    def __init__(self) -> None:
        self._entries: list[_Entry[P]] = []
        self._root: _Switch[P] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, conditions: Iterable[Condition], payload: P) -> None:
        """Let ``payload`` be accepted where all of ``conditions`` hold."""
        self._entries.append(_Entry(tuple(dict.fromkeys(conditions)), payload))
        self._root = None

    def walk(self, probe: Probe) -> list[P]:
        """The payloads of all entries that hold at the probed value, some perhaps more than once."""
        if self._root is None:
            self._root = _grown(self._entries)
        known = probe.answers
        found: list[P] = []
        stack = [self._root]
        while stack:
            switch = stack.pop()
            if switch.accepted:
                found += switch.accepted
            if switch.question is None:
                if switch.last is not None and _holds(switch.last, probe):
                    found.append(switch.last.payload)
                continue
            answers = known.get(switch.key)
            if answers is None:
                answers = known[switch.key] = switch.question.answers(probe)
            if switch.otherwise is not None:
                stack.append(switch.otherwise)
            cases = switch.cases
            for answer in answers:
                if answer in cases:
                    stack += cases[answer]
        return found


def _holds(entry: _Entry[P], probe: Probe) -> bool:
    known = probe.answers
    for question, needed in entry.conditions:
        answers = known.get(id(question))
        if answers is None:
            answers = known[id(question)] = question.answers(probe)
        if needed.isdisjoint(answers):
            return False
    return True


def _grown(entries: Sequence[_Entry[P]]) -> _Switch[P]:
    """The tree of some entries."""
    root = switch = _Switch[P]()
    while True:
        switch.accepted = tuple(e.payload for e in entries if not e.conditions)
        entries = [e for e in entries if e.conditions]
        if len(entries) < 2:
            switch.last = _in_order(entries[0]) if entries else None
            return root
        question = _most_telling(entries)
        asking = [e for e in entries if any(c.question is question for c in e.conditions)]
        switch.question, switch.key = question, id(question)
        switch.cases = _cases(question, asking)
        entries = [e for e in entries if all(c.question is not question for c in e.conditions)]
        switch.otherwise = _Switch[P]() if entries else None
        if switch.otherwise is None:
            return root
        switch = switch.otherwise


def _most_telling(entries: Sequence[_Entry[P]]) -> Question:
    """The question that most entries ask, weighed by how likely it is to rule them out; of these the cheapest, of these
    the nearest to the anchor.

    What is hardly ever in doubt waits until few are left to ask it: asked first, it would only tell patterns apart that
    nothing in the graph tells apart, and each group would ask everything else again.
    """
    asked: Counter[int] = Counter()
    questions: dict[int, Question] = {}
    for entry in entries:
        for number, question in {id(c.question): c.question for c in entry.conditions}.items():
            asked[number] += 1
            questions[number] = question
    return min(questions.values(), key=lambda q: (-asked[id(q)] * q.doubt, q.cost, q.position.depth, q.position.slot))


def _in_order(entry: _Entry[P]) -> _Entry[P]:
    """An entry with its remaining conditions sorted, those most in doubt first."""
    asked = sorted(entry.conditions, key=lambda c: (-c.question.doubt, c.question.cost, c.question.position.slot))
    return _Entry(tuple(asked), entry.payload)


def _cases(question: Question, entries: Sequence[_Entry[P]]) -> dict[Hashable, tuple[_Switch[P], ...]]:
    """Answer to what follows it.  An entry that needs several answers waits for the one that fewest others need."""
    needed = Counter(c.answers for e in entries for c in e.conditions if c.question is question)
    groups: dict[frozenset[Hashable], list[_Entry[P]]] = {}
    for entry in entries:
        first = min((c for c in entry.conditions if c.question is question), key=lambda c: needed[c.answers])
        left = tuple(c for c in entry.conditions if c is not first)
        groups.setdefault(first.answers, []).append(_Entry(left, entry.payload))
    cases: dict[Hashable, tuple[_Switch[P], ...]] = {}
    for answers, group in groups.items():
        below = _grown(group)
        for answer in answers:
            cases[answer] = (*cases.get(answer, ()), below)
    return cases
