"""Affine maps by channel folded into the layer before or after them, against float64; and the traps around it."""

from __future__ import annotations

import numpy as np
import pytest
from onnxrewrite_patterns import batchnorm_conv, constants, conv_batchnorm
from sides import Array, Sides, rewrite

from onnxrewrite.reference.evaluation import build_reference
from onnxrewrite.rewrite.registry import rules_of

RULES = (*rules_of(constants), *rules_of(conv_batchnorm), *rules_of(batchnorm_conv))


def vector(size: int, *, seed: int = 0, positive: bool = False, shape: str | None = None) -> str:
    """Random numbers as a literal."""
    data = np.random.default_rng(seed).normal(size=size)
    data = np.abs(data) + 0.1 if positive else data
    return f"float[{shape or size}] {{{', '.join(f'{v:.6f}' for v in data)}}}"


def statistics(size: int) -> str:
    """Scale, bias, mean and variance."""
    return ", ".join(vector(size, seed=i, positive=i == 3) for i in range(4))


def feed(*shape: int, dtype: type = np.float32) -> Array:
    return np.random.default_rng(7).normal(size=shape).astype(dtype)


def declared(sizes: tuple[int, ...]) -> str:
    """The type of an input of which only the channels are known."""
    return f"float[{','.join(str(size) if axis == 1 else 'n_hwd'[axis] for axis, size in enumerate(sizes))}]"


def check(graph: str, x: Array, *, left: list[str], opset: int = 17) -> Sides:
    """Rewrite, compare what is left, and run both sides against float64."""
    sides = rewrite(graph, RULES, opset=opset)
    assert sides.operators == left, sides.driver.trace.refused
    reference = build_reference(sides.before).session
    expected = reference.run({"x": x}) if reference is not None else None
    sides.same({"x": x}, None if expected is None or isinstance(expected, str) else list(expected.values()))
    return sides


CONVOLUTIONS = {
    "1-D": ("2,4,9", "c = Conv(x, float[6,4,3] ~, strides=[2], pads=[1, 0])"),
    "2-D": ("2,4,9,7", "c = Conv(x, float[6,4,3,3] ~, pads=[1, 1, 1, 1], dilations=[1, 2])"),
    "3-D": ("1,4,5,4,3", "c = Conv(x, float[6,4,2,2,2] ~)"),
    "bias": ("2,4,9,7", "c = Conv(x, float[6,4,1,1] ~, float[6] ~)"),
    "empty bias": ("2,4,9,7", "c = Conv(x, float[6,4,1,1] ~, )"),
    "grouped": ("2,4,9,7", "c = Conv(x, float[6,2,3,3] ~, float[6] ~, group=2)"),
    "depthwise": ("2,3,9,7", "c = Conv(x, float[6,1,3,3] ~, group=3)"),
    "same upper": ("2,4,8,7", 'c = Conv(x, float[6,4,3,3] ~, strides=[2, 2], auto_pad="SAME_UPPER")'),
    "same lower": ("2,4,8,7", 'c = Conv(x, float[6,4,3,3] ~, auto_pad="SAME_LOWER")'),
    "valid": ("2,4,8,7", 'c = Conv(x, float[6,4,3,3] ~, auto_pad="VALID", kernel_shape=[3, 3])'),
    "transposed": (
        "2,4,5,6",
        "c = ConvTranspose(x, float[4,6,3,2] ~, strides=[2, 1], output_padding=[1, 0])",
    ),
    "transposed, grouped": ("2,4,5,6", "c = ConvTranspose(x, float[4,3,2,2] ~, float[6] ~, group=2)"),
    "transposed, 1-D": ("2,4,5", "c = ConvTranspose(x, float[4,6,3] ~, pads=[1, 1], dilations=[2])"),
    "empty batch": ("0,4,9,7", "c = Conv(x, float[6,4,3,3] ~)"),
}


