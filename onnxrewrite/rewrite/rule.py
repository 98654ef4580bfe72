"""Rules: a pattern, what replaces it, and examples that show both."""

from __future__ import annotations

import enum
import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, TypeVar, Unpack, overload

import onnx_ir as ir

from onnxrewrite.errors import RuleError, UsageError
from onnxrewrite.ir import schema
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.terms import Call, Term, walk
from onnxrewrite.rewrite.possible import Place, impossible, place
from onnxrewrite.rewrite.replacement import Replacement

if TYPE_CHECKING:
    from onnxrewrite.rewrite.build import Builder

NAME = re.compile(r"([a-z0-9]+/)?[a-z0-9]+([-_.][a-z0-9]+)*")
"""The name of a rule or a set of rules; before the slash stands the other rewriter that it comes from."""

Rewrite: TypeAlias = "Callable[[Match, Builder], ir.Value | Sequence[ir.Value]]"


class Stage(enum.IntEnum):
    """The stage in which a rule runs."""

    CANONICALIZE = 0
    """One spelling for what means the same; makes the graph smaller."""
    RAISE = 1
    """Exporter spellings become the standard's semantic operators, whatever opset the model has."""
    LOWER = 2
    """Semantic operators become what the target runs."""


CANONICALIZE, RAISE, LOWER = Stage


class Assumption(enum.StrEnum):
    """A property of the fed data, or of the processor, that a rule assumes, and that no graph can state."""

    FINITE = "inputs are finite"
    NOT_EMPTY = "no dimension is zero"
    NOT_NEGATIVE = "indices are not negative"
    IN_RANGE = "intermediate results neither overflow nor underflow"
    NO_SATURATION = "the processor has 8-bit dot products, or weights are of 7 bits"
    SCORES_ABOVE_10000 = "scores are far above -10000, and no row is masked throughout"

    @property
    def option(self) -> str:
        """Its name where it is asked for: ``apply(assume=...)``, ``--assume``."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def named(cls, name: str) -> Assumption:
        """The assumption of that name; UsageError where it is none that is made on request."""
        found = {each.option: each for each in ON_REQUEST}
        if name not in found:
            raise UsageError(f"assume must be {', '.join(found)}, not {name!r}")
        return found[name]


ON_REQUEST = (Assumption.SCORES_ABOVE_10000,)
"""Assumptions that nobody makes unless asked: models for which they do not hold are no rarity."""


def withheld(asked: Iterable[str | Assumption]) -> tuple[Assumption, ...]:
    """The assumptions that are made on request, and are not asked for; UsageError where what is asked for is none."""
    made = {each if isinstance(each, Assumption) else Assumption.named(each) for each in asked}
    return tuple(each for each in ON_REQUEST if each not in made)


@dataclass(frozen=True)
class Rewrites:
    """A graph in text form that the rule turns ``to`` another one."""

    graph: str
    to: str
    opset: int = 17
    target: str = "onnxruntime-cpu"


@dataclass(frozen=True)
class Rejects:
    """A graph that breaks one precondition of the rule, and the reason it must give."""

    graph: str
    because: str
    opset: int = 17
    target: str = "onnxruntime-cpu"


Example: TypeAlias = Rewrites | Rejects

T = TypeVar("T")

RENAMED: Final = {
    "keeps_shared": "allow_shared",
    "only_faster": "needs_speedup",
    "stands_in": "is_fallback",
    "looks_above": "",
    "looks_below": "",
}
"""Settings of rules before version 0.2, and their names now; two are no longer needed."""


def _takes_old_names(kind: type[T]) -> type[T]:
    """A class that takes settings under their old names too, with a warning that tells the new one."""
    init = kind.__init__

    @functools.wraps(init)
    def __init__(self: T, *given: Any, **settings: Any) -> None:
        for old in RENAMED.keys() & settings.keys():
            now, value = RENAMED[old], settings.pop(old)
            told = f"is {now} now" if now else "is no longer needed"
            warnings.warn(f"{old} of a rule {told}", DeprecationWarning, stacklevel=2)
            settings |= {now: value} if now else {}
        init(self, *given, **settings)

    kind.__init__ = __init__  # type: ignore[assignment]
    return kind


@_takes_old_names
@dataclass(frozen=True, eq=False)
class Rule:
    """A rewrite rule.

    Args:
        name: Unique, lower case with hyphens, after what it matches.
        stage: The stage in which it runs.
        pattern: One term per replaced value, the first of which is the anchor.
        rewrite: Guards with ``match.require`` and builds the replacement, one value per term of the pattern.  The first
            line of its docstring is ``lhs ⟶ rhs``.  ``rule`` makes one of terms.
        examples: Graphs that it rewrites or refuses; they are its documentation and its tests.
        benefit: Of several rules that match at one value, the one with the largest benefit is tried first.
        before: The names of rules that this one precedes where the matches of both overlap.  Without it, from the raise
            stage on, a rule precedes those whose matches lie inside its own.
        allow_shared: True if it applies where inner values are needed elsewhere too and so are computed anyway.
        needs_speedup: True if it is applied only where it was measured to be faster: both sides have as many operators.
        is_fallback: True if what it emits stands in for an operator that the model's opset lacks, and is mostly slower:
            where speed is measured, the model is converted to the opset that has it, if it can be.
        assumes: Its assumptions about the data; reported wherever it is applied, and not tested.  With one of
            ``ON_REQUEST`` it is refused wherever that is not asked for.
        needs_check: True if it is undone where its rewrite cannot be run by itself: the rule is not vouched for.
    """

    name: str
    stage: Stage
    pattern: Term | tuple[Term, ...]
    rewrite: Rewrite
    examples: tuple[Example, ...] = ()
    benefit: int = 0
    before: tuple[str, ...] = ()
    allow_shared: bool = False
    needs_speedup: bool = False
    is_fallback: bool = False
    assumes: tuple[Assumption, ...] = ()
    needs_check: bool = False
    place: Place = field(default=Place("", "", 0), init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise RuleError("a rule needs a name")
        if not NAME.fullmatch(self.name):
            raise RuleError(f"rule {self.name!r}: a name is lower case, with hyphens")
        if not isinstance(self.stage, Stage):
            raise RuleError(f"rule {self.name}: stage must be a Stage, not {self.stage!r}")
        if not self.outputs or not all(isinstance(t, Term) for t in self.outputs):
            raise RuleError(f"rule {self.name}: the pattern must be a term or a tuple of terms")
        if isinstance(self.before, str) or not all(isinstance(name, str) for name in self.before):
            raise RuleError(f"rule {self.name}: before must be a tuple of names, not {self.before!r}")
        if not callable(self.rewrite):
            raise RuleError(f"rule {self.name}: rewrite must be a function of (match, build)")
        object.__setattr__(self, "place", place())
        self.refuse_impossible(lambda domain: domain in schema.standard_domains())

    def refuse_impossible(self, knows: Callable[[str], bool] = lambda domain: True) -> None:
        """Raise RuleError where nothing can match the pattern, or nothing can be what its terms replace it by; it names
        what nobody knows, what is nearest, and where the rule is made.

        Args:
            knows: True for a domain whose operators are to be looked at; ONNX Runtime's take the time to import it.
        """
        wrong = impossible(self.outputs, knows)
        if wrong is None and isinstance(self.rewrite, Replacement):
            wrong = (impossible(self.rewrite.terms, knows) or "").replace("the pattern has", "the replacement has")
        if wrong:
            raise RuleError(f"rule {self.name}: {wrong}{self.place}")

    @cached_property
    def outputs(self) -> tuple[Term, ...]:
        """The pattern's terms, one per replaced value."""
        return self.pattern if isinstance(self.pattern, tuple) else (self.pattern,)

    @cached_property
    def mentioned(self) -> dict[Call, frozenset[str]]:
        """Call to the parameters that the pattern constrains or captures."""
        calls = (t for o in self.outputs for t in walk(o) if isinstance(t, Call))
        return {c: frozenset(c.parameters) for c in calls}

    @property
    def doc(self) -> str:
        """The rewrite's docstring."""
        return inspect.getdoc(self._function) or ""

    @property
    def summary(self) -> str:
        """The first line of the docstring: ``lhs ⟶ rhs``."""
        return self.doc.partition("\n")[0]

    @property
    def source(self) -> str:
        """The file that defines the rule."""
        found = self._function
        if isinstance(found, Replacement):
            return getattr(sys.modules.get(found.__module__), "__file__", None) or "?"
        try:
            return inspect.getsourcefile(found if inspect.isroutine(found) else type(found)) or "?"
        except TypeError:  # it is built in
            return "?"

    @cached_property
    def _function(self) -> Callable[..., object]:
        """The function behind decorators and partial applications."""
        found: Callable[..., object] = inspect.unwrap(self.rewrite)
        while isinstance(found, functools.partial):
            found = inspect.unwrap(found.func)
        return found


