"""The table of providers names real options only, and the runtime says which of them start."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
import pytest

from onnxrewrite.ir import target
from onnxrewrite.runtime import installed as room
from onnxrewrite.runtime.installed import Runtime, runtime, saturates, why_not_started
from onnxrewrite.runtime.providers import ENTRIES, PROVIDERS, on_request

# Taken from ONNX Runtime's documentation of each provider and from the names that its sources parse.
DOCUMENTED = {
    "CUDAExecutionProvider": """device_id has_user_compute_stream user_compute_stream gpu_mem_limit arena_extend_strategy
        cudnn_conv_algo_search do_copy_in_default_stream cudnn_conv_use_max_workspace cudnn_conv1d_pad_to_nc1d
        enable_cuda_graph enable_skip_layer_norm_strict_mode prefer_nhwc use_tf32 use_ep_level_unified_stream
        tunable_op_enable tunable_op_tuning_enable tunable_op_max_tuning_duration_ms gpu_external_alloc
        gpu_external_free gpu_external_empty_cache sdpa_kernel fuse_conv_bias""",
    "TensorrtExecutionProvider": """device_id user_compute_stream trt_max_workspace_size trt_max_partition_iterations
        trt_min_subgraph_size trt_fp16_enable trt_bf16_enable trt_int8_enable trt_int8_calibration_table_name
        trt_int8_use_native_calibration_table trt_dla_enable trt_dla_core trt_engine_cache_enable trt_engine_cache_path
        trt_engine_cache_prefix trt_dump_subgraphs trt_force_sequential_engine_build trt_context_memory_sharing_enable
        trt_layer_norm_fp32_fallback trt_timing_cache_enable trt_timing_cache_path trt_force_timing_cache
        trt_detailed_build_log trt_build_heuristics_enable trt_cuda_graph_enable trt_sparsity_enable
        trt_builder_optimization_level trt_auxiliary_streams trt_tactic_sources trt_extra_plugin_lib_paths
        trt_profile_min_shapes trt_profile_max_shapes trt_profile_opt_shapes trt_dump_ep_context_model
        trt_ep_context_file_path trt_ep_context_embed_mode trt_weight_stripped_engine_enable
        trt_onnx_model_folder_path trt_engine_hw_compatible trt_op_types_to_exclude""",
    "NvTensorRTRTXExecutionProvider": """device_id user_compute_stream nv_max_workspace_size nv_max_shared_mem_size
        nv_dump_subgraphs nv_detailed_build_log enable_cuda_graph nv_profile_min_shapes nv_profile_max_shapes
        nv_profile_opt_shapes nv_multi_profile_enable nv_use_external_data_initializer nv_runtime_cache_path""",
    "OpenVINOExecutionProvider": """device_type device_id precision num_of_threads num_streams cache_dir load_config
        context enable_qdq_optimizer disable_dynamic_shapes model_priority reshape_input layout enable_opencl_throttling
        enable_causallm""",
    "CoreMLExecutionProvider": """ModelFormat MLComputeUnits RequireStaticInputShapes EnableOnSubgraphs
        SpecializationStrategy ProfileComputePlan AllowLowPrecisionAccumulationOnGPU ModelCacheDirectory""",
    "DmlExecutionProvider": """device_id performance_preference device_filter disable_metacommands
        enable_dynamic_graph_fusion enable_graph_serialization enable_graph_capture""",
    "QNNExecutionProvider": """backend_type backend_path profiling_level profiling_file_path rpc_control_latency vtcm_mb
        htp_performance_mode qnn_saver_path qnn_context_priority htp_graph_finalization_optimization_mode soc_model
        htp_arch device_id enable_htp_fp16_precision offload_graph_io_quantization enable_htp_weight_sharing""",
    "MIGraphXExecutionProvider": """device_id migraphx_fp16_enable migraphx_int8_enable
        migraphx_int8_calibration_table_name migraphx_int8_use_native_calibration_table migraphx_exhaustive_tune
        migraphx_mem_limit migraphx_external_alloc migraphx_external_free migraphx_external_empty_cache""",
    "XnnpackExecutionProvider": "intra_op_num_threads",
}

ELSEWHERE = {"mlas.enable_gemm_fastmath_arm64_bfloat16"}
"""Entries that builds for other processors have."""


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=lambda p: p.name)
def test_options_are_documented_and_told_once(provider) -> None:
    names = [name for name, _ in provider.options]
    assert set(names) <= set(DOCUMENTED.get(provider.name, "").split())
    assert len(names) == len(set(names))
    assert all(what and not what.endswith(".") for _, what in provider.options)


def test_providers_are_those_of_onnxruntime() -> None:
    plugins = {"NvTensorRTRTXExecutionProvider"}
    assert set(PROVIDERS) - plugins <= set(ort.get_all_providers())
    assert set(DOCUMENTED) <= set(PROVIDERS)


def test_entries_are_read_by_this_onnxruntime() -> None:
    library = b"".join(p.read_bytes() for p in (Path(ort.__file__).parent / "capi").glob("onnxruntime_pybind11_state*"))
    missing = [name for name in ENTRIES if name.encode() not in library and name not in ELSEWHERE]
    assert missing == []
    assert b"session.no_such_entry" not in library


def test_this_runtime() -> None:
    found = runtime()
    assert found.providers == target.providers()
    assert "CPUExecutionProvider" in found.started
    assert "AzureExecutionProvider" not in found.preferred
    assert found.preferred[-1] == "CPUExecutionProvider"
    assert found.to_json()["providers"]["CPUExecutionProvider"] == "starts"


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_is_not_built_in_does_not_start() -> None:
    absent = next(each for each in ort.get_all_providers() if each not in ort.get_available_providers())
    assert why_not_started("CPUExecutionProvider") == ""
    assert "missing" in why_not_started(absent)


def test_what_fails_and_what_must_be_asked_for_is_not_preferred() -> None:
    cpu, cuda, tensorrt = (f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "Tensorrt"))
    both = Runtime("1", "", {}, (tensorrt, cuda, cpu))
    assert both.preferred == (cuda, cpu)
    assert Runtime("1", "", {}, (tensorrt, cuda, cpu), {cuda: "no driver"}).preferred == (cpu,)
    assert Runtime("1", "", {}, ()).preferred == (cpu,)
    assert on_request(tensorrt)
    assert on_request("UnheardOfExecutionProvider") == ""


def test_saturation_is_seen_where_sums_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    class Short:
        def __init__(self, *args, **kwargs) -> None:
            pass

        def run(self, names, feeds):
            return [np.full([8, 16], 32 * 32767, np.int32)]

    assert isinstance(saturates(), bool)
    monkeypatch.setattr(ort, "InferenceSession", Short)
    assert room.saturates.__wrapped__() is True
