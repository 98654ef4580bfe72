"""What follows from a machine: for other machines than this one, and for this one."""

from __future__ import annotations

import json

import pytest
from machines import CPU, CUDA, TENSORRT, a_machine

import onnxrewrite as rw
from onnxrewrite.errors import UsageError
from onnxrewrite.runtime.installed import Runtime
from onnxrewrite.runtime.machine import Machine
from onnxrewrite.system.resources import Cores, Memory


def lines(machine: Machine, topic: str) -> str:
    return "\n".join(f"{a.says} | {a.because}" for a in machine.advice if a.topic == topic)


def test_vnni_makes_int8_pay_without_saturation() -> None:
    for feature in ("avx512_vnni", "avx_vnni", "amx_int8"):
        found = a_machine("avx2", feature)
        assert found.int8.pays
        assert not found.int8.reduce_range
        assert (found.int8.best.activations, found.int8.best.weights) == ("uint8", "int8")
        assert "int8 pays: uint8 activations x int8 weights" in lines(found, "int8")
        assert "without saturation" in found.int8.why


def test_without_vnni_products_saturate() -> None:
    found = a_machine("avx2", "avx512f")
    assert not found.int8.pays
    assert found.int8.reduce_range
    assert not found.int8.best.exact
    assert "reduce_range" in lines(found, "int8")
    assert next(f for f in found.int8.forms if f.weights == "uint8").exact


def test_what_was_tried_counts_more_than_what_is_said() -> None:
    assert not a_machine("avx2", saturates=False).int8.reduce_range
    assert a_machine("avx2", "avx_vnni", saturates=True).int8.reduce_range


@pytest.mark.parametrize(("features", "pays"), [(("asimd",), "maybe"), (("asimddp",), "yes"), (("i8mm",), "yes")])
def test_arm_takes_both_signs(features: tuple[str, ...], pays: str) -> None:
    found = a_machine(*features, family="aarch64").int8
    assert found.best.pays == pays
    assert (found.best.activations, found.best.weights) == ("int8", "int8")
    assert not found.reduce_range
    assert all(form.exact for form in found.forms)


def test_an_unknown_processor_is_to_be_measured() -> None:
    found = a_machine(family="other", saturates=True).int8
    assert (found.best.pays, found.best.exact, found.reduce_range) == ("maybe", False, True)


def test_bfloat16_on_arm_is_an_entry_of_the_session() -> None:
    assert "fastmath_arm64" in lines(a_machine("asimd", "bf16", family="aarch64"), "bfloat16")
    assert not lines(a_machine("avx512_bf16"), "bfloat16")


@pytest.mark.parametrize(
    ("cores", "says"),
    [
        (Cores(2, 2, 2, 2), "intra-op threads: 2 | 2 cores; more threads do not help"),
        (Cores(1, 1, 1, 1), "intra-op threads: 1 | 1 core; more"),
        (Cores(16, 8, 16, 8), "intra-op threads: 8 | 8 cores; more threads do not help, not even on the second"),
        (Cores(64, 32, 64, 32, 1.5), "intra-op threads: 1 | a control group allows the time of 1.5 of 32 cores"),
        (Cores(64, 32, 4, 2), "intra-op threads: 2 | the affinity of this process allows 4 of 64 hardware threads"),
    ],
)
def test_threads_have_a_reason(cores: Cores, says: str) -> None:
    assert says in lines(a_machine(cores=cores), "threads")
    assert a_machine(cores=cores).threads == cores.threads
    assert bool(lines(a_machine(cores=cores), "spinning")) == (cores.threads <= 2)


def test_a_gpu_that_does_not_start_is_told() -> None:
    found = a_machine(runtime=Runtime("1", "", {}, (TENSORRT, CUDA, CPU), {CUDA: "no driver", TENSORRT: "none either"}))
    assert "CUDA is built in and does not start | no driver" in lines(found, "provider")
    assert "float16 halves the file" in lines(found, "float16")
    assert found.providers == (CPU,)


def test_a_gpu_that_starts_is_taken_and_tensorrt_is_asked_for() -> None:
    found = a_machine(runtime=Runtime("1", "", {}, (TENSORRT, CUDA, CPU)))
    assert found.providers == (CUDA, CPU)
    assert "Tensorrt starts; ask for it: --provider tensorrt" in lines(found, "provider")
    assert "float16 pays on the GPU" in lines(found, "float16")
    assert "pip install" not in lines(found, "provider")


@pytest.mark.parametrize(
    ("system", "package"), [("Linux", "onnxruntime-gpu"), ("Windows", "directml"), ("Darwin", "webgpu")]
)
def test_a_build_without_a_gpu_says_which_has_one(system: str, package: str) -> None:
    assert package in lines(a_machine(system=system), "provider")


def test_two_packages_of_onnxruntime_are_one_too_many() -> None:
    both = Runtime("1", "", {"onnxruntime": "1.32", "onnxruntime-gpu": "1.31"}, (CPU,))
    assert "keep one of onnxruntime, onnxruntime-gpu" in lines(a_machine(runtime=both), "provider")


def test_memory_is_told_where_it_is_tight() -> None:
    assert "must fit into 1.0 GiB" in lines(a_machine(memory=Memory(2**36, 2**30, 2**30)), "memory")
    assert not lines(a_machine(), "memory")


def test_missing_packages_are_named_once_each() -> None:
    found = a_machine(packages={"torch": None, "onnxslim": None, "onnxsim": None})
    told = [a.says for a in found.advice if a.topic == "package"]
    assert told.count("pip install 'onnxrewrite[peers]'") == 1
    assert "pip install 'onnxrewrite[torch]'" in told


def test_every_piece_of_advice_has_a_reason() -> None:
    for machine in (a_machine(), a_machine("i8mm", "bf16", family="aarch64"), rw.sessions.machine()):
        assert all(each.says and each.because for each in machine.advice)


def test_this_machine() -> None:
    found = rw.sessions.machine()
    assert (found.processor, found.runtime) == (rw.sessions.machine().processor, rw.sessions.machine().runtime)
    assert found.threads >= 1
    assert found.saturates in (True, False)
    assert found.int8.reduce_range == found.saturates
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["cores"]["threads"] == found.threads
    with pytest.raises(UsageError):
        found.has("quantum")
