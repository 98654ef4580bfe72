"""The proposals of all stages, numbered, from the plain data of ``optimize``."""

from __future__ import annotations

from dataclasses import dataclass

from onnxrewrite.system.plain import Plain


@dataclass(frozen=True)
class Proposal:
    """A model that a stage proposed, or the original.

    Attributes:
        number: From 1; the original is 0.
        stage: The stage that proposed it; empty for the original.
        trial: The measurements, as plain data.
        is_kept: True if it was kept.
        is_final: True if it is the one that is recommended.
    """

    number: int
    stage: str
    trial: Plain
    is_kept: bool
    is_final: bool

    @property
    def name(self) -> str:
        """``quantize: dynamic int8``."""
        return f"{self.stage}: {self.trial['how']}" if self.stage else "the original"

    @property
    def kind(self) -> str:
        """The class that it is drawn by: ``was``, ``kept``, ``undone``."""
        return "was" if not self.stage else "kept" if self.is_kept else "undone"

    @property
    def state(self) -> str:
        """The decision on it; empty for the original, unless that is recommended."""
        if self.is_final:
            return "recommended"
        return "" if not self.stage else "kept" if self.is_kept else "taken back"

    @property
    def reason(self) -> str:
        """The reason of the decision."""
        why: str = self.trial["verdict"]["reason"]
        return why

    @property
    def drop(self) -> float:
        """The loss of quality; infinite where that is not a number."""
        drop = self.trial["metrics"]["quality"]["drop"]
        return float("inf") if drop is None else float(drop)


def proposals(data: Plain) -> list[Proposal]:
    """The original, then all that was proposed, stage by stage."""
    last = max((n for n, step in enumerate(data["steps"]) if step["kept"] is not None), default=None)
    found = [Proposal(0, "", data["baseline"], True, last is None)]
    for place, step in enumerate(data["steps"]):
        first = len(found)
        kept = None if step["kept"] is None else first + step["kept"]
        for number, trial in enumerate(step["trials"], first):
            is_kept = number == kept
            found.append(Proposal(number, step["stage"], trial, is_kept, is_kept and place == last))
    return found


def shown_of(data: Plain, all_of_them: list[Proposal]) -> list[Proposal]:
    """The original, and of each stage that proposed anything what was kept, else the fastest."""
    found, first = all_of_them[:1], 1
    for step in data["steps"]:
        of_stage = all_of_them[first : first + len(step["trials"])]
        first += len(of_stage)
        if of_stage:
            found.append(min(of_stage, key=lambda p: (not p.is_kept, p.trial["metrics"]["latency"]["median"])))
    return found
