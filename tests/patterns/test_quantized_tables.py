"""Functions of 8-bit integers as tables: the same bits for every integer, and nothing that is no function of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnxrewrite_patterns import quantized_operators, quantized_tables
from sides import Sides, rewrite, run

import onnxrewrite as rw
from onnxrewrite.ir import text
from onnxrewrite.rewrite.registry import rules_of

RULES = tuple(rules_of(quantized_tables))
TOGETHER = (*RULES, *rules_of(quantized_operators))

UNARY = ("Abs", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu<alpha=0.3>", "Neg", "Relu", "Sigmoid", "Sin")
UNARY += ("Softplus", "Tanh", "Elu", "Floor", "Identity")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Pow")
CONSTANTS = ("0.5", "1.41421356", "3.0", "{2.0}", "-1.25")

GELU = (
    "x = DequantizeLinear(q, 0.03, {dtype} {zero})  d = Div(x, 1.41421356)  e = Erf(d)"
    "p = QuantizeLinear(e, 0.0078, {dtype} {zero})  f = DequantizeLinear(p, 0.0078, {dtype} {zero})"
    "one = DequantizeLinear({dtype} 127, 0.00787402)  a = Add(f, one)"
    "r = QuantizeLinear(a, 0.0157, {dtype} 0)  g = DequantizeLinear(r, 0.0157, {dtype} 0)  m = Mul(x, g)"
    "s = QuantizeLinear(m, 0.03, {dtype} 14)  h = DequantizeLinear(s, 0.03, {dtype} 14)  o = Mul(h, 0.5)"
    "y = QuantizeLinear(o, 0.015, {dtype} 14)"
)


def every(dtype: str, shape: Sequence[int] = (16, 16)) -> Any:
    """Each integer of a dtype, as often as it takes."""
    return np.resize(np.arange(256, dtype=np.uint8).view(dtype), shape)


def same_bits(sides: Sides, **feeds: Any) -> None:
    for old, new in zip(run(sides.before, feeds), run(sides.after, feeds), strict=True):
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        assert old.tobytes() == new.tobytes()
    assert not sides.driver.trace.warnings


@pytest.mark.parametrize("rules", [RULES, TOGETHER], ids=["alone", "among others"])
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 133), ("int8", 5)])
def test_a_gelu_that_is_quantized_at_every_step_is_one_table(dtype: str, zero: int, rules: Any) -> None:
    sides = rewrite(f"{dtype}[n,m] q; " + GELU.format(dtype=dtype, zero=zero), rules)
    assert sides.operators == ["Cast", "GatherElements", "Reshape", "Reshape", "Shape"]
    same_bits(sides, q=every(dtype))


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, str]:
    """A dtype, and a graph of steps between quantized tensors of it, each of some value before it."""
    dtype = draw(st.sampled_from(["uint8", "int8"]))
    lines, values = ["x = DequantizeLinear(q, 0.05, " + f"{dtype} {draw(st.integers(0, 127))})"], ["x"]
    for step in range(draw(st.integers(2, 7))):
        operand, name = values[-1], f"v{step}"
        kind = draw(st.sampled_from(["unary", "constant", "constant first", "again", "quantized", "where"]))
        other = draw(st.sampled_from(CONSTANTS if kind != "again" else values))
        operator = draw(st.sampled_from(UNARY if kind == "unary" else BINARY))
        if kind == "unary":
            lines.append(f"{name} = {operator}({operand})")
        elif kind == "quantized":
            grid = f"{draw(st.sampled_from(['0.0078125', '0.03', '0.5']))}, {dtype} {draw(st.integers(0, 127))}"
            lines.append(f"i{step} = QuantizeLinear({operand}, {grid})  {name} = DequantizeLinear(i{step}, {grid})")
        elif kind == "where":
            lines.append(f"c{step} = Less({operand}, 0.25)  {name} = Where(c{step}, {operand}, {other})")
        else:
            pair = (other, operand) if kind == "constant first" else (operand, other)
            lines.append(f"{name} = {operator}({', '.join(pair)})")
        values.append(name)
    lines.append(f"y = QuantizeLinear({values[-1]}, 0.04, {dtype} {draw(st.integers(0, 127))})")
    return dtype, f"{dtype}[n,m] q; " + "  ".join(lines)


@pytest.mark.slow
@given(chains())
@settings(max_examples=150, deadline=None)
def test_chains_of_steps_keep_their_bits(chain: tuple[str, str]) -> None:
    dtype, graph = chain
    sides = rewrite(graph, RULES)
    assume("GatherElements" in sides.operators)
    same_bits(sides, q=every(dtype, (3, 111)))


def test_no_step_of_a_chain_is_left() -> None:
    """Whatever comes first, the largest function is taken."""
    steps = "".join(
        f"v{i + 1} = Tanh(x{i})  q{i + 1} = QuantizeLinear(v{i + 1}, 0.01, uint8 100)"
        f"x{i + 1} = DequantizeLinear(q{i + 1}, 0.01, uint8 100)"
        for i in range(5)
    )
    graph = f"uint8[n] q; x0 = DequantizeLinear(q, 0.02, uint8 100)  {steps} y = QuantizeLinear(x5, 0.02, uint8 3)"
    sides = rewrite(graph, RULES)
    assert sides.operators == ["Cast", "GatherElements"]
    same_bits(sides, q=every("uint8", (257,)))


@pytest.mark.parametrize("shape", [(), (1,), (3, 5, 7), (1, 1, 257)])
def test_the_shape_stays(shape: tuple[int, ...]) -> None:
    dims = f"[{','.join(map(str, shape))}]" if shape else ""
    graph = f"int8{dims} q; x = DequantizeLinear(q, 0.05)  a = Abs(x)  b = Neg(a)  y = QuantizeLinear(b, 0.05, int8 50)"
    sides = rewrite(graph, RULES)
    assert "GatherElements" in sides.operators
    same_bits(sides, q=every("int8", shape))


STEPS = "x = DequantizeLinear(q, 0.05, uint8 100)  a = Tanh(x)  b = "
END = "  y = QuantizeLinear(b, 0.01, uint8 100)"
TRAPS = {
    "a constant for each channel": (f"uint8[n,2] q; {STEPS} Mul(a, {{1.0, 2.0}}) {END}", "several numbers"),
    "a scale for each channel": (
        f"uint8[n,2] q; {STEPS} Neg(a)  y = QuantizeLinear<axis=1>(b, {{0.1, 0.2}}, uint8[2] {{0, 1}})",
        "several numbers",
    ),
    "a number that is not constant": (f"uint8[n] q; float s; {STEPS} Mul(a, s) {END}", "not computed of one tensor"),
    "a scale that is not constant": (
        "uint8[n] q; float s; x = DequantizeLinear(q, s)  a = Tanh(x)  b = Neg(a)" + END,
        "not computed of one tensor",
    ),
    "random numbers": (f"uint8[n] q; {STEPS} Bernoulli(a) {END}", "Bernoulli is not known"),
    "sums over elements": (f"uint8[n,2] q; {STEPS} Softmax(a) {END}", "Softmax is not known"),
    "two tensors": (
        f"uint8[n] q; uint8[n] p; z = DequantizeLinear(p, 0.1) {STEPS} Mul(a, z) {END}",
        "not computed of one tensor",
    ),
    "an inner output": (f"uint8[n] q; {STEPS} Neg(a) {END}  z = Identity(a)", "inside is also used"),
    "integers of 16 bits": (
        "uint16[n] q; x = DequantizeLinear(q, 0.05)  a = Tanh(x)  b = Neg(a)" + END,
        "not computed of one tensor of 8-bit integers",
    ),
    "a larger rank": (f"uint8[n] q; {STEPS} Mul(a, float[1,1,1] {{2.0}}) {END}", "may raise the rank"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_what_is_no_function_of_one_tensor_stays(trap: str) -> None:
    graph, reason = TRAPS[trap]
    sides = rewrite(graph, RULES, opset=21)
    assert "GatherElements" not in sides.operators
    assert reason in sides.why_not(RULES[0])


def test_an_inner_value_that_is_an_output_stays() -> None:
    model = text.parse(f"uint8[n] q; {STEPS} Neg(a) {END}", opset=17)
    model.graph.outputs.append(next(n for n in model.graph if n.op_type == "Tanh").outputs[0])
    result = rw.apply(model, lower="fused", only=["quantized-table"])
    assert [n.op_type for n in result.model.graph] == ["DequantizeLinear", "Tanh", "Neg", "QuantizeLinear"]


def test_others_may_read_what_is_dequantized() -> None:
    """A residual connection reads it, too, and keeps it."""
    graph = f"uint8[n] q; {STEPS} Neg(a) {END}  z = Sqrt(x)"
    model = text.parse(graph, opset=17)
    model.graph.outputs.append(next(n for n in model.graph if n.op_type == "QuantizeLinear").outputs[0])
    result = rw.apply(model, lower="fused", only=["quantized-table"])
    assert sorted(n.op_type for n in result.model.graph) == ["Cast", "DequantizeLinear", "GatherElements", "Sqrt"]
