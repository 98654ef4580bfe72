"""SimplifiedLayerNormalization, which ONNX Runtime has in the standard's own domain: read, matched, emitted and run."""

from __future__ import annotations

import pytest

import onnxrewrite as rw
from onnxrewrite.ir import schema, text
from onnxrewrite.ir.facts import Facts

x, gamma = rw.rules.Var("x", dtype=rw.rules.FLOATS), rw.rules.Var("gamma")
epsilon = rw.rules.Attr[float]("epsilon", default=1e-5)

SPELLED = "float[n,8] x; float[8] g; r = RMSNormalization<epsilon=1e-6>(x, g)  y = Relu(r)"
SQUATTING = "float[n,8] x; float[8] g; r = SimplifiedLayerNormalization<epsilon=1e-6>(x, g)  y = Relu(r)"


def emit(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
    """RMSNormalization(x, γ) ⟶ SimplifiedLayerNormalization(x, γ)."""
    return build.SimplifiedLayerNormalization(m[x], m[gamma], epsilon=m[epsilon], axis=-1)


def spell(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
    """SimplifiedLayerNormalization(x, γ) ⟶ x/√(mean(x²) + ε)·γ."""
    mean = build.ReduceMean(build.Mul(m[x], m[x]), axes=(-1,), keepdims=1)
    root = build.Sqrt(build.Add(mean, build.const(m[epsilon], like=x)))
    return build.Mul(build.Div(m[x], root), m[gamma])


EMITS = rw.rules.Rule(
    "emits", rw.rules.Stage.LOWER, rw.rules.op.RMSNormalization(x, gamma, epsilon=epsilon), emit, benefit=1000
)
READS = rw.rules.Rule(
    "reads",
    rw.rules.Stage.RAISE,
    rw.rules.op.SimplifiedLayerNormalization(x, gamma, epsilon=epsilon),
    spell,
    benefit=1000,
)


@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_a_rule_emits_it(opset: int, dtype: str) -> None:
    graph = SPELLED.replace("float[", f"{dtype}[")
    if opset < 23:
        graph = graph.replace(
            "r = RMSNormalization<epsilon=1e-6>(x, g)",
            "p = Mul(x, x)  m = ReduceMean<axes=[-1], keepdims=1>(p)  a = Add(m, 1e-3)  s = Sqrt(a)  d = Div(x, s)  r = Mul(d, g)",
        )
    done = rw.apply(text.parse(graph, opset=opset), rules=[EMITS], lower="fused")
    assert done.trace.counts()["emits"] == 1, done.trace.refused
    assert "SimplifiedLayerNormalization" in [n.op_type for n in done.model.graph]
    assert done.checks.model is not None
    assert done.checks.model.ok


def test_a_rule_reads_it() -> None:
    done = rw.apply(text.parse(SQUATTING, opset=17), rules=[READS], only=["reads"], lower="fused")
    assert done.trace.counts()["reads"] == 1, done.trace.refused
    assert done.checks.model is not None
    assert done.checks.model.ok


def test_its_result_is_known() -> None:
    model = text.parse(SQUATTING, opset=17)
    facts = Facts(model.graph, dict(model.opset_imports))
    result = model.graph.node(0).outputs[0]
    assert [str(d) for d in facts.shape(result) or ()] == ["n", "8"]
    assert facts.dtype(result) is model.graph.inputs[0].dtype


def test_the_standard_has_it_not() -> None:
    done = rw.apply(text.parse(SPELLED, opset=23), rules=[EMITS], target="onnx", lower="fused")
    assert done.trace.counts()["emits"] == 0
    assert not schema.has_body(schema.schema("", "SimplifiedLayerNormalization", 17))
