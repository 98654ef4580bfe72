from __future__ import annotations

import onnxruntime
import pytest

from onnxrewrite.ir import kernels as module
from onnxrewrite.ir.kernels import kernels, known_providers, recorded_from

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
CACHES = (module.built_in, module.kernels, module.known_providers, module._installed)


@pytest.fixture(name="build")
def _build(monkeypatch):
    """A function that makes this process' build one with a further provider."""

    def build(*providers):
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [*providers, CPU])
        for each in CACHES:
            each.cache_clear()

    yield build
    monkeypatch.undo()
    for each in CACHES:
        each.cache_clear()


def rows(found):
    return {key: {(k.first, k.last, frozenset(k.constraints.items())) for k in each} for key, each in found.items()}


def test_the_recorded_kernels_of_the_cpu_are_those_of_their_version():
    recorded = module._recorded()[CPU]
    if recorded["onnxruntime"] != onnxruntime.__version__:
        pytest.skip(f"recorded from ONNX Runtime {recorded['onnxruntime']}, not {onnxruntime.__version__}")
    assert rows(module._rows(CPU, recorded)) == rows(module._listed())


def test_a_build_with_other_providers_is_asked_in_another_process(build, monkeypatch):
    listed = rows(module._listed())
    build("FastExecutionProvider")
    monkeypatch.setattr(module, "_listed", lambda: pytest.fail("it may die of this"))
    assert rows({key: each for key, each in kernels().items() if key[0] == CPU}) == listed
    assert recorded_from(CPU) == ""


@pytest.mark.parametrize("executable", ["false", "", None])
def test_a_build_that_dies_of_being_asked_has_the_recorded_kernels(build, monkeypatch, executable):
    build(CUDA)
    monkeypatch.setattr(module.sys, "executable", executable)
    assert known_providers() == {CPU, CUDA}
    assert recorded_from(CPU) == module._recorded()[CPU]["onnxruntime"]
    assert any(kernel.serves(14) for kernel in kernels()[CPU, "", "Add"])


def test_what_one_provider_has_alone():
    assert (CUDA, "com.microsoft", "PackedAttention") in kernels()
    assert (CPU, "com.microsoft", "PackedAttention") not in kernels()
    assert recorded_from(CUDA)
    assert not recorded_from("NoSuchExecutionProvider")
