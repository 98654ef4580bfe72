from __future__ import annotations

import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnxrewrite.errors import UsageError
from onnxrewrite.ir import target as module
from onnxrewrite.ir.target import ort_version, provider, providers, target, target_on

F = ir.DataType


@pytest.fixture(name="cpu")
def _cpu():
    return target("onnxruntime-cpu")


@pytest.fixture(name="any_runtime")
def _any_runtime():
    return target("onnx")


def test_known_targets(cpu, any_runtime):
    assert (cpu.name, cpu.provider) == ("onnxruntime-cpu", "CPUExecutionProvider")
    assert (any_runtime.name, any_runtime.provider) == ("onnx", None)
    assert cpu.opset_max <= any_runtime.opset_max == onnx.defs.onnx_opset_version()


def test_unknown_target_lists_the_known_ones():
    with pytest.raises(
        UsageError, match="unknown target 'tpu'; known targets: onnxruntime-cpu, onnxruntime-cuda, onnxruntime-webgpu"
    ):
        target("tpu")


def test_cuda_on_a_build_without_it(monkeypatch):
    monkeypatch.setattr(module, "providers", lambda: ("CPUExecutionProvider",))
    cuda = target("onnxruntime-cuda")
    assert (cuda.runs_on, cuda.provider) == ("CUDAExecutionProvider", None)
    assert cuda.refuses("", "Gelu", 20, {}) is None
    assert cuda.refuses("com.microsoft", "Gelu", 1, {"T": F.FLOAT16}) is None  # there is none for the CPU
    assert cuda.refuses("com.microsoft", "QLinearAdd", 1, {"T": F.UINT8}).startswith("no CUDA kernel of")
    assert "not on CUDAExecutionProvider, which this build of ONNX Runtime" in cuda.note
    assert "it is taken to have the kernels of ONNX Runtime" in cuda.note


def test_a_kernel_that_is_slower_than_its_parts_is_avoided(cpu):
    fused = ("com.microsoft", "FusedConv", 1, {"T": F.FLOAT})
    assert cpu.refuses(*fused) is None
    assert target("onnxruntime-cuda").refuses(*fused) == (
        "the CUDA kernel of com.microsoft.FusedConv has no activation but Relu, and is slower than its parts"
    )


def test_other_providers_are_not_judged_by_what_the_cpu_runs_in_their_place():
    cuda = target("onnxruntime-cuda")
    assert cuda.refuses("", "QLinearConv", 17, dict.fromkeys(("T1", "T2", "T3"), F.UINT8), indirect=True) == (
        "no CUDA kernel of QLinearConv (opset 10)"
    )
    assert cuda.runs_body("DynamicQuantizeLinear", 17)  # as it is, in a model that has one


def test_a_provider_whose_kernels_nobody_knows_gets_standard_operators():
    webgpu = target("onnxruntime-webgpu")
    assert webgpu.refuses("", "GreaterOrEqual", 14, {}) is None
    assert webgpu.refuses("com.microsoft", "Gelu", 1, {}) == "target onnxruntime-webgpu has standard operators only"


@pytest.mark.parametrize("name", ["cpu", "CPU", "CPUExecutionProvider", "cpuexecutionprovider"])
def test_a_provider_goes_by_its_short_name_too(name):
    assert provider(name) == "CPUExecutionProvider"


def test_a_provider_that_this_build_lacks(monkeypatch):
    monkeypatch.setattr(module, "providers", lambda: ("CPUExecutionProvider",))
    with pytest.raises(
        UsageError, match="provider 'openvino' is OpenVINOExecutionProvider, which this build"
    ) as caught:
        provider("openvino")
    assert str(caught.value).endswith("it has CPUExecutionProvider")


def test_an_unknown_provider_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"unknown provider 'gpu'; ONNX Runtime knows .*cpu, cuda, .*tensorrt"):
        provider("gpu")


def test_targets_of_providers():
    assert target_on("CPUExecutionProvider") == "onnxruntime-cpu"
    assert target_on("CUDAExecutionProvider") == "onnxruntime-cuda"
    assert target_on("TensorrtExecutionProvider") == "tensorrt"
    assert target_on("AzureExecutionProvider") == "onnx"


def test_build(cpu):
    assert "CPUExecutionProvider" in providers()
    assert ort_version() == onnxruntime.__version__


@pytest.mark.parametrize(
    ("domain", "op_type", "version", "dtypes"),
    [
        ("", "Gelu", 20, {"T": F.FLOAT}),
        ("ai.onnx", "Add", 17, {"T": F.FLOAT}),
        ("", "Add", 17, {"T": F.INT64}),
        ("", "Cast", 17, {"T1": F.FLOAT, "T2": F.INT64}),
        ("", "LayerNormalization", 17, {"T": F.DOUBLE, "U": F.FLOAT}),
        ("", "If", 17, {"B": F.BOOL, "V": F.FLOAT}),
        ("", "Constant", 17, {}),
        ("", "Softmax", 12, {"T": F.DOUBLE}),
        ("com.microsoft", "QuickGelu", 1, {"T": F.FLOAT}),
        ("com.microsoft", "SkipLayerNormalization", 1, {"T": F.FLOAT16, "U": F.FLOAT}),
        ("", "HardSwish", 14, {"T": F.FLOAT}),
        ("", "Mish", 18, {"T": F.FLOAT}),
        ("", "GroupNormalization", 21, {"T": F.FLOAT}),
        ("", "CastLike", 19, {"T1": F.FLOAT, "T2": F.FLOAT16}),
    ],
)
def test_cpu_runs(cpu, domain, op_type, version, dtypes):
    assert cpu.refuses(domain, op_type, version, dtypes) is None


