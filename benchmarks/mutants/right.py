"""The pattern of a right rule beside that of a mutant, to tell the matches that only the mistake lets through."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import onnx_ir as ir

from benchmarks.mutants.hooks import Listener
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.pattern.terms import REQUIRED, Each, Term, walk
from onnxrewrite.rewrite.rule import Rule

_WAYS = 200
"""So many ways in which the right pattern matches at one value are compared with the mutant's."""


class Right(Listener):
    """A copy of a rule's pattern, to be made before the mistake is.

    Args:
        rule: The rule, still right.
    """

    def __init__(self, rule: Rule):
        self._copies: dict[int, Any] = {id(REQUIRED): REQUIRED}  # a mark, which is asked for by identity
        self._pattern = copy.deepcopy(rule.outputs, self._copies)

    def strays(self, match: Match) -> bool:
        """True if the right pattern does not match there, or binds something else."""
        matcher = RecursiveMatcher(match.facts, match.anchor.graph)
        found = itertools.islice(matcher.matches(self._pattern, match.anchor), _WAYS)
        return not any(right.outputs == match.outputs and self._agrees(right, match) for right in found)

    def _agrees(self, right: Match, match: Match) -> bool:
        theirs, several = dict(right.bindings()), _repeated(match)
        mine = ((self._copies.get(id(term)), bound) for term, bound in match.bindings() if term not in several)
        return all(term not in theirs or _alike(theirs[term], bound) for term, bound in mine)


def _repeated(match: Match) -> set[Term]:
    """The terms of what a match has several times: outside of the several matches it says nothing of them."""
    each = [term.of for term, _ in match.bindings() if isinstance(term, Each) and term.of is not None]
    return {term for of in each for term in walk(of)}


def _alike(one: object, other: object) -> bool:
    """True if two bindings are the same; matches, which are made anew each time, are where their outputs are."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, Match) and isinstance(other, Match):
        return one.outputs == other.outputs
    return one is other or (not isinstance(one, ir.Value | ir.Node) and type(one) is type(other) and bool(one == other))
