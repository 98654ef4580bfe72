"""MobileNetV3-small-like classifier, TorchScript exporter at opset 14, BatchNormalization kept.

Inverted residuals with depthwise (grouped) Conv, HardSwish, and squeeze-and-excitation gates with HardSigmoid.
Batch, height and width are dynamic.
"""

from pathlib import Path

import torch
from torch import nn

from golden_models.export import check, export, lively


def conv_bn(c_in: int, c_out: int, kernel: int, act: type[nn.Module], stride: int = 1, groups: int = 1):
    conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(c_out, eps=1e-3), act())


class SqueezeExcitation(nn.Module):
    def __init__(self, c: int, squeezed: int):
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, squeezed, 1), nn.ReLU(), nn.Conv2d(squeezed, c, 1), nn.Hardsigmoid()
        )

    def forward(self, x):
        return x * self.gate(x)


class InvertedResidual(nn.Module):
    """1x1 up to `mid` channels, depthwise, squeeze-and-excitation, 1x1 down without activation."""

    def __init__(self, c_in: int, mid: int, c_out: int, kernel: int, stride: int, se: bool, act: type[nn.Module]):
        super().__init__()
        self.block = nn.Sequential(
            conv_bn(c_in, mid, 1, act) if mid != c_in else nn.Identity(),
            conv_bn(mid, mid, kernel, act, stride, groups=mid),
            SqueezeExcitation(mid, mid // 4) if se else nn.Identity(),
            conv_bn(mid, c_out, 1, nn.Identity),
        )
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x):
        return x + self.block(x) if self.residual else self.block(x)


class Mobilenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            conv_bn(3, 16, 3, nn.Hardswish, 2),
            InvertedResidual(16, 16, 16, 3, 2, True, nn.ReLU),
            InvertedResidual(16, 48, 24, 3, 2, False, nn.ReLU),
            InvertedResidual(24, 64, 24, 3, 1, False, nn.ReLU),
            InvertedResidual(24, 64, 32, 5, 2, True, nn.Hardswish),
            InvertedResidual(32, 96, 32, 5, 1, True, nn.Hardswish),
            conv_bn(32, 96, 1, nn.Hardswish),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Linear(96, 64), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(64, 10))

    def forward(self, image):
        return self.classifier(torch.flatten(self.pool(self.features(image)), 1))


def sample(batch: int, height: int, width: int):
    return {"image": torch.randn(batch, 3, height, width)}


def build(path: Path) -> None:
    torch.manual_seed(0)
    mobilenet = lively(Mobilenet())
    axes = {"image": {0: "batch", 2: "height", 3: "width"}, "logits": {0: "batch"}}
    dims = dict(batch=2, height=32, width=48)
    export(mobilenet, path, sample, dims, axes, ["logits"], opset=14, dynamo=False, keep_batchnorm=True)
    check(mobilenet, path, sample, dict(batch=1, height=32, width=32), dict(batch=2, height=45, width=33))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
