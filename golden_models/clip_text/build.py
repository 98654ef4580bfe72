"""CLIP text encoder, scaled-dot-product attention, TorchScript exporter at opset 14.

A causal mask without a cache; the activation is QuickGelu, x·sigmoid(1.702·x);
the pooled output is picked by ArgMax and advanced indexing.
"""

from pathlib import Path

import torch
from transformers import CLIPTextConfig, CLIPTextModel

from golden_models.export import check, export, lively, padding_mask

VOCAB = 97


class ClipText(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = CLIPTextConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=32,
            hidden_act="quick_gelu",
            initializer_factor=5.0,
            bos_token_id=0,
            eos_token_id=2,  # the value of the published checkpoints: pool at the largest token id
            attn_implementation="sdpa",
        )
        self.model = CLIPTextModel(config)

    def forward(self, input_ids, attention_mask):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask)
        return out.last_hidden_state, out.pooler_output


def sample(batch: int, seq: int):
    return {"input_ids": torch.randint(VOCAB, (batch, seq)), "attention_mask": padding_mask(batch, seq)}


def build(path: Path) -> None:
    torch.manual_seed(0)
    clip = lively(ClipText())
    outputs = ["last_hidden_state", "pooler_output"]
    axes = {name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask", "last_hidden_state")}
    axes["pooler_output"] = {0: "batch"}
    export(clip, path, sample, dict(batch=2, seq=8), axes, outputs, opset=14, dynamo=False)
    check(clip, path, sample, dict(batch=1, seq=5), dict(batch=2, seq=7))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
