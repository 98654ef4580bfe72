"""Rules over layers and bodies in the driver: they are asked again when something in a layer or a body has changed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

import onnxrewrite as rw
from onnxrewrite.errors import RuleError
from onnxrewrite.rules import Assumption, Body, Builder, Const, Each, Match, Repeat, Rule, Stage, Value, Var, op, rule
from onnxrewrite.ruletest.fuzz import fuzz
from onnxrewrite.ruletest.fuzz.generation import attempts
from tests.rewrite.driving import drive

x, w, s = Var("x"), Const("w"), Var("s")
LAYERS = Repeat(op.MatMul(x, w), x)


@rule("product", Stage.LOWER, LAYERS, assumes=(Assumption.FINITE, Assumption.IN_RANGE))
def product(m: Match, build: Builder) -> Value:
    """x·w₁·w₂·… ⟶ x·(w₁·w₂·…)."""
    weights = [layer[w] for layer in m.layers(LAYERS)]
    m.require(all(each.ndim == 2 for each in weights), "a weight is no matrix")
    return build.MatMul(m[x], build.const(np.linalg.multi_dot(weights), like=x))


@rule("wrong-product", Stage.LOWER, LAYERS, assumes=(Assumption.FINITE, Assumption.IN_RANGE))
def wrong_product(m: Match, build: Builder) -> Value:
    """x·w₁·w₂·… ⟶ x·(…·w₂·w₁)."""
    weights = [layer[w] for layer in reversed(m.layers(LAYERS))]
    m.require(len({each.shape for each in weights}) == 1 and weights[0].shape[0] == weights[0].shape[1], "not square")
    return build.MatMul(m[x], build.const(np.linalg.multi_dot(weights), like=x))


WEIGHT = "float[2,2] {1.0, 2.0, 3.0, 4.0}"


def operators(driver) -> list[str]:
    return [n.op_type for n in driver.model.graph]


def test_all_layers_are_replaced_at_once() -> None:
    layers = "  ".join(f"v{i} = MatMul(v{i - 1}, {WEIGHT})" for i in range(1, 8))
    driver = drive(f"float[n,2] v0; {layers}  y = Relu(v7)", [product])
    assert operators(driver) == ["MatMul", "Relu"]
    assert len(driver.trace.applied) == 1
    (node, *_) = driver.model.graph
    weight = node.inputs[1].const_value.numpy()
    assert np.array_equal(weight, np.linalg.matrix_power(np.array([[1.0, 2.0], [3.0, 4.0]]), 7).astype(np.float32))


def test_the_end_of_the_row_is_visited_when_its_first_layer_has_become_one() -> None:
    """What becomes a layer far above changes what matches at the end."""
    becomes = Rule("becomes", Stage.LOWER, op.Gemm(x, w), lambda m, b: b.MatMul(m[x], m.value(w)))
    layers = "  ".join(f"v{i} = MatMul(v{i - 1}, {WEIGHT})" for i in range(2, 5))
    driver = drive(f"float[n,2] v0; v1 = Gemm(v0, {WEIGHT})  {layers}  y = Relu(v4)", [product, becomes])
    assert operators(driver) == ["MatMul", "Relu"]


def test_a_node_is_visited_when_its_body_has_changed() -> None:
    state, part = Var("state"), Var("part")
    body = Body([op.Add(state, part), op.Relu(part)], [state, part])
    scan = op.Scan(x, s, body=body, num_scan_inputs=1)
    sums = Rule("sums", Stage.LOWER, scan[1], lambda m, b: b.Relu(m[s]))
    becomes = Rule("becomes", Stage.LOWER, op.Max(x, 0.0), lambda m, b: b.Relu(m[x]))
    source = """float[2] h; float[3,2] a; l, y = Scan<num_scan_inputs=1, body = b (float[2] i, float[2] j) => (float[2] o, float[2] r)
        { o = Add(i, j)  r = Max(j, 0.0) }>(h, a)"""
    driver = drive(f"(float[2] h, float[3,2] a) => (y) {{ {source.partition('; float[3,2] a;')[2]} }}", [sums, becomes])
    assert operators(driver) == ["Relu"]


def test_rows_are_fuzzed() -> None:
    assert fuzz(product, [product], count=12).passed
    verdict = fuzz(wrong_product, [wrong_product], count=40)
    assert not verdict.passed
    assert verdict.counterexample is not None


def test_linked_inputs_are_fuzzed() -> None:
    total = Var("total")
    new = op.Add(total, s)
    parts: Each[Match] = Each("parts", of=op.Unsqueeze(new, Const("axes")), carry={total: new}, at_least=2)
    rising = Rule("rising", Stage.LOWER, op.Concat(parts, axis=0), lambda m, b: b.Identity(m.anchor))
    graphs = [m for m in attempts(rising, 4) if isinstance(m, ir.Model)]
    assert graphs
    for model in graphs:
        sums = [n for n in model.graph if n.op_type == "Add"]
        assert len(sums) >= 2
        assert all(b.inputs[0] is a.outputs[0] for a, b in itertools.pairwise(sums))


def test_a_term_of_a_layer_is_no_replacement() -> None:
    with pytest.raises(RuleError, match="which not every match of the pattern binds"):
        rule("first", Stage.LOWER, LAYERS, op.MatMul(x, w))
    made = rule("start", Stage.LOWER, Repeat(op.Identity(op.Neg(x)), x), op.Abs(x))
    assert made.summary


@pytest.mark.parametrize("kept", [True, False], ids=["joined in front", "joined behind"])
def test_a_scan_that_rules_build_may_be_empty(kept: bool, tmp_path: Path) -> None:
    """Joined along another axis, an empty result ends the process of ONNX Runtime."""

    @rule("as-scan", Stage.LOWER, op.CumSum(x, Const("axis")), assumes=(Assumption.FINITE,))
    def as_scan(m: Match, build: Builder) -> Value:
        """CumSum(x, 0) ⟶ Scan."""
        first = build.Squeeze(build.Mul(build.Slice(m[x], np.array([0]), np.array([1]), np.array([0])), 0.0), axes=(0,))

        def step(inner: Builder, states, parts):
            total = inner.Add(states[0], parts[0])
            return [total], [total]

        made = build.scan(step, [first], [(m[x], 0)], [0 if kept else 1])[1]
        return made if kept else build.Transpose(made, perm=(1, 0))

    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[3,n] x) => (float[3,n] y)'
        " <int64 axis = {0}> { c = CumSum(x, axis)  y = Relu(c) }"
    )
    result = rw.apply(model, rules=[as_scan], only=["as-scan"], lower="fused", dims={})
    assert not result.trace.refused.get("as-scan")
    assert "Scan" in [n.op_type for n in result.model.graph]
    assert result.checks.sites_not_run == {}
    result.save(tmp_path / "out.onnx")
    session = rw.session(tmp_path / "out.onnx")
    assert session.run(None, {"x": np.zeros((3, 0), np.float32)})[0].shape == (3, 0)
    assert session.run(None, {"x": np.ones((3, 2), np.float32)})[0].tolist() == [[1, 1], [2, 2], [3, 3]]
