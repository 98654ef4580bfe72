"""Vision transformer, scaled-dot-product attention, TorchScript exporter at opset 17.

Patches by a strided Conv; attention without a mask, the square root of its scale on the query and again
on the key, the key transposed only once, to [0, 2, 3, 1]; Gelu with its factor ½ last.
"""

from pathlib import Path

import torch
from transformers import ViTConfig, ViTModel

from golden_models.export import check, export, lively

OUTPUTS = ("last_hidden_state", "pooler_output")
AXES = {name: {0: "batch"} for name in ("pixel_values", *OUTPUTS)}


class Vit(torch.nn.Module):
    def __init__(self, attention: str):
        super().__init__()
        config = ViTConfig(
            image_size=32,
            patch_size=8,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            initializer_range=0.2,
            attn_implementation=attention,
        )
        self.model = ViTModel(config)

    def forward(self, pixel_values):
        out = self.model(pixel_values=pixel_values)
        return out.last_hidden_state, out.pooler_output


def sample(batch: int):
    return {"pixel_values": torch.randn(batch, 3, 32, 32)}


def build(path: Path) -> None:
    torch.manual_seed(0)
    vit = lively(Vit("sdpa"))
    export(vit, path, sample, dict(batch=2), AXES, OUTPUTS, opset=17, dynamo=False)
    check(vit, path, sample, dict(batch=1), dict(batch=3))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
