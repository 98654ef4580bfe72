"""The knowledge of speed of a run of ``apply``: this machine's database, or a file of signed rows and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol

from onnxrewrite.errors import UsageError
from onnxrewrite.measure.database import exchange, machine_class
from onnxrewrite.measure.database.machine_class import Fingerprint, Host, MachineClass, host
from onnxrewrite.measure.database.rows import Figures, Question, Row, asked, ort_build, row_of
from onnxrewrite.measure.database.store import HERE, Kept, Store
from onnxrewrite.measure.timing import Interval

ONE_IN: Final = 8
"""Of so many rows of others one is measured again."""

TOLERANCE: Final = 0.1
"""Machines of one class agree if their intervals, each widened by this, meet."""

_SHOWN: Final = 12
"""Of the id of a key, so many digits are told."""


@dataclass(frozen=True)
class Recalled:
    """An answer.

    Attributes:
        ratios: As the question asks for them.
        seconds: The median of the time of each side.
        remembered: True if it was not measured now.
    """

    ratios: Mapping[str, Interval]
    seconds: Mapping[str, float]
    remembered: bool

    @classmethod
    def of(cls, figures: Figures, *, remembered: bool) -> Recalled:
        """The answer that figures give."""
        return cls(figures.ratios, {name: figures.median(name) for name in figures.seconds}, remembered)


class Known(Protocol):
    """Answers questions of what is faster.

    Attributes:
        missing: The reason why a question has no answer, where it may not be measured.
        notes: What a user is told.
    """

    missing: str
    notes: list[str]

    def recall(self, question: Question, measure: Callable[[], Figures | None]) -> Recalled | None:
        """The answer, remembered, or measured now where that is wanted; None without one.

        Args:
            question: What is asked.
            measure: Measures it; gives None where there is no time left for that.
        """
        ...

    def decision(self, about: str) -> str:
        """The decision on something; empty if none is remembered, or it rests on measurements that are not those that
        would be used now."""
        ...

    def decide(self, about: str, told: str) -> None:
        """Remember a decision, which rests on all that was recalled before."""
        ...

    def passed(self, check: str) -> str:
        """The record of a check that has passed on this machine; empty if none is remembered."""
        ...

    def keep_passed(self, told: Mapping[str, str]) -> None:
        """Remember checks that have passed."""
        ...


@dataclass
class Database:
    """The measurements of this machine, and on others of its class; what is not known is measured and remembered.

    Args:
        store: The file.
        host: This machine.
    """

    store: Store = field(default_factory=Store)
    host: Host = field(default_factory=lambda: host())
    missing: str = "the time for measuring was up"
    notes: list[str] = field(default_factory=list)
    _used: dict[str, str] = field(default_factory=dict)
    """The rows that were recalled, by what they answer."""

    def recall(self, question: Question, measure: Callable[[], Figures | None]) -> Recalled | None:
        """See ``Known``.  A row of others is measured again where ``is_spot`` says so."""
        found = self._answer(asked(question, ort_build()))
        if found is not None and (found.source == HERE or not self.is_spot(question)):
            return self._recalled(found.row, remembered=True)
        seen = measure()
        if seen is None:
            return self._recalled(found.row, remembered=True) if found is not None else None
        if found is not None and differ(found.row.figures, seen):
            again = measure()
            if again is not None and differ(found.row.figures, again):
                self._quarantine(found, seen)
        made = row_of(question, seen, MachineClass(self.host.facts, None), self.host.name)
        self.store.add([Kept(made)])
        return self._recalled(made, remembered=False)

    def decision(self, about: str) -> str:
        """See ``Known``."""
        try:
            rests_on, told = json.loads(self.store.decision(self._own(about)))
            answers = {asked: self._answer(asked) for asked in rests_on}
            holds = all(found is not None and found.row.digest == rests_on[asked] for asked, found in answers.items())
        except (ValueError, TypeError):
            return ""
        return str(told) if holds else ""

    def decide(self, about: str, told: str) -> None:
        """See ``Known``."""
        self.store.remember_decisions({self._own(about): json.dumps([self._used, told])})

    def passed(self, check: str) -> str:
        """See ``Known``."""
        return self.store.decision(self._own(check))

    def keep_passed(self, told: Mapping[str, str]) -> None:
        """See ``Known``."""
        self.store.remember_decisions({self._own(check): said for check, said in told.items()})

    def _own(self, about: str) -> str:
        return hashlib.sha256(f"{self._place} {about}".encode()).hexdigest()

    def _recalled(self, row: Row, *, remembered: bool) -> Recalled:
        self._used[row.asked] = row.digest
        return Recalled.of(row.figures, remembered=remembered)

    def is_spot(self, question: Question) -> bool:
        """True for one question in ``ONE_IN``, another one on each machine: nobody who signs rows knows which."""
        digest = hashlib.sha256(f"{self.host.name} {question.digest}".encode()).hexdigest()
        return int(digest, 16) % ONE_IN == 0

    @cached_property
    def machine_class(self) -> MachineClass:
        """The class of this machine; its fingerprint is measured once, and remembered in the file."""
        try:
            made = Fingerprint(**json.loads(self.store.fingerprint(self._place)))
            known = all(isinstance(each, float) and each > 0 for each in vars(made).values())
        except (ValueError, TypeError):
            known = False
        if not known:
            made = machine_class.fingerprint()
            self.remember(made)
        return MachineClass(self.host.facts, made)

    def remember(self, made: Fingerprint) -> None:
        """Take a fingerprint for that of this machine from now on."""
        self.store.remember_fingerprint(self._place, json.dumps(dataclasses.asdict(made)))

    @property
    def _place(self) -> str:
        """The name under which what is true of this machine alone is remembered: another build has another one."""
        told = json.dumps([dataclasses.asdict(self.host), ort_build()], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()

    def told(self, row: Row) -> Row:
        """A row as other machines are to be told of it: with the fingerprint of this one, if that has measured it."""
        is_bare = row.machine_class.fingerprint is None
        return replace(row, machine_class=self.machine_class) if is_bare and self._is_own(row) else row

    def _answer(self, asked: str) -> Kept | None:
        """The best row of this machine's class: the latest of its own, else the most precise one."""
        rows = self.store.answers(asked)
        own = [each for each in rows if each.source == HERE and self._is_own(each.row)]
        others = (each for each in rows if each.source != HERE and self.machine_class.is_alike(each.row.machine_class))
        return own[0] if own else min(others, key=lambda each: precision(each.row), default=None)

    def _is_own(self, row: Row) -> bool:
        """True if this machine measured it, as it is now."""
        return (row.machine, row.machine_class.facts) == (self.host.name, self.host.facts)

    def _quarantine(self, found: Kept, seen: Figures) -> None:
        told, now = (next(iter(each.ratios.values())).median for each in (found.row.figures, seen))
        why = f"a ratio of {told:.2f} was measured again, twice, and is {now:.2f} here"
        self.store.quarantine(found.source, why)
        self.notes.append(f"measurements of the key {found.source[:_SHOWN]} are not used any more: {why}")


