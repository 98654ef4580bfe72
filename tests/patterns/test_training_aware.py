"""Models of quantization-aware training: fake quantization becomes the kernels that a quantized model has."""

from __future__ import annotations

import platform
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import onnxrewrite as rw
from onnxrewrite.rules import Assumption


class Net:
    """Three convolutions, a pool and a linear layer between QuantizeLinear and DequantizeLinear.

    Args:
        activations: Of activations: ``uint8``, or ``int8``, as PyTorch's quantizers for mobile processors have it.
        in_float: Weights are floats that are quantized in the graph, as an export of fake quantization has them.
        bias_in_steps: Biases are integers, too.
    """

    def __init__(self, activations: str, *, in_float: bool, bias_in_steps: bool):
        self.dtype, self.in_float, self.bias_in_steps = np.dtype(activations), in_float, bias_in_steps
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        rng = np.random.default_rng(0)
        value, scale, channels = *self.quantized("x", 0.03, signed=True), 16
        for n in range(3):
            weight = (0.1 * rng.standard_normal((32, channels, 3, 3))).astype(np.float32)
            name, steps = self.weight(f"w{n}", weight)
            bias = self.bias(f"b{n}", (0.1 * rng.standard_normal(32)).astype(np.float32), scale * steps)
            self.nodes.append(helper.make_node("Conv", [value, name, bias], [f"c{n}"], pads=[1, 1, 1, 1]))
            self.nodes.append(helper.make_node("Relu", [f"c{n}"], [f"r{n}"]))
            (value, scale), channels = self.quantized(f"r{n}", 0.05), 32
        self.nodes.append(helper.make_node("GlobalAveragePool", [value], ["pool"]))
        value, scale = self.quantized("pool", 0.02)
        self.nodes.append(helper.make_node("Flatten", [value], ["flat"]))
        value, scale = self.quantized("flat", 0.02)
        name, steps = self.weight("w", rng.standard_normal((10, 32)).astype(np.float32))
        bias = self.bias("b", np.ones(10, np.float32), scale * steps)
        self.nodes.append(helper.make_node("Gemm", [value, name, bias], ["g"], transB=1))
        value, _ = self.quantized("g", 0.1, signed=True)
        self.nodes.append(helper.make_node("Identity", [value], ["out"]))

    def constant(self, name: str, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def quantized(self, name: str, scale: float, *, signed: bool = False) -> tuple[str, np.float32]:
        zero = {"uint8": 128 if signed else 0, "int8": 0 if signed else -128}[self.dtype.name]
        step = self.constant(f"{name}_s", np.float32(scale)), self.constant(f"{name}_z", self.dtype.type(zero))
        self.nodes.append(helper.make_node("QuantizeLinear", [name, *step], [f"{name}_q"]))
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *step], [f"{name}_d"]))
        return f"{name}_d", np.float32(scale)

    def weight(self, name: str, value: Any) -> tuple[str, Any]:
        steps = (np.abs(value).max(axis=tuple(range(1, value.ndim))) / 127).astype(np.float32)
        step = self.constant(f"{name}_s", steps), self.constant(f"{name}_z", np.zeros(len(steps), np.int8))
        integers = np.round(value / steps.reshape(-1, *[1] * (value.ndim - 1))).astype(np.int8)
        source = self.constant(name, value if self.in_float else integers)
        if self.in_float:
            self.nodes.append(helper.make_node("QuantizeLinear", [source, *step], [f"{name}_q"], axis=0))
            source = f"{name}_q"
        self.nodes.append(helper.make_node("DequantizeLinear", [source, *step], [f"{name}_d"], axis=0))
        return f"{name}_d", steps

    def bias(self, name: str, value: Any, steps: Any) -> str:
        if not self.bias_in_steps:
            return self.constant(name, value)
        integers = np.round(value / steps).astype(np.int32)
        step = self.constant(f"{name}_s", steps), self.constant(f"{name}_z", np.zeros_like(integers))
        self.nodes.append(
            helper.make_node("DequantizeLinear", [self.constant(name, integers), *step], [f"{name}_d"], axis=0)
        )
        return f"{name}_d"

    def model(self) -> onnx.ModelProto:
        shapes = {"x": ["n", 16, 8, 8], "out": ["n", 10]}
        values = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
        graph = helper.make_graph(self.nodes, "net", values[:1], values[1:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def kernels(path: Path) -> tuple[Counter[str], set[str]]:
    """The operators that ONNX Runtime runs, and the dtypes of the activations of its integer convolutions."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path.with_suffix(".optimized.onnx"))
    options.log_severity_level = 4
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    model = onnx.load(options.optimized_model_filepath)
    zeros = {t.name: numpy_helper.to_array(t).dtype.name for t in model.graph.initializer}
    of_convolutions = {zeros[n.input[2]] for n in model.graph.node if n.op_type == "QLinearConv"}
    return Counter(n.op_type for n in model.graph.node), of_convolutions


@pytest.mark.parametrize("bias_in_steps", [False, True])
@pytest.mark.parametrize("in_float", [False, True])
@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_every_layer_keeps_its_fast_kernel(
    tmp_path: Path, activations: str, in_float: bool, bias_in_steps: bool
) -> None:
    """ONNX Runtime turns int8 activations to uint8 on x86, for which QLinearConv is eleven times as fast; what is
    rewritten must not keep it from that."""
    model = Net(activations, in_float=in_float, bias_in_steps=bias_in_steps).model()
    onnx.save(model, str(tmp_path / "model.onnx"))
    before, dtypes = kernels(tmp_path / "model.onnx")
    assert before["QLinearConv"] == 3
    result = rw.apply(str(tmp_path / "model.onnx"), lower="fused")
    result.save(tmp_path / "rewritten.onnx")
    after, of_rewritten = kernels(tmp_path / "rewritten.onnx")
    assert after["QLinearConv"] == 3
    assert after["Conv"] == 0
    assert of_rewritten == dtypes
    if platform.machine() == "x86_64":
        assert of_rewritten == {"uint8"}


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_weights_in_float_are_as_good_as_integers(tmp_path: Path, activations: str) -> None:
    found = []
    x = np.random.default_rng(1).standard_normal((2, 16, 8, 8)).astype(np.float32)
    for in_float in (False, True):
        net = Net(activations, in_float=in_float, bias_in_steps=False)
        path = tmp_path / f"{in_float}.onnx"
        rw.apply(net.model(), lower="fused").save(path)
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        found.append((kernels(path), session.run(None, {"x": x})[0].tolist()))
    assert found[0] == found[1]


def of_the_prepared_graph() -> onnx.ModelProto:
    """What PyTorch's ``prepare_qat_pt2e`` makes of a convolution after a pad, and two linear layers: no result of a
    linear layer is quantized, weights are turned behind DequantizeLinear, biases are floats, and what two observers saw
    has two scales.

    Weights have seven bits: where a processor adds pairs of products in 16 bits, the sum of more saturates."""
    rng = np.random.default_rng(0)
    weights: dict[str, Any] = {
        "k": rng.integers(-63, 64, (32, 16, 3, 3)).astype(np.int8),
        "w": rng.integers(-63, 64, (64, 32)).astype(np.int8),
        "v": rng.integers(-63, 64, (10, 64)).astype(np.int8),
        "pads": np.array([0, 0, 0, 0, 0, 0, 1, 1]),
        "zero": np.uint8(0),
        "middle": np.uint8(128),
        "flat": np.array([-1, 32]),
    }
    for name, rows in {"k": 32, "w": 64, "v": 10}.items():
        weights[f"{name}_steps"] = (0.001 + 0.01 * rng.random(rows)).astype(np.float32)
        weights[f"{name}_zeros"] = np.zeros(rows, np.int8)
        weights[f"{name}_bias"] = rng.standard_normal(rows).astype(np.float32)
    graph = helper.make_graph(
        onnx.parser.parse_graph(
            """net (float[n,16,8,8] x) => (float[n,10] out) {
  step = Constant <value_float = 0.03> ()
  first = Constant <value_float = 0.023492187> ()
  second = Constant <value_float = 0.023492184> ()
  wide = Constant <value_float = 0.5> ()
  padded = Pad(x, pads)
  xq = QuantizeLinear(padded, step, middle)
  xd = DequantizeLinear(xq, step, middle)
  kd = DequantizeLinear <axis = 0> (k, k_steps, k_zeros)
  c = Conv <strides = [2, 2]> (xd, kd, k_bias)
  r = Relu(c)
  rq = QuantizeLinear(r, first, zero)
  rd = DequantizeLinear(rq, first, zero)
  sq = QuantizeLinear(rd, second, zero)
  sd = DequantizeLinear(sq, second, zero)
  t = Transpose <perm = [0, 2, 3, 1]> (sd)
  f = Reshape(t, flat)
  wd = DequantizeLinear <axis = 0> (w, w_steps, w_zeros)
  wt = Transpose <perm = [1, 0]> (wd)
  p = MatMul(f, wt)
  h = Add(p, w_bias)
  g = Relu(h)
  gq = QuantizeLinear(g, wide, zero)
  gd = DequantizeLinear(gq, wide, zero)
  vd = DequantizeLinear <axis = 0> (v, v_steps, v_zeros)
  out = Gemm <transB = 1> (gd, vd, v_bias)
}"""
        ).node,
        "net",
        [helper.make_tensor_value_info("x", 1, ["n", 16, 8, 8])],
        [helper.make_tensor_value_info("out", 1, ["m", 10])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_layers_whose_results_stay_floats_are_products_of_integers(tmp_path: Path) -> None:
    """ONNX Runtime alone computes the last layer in floats, and dequantizes its weights at every run."""
    onnx.save(of_the_prepared_graph(), str(tmp_path / "model.onnx"))
    before, _ = kernels(tmp_path / "model.onnx")
    assert before["Gemm"] == before["Pad"] == 1
    result = rw.apply(str(tmp_path / "model.onnx"), lower="fused")
    result.save(tmp_path / "rewritten.onnx")
    after, _ = kernels(tmp_path / "rewritten.onnx")
    assert after["MatMulIntegerToFloat"] == 2
    assert after["QLinearConv"] == 1
    assert after.keys().isdisjoint({"Gemm", "Conv", "FusedConv", "Pad", "MatMul", "DequantizeLinear"})
    assert after["QuantizeLinear"] == 2
    assert result.assumes[str(Assumption.NO_SATURATION)] == ["dequantized-linear"]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torchao") is None or find_spec("torch") is None, reason="torchao is not installed")
def test_what_pytorch_prepares_exports_and_runs_in_integers(tmp_path: Path) -> None:
    import torch
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.manual_seed(0)
    layers = torch.nn
    net = layers.Sequential(
        layers.Conv2d(3, 16, 3, 2, 1, bias=False), layers.BatchNorm2d(16), layers.ReLU(),
        layers.Conv2d(16, 32, 3, 2, 1, bias=False), layers.BatchNorm2d(32), layers.ReLU(),
        layers.AdaptiveAvgPool2d(1), layers.Flatten(), layers.Linear(32, 64), layers.ReLU(), layers.Linear(64, 10),
    )  # fmt: skip
    x = torch.randn(4, 3, 32, 32)
    how = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config(is_qat=True))
    prepared = prepare_qat_pt2e(torch.export.export(net, (x,)).module(), how)
    optimizer = torch.optim.SGD(prepared.parameters(), 1e-3)
    for _ in range(4):
        optimizer.zero_grad()
        prepared(torch.randn_like(x)).square().mean().backward()
        optimizer.step()
    converted = convert_pt2e(prepared)
    move_exported_model_to_eval(converted)
    program = torch.onnx.export(converted, (x,), dynamo=True, verbose=False)
    program.save(str(tmp_path / "model.onnx"))
    rw.apply(str(tmp_path / "model.onnx"), lower="fused").save(tmp_path / "rewritten.onnx")
    after, _ = kernels(tmp_path / "rewritten.onnx")
    assert after["QLinearConv"] == 2
    assert after["MatMulIntegerToFloat"] == 2
    assert after.keys().isdisjoint({"Gemm", "Conv", "FusedConv", "DequantizeLinear"})
    session = ort.InferenceSession(str(tmp_path / "rewritten.onnx"), providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    expected = converted(x).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=0.05 * np.abs(expected).max())
