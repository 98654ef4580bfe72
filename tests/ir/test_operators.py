"""The table of operators: a row for each, and what a row says is so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxrewrite.ir import schema
from onnxrewrite.ir.operators import OTHER_TRAITS, TRAITS, operators

FLOATS = np.array([-3.5, -2.5, -1.25, -0.75, -0.0, 0.0, 0.3, 0.5, 1.0, 1.7, 2.5, 100.25], np.float32)
OPPOSITE_FLOATS = FLOATS[::-1].copy()
BITS = np.array([-(2**31), -7, -1, 0, 1, 6, 2**31 - 1], np.int32)
TRUTHS = np.array([True, False, True, False])


def operands(name: str) -> list[np.ndarray]:
    """Values that an operator takes as its first operands."""
    found = schema.schema("", name, None)
    assert found is not None
    if "tensor(float)" in found.inputs[0].types:
        return [FLOATS, OPPOSITE_FLOATS]
    return [TRUTHS, TRUTHS[::-1].copy()] if "tensor(bool)" in found.inputs[0].types else [BITS, BITS[::-1].copy()]


def computed(name: str, inputs: Sequence[np.ndarray], **attributes: Any) -> np.ndarray:
    """The first result of an operator, by the standard's own evaluator."""
    names = [f"i{i}" for i in range(len(inputs))]
    infos = [onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), None) for n, a in
             zip(names, inputs, strict=True)]  # fmt: skip
    node = onnx.helper.make_node(name, names, ["y"], **attributes)
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UNDEFINED, None)
    graph = onnx.helper.make_graph([node], "g", infos, [out])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
    with np.errstate(all="ignore"):
        found: np.ndarray = np.asarray(ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))[0])
    return found


def test_every_operator_of_the_standard_has_a_row() -> None:
    known = {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}
    rows = {("", name) for name in TRAITS} | {tuple(name.rsplit(".", 1)) for name in OTHER_TRAITS}
    assert rows == known


def test_a_query_that_nothing_answers_is_an_error() -> None:
    with pytest.raises(ValueError, match="no kind or mark of an operator: views"):
        operators("views")
    assert operators("view", but="Flatten") == ("Reshape", "Squeeze", "Unsqueeze")


@pytest.mark.parametrize("name", operators(marks="commutative"))
def test_commutative(name: str) -> None:
    a, b = operands(name)
    np.testing.assert_array_equal(computed(name, [a, b]), computed(name, [b, a]))


@pytest.mark.parametrize("name", sorted(operators("broadcast", but="commutative Where PRelu BitShift")))
def test_not_commutative(name: str) -> None:
    a, b = operands(name)
    given = {"fmod": 1} if name == "Mod" else {}
    assert not np.array_equal(computed(name, [a, b], **given), computed(name, [b, a], **given), equal_nan=True)


@pytest.mark.parametrize("name", sorted(operators("pointwise", marks="idempotent")))
def test_idempotent(name: str) -> None:
    once = computed(name, operands(name)[:1])
    np.testing.assert_array_equal(computed(name, [once]), once)


@pytest.mark.parametrize("name", sorted(operators(marks="involution")))
def test_involution(name: str) -> None:
    x = operands(name)[0]
    np.testing.assert_array_equal(computed(name, [computed(name, [x])]), x)


@pytest.mark.parametrize("name", sorted(operators(marks="odd")))
def test_odd(name: str) -> None:
    x = operands(name)[0]
    np.testing.assert_array_equal(computed(name, [-x]), -computed(name, [x]))


@pytest.mark.parametrize("name", sorted(operators("pointwise softmax", marks="nonnegative")))
def test_nonnegative(name: str) -> None:
    assert (computed(name, [FLOATS]) >= 0).all()


@pytest.mark.parametrize("name", sorted(operators("pointwise", marks="bounded", but="Cast CastLike")))
def test_bounded(name: str) -> None:
    assert np.abs(computed(name, [FLOATS])).max() <= np.abs(FLOATS).max()


@pytest.mark.parametrize("name", sorted(operators("pointwise", marks="exact", but="Cast CastLike")))
def test_exact(name: str) -> None:
    """What rounds nothing is the same in double."""
    values = np.linspace(-2.9, 2.9, 57, dtype=np.float32)
    np.testing.assert_array_equal(computed(name, [values]), computed(name, [values.astype(np.float64)]))


@pytest.mark.parametrize("name", sorted(operators(marks="neutral")))
def test_neutral(name: str) -> None:
    x = operands(name)[0]
    told = TRAITS[name].neutral
    number = {"true": True, "false": False, "ones": -1}.get(told, float(told) if told[-1].isdigit() else 0)
    np.testing.assert_array_equal(computed(name, [x, np.full_like(x, number)]).view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("name", sorted(operators(marks="opposite")))
def test_opposite(name: str) -> None:
    a, b = operands(name)
    np.testing.assert_array_equal(computed(name, [a, b]), ~computed(TRAITS[name].opposite, [a, b]))


@pytest.mark.parametrize("name", sorted(operators(marks="variadic")))
def test_variadic(name: str) -> None:
    found = schema.schema("", name, None)
    assert found is not None
    assert found.inputs[-1].variadic


@pytest.mark.parametrize("name", sorted(operators(marks="numbers")))
def test_numbers_are_operands(name: str) -> None:
    assert TRAITS[name].numbers <= schema.input_names("", name)


GIVEN = {"Slice": ([0, 1], [2, 5], [1, 0]), "Pad": ([1, 0, 2, 1],)}


@pytest.mark.parametrize("name", sorted(operators(marks="implied")))
def test_an_implied_operand_says_nothing(name: str) -> None:
    known, implied = schema.schema("", name, None), TRAITS[name].implied
    assert known is not None
    assert implied is not None
    x, given = np.arange(30, dtype=np.float32).reshape(5, 6), [np.array(each) for each in GIVEN[name]]
    assert known.inputs[1 + len(given)].name == implied[0]
    last = np.float32(implied[1]) if implied[0] in TRAITS[name].numbers else np.full_like(given[0], implied[1])
    np.testing.assert_array_equal(computed(name, [x, *given, last]), computed(name, [x, *given]))


@pytest.mark.parametrize(("name", "operands"), [("Unsqueeze", ([2],)), ("OneHot", (3, [0, 1]))])
def test_axes_outside_are_those_of_the_result(name: str, operands: Sequence[object]) -> None:
    assert "outside" in TRAITS[name].marks
    x = np.arange(6).reshape(2, 3)
    attributes = {"axis": 2} if name == "OneHot" else {}
    assert computed(name, [x, *map(np.array, operands)], **attributes).shape == (2, 3, 3 if attributes else 1)
