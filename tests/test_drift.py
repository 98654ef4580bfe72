"""Exporter drift: how graphs are compared, and that a spread of the exports of one network is raised to few graphs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx_ir as ir
import pytest

from benchmarks import drift
from onnxrewrite.ir import text

EXPORTERS = ("torchscript-14", "torchscript-17", "torchscript-20", "dynamo-18", "dynamo-20", "dynamo-23")

MISSING = {"t5": r"dynamo-\d+-sdpa", "llama_past": r"dynamo-23-\w+-dynamic"}
"""Exports that do not work."""


def portraits(*graphs: str) -> list[drift.Portrait]:
    studio = drift.Studio()
    return [studio.portrait(text.parse(graph)) for graph in graphs]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("float x; a = Relu(x)  y = Neg(a)", "float x; b = Relu(x)  z = Neg(b)"),
        ("float x; a = Relu(x)  b = Neg(x)  y = Add(a, b)", "float x; b = Neg(x)  a = Relu(x)  y = Add(b, a)"),
        ("float x; y = Mul(x, 0.35355335)", "float x; y = Mul(x, 0.35355339)"),
        ("float x; k = Constant<value = float {2.0}>()  y = Mul(x, k)", "float x; y = Mul(x, 2.0)"),
        ("float x; y = LeakyRelu<alpha=0.01>(x)", "float x; y = LeakyRelu(x)"),
        ("float[2,3] x; y = ReduceMean<axes=[-1]>(x)", "float[2,3] x; y = ReduceMean<axes=[1]>(x)"),
        ("float x; float z; a = Add(x, z)  y = Add(a, 2.0)", "float x; float z; a = Add(2.0, x)  y = Add(z, a)"),
        (
            "float[n,4] x; a, b = Split<axis=1>(x, {1, 3})  c = Neg(a)  y = Concat<axis=1>(b, c)",
            "float[n,4] x; a = Slice(x, {0}, {1}, {1})  b = Slice(x, {1}, {9}, {1})  c = Neg(a)  y = Concat<axis=1>(b, c)",
        ),
        ("float x; y = Div(x, 4.0)", "float x; y = Mul(0.25, x)"),
        ("float x; float z; y = Less(x, z)", "float x; float z; y = Greater(z, x)"),
        ("float[2,3] x; y = Softmax<axis=-1>(x)", "float[2,3] x; y = Softmax<axis=1>(x)"),
        ("float[2,3] x; y = Mul(x, {2.0})", "float[2,3] x; y = Mul(x, 2.0)"),
        ("float[n,3] x; y = Unsqueeze(x, {0})", "float[n,3] x; y = Reshape(x, {1, -1, 3})"),
        (
            "float[n,2] x; y = Gemm(x, float[2,1] {1.0, 2.0})",
            "float[n,2] x; y = Gemm<transB=1>(x, float[1,2] {1.0, 2.0})",
        ),
        ("float[n,2] x; y = Cast<to=10>(x)", "float[n,2] x; y = Cast<to=10, saturate=1>(x)"),
        ("float x; y = Elu<alpha=0.35355335>(x)", "float x; y = Elu<alpha=0.35355339>(x)"),
    ],
)
def test_what_counts_as_the_same(a: str, b: str):
    one, other = portraits(a, b)
    assert one == other


@pytest.mark.parametrize(
    ("a", "b", "difference"),
    [
        ("float x; y = Relu(x)", "float x; y = Neg(x)", "+1 Neg -1 Relu; Neg(x) for Relu(x)"),
        ("float x; y = Relu(x)", "float w; y = Relu(w)", "operators equal; Relu(w) for Relu(x)"),
        ("float x; y = Mul(x, 2.0)", "float x; y = Mul(x, 2.1)", "operators equal; Mul(x, {2.1}) for Mul(x, {2})"),
        ("float x; y = Mul(x, 2.0)", "float x; y = Mul(x, {2.0})", "operators equal; Mul(x, {2}) for Mul(x, {2})"),
        (
            "float[n,4] x; y = Reshape(x, {-1, 2})",
            "float[n,4] x; y = Reshape(x, {-1, 1})",
            "operators equal; Reshape(x, {-1, 1}) for Reshape(x, {-1, 2})",
        ),
        ("int64 x; y = Div(x, 2)", "int64 x; y = Div(x, 4)", "operators equal; Div(x, {4}) for Div(x, {2})"),
        (
            "float x; float z; y = Less(x, z)",
            "float x; float z; y = Less(z, x)",
            "operators equal; Less(z, x) for Less(x, z)",
        ),
        ("int64 x; y = Add(x, 2)", "int64 x; y = Add(x, 3)", "operators equal; Add(x, {3}) for Add(x, {2})"),
        (
            "float x; a = Relu(x)  b = Neg(x)  y = Sub(a, b)",
            "float x; a = Relu(x)  b = Neg(x)  y = Sub(b, a)",
            "operators equal; Sub(Neg(…), Relu(…)) for Sub(Relu(…), Neg(…))",
        ),
        ("float x; a = Relu(x)  y = Neg(a)", "float x; y = Relu(x)", "-1 Neg; nothing for Neg(Relu(…))"),
        ("(float x) => (a, a) { a = Relu(x) }", "(float x) => (a) { a = Relu(x) }", "operators equal; nothing for nothing"),
        (
            "float x; y = Elu<alpha=2.0>(x)",
            "float x; y = Elu<alpha=3.0>(x)",
            "operators equal; Elu(x alpha=3.0) for Elu(x alpha=2.0)",
        ),
    ],
)  # fmt: skip
def test_how_graphs_differ(a: str, b: str, difference: str):
    one, other = portraits(a, b)
    assert one != other
    assert one.difference(other) == difference


def test_classes_are_told_from_the_nearest_larger_one():
    graphs = {
        "a-static": "float[4] x; y = Neg(x)",
        "b-static": "float[4] x; y = Relu(x)",
        "c-static": "float[4] x; y = Relu(x)",
        "d-static": "float[4] x; a = Relu(x)  y = Neg(a)",
        "a-dynamic": "float[4] x; a = Relu(x)  y = Neg(a)",
    }
    models = {name: ir.to_proto(text.parse(graph, opset=17)) for name, graph in graphs.items()}
    made = drift.rows(dict(zip(graphs, portraits(*graphs.values()), strict=True)), models)
    assert [(r["class"], r["exports"], r["which"], r["difference"]) for r in made] == [
        ("static 1", 2, "b c", ""),
        ("static 2", 1, "a", "from 1: +1 Neg -1 Relu; Neg(x) for Relu(x)"),
        ("static 3", 1, "d", "from 1: +1 Neg; Neg(Relu(…)) for nothing"),
        ("dynamic 1", 1, "a", ""),
    ]
    assert [r["apart, as used"] is None for r in made] == [True, False, False, True]


def test_what_exports_compute_is_compared():
    seen = "float[2,4] x; bool[2,4] m;"
    lowest, zero, doubled = (
        ir.to_proto(text.parse(f"{seen} {graph}", opset=17))
        for graph in (
            "a = Where(m, x, -3e38)  y = Softmax(a)",
            "a = Where(m, x, -inf)  p = Softmax(a)  n = IsNaN(p)  y = Where(n, 0.0, p)",
            "a = Where(m, x, -3e38)  p = Softmax(a)  y = Mul(p, 2.0)",
        )
    )
    used, masked = drift.gaps(lowest, zero)
    assert used < 1e-6
    assert masked == 1.0
    assert drift.gaps(lowest, doubled) == (pytest.approx(1.0), pytest.approx(1.0))


@pytest.mark.parametrize("network", drift.networks())
def test_the_archives_hold_what_they_should(network: str):
    names = [name for name, _ in drift.exports(network)]
    spellings = [f"{e}-{a}-{x}" for e in EXPORTERS for a in ("eager", "sdpa") for x in drift.AXES]
    assert names == [n for n in spellings if not re.match(MISSING.get(network, "nothing"), n)]


def test_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    model = ir.to_proto(text.parse("float[2] x; a = Sigmoid(x)  y = Mul(x, a)", opset=17))
    made = {"a-static": model, "b-static": model, "a-dynamic": model}
    monkeypatch.setattr(drift, "exports", lambda network: iter(made.items()))
    assert drift.main(["vit", "--json", str(tmp_path / "drift.json")]) == 0
    assert "2 of 2 goals met" in capsys.readouterr().out
    written = json.loads((tmp_path / "drift.json").read_text())
    assert [(r["class"], r["exports"]) for r in written["tables"]["vit"]] == [("static 1", 2), ("dynamic 1", 1)]


@pytest.mark.slow
@pytest.mark.parametrize("network", drift.networks())
def test_both_exporters_are_raised_to_one_graph(network: str):
    studio, spread = (
        drift.Studio(),
        ("torchscript-14-eager-static", "torchscript-20-eager-static", "dynamo-20-eager-static"),
    )
    made = {name: studio.portrait(drift.raised(model)) for name, model in drift.exports(network) if name in spread}
    found = drift.classes(made)
    assert len(found) == 1, made[found[0][0]].difference(made[found[1][0]])
