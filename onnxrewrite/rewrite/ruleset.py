"""Rule sets: rules that are handed around, chosen and left out together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import InitVar, dataclass, field
from functools import cached_property

from onnxrewrite.errors import RuleError, UsageError
from onnxrewrite.rewrite.rule import NAME, Rule, Stage
from onnxrewrite.rewrite.suggestions import nearest


@dataclass(frozen=True, repr=False)
class RuleSet:
    """Rules, stage by stage, and within a stage in the order in which they were given.

    This is the order of reports; which of several rules is tried first at one value is for their ``benefit`` to say.

    ``|`` joins sets, ``-`` takes out a rule, the rules of a set, or the rule of a name.  What comes of it has no name
    until it is given one: ``RuleSet("smooth", gelu | swish - "mish")``.

    Args:
        name: Lower case, with hyphens; empty for a set that nobody asks for by name.
        rules: Rules, and sets, whose rules are meant.
        doc: The description of the set; its first line stands in lists.

    Raises:
        RuleError: Two different rules have one name; both files are cited.
    """

    name: str
    rules: InitVar[Iterable[Rule | RuleSet]]
    doc: str = field(default="", compare=False)
    _rules: tuple[Rule, ...] = field(init=False)

    def __post_init__(self, rules: Iterable[Rule | RuleSet]) -> None:
        if not isinstance(self.name, str) or (self.name and not NAME.fullmatch(self.name)):
            raise RuleError(f"rule set {self.name!r}: a name is lower case, with hyphens")
        known: dict[str, Rule] = {}
        for rule in self._flat(rules):
            other = known.setdefault(rule.name, rule)
            if other is not rule:
                raise RuleError(f"two rules are called {rule.name!r}: one in {other.source}, one in {rule.source}")
        object.__setattr__(self, "_rules", tuple(sorted(known.values(), key=lambda r: r.stage)))

    def _flat(self, items: Iterable[Rule | RuleSet]) -> Iterator[Rule]:
        for item in items:
            if isinstance(item, RuleSet):
                yield from item
            elif isinstance(item, Rule):
                yield item
            else:
                raise RuleError(f"rule set {self.name!r} holds {item!r}, which is no Rule")

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __contains__(self, rule: object) -> bool:
        """True if a rule, or the rule of a name, is in the set."""
        if isinstance(rule, Rule):
            return self._by_name.get(rule.name) is rule
        return rule in self._by_name

    def __getitem__(self, name: str) -> Rule:
        """The rule called ``name``; UsageError, with the nearest names, if there is none."""
        if name not in self._by_name:
            raise UsageError(f"no rule is called {name!r}{nearest(name, self._by_name)}")
        return self._by_name[name]

    def __or__(self, other: Rule | RuleSet) -> RuleSet:
        """The rules of both."""
        return RuleSet("", (self, other)) if isinstance(other, Rule | RuleSet) else NotImplemented

    def __sub__(self, other: Rule | RuleSet | str) -> RuleSet:
        """The rules but for ``other``, of which a name must be known, and anything else need not be in the set."""
        if isinstance(other, str):
            other = self[other]
        if not isinstance(other, Rule | RuleSet):
            return NotImplemented
        left_out = RuleSet("", (other,))
        return RuleSet("", (rule for rule in self if rule not in left_out))

    def stage(self, stage: Stage) -> RuleSet:
        """The rules of one stage."""
        return RuleSet("", (rule for rule in self if rule.stage == stage))

    def __repr__(self) -> str:
        return f"RuleSet({self.name!r}: {', '.join(self._by_name)})"

    @cached_property
    def _by_name(self) -> dict[str, Rule]:
        return {rule.name: rule for rule in self._rules}
