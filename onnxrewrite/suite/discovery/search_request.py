"""The extent of a search, and its parts: each has a journal of its own and can go on by itself."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from onnxrewrite.ir.target import Target
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.fingerprint import fingerprint
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.fuzz import INSTANCES
from onnxrewrite.suite.deploy.artifact import digest
from onnxrewrite.suite.discovery.enumeration import NODES, REGIONS
from onnxrewrite.suite.discovery.finding import KERNELS, Journal, Mode
from onnxrewrite.system.versions import versions

GRAPHS = 5000
"""So many small graphs of a family of operators are looked at, the smaller ones first."""

DEEPENS = 10
"""A rule that is faster is tried on so many times the graphs of the first trial: 160 leave one rule in four that is
wrong."""


@dataclass(frozen=True)
class Part:
    """A part of a search.

    Attributes:
        by: What is compared with what.
        name: The model, or what else it is about.
        models: The models that it reads.
    """

    by: Mode
    name: str
    models: tuple[Path, ...] = ()

    @classmethod
    def of_model(cls, model: Path) -> Part:
        """The regions of a model against kernels."""
        return cls(KERNELS, str(model), (model,))


@dataclass(frozen=True)
class Request:
    """The extent of a search.

    Attributes:
        rules: Files or packages with rules beside the library's.
        without: Rules of the library that are left out, by name.
        target: The target that the rules are for.
        by: What is compared with what: regions with kernels, regions with regions, small graphs with each other.
        nodes: The most nodes of a region.
        regions: The most regions of a model.
        graphs: The most small graphs of a family of operators.
        count: The number of graphs on which the fuzzer tries a rule.
        deepens: So many times as many graphs are for a rule that turns out to be faster.
        seed: Of all that is random.
        proves: True if proofs of what passes are asked for.
        deadline: When the time runs out, in seconds since 1970; None for never.
    """

    rules: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()
    target: str = "onnxruntime-cpu"
    by: tuple[Mode, ...] = (KERNELS,)
    nodes: int = NODES
    regions: int = REGIONS
    graphs: int = GRAPHS
    count: int = INSTANCES
    deepens: int = DEEPENS
    seed: int = 0
    proves: bool = False
    deadline: float | None = None

    @property
    def is_over(self) -> bool:
        """True if the time has run out."""
        return self.deadline is not None and time.time() >= self.deadline

    @cached_property
    def library(self) -> tuple[Rule, ...]:
        """The rules that there are."""
        return tuple(r for r in registry.load(self.rules) if r.name not in self.without)

    @property
    def runs_on(self) -> Target:
        """The target."""
        return target_by_name(self.target)

    def journal(self, folder: Path, part: Part) -> Journal:
        """The journal of a part in a folder: of this request, these rules, and this version.

        Raises:
            ModelError: A model, or the journal, cannot be read.
        """
        extent = (self.nodes, self.regions) if part.models else (self.graphs,)
        tries = (self.count, self.deepens, self.seed, self.proves)
        asked = (part.by, self.rules, sorted(self.without), self.target, extent, tries)
        rules = sorted(fingerprint(r).sha256 for r in self.library)
        told = [repr(asked), *rules, str(versions()), *map(digest, part.models)]
        return Journal(folder / f"{hashlib.sha256(' '.join(told).encode()).hexdigest()[:32]}.jsonl")
