"""Regions and kernels that compute the same: the join of their fingerprints."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.target import Target
from onnxrewrite.suite.discovery.arithmetic_profile import Profile, of_model, of_nodes
from onnxrewrite.suite.discovery.kernel_uses import by_numbers, is_movement, kernels, uses
from onnxrewrite.suite.discovery.result_fingerprint import Relation, alike, fingerprint, relation
from onnxrewrite.suite.discovery.sampled_region import SampledRegion
from onnxrewrite.suite.discovery.substitute import Substitute, counts_of, key_of, model_of, results_of
from onnxrewrite.system.arrays import Array, Floats


@dataclass(frozen=True)
class Misfit:
    """Shapes of operands at which a substitute is wrong.

    Attributes:
        operands: The shapes of the region's operands.
        result: The shape of the region's first result.
    """

    operands: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]


@dataclass(frozen=True)
class Hit:
    """A substitute that computes what a region does, but for order and scale.

    Attributes:
        region: The region.
        substitute: Its substitute, before what ``relations`` take.
        relations: The ways from the results of the substitute to those of the region.
        misfits: Shapes at which the substitute is known to be wrong.
    """

    region: SampledRegion
    substitute: Substitute
    relations: tuple[Relation, ...]
    misfits: tuple[Misfit, ...] = ()

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators that the region becomes."""
        return (VIEW,) if self.is_view else self.substitute.operators

    @property
    def is_view(self) -> bool:
        """True if the region becomes an operand in another shape, and nothing else."""
        return not self.substitute.nodes and any(r.is_reshaped for r in self.relations)


VIEW: Final = "Reshape"
"""The operator that gives a tensor another shape."""


@dataclass
class Known:
    """The fingerprints of what substitutes compute, each taken once for the same numbers.

    Attributes:
        prints: By the digest of operators and operands; None where a substitute does not run.
        failures: How often a kernel did not run on operands of these ranks; none where it once did.
        counts: The numbers of elements of results; None where a substitute cannot have any.
        sized: The operators of which sizes are known without an evaluation.
        profiles: The arithmetic of each kernel, which its operands do not change.
        evaluated: The number of evaluations so far.
        cut_short: The number of regions for which not all uses were tried.
    """

    prints: dict[str, tuple[Floats, ...] | None] = field(default_factory=dict)
    failures: dict[Hashable, int | None] = field(default_factory=lambda: defaultdict(int))
    counts: dict[str, tuple[int, ...] | None] = field(default_factory=dict)
    sized: set[str] = field(default_factory=set)
    profiles: dict[tuple[str, str], Profile] = field(default_factory=dict)
    evaluated: int = 0
    cut_short: int = 0

    def of(self, substitute: Substitute, region: SampledRegion) -> tuple[Floats, ...] | None:
        """The fingerprints of a substitute at the operands of a region; None where it does not run."""
        key = _key(substitute, region)
        if key not in self.prints:
            self.evaluated += 1
            found = results_of(substitute, region)
            self.prints[key] = None if found is None else tuple(map(fingerprint, found))
            self._note(substitute, region, runs=found is not None)
        return self.prints[key]

    def fits(self, substitute: Substitute, region: SampledRegion) -> bool | None:
        """True if the results of a substitute have the sizes of a region's, as far as is known before it is evaluated;
        None where it does not run."""
        key = _key(substitute, region)
        if key in self.prints:
            return None if self.prints[key] is None else True
        if (self.failures[_ranks(substitute, region)] or 0) >= _HOPELESS:
            return None
        if key not in self.counts:
            self.counts[key] = counts_of(substitute, region)
        counts, operator = self.counts[key], substitute.work[0].called
        if counts is not None:
            self.sized.add(operator)
            return counts == tuple(r.size for r in region.results)
        if operator not in self.sized:  # nothing may be known of its sizes, whatever it is given
            return True
        self._note(substitute, region, runs=False)
        return None

    def _note(self, substitute: Substitute, region: SampledRegion, *, runs: bool) -> None:
        """Note whether a kernel runs on operands of these ranks."""
        ranks = _ranks(substitute, region)
        count = self.failures[ranks]
        self.failures[ranks] = None if runs or count is None else count + 1


def _key(substitute: Substitute, region: SampledRegion) -> str:
    return hashlib.sha256(key_of(substitute, region.operands).encode()).hexdigest()


def _ranks(substitute: Substitute, region: SampledRegion) -> Hashable:
    """The operators of a substitute, and the ranks of the operands that each reads."""
    return tuple(
        (n.domain, n.op_type, tuple(region.operands[r].array.ndim if isinstance(r, int) else r for r in n.inputs))
        for n in substitute.nodes
    )


_HOPELESS = 16
"""A kernel that did not run so often on operands of some ranks, whatever its attributes, is tried on none of these."""


