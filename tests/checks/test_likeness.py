"""Sites that are alike: the same but for names and weights."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxrewrite.checks.likeness import structure, weight_kind, written_for
from onnxrewrite.ir.text import parse
from onnxrewrite.system.arrays import Array


def side(lines: str, **weights: Array) -> ir.Model:
    """A model whose constants of these names are weights."""
    model = parse(lines)
    for name, array in weights.items():
        (value,) = (v for v in model.graph.initializers.values() if v.name == name)
        value.const_value = ir.tensor(array, name=name)
    return model


def drawn(seed: int, scale: float = 1.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(64) * scale).astype(np.float32)


LINES = "float[n,64] x; input w = float[64] ~; input b = float[64] ~; p = Mul(x, w)  y = Add(p, b)"


def key(w: Array, b: Array, lines: str = LINES) -> str:
    return structure(side(lines, w=w, b=b), side(lines, w=w, b=b))


def test_other_weights_are_alike() -> None:
    assert key(drawn(1), drawn(2)) == key(drawn(3), drawn(4))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(abs(drawn(3)), id="of one sign"),
        pytest.param(drawn(3, 1e6), id="larger"),
        pytest.param(np.where(drawn(5) > 0, drawn(3), 0), id="with zeros"),
        pytest.param(np.where(np.arange(64) == 7, np.nan, drawn(3)), id="no number"),
        pytest.param(np.where(np.arange(64) == 7, np.float32(1e-30), drawn(3)), id="tiny"),
        pytest.param(np.full(64, 0.5), id="one number"),
        pytest.param(np.arange(64.0), id="integers"),
        pytest.param(drawn(3).astype(np.float64), id="double"),
    ],
)
def test_weights_of_other_kinds_are_not(other: Array) -> None:
    other = other if other.dtype == np.float64 and other[0] == drawn(3)[0] else other.astype(np.float32)
    assert key(drawn(1), drawn(2)) != key(other, drawn(2))


def test_what_is_no_weight_is_told_by_its_elements() -> None:
    for array in (np.full(64, 0.5, np.float32), np.arange(64), np.ones(8, np.float32), drawn(1)[:16]):
        assert not weight_kind(ir.tensor(array))
    assert key(np.full(64, 0.5, np.float32), drawn(2)) != key(np.full(64, 0.25, np.float32), drawn(2))


def test_which_weights_are_the_same_one_matters() -> None:
    """A replacement that takes another weight than the original is another replacement."""
    before = side(LINES, w=drawn(1), b=drawn(2))
    right, wrong = side(LINES, w=drawn(1), b=drawn(2)), side(LINES, w=drawn(2), b=drawn(1))
    assert structure(before, right) != structure(before, wrong)


def test_names_that_inference_makes_up_do_not_matter() -> None:
    first, second = (parse(f"float[batch,_d{n},64] x; y = Relu(x)") for n in (2, 5))
    assert structure(first, first) == structure(second, second)
    one = parse("float[_d1,_d1] x; y = Relu(x)")
    two = parse("float[_d1,_d2] x; y = Relu(x)")
    assert structure(one, one) != structure(two, two)


def test_of_large_weights_some_stretches_are_looked_at() -> None:
    large = np.random.default_rng(0).standard_normal((1024, 1024), np.float32)
    assert weight_kind(ir.tensor(large)) == weight_kind(ir.tensor(-large))
    assert weight_kind(ir.tensor(large)) != weight_kind(ir.tensor(abs(large)))


def at(opset: int, lines: str) -> str:
    model = parse(lines, opset=opset)
    return structure(model, model)


def test_opsets_between_which_nothing_has_changed_are_one() -> None:
    lines = "float[n,4] x; r = Reshape(x, {2, -1})  y = Relu(r)"
    assert at(13, lines) == at(23, lines)


def test_an_operator_that_has_changed_is_another_one() -> None:
    lines = "float[n,4,3] x; y = Softmax<axis=1>(x)"
    assert at(11, lines) != at(13, lines)
    assert at(13, lines) == at(23, lines)


def test_a_node_that_is_newer_than_its_opset_is_lowered_in_another_way() -> None:
    node = ir.Node("", "Gelu", [ir.Value(name="x")], version=20)
    assert written_for([node], {"": 17}) != written_for([node], {"": 23})
    assert written_for([node], {"": 20}) == written_for([node], {"": 23})