@pytest.mark.parametrize("opset", [7, 9, 14, 17, 22])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_batchnorm_goes_into_the_convolution(name: str, opset: int) -> None:
    shape, conv = CONVOLUTIONS[name]
    sizes = tuple(map(int, shape.split(",")))
    graph = f"{declared(sizes)} x; {conv}  y = BatchNormalization(c, {statistics(6)}, epsilon=0.001, momentum=0.99)"
    op_type = "ConvTranspose" if "Transpose" in conv else "Conv"
    check(graph, feed(*sizes), opset=opset, left=[op_type])


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_mul_add_sub_div_by_channel_go_into_the_convolution(name: str) -> None:
    shape, conv = CONVOLUTIONS[name]
    sizes = tuple(map(int, shape.split(",")))
    ones = ",1" * (len(sizes) - 2)
    first = f"m = Mul(c, {vector(6, shape='6' + ones)})  a = Add({vector(6, seed=1, shape='1,6' + ones)}, m)"
    more = f"{first}  s = Sub(a, {vector(6, seed=2, shape='6' + ones)})"
    graph = f"{more}  d = Div(s, {vector(6, seed=3, positive=True, shape='6' + ones)})  y = Mul(d, float[1] {{0.5}})"
    op_type = "ConvTranspose" if "Transpose" in conv else "Conv"
    check(f"{declared(sizes)} x; {conv}  {graph}", feed(*sizes), left=[op_type])


GEMMS = {
    "plain": ("5,4", "c = Gemm(x, float[4,6] ~, float[6] ~)"),
    "no C": ("5,4", "c = Gemm(x, float[4,6] ~)"),
    "alpha and beta": ("5,4", "c = Gemm(x, float[4,6] ~, float[1,6] ~, alpha=0.5, beta=2.0)"),
    "beta zero": ("5,4", "c = Gemm(x, float[4,6] ~, float[6] ~, beta=0.0)"),
    "transposed": ("4,5", "c = Gemm(x, float[6,4] ~, float[6] ~, transA=1, transB=1)"),
    "scalar C": ("5,4", "c = Gemm(x, float[4,6] ~, 3.0)"),
    "C by row": ("5,4", "c = Gemm(x, float[4,6] ~, float[5,1] ~, beta=0.5)"),
    "C in full": ("5,4", "c = Gemm(x, float[4,6] ~, float[5,6] ~)"),
}


@pytest.mark.parametrize("tail", ["BatchNormalization", "Mul and Add"])
@pytest.mark.parametrize("name", GEMMS)
def test_gemm_takes_an_affine_map(name: str, tail: str) -> None:
    shape, gemm = GEMMS[name]
    after = f"y = BatchNormalization(c, {statistics(6)})"
    if tail == "Mul and Add":
        after = f"m = Mul(c, {vector(6, shape='1,6')})  y = Add(m, {vector(6, seed=1)})"
    sizes = tuple(map(int, shape.split(",")))
    check(f"float[{shape}] x; {gemm}  {after}", feed(*sizes), left=["Gemm"])


@pytest.mark.parametrize("bias", ["c = MatMul(x, float[4,6] ~)", "p = MatMul(x, float[4,6] ~)  c = Add(float[6] ~, p)"])
def test_matmul_takes_batchnorm(bias: str) -> None:
    graph = f"float[n,4] x; {bias}  y = BatchNormalization(c, {statistics(6)})"
    check(graph, feed(5, 4), left=["Add", "MatMul"])


@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 5, 4), (0, 4)])
def test_matmul_takes_a_scale_whatever_the_rank(shape: tuple[int, ...]) -> None:
    graph = f"p = MatMul(x, float[4,6] ~)  a = Sub(p, float[6] ~)  y = Div(a, {vector(6, positive=True)})"
    check(graph, feed(*shape), left=["Add", "MatMul"])


def test_bias_by_position_is_scaled_with_the_product() -> None:
    graph = f"float[n,3,4] x; p = MatMul(x, float[4,6] ~)  a = Add(p, float[3,6] ~)  y = Mul(a, {vector(6)})"
    check(graph, feed(2, 3, 4), left=["Add", "MatMul"])


def test_batchnorms_become_one() -> None:
    graph = f"float[n,6,h] x; a = BatchNormalization(x, {statistics(6)})  y = BatchNormalization(a, {statistics(6)})"
    check(graph, feed(2, 6, 3), left=["BatchNormalization"])


def test_scale_layer_of_caffe_goes_into_batchnorm() -> None:
    tail = f"s = Unsqueeze(float[6] ~, axes=[1, 2])  m = Mul(n, s)  y = Add(m, {vector(6, shape='6,1,1')})"
    graph = f"float[n,6,h,w] x; n = BatchNormalization(x, {statistics(6)})  {tail}"
    check(graph, feed(2, 6, 3, 3), opset=9, left=["BatchNormalization"])


