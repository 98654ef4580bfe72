"""The prover's semantics of operators against ONNX Runtime."""

from __future__ import annotations

import pytest

from benchmarks.proof_points import CASES

pytest.importorskip("z3")

from onnxrewrite.proof.crosscheck import agreement

POINTS = 300


@pytest.mark.parametrize("name", CASES)
def test_the_encoding_agrees_with_the_runtime(name: str) -> None:
    for case in CASES[name]:
        found = agreement(case.graph, case.domain, POINTS, opset=case.opset)
        assert not found.differs, f"{case.graph}: {found.differs}"
        assert found.points >= POINTS
