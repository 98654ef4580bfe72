"""The same model and the same rules give the same bytes: in every process, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import GOLDEN_FILES, few

from onnxrewrite import io
from onnxrewrite.api.application import apply
from onnxrewrite.ir import text
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Stage

ROOT = Path(__file__).resolve().parents[1] / "golden_models"

SCRIPT = """
import hashlib, sys
junk = [object() for _ in range(int(sys.argv[2]) * 997)]  # other addresses, too
import onnxrewrite as rw
from onnxrewrite import io
for level, name in (each.split(":") for each in sys.argv[3:]):
    result = rw.apply(f"{sys.argv[1]}/{name}/model.onnx", check=level)
    undone = sorted(result.checks.undone)
    refused = [(r, v, why) for r, of in result.trace.refused.items() for v, why in of.items()]
    told = repr([result.trace.applied, refused, undone, result.notes])
    print(name, hashlib.sha256(io.to_bytes(result.model)).hexdigest(), hashlib.sha256(told.encode()).hexdigest())
"""


def told(seeds: list[int], asked: list[str], at_once: int = 3) -> list[list[str]]:
    """What processes of these hash seeds print, line by line."""
    printed: list[list[str]] = []
    for start in range(0, len(seeds), at_once):
        runs = [
            subprocess.Popen(
                [sys.executable, "-c", SCRIPT, str(ROOT), str(seed), *asked],
                env={**os.environ, "PYTHONHASHSEED": str(seed)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in seeds[start : start + at_once]
        ]
        printed += [run.communicate()[0].splitlines() for run in runs]
        assert not any(run.returncode for run in runs)
    return printed


@pytest.mark.slow
def test_two_processes_two_hash_seeds_the_same_bytes() -> None:
    asked = ["off:bert_dynamo", "fast:bert_dynamo"]
    printed = told([0, 4242], asked)
    assert len(printed[0]) == len(asked)
    for lines in zip(*printed, strict=True):
        assert len(set(lines)) == 1, lines
    assert printed[0][0] == printed[0][1], "checks do not change the result"


@pytest.mark.slow
def test_eight_hash_seeds_the_same_bytes() -> None:
    """Where a set has two elements in the wrong place, one of so many processes tells with all but certainty."""
    asked = ["off:vit", "off:nhwc_cnn", "off:yolo", "fast:nhwc_cnn"]
    printed = told(list(range(8)), asked, at_once=2)
    assert len(printed) == 8
    assert len(printed[0]) == len(asked)
    for lines in zip(*printed, strict=True):
        assert len(set(lines)) == 1, lines


@pytest.mark.parametrize("path", few(GOLDEN_FILES))
def test_the_worklist_reaches_the_fixpoint(path: Path) -> None:
    """What one run has left, a second look at every node does not change; nor does one with facts inferred afresh."""
    rules = registry.load(plugins=False).select()
    model = io.load(path)
    driver = Driver(model, rules, target("onnxruntime-cpu"))
    for stage in Stage:
        active = [r for r in rules if r.stage in (Stage.CANONICALIZE, stage)]
        driver.run_stage(stage, active)
        applied = len(driver.trace.applied)
        driver.run_stage(stage, active)
        assert [a.key for a in driver.trace.applied[applied:]] == []
    assert driver.trace.warnings == []
    afresh = Driver(model, rules, target("onnxruntime-cpu")).run()
    assert [a.key for a in afresh.applied] == []


@pytest.mark.parametrize("name", ["bert_dynamo", "nhwc_cnn", "vit", "yolo"])
def test_looking_for_conflicts_changes_nothing(name: str) -> None:
    path = ROOT / name / "model.onnx"
    plain, asked = (apply(path, check="off", conflicts=c) for c in (False, True))
    assert io.to_bytes(asked.model) == io.to_bytes(plain.model)
    assert asked.trace.applied == plain.trace.applied
    assert asked.trace.refused == plain.trace.refused
    assert asked.notes == plain.notes


def test_names_of_shared_tensors_do_not_reach_the_file() -> None:
    """onnx_ir renames a tensor with its value, in every model that shares it: what was tried before is not to be seen."""
    model = text.parse("float[4] x; c = Constant<value=float[4] {1.0, 2.0, 3.0, 4.0}>()  y = Add(x, c)", opset=17)
    before = io.to_bytes(model)
    other = io.load(model)
    (constant,) = [n for n in other.graph if n.op_type == "Constant"]
    constant.attributes["value"].as_tensor().name = "something else"
    assert io.to_bytes(model) == before