@pytest.mark.parametrize(
    ("domain", "op_type", "version", "dtypes", "reason"),
    [
        ("", "Gelu", 17, {"T": F.FLOAT}, "Gelu needs opset 20, model has 17"),
        # ONNX Runtime has a kernel for this one, but it is no operator of the standard
        ("", "LayerNormalization", 16, {"T": F.FLOAT}, "LayerNormalization needs opset 17, model has 16"),
        ("", "Gelu", 20, {"T": F.FLOAT16}, "no CPU kernel of Gelu for float16"),
        (
            "com.microsoft",
            "QuickGelu",
            1,
            {"T": F.FLOAT16},
            "no CPU kernel of com.microsoft.QuickGelu for float16",
        ),
        ("com.microsoft", "SkipGroupNorm", 1, {"T": F.FLOAT}, "no CPU kernel of com.microsoft.SkipGroupNorm"),
        ("com.microsoft", "Nonsense", 1, {}, "com.microsoft.Nonsense is no operator of opset 1"),
        ("my.own", "Op", 1, {}, "my.own.Op is no operator of opset 1"),
        ("", "Add", 17, {"T": None}, "dtype of T of Add unknown"),
        ("", "Add", 17, {"T": F.STRING}, "Add of opset 14 does not take T = string"),
        ("", "Upsample", 17, {"T": F.FLOAT}, "Upsample is no operator of opset 17"),
        ("", "HardSwish", 14, {"T": F.DOUBLE}, "its function body does not run at opset 14"),
    ],
)
def test_cpu_refuses(cpu, domain, op_type, version, dtypes, reason):
    assert reason in cpu.refuses(domain, op_type, version, dtypes)


def test_opset_beyond_the_runtime(cpu):
    reason = cpu.refuses("", "Add", cpu.opset_max + 1, {"T": F.FLOAT})
    assert reason == f"onnxruntime-cpu runs ai.onnx up to opset {cpu.opset_max}, model has {cpu.opset_max + 1}"


def test_indirect(cpu):
    assert cpu.refuses("", "Add", 17, {"T": F.FLOAT16}) is not None
    assert cpu.refuses("", "Add", 17, {"T": F.FLOAT16}, indirect=True) is None
    assert cpu.refuses("", "Gelu", 20, {"T": F.FLOAT16}, indirect=True) is None
    assert cpu.refuses("", "Add", 17, {"T": F.BFLOAT16}, indirect=True) is not None
    assert cpu.refuses("com.microsoft", "SkipGroupNorm", 1, {"T": F.FLOAT}, indirect=True) is not None


@pytest.mark.parametrize(
    "op_type", ["Add", "Gelu", "Erf", "HardSwish", "Mish", "Swish", "Softplus", "Relu", "LayerNormalization"]
)
@pytest.mark.parametrize("version", [17, 20, 24, 26])
@pytest.mark.parametrize("dtype", [F.FLOAT, F.DOUBLE, F.INT32])
def test_agrees_with_the_runtime(cpu, op_type, version, dtype):
    """What is said to run does; what is refused for want of a kernel or an opset does not run as itself."""
    if cpu.refuses("", op_type, version, {"T": dtype}) is not None:
        return
    arity = 2 if op_type in ("Add", "LayerNormalization") else 1
    x = onnx.helper.make_tensor_value_info("x", int(dtype), [3])
    y = onnx.helper.make_tensor_value_info("y", int(dtype), [3])
    graph = onnx.helper.make_graph([onnx.helper.make_node(op_type, ["x"] * arity, ["y"])], "g", [x], [y])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)], ir_version=8)
    onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


def test_onnx_has_every_standard_operator_and_no_other(any_runtime):
    assert any_runtime.refuses("", "Gelu", 20, {"T": F.DOUBLE}) is None
    assert any_runtime.refuses("ai.onnx.ml", "Scaler", 1, {"T": F.FLOAT}) is None
    assert any_runtime.refuses("", "Gelu", 20, {"T": F.INT32}) == "Gelu of opset 20 does not take T = int32"
    assert any_runtime.refuses("", "Gelu", 19, {"T": F.FLOAT}) == "Gelu needs opset 20, model has 19"
    reason = any_runtime.refuses("com.microsoft", "Gelu", 1, {"T": F.FLOAT})
    assert reason == "target onnx has standard operators only"


def test_an_opset_may_be_chosen_by_kernels_that_are_known():
    told = {name: target(name).knows_kernels for name in ("onnxruntime-cpu", "onnxruntime-cuda", "tensorrt", "onnx")}
    assert told == {"onnxruntime-cpu": True, "onnxruntime-cuda": True, "tensorrt": False, "onnx": False}
