"""Opportunities: gains of rewrites from kernels on both sides, near misses at the most what they cover."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from onnx import parser

from onnxrewrite import io
from onnxrewrite.api.application import apply
from onnxrewrite.compiler.result import Result
from onnxrewrite.measure.kernel_times import Kernel
from onnxrewrite.measure.opportunities import Seen, Side, near_misses, rewrites, seen_by_rules
from onnxrewrite.rewrite.trace import Applied, Trace
from onnxrewrite.runtime.kernel_work import Work

SHARED = """<ir_version: 8, opset_import: ["": 17]>
g (float[n,8] x) => (float[n,8] y, float[n,8] z) <float half = {0.5}, float one = {1.0}, float root = {1.41421356}> {
  [divided] d = Div(x, root)
  [erf] z = Erf(d)
  [plus] a = Add(z, one)
  [times] m = Mul(x, a)
  [last] y = Mul(m, half)
}"""


def kernel(name: str, seconds: float, flops: int | None = 1, rounds: int = 3) -> Kernel:
    return Kernel(name, "Add", (seconds,) * rounds, 1, Work(flops, 8), "float", ((), ()))


def applied(rule: str, stage: str = "raise") -> Applied:
    return Applied(rule, stage, f"{rule}.value", "g", (), (), (), 0)


def side(**kernels: tuple[float, Sequence[str]]) -> Side:
    return Side([kernel(n, s) for n, (s, _) in kernels.items()], {n: tuple(of) for n, (_, of) in kernels.items()})


def test_the_gain_is_that_of_the_kernels_for_the_same_nodes() -> None:
    before = side(one=(5.0, "ab"), two=(3.0, "c"), other=(9.0, "d"))
    after = side(fused=(6.0, "bc"), rest=(1.0, "a"), other=(7.0, "d"))
    seen = {name: Seen(("fuse",)) for name in "abc"}
    (found,) = rewrites(before, after, seen, Trace([applied("fuse")]))
    assert (found.name, found.places, found.seconds, found.gain) == ("fuse", 1, 8.0, 1.0)
    assert found.measured is not None
    assert found.nodes == ("a",)


def test_nodes_that_are_gone_gain_all_they_took_and_what_is_slower_is_negative() -> None:
    before = side(gone=(5.0, "a"), fast=(1.0, "b"))
    after = side(slow=(4.0, "b"))
    trace = Trace([applied("drop", "canonicalize"), applied("fuse")])
    found = rewrites(before, after, {"a": Seen(("drop",)), "b": Seen(("drop", "fuse"))}, trace)
    assert [(o.name, o.gain) for o in found] == [("drop", 5.0), ("fuse", -3.0)]
    assert found[1].rules == ("drop", "fuse")


def test_places_of_the_same_rules_are_one_opportunity() -> None:
    before = side(one=(5.0, "a"), two=(3.0, "b"))
    after = side(one=(4.0, "a"), two=(1.0, "b"))
    seen = {"a": Seen(("fuse",)), "b": Seen(("fuse",))}
    (found,) = rewrites(before, after, seen, Trace([applied("fuse")]))
    assert (found.places, found.gain) == (2, 3.0)


@pytest.fixture(scope="module")
def shared() -> Result:
    """The erf of a Gelu is an output of the model, so the rule is refused."""
    return apply(io.load(parser.parse_model(SHARED)), check="off", only=["gelu"])


def test_what_was_refused_is_seen_at_its_anchor(shared: Result) -> None:
    seen = seen_by_rules(shared.original, shared.model, shared.trace)
    assert set(seen) == {"last"}
    assert seen["last"].rules == ()
    assert "graph output" in seen["last"].refused["gelu-erf"]


def test_a_near_miss_saves_at_most_all_but_the_longest_kernel(shared: Result) -> None:
    names = ("divided", "erf", "plus", "times", "last")
    before = side(**{name: (float(n), [name]) for n, name in enumerate(names, 1)})
    found, other = near_misses(shared.original, before, shared.trace, shared.rules)
    assert (found.name, other.name) == ("gelu-erf", "gelu-six-digits")
    assert (found.stage, found.places) == ("raise", 1)
    assert (found.seconds, found.gain) == (15.0, 10.0)
    assert found.measured is None
    assert found.nodes == ("last",)


def test_movement_may_vanish_altogether(shared: Result) -> None:
    before = Side([kernel("last", 4.0, flops=0)], {"last": ("last",)})
    found, other = near_misses(shared.original, before, shared.trace, shared.rules)
    assert (found.name, other.name) == ("gelu-erf", "gelu-six-digits")
    assert found.gain == 4.0


def test_nothing_to_gain_is_no_opportunity(shared: Result) -> None:
    before = Side([kernel("all", 4.0)], {"all": ("last", "erf")})
    assert near_misses(shared.original, before, shared.trace, shared.rules) == []
