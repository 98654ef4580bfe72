"""The BERT of `golden_models/bert`, scaled-dot-product attention, dynamo exporter at opset 18.

The same network as `bert`, spelled by the other exporter: LayerNormalization is one node,
Gelu is still a chain around Erf; attention multiplies query and key by the square root of its scale,
transposes the key through two Reshapes, and guards the Softmax against NaN.
"""

from pathlib import Path

import torch

from golden_models.bert.build import AXES, OUTPUTS, Bert, sample
from golden_models.export import check, export, lively


def build(path: Path) -> None:
    torch.manual_seed(0)
    bert = lively(Bert("sdpa"))
    export(bert, path, sample, dict(batch=2, seq=8), AXES, OUTPUTS, opset=18, dynamo=True)
    check(bert, path, sample, dict(batch=1, seq=5), dict(batch=2, seq=7))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
