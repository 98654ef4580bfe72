"""The request: everything that is asked of a rewriting, in one value."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from onnxrewrite.errors import UsageError
from onnxrewrite.rewrite.rule import ON_REQUEST, Assumption, Rule, withheld
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.system.arrays import Feeds

if TYPE_CHECKING:
    from onnxrewrite.measure.cost_models import Cost

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

    ``cost`` is the cost model itself, also where it was named; None for the clock.

    Raises:
        UsageError: ``check``, ``lower`` or ``assume`` is none of the values that there are, or ``cost`` cannot be used.
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
    cost: Cost | str | os.PathLike[str] | None = None

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
        if self.cost is not None and self.measurements is not None:
            raise UsageError("measurements are for the clock; leave out either them or the cost")
        file, keys = measurements_from(self.measurements, self.signed_by)
        object.__setattr__(self, "measurements", file)
        object.__setattr__(self, "signed_by", keys)
        object.__setattr__(self, "cost", self._found_cost())

    def _found_cost(self) -> Cost | None:
        if self.cost is None:
            return None
        from onnxrewrite.measure.cost_table import cost_named

        if isinstance(self.cost, str | os.PathLike):
            found = cost_named(self.cost, signed_by=self.signed_by, threads=self.threads)
        else:
            found = self.cost
        if found is None:
            return None
        if not callable(getattr(found, "of", None)):
            raise UsageError(f"cost must be clock, bytes, operations, a file, or have a method of, not {found!r}")
        if self.lowering != "fastest":
            raise UsageError(f"a cost model chooses where lower is fastest, and it is {self.lowering}; leave one out")
        return found

    @property
    def model_of_cost(self) -> Cost | None:
        """The cost model; None for the clock."""
        return None if isinstance(self.cost, str | os.PathLike) else self.cost

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