VIEWS = {
    "LeViT": ("n,5,4", f"r = Reshape(a, {{-1, 6}})  y = BatchNormalization(r, {statistics(6)})"),
    "flatten": ("n,5,4", f"r = Flatten<axis = 2>(a)  y = BatchNormalization(r, {statistics(6)})"),
    "channels second": (
        "n,5,4",
        f"t = Transpose<perm = [0, 2, 1]>(a)  y = BatchNormalization(t, {statistics(6)})",
    ),
    "by vector": ("n,5,4", f"t = Transpose<perm = [2, 1, 0]>(a)  y = Mul(t, {vector(6, shape='6,1,1')})"),
    "heads": ("n,5,4", f"r = Reshape(a, {{0, 5, 6, 1}})  y = Mul(r, {vector(6, shape='6,1')})"),
    "one more axis": ("n,5,4", f"u = Unsqueeze(a, {{1}})  y = Mul(u, {vector(6)})"),
}


@pytest.mark.parametrize("name", VIEWS)
def test_through_another_view_of_the_result(name: str) -> None:
    shape, after = VIEWS[name]
    graph = f"float[{shape}] x; p = MatMul(x, float[4,6] ~)  a = Add(p, float[6] ~)  {after}"
    (kept_view,) = {"Reshape", "Flatten", "Transpose", "Unsqueeze"} & set(
        after.replace("(", " ").replace("<", " ").split()
    )
    check(graph, feed(2, 5, 4), left=sorted(["Add", "MatMul", kept_view]))


def test_through_the_end_of_a_network() -> None:
    graph = f"c = Conv(x, float[6,4,3,3] ~)  f = Squeeze(c, {{2, 3}})  y = BatchNormalization(f, {statistics(6)})"
    check(f"float[n,4,3,3] x; {graph}", feed(2, 4, 3, 3), left=["Conv", "Squeeze"])
    graph = f"c = Conv(x, float[6,4,3,3] ~)  f = Flatten(c)  y = BatchNormalization(f, {statistics(6)})"
    check(f"float[n,4,3,3] x; {graph}", feed(2, 4, 3, 3), left=["Conv", "Flatten"])
    check(f"float[n,4,h,w] x; {graph}", feed(2, 4, 3, 3), left=["BatchNormalization", "Conv", "Flatten"])


def test_layers_side_by_side() -> None:
    """MixNet: kernels of several sizes, then one BatchNormalization."""
    convs = (
        "a = Conv(x, float[2,4,1] ~)  b = Conv(x, float[4,4,3] ~, float[4] ~, pads=[1, 1])  c = Concat(a, b, axis=-2)"
    )
    graph = f"float[n,4,w] x; {convs}  n = BatchNormalization(c, {statistics(6)})  m = Mul(n, {vector(6, shape='6,1')})"
    check(f"{graph}  y = Add(m, {vector(6, shape='6,1')})", feed(2, 4, 5), left=["Concat", "Conv", "Conv"])
    tail = f"BatchNormalization(c, {statistics(6)})"
    kept(
        f"float[n,4,w] x; {convs.replace('axis=-2', 'axis=0').replace('[2,4,1]', '[6,4,1]').replace('4,4,3', '6,4,3').replace('float[4] ~', 'float[6] ~')}  y = {tail}"
    )
    kept(f"float[n,4,w] x; {convs}  y = {tail}  z = Relu(a)")


def test_trap_views_that_move_the_channels() -> None:
    product = "float[n,6,4] x; p = MatMul(x, float[4,6] ~)  a = Add(p, float[6] ~)"
    kept(f"{product}  r = Reshape(a, {{-1, 12}})  y = BatchNormalization(r, {statistics(12)})")
    kept(f"{product}  r = Reshape(a, {{-1, 6, 6}})  y = BatchNormalization(r, {statistics(6)})")
    kept(f"{product}  r = Reshape(a, {{-1, 6, 2, 3}})  y = Mul(r, {vector(6, shape='6,1,1')})")
    kept(f"{product}  r = Transpose<perm = [0, 1, 2]>(a)  y = BatchNormalization(r, {statistics(6)})")
    kept(f"int64[k] s; {product}  r = Reshape(a, s)  y = Mul(r, {vector(6)})")


def test_residual_in_between() -> None:
    graph = f"c = Conv(x, float[6,6,1,1] ~)  s = Add(c, x)  y = Add(s, {vector(6, shape='6,1,1')})"
    sides = check(f"float[n,6,h,w] x; {graph}", feed(2, 6, 3, 3), left=["Add", "Conv"])
    assert len(sides.driver.model.graph) == 2


