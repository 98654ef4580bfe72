"""Llama decoder with grouped-query attention and a key-value cache, dynamo exporter at opset 20.

RMSNorm (1/√ as Sqrt, Reciprocal) and rotary embedding arrive as chains; two key-value heads are repeated for
four query heads by Unsqueeze, Expand, Reshape; SiLU gates the feed-forward.
"""

from pathlib import Path

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from golden_models.export import check, export, lively, padding_mask

VOCAB, LAYERS, HEADS, KV_HEADS, HIDDEN = 97, 2, 4, 2, 32
CACHE = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
AXES = {
    "input_ids": {0: "batch", 1: "seq"},
    "attention_mask": {0: "batch", 1: "past + seq"},
    **{f"past_key_values.{name}": {0: "batch", 2: "past"} for name in CACHE},
}
OUTPUTS = ("logits", *(f"present.{name}" for name in CACHE))


class Llama(torch.nn.Module):
    def __init__(self, attention: str):
        super().__init__()
        config = LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=HIDDEN,
            intermediate_size=64,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            max_position_embeddings=64,
            initializer_range=0.2,
            attn_implementation=attention,
        )
        self.model = LlamaForCausalLM(config)

    def forward(self, input_ids, attention_mask, *past):
        cache = DynamicCache(zip(past[::2], past[1::2], strict=True))
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache)
        return out.logits, *(part for layer in cache.layers for part in (layer.keys, layer.values))


def sample(batch: int, seq: int, past: int):
    return {
        "input_ids": torch.randint(VOCAB, (batch, seq)),
        "attention_mask": padding_mask(batch, past + seq),
        **{f"past_key_values.{name}": torch.randn(batch, KV_HEADS, past, HIDDEN // HEADS) for name in CACHE},
    }


def build(path: Path) -> None:
    torch.manual_seed(0)
    llama = lively(Llama("sdpa"))
    export(llama, path, sample, dict(batch=2, seq=5, past=3), AXES, OUTPUTS, opset=20, dynamo=True)
    check(llama, path, sample, dict(batch=1, seq=5, past=3), dict(batch=2, seq=7, past=6), dict(batch=2, seq=1, past=4))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
