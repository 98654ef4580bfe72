from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx_ir as ir
import pytest

from onnxrewrite.ir.schema import (
    NON_DETERMINISTIC,
    UNKNOWN,
    attribute,
    formal_index,
    is_random,
    latest_version,
    ort_latest_version,
    schema,
)


def node(op_type, *inputs, domain="", **attributes):
    return ir.node(op_type, inputs=inputs, domain=domain, attributes=attributes)


def constant(value):
    return ir.Value(name="c", const_value=ir.tensor(np.array(value)))


def test_standard_domain_has_two_spellings():
    assert schema("", "Add", 13) is schema("ai.onnx", "Add", 13)


def test_version_in_force():
    assert schema("", "ReduceMean", 17).since_version == 13
    assert schema("", "ReduceMean", 18).since_version == 18
    assert schema("", "ReduceMean", None).since_version == 18


def test_axes_move_from_attribute_to_input():
    old, new = schema("", "ReduceMean", 17), schema("", "ReduceMean", 18)
    assert formal_index(old, "axes") is None
    assert old.attributes["axes"].type == ir.AttributeType.INTS
    assert formal_index(new, "axes") == 1
    assert new.inputs[1].optional
    assert "axes" not in new.attributes
    assert formal_index(None, "axes") is None


@pytest.mark.parametrize(
    ("domain", "op_type", "version"),
    [
        ("", "Gelu", 19),
        ("", "Upsample", 13),
        ("", "Nonsense", None),
        ("com.microsoft", "Nonsense", 1),
        ("x", "Y", 1),
    ],
)
def test_unknown_too_new_and_deprecated(domain, op_type, version):
    assert schema(domain, op_type, version) is None


def test_contrib():
    found = schema("com.microsoft", "SkipLayerNormalization", 1)
    assert [f.name for f in found.inputs] == ["input", "skip", "gamma", "beta", "bias"]
    assert [f.optional for f in found.inputs] == [False, False, False, True, True]
    assert found.inputs[0].type_var == "T"
    assert "tensor(float)" in found.inputs[0].types
    assert (found.min_inputs, found.max_inputs, found.max_outputs) == (3, 5, 4)
    assert found.attributes["epsilon"].default == pytest.approx(1e-12)


def test_variadic_and_required():
    assert schema("", "Concat", 13).inputs[0].variadic
    assert schema("", "Concat", 13).attributes["axis"].required
    assert schema("", "Concat", 13).attributes["axis"].default is None


def test_schemas_are_hashable():
    assert len({schema("", "Add", 13), schema("", "Add", 14), schema("", "Add", 13)}) == 2


def test_attribute_own_default_and_absent():
    assert attribute(node("Gemm", alpha=2.0), "alpha", 13) == 2.0
    assert attribute(node("Gemm"), "alpha", 13) == 1.0
    assert attribute(node("ReduceMean", axes=[1, 2]), "axes", 13) == (1, 2)
    assert attribute(node("ReduceMean"), "axes", 13) is None
    assert attribute(node("Conv"), "auto_pad", 11) == "NOTSET"
    assert attribute(node("Softmax"), "axis", 12) == 1
    assert attribute(node("Softmax"), "axis", 13) == -1
    assert attribute(node("Foo", domain="x"), "bar", None) is None
    assert attribute(node("LayerNormalization"), "epsilon", 17) == pytest.approx(1e-5)


def test_attribute_that_refers_to_the_functions():
    of = ir.Node("", "Gemm", [], [ir.RefAttr("alpha", "a", ir.AttributeType.FLOAT)])
    assert attribute(of, "alpha", 13) is UNKNOWN


def test_every_default_is_plain():
    import onnx

    for each in onnx.defs.get_all_schemas_with_history():
        found = schema(each.domain, each.name, each.since_version)
        for attr in found.attributes.values() if found else ():
            assert attr.default is None or isinstance(attr.default, (int, float, str, tuple, ir.TensorProtocol))


def test_latest_versions():
    assert latest_version() >= ort_latest_version() >= 20
    assert latest_version("ai.onnx.ml") >= 3


@pytest.mark.parametrize("op", sorted(NON_DETERMINISTIC))
def test_random_operators(op):
    assert is_random(node(op[1], domain=op[0]), 17)
    found = schema(*op, None)
    assert found is not None
    assert not found.deterministic


def test_deterministic_operators():
    assert schema("", "Add", 13).deterministic
    assert not is_random(node("Add"), 13)
    assert not is_random(node("Upsample"), 9)


def test_unknown_operators_count_as_random():
    assert is_random(node("Foo", domain="x"), 13)


X = ir.Value(name="x")


@pytest.mark.parametrize(
    ("dropout", "version", "random"),
    [
        (node("Dropout", X), 13, False),
        (node("Dropout", X, None, constant(False)), 13, False),
        (node("Dropout", X, None, constant(True)), 13, True),
        (node("Dropout", X, None, ir.Value(name="unknown")), 13, True),
        (node("Dropout", X), 10, False),
        (node("Dropout", X), 7, False),
        (node("Dropout", X), 6, True),
        (node("Dropout", X, is_test=1), 6, False),
        (node("Dropout", X, is_test=0), 1, True),
        (node("Dropout", X), None, True),
    ],
)
def test_dropout(dropout, version, random):
    assert is_random(dropout, version) is random


def test_dropout_with_a_constant_node():
    mode = ir.node("Constant", [], attributes={"value": ir.tensor(np.array(False))})
    assert not is_random(node("Dropout", X, None, mode.outputs[0]), 13)


def test_dropout_takes_the_opset_of_its_graph():
    dropout = node("Dropout", X)
    ir.Graph([X], dropout.outputs, nodes=[dropout], opset_imports={"": 13})
    assert not is_random(dropout)


def test_random_inside_a_subgraph():
    inner = node("RandomNormal", shape=[1])
    body = ir.Graph([], inner.outputs, nodes=[inner])
    calm = ir.Graph([], [], nodes=[node("Add", X, X)])
    assert is_random(node("If", X, then_branch=body, else_branch=calm), 16)
    assert not is_random(node("If", X, then_branch=calm, else_branch=ir.Graph([], [], nodes=[])), 16)


def test_onnxruntime_is_imported_only_for_its_own_domains():
    code = (
        "import sys; from onnxrewrite.ir.schema import schema; schema('', 'Add', 13);"
        "assert 'onnxruntime' not in sys.modules; schema('com.microsoft', 'Gelu', 1);"
        "assert 'onnxruntime' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
