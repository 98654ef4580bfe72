"""Parallel convolutions made one, and what must not be one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnxrewrite_patterns import constants, conv_batchnorm, grouped_conv
from sides import Array, Sides, rewrite

from onnxrewrite import io
from onnxrewrite.ir.target import target
from onnxrewrite.reference.evaluation import build_reference
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.registry import rules_of

RULES = (*rules_of(constants), *rules_of(conv_batchnorm), *rules_of(grouped_conv))


def feed(*shape: int) -> Array:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def check(graph: str, x: Array, left: list[str], *, opset: int = 17) -> Sides:
    """Rewrite, compare what is left, and run both sides against float64."""
    sides = rewrite(graph, RULES, opset=opset)
    assert sides.operators == left, sides.driver.trace.refused
    reference = build_reference(sides.before).session
    expected = reference.run({"x": x}) if reference is not None else None
    sides.same({"x": x}, None if expected is None or isinstance(expected, str) else list(expected.values()))
    return sides


def parallel(convs: list[str], *, tail: str = "", axis: int = 1) -> str:
    """Convolutions, each with the same functions after it, and their Concat."""
    lines = [f"c{i} = {conv}" for i, conv in enumerate(convs)]
    ends = [f"c{i}" for i in range(len(convs))]
    for step, function in enumerate(filter(None, tail.split(" "))):
        lines += [f"t{step}_{i} = {function.replace('_', end)}" for i, end in enumerate(ends)]
        ends = [f"t{step}_{i}" for i in range(len(convs))]
    return "  ".join([*lines, f"y = Concat<axis = {axis}>({', '.join(ends)})"])


SPLITS = {
    7: "a, b, c = Split<axis = 1, split = [2, 2, 2]>(x)",
    11: "a, b, c = Split<axis = -3>(x)",
    13: "a, b, c = Split<axis = 1>(x, {2, 2, 2})",
    18: "a, b, c = Split<axis = 1, num_outputs = 3>(x)",
    22: "a, b, c = Split<axis = 1, num_outputs = 3>(x)",
}
SLICES = {
    9: "a = Slice<axes=[1], starts=[0], ends=[2]>(x) b = Slice<axes=[1], starts=[2], ends=[4]>(x)"
    " c = Slice<axes=[1], starts=[4], ends=[9223372036854775807]>(x)",
    17: "a = Slice(x, {0}, {2}, {1}) b = Slice(x, {2}, {4}, {-3}, {1}) c = Slice(x, {-2}, {6}, {1})",
}


@pytest.mark.parametrize("opset", SPLITS)
def test_parts_of_a_split_are_groups(opset: int) -> None:
    convs = [f"Conv<pads = [1, 1, 1, 1]>({part}, float[3,2,3,3] ~, float[3] ~)" for part in "abc"]
    sides = check(f"float[n,6,h,w] x; {SPLITS[opset]}  {parallel(convs)}", feed(2, 6, 5, 4), ["Conv"], opset=opset)
    assert sides.driver.model.graph.node(0).attributes["group"].as_int() == 3


@pytest.mark.parametrize("opset", SLICES)
def test_slices_that_partition_the_channels_are_groups(opset: int) -> None:
    convs = [f"Conv({part}, float[3,2,3,3] ~)" for part in "abc"]
    check(f"float[n,6,h,w] x; {SLICES[opset]}  {parallel(convs)}", feed(2, 6, 5, 4), ["Conv"], opset=opset)


def test_chunks_as_torchscript_computes_them() -> None:
    half = "d = Gather<axis = 0>(s, 1)  p = Add(d, 1)  h = Div(p, 2)  e = Mul(h, {2})  f = Mul(h, {1})"
    cut = "a = Slice(x, {0}, f, {1})  b = Slice(x, f, e, {1})"
    convs = ["Conv(a, float[3,3,3,3] ~)", "Conv(b, float[3,3,3,3] ~)"]
    check(f"float[n,6,h,w] x; s = Shape(x)  {half}  {cut}  {parallel(convs)}", feed(2, 6, 5, 4), ["Conv"])


def test_one_channel_each_is_depthwise() -> None:
    split = "a, b, c = Split<axis = 1>(x, {1, 1, 1})"
    convs = [f"Conv({part}, float[1,1,3] ~)" for part in "abc"]
    sides = check(f"float[n,3,w] x; {split}  {parallel(convs)}", feed(2, 3, 5), ["Conv"])
    assert sides.driver.model.graph.node(0).inputs[1].shape == [3, 1, 3]


def test_groups_of_groups_and_mixed_bias() -> None:
    split = "a, b = Split<axis = 1>(x, {4, 4})"
    convs = [
        "Conv<group = 2>(a, float[6,2,3] ~)",
        "Conv<group = 2, strides = [1]>(b, float[6,2,3] ~, float[6] ~)",
    ]
    sides = check(f"float[n,8,w] x; {split}  {parallel(convs)}", feed(2, 8, 5), ["Conv"])
    assert sides.driver.model.graph.node(0).attributes["group"].as_int() == 4


def test_transposed_convolutions() -> None:
    convs = [f"ConvTranspose<strides = [2]>(x, float[4,{n},3] ~)" for n in (2, 3)]
    check(f"float[n,4,w] x; {parallel(convs)}", feed(2, 4, 5), ["ConvTranspose"])
    split = "a, b = Split<axis = 1>(x, {4, 4})"
    convs = [f"ConvTranspose<group = 2>({part}, float[4,3,3] ~, float[6] ~)" for part in "ab"]
    check(f"float[n,8,w] x; {split}  {parallel(convs)}", feed(2, 8, 5), ["ConvTranspose"])


@pytest.mark.parametrize(
    ("tail", "left"),
    [
        ("Relu(_)", ["Conv", "Relu"]),
        ("LeakyRelu<alpha=0.2>(_)", ["Conv", "LeakyRelu"]),
        ("Clip(_,0.0,6.0)", ["Clip", "Conv"]),
        ("Identity(_) Sigmoid(_)", ["Conv", "Sigmoid"]),
        ("BatchNormalization(_,float[3]~,float[3]~,float[3]~,float[3]{1,2,3}) Relu(_)", ["Conv", "Relu"]),
        ("Tanh(_) Abs(_)", ["Abs", "Conv", "Tanh"]),
    ],
)
def test_activations_in_between(tail: str, left: list[str]) -> None:
    convs = ["Conv(x, float[3,4,3] ~)", "Conv<dilations = [1]>(x, float[3,4,3] ~, float[3] ~)"]
    check(f"float[n,4,w] x; {parallel(convs, tail=tail)}", feed(2, 4, 5), left)


def test_only_neighbours_are_merged() -> None:
    convs = ["Conv(x, float[2,4,1] ~)", "Conv(x, float[3,4,1] ~)", "Conv<pads = [1, 1]>(x, float[3,4,3] ~)"]
    convs += [
        "MaxPool<kernel_shape = [1]>(x)",
        "Conv(x, float[2,4,1] ~)",
        "Conv(x, float[1,4,1] ~, float[1] ~)",
    ]
    check(f"float[n,4,w] x; {parallel(convs)}", feed(2, 4, 5), ["Concat", "Conv", "Conv", "Conv", "MaxPool"])


def test_empty_batch() -> None:
    convs = ["Conv(x, float[2,4,1] ~)", "Conv(x, float[3,4,1] ~)"]
    check(f"float[n,4,w] x; {parallel(convs)}", feed(0, 4, 5), ["Conv"])


# -- traps -----------------------------------------------------------------------------------------------------


def kept(graph: str) -> None:
    sides = rewrite(graph, RULES)
    assert not sides.driver.trace.applied


@pytest.mark.parametrize(
    "other",
    [
        "Conv<strides = [2]>(x, float[2,4,1] ~)",
        "Conv<pads = [1, 1]>(x, float[2,4,3] ~)",
        "Conv<pads = [1, 0]>(x, float[2,4,2] ~)",
        "Conv<dilations = [2]>(x, float[2,4,1] ~)",
        'Conv<auto_pad = "SAME_UPPER">(x, float[2,4,1] ~)',
        "Conv(z, float[2,4,1] ~)",
        "Conv(x, w)",
        "Conv(x, float[2,4,1] ~, b)",
        "Conv<group = 2>(x, float[2,2,1] ~)",
        "ConvTranspose(x, float[4,2,1] ~)",
    ],
)
def test_trap_another_geometry_input_or_weight(other: str) -> None:
    kept(f"float[n,4,w] x; {parallel(['Conv(x, float[2,4,1] ~)', other])}")


def test_trap_grouped_convolutions_over_one_input_interleave() -> None:
    kept(
        f"float[n,4,w] x; {parallel(['Conv<group = 2>(x, float[2,2,1] ~)'] * 1 + ['Conv<group = 2>(x, float[4,2,1] ~)'])}"
    )


def test_trap_along_another_axis() -> None:
    convs = ["Conv(x, float[2,4,1] ~)", "Conv(x, float[2,4,1] ~, float[2] ~)"]
    for axis in (0, 2, -1, -3):
        kept(f"float[n,4,w] x; {parallel(convs, axis=axis)}")
    assert rewrite(f"float[n,4,w] x; {parallel(convs, axis=-2)}", RULES).operators == ["Conv"]


def test_trap_activations_differ() -> None:
    convs = "c = Conv(x, float[2,4,1] ~)  d = Conv(x, float[2,4,1] ~, float[2] ~)"
    kept(
        f"float[n,4,w] x; {convs}  r = LeakyRelu<alpha = 0.1>(c)  s = LeakyRelu<alpha = 0.2>(d)  y = Concat<axis = 1>(r, s)"
    )
    kept(f"float[n,4,w] x; {convs}  r = Clip(c, 0.0)  s = Clip(d, 1.0)  y = Concat<axis = 1>(r, s)")
    kept(f"float[n,4,w] x; {convs}  r = Relu(c)  y = Concat<axis = 1>(r, d)")
    kept(f"float[n,4,w] x; float m; {convs}  r = Clip(c, m)  s = Clip(d, m)  y = Concat<axis = 1>(r, s)")
    kept(f"float[n,4,w] x; {convs}  r = PRelu(c, float[2,1] ~)  s = PRelu(d, float[2,1] ~)  y = Concat<axis = 1>(r, s)")


@pytest.mark.parametrize(
    "cut",
    [
        "a, b = Split<axis = 1>(x, {2, 2})  z = Relu(b)",
        "b, a = Split<axis = 1>(x, {2, 2})",
        "a, b, z = Split<axis = 1>(x, {2, 2, 2})",
        "a, b = Split<axis = 2>(x)",
        "a = Slice(x, {0}, {4}, {1}, {2})  b = Slice(x, {1}, {4}, {1}, {2})",
        "a = Slice(x, {0}, {2}, {1})  b = Slice(x, {1}, {3}, {1})",
        "a = Slice(x, {0}, {2}, {1})  b = Slice(x, {-3}, {3}, {1})",
        "a = Slice(x, {0, 0}, {2, 3}, {1, 2})  b = Slice(x, {2, 0}, {4, 3}, {1, 2})",
        "a = Slice(x, {0}, {2}, {1})  b = Slice(x, {2}, {4}, {1})  z = Relu(a)",
    ],
)
def test_trap_parts_that_are_no_groups(cut: str) -> None:
    channels = 6 if "z = Split" in cut else 2 if "axis = 2" in cut else 4
    convs = ["Conv(a, float[3,2,1] ~)", "Conv(b, float[3,2,1] ~, float[3] ~)"]
    kept(f"float[n,{channels},w] x; {cut}  {parallel(convs)}")


def test_trap_slices_that_leave_channels_out() -> None:
    cut = "a = Slice(x, {0}, {2}, {1})  b = Slice(x, {2}, {4}, {1})"
    convs = ["Conv(a, float[3,2,1] ~)", "Conv(b, float[3,2,1] ~, float[3] ~)"]
    kept(f"float[n,5,w] x; {cut}  {parallel(convs)}")
    kept(f"float[n,c,w] x; {cut}  {parallel(convs)}")


def test_trap_uneven_parts() -> None:
    convs = ["Conv(a, float[3,1,1] ~)", "Conv(b, float[3,2,1] ~)"]
    kept(f"float[n,3,w] x; a, b = Split<axis = 1>(x, {{1, 2}})  {parallel(convs)}")
    convs = ["Conv(a, float[3,2,1] ~)", "Conv(b, float[2,2,1] ~)"]
    kept(f"float[n,4,w] x; a, b = Split<axis = 1>(x, {{2, 2}})  {parallel(convs)}")


def test_trap_a_result_is_read_elsewhere() -> None:
    convs = "c = Conv(x, float[2,4,1] ~)  d = Conv(x, float[2,4,1] ~, float[2] ~)"
    kept(f"float[n,4,w] x; {convs}  y = Concat<axis = 1>(c, d)  z = Relu(d)")
    kept(f"float[n,4,w] x; {convs}  y = Concat<axis = 1>(c, d, c)")
    kept(f"g (float[n,4,w] x) => (c, y) {{ {convs}  y = Concat<axis = 1>(c, d) }}")


def test_trap_overridable_weight() -> None:
    convs = "c = Conv(x, w)  d = Conv(x, float[2,4,1] ~)"
    kept(f"float[n,4,w] x; input w = float[2,4,1] ~  {convs}  y = Concat<axis = 1>(c, d)")


def test_identities_in_between_do_not_matter() -> None:
    graph = (
        "float[n,2,w] x; i = Cast<to=1>(x)  a = Slice(i, {0}, {1}, {1})  b = Slice(x, {1}, {2}, {1})  j = Identity(a)"
        "  c = Conv(j, float[1,1,1] {2})  k = Cast<to=1>(c)  d = Conv(b, float[1,1,1] {3})  y = Concat<axis=1>(k, d)"
    )
    check(graph, feed(3, 2, 5), ["Conv"])


OWN_FUNCTION = """<ir_version: 10, opset_import: ["" : 17, "my" : 1]>
graph (float[n,2,w] x) => (float[n,4,w] y)
<float[2,2,1] p = {1,2,3,4}, float[2,2,1] q = {5,6,7,8}, float[n,2,w] c, float[n,2,w] d> {
  a = Conv(x, p)  b = Conv(x, q)  c = my.Relu(a)  d = my.Relu(b)  y = Concat<axis = 1>(c, d)
}
<domain: "my", opset_import: ["" : 17]>
Relu (v) => (r) { mean = ReduceMean<axes = [1]>(v)  r = Sub(v, mean) }
"""


def test_trap_a_function_that_is_called_like_one_of_each_element() -> None:
    """It takes the mean over the channels, of which there are more in one convolution."""
    driver = Driver(io.load(onnx.parser.parse_model(OWN_FUNCTION)), RULES, target("onnxruntime-cpu"))
    trace = driver.run()
    assert trace.applied == []
    assert "dtype" not in trace.refused["parallel-convs"]["y"], "the rule sees it, not only the engine"
