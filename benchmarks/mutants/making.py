"""All mutants of a rule."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from benchmarks.mutants.mutant import (
    ATTRIBUTE,
    AXIS,
    CONSTANT,
    DEFAULT,
    DTYPE,
    EPSILON,
    GUARD,
    KINDS,
    OPERAND,
    OPERATOR,
    ORDER,
    SCALE,
    Mutant,
)
from benchmarks.mutants.observing import Built, Observed
from benchmarks.mutants.tape import Added, Constant, Dropped, Exchanged, Kin, Parameter, Result, Skipped
from benchmarks.mutants.terms import in_pattern, vouching
from benchmarks.mutants.values import LEFT_OUT, other
from onnxrewrite.pattern.look import COMMUTATIVE
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.metamorphic.mutations import ALIKE, PARTIAL

_KIND_OF = {
    **dict.fromkeys(("axis", "axes", "perm"), AXIS),
    **dict.fromkeys(("epsilon",), EPSILON),
    **dict.fromkeys(("alpha", "beta", "scale"), SCALE),
    **dict.fromkeys(("to", "dtype"), DTYPE),
}


def mutants(rule: Rule, seen: Observed) -> list[Mutant]:
    """Every mutant of a rule, in order; the same for the same observations."""
    found = [m for _, built in sorted(seen.built.items()) for m in _on_tape(rule.name, built)]
    for index, kind in sorted(seen.results):
        found.append(
            Mutant(rule.name, SCALE if kind == "scaled" else CONSTANT, f"result {index} {kind}", Result(index, kind))
        )
    found += [Mutant(rule.name, GUARD, f"without: {guard.words}", guard) for guard in sorted(seen.guards)]
    return numbered([*found, *in_pattern(rule), *vouching(rule, seen.unread)])


def numbered(found: Sequence[Mutant]) -> list[Mutant]:
    """The mutants of a rule with names of their own: of those that are called alike all but the first have a number."""
    seen, named = Counter[str](), list[Mutant]()
    for mutant in found:
        seen[mutant.what] += 1
        number = seen[mutant.what]
        named.append(mutant if number == 1 else replace(mutant, what=f"{mutant.what} ({number})"))
    return named


def _on_tape(rule: str, built: Built) -> Iterator[Mutant]:
    operator = f"{built.domain}.{built.op_type}" if built.domain else built.op_type
    yield from _parameters(rule, operator, built)
    for index, ways in sorted(built.constants.items()):
        for way in sorted(ways):
            yield Mutant(rule, CONSTANT, f"built {operator}: constant {index} {way}", Constant(operator, index, way))
    for first, second in sorted(built.distinct) if built.op_type not in COMMUTATIVE else ():
        what = f"built {operator}: operands {first} and {second} exchanged"
        yield Mutant(rule, ORDER, what, Exchanged(operator, first, second))
    for index in sorted(built.droppable):
        yield Mutant(rule, OPERAND, f"built {operator}: without operand {index}", Dropped(operator, index))
    kin = next((o for g in ALIKE if built.op_type in g for o in g if o != built.op_type and o not in PARTIAL), None)
    if kin is not None and not built.domain:
        yield Mutant(rule, OPERATOR, f"built {operator}: {kin} in its place", Kin(operator, kin))
    if built.skippable:
        yield Mutant(rule, OPERATOR, f"built {operator}: left out", Skipped(operator))


def _parameters(rule: str, operator: str, built: Built) -> Iterator[Mutant]:
    for name, ways in sorted(built.parameters.items()):
        kind = _KIND_OF.get(name, ATTRIBUTE)
        for way in sorted(ways):
            yield Mutant(rule, kind, f"built {operator}: {name} {way}", Parameter(operator, name, way))
        if name in built.off_default:
            change = Parameter(operator, name, LEFT_OUT)
            yield Mutant(rule, DEFAULT, f"built {operator}: {name} {LEFT_OUT}", change)
    for name, default in sorted(built.defaults.items()):
        if name not in built.parameters:
            wrong = other(name, default, "off")
            yield Mutant(
                rule,
                _KIND_OF.get(name, ATTRIBUTE),
                f"built {operator}: {name} is {wrong!r}",
                Added(operator, name, wrong),
            )


def sampled(made: Sequence[Mutant], most: int) -> list[Mutant]:
    """Up to ``most`` of the mutants of a rule, in their order: of each kind in turn."""
    queues = [_spread([m for m in made if m.kind == kind]) for kind in KINDS]
    taken = [m for turn in zip_longest(*queues) for m in turn if m is not None][:most]
    return [m for m in made if m in taken]


def _spread(group: Sequence[Mutant]) -> list[Mutant]:
    """The same mutants in an order that depends on their names alone, so that neighbours are far apart."""
    return sorted(group, key=lambda m: zlib.crc32(m.name.encode()))
