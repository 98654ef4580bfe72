"""Golden models: numerically equal after rewriting, and rewritten as expected."""

from collections import Counter
from pathlib import Path

import pytest

from onnxrewrite.testing import check_golden, golden

ROOT = Path(__file__).resolve().parents[1] / "golden_models"
MODELS = golden.find(ROOT)

FUSED = {
    "attention": {"Attention", "com.microsoft.MultiHeadAttention", "com.microsoft.Attention"},
    "gelu": {"Gelu", "com.microsoft.Gelu", "com.microsoft.BiasGelu"},
    "gelu_tanh": {"Gelu", "com.microsoft.FastGelu"},
    "quick_gelu": {"com.microsoft.QuickGelu"},
    "silu": {"com.microsoft.QuickGelu", "Swish"},
    "hardswish": {"HardSwish"},
    "hardsigmoid": {"HardSigmoid"},
    "layernorm": {
        "LayerNormalization",
        "com.microsoft.SkipLayerNormalization",
        "com.microsoft.EmbedLayerNormalization",
    },
    "rmsnorm": {"RMSNormalization", "com.microsoft.SkipSimplifiedLayerNormalization"},
}
"""Kind of block to the operators that stand for it after rewriting."""


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.folder.name)
def test_golden_model_and_its_architecture(model: golden.Golden, update_golden: bool) -> None:
    result = check_golden(model, renew=update_golden)
    operators: Counter[str] = Counter(golden.observed(result)["operators"])
    activations = Counter(n.attributes.get_string("activation", "").lower() for n in result.model.graph)
    for kind, fused in FUSED.items():
        if kind in model.architecture:
            found = sum(operators[name] for name in fused) + activations[kind]
            assert found == model.architecture[kind], f"{kind}: {found} of {model.architecture[kind]}"
    if "batchnorm" in model.architecture:
        assert operators["BatchNormalization"] == 0
    if "transpose_forced" in model.architecture:
        assert operators["Transpose"] == model.architecture["transpose_forced"]


def test_there_are_enough() -> None:
    assert len(MODELS) >= 12
    assert sum(m.model.stat().st_size for m in MODELS) < 30e6
