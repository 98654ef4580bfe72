"""A ResNeXt block in split form and an Inception block, dynamo exporter at opset 18.

Parallel convolutions in two shapes: Split, one Conv a part, Concat (one grouped Conv in disguise);
and 1x1 Conv branches that read one input (one wider Conv followed by Split in disguise).
This exporter folds BatchNormalization into Conv.
"""

from pathlib import Path

import torch
from torch import nn

from golden_models.export import check, export, lively

PATHS = 4


def conv(c_in: int, c_out: int, kernel: int = 1) -> nn.Sequential:
    """The basic convolution of both networks: Conv, BatchNormalization, ReLU."""
    layers = nn.Conv2d(c_in, c_out, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(c_out, eps=1e-3), nn.ReLU()
    return nn.Sequential(*layers)


class ResnextSplit(nn.Module):
    def __init__(self, c: int, width: int):
        super().__init__()
        self.reduce = conv(c, width)
        part = width // PATHS
        self.paths = nn.ModuleList(nn.Conv2d(part, part, 3, padding=1) for _ in range(PATHS))
        self.expand = nn.Conv2d(width, c, 1)

    def forward(self, x):
        parts = self.reduce(x).chunk(PATHS, dim=1)
        merged = torch.cat([path(part) for path, part in zip(self.paths, parts, strict=True)], dim=1)
        return torch.relu(x + self.expand(torch.relu(merged)))


class Inception(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.one = conv(c, 16)
        self.three = nn.Sequential(conv(c, 12), conv(12, 16, 3))
        self.five = nn.Sequential(conv(c, 8), conv(8, 12, 3), conv(12, 12, 3))
        self.pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(c, 8))

    def forward(self, x):
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], dim=1)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv(3, 32, 3)
        self.resnext = ResnextSplit(32, 32)
        self.inception = Inception(32)
        self.head = nn.Linear(16 + 16 + 12 + 8, 10)

    def forward(self, image):
        features = self.inception(self.resnext(self.stem(image)))
        return self.head(features.mean((2, 3)))


def sample(batch: int, height: int, width: int):
    return {"image": torch.randn(batch, 3, height, width)}


def build(path: Path) -> None:
    torch.manual_seed(0)
    network = lively(Network())
    axes = {"image": {0: "batch", 2: "height", 3: "width"}}
    dims = dict(batch=2, height=16, width=24)
    export(network, path, sample, dims, axes, ["logits"], opset=18, dynamo=True)
    check(network, path, sample, dict(batch=1, height=16, width=16), dict(batch=2, height=21, width=9))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
