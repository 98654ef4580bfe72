"""Both sides of a rewrite in text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import onnxrewrite as rw
from onnxrewrite.ir import text
from onnxrewrite.ir.text import literals
from onnxrewrite.ir.text import sides as part

ROOT = Path(__file__).resolve().parents[2] / "golden_models"


def sides(source: str, after: str = "", **weights: np.ndarray) -> tuple[str, str]:
    """The text of a rewrite of the first graph, whose output is replaced by that of the second."""
    before = text.parse(source, weights=weights).graph
    built = text.parse(after, weights=weights).graph if after else None
    inputs = {v.name: v for v in before.inputs}
    if built is None:
        return rendered(list(before), [], [(before.outputs[0], before.inputs[0])])
    for value in built.inputs:
        ir.convenience.replace_all_uses_with(value, inputs.get(value.name, value))
    return rendered(list(before), list(built), [(before.outputs[0], built.outputs[0])])


def rendered(before: list[ir.Node], after: list[ir.Node], replaced: list[tuple[ir.Value, ir.Value]]) -> tuple[str, str]:
    old, new = text.print_rewrite(before, after, replaced, {"": 17})
    return "\n".join(old), "\n".join(new)


def test_the_result_bears_the_name_of_what_it_replaces() -> None:
    assert sides("float[2,n] a;  s = Sigmoid(a)  y = Mul(a, s)", "float[2,n] a;  z = Swish(a)") == (
        "float[2,n] v0\nv1 = Sigmoid(v0)\nv2 = Mul(v0, v1)",
        "v2 = Swish(v0)",
    )


def test_an_input_that_remains() -> None:
    assert sides("float[2] a;  m = Neg(a)  y = Neg(m)") == (
        "float[2] v0\nv1 = Neg(v0)\nv2 = Neg(v1)",
        "v2 = Identity(v0)",
    )


def test_a_value_from_elsewhere_is_declared() -> None:
    before = text.parse("float[2] a;  float[3] b;  y = Neg(a)").graph
    assert rendered(list(before), [], [(before.outputs[0], before.inputs[1])])[1] == "float[3] v2\nv1 = Identity(v2)"


def test_a_large_constant_is_a_digest() -> None:
    weight = np.arange(20, dtype=np.float32).reshape(4, 5)
    source = "float[3,4] a;  y = MatMul(a, w)"
    model = text.parse(source)
    (w,) = [v for v in model.graph.inputs if v.name == "w"]
    w.const_value = ir.Tensor(weight, name="w")
    old, _ = rendered(list(model.graph), [], [(model.graph.outputs[0], w)])
    digest = literals.tensor_hash(w.const_value)
    assert old == f"float[3,4] v0\nfloat[4,5] v1 = {digest}\nv2 = MatMul(v0, v1)"


def test_a_constant_on_the_tape() -> None:
    """What a rewrite builds is in no graph yet."""
    before = text.parse("float[2] a;  y = Neg(a)").graph
    constant = ir.Value(name="c", const_value=ir.Tensor(np.float32([1, 2])))
    made = ir.Node("", "Mul", [before.inputs[0], constant])
    assert rendered(list(before), [made], [(before.outputs[0], made.outputs[0])])[1] == "v1 = Mul(v0, {1.0, 2.0})"
    assert rendered(list(before), [], [(before.outputs[0], constant)])[1] == "float[2] v1 = {1.0, 2.0}"


def test_names_and_order_do_not_matter() -> None:
    one = sides("float[2] a;  p = Abs(a)  q = Neg(a)  y = Add(p, q)", "float[2] a;  z = Relu(a)")
    two = sides("float[2] b;  n = Neg(b)  m = Abs(b)  out = Add(m, n)", "float[2] b;  k = Relu(b)")
    assert one == two


@pytest.mark.parametrize("name", ["bert", "yolo"])
def test_what_is_printed_can_be_parsed(name: str) -> None:
    """But for what is only a digest."""
    records = [a.record for a in rw.apply(ROOT / name / "model.onnx", check="off").trace.applied]
    lines = [side for r in records for side in (r.before, r.after) if not any("sha256:" in line for line in side)]
    assert len(lines) > len(records)
    for side in lines:
        text.parse("\n".join(side))


SCALED = "float[2] a;  s = Mul(a, 2.0)  y = Add(s, {{{}}})"


@pytest.mark.parametrize(
    ("source", "other"),
    [
        (SCALED.format("1.0, 2.0"), SCALED.format("3.0, 4.5")),
        (SCALED.format("1.0, 2.0"), SCALED.format("1.0")),
        ("float[2] a;  y = Elu <alpha = 0.0> (a)", "float[2] a;  y = Elu <alpha = -0.0> (a)"),
        ("float[2] a;  y = Neg(a)", "float[3] a;  y = Neg(a)"),
        ("float[2] a;  y = Neg(a)", "float16[2] a;  y = Neg(a)"),
        ("float[2] a;  float[2] b;  y = Sub(a, a)", "float[2] a;  float[2] b;  y = Sub(a, b)"),
        ("float[n] a;  y = Split(a)", "float[n] a;  y, z = Split(a)"),
        ("float[2] a;  y = Add(a, 2.0)", "double[2] a;  y = Add(a, 2.0)"),
    ],
)
def test_what_was_printed_before_does_not_matter(source: str, other: str) -> None:
    part._STENCILS.clear()
    alone = sides(other)
    part._STENCILS.clear()
    assert sides(source) != alone
    assert sides(other) == alone


def test_weights_that_are_shared() -> None:
    """The same one twice is not like two."""
    one, two = (ir.Value(name=n, const_value=ir.Tensor(np.float32(v))) for n, v in (("p", [1, 2]), ("q", [3, 4])))
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT))
    nodes = [ir.Node("", "Clip", [x, a, b]) for a, b in ((one, one), (one, two))]
    part._STENCILS.clear()
    lines = [rendered([n], [], [(n.outputs[0], x)])[0].split(" = ")[1] for n in nodes]
    assert lines == ["Clip(v0, {1.0, 2.0}, {1.0, 2.0})", "Clip(v0, {1.0, 2.0}, {3.0, 4.0})"]


def test_rewrites_that_are_alike_are_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    part._STENCILS.clear()
    sides(SCALED.format("1.0, 2.0"))
    monkeypatch.setattr(part, "_PartPrinter", None)
    assert sides(SCALED.format("7.0, 8.0"))[0].endswith("v2 = Add(v1, {7.0, 8.0})")