EVALUATIONS = 600
"""So many evaluations are made for one region, beside those that were made for others."""


PLAIN = 3
"""A plain operator is tried for regions of so many nodes: what it computes is seldom spelled longer."""


def joined(region: SampledRegion, target: Target, known: Known) -> Iterator[Hit]:
    """The kernels that compute what a region does, with fewer operators, or because the model's opset lacks its own."""
    prints = tuple(map(fingerprint, region.results))
    if any(not p[-1] or np.ptp(p[:-2]) == 0 for p in prints):  # one number throughout tells nothing
        return
    nodes = region.region.nodes
    if all(is_movement(n) for n in nodes):
        yield from _viewed(region)
        return
    most = len(nodes) - 1 + any(region.facts.is_newer(n) for n in nodes)
    if most < 1:
        return
    start = known.evaluated
    own = of_nodes(nodes)
    for kernel in kernels(target, region.opset):
        if known.evaluated - start > EVALUATIONS:
            known.cut_short += 1
            return
        if kernel.is_plain and len(nodes) > PLAIN:
            continue
        name = kernel.domain, kernel.op_type
        if not _may_be(own, known.profiles.get(name)):
            continue
        for those in uses(kernel, region):
            profile = _profile(those[0], region)
            if profile is None:
                continue
            known.profiles[name] = profile
            if not _may_be(own, profile):
                break
            hit = _first(those, region, prints, known, most)
            if hit is not None:
                said = (_compared(use, region, most) for use in by_numbers(kernel, hit.substitute, region))
                yield next(filter(None, said), hit)  # a number of the region rather than a default that is the same
                break


def _viewed(region: SampledRegion) -> Iterator[Hit]:
    """The operand that a region moves to where it is: a view, as a transposition of axes of one is."""
    if len(region.results) > 1 or all(n.op_type in _VIEWS for n in region.region.nodes):
        return
    for number, operand in enumerate(region.operands):
        way = relation(operand.array, region.results[0]) if operand.is_required else None
        if way == Relation(is_reshaped=True):
            yield Hit(region, Substitute((), (number,)), (way,))
            return


_VIEWS = frozenset(operators("view"))
"""Operators that move nothing."""


def _may_be(region: Profile | None, kernel: Profile | None) -> bool:
    """True if a kernel may compute what a region does, as far as the arithmetic of both is known."""
    return region is None or kernel is None or region.may_equal(kernel)


def _profile(use: Substitute, region: SampledRegion) -> Profile | None:
    """The arithmetic of a use of a kernel; None where it is none that is defined."""
    try:
        return of_model(model_of(use, region.operands, region.opset))
    except (TypeError, ValueError):  # an attribute of another type
        return None


def _first(
    those: list[Substitute], region: SampledRegion, prints: tuple[Floats, ...], known: Known, most: int
) -> Hit | None:
    """The first of some uses that differ in attributes alone that computes what the region does, in ``most`` steps."""
    failed: list[frozenset[tuple[object, ...]]] = []
    misfits: set[frozenset[tuple[object, ...]]] = set()
    for use in those:
        given = frozenset([*((name, p.value) for name, p in use.work[0].parameters), use.results])
        counts = frozenset(each for each in given if not isinstance(each[-1], float | str))
        if counts in misfits or any(len(each) > 1 and each <= given for each in failed):
            continue  # all that the sizes depend on is the same, or these attributes and others do not go
        fits = known.fits(use, region)
        if fits is False:
            misfits.add(counts)
            continue
        found = known.of(use, region) if fits else None
        if found is None:
            failed.append(given)
            if len(failed) > _FAILURES:
                return None
            continue
        if any(a[-2] != b[-2] for a, b in zip(found, prints, strict=True)):
            misfits.add(counts)
        elif all(alike(a, b) for a, b in zip(found, prints, strict=True)):
            hit = _compared(use, region, most)
            if hit is not None:
                return hit
    return None


def _compared(use: Substitute, region: SampledRegion, most: int) -> Hit | None:
    """A use whose fingerprint is that of a region, compared element by element."""
    results = results_of(use, region) or ()
    if not results or _passes_on(results, region):
        return None
    ways = [relation(a, b) for a, b in zip(results, region.results, strict=True)]
    given = tuple(w for w in ways if w is not None)
    steps = 1 + sum(w.steps - (w.is_reshaped and use.views) for w in given)
    return Hit(region, use, given) if len(given) == len(ways) and steps <= most else None


def _passes_on(results: tuple[Array, ...], region: SampledRegion) -> bool:
    """True if a kernel hands an operand on as it is: with these attributes it does nothing."""
    return any(r.shape == o.array.shape and np.array_equal(r, o.array) for r in results for o in region.operands)


_FAILURES = 8
"""Where so many choices of attributes do not run on some operands, the others are not tried."""
