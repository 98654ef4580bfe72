"""GPT-2 decoder with a key-value cache, eager attention, TorchScript exporter at opset 17.

One matrix makes query, key and value (a Gemm between two Reshapes, then Split); the past is concatenated to
key and value; the activation is the tanh approximation of Gelu, with x³ as Pow.
"""

from pathlib import Path

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

from golden_models.export import check, export, lively, padding_mask

VOCAB, LAYERS, HEADS, HIDDEN = 97, 2, 4, 32
CACHE = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
AXES = {
    "input_ids": {0: "batch", 1: "seq"},
    "attention_mask": {0: "batch", 1: "past + seq"},
    "position_ids": {0: "batch", 1: "seq"},
    "logits": {0: "batch", 1: "seq"},
    **{f"past_key_values.{name}": {0: "batch", 2: "past"} for name in CACHE},
    **{f"present.{name}": {0: "batch", 2: "past + seq"} for name in CACHE},
}
OUTPUTS = ("logits", *(f"present.{name}" for name in CACHE))


class Gpt2(torch.nn.Module):
    def __init__(self, attention: str):
        super().__init__()
        config = GPT2Config(
            vocab_size=VOCAB,
            n_embd=HIDDEN,
            n_layer=LAYERS,
            n_head=HEADS,
            n_positions=64,
            initializer_range=0.2,
            attn_implementation=attention,
        )
        self.model = GPT2LMHeadModel(config)

    def forward(self, input_ids, attention_mask, position_ids, *past):
        cache = DynamicCache(zip(past[::2], past[1::2], strict=True))
        out = self.model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache
        )
        return out.logits, *(part for layer in cache.layers for part in (layer.keys, layer.values))


def sample(batch: int, seq: int, past: int):
    return {
        "input_ids": torch.randint(VOCAB, (batch, seq)),
        "attention_mask": padding_mask(batch, past + seq),
        "position_ids": torch.randint(64, (batch, seq)),
        **{f"past_key_values.{name}": torch.randn(batch, HEADS, past, HIDDEN // HEADS) for name in CACHE},
    }


def build(path: Path) -> None:
    torch.manual_seed(0)
    gpt2 = lively(Gpt2("eager"))
    export(gpt2, path, sample, dict(batch=2, seq=5, past=3), AXES, OUTPUTS, opset=17, dynamo=False)
    check(gpt2, path, sample, dict(batch=1, seq=5, past=3), dict(batch=2, seq=7, past=6), dict(batch=2, seq=1, past=4))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
