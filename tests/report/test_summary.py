"""The plain data behind every report."""

import dataclasses
import json

import onnx
import onnx_ir as ir
import pytest

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.io.statistics import operator_counts, stored_bytes
from onnxrewrite.report import summary as summaries
from onnxrewrite.report.summary import grouped, summary

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 8] x) => (float[batch, 8] y, float[batch, 8] m) {
  r = Relu(x)  m = Neg(r)  s = Relu(m)  y = Abs(s)
}"""

x = rw.rules.Var("x")


def to_clip(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
    """Relu(x) ⟶ Max(x, 0)."""
    return build.Max(m[x], build.const(0.0, like=x))


def to_product(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
    """Neg(x) ⟶ x·(-1)."""
    return build.Mul(m[x], build.const(-1.0, like=x))


def to_half(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
    """Abs(x) ⟶ x/2, which is wrong."""
    return build.Mul(m[x], build.const(0.5, like=x))


def never(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
    """Neg(x) ⟶ x, which is refused."""
    m.require(False, "`m` must not be negated, nor [1, 2]", at=x)
    return m[x]


def nothing(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
    """Erf(x) ⟶ x, which never matches."""
    return m[x]


CLIP = rw.rules.Rule("t-relu", rw.rules.Stage.CANONICALIZE, rw.rules.op.Relu(x), to_clip)
WRONG = rw.rules.Rule("t-abs", rw.rules.Stage.RAISE, rw.rules.op.Abs(x), to_half)
NEVER = rw.rules.Rule("t-neg", rw.rules.Stage.CANONICALIZE, rw.rules.op.Neg(x), never)
NOTHING = rw.rules.Rule("t-erf", rw.rules.Stage.RAISE, rw.rules.op.Erf(x), nothing)
RULES = [NOTHING, WRONG, CLIP, NEVER]


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("onnxrewrite.compiler.run.registry.load", lambda names: rw_registry())
    return rw.apply(onnx.parser.parse_model(MODEL), rules=RULES)


def rw_registry():
    from onnxrewrite.rewrite.registry import Registry

    return Registry()


def test_rules(result):
    assert summary(result)["rules"] == [
        {"rule": "t-relu", "stage": "canonicalize", "applied": 2, "refused": 0, "undone": 0, "asked": True, "reasons": {}},
        {
            "rule": "t-neg", "stage": "canonicalize", "applied": 0, "refused": 1, "undone": 0, "asked": True,
            "reasons": {"`…` must not be negated, nor […]": 1},
        },
        {"rule": "t-abs", "stage": "raise", "applied": 0, "refused": 0, "undone": 1, "asked": True, "reasons": {}},
    ]  # fmt: skip


def test_operators(result):
    data = summary(result)
    assert data["operators"]["before"] == {"Abs": 1, "Neg": 1, "Relu": 2}
    assert data["operators"]["after"] == {"Abs": 1, "Max": 2, "Neg": 1}
    assert data["nodes"] == {"before": 4, "after": 4}
    assert data["size"]["after"] == len(io.to_bytes(result.model))


def test_undone_and_refused(result):
    data = summary(result)
    ((undone),) = data["undone"]
    assert (undone["rule"], undone["value"], undone["by"]) == ("t-abs", "y", "site")
    assert [(r["rule"], r["value"]) for r in data["refused"]] == [("t-neg", "m")]
    assert data["refused"][0]["reason"].startswith("`m` must not be negated, nor [1, 2]")
    assert [(s["rule"], s["value"], s["after"]) for s in data["sites"]] == [
        ("t-relu", "r", ["Max"]),
        ("t-relu", "s", ["Max"]),
    ]


def test_assumes(result, monkeypatch):
    assert summary(result)["assumes"] == {}
    monkeypatch.setattr("onnxrewrite.compiler.run.registry.load", lambda names: rw_registry())
    finite, not_empty = rw.rules.Assumption.FINITE, rw.rules.Assumption.NOT_EMPTY
    rules = [
        dataclasses.replace(CLIP, assumes=(finite,)),
        dataclasses.replace(NEVER, assumes=(finite,)),
        dataclasses.replace(WRONG, assumes=(not_empty,)),
        rw.rules.Rule("t-mul", rw.rules.Stage.RAISE, rw.rules.op.Neg(x), to_product, assumes=(not_empty, finite)),
    ]
    data = summary(rw.apply(onnx.parser.parse_model(MODEL), rules=rules))
    assert data["assumes"] == {"inputs are finite": ["t-relu", "t-mul"], "no dimension is zero": ["t-mul"]}


def test_conflicts(result, monkeypatch):
    assert summary(result)["conflicts"] == []
    monkeypatch.setattr("onnxrewrite.compiler.run.registry.load", lambda names: rw_registry())
    rivals = [
        rw.rules.Rule(f"t-{n}", rw.rules.Stage.CANONICALIZE, rw.rules.op.Relu(x), to_clip, benefit=b)
        for n, b in (("a", 3), ("b", -2))
    ]
    asked = rw.apply(onnx.parser.parse_model(MODEL), rules=[*RULES, *rivals], conflicts=True)
    assert summary(asked)["conflicts"] == [
        {"winner": "t-a", "loser": "t-b", "benefits": [3, -2], "places": 2},
        {"winner": "t-a", "loser": "t-relu", "benefits": [3, 0], "places": 2},
    ]


def test_checks(result):
    checks = summary(result)["checks"]
    assert checks["level"] == "full"
    assert checks["structure"] == []
    assert checks["sites"] == {"run": 2, "distinct": 1, "remembered": 0, "not_run": {}}
    model = checks["model"]
    assert (model["ok"], model["identical"], model["runs"], model["samples"]) == (True, True, 6, 3)
    assert model["largest"] is None
    assert [o["name"] for o in model["outputs"]] == ["y", "m"]


def test_every_key_is_documented(result):
    data = summary(result)
    documented = summary.__doc__ or ""
    assert all(f"``{key}``" in documented for key in data)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert result.to_json() == data
    for function, keys in (
        (summaries.checks, data["checks"]),
        (summaries.model_check, data["checks"]["model"]),
    ):
        assert all(f"``{key}``" in (function.__doc__ or "") for key in keys)


def test_paths(result, tmp_path):
    assert (summary(result)["model"], summary(result)["output"]) == (None, None)
    data = summary(result, model="a.onnx", output=tmp_path / "b.onnx")
    assert (data["model"], data["output"]) == ("a.onnx", str(tmp_path / "b.onnx"))


def test_check_off(monkeypatch):
    data = summary(rw.apply(onnx.parser.parse_model(MODEL), check="off"))
    assert data["checks"]["model"] is None
    assert data["checks"]["sites"]["run"] == 0


@pytest.mark.parametrize(
    ("reason", "group"),
    [
        ("`a` inside the match is also used by Mul `b`", "`…` inside the match is also used by Mul `…`"),
        ("not the same: [1, n] and [] (at `x/y`)", "not the same: […] and […]"),
        ("dimension 0 of the result is _d17", "dimension 0 of the result is …"),
        ("expected 1.41421, found 1.5", "expected 1.41421, found 1.5"),
        ("", ""),
    ],
)
def test_grouped(reason, group):
    assert grouped(reason) == group


def test_operators_of_subgraphs_and_functions_are_counted():
    text = """<ir_version: 8, opset_import: ["": 17, "local": 1]>
    g (float[2] x, bool c) => (float[2] y) {
      k = Constant<value = float {2.0}>()
      t = If (c) <then_branch = a () => (float[2] p) { p = Relu(x) },
                  else_branch = b () => (float[2] q) { q = Abs(x) }>
      m = Mul(t, k)
      y = local.twice(m)
    }
    <domain: "local", opset_import: ["": 17]> twice (v) => (r) { r = Add(v, v) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    assert operator_counts(model) == {"Abs": 1, "Add": 1, "If": 1, "Mul": 1, "Relu": 1, "local.twice": 1}


def test_size_of_a_huge_model_reads_nothing():
    class Unread(ir.LazyTensor):
        pass

    def read():
        raise AssertionError("the weights were read")

    shape = ir.Shape([1024, 1024, 1024])
    tensor = Unread(read, ir.DataType.FLOAT, shape=shape, name="w")
    weight = ir.Value(name="w", shape=shape, type=ir.TensorType(ir.DataType.FLOAT), const_value=tensor)
    node = ir.node("Identity", [weight])
    model = ir.Model(ir.Graph([], node.outputs, nodes=[node], initializers=[weight]), ir_version=8)
    assert stored_bytes(model) == 2**32
