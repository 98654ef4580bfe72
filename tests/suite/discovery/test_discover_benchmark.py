"""The benchmark of discovery counts a rule as found again where another replaces the same value by the same operators."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpus import ROOT

from benchmarks import discover
from benchmarks.discover import Fired, fired, found_again
from onnxrewrite.rewrite import registry
from onnxrewrite.suite.discovery.finding import FOUND, REFUTED, Finding, Status

RESNET = ROOT / "golden_models" / "resnet" / "model.onnx"


def finding(name: str, values: list[str], made: str = "com.microsoft.FusedConv", status: Status = FOUND) -> Finding:
    return Finding(name, name, status, "m", ("Conv", "Relu"), (made,), {"m": values})


PLACE = Fired("conv-activation", "m", "y", frozenset({"c", "y"}), frozenset({"com.microsoft.FusedConv"}))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (finding("mine", ["y"]), {"mine"}),
        (finding("part", ["c"]), {"part"}),
        (finding("elsewhere", ["z"]), set()),
        (finding("another", ["y"], made="Softplus"), set()),
        (finding("wrong", ["y"], status=REFUTED), set()),
    ],
)
def test_found_again(found: Finding, wanted: set[str]):
    assert found_again([PLACE], [found]) == {"conv-activation": wanted}


def test_places_where_rules_fire():
    places = fired(RESNET, list(registry.load(plugins=False)))
    assert {p.rule for p in places} == {"conv-activation", "conv-sum"}
    assert all(p.built == {"com.microsoft.FusedConv"} for p in places)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(discover, "corpus", lambda: [RESNET])
    options = ["--only", "again", "--nodes", "2", "--count", "20", "--json", str(tmp_path / "out.json")]
    code = discover.main([*options, "--folder", str(tmp_path / "found")])
    told = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    found = {row["rule"]: row["found again as"] for row in told["tables"]["Rules that fire"]}
    assert "fused-conv-of-conv-relu" in found["conv-activation"]
    assert "fused-conv-of-conv-add" in found["conv-sum"]
    (goal,) = told["goals"]
    assert (goal["value"], goal["met"], code) == (100.0, True, 0)
