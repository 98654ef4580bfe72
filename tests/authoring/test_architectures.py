"""Real exports: one block of each architecture is captured, its rewrite filled in, and the rule takes all layers.

The rule goes the way of its author's: it is written to a file, edited there, and loaded by the registry.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from corpus import SHARED_MODELS

import onnxrewrite as rw

LAYER_NORM = "return build.LayerNormalization(m[x], m[{scale}], m[{bias}], axis=-1, epsilon=m[{epsilon}])"


@dataclass(frozen=True)
class Block:
    """What is captured.

    Attributes:
        model: Below ``shared/models``.
        starts: Where it begins.
        end: Where it ends.
        body: What its author makes of it: an operator that computes the same.
        layers: How often the architecture has it.
    """

    model: str
    starts: tuple[str, ...]
    end: str
    body: str
    layers: int


BLOCKS: tuple[Block, ...] = ()

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not SHARED_MODELS.exists(), reason="the shared models are not here")]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: Path(b.model).stem)
def test_a_captured_block_is_taken_in_all_layers(block: Block, tmp_path: Path) -> None:
    model = SHARED_MODELS / block.model
    found = rw.capture(model, block.starts, [block.end], name="my-block")
    assert len(found.places) == block.layers
    written = found.rule.replace('m.refuse("fill in the rewrite of my-block")', block.body)
    assert written != found.rule
    file = tmp_path / "my_block.py"
    file.write_text(written, encoding="utf-8")
    result = rw.apply(model, rules=[str(file)], only=["my-block"], check="fast")
    assert result.trace.counts()["my-block"] == block.layers
    assert not Counter(rule for rule, _ in result.checks.undone)