BEFORE = {
    "unpadded": ("2,4,7,7", "y = Conv(n, float[6,4,3,3] ~, float[6] ~)", ["Conv"]),
    "grouped": ("2,4,7,7", "y = Conv(n, float[6,2,3,3] ~, group=2)", ["Conv"]),
    "valid": ("2,4,7,7", 'y = Conv(n, float[6,4,3,3] ~, auto_pad="VALID")', ["Conv"]),
    "same, kernel 1": (
        "2,4,7,7",
        'y = Conv(n, float[6,4,1,1] ~, auto_pad="SAME_UPPER", strides=[2, 2])',
        ["Conv"],
    ),
    "padded": ("2,4,7,7", "y = Conv(n, float[6,4,3,3] ~, pads=[0, 0, 0, 1])", ["BatchNormalization", "Conv"]),
    "same": (
        "2,4,7,7",
        'y = Conv(n, float[6,4,3,3] ~, auto_pad="SAME_UPPER")',
        ["BatchNormalization", "Conv"],
    ),
    "transposed": (
        "2,4,7,7",
        "y = ConvTranspose(n, float[4,6,3,3] ~)",
        ["BatchNormalization", "ConvTranspose"],
    ),
    "Gemm": ("5,4", "y = Gemm(n, float[4,6] ~, float[6] ~, alpha=0.5, beta=2.0)", ["Gemm"]),
    "Gemm, transposed": ("5,4", "y = Gemm(n, float[6,4] ~, transB=1)", ["Gemm"]),
    "Gemm that transposes x": ("4,4", "y = Gemm(n, float[4,6] ~, transA=1)", ["BatchNormalization", "Gemm"]),
}


@pytest.mark.parametrize("name", BEFORE)
def test_batchnorm_goes_into_the_layer_after_it(name: str) -> None:
    shape, conv, left = BEFORE[name]
    sizes = tuple(map(int, shape.split(",")))
    graph = f"{declared(sizes)} x; n = BatchNormalization(x, {statistics(4)})  {conv}"
    check(graph, feed(*sizes), left=left)


def test_scale_alone_goes_into_a_padded_convolution() -> None:
    numbers = f"{vector(4)}, float[4] {{0, 0, 0, 0}}, float[4] {{0, 0, 0, 0}}, {vector(4, positive=True)}"
    graph = f"float[n,4,h,w] x; n = BatchNormalization(x, {numbers})  y = Conv(n, float[6,4,3,3] ~, pads=[1, 1, 1, 1])"
    check(graph, feed(2, 4, 5, 5), left=["Conv"])
    graph = graph.replace("y = Conv(n, float[6,4,3,3] ~", "y = ConvTranspose(n, float[4,2,3,3] ~, float[4] ~, group=2")
    check(graph, feed(2, 4, 5, 5), left=["ConvTranspose"])


def test_normalized_image() -> None:
    image = f"s = Sub(x, {vector(3, shape='1,3,1,1')})  d = Div(s, {vector(3, positive=True, shape='3,1,1')})"
    graph = f"float[n,3,h,w] x; {image}  e = Div(d, 255.0)  y = Conv(e, float[4,3,3,3] ~, float[4] ~)"
    check(graph, feed(2, 3, 5, 5), left=["Conv"])
    check(graph.replace(" ~)", " ~, pads=[1, 1, 1, 1])"), feed(2, 3, 5, 5), left=["Conv", "Sub"])


# -- traps -----------------------------------------------------------------------------------------------------

CONV = "c = Conv(x, float[2,2,1,1] {1, 2, 3, 4})"
BN = f"y = BatchNormalization(c, {statistics(2)})"


def kept(graph: str, *, opset: int = 17) -> None:
    """Nothing may change."""
    sides = rewrite(graph, RULES, opset=opset)
    assert not sides.driver.trace.applied


def test_trap_training_mode_of_every_opset() -> None:
    train = f"y, m, v = BatchNormalization(c, {statistics(2)}, training_mode=1)"
    kept(f"{CONV}  {train}")
    kept(f"{CONV}  {train}", opset=14)
    kept(f"{CONV}  y, m, v, s, t = BatchNormalization(c, {statistics(2)})", opset=9)
    kept(f"{CONV}  {BN}", opset=6)  # is_test is 0 unless given
    kept(f"{CONV}  y = BatchNormalization(c, {statistics(2)}, spatial=0)", opset=8)
    sides = rewrite(f"{CONV}  y = BatchNormalization(c, {statistics(2)}, is_test=1)", RULES, opset=6)
    assert sides.operators == ["Conv"]


