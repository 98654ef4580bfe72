"""The prover's semantics of operators against ONNX Runtime."""

from __future__ import annotations

import pytest

from benchmarks.proof_points import CASES

pytest.importorskip("z3")

from onnxrewrite.proof.crosscheck import agreement

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
