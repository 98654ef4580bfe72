"""Cores and memory that a process really has, read from control groups of either version."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from onnxrewrite.system import resources
from onnxrewrite.system.resources import Cores, cores, memory, memory_limit, quota


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n", encoding="utf-8")


def test_no_control_groups_no_limits(tmp_path: Path) -> None:
    assert quota(tmp_path) is None
    assert memory_limit(tmp_path) is None


def test_version_two_counts_the_tightest_group_around_the_process(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/outer/inner")
    put(tmp_path, "sys/fs/cgroup/outer/cpu.max", "150000 100000")
    put(tmp_path, "sys/fs/cgroup/outer/inner/cpu.max", "max 100000")
    put(tmp_path, "sys/fs/cgroup/outer/memory.max", "max")
    put(tmp_path, "sys/fs/cgroup/outer/inner/memory.max", str(2**30))
    assert quota(tmp_path) == 1.5
    assert memory_limit(tmp_path) == 2**30


def test_version_one_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "4:memory:/box\n2:cpu,cpuacct:/box\n1:name=systemd:/box\n0::/")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "200000")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000")
    put(tmp_path, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", str(3 * 2**30))
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    assert quota(tmp_path) == 2.0
    assert memory_limit(tmp_path) == 3 * 2**30


def test_a_container_sees_its_own_group_at_the_root(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "4:memory:/machine/box\n2:cpu:/machine/box")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", str(2**29))
    assert quota(tmp_path) == 0.5
    assert memory_limit(tmp_path) == 2**29


@pytest.mark.parametrize("text", ["", "max", "x y", "-1 100000", "0 0", "100k"])
def test_rubbish_is_no_limit(tmp_path: Path, text: str) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/\nnonsense\n::")
    put(tmp_path, "sys/fs/cgroup/cpu.max", text)
    put(tmp_path, "sys/fs/cgroup/memory.max", text)
    assert quota(tmp_path) is None
    assert memory_limit(tmp_path) is None


@pytest.mark.parametrize(
    ("found", "threads"),
    [
        (Cores(64, 32, 64, 32), 32),
        (Cores(64, 32, 64, 32, 2.0), 2),
        (Cores(64, 32, 64, 32, 1.5), 1),
        (Cores(64, 32, 64, 32, 0.2), 1),
        (Cores(64, 32, 64, 32, 100.0), 32),
        (Cores(64, 32, 4, 2), 2),
    ],
)
def test_threads_are_one_a_core_within_the_quota(found: Cores, threads: int) -> None:
    assert found.threads == threads
    assert found.to_json()["threads"] == threads


def test_threads_of_one_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        siblings = "0,2" if number % 2 == 0 else "1,3"
        put(tmp_path, f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", siblings)
    monkeypatch.setattr(resources, "_affinity", lambda: [0, 2, 3])
    assert cores(tmp_path).allowed == 3
    assert cores(tmp_path).allowed_physical == 2


def test_where_affinity_is_unknown_all_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_affinity", list)
    found = cores(tmp_path)
    assert found.allowed == found.logical == psutil.cpu_count()
    assert 1 <= found.allowed_physical <= found.logical


def test_memory_is_no_more_than_a_group_allows(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/")
    put(tmp_path, "sys/fs/cgroup/memory.max", str(2**20))
    assert memory(tmp_path).limit == memory(tmp_path).available == 2**20
    put(tmp_path, "sys/fs/cgroup/memory.max", str(2**55))
    found = memory(tmp_path)
    assert found.limit is None
    assert 0 < found.available <= found.total


def test_this_process() -> None:
    found = cores()
    assert 1 <= found.threads <= found.allowed_physical <= found.allowed <= found.logical
