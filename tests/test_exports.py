"""What exporters made of networks: what is found of what they have, and how that is told."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from benchmarks import exports
from onnxrewrite import io
from onnxrewrite.ir import text

COMMITTED = [export for path in exports.committed() for export in exports.exports(path)]


@pytest.mark.slow
@pytest.mark.parametrize("export", COMMITTED, ids=lambda e: e.name)
def test_what_is_found_is_what_is_not_known_to_be_missing(export: exports.Export):
    result = exports.found(export)
    assert not result.failure
    assert dict(exports.missing(export, result)) == exports.known(export.name)


def test_what_is_known_to_be_missing_is_about_exports_that_there_are():
    assert exports.stated().keys() <= {export.name for export in COMMITTED}


def test_the_archives_are_small():
    assert sum(path.stat().st_size for path in exports.committed()) < 1.4e6


def test_a_normalization_of_groups_is_told_from_one_of_channels():
    model = text.parse(
        "float[n,4,8,8] x; g = Reshape(x, {0, 2, -1})  i = InstanceNormalization(g, {1.0, 1.0}, {0.0, 0.0})"
        "z = Reshape(i, {0, 4, 8, 8})  y = InstanceNormalization(z, {1.0, 1.0, 1.0, 1.0}, {0.0, 0.0, 0.0, 0.0})",
        opset=17,
    )
    facts = exports.Counter(group=1, instance=1)
    export = exports.Export("mine/groups", onnx.ModelProto.SerializeToString(ir.to_proto(model)), facts)
    assert not exports.missing(export, exports.found(export))


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, body in (("whole", "a = Sigmoid(x)  y = Mul(x, a)"), ("other", "a = Sigmoid(x)  y = Add(x, a)")):
        io.save(text.parse(f"float[2] x; {body}", opset=17), folder / f"{name}.onnx")
        facts = "attentions = 0\nrotary = 0\n[normalizations]\n[activations]\nswish = 1\n"
        (folder / f"{name}.toml").write_text(facts)
    assert exports.main([str(folder), "--only", "mine/whole"]) == 0
    assert "1 of 1 goals met" in capsys.readouterr().out
    assert exports.main([str(folder), "--nodes", "--json", str(tmp_path / "exports.json")]) == 1
    rows = json.loads((tmp_path / "exports.json").read_text())["tables"]["mine"]
    assert [(r["network"], r["after"], r["missing"]) for r in rows] == [
        ("mine/other", 2, "swish 1"),
        ("mine/whole", 1, ""),
    ]
