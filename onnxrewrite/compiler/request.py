"""The request: everything that is asked of a rewriting, in one value."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from onnxrewrite.errors import UsageError
from onnxrewrite.rewrite.rule import ON_REQUEST, Assumption, Rule, withheld
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.system.arrays import Feeds

CheckLevel: TypeAlias = Literal["full", "fast", "off"]

Lowering: TypeAlias = Literal["fastest", "fused", "portable"]
"""The choice of the lower stage: by measuring; the most fused form that is legal; the standard's operators only."""


def measurements_from(
    file: str | os.PathLike[str] | None, keys: Iterable[str | os.PathLike[str]]
) -> tuple[str | None, tuple[str, ...]]:
    """The file of measurements and the public keys: as given, else what ONNXREWRITE_MEASUREMENTS and
    ONNXREWRITE_SIGNED_BY say; of the latter, paths are separated as in PATH."""
    named = os.environ.get("ONNXREWRITE_SIGNED_BY", "").split(os.pathsep)
    path = os.fspath(file) if file is not None else os.environ.get("ONNXREWRITE_MEASUREMENTS")
    return path or None, tuple(os.fspath(key) for key in keys) or tuple(filter(None, named))


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a rewriting; the attributes are the arguments of ``onnxrewrite.apply``, which documents them.

    Raises:
        UsageError: ``check``, ``lower`` or ``assume`` is none of the values that there are.
    """

    rules: Iterable[str | Rule | RuleSet] = ()
    only: Iterable[str] = ()
    without: Iterable[str] = ()
    target: str = "onnxruntime-cpu"
    opset: int | None = None
    dims: Mapping[str, int] | None = None
    inputs: Feeds = field(default_factory=dict)
    check: CheckLevel = "full"
    lower: Lowering | None = None
    threads: int = 0
    budget: float = 20.0
    run_limit: float | None = None
    named_sums: bool = True
    assume: Iterable[str | Assumption] = ()
    seed: int = 0
    conflicts: bool = False
    only_proved: bool = False
    measurements: str | None = None
    signed_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("rules", "only", "without"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        kept = withheld(self.assume)
        object.__setattr__(self, "assume", tuple(each for each in ON_REQUEST if each not in kept))
        if self.check not in get_args(CheckLevel):
            raise UsageError(f"check must be full, fast or off, not {self.check!r}")
        if self.only_proved and self.check == "off":
            raise UsageError("only proved rewrites are asked for, and no check; leave out --check off or --only-proved")
        asked = self.lower or os.environ.get("ONNXREWRITE_LOWER") or "fastest"
        if asked not in get_args(Lowering):
            raise UsageError(f"lower must be {', '.join(get_args(Lowering))}, not {asked!r}")
        object.__setattr__(self, "lower", asked)
        file, keys = measurements_from(self.measurements, self.signed_by)
        object.__setattr__(self, "measurements", file)
        object.__setattr__(self, "signed_by", keys)

    @property
    def lowering(self) -> Lowering:
        """The choice of the lower stage: as requested, else what ONNXREWRITE_LOWER said, else ``fastest``."""
        return self.lower or "fastest"

    @property
    def withheld(self) -> tuple[Assumption, ...]:
        """The assumptions that are made on request, and are not asked for."""
        return withheld(self.assume)

    @property
    def sources(self) -> list[str]:
        """The rule files and packages that are asked for."""
        return [each for each in self.rules if isinstance(each, str)]
