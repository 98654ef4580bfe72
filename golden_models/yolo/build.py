"""YOLOv8-like detector at 64x64, TorchScript exporter at opset 17, BatchNormalization kept.

Each convolution is followed by BatchNormalization and SiLU (Sigmoid, Mul); C2f blocks split and concatenate,
SPPF pools three times, the neck resizes. The Softmax in the head is a distribution over distances, not attention.
"""

from pathlib import Path

import torch
from torch import nn

from golden_models.export import check, export, lively

CLASSES, BINS, STRIDES, SIZE = 4, 8, (8, 16), 64


class Conv(nn.Module):
    def __init__(self, c_in: int, c_out: int, kernel: int = 1, stride: int = 1):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(c_out, eps=1e-3)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, c: int, shortcut: bool):
        super().__init__()
        self.cv1, self.cv2, self.shortcut = Conv(c, c, 3), Conv(c, c, 3), shortcut

    def forward(self, x):
        y = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class C2f(nn.Module):
    """Half the channels pass through the bottlenecks; every intermediate result is concatenated."""

    def __init__(self, c_in: int, c_out: int, shortcut: bool = False):
        super().__init__()
        self.c = c = c_out // 2
        self.cv1, self.cv2 = Conv(c_in, 2 * c), Conv(3 * c, c_out)
        self.m = nn.ModuleList([Bottleneck(c, shortcut)])

    def forward(self, x):
        y = list(self.cv1(x).split(self.c, 1))
        y.extend(m(y[-1]) for m in self.m)
        return self.cv2(torch.cat(y, 1))


class SPPF(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.cv1, self.cv2, self.pool = Conv(c, c // 2), Conv(2 * c, c), nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        y = [self.cv1(x)]
        for _ in range(3):
            y.append(self.pool(y[-1]))
        return self.cv2(torch.cat(y, 1))


class Detect(nn.Module):
    """Boxes as expected distances to the four sides, and class scores, at each anchor of both strides."""

    def __init__(self, channels: tuple[int, ...]):
        super().__init__()
        self.box = nn.ModuleList(nn.Sequential(Conv(c, 16, 3), nn.Conv2d(16, 4 * BINS, 1)) for c in channels)
        self.cls = nn.ModuleList(nn.Sequential(Conv(c, 16, 3), nn.Conv2d(16, CLASSES, 1)) for c in channels)
        self.dfl = nn.Conv2d(BINS, 1, 1, bias=False).requires_grad_(False)
        self.dfl.weight.data = torch.arange(BINS, dtype=torch.float).view(1, BINS, 1, 1)
        anchors, strides = [], []
        for stride in STRIDES:
            side = torch.arange(SIZE // stride) + 0.5
            y, x = torch.meshgrid(side, side, indexing="ij")
            anchors.append(torch.stack((x, y)).view(2, -1))
            strides.append(torch.full((1, x.numel()), float(stride)))
        self.register_buffer("anchors", torch.cat(anchors, 1))
        self.register_buffer("strides", torch.cat(strides, 1))

    def forward(self, features):
        levels = [torch.cat((b(f), c(f)), 1) for b, c, f in zip(self.box, self.cls, features, strict=True)]
        x = torch.cat([level.view(level.shape[0], 4 * BINS + CLASSES, -1) for level in levels], 2)
        box, cls = x.split((4 * BINS, CLASSES), 1)
        batch, _, anchors = box.shape
        distances = self.dfl(box.view(batch, 4, BINS, anchors).transpose(2, 1).softmax(1)).view(batch, 4, anchors)
        left_top, right_bottom = distances.chunk(2, 1)
        low, high = self.anchors - left_top, self.anchors + right_bottom
        boxes = torch.cat(((low + high) / 2, high - low), 1) * self.strides
        return torch.cat((boxes, cls.sigmoid()), 1)


class Yolo(nn.Module):
    def __init__(self):
        super().__init__()
        self.to8 = nn.Sequential(Conv(3, 8, 3, 2), Conv(8, 16, 3, 2), C2f(16, 16, True), Conv(16, 32, 3, 2))
        self.c2f8 = C2f(32, 32, True)
        self.to16 = nn.Sequential(Conv(32, 64, 3, 2), C2f(64, 64, True), SPPF(64))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.up8 = C2f(96, 32)
        self.down = Conv(32, 32, 3, 2)
        self.down16 = C2f(96, 64)
        self.detect = Detect((32, 64))

    def forward(self, images):
        p8 = self.c2f8(self.to8(images))
        p16 = self.to16(p8)
        n8 = self.up8(torch.cat((self.up(p16), p8), 1))
        n16 = self.down16(torch.cat((self.down(n8), p16), 1))
        return self.detect((n8, n16))


def sample(batch: int):
    return {"images": torch.rand(batch, 3, SIZE, SIZE)}


def build(path: Path) -> None:
    torch.manual_seed(0)
    yolo = lively(Yolo())
    axes = {"images": {0: "batch"}, "output0": {0: "batch"}}
    export(yolo, path, sample, dict(batch=2), axes, ["output0"], opset=17, dynamo=False, keep_batchnorm=True)
    check(yolo, path, sample, dict(batch=1), dict(batch=3))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