def test_trap_broadcast_of_old_opsets() -> None:
    kept(f"{CONV}  y = Mul<axis = 1, broadcast = 1>(c, {vector(2)})", opset=6)


@pytest.mark.parametrize("which", ["w", "gamma", "var"])
def test_trap_overridable_initializers_are_no_constants(which: str) -> None:
    values = {"w": "float[2,2,1,1] {1, 2, 3, 4}", "gamma": vector(2), "var": vector(2, positive=True)}
    literals = {name: name if name == which else text for name, text in values.items()}
    norm = f"BatchNormalization(c, {literals['gamma']}, {vector(2)}, {vector(2)}, {literals['var']})"
    kept(f"input {which} = {values[which]}  c = Conv(x, {literals['w']})  y = {norm}")


def test_trap_the_convolution_is_needed_elsewhere() -> None:
    kept(f"{CONV}  {BN}  z = Relu(c)")
    kept(f"x => (c, y) {{ {CONV}  {BN} }}".replace("x =>", "g (float[n,2,h,w] x) =>"))


def test_trap_one_weight_for_two_convolutions() -> None:
    graph = f"w = float[2,2,1,1] {{1, 2, 3, 4}}  c = Conv(x, w)  {BN}  z = Conv(y, w)"
    check(graph, feed(2, 2, 3, 3), left=["Conv", "Conv"])


def test_trap_variance_without_a_root() -> None:
    numbers = f"{vector(2)}, {vector(2)}, {vector(2)}"
    kept(f"{CONV}  y = BatchNormalization(c, {numbers}, float[2] {{1.0, -0.5}})")
    kept(f"{CONV}  y = BatchNormalization(c, {numbers}, float[2] {{1.0, 0.0}}, epsilon=0.0)")


def test_trap_constants_that_are_not_by_channel() -> None:
    known = "float[2,2,2,2] x; "
    for shape in ("2", "2,1", "1,2,2", "2,1,1,1", "1,1,2,1,1"):
        kept(f"{known}{CONV}  y = Mul(c, {vector(int(np.prod(eval(f'({shape},)'))), shape=shape)})")
        kept(f"{known}{CONV}  y = Add(c, {vector(int(np.prod(eval(f'({shape},)'))), shape=shape)})")
    kept(f"float[2,2,2,2] x; c = Conv(x, float[1,2,1,1] {{1, 2}})  y = Mul(c, {vector(3, shape='3,1,1')})")
    kept(f"float[n,2,4] x; c = MatMul(x, float[4,2] ~)  y = BatchNormalization(c, {statistics(2)})")
    kept("float[n,2] x; c = Gemm(x, float[2,2] ~)  y = Mul(c, float[2,1] {1, 2})")


def test_trap_the_constant_widens_what_the_layer_reads() -> None:
    kept("float[n,1,h,w] x; s = Mul(x, float[2,1,1] {1, 2})  y = Conv(s, float[2,2,1,1] {1, 2, 3, 4})")
    kept("float[2,h,w] x; s = Mul(x, float[1,2,1,1] {1, 2})  y = Conv(s, float[2,2,1,1] {1, 2, 3, 4})")
    kept("s = Mul(x, float[2,1,1] {1, 2})  y = Conv(s, float[2,2,1,1] {1, 2, 3, 4})")


def test_trap_integers_are_left_alone() -> None:
    kept("int32[n,2] x; c = MatMul(x, int32[2,2] {1, 2, 3, 4})  y = Mul(c, int32[2] {3, 5})")


def test_trap_numbers_that_a_half_cannot_hold() -> None:
    conv = "float16[n,1,h] x; c = Conv(x, float16[1,1,1] {{{}}})  y = Mul(c, float16[1,1] {{{}}})"
    assert rewrite(conv.format("2.0", "3.0"), RULES).operators == ["Conv"]
    kept(conv.format("300.0", "300.0"))
    kept(conv.format("0.001", "0.0001"))


