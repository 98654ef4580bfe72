"""ONNX Runtime's execution providers: what each is for, how it is had, and which of its options matter.

Plain data.  Options are those that ONNX Runtime's documentation and sources name; a test compares each with a list that
was taken from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from onnxrewrite.ir import target
from onnxrewrite.system.plain import Json


@dataclass(frozen=True)
class Provider:
    """One execution provider.

    Attributes:
        name: ONNX Runtime's name.
        runs_on: The hardware that it is for.
        install: The package of a build of ONNX Runtime that has it; empty if there is none.
        options: Provider options that matter, each with what it does.
        on_request: The reason why it is used only on request; empty if it may be chosen automatically.
        gpu: True if it runs on a graphics processor.
    """

    name: str
    runs_on: str
    install: str = ""
    options: tuple[tuple[str, str], ...] = ()
    on_request: str = ""
    gpu: bool = False

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return {**asdict(self), "options": dict(self.options)}


_TENSORRT = (
    ("device_id", "which GPU"),
    ("trt_fp16_enable", "compute in float16: faster, less exact"),
    ("trt_int8_enable", "compute in int8: needs a calibration table, or quantization in the model"),
    ("trt_int8_calibration_table_name", "file of the ranges that were measured for int8"),
    ("trt_max_workspace_size", "bytes that a kernel may use while it works"),
    ("trt_engine_cache_enable", "keep what was compiled: without it every session compiles for minutes"),
    ("trt_engine_cache_path", "folder in which it is kept"),
    ("trt_timing_cache_enable", "keep the timings of kernels, so that similar models compile faster"),
    ("trt_timing_cache_path", "folder in which they are kept"),
    ("trt_builder_optimization_level", "0 to 5: how long to search for fast kernels"),
    ("trt_profile_min_shapes", "smallest sizes of dynamic inputs, name:1x3x224x224"),
    ("trt_profile_opt_shapes", "sizes to be fastest at"),
    ("trt_profile_max_shapes", "largest sizes; others make it compile again"),
    ("trt_min_subgraph_size", "fewest nodes that are worth an engine"),
    ("trt_cuda_graph_enable", "replay the whole run as one launch, where sizes never change"),
    ("trt_auxiliary_streams", "streams beside the main one, for branches"),
)

_CUDA = (
    ("device_id", "which GPU"),
    ("gpu_mem_limit", "bytes of the arena for values"),
    ("arena_extend_strategy", "kSameAsRequested takes less memory, kNextPowerOfTwo asks for it less often"),
    ("cudnn_conv_algo_search", "EXHAUSTIVE times all convolutions first; HEURISTIC and DEFAULT start at once"),
    ("cudnn_conv_use_max_workspace", "0 saves memory, and may cost the fastest convolution"),
    ("cudnn_conv1d_pad_to_nc1d", "another layout for 1-D convolutions; faster on some GPUs"),
    ("do_copy_in_default_stream", "0 overlaps copies with work, which may be unsafe"),
    ("enable_cuda_graph", "replay the whole run as one launch: sizes fixed, inputs and outputs bound"),
    ("use_tf32", "0 keeps float32 products exact to 24 bits instead of 11"),
    ("prefer_nhwc", "convolutions with channels last, which tensor cores like"),
    ("enable_skip_layer_norm_strict_mode", "sums of SkipLayerNormalization in float32"),
    ("tunable_op_enable", "choose among kernels by timing"),
)

_OPENVINO = (
    ("device_type", "CPU, GPU, NPU, or AUTO:GPU,CPU"),
    ("load_config", "JSON of OpenVINO's own properties by device: hints, streams, threads, precision, cache"),
    ("cache_dir", "folder in which compiled models are kept; older name of CACHE_DIR in load_config"),
    ("num_of_threads", "older name of INFERENCE_NUM_THREADS in load_config"),
    ("num_streams", "runs at a time, for throughput; older name of NUM_STREAMS in load_config"),
    ("precision", "FP32, FP16 or ACCURACY; older name of INFERENCE_PRECISION_HINT in load_config"),
    ("enable_qdq_optimizer", "keep quantization only where the NPU has it"),
    ("disable_dynamic_shapes", "compile anew for each size instead of once for all"),
    ("reshape_input", "bounds of dynamic sizes, which the NPU needs: name[1..64,3,224,224]"),
)

_COREML = (
    ("ModelFormat", "MLProgram has more operators, from macOS 12 on; NeuralNetwork runs on older ones"),
    ("MLComputeUnits", "CPUOnly, CPUAndGPU, CPUAndNeuralEngine or ALL"),
    ("RequireStaticInputShapes", "1 leaves nodes of dynamic sizes to the CPU"),
    ("EnableOnSubgraphs", "1 runs inside If, Loop and Scan too"),
    ("SpecializationStrategy", "Default or FastPrediction: longer to load, faster to run"),
    ("AllowLowPrecisionAccumulationOnGPU", "1 sums in float16"),
    ("ModelCacheDirectory", "folder in which compiled models are kept"),
)

_DIRECTML = (
    ("device_id", "which adapter"),
    ("performance_preference", "default, high_performance or minimum_power: which adapter, where none is named"),
    ("device_filter", "gpu, npu or any"),
    ("disable_metacommands", "true leaves out the driver's own kernels, to get around a fault in them"),
)

_QNN = (
    ("backend_path", "libQnnHtp.so or QnnHtp.dll for the NPU, QnnCpu for tests"),
    ("htp_performance_mode", "burst, balanced, power_saver, ...: clock against power"),
    ("htp_graph_finalization_optimization_mode", "0 to 3: longer to prepare, faster to run"),
    ("enable_htp_fp16_precision", "0 keeps float32 models in float32"),
    ("vtcm_mb", "megabytes of the fast memory on the chip"),
    ("rpc_control_latency", "microseconds that a call to the NPU may wait"),
    ("qnn_context_priority", "low, normal, normal_high or high, among several models"),
    ("offload_graph_io_quantization", "1 lets the CPU quantize inputs and outputs"),
    ("soc_model", "number of the chip, to compile for another one"),
    ("htp_arch", "architecture of the NPU, to compile for another one"),
)

_MIGRAPHX = (
    ("device_id", "which GPU"),
    ("migraphx_fp16_enable", "compute in float16: faster, less exact"),
    ("migraphx_int8_enable", "compute in int8; needs a calibration table"),
    ("migraphx_int8_calibration_table_name", "file of the ranges that were measured for int8"),
    ("migraphx_exhaustive_tune", "1 times many kernels when it compiles"),
    ("migraphx_mem_limit", "bytes of the arena for values"),
)

_RTX = (
    ("device_id", "which GPU"),
    ("nv_max_workspace_size", "bytes that a kernel may use while it works"),
    ("nv_profile_min_shapes", "smallest sizes of dynamic inputs, name:1x3x224x224"),
    ("nv_profile_opt_shapes", "sizes to be fastest at"),
    ("nv_profile_max_shapes", "largest sizes"),
    ("enable_cuda_graph", "replay the whole run as one launch"),
)

_COMPILES = "it compiles the model for seconds to minutes when a session opens"

PROVIDERS: Mapping[str, Provider] = {
    each.name: each
    for each in (
        Provider("TensorrtExecutionProvider", "NVIDIA GPUs", "onnxruntime-gpu", _TENSORRT, _COMPILES, gpu=True),
        Provider("NvTensorRTRTXExecutionProvider", "NVIDIA RTX GPUs", "", _RTX, _COMPILES, gpu=True),
        Provider("CUDAExecutionProvider", "NVIDIA GPUs", "onnxruntime-gpu", _CUDA, gpu=True),
        Provider("MIGraphXExecutionProvider", "AMD GPUs", "onnxruntime-migraphx", _MIGRAPHX, gpu=True),
        Provider("OpenVINOExecutionProvider", "Intel CPUs, GPUs and NPUs", "onnxruntime-openvino", _OPENVINO),
        Provider("DmlExecutionProvider", "any DirectX 12 GPU, Windows", "onnxruntime-directml", _DIRECTML, gpu=True),
        Provider("WebGpuExecutionProvider", "any GPU, by WebGPU", "onnxruntime-webgpu", gpu=True),
        Provider("CoreMLExecutionProvider", "Apple CPUs, GPUs and Neural Engines", "onnxruntime", _COREML),
        Provider(
            "QNNExecutionProvider",
            "Qualcomm NPUs",
            "onnxruntime-qnn",
            _QNN,
            on_request="it takes quantized models of fixed sizes only",
        ),
        Provider("VitisAIExecutionProvider", "AMD NPUs", "", on_request=_COMPILES),
        Provider("DnnlExecutionProvider", "CPUs, by oneDNN", ""),
        Provider(
            "XnnpackExecutionProvider",
            "ARM and x86 CPUs, by XNNPACK",
            "",
            (("intra_op_num_threads", "threads of its own pool; ONNX Runtime's is set to 1 then, without spinning"),),
        ),
        Provider("AzureExecutionProvider", "models on a server", "onnxruntime", on_request="it runs no ordinary node"),
        Provider("CPUExecutionProvider", "any CPU", "onnxruntime"),
    )
}
"""By ONNX Runtime's name; those that are not here are known by that alone."""