class Settings(TypedDict, total=False):
    """The settings of a rule beside its name, stage and pattern, as ``Rule`` documents them."""

    examples: tuple[Example, ...]
    benefit: int
    before: tuple[str, ...]
    allow_shared: bool
    needs_speedup: bool
    is_fallback: bool
    assumes: tuple[Assumption, ...]
    needs_check: bool


@overload
def rule(
    name: str, stage: Stage, pattern: Term | tuple[Term, ...], **settings: Unpack[Settings]
) -> Callable[[Rewrite], Rule]: ...
@overload
def rule(
    name: str,
    stage: Stage,
    pattern: Term | tuple[Term, ...],
    replacement: Rewrite | Term | tuple[Term, ...],
    *,
    doc: str = "",
    **settings: Unpack[Settings],
) -> Rule: ...
def rule(
    name: str,
    stage: Stage,
    pattern: Term | tuple[Term, ...],
    replacement: Rewrite | Term | tuple[Term, ...] | None = None,
    *,
    doc: str = "",
    **settings: Unpack[Settings],
) -> Rule | Callable[[Rewrite], Rule]:
    """Declare a rule: over the function that rewrites, or by a term that replaces the pattern.

    ``@rule("swish", RAISE, x * op.Sigmoid(x))`` makes the function below it the rule, and ``rule("swish", RAISE, x *
    op.Sigmoid(x), op.Swish(x))`` is the same rule without a function.

    Args:
        name: Unique, lower case with hyphens, after what it matches.
        stage: The stage in which it runs.
        pattern: One term per replaced value, the first of which is the anchor.
        replacement: As many terms, or a function that several rules have.
        doc: ``lhs ⟶ rhs`` of a rule of terms; written from them if it is empty.
        settings: Further arguments of ``Rule``.

    Raises:
        RuleError: The rule cannot be used.
    """
    if doc and not isinstance(replacement, Term | tuple):
        raise RuleError(f"rule {name}: doc is for a replacement of terms, a function has its docstring{place()}")
    if replacement is None:
        return functools.partial(Rule, name, stage, pattern, **settings)
    if isinstance(replacement, Term | tuple):
        left, right = (each if isinstance(each, tuple) else (each,) for each in (pattern, replacement))
        where = place()
        try:
            replacement = Replacement(left, right, doc, where.module)
        except RuleError as error:
            raise RuleError(f"rule {name}: {error}{where}") from None
    return Rule(name, stage, pattern, replacement, **settings)