@dataclass
class Frozen:
    """Rows of a file, and nothing else: nothing is measured, so that the same file gives the same result everywhere.

    Args:
        rows: The rows, by the digest of what they answer.
        missing: The reason why a question has no answer.
    """

    rows: Mapping[str, Row]
    missing: str
    notes: list[str] = field(default_factory=list)

    def recall(self, question: Question, measure: Callable[[], Figures | None]) -> Recalled | None:
        """See ``Known``; nothing is measured."""
        row = self.rows.get(asked(question, ort_build()))
        return Recalled.of(row.figures, remembered=True) if row is not None else None

    def decision(self, about: str) -> str:
        """See ``Known``; nothing but rows is in the file."""
        return ""

    def decide(self, about: str, told: str) -> None:
        """See ``Known``; the file is not changed."""

    def passed(self, check: str) -> str:
        """See ``Known``; nothing but rows is in the file."""
        return ""

    def keep_passed(self, told: Mapping[str, str]) -> None:
        """See ``Known``; the file is not changed."""


def frozen(path: str | os.PathLike[str], signed_by: Sequence[str | os.PathLike[str]]) -> Frozen:
    """The rows of a file that are signed by one of the keys and of this build of ONNX Runtime.

    Raises:
        UsageError: There are none, they are of several classes of machines, or the file or a key cannot be read.
    """
    found, name = exchange.read([path], signed_by), os.fspath(path)
    found.refuse_stale({})
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(found.refused.items()))
    if not found.signed:
        raise UsageError(f"--measurements {name}: has no row that can be used{f': {told}' if told else ''}")
    rows = sorted((each.row for each in found.signed.values()), key=precision)
    classes = {row.machine_class.name for row in rows}
    if any(not row.machine_class.is_alike(rows[0].machine_class) for row in rows):
        raise UsageError(
            f"--measurements {name}: has rows of several classes of machines ({', '.join(sorted(classes))}); "
            "export those of one"
        )
    notes = [f"measurements {name}: refused: {told}"] if told else []
    return Frozen({row.asked: row for row in reversed(rows)}, f"it is not in {os.path.basename(name)}", notes)


def precision(row: Row) -> tuple[float, str]:
    """The width of the widest interval, relative to it, and the digest, so that of two rows one comes first."""
    return max((r.high - r.low) / r.median for r in row.figures.ratios.values()), row.digest


def differ(a: Figures, b: Figures) -> bool:
    """True if the intervals of a ratio are apart by more than machines of one class are."""
    far = 1 + TOLERANCE
    pairs = ((a.ratios[name], b.ratios[name]) for name in a.ratios)
    return any(x.low > far**2 * y.high or y.low > far**2 * x.high for x, y in pairs)
