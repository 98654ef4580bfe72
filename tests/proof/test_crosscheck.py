"""The prover's semantics of operators against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.proof_points import CASES

pytest.importorskip("z3")

import z3

from onnxrewrite import io
from onnxrewrite.ir import text
from onnxrewrite.proof.crosscheck import DOMAINS, agreement, feeds_of
from onnxrewrite.proof.deciding import Decider
from onnxrewrite.proof.encoding import Reader
from onnxrewrite.proof.exact_integers import EXACT, LOGIC
from onnxrewrite.proof.ieee_numbers import OF_BITS, OF_FLOATS
from onnxrewrite.proof.real_functions import REAL_FUNCTIONS
from onnxrewrite.proof.semantics_elements import ELEMENTWISE
from onnxrewrite.proof.tensors import SEMANTICS, Encoding
from onnxrewrite.ruletest.metamorphic.running import small_sizes
from onnxrewrite.runtime.session import Session, open_session

POINTS = 300


def case(name: str) -> object:
    """Sums over many elements take seconds to evaluate."""
    return pytest.param(name, marks=[pytest.mark.slow] if name.startswith("Reduce") else [])


@pytest.mark.parametrize("name", [case(name) for name in CASES])
def test_the_encoding_agrees_with_the_runtime(name: str) -> None:
    for each in CASES[name]:
        found = agreement(each.graph, each.domain, POINTS, opset=each.opset)
        assert not found.differs, f"{each.graph}: {found.differs}"
        assert found.points >= POINTS


def compared(*domains: str, integers: bool | None = None) -> set[str]:
    """The operators that are compared in these domains, of integers alone, of anything else, or of either."""
    found = set[str]()
    for case in (c for cases in CASES.values() for c in cases if c.domain in domains):
        graph = text.parse(case.graph, opset=case.opset).graph
        are_whole = all(v.dtype is not None and v.dtype.is_integer() for v in graph.inputs)
        if integers is None or integers is are_whole:
            found |= {n.op_type for n in graph}
    return found.union(*(parts for name, parts in PARTS.items() if name in found))


PARTS = {"Clip": {"ClipLow", "ClipHigh"}, "Where": {"WhereTrue"}}
"""Operators that the prover takes apart."""


@pytest.mark.parametrize("name", CASES)
def test_what_the_runtime_refuses_of_nothing_the_prover_refuses(name: str) -> None:
    """At each size of zero that the standard allows, a kernel runs, or the prover does not say that it does."""
    for each in CASES[name]:
        model = text.parse(each.graph, opset=each.opset)
        proto = io.to_proto(model)
        encoding = Encoding(DOMAINS[each.domain]())
        reader = Reader(encoding)
        reader.read(model)
        for binding in small_sizes(proto, edges=True):
            feeds = feeds_of(model, binding, np.random.default_rng(0))
            session = open_session(proto, threads=1)
            assert isinstance(session, Session)
            if 0 in binding.values() and isinstance(session.run(feeds), str):
                other = z3.Or([reader.sizes[n] != size for n, size in binding.items()])
                assert Decider(encoding).valid(other), f"{each.graph} at {binding}"


SOME_FUNCTION = {"QuantizeLinear", "DequantizeLinear", "NonZero"}
"""The prover takes them for any function of their operands, so that there is nothing to compare."""

NO_KERNEL = {"Relu", "Sum"}
"""ONNX Runtime has none of integers."""


def test_everything_that_the_prover_knows_is_compared() -> None:
    everywhere = compared("uninterpreted", "reals", "bitwise")
    known = {op_type for _, op_type in SEMANTICS} - set(ELEMENTWISE) - SOME_FUNCTION
    assert known <= everywhere
    assert compared("reals") >= set(REAL_FUNCTIONS)
    assert compared("bitwise", integers=False) >= set(OF_FLOATS)
    assert compared("bitwise", integers=True) >= set(OF_BITS)
    assert compared("uninterpreted") >= set(LOGIC) | set(EXACT) - NO_KERNEL
