"""Quantized MobileNetV2-like CNN in QDQ form: TorchScript exporter at opset 17, then onnxruntime's quantize_static.

QuantizeLinear and DequantizeLinear surround every Conv, Add and Gemm; weights are int8 per channel (seven bits used),
activations uint8.
A rewrite must not move a node out of its pair of Q and DQ, nor change what is rounded.
"""

import tempfile
from pathlib import Path

import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from torch import nn

from golden_models.export import check, export, lively, root_mean_square


def conv(c_in: int, c_out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(c_out), nn.ReLU6())


class InvertedResidual(nn.Module):
    def __init__(self, c_in: int, c_out: int, stride: int):
        super().__init__()
        mid = 4 * c_in
        self.block = nn.Sequential(
            conv(c_in, mid), conv(mid, mid, 3, stride, mid), nn.Conv2d(mid, c_out, 1, bias=False), nn.BatchNorm2d(c_out)
        )
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x):
        return x + self.block(x) if self.residual else self.block(x)


class Mobilenet(nn.Module):
    def __init__(self):
        super().__init__()
        blocks = InvertedResidual(8, 16, 2), InvertedResidual(16, 16, 1), InvertedResidual(16, 24, 2)
        self.features = nn.Sequential(conv(3, 8, 3, 2), *blocks, conv(24, 48))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(48, 10)

    def forward(self, image):
        return self.head(torch.flatten(self.pool(self.features(image)), 1))


def sample(batch: int):
    return {"image": torch.randn(batch, 3, 32, 32)}


class Calibration(CalibrationDataReader):
    def __init__(self, count: int):
        torch.manual_seed(3)
        self.batches = iter([{"image": sample(4)["image"].numpy()} for _ in range(count)])

    def get_next(self):
        return next(self.batches, None)


def build(path: Path) -> None:
    torch.manual_seed(0)
    mobilenet = lively(Mobilenet())
    axes = {"image": {0: "batch"}, "logits": {0: "batch"}}
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "float.onnx")
        export(mobilenet, plain, sample, dict(batch=2), axes, ["logits"], opset=17, dynamo=False)
        quantize_static(
            plain,
            path,
            Calibration(32),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            # Weights of seven bits: with eight, ORT's int8 kernels saturate on CPUs without VNNI, and the model would
            # mean one thing with graph optimization and another without.
            reduce_range=True,
        )
    # Rounding costs more than the usual tolerance, and an image outside the calibrated range is clipped: a few are
    # far off, so the worst says little. For scale, the logits vary by 0.18 from image to image.
    check(mobilenet, path, sample, dict(batch=1), dict(batch=256), error=root_mean_square, tolerance=0.05)


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