def test_trap_factors_that_change_places_do_not_overflow() -> None:
    tail = "m = Mul(c, g)  y = Mul(m, float[2,1] {{{}, 1}})"
    graph = f"float[n,2,h] x; float[n,2,h] g; c = Conv(x, float[2,2,1] ~)  {tail}"
    kept(graph.format("1e38"))
    assert rewrite(graph.format("2.0"), RULES).operators == ["Conv", "Mul"]
    kept("c = Conv(x, float[2,2,1] ~)  m = Mul(c, float[2,1] {1, 1e-42})  y = Mul(m, float[2,1] {1, 1e38})")


def test_trap_half_convolution_with_float_statistics() -> None:
    graph = f"float16[n,2,h] x; c = Conv(x, float16[2,2,1] {{1, 2, 3, 4}})  y = BatchNormalization(c, {statistics(2)})"
    graph = graph.replace("float[2] {", "float16[2] {", 2)
    sides = rewrite(graph, RULES, opset=15)
    assert sides.operators == ["Conv"]
    weight = sides.driver.model.graph.node(0).inputs[1].const_value.numpy()
    rng = [np.random.default_rng(i).normal(size=2) for i in range(4)]
    gain = np.float16(rng[0]).astype(float) / np.sqrt(np.float32(np.abs(rng[3]) + 0.1).astype(float) + 1e-5)
    exact = np.array([[1, 2], [3, 4]]) * gain[:, None]
    np.testing.assert_allclose(weight[..., 0].astype(float), exact, rtol=2**-11 + 1e-5)


def test_trap_scale_zero() -> None:
    numbers = f"float[2] {{0, 1}}, {vector(2)}, {vector(2)}, {vector(2, positive=True)}"
    check(f"{CONV}  y = BatchNormalization(c, {numbers})", feed(2, 2, 3, 3), left=["Conv"])


def test_trap_tiny_variance_and_a_far_mean() -> None:
    numbers = "float[2] {1, 1}, float[2] {0, 0}, float[2] {1000, -1000}, float[2] {1e-8, 1e-12}"
    check(f"{CONV}  y = BatchNormalization(c, {numbers}, epsilon=1e-12)", feed(2, 2, 3, 3), left=["Conv"])


def test_trap_an_activation_keeps_its_constant_until_it_is_raised() -> None:
    graph = f"{CONV}  a = Add(c, 3.0)  b = Clip(a, 0.0, 6.0)  y = Div(b, 6.0)"
    sides = check(f"float[n,2,h,w] x; {graph}", feed(2, 2, 3, 3), left=["Clip", "Conv", "Div"])
    (applied,) = sides.driver.trace.applied
    assert applied.stage == "lower"


def test_inside_a_branch() -> None:
    branch = (
        f"g1 () => (float[n,2,h,w] t) {{ c = Conv(x, float[2,2,1,1] ~)  t = BatchNormalization(c, {statistics(2)}) }}"
    )
    other = "g2 () => (float[n,2,h,w] u) { u = Relu(x) }"
    sides = rewrite(f"bool b; float[n,2,h,w] x; y = If (b) <then_branch = {branch}, else_branch = {other}>", RULES)
    assert sides.operators == ["Conv", "If", "Relu"]
    for b in (True, False):
        sides.same({"x": feed(2, 2, 3, 3), "b": np.array(b)})


@pytest.mark.parametrize("seed", range(20))
def test_random_chains(seed: int) -> None:
    """Any chain of affine maps by channel after any layer is folded away."""
    rng = np.random.default_rng(seed)
    name = list(CONVOLUTIONS)[rng.integers(len(CONVOLUTIONS))]
    shape, graph = CONVOLUTIONS[name]
    sizes = tuple(map(int, shape.split(",")))
    ones = ",1" * (len(sizes) - 2)
    value = "c"
    for step in range(rng.integers(2, 6)):
        numbers = vector(6, seed=seed + step, positive=True, shape=rng.choice(["6", "1,6"]) + ones)
        kind = rng.choice(["Mul", "Div", "Add", "Sub", "BatchNormalization"])
        if kind == "BatchNormalization":
            graph += f"  v{step} = BatchNormalization({value}, {statistics(6)})"
        elif kind in ("Add", "Mul") and rng.random() < 0.5:
            graph += f"  v{step} = {kind}({numbers}, {value})"
        else:
            graph += f"  v{step} = {kind}({value}, {numbers})"
        value = f"v{step}"
    left = ["ConvTranspose" if "Transpose" in graph else "Conv"]
    check(f"{declared(sizes)} x; {graph}", feed(*sizes), left=left)
