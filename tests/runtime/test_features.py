"""Which features a processor has, asked by whatever name."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from onnxrewrite.errors import UsageError
from onnxrewrite.runtime.features import ALIASES, FEATURES, Processor, brand, family_of, processor, relevant


def test_a_feature_has_several_names() -> None:
    xeon = Processor("a Xeon", "x86_64", features=("avx2", "avx512f", "avx_vnni"))
    for name in ("avx2", "AVX2", "avx512", "AVX512F", "avx_vnni", "AVX-VNNI", "vnni"):
        assert xeon.has(name), name
    for name in ("avx512_vnni", "amx", "amx-int8", "neon", "i8mm"):
        assert not xeon.has(name), name


def test_a_misspelt_feature_is_not_taken_for_missing() -> None:
    with pytest.raises(UsageError, match="no processor feature 'avx1024' is known; known are avx2, "):
        processor().has("avx1024")


def test_aliases_are_of_features_that_there_are() -> None:
    assert set().union(*ALIASES.values()) <= set(FEATURES)
    assert not set(ALIASES) & set(FEATURES)


def test_only_what_makes_a_difference_is_kept_in_order() -> None:
    assert relevant(["sse", "i8mm", "asimd", "fpu"]) == ("asimd", "i8mm")
    assert relevant([]) == ()


def test_families_go_by_many_names() -> None:
    assert [family_of(n) for n in ("AMD64", "x86_64", "arm64", "aarch64", "riscv64")] == [
        "x86_64",
        "x86_64",
        "aarch64",
        "aarch64",
        "other",
    ]


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="the system describes its processor elsewhere")
def test_this_processor_is_what_the_kernel_says() -> None:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    lines = (line.partition(":") for line in text.splitlines())
    flags = next((set(value.split()) for key, _, value in lines if key.strip() in ("flags", "Features")), set[str]())
    found = processor()
    own = {name for name, (family, _) in FEATURES.items() if family == found.family}
    assert set(found.features) & own >= flags & own
    assert found.family == family_of(platform.machine())
    assert found.name == brand() != ""
