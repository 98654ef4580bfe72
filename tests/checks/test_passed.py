"""Checks that passed in an earlier run, and those that are run again all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir
import pytest

from onnxrewrite.checks import passed
from onnxrewrite.checks.passed import Passed
from onnxrewrite.checks.site import SiteCheck

OK = SiteCheck("ok", error_rewritten=1e-7, bound=1e-6, where="output y", bindings=[{"b": 2}], runs=3, seconds=1.0)
WEIGHT = " ".join(["{", ", ".join(f"{0.1 + n / 100:.2f}" for n in range(20)), "}"])
OTHER = WEIGHT.replace("0.15", "0.16")
SIDE = "g (float[20] x) => (float[20] y) <float[20] w = %s> { y = Add(x, w) }"


class Memory:
    """Remembers in a dictionary."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    def passed(self, check: str) -> str:
        return self.told.get(check, "")

    def keep_passed(self, told: Mapping[str, str]) -> None:
        self.told |= told


class Bench:
    """Answers with one result, and counts."""

    def __init__(self, result: SiteCheck = OK) -> None:
        self.result, self.runs = result, 0

    def __call__(self) -> SiteCheck:
        self.runs += 1
        return self.result


@pytest.fixture
def sides(model: Any) -> Any:
    return lambda weight=WEIGHT: [ir.from_proto(model(SIDE % weight))] * 2


def in_a_run(memory: Memory, key: str, sides: Any, run: Bench) -> tuple[SiteCheck, Passed]:
    own = Passed(memory)
    found = own.check(key, sides, run)
    own.keep()
    return found, own


def test_what_passed_is_not_run_again_and_told_as_it_was(sides: Any) -> None:
    memory, bench = Memory(), Bench()
    assert in_a_run(memory, "key", sides(), bench)[0] == OK
    again, own = in_a_run(memory, "key", sides(), bench)
    assert bench.runs == 1
    assert own.recalled == {"key"}
    assert again.cached
    assert again.to_json() == OK.to_json() | {"cached": True, "seconds": 0.0}


def test_weights_count_to_the_last_bit(sides: Any) -> None:
    memory, bench = Memory(), Bench()
    in_a_run(memory, "key", sides(), bench)
    in_a_run(memory, "key", sides(OTHER), bench)
    assert bench.runs == 2


def test_another_key_or_program_is_another_check(sides: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, bench = Memory(), Bench()
    in_a_run(memory, "key", sides(), bench)
    in_a_run(memory, "another seed", sides(), bench)
    monkeypatch.setattr(passed, "versions", lambda: {"onnxrewrite source": "another"})
    in_a_run(memory, "key", sides(), bench)
    assert bench.runs == 3


@pytest.mark.parametrize("status", ["failed", "not run"])
def test_what_did_not_pass_is_run_again(sides: Any, status: Any) -> None:
    memory, bench = Memory(), Bench(SiteCheck(status, "for some reason"))
    for _ in range(2):
        assert in_a_run(memory, "key", sides(), bench)[0].status == status
    assert bench.runs == 2
    assert not memory.told


@pytest.mark.parametrize("told", ["7", "[]", "{", '{"status": "ok"}', "null"])
def test_what_cannot_be_read_is_run_again(sides: Any, told: str) -> None:
    memory, bench = Memory(), Bench()
    in_a_run(memory, "key", sides(), bench)
    memory.told = dict.fromkeys(memory.told, told)
    in_a_run(memory, "key", sides(), bench)
    assert bench.runs == 2


def test_a_failure_that_somebody_wrote_there_is_run_again(sides: Any) -> None:
    memory, bench = Memory(), Bench()
    in_a_run(memory, "key", sides(), bench)
    memory.told = {check: told.replace('"ok"', '"failed"') for check, told in memory.told.items()}
    assert in_a_run(memory, "key", sides(), bench)[0].ok
    assert bench.runs == 2
