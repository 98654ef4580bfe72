"""The tape: the right spelling for every opset, the right dtype for every constant, nothing left behind."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from driving import drive, printed, reason, rule, x
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxrewrite.errors import RuleError
from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.match import Match, Refused
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rules import Attr, Const, op


class Tape:
    """A builder at ``y = Relu(x)``."""

    def __init__(self, opset: int = 17, declared: str = "float[2,3,4] x") -> None:
        self.model = text.parse(f"{declared}; y = Relu(x)", opset=opset)
        self.imports = dict(self.model.opset_imports)
        self.facts = Facts(self.model.graph, self.imports)
        self.y = self.model.graph.outputs[0]
        self.match: Match = next(RecursiveMatcher(self.facts, self.model.graph).matches((op.Relu(x),), self.y))
        self.build = Builder(self.facts, self.match, self.imports)

    @property
    def x(self) -> ir.Value:
        return self.match[x]

    @property
    def node(self) -> ir.Node:
        return self.build.nodes[-1]


def shown(node: ir.Node) -> str:
    """``Op(dtype[shape] {elements}, ...) {attributes}``: constants in full, other inputs as ``*``, absent ones as ``-``."""
    inputs = []
    for value in node.inputs:
        tensor = None if value is None else value.const_value
        if tensor is None:
            inputs.append("-" if value is None else "*")
        else:
            inputs.append(f"{tensor.dtype.name.lower()}{list(tensor.shape)} {tensor.numpy().ravel().tolist()}")
    attributes = {a.name: a.value for a in node.attributes.values()}
    return f"{node.op_type}({', '.join(inputs)}) {attributes}"


def emitted(opset: int, op_type: str, *inputs: Any, **parameters: Any) -> str:
    tape = Tape(opset)
    getattr(tape.build, op_type)(tape.x, *inputs, **parameters)
    return shown(tape.node)


@pytest.mark.parametrize(
    ("opset", "op_type", "parameters", "expected"),
    [
        (13, "ReduceMean", {"axes": (-1,), "keepdims": 0}, "ReduceMean(*) {'axes': (-1,), 'keepdims': 0}"),
        (18, "ReduceMean", {"axes": (-1,), "keepdims": 0}, "ReduceMean(*, int64[1] [-1]) {'keepdims': 0}"),
        (12, "ReduceSum", {"axes": [0, 2]}, "ReduceSum(*) {'axes': (0, 2)}"),
        (13, "ReduceSum", {"axes": [0, 2]}, "ReduceSum(*, int64[2] [0, 2]) {}"),
        (11, "Squeeze", {"axes": (0,)}, "Squeeze(*) {'axes': (0,)}"),
        (13, "Squeeze", {"axes": (0,)}, "Squeeze(*, int64[1] [0]) {}"),
        (13, "Squeeze", {"axes": None}, "Squeeze(*) {}"),
        (11, "Unsqueeze", {"axes": np.array([1])}, "Unsqueeze(*) {'axes': (1,)}"),
        (13, "Unsqueeze", {"axes": np.array([1])}, "Unsqueeze(*, int64[1] [1]) {}"),
        (6, "Clip", {"min": 0, "max": 6}, "Clip(*) {'min': 0.0, 'max': 6.0}"),
        (11, "Clip", {"min": 0, "max": 6}, "Clip(*, float[] [0.0], float[] [6.0]) {}"),
        (11, "Clip", {"max": 6}, "Clip(*, -, float[] [6.0]) {}"),
        (17, "Clip", {"min": None, "max": None}, "Clip(*) {}"),
        (10, "Pad", {"pads": (0, 0, 1, 0, 0, 1)}, "Pad(*) {'pads': (0, 0, 1, 0, 0, 1)}"),
        (11, "Pad", {"pads": (0, 1)}, "Pad(*, int64[2] [0, 1]) {}"),
        (11, "Split", {"split": (1, 2), "axis": 1}, "Split(*) {'split': (1, 2), 'axis': 1}"),
        (13, "Split", {"split": (1, 2), "axis": 1}, "Split(*, int64[2] [1, 2]) {'axis': 1}"),
        (9, "Slice", {"starts": (0,), "ends": (1,), "axes": (2,)}, "Slice(*) {'starts': (0,), 'ends': (1,), 'axes': (2,)}"),
        (10, "Slice", {"starts": (0,), "ends": (1,), "axes": (2,)}, "Slice(*, int64[1] [0], int64[1] [1], int64[1] [2]) {}"),
        (10, "Slice", {"starts": (0,), "ends": (1,), "steps": (2,)}, "Slice(*, int64[1] [0], int64[1] [1], -, int64[1] [2]) {}"),
        (9, "TopK", {"k": 2}, "TopK(*) {'k': 2}"),
        (10, "TopK", {"K": np.array([2])}, "TopK(*, int64[1] [2]) {}"),
        (11, "Dropout", {"ratio": 0.5}, "Dropout(*) {'ratio': 0.5}"),
        (12, "Dropout", {"ratio": 0.5, "training_mode": False}, "Dropout(*, float[] [0.5], bool[] [False]) {}"),
        (9, "Upsample", {"scales": (1.0, 1.0, 2.0)}, "Upsample(*, float[3] [1.0, 1.0, 2.0]) {}"),
    ],
)  # fmt: skip
def test_parameters_are_attributes_or_inputs(
    opset: int, op_type: str, parameters: dict[str, Any], expected: str
) -> None:
    assert emitted(opset, op_type, **parameters) == expected


@pytest.mark.parametrize(
    ("declared", "op_type", "inputs", "expected"),
    [
        ("float16[3] x", "Mul", (0.1,), "Mul(*, float16[] [0.0999755859375]) {}"),
        ("bfloat16[3] x", "Mul", (0.1,), "Mul(*, bfloat16[] [0.10009765625]) {}"),
        ("double[3] x", "Mul", (0.1,), "Mul(*, double[] [0.1]) {}"),
        ("int32[3] x", "Add", (7,), "Add(*, int32[] [7]) {}"),
        ("uint8[3] x", "Add", ([7, 8],), "Add(*, uint8[2] [7, 8]) {}"),
        ("float[3] x", "Pow", (2.0,), "Pow(*, float[] [2.0]) {}"),
        ("float[3] x", "Reshape", ([],), "Reshape(*, int64[0] []) {}"),
        ("float[3] x", "Reshape", ((-1, 1),), "Reshape(*, int64[2] [-1, 1]) {}"),
        ("float[3] x", "Gather", (0,), "Gather(*, int64[] [0]) {}"),
        ("double[3] x", "Max", (0.5, 1), "Max(*, double[] [0.5], double[] [1.0]) {}"),
        ("float16[3] x", "Expand", (np.array([2, 3], np.int32),), "Expand(*, int64[2] [2, 3]) {}"),
    ],
)
def test_numbers_take_the_schemas_dtype(declared: str, op_type: str, inputs: tuple[Any, ...], expected: str) -> None:
    tape = Tape(declared=declared)
    getattr(tape.build, op_type)(tape.x, *inputs)
    assert shown(tape.node) == expected


@pytest.mark.parametrize(
    ("written", "opset", "changed", "expected"),
    [
        ("y = Clip(x, 0.0, 6.0)", 17, {}, "Clip(*, float[] [0.0], float[] [6.0]) {}"),
        ("y = Clip(x, , 6.0)", 17, {}, "Clip(*, -, float[] [6.0]) {}"),
        ("y = Softmax<axis=1>(x)", 17, {"axis": 2}, "Softmax(*) {'axis': 2}"),
        ("y = ReduceSum<axes=[1]>(x)", 11, {"axes": (0, 2)}, "ReduceSum(*) {'axes': (0, 2)}"),
        ("y = ReduceSum(x, {1})", 13, {"axes": (0, 2)}, "ReduceSum(*, int64[2] [0, 2]) {}"),
        ("y = Slice(x, int32[1] {0}, int32[1] {1})", 13, {"axes": (2,)}, "Slice(*, int32[1] [0], int32[1] [1], int32[1] [2]) {}"),
        ("y = com.microsoft.QuickGelu<alpha=2.0>(x)", 17, {}, "QuickGelu(*) {'alpha': 2.0}"),
    ],
)  # fmt: skip
def test_a_node_once_more(written: str, opset: int, changed: dict[str, Any], expected: str) -> None:
    """On another first operand: further inputs and attributes stay as they are unless they are changed."""
    tape = Tape(opset)
    node = text.parse(f"float[2,3,4] x; {written}", opset=opset).graph[-1]
    (made,) = tape.build.again(node, tape.x, **changed)
    assert made is tape.node.outputs[0]
    assert made.producer() is not node
    assert tape.node.inputs[0] is tape.x
    assert (tape.node.domain, shown(tape.node)) == (node.domain, expected)


def test_a_node_that_refers_to_its_function_is_not_built_again() -> None:
    tape = Tape()
    reference = ir.RefAttr("axis", "outer", ir.AttributeType.INT)
    with pytest.raises(Refused, match="refers to an attribute"):
        tape.build.again(ir.Node("", "Softmax", [tape.x], [reference]), tape.y)


def test_the_dtype_may_come_from_a_later_operand() -> None:
    tape = Tape(declared="float16[3] x")
    tape.build.Sub(1, tape.x)
    assert shown(tape.node) == "Sub(float16[] [1.0], *) {}"
    tape.build.Where(np.array([True, False, True]), 0.0, tape.x)
    assert shown(tape.node) == "Where(bool[3] [True, False, True], float16[] [0.0], *) {}"


def test_inputs_and_attributes_of_contrib_operators() -> None:
    tape = Tape(declared="float16[3] x")
    tape.build.microsoft.QuickGelu(tape.x, alpha=1.702)
    assert tape.node.domain == "com.microsoft"
    assert tape.node.version is None
    assert shown(tape.node) == f"QuickGelu(*) {{'alpha': {float(np.float32(1.702))}}}"
    tape.build.microsoft.BiasGelu(tape.x, [1.0, 2.0, 3.0])
    assert shown(tape.node) == "BiasGelu(*, float16[3] [1.0, 2.0, 3.0]) {}"


def test_domains_share_one_tape() -> None:
    tape = Tape()
    tape.build.Neg(tape.x)
    tape.build.microsoft.Gelu(tape.x)
    tape.build.domain("my.own").Thing(tape.x, 2, mode="fast")
    assert [(n.domain, n.op_type) for n in tape.build.nodes] == [
        ("", "Neg"),
        ("com.microsoft", "Gelu"),
        ("my.own", "Thing"),
    ]
    assert shown(tape.node) == "Thing(*, int64[] [2]) {'mode': 'fast'}"


@pytest.mark.parametrize(
    ("opset", "op_type", "version"),
    [
        (17, "Relu", None),
        (17, "Gelu", 20),
        (20, "Gelu", None),
        (12, "LayerNormalization", 17),
        (17, "LayerNormalization", None),
        (22, "RMSNormalization", 23),
        (13, "HardSwish", 14),
        (17, "NoSuchOperator", None),
        (10, "Upsample", None),
    ],
)
def test_newer_operators_take_the_oldest_version_that_has_them(opset: int, op_type: str, version: int | None) -> None:
    tape = Tape(opset)
    tape.build.node(op_type, [tape.x])
    assert tape.node.version == version


def test_newer_operators_take_parameters_of_their_own_version() -> None:
    """CenterCropPad is of opset 18, whose axes are an attribute."""
    assert emitted(13, "CenterCropPad", [2, 2], axes=(0, 1)) == "CenterCropPad(*, int64[2] [2, 2]) {'axes': (0, 1)}"


@given(st.floats(allow_nan=False, width=64, allow_subnormal=False))
@settings(max_examples=50, deadline=None)
def test_float_attributes_are_what_the_file_will_hold(number: float) -> None:
    tape = Tape()
    if np.isfinite(number) and abs(number) > 3.4e38:
        number = 1.0
    tape.build.LeakyRelu(tape.x, alpha=number)
    in_memory = tape.node.attributes["alpha"].value
    stored = ir.serde.serialize_attribute(tape.node.attributes["alpha"]).f
    assert in_memory == stored == float(np.float32(number))


def test_a_double_model_gets_no_rounded_attribute() -> None:
    tape = Tape(declared="double[2] x")
    assert tape.build.LeakyRelu(tape.x, alpha=0.25) is not None
    with pytest.raises(Refused, match=r"alpha = 0.3 does not fit a float32 attribute"):
        tape.build.LeakyRelu(tape.x, alpha=0.3)
    single = Tape()
    assert single.build.LeakyRelu(single.x, alpha=0.3) is not None


def test_attributes_come_as_numpy_has_them() -> None:
    tape = Tape()
    tape.build.Transpose(tape.x, perm=np.array([0, 2, 1]))
    assert shown(tape.node) == "Transpose(*) {'perm': (0, 2, 1)}"
    tape.build.Softmax(tape.x, axis=np.int64(-1))
    assert shown(tape.node) == "Softmax(*) {'axis': -1}"
    tape.build.Softmax(tape.x, axis=True)
    assert shown(tape.node) == "Softmax(*) {'axis': 1}"
    tape.build.Conv(tape.x, tape.x, auto_pad="VALID", strides=[1])
    assert shown(tape.node) == "Conv(*, *) {'auto_pad': 'VALID', 'strides': (1,)}"
    tape.build.Selu(tape.x, alpha=None)
    assert shown(tape.node) == "Selu(*) {}"


def test_a_bad_attribute_is_the_rules_error() -> None:
    tape = Tape()
    with pytest.raises(RuleError, match="Cast: attribute to="):
        tape.build.Cast(tape.x, to={"no": "number"})
    with pytest.raises(RuleError, match="a graph belongs to the node that has it"):
        tape.build.If(tape.x, then_branch=tape.model.graph)


def test_outputs() -> None:
    tape = Tape()
    one = tape.build.Relu(tape.x)
    assert isinstance(one, ir.Value)
    assert one.shape == ir.Shape([2, 3, 4])
    (single,) = tape.build.Relu(tape.x, outputs=1)
    assert single.index() == 0
    a, b = tape.build.Split(tape.x, split=(1, 2), axis=1, outputs=2)
    assert [a.shape, b.shape] == [ir.Shape([2, 1, 4]), ir.Shape([2, 2, 4])]
    assert [a.dtype, b.dtype] == [ir.DataType.FLOAT] * 2
    values, indices = tape.build.TopK(tape.x, np.array([2]), outputs=2)
    assert [values.dtype, indices.dtype] == [ir.DataType.FLOAT, ir.DataType.INT64]


def test_lower_case_is_no_operator() -> None:
    tape = Tape()
    with pytest.raises(AttributeError, match="relu"):
        tape.build.relu  # noqa: B018


# -- constants ----------------------------------------------------------------------------------------------------

NUMERIC = [
    d
    for d in ir.DataType
    if d not in (ir.DataType.UNDEFINED, ir.DataType.STRING) and (d.is_floating_point() or d.is_integer())
]


@pytest.mark.parametrize("dtype", [*NUMERIC, ir.DataType.BOOL], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (1,), (2, 0), (2, 3)])
def test_constants_of_every_dtype_keep_their_shape(dtype: ir.DataType, shape: tuple[int, ...]) -> None:
    made = Tape().build.const(np.ones(shape), like=dtype)
    assert made.const_value is not None
    assert made.dtype == made.const_value.dtype == dtype
    assert tuple(made.shape or ()) == tuple(made.const_value.shape) == shape
    array = made.const_value.numpy()
    assert array.shape == shape
    assert (array == 1).all()
    assert len(made.const_value.tobytes()) == made.const_value.nbytes


def test_constants_like_values_and_terms() -> None:
    tape = Tape(declared="bfloat16[3] x")
    for like in (x, tape.x, tape.y, ir.DataType.BFLOAT16):
        made = tape.build.const(1 / 3, like=like)
        assert made.const_value is not None
        assert made.const_value.numpy() == ml_dtypes.bfloat16(1 / 3)


def test_constants_without_like_are_float32_at_most() -> None:
    build = Tape().build
    assert build.const(0.5).dtype == ir.DataType.FLOAT
    assert build.const(np.float64(0.5)).dtype == ir.DataType.FLOAT
    assert build.const(np.float16(0.5)).dtype == ir.DataType.FLOAT16
    assert build.const(3).dtype == ir.DataType.INT64
    assert build.const(np.int32(3)).dtype == ir.DataType.INT32
    assert build.const(True).dtype == ir.DataType.BOOL
    assert build.const(np.ones(2, ml_dtypes.bfloat16)).dtype == ir.DataType.BFLOAT16


def test_constants_do_not_share_memory_with_what_they_are_made_of() -> None:
    data = np.arange(6.0).reshape(2, 3)
    made = Tape().build.const(data.T, like=ir.DataType.FLOAT)
    assert made.const_value is not None
    assert made.const_value.tobytes() == np.ascontiguousarray(data.T, np.float32).tobytes()


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (0.5, ir.DataType.INT64),
        (float("nan"), ir.DataType.INT32),
        (float("inf"), ir.DataType.INT32),
        (300, ir.DataType.UINT8),
        (-1, ir.DataType.UINT8),
        (2**40, ir.DataType.INT32),
        (8, ir.DataType.INT4),
        (1e5, ir.DataType.FLOAT16),
        (-1e39, ir.DataType.FLOAT),
        (1e39, ir.DataType.BFLOAT16),
    ],
)
def test_what_does_not_fit_is_refused(number: float, dtype: ir.DataType) -> None:
    with pytest.raises(Refused, match=f"does not fit into {dtype.name.lower()}"):
        Tape().build.const([0, number], like=dtype)


def test_infinities_and_nan_are_kept() -> None:
    made = Tape().build.const([np.inf, -np.inf, np.nan], like=ir.DataType.FLOAT16)
    assert made.const_value is not None
    np.testing.assert_array_equal(made.const_value.numpy(), np.array([np.inf, -np.inf, np.nan], np.float16))


def test_a_fraction_in_an_integer_rule_is_refused_not_truncated() -> None:
    """``0.5 * x`` with integers would have been ``0 * x``."""
    half = rule("halve", op.Relu(x), lambda m, build: build.Mul(m[x], 0.5))
    driver = drive("int32[3] x; y = Relu(x)", [half])
    assert printed(driver) == "[Relu] y = Relu(x)"
    assert reason(driver, "halve") == "a constant of 0.5 does not fit into int32"


@given(st.lists(st.floats(width=64, allow_nan=False, allow_infinity=False), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_constants_round_once(numbers: list[float]) -> None:
    for dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE):
        with np.errstate(over="ignore"):
            rounded = np.array(numbers, np.float64).astype(dtype.numpy())
        build = Tape().build
        if np.isfinite(rounded.astype(np.float64)).all():
            made = build.const(numbers, like=dtype)
            assert made.const_value is not None
            assert made.const_value.tobytes() == rounded.tobytes()
        else:
            with pytest.raises(Refused):
                build.const(numbers, like=dtype)


# -- folding ------------------------------------------------------------------------------------------------------


def test_evaluate_runs_a_node_of_constants() -> None:
    seen = {}

    def fold(m: Match, build: Builder) -> ir.Value:
        seen["result"] = build.evaluate(m.node(calls))[0]
        return build.const(seen["result"], like=calls)

    calls = op.Add(Const("a"), Const("b"))
    driver = drive("float[2] x; a = Add({1.0, 2.0}, 0.5)  y = Mul(x, a)", [rule("fold", calls, fold)])
    assert printed(driver) == "[Mul] y = Mul(x, {1.5, 2.5})"
    assert seen["result"].tolist() == [1.5, 2.5]


def test_evaluate_of_what_cannot_run_is_a_refusal() -> None:
    driver = drive(
        "float[2] x; n = Neg(x)  y = Relu(n)",
        [rule("run", op.Relu(x), lambda m, build: build.evaluate(m[x].producer()))],
    )
    assert reason(driver, "run").startswith("Neg cannot be run here:")


# -- taking back --------------------------------------------------------------------------------------------------


def test_discard_leaves_no_uses_behind() -> None:
    tape = Tape()
    uses = len(tape.x.uses())
    inner = tape.build.Mul(tape.x, 2.0)
    tape.build.Add(inner, tape.build.const(np.ones(4)))
    tape.build.microsoft.Gelu(inner)
    constants = list(tape.build.constants)
    assert len(tape.x.uses()) == uses + 1
    tape.build.discard()
    assert len(tape.x.uses()) == uses
    assert tape.build.nodes == tape.build.constants == []
    assert all(not c.uses() for c in constants)
    assert not inner.uses()


def test_a_refused_rewrite_leaves_no_uses_behind() -> None:
    def give_up(m: Match, build: Builder) -> ir.Value:
        build.Neg(build.Add(m[x], 1.0))
        m.refuse("no")

    driver = drive("float[2] x; y = Relu(x)", [rule("no", op.Relu(x), give_up)])
    (given_value,) = driver.model.graph.inputs
    assert [u.op_type for u in given_value.consumers()] == ["Relu"]
    assert reason(driver, "no") == "no"


def test_refuse_while_building() -> None:
    driver = drive("float[2] x; y = Relu(x)", [rule("no", op.Relu(x), lambda m, build: build.refuse("not here"))])
    assert reason(driver, "no") == "not here"


def test_opset_of_a_model_without_standard_operators() -> None:
    model = text.parse(
        '<ir_version: 10, opset_import: ["my.own": 2]> g (float[3] x) => (float[3] y) { y = my.own.F(x) }'
    )
    facts = Facts(model.graph, dict(model.opset_imports))
    f = op.__class__("my.own").F(x)
    match = next(RecursiveMatcher(facts, model.graph).matches((f,), model.graph.outputs[0]))
    build = Builder(facts, match, facts.opset_imports)
    assert build.opset == 1
    build.Gelu(match[x])
    assert build.nodes[0].version == 20


def test_attr_captures_carry_over() -> None:
    alpha = Attr[float]("alpha", default=0.01)
    leaky = op.LeakyRelu(x, alpha=alpha)
    to = rule("elu", leaky, lambda m, build: build.Elu(m[x], alpha=m[alpha]))
    driver = drive("float[2] x; y = LeakyRelu<alpha=0.3>(x)", [to])
    assert printed(driver) == "[LeakyRelu] y = Elu <alpha = 0.3> (x)"


def test_large_constants_that_are_equal_lie_in_one_place() -> None:
    weight = np.random.default_rng(0).standard_normal((512, 512), np.float32)
    first, again, other = (Tape().build.const(array) for array in (weight.copy(), weight.copy(), -weight))
    arrays = [each.const_value.numpy() for each in (first, again, other) if each.const_value is not None]
    assert np.shares_memory(arrays[0], arrays[1])
    assert not np.shares_memory(arrays[0], arrays[2])
    np.testing.assert_array_equal(arrays[1], weight)
    assert first.const_value is not again.const_value  # each bears the name that it has in its model
