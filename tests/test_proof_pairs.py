"""Random pairs of graphs: what is proved is run at corners, and a prover that is wrong is found out."""

from __future__ import annotations

import pytest

from benchmarks import proof_pairs
from benchmarks.proof_pairs import FAMILIES, tried

pytest.importorskip("z3")

from onnxrewrite.proof.validation import BITWISE, WITHIN_BOUND, Proof

GRAPHS = {"integers": 200, "sizes": 250, "views of integers": 300, "dtypes": 80}


@pytest.mark.slow
@pytest.mark.parametrize("family", GRAPHS)
def test_no_run_tells_proved_pairs_apart(family: str) -> None:
    found = tried(family, GRAPHS[family], seed=5)
    assert found.proved > 5
    assert not found.differ


@pytest.mark.slow
@pytest.mark.parametrize(("family", "strength"), [("integers", BITWISE), ("floats", BITWISE), ("floats", WITHIN_BOUND)])
def test_a_prover_that_proves_everything_is_found_out(
    family: str, strength: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_pairs, "prove", lambda *_, **__: Proof("", strength, (), (), 0.0))
    found = tried(family, 250, seed=5)
    assert found.proved == found.pairs > 0
    assert found.differ


def test_the_same_seed_draws_the_same_graphs() -> None:
    drawn = [[proof_pairs._drawn(FAMILIES["views"], proof_pairs.random.Random(3)) for _ in range(3)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert any(drawn[0])
