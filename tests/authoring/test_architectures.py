"""Real exports: one block of each architecture is captured, its rewrite filled in, and the rule takes all layers.

The rule goes the way of its author's: it is written to a file, edited there, and loaded by the registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from corpus import SHARED_MODELS

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.checks.rewrites import SiteChecker
from onnxrewrite.io.opset_conversion import in_opset
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver, Review, make_runnable
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.rewrite.trace import Site

LAYER_NORM = "return build.LayerNormalization(m[x], m.value({0}), m.value({1}), axis=-1, epsilon=EPSILON)"
RMS_NORM = "return build.RMSNormalization(m[x], m.value({0}), axis=-1, epsilon=1e-6)"
SCALE = "1 / math.sqrt(32)"


@dataclass(frozen=True)
class Block:
    """What is captured.

    Attributes:
        model: Below ``shared/models``.
        starts: Where it begins.
        end: Where it ends.
        body: What its author makes of it: an operator that computes the same.  The names of its weights are filled in.
        layers: How often the architecture has it.
        opset: To which the model is brought first, so that it has that operator.
    """

    model: str
    starts: tuple[str, ...]
    end: str
    body: str
    layers: int
    opset: int = 17


VIT = "/m/vit/layers.0/attention/"
WHISPER = "/m/layers.0/self_attn/"
GPT2 = "/m/transformer/h.0/attn/"

BLOCKS = (
    Block(
        "hf_ts/bert__ts14_eager_dyn.onnx",
        ("/m/embeddings/Add_1_output_0",),
        "/m/embeddings/LayerNorm/Add_1_output_0",
        LAYER_NORM.replace("EPSILON", "1e-12"),
        13,
    ),
    Block(
        "hf_ts/vit__ts17_eager_dyn.onnx",
        (f"{VIT}q_proj/Add_output_0", f"{VIT}k_proj/Add_output_0", f"{VIT}v_proj/Add_output_0"),
        f"{VIT}Reshape_3_output_0",
        f"q, k, v = (build.Transpose(build.Reshape(m[t], m[s]), perm=(0, 2, 1, 3)) for t, s in"
        f" ((query, shape), (key, shape_2), (value, shape_3)))\n"
        f"    attention = build.Attention(q, k, v, scale={SCALE})\n"
        f"    return build.Reshape(build.Transpose(attention, perm=(0, 2, 1, 3)), m[shape_4])",
        6,
    ),
    Block(
        "hf_ts/whisper_encoder__ts17_eager_dyn.onnx",
        (f"{WHISPER}q_proj/Add_output_0", f"{WHISPER}k_proj/MatMul_output_0", f"{WHISPER}v_proj/Add_output_0"),
        f"{WHISPER}Reshape_3_output_0",
        f"q, k, v = (build.Transpose(build.Reshape(m[t], m[s]), perm=(0, 2, 1, 3)) for t, s in"
        f" ((query, shape), (key, shape_2), (value, shape_3)))\n"
        f"    attention = build.Attention(q, k, v, scale={SCALE})\n"
        f"    return build.Reshape(build.Transpose(attention, perm=(0, 2, 1, 3)), m[shape_4])",
        4,
    ),
    Block(
        "hf_ts/gpt2_past__ts17_eager_dyn.onnx",
        (f"{GPT2}Transpose_2_output_0", "present_0_k", "present_0_v"),
        f"{GPT2}MatMul_1_output_0",
        f"return build.Attention(m[query], m[key], m[value], m[mask], scale={SCALE})",
        6,
    ),
    Block(
        "plain/t5_relpos__ts17.onnx",
        ("x",),
        "/m/n1.0/Mul_1_output_0",
        RMS_NORM,
        8,
        23,
    ),
    Block(
        "hf_ts/deberta__ts17_eager_dyn.onnx",
        ("/m/embeddings/word_embeddings/Gather_output_0",),
        "/m/embeddings/LayerNorm/Add_1_output_0",
        LAYER_NORM.replace("EPSILON", "1e-7"),
        9,
    ),
    Block(
        "hf_dynamo/llama_past__dy18_eager_opt.onnx",
        ("embedding",),
        "mul_130",
        RMS_NORM,
        13,
        23,
    ),
    Block(
        "plain/rope_gqa_kvcache__ts17.onnx",
        ("/m/e/Gather_output_0",),
        "/m/n1/Mul_1_output_0",
        RMS_NORM,
        9,
        23,
    ),
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not SHARED_MODELS.exists(), reason="the shared models are not here")]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: Path(b.model).stem)
def test_a_captured_block_is_taken_in_all_layers(block: Block, tmp_path: Path) -> None:
    model = SHARED_MODELS / block.model
    found = rw.capture(model, block.starts, [block.end], name="my-block", opset=block.opset)
    assert len(found.places) == block.layers
    weights = [c.name for c in found.captures if c.kind == "Const"]
    written = found.rule.replace('m.refuse("fill in the rewrite of my-block")', block.body.format(*weights))
    assert written != found.rule
    file = tmp_path / "my_block.py"
    file.write_text(written, encoding="utf-8")
    rules = list(registry.load([str(file)]).select(only=["my-block"]))
    checker = SiteChecker(lower=lambda part: make_runnable(part, rules, target("onnxruntime-cpu")))

    def check(site: Site) -> str | None:
        """Run the rewrites that are asked about, as ``apply`` runs all."""
        return checker(site) if site.rule == "my-block" else None

    driver = Driver(in_opset(io.load(model), block.opset), rules, target("onnxruntime-cpu"), review=Review(check))
    trace = driver.run(Stage.RAISE)
    assert trace.counts()["my-block"] == block.layers
    assert checker.ok == block.layers, checker.not_run
