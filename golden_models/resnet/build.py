"""ResNet with basic and bottleneck blocks, TorchScript exporter at opset 17, BatchNormalization kept.

A plain export folds every BatchNormalization into the Conv before it; here they stay two nodes,
in inference mode, with statistics far from the identity. Batch, height and width are dynamic.
"""

from pathlib import Path

import torch
from torch import nn

from golden_models.export import check, export, lively


def conv_bn(c_in: int, c_out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(c_out))


class Block(nn.Module):
    """Residual block: two 3x3 convolutions (basic), or 1x1, 3x3, 1x1 (bottleneck)."""

    def __init__(self, c_in: int, c_out: int, stride: int, bottleneck: bool):
        super().__init__()
        if bottleneck:
            mid = c_out // 4
            convs = [conv_bn(c_in, mid, 1), nn.ReLU(), conv_bn(mid, mid, 3, stride), nn.ReLU(), conv_bn(mid, c_out, 1)]
        else:
            convs = [conv_bn(c_in, c_out, 3, stride), nn.ReLU(), conv_bn(c_out, c_out, 3)]
        self.convs = nn.Sequential(*convs)
        same = c_in == c_out and stride == 1
        self.shortcut = nn.Identity() if same else conv_bn(c_in, c_out, 1, stride)

    def forward(self, x):
        return torch.relu(self.convs(x) + self.shortcut(x))


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 16, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.Sequential(
            Block(16, 16, 1, bottleneck=False),
            Block(16, 32, 2, bottleneck=False),
            Block(32, 64, 2, bottleneck=True),
            Block(64, 64, 1, bottleneck=True),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(64, 10)

    def forward(self, image):
        return self.head(torch.flatten(self.pool(self.stages(self.stem(image))), 1))


def sample(batch: int, height: int, width: int):
    return {"image": torch.randn(batch, 3, height, width)}


def build(path: Path) -> None:
    torch.manual_seed(0)
    resnet = lively(Resnet())
    axes = {"image": {0: "batch", 2: "height", 3: "width"}, "logits": {0: "batch"}}
    dims = dict(batch=2, height=32, width=48)
    export(resnet, path, sample, dims, axes, ["logits"], opset=17, dynamo=False, keep_batchnorm=True)
    check(resnet, path, sample, dict(batch=1, height=32, width=32), dict(batch=2, height=45, width=33))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
