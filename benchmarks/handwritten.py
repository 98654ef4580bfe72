"""Rules written by hand, wrong ones and right ones, as short as the pattern language allows.

    wrong("divide-and-multiply", op.Mul(op.Div(x, c), c), lambda m, b: m[x],
          on="int64[n] x; q = Div(x, 3)  y = Mul(q, 3)", at={"x": [7, -7]},
          why="the division forgets the remainder")

A rule has no example: what it is tried on follows from its pattern.  A wrong one comes with a model on which it
matches, and inputs at which what it makes of that model is wrong.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import text
from onnxrewrite.rules import Assumption, Builder, Match, Rule, Stage, Term

Rewrite: TypeAlias = Callable[[Match, Builder], Any]
Condition: TypeAlias = Callable[[Match], object]


@dataclass(frozen=True)
class Wrong:
    """A rule that is right in the common case.

    Attributes:
        rule: The rule.
        on: A model, in text form, that it rewrites wrongly.
        at: Inputs of that model at which the result is wrong: name to what numpy makes an array of.
        opset: Of the model.
        why: The case that its author did not think of.
    """

    rule: Rule
    on: str
    at: Mapping[str, Any] = field(repr=False)
    opset: int
    why: str

    def model(self) -> ir.Model:
        """A new copy of the model."""
        return text.parse(self.on, opset=self.opset)

    def feeds(self) -> dict[str, np.ndarray[Any, Any]]:
        """The inputs at which the result is wrong, in the dtypes of the model."""
        dtypes = {v.name: v.dtype for v in self.model().graph.inputs}
        return {name: np.asarray(value).astype(_dtype(dtypes[name])) for name, value in self.at.items()}


def _dtype(dtype: ir.DataType | None) -> np.dtype[Any]:
    assert dtype is not None
    return dtype.numpy()


def wrong(
    name: str,
    pattern: Term | tuple[Term, ...],
    rewrite: Rewrite,
    *,
    on: str,
    at: Mapping[str, Any],
    why: str,
    when: Condition | None = None,
    opset: int = 17,
    **settings: Any,
) -> Wrong:
    """A wrong rule; ``when`` is its guard."""
    return Wrong(made(name, pattern, rewrite, when, **settings), on, at, opset, why)


def right(
    name: str,
    pattern: Term | tuple[Term, ...],
    rewrite: Rewrite,
    *,
    when: Condition | None = None,
    assumes: tuple[Assumption, ...] = (),
    **settings: Any,
) -> Rule:
    """A right rule; ``when`` is its guard."""
    return made(name, pattern, rewrite, when, assumes=assumes, **settings)


def made(name: str, pattern: Any, rewrite: Rewrite, when: Condition | None, **settings: Any) -> Rule:
    """A rule that asks ``when`` before it rewrites."""

    def guarded(m: Match, build: Builder) -> Any:
        m.require(when is None or when(m), "its condition does not hold")
        return rewrite(m, build)

    settings.setdefault("stage", Stage.CANONICALIZE)
    return Rule(name=name, pattern=pattern, rewrite=rewrite if when is None else guarded, **settings)


def collected(package: ModuleType) -> dict[str, Sequence[Any]]:
    """The ``RULES`` of the modules of a package, by the name of the module."""
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    return {n: importlib.import_module(f"{package.__name__}.{n}").RULES for n in names}
