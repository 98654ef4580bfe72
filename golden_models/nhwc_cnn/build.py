"""Channels-last CNN as tf2onnx writes it, dynamo exporter at opset 18.

Every Conv sits between a Transpose from NHWC and one back; bias Add, activation, Pad, Concat and Mean
work on NHWC in between. Only two Transposes are forced: one at the NHWC input, one at the NHWC output.
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from golden_models.export import check, export, lively


class ConvNhwc(nn.Module):
    """TensorFlow's convolution: NHWC in, NHWC out; padding and bias are operators of their own."""

    def __init__(self, c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1):
        super().__init__()
        # An even total padding is shared; the odd rest goes to the end, as TensorFlow's SAME does.
        total = max(kernel - stride, 0)
        before, after = total // 2, total - total // 2
        self.pad = (0, 0, before, after, before, after)
        self.conv = nn.Conv2d(c_in, c_out, kernel, stride, groups=groups, bias=False)
        self.bias = nn.Parameter(torch.zeros(c_out))

    def forward(self, x):
        if any(self.pad):
            x = F.pad(x, self.pad)
        y = self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return y + self.bias


class NhwcCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvNhwc(3, 16, 3, stride=2)
        self.depthwise = ConvNhwc(16, 16, 3, groups=16)
        self.pointwise = ConvNhwc(16, 16, 1)
        self.left = ConvNhwc(16, 12, 1)
        self.right = ConvNhwc(16, 20, 3)
        self.squeeze = ConvNhwc(32, 8, 1)
        self.excite = ConvNhwc(8, 32, 1)
        self.last = ConvNhwc(32, 24, 3, stride=2)
        self.head = nn.Linear(24, 10)

    def forward(self, image):
        x = F.relu(self.stem(image))
        x = x + self.pointwise(F.relu6(self.depthwise(x)))
        x = torch.cat((torch.sigmoid(self.left(x)), F.relu(self.right(x))), dim=3)
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean((1, 2), keepdim=True)))))
        features = F.relu(self.last(x * gate))
        return self.head(features.mean((1, 2))), features


def sample(batch: int):
    return {"image": torch.randn(batch, 32, 32, 3)}


def build(path: Path) -> None:
    torch.manual_seed(0)
    cnn = lively(NhwcCnn())
    outputs = ["logits", "features"]
    export(cnn, path, sample, dict(batch=2), {"image": {0: "batch"}}, outputs, opset=18, dynamo=True)
    check(cnn, path, sample, dict(batch=1), dict(batch=3))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
