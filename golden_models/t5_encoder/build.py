"""T5 (v1.1) encoder, eager attention, TorchScript exporter at opset 17.

Attention scaled by 1 (a Mul that does nothing), with a learned bias for relative position besides the mask;
RMSNorm with its 1/√ as a Div; a feed-forward gated by the tanh approximation of Gelu.
"""

from pathlib import Path

import torch
from transformers import T5Config, T5EncoderModel

from golden_models.export import check, export, lively, padding_mask

VOCAB = 97


class T5(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = T5Config(
            vocab_size=VOCAB,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=16,
            feed_forward_proj="gated-gelu",
            attn_implementation="eager",
        )
        self.model = T5EncoderModel(config)

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def sample(batch: int, seq: int):
    return {"input_ids": torch.randint(VOCAB, (batch, seq)), "attention_mask": padding_mask(batch, seq)}


def build(path: Path) -> None:
    torch.manual_seed(0)
    t5 = lively(T5())
    outputs = ["last_hidden_state"]
    axes = {name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask", *outputs)}
    export(t5, path, sample, dict(batch=2, seq=8), axes, outputs, opset=17, dynamo=False)
    check(t5, path, sample, dict(batch=1, seq=5), dict(batch=2, seq=23))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
