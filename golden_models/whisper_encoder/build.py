"""Whisper encoder (speech), scaled-dot-product attention, dynamo exporter at opset 20.

Two one-dimensional Conv with Gelu before the layers; the key projection has no bias;
opset 20 has Gelu, so the exporter writes it as one node.
"""

from pathlib import Path

import torch
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from golden_models.export import check, export, lively

MELS, POSITIONS = 16, 24


class Whisper(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = WhisperConfig(
            num_mel_bins=MELS,
            d_model=32,
            encoder_layers=2,
            encoder_attention_heads=4,
            encoder_ffn_dim=64,
            max_source_positions=POSITIONS,
            init_std=0.2,
            attn_implementation="sdpa",
        )
        self.model = WhisperEncoder(config)

    def forward(self, input_features):
        return self.model(input_features).last_hidden_state


def sample(batch: int):
    return {"input_features": torch.randn(batch, MELS, 2 * POSITIONS)}


def build(path: Path) -> None:
    torch.manual_seed(0)
    whisper = lively(Whisper())
    axes = {"input_features": {0: "batch"}}
    export(whisper, path, sample, dict(batch=2), axes, ["last_hidden_state"], opset=20, dynamo=True)
    check(whisper, path, sample, dict(batch=1), dict(batch=3))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
