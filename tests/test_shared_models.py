"""Real exports: every one is rewritten to a valid model with equal results, and what its architecture holds is found."""

from collections import Counter
from pathlib import Path

import pytest
from corpus import SHARED_FILES
from onnxrewrite_patterns import quantized_products

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.runtime.installed import saturates
from onnxrewrite.testing.golden import observed

ATTENTION = {
    "bert__ts14_eager_dyn": 6,
    "bert__ts17_sdpa_dyn": 6,
    "bert__dy18_eager_noopt": 6,
    "gpt2_past__ts17_eager_dyn": 6,
    "llama_past__ts17_eager_dyn": 6,
    "llama_past__dy18_eager_opt": 6,
    "vit__ts17_eager_dyn": 6,
    "whisper_encoder__ts17_eager_dyn": 4,
    "t5_decoder_past__ts17_eager_dyn": 8,
    "t5_relpos__ts17": 4,
    "rope_gqa_kvcache__ts17": 4,
    "deberta__ts17_eager_dyn": 4,
}
"""Attention blocks, counted from the architecture: one a layer, two in a decoder with cross attention."""

ACTIVATIONS = {
    "bert__ts14_eager_dyn": ("com.microsoft.Gelu", 6),
    "bert__ts17_sdpa_dyn": ("com.microsoft.Gelu", 6),
    "bert__dy18_eager_noopt": ("com.microsoft.Gelu", 6),
    "gpt2_past__ts17_eager_dyn": ("com.microsoft.FastGelu", 6),
    "llama_past__ts17_eager_dyn": ("com.microsoft.QuickGelu", 6),
    "llama_past__dy18_eager_opt": ("com.microsoft.QuickGelu", 6),
    "vit__ts17_eager_dyn": ("com.microsoft.Gelu", 6),
    "whisper_encoder__ts17_eager_dyn": ("com.microsoft.Gelu", 6),
    "layernorm_tanhgelu_mlp__ts14": ("com.microsoft.FastGelu", 6),
    "rmsnorm_swiglu_mlp__dy18_noopt": ("com.microsoft.QuickGelu", 6),
}
"""The activation's operator after lowering, and how many there are: one a layer, and two in Whisper's stem."""

UNDONE = {"deberta__ts17_eager_dyn": {"skip-norm"}}
"""Where epsilon is 1e-7, ONNX Runtime's kernel may round rows of one number ten times as much as it should."""

SATURATING = {r.name for r in registry.rules_of(quantized_products)} if saturates() else set()
"""On a processor whose 8-bit sums saturate, integer kernels are not what a model of quantizers means."""

WITH_BIAS = {"com.microsoft.Gelu": "com.microsoft.BiasGelu"}
"""The operator that also adds a bias before; FastGelu does so by itself."""

FORCED_BATCHNORM = {"light_densenet121": 62}
"""BatchNormalizations that cannot be folded: they follow a Concat or a pooling whose operands are read elsewhere too."""

FORCED_TRANSPOSES = {"nhwc_tf_like__ts17": 1, "nhwc_se_tf_like__dy18_noopt": 2}
"""Transposes that the interface forces: one at a channels-last input, one at a channels-last output."""

ATTENTION_OPERATORS = ("Attention", "com.microsoft.Attention", "com.microsoft.MultiHeadAttention")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not SHARED_FILES, reason="the shared models are not here")]


@pytest.mark.parametrize("path", SHARED_FILES, ids=lambda p: p.stem)
def test_shared_model(path: Path) -> None:
    result = rw.apply(path)
    checked = result.checks.model
    assert checked is not None
    assert checked.ok, checked.failures
    assert checked.skipped is None
    assert {key[0] for key in result.checks.undone} <= UNDONE.get(path.stem, set()) | SATURATING
    operators: Counter[str] = Counter(observed(result)["operators"])
    if path.stem in ATTENTION:
        assert sum(operators[o] for o in ATTENTION_OPERATORS) == ATTENTION[path.stem]
    if path.stem in ACTIVATIONS:
        operator, count = ACTIVATIONS[path.stem]
        assert operators[operator] + operators[WITH_BIAS.get(operator, "")] == count
    if "bnkept" in path.stem or path.parent.name == "onnx_light":
        assert operators["BatchNormalization"] <= FORCED_BATCHNORM.get(path.stem, 0)
    if path.stem in FORCED_TRANSPOSES:
        assert operators["Transpose"] == FORCED_TRANSPOSES[path.stem]


@pytest.mark.parametrize("path", SHARED_FILES[::3], ids=lambda p: p.stem)
def test_one_run_leaves_nothing_to_do(path: Path) -> None:
    """The worklist reaches the fixpoint: a second look at every node, with facts inferred afresh, changes nothing."""
    rules = registry.load(plugins=False).select()
    model = io.load(path)
    first = Driver(model, rules, target("onnxruntime-cpu")).run()
    assert first.warnings == []
    again = Driver(model, rules, target("onnxruntime-cpu")).run()
    assert [a.key for a in again.applied] == []
