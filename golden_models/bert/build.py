"""BERT encoder, eager attention, TorchScript exporter at opset 14.

Opset 14 has neither LayerNormalization nor Gelu: both arrive as chains of primitive operators,
and attention as MatMul, Div, Add (the padding mask), Softmax, MatMul.
"""

from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from golden_models.export import check, export, lively, padding_mask

VOCAB = 97
AXES = {name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask", "token_type_ids", "last_hidden_state")}
OUTPUTS = ("last_hidden_state", "pooler_output")


class Bert(torch.nn.Module):
    def __init__(self, attention: str):
        super().__init__()
        config = BertConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=32,
            initializer_range=0.2,
            attn_implementation=attention,
        )
        self.model = BertModel(config)

    def forward(self, input_ids, attention_mask, token_type_ids):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return out.last_hidden_state, out.pooler_output


def sample(batch: int, seq: int):
    return {
        "input_ids": torch.randint(VOCAB, (batch, seq)),
        "attention_mask": padding_mask(batch, seq),
        "token_type_ids": torch.randint(2, (batch, seq)),
    }


def build(path: Path) -> None:
    torch.manual_seed(0)
    bert = lively(Bert("eager"))
    axes = AXES | {"pooler_output": {0: "batch"}}
    export(bert, path, sample, dict(batch=2, seq=8), axes, OUTPUTS, opset=14, dynamo=False)
    check(bert, path, sample, dict(batch=1, seq=5), dict(batch=2, seq=7))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
