"""Whatever the lower stage chooses is right: costs drawn at random lead it to places where no clock does."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest

import onnxrewrite as rw
from onnxrewrite.costs import Region

GOLDEN = Path(__file__).resolve().parents[2] / "golden_models"
MODELS = ("bert", "llama_past", "t5_encoder", "unet_block", "vit")
WHOLE = 40
"""Graphs of so many nodes are taken for whole models, which cost less the fewer nodes they have."""


@dataclass(frozen=True)
class Drawn:
    """A number for each multiset of operators, between 0.2 and 2 a node."""

    seed: int

    def of(self, region: Region) -> float:
        operators = sorted(n.op_type for n in region.model.graph.node)
        if len(operators) >= WHOLE:
            return float(len(operators))
        digest = hashlib.sha256(f"{self.seed} {operators}".encode()).digest()
        return len(operators) * (0.2 + 1.8 * int.from_bytes(digest[:4]) / 2**32)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["onnxruntime-cpu", "onnxruntime-cuda"])
@pytest.mark.parametrize("name", MODELS)
def test_whatever_is_chosen_is_right(name: str, target: str) -> None:
    nodes = set()
    for seed in range(4):
        result = rw.apply(GOLDEN / name / "model.onnx", target=target, lower="fastest", cost=Drawn(seed))
        assert result.checks.undone == {}
        assert result.checks.model is not None
        assert result.checks.model.ok
        nodes.add(len(result.model.graph))
    assert len(nodes) > 1
