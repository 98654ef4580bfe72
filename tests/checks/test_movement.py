"""What moves elements and never looks at them."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxrewrite.checks.movement import only_moves
from onnxrewrite.checks.site import check_site
from onnxrewrite.ir import text


def model(source: str) -> ir.Model:
    return text.parse(source, opset=18)


@pytest.mark.parametrize(
    "body",
    [
        "y = Transpose<perm=[1, 0]>(x)",
        "s = Shape(x)  t = Mul(s, {1, 1})  y = Reshape(x, t)",
        "a, b = Split<axis=0>(x, {1, 2})  y = Concat<axis=0>(b, a)",
        "y = Gather<axis=1>(x, {2, 0})",
        "c = Constant<value = float[1] {2.0}>()  d = Sqrt(c)  y = Concat<axis=0>(d, d)",
    ],
)
def test_movement(body: str) -> None:
    assert only_moves(ir.to_proto(model(f"(float[3, 4] x) => (float y) {{ {body} }}")))


@pytest.mark.parametrize(
    "body",
    [
        "y = Relu(x)",
        "t = Neg(x)  y = Transpose(t)",
        "i = Cast<to=7>(x)  y = Gather(x, i)",
        "y = Pad(x, {0, 0, 1, 1})",
        "s = Cast<to=7>(x)  y = Reshape(x, s)",
        "y = Cast<to=10>(x)",
        "y = local.Reshape(x)",
        "c = Less(x, x)  y = If<then_branch = () => (float[3,4] a) { a = Identity(x) }, "
        "else_branch = () => (float[3,4] b) { b = Neg(x) }>(c)",
    ],
)
def test_others_look_at_elements(body: str) -> None:
    assert not only_moves(ir.to_proto(model(f"(float[3, 4] x) => (float y) {{ {body} }}")))


def test_one_run_tells_of_a_movement() -> None:
    right, wrong = (
        model(f"(float[3, 4] x) => (float y) {{ y = Transpose<perm={p}>(x) }}") for p in ("[1, 0]", "[0, 1]")
    )
    flat = model("(float[3, 4] x) => (float y) { t = Reshape(x, {4, 3})  y = Identity(t) }")
    assert check_site(right, right).runs == 1
    assert check_site(right, flat).status == "failed"
    assert check_site(right, wrong).status == "failed"
    signed = model(
        "(float[3, 4] x) => (float y) { t = Transpose<perm=[1, 0]>(x)  z = Relu(t)  n = Neg(t)  m = Relu(n)  "
        "y = Sub(z, m) }"
    )
    assert check_site(right, signed).runs > 5, "one side looks at elements"


def test_without_inputs_one_run_is_enough() -> None:
    made = model("() => (float[2] y) { y = Neg({1.0, 2.0}) }")
    assert check_site(made, made).runs == 1


def test_integers_are_no_proof_for_one_run() -> None:
    made = model("(bool[3, 4] x) => (bool y) { y = Transpose(x) }")
    assert check_site(made, made).runs > 1