ENTRIES: Mapping[str, str] = {
    "session.intra_op.allow_spinning": "0: threads that wait sleep; leaves the processor to others, costs microseconds",
    "session.inter_op.allow_spinning": "the same for threads that run operators side by side",
    "session.force_spinning_stop": "1: threads stop spinning when a run ends",
    "session.dynamic_block_base": "a positive number, 4: work is cut ever finer; evens out cores that others use too",
    "session.intra_op_thread_affinities": "which hardware threads each thread may use, 1;2,3",
    "session.set_denormal_as_zero": "1: denormal numbers count as zero; faster where there are many, less exact",
    "session.disable_prepacking": "1: weights stay as they are; less memory, slower products",
    "session.use_device_allocator_for_initializers": "1: weights lie outside the arena; less memory is kept",
    "session.disable_cpu_ep_fallback": "1: a node that the provider lacks is an error, not run on the CPU",
    "session.qdqisint8allowed": "1: int8 activations stay int8; the default on ARM, slow on x86",
    "session.enable_quant_qdq_cleanup": "1: quantization that no kernel takes is removed",
    "session.x64quantprecision": "1: on x86 without VNNI, slower 8-bit products that cannot saturate",
    "session.disable_quant_qdq": "1: quantized models are computed in floating point, to compare",
    "optimization.enable_gelu_approximation": "1: Gelu by tanh; faster, less exact",
    "mlas.enable_gemm_fastmath_arm64_bfloat16": "1: float32 products in bfloat16 on ARM; faster, 8 bits exact",
}
"""Entries of a session's configuration that matter on CPUs, each with what it does."""


_FILES = frozenset(
    "trt_engine_cache_path trt_timing_cache_path trt_int8_calibration_table_name cache_dir load_config "
    "ModelCacheDirectory backend_path migraphx_int8_calibration_table_name".split()
)
"""Options that name a file, a folder or a library."""


def may_travel(provider: str, option: str) -> bool:
    """True if an option may be taken from someone else's model: it is known and names no file."""
    known = PROVIDERS.get(target.full_name(provider))
    return known is not None and option in dict(known.options) and option not in _FILES


EXACT: Mapping[str, Mapping[str, str]] = {"CUDAExecutionProvider": {"use_tf32": "0"}}
"""Options with which a provider computes in the dtypes of the model: TF32 has 10 bits of a float32's 23, and which
kernels use it differs from one form of a model to the next."""


def on_request(name: str) -> str:
    """The reason why a provider is used only on request; empty if it may be chosen automatically."""
    known = PROVIDERS.get(name)
    return known.on_request if known is not None else ""
