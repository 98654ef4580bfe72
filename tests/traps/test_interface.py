"""TRAPS.md, "Interface": what a caller sees of a model stays as it is."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxrewrite

from .helpers import gelu, nodes, one_line, operators, proto, run, trap

F = TensorProto.FLOAT
BN = "BatchNormalization"
CONV = "float[n,2,5,5] x; c = Conv(x, {w})  y = BatchNormalization(c, {scale}, {shift}, {mean}, {var})"
CONV_PARTS = {
    "w": "float[2,2,3,3] ~",
    "scale": "{1.5, 0.5}",
    "shift": "{0.25, -1.0}",
    "mean": "{0.5, 0.0}",
    "var": "{1.0, 2.0}",
}
LIST = "float[{}] {{{}}}"
SMALL = {"w": "float[2,2,3,3] ~", **{k: f"float[2] {v}" for k, v in CONV_PARTS.items() if k != "w"}}


def conv_with_input(part: str) -> str:
    """Conv and BatchNormalization, one parameter of which is an overridable initializer called ``o``."""
    return f"input o = {SMALL[part]}  " + CONV.format(**{**CONV_PARTS, part: "o"})


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def make(
    node_list, inputs, outputs, initializers=(), *, opset=17, ir_version=8, domains=(), functions=(), **kwargs
) -> onnx.ModelProto:
    graph = helper.make_graph(node_list, "g", inputs, outputs, initializer=list(initializers))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, functions=list(functions), **kwargs)


def tensor(name: str, array) -> TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(array), name)


def info(name: str, *shape, dtype: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


# -- an initializer that is also a graph input -------------------------------------------------------------------


@pytest.mark.parametrize("part", list(SMALL))
def test_overridable_conv_batchnorm(part):
    """An initializer that is also a graph input: Conv weight, BN scale, and the other statistics."""
    overrides = [{"o": np.array([0.25, 3.0], np.float32)}] if part == "var" else None
    trap(conv_with_input(part), overrides=overrides, tolerance=8).keeps("Conv", BN)


OVERRIDABLE = {
    "mul by one": "input o = float {1}  float[n,3] x; m = Mul(x, o)  y = Tanh(m)",
    "mul by ones": "input o = float[3] {1, 1, 1}  float[n,3] x; m = Mul(o, x)  y = Tanh(m)",
    "div by one": "input o = float {1}  float[n,3] x; m = Div(x, o)  y = Tanh(m)",
    "pow one": "input o = float {1}  float[n,3] x; a = Abs(x)  m = Pow(a, o)  y = Tanh(m)",
    "sub zero": "input o = float {0}  float[n,3] x; m = Sub(x, o)  y = Tanh(m)",
    "add minus zero": "input o = float {-0.0}  float[n,3] x; m = Add(x, o)  y = Tanh(m)",
    "gelu half": "input o = float {0.5}  float[n,3] x; d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)"
    "  m = Mul(x, a)  y = Mul(m, o)",
    "gelu root": "input o = float {1.41421356}  float[n,3] x; d = Div(x, o)  e = Erf(d)  a = Add(e, 1.0)"
    "  m = Mul(x, a)  y = Mul(m, 0.5)",
    "gelu one": "input o = float[1] {1}  float[n,3] x; d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, o)"
    "  m = Mul(x, a)  y = Mul(m, 0.5)",
    "quick gelu slope": "input o = float {1.702}  float[n,3] x; b = Mul(x, o)  s = Sigmoid(b)  y = Mul(x, s)",
    "clip min": "input o = float {0}  float[n,3] x; a = Clip(x, o, 6.0)  y = Clip(a, -1.0, 4.0)",
    "clip max": "input o = float {6}  float[n,3] x; r = Relu(x)  y = Clip(r, 0.0, o)",
    "max bound": "input o = float {0}  float[n,3] x; a = Max(x, o)  y = Min(a, 6.0)",
    "relu6 by six": "input o = float {6}  float[n,3] x; a = Add(x, 3.0)  c = Clip(a, 0.0, 6.0)  y = Div(c, o)",
    "folded": "input o = float[3] {1, 2, 3}  float[n,3] x; a = Sqrt(o)  b = Add(a, 1.0)  y = Mul(x, b)",
    "gemm bias": "input o = float[2] {1, 2}  float[n,3] x; g = Gemm(x, float[3,2] ~, o)  y = Mul(g, {2.0, 3.0})",
    "matmul bias": "input o = float[2] {1, 2}  float[n,3] x; g = MatMul(x, float[3,2] ~)  y = Add(g, o)",
    "matmul weight": "input o = float[3,2] ~  float[n,3] x; g = MatMul(x, o)  a = Add(g, {2.0, 3.0})  y = Mul(a, {2.0, 3.0})",
    "transposed weight": "input o = float[2,3] ~  float[n,3] x; t = Transpose(o)  y = MatMul(x, t)",
    "twins": "input o = float {1}  input p = float {1}  float[n,3] x; a = Add(x, o)  b = Add(x, p)  y = Mul(a, b)",
    "pad value": "input o = float {0}  float[n,3] x; p = Pad(x, {0, 1, 0, 1}, o)  y = Relu(p)",
    "layer norm eps": "input o = float {1e-5}  float[n,3] x; m = ReduceMean<axes=[-1]>(x)  d = Sub(x, m)  q = Mul(d, d)"
    "  v = ReduceMean<axes=[-1]>(q)  e = Add(v, o)  s = Sqrt(e)  y = Div(d, s)",
    "attention scale": "input o = float {0.5}  float[n,2,3,4] q; float[n,2,4,3] kt; float[n,2,3,4] v; s = MatMul(q, kt)"
    "  a = Mul(s, o)  p = Softmax(a)  y = MatMul(p, v)",
    "inside If": "input o = float {1}  bool c; float[n,3] x; y = If (c) <then_branch = a () => (t) { t = Mul(x, o) },"
    " else_branch = b () => (u) { u = Div(x, o) }>",
    "branch is the default": "input o = float {0.5}  bool c; float[n,3] x; z = Relu(x)  y = If (c) <then_branch = a () => (t)"
    " { t = Identity(o) }, else_branch = b () => (u) { u = ReduceSum(x) }>",
    "read by name only": "input o = float[3] {1, 1, 1}  float[n,3] x; y = Relu(x)",
}


@pytest.mark.parametrize("graph", OVERRIDABLE.values(), ids=OVERRIDABLE.keys())
def test_overridable_numbers(graph):
    """An initializer that is also a graph input: Mul-by-1, GELU's 0.5, Clip bound: never treat it as constant."""
    seen = trap(graph, tolerance=4)
    assert "Gelu" not in seen.ops
    assert [i.name for i in seen.model.graph.input if i.name in "op"]


OVERRIDABLE_SHAPES = {
    "Reshape": ("input o = int64[2] {2, 3}  float[2,3] x; r = Reshape(x, o)  y = Relu(r)", i64(3, 2)),
    "Reshape to -1": ("input o = int64[1] {-1}  float[2,3] x; r = Reshape(x, {6})  y = Reshape(r, o)", i64(6)),
    "Reshape twice": ("input o = int64[2] {6, 1}  float[2,3] x; r = Reshape(x, o)  y = Reshape(r, {0, -1})", i64(3, 2)),
    "Expand": ("input o = int64[2] {1, 3}  float[1,3] x; r = Expand(x, o)  y = Relu(r)", i64(4, 3)),
    "Tile": ("input o = int64[2] {1, 1}  float[2,3] x; r = Tile(x, o)  y = Relu(r)", i64(2, 1)),
    "Slice end": ("input o = int64[1] {3}  float[2,3] x; r = Slice(x, {0}, o, {1})  y = Relu(r)", i64(2)),
    "Slice step": ("input o = int64[1] {1}  float[2,3] x; r = Slice(x, {0}, {3}, {1}, o)  y = Relu(r)", i64(2)),
    "Slice axis": (
        "input o = int64[1] {1}  float[3,3] x; r = Slice(x, {0}, {2}, o)  y = Slice(r, {0}, {3}, {1})",
        i64(0),
    ),
    "Squeeze axis": ("input o = int64[1] {0}  float[1,1,3] x; r = Squeeze(x, o)  y = Unsqueeze(r, o)", i64(1)),
    "Pad": ("input o = int64[4] {0, 0, 0, 0}  float[2,3] x; r = Pad(x, o)  y = Relu(r)", i64(0, 1, 1, 0)),
    "Gather index": (
        "input o = int64 {0}  float[n,3] x; t = Shape(x)  g = Gather(t, o)  y = Cast<to=1>(g)",
        np.int64(1),
    ),
    "Gather data": ("input o = int64[3] {0, 1, 2}  g = Gather(o, {0, 2})  y = Cast<to=1>(g)", i64(4, 5, 6)),
    "Range limit": ("input o = int64 {3}  r = Range(0, o, 1)  y = Cast<to=1>(r)", np.int64(5)),
    "ConstantOfShape": ("input o = int64[1] {3}  r = ConstantOfShape(o)  y = Cos(r)", i64(4)),
    "OneHot depth": ("input o = int64 {3}  int64[n] x; y = OneHot(x, o, {0.0, 1.0})", np.int64(5)),
    "TopK k": ("input o = int64[1] {3}  float[2,3] x; y, z = TopK(x, o)", i64(2)),
    "Split": ("input o = int64[2] {1, 2}  float[2,3] x; y, z = Split<axis=1>(x, o)", i64(2, 1)),
    "ReduceSum axes": ("input o = int64[1] {1}  float[2,3] x; r = ReduceSum(x, o)  y = Relu(r)", i64(0)),
    "CumSum axis": ("input o = int64 {1}  float[2,3] x; y = CumSum(x, o)", np.int64(0)),
    "Where": ("input o = bool {true}  float[2,3] x; r = Neg(x)  w = Where(o, x, r)  y = Relu(w)", np.array(False)),
    "And": ("input o = bool {true}  bool[2,3] x; r = And(x, o)  y = Not(r)", np.array(False)),
    "If": (
        "input o = bool {true}  float[2,3] x; y = If (o) <then_branch = a () => (t) { t = Relu(x) },"
        " else_branch = b () => (u) { u = Neg(x) }>",
        np.array(False),
    ),
    "If of Not": (
        "input o = bool {false}  float[2,3] x; n = Not(o)  y = If (n) <then_branch = a () => (t) { t = Relu(x) },"
        " else_branch = b () => (u) { u = Neg(x) }>",
        np.array(True),
    ),
    "Loop trips": (
        "input o = int64 {2}  float[3] x; y = Loop(o, true, x) <body = b (int64 i, bool k, float[3] a)"
        " => (bool l, float[3] r) { l = Identity(k)  r = Add(a, a) }>",
        np.int64(4),
    ),
    "Cast": ("input o = int64 {2}  float[2,3] x; f = Cast<to=1>(o)  y = Pow(x, f)", np.int64(3)),
    "Resize": ('input o = int64[2] {2, 3}  float[2,3] x; y = Resize<mode="nearest">(x, , , o)', i64(4, 3)),
    "Dropout ratio": ("input o = float {0.5}  float[2,3] x; d = Dropout(x, o)  y = Relu(d)", np.float32(0.25)),
    "Dropout mode": ("input o = bool {false}  float[2,3] x; d = Dropout(x, 0.0, o)  y = Relu(d)", np.array(True)),
}


@pytest.mark.parametrize(("graph", "value"), OVERRIDABLE_SHAPES.values(), ids=OVERRIDABLE_SHAPES.keys())
def test_overridable_shapes(graph, value):
    """An initializer that is also a graph input: Reshape shape, `If` condition: the override still works."""
    inputs = {"x": i64(0, 1, 2)} if "OneHot" in graph else {}
    trap(graph, inputs=inputs, overrides=[{"o": np.asarray(value)}])


# -- unusual interfaces ------------------------------------------------------------------------------------------

X, Y = info("x", "n", 3), info("y", "n", 3)
WEIGHT = tensor("w", np.arange(3, dtype=np.float32))
INTERFACES = {
    "unused input": make([helper.make_node("Relu", ["x"], ["y"])], [X, info("z", 2)], [Y]),
    "all inputs unused": make([helper.make_node("Neg", ["w"], ["y"])], [X], [info("y", 3)], [WEIGHT]),
    "input is an output": make([helper.make_node("Relu", ["x"], ["y"])], [X], [Y, X]),
    "only that, no nodes": make([], [X], [X]),
    "input is an output twice through Identity": make(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["z"])],
        [X],
        [Y, info("z", "n", 3)],
    ),
    "identities in a row": make([helper.make_node("Identity", [a], [b]) for a, b in ("xa", "ab", "by")], [X], [Y]),
    "initializer is an output": make([helper.make_node("Mul", ["x", "w"], ["y"])], [X], [Y, info("w", 3)], [WEIGHT]),
    "only initializers are outputs": make([], [X], [info("w", 3)], [WEIGHT]),
    "overridable initializer is an output": make(
        [helper.make_node("Mul", ["x", "w"], ["y"])], [X, info("w", 3)], [Y, info("w", 3)], [WEIGHT]
    ),
    "initializer through Identity": make([helper.make_node("Identity", ["w"], ["y"])], [X], [info("y", 3)], [WEIGHT]),
    "folded output": make(
        [helper.make_node("Sqrt", ["w"], ["a"]), helper.make_node("Neg", ["a"], ["y"])], [X], [info("y", 3)], [WEIGHT]
    ),
    "folded output that is read": make(
        [helper.make_node("Sqrt", ["w"], ["z"]), helper.make_node("Mul", ["x", "z"], ["y"])],
        [X],
        [Y, info("z", 3)],
        [WEIGHT],
    ),
    "Constant is an output": make(
        [helper.make_node("Constant", [], ["y"], value=WEIGHT), helper.make_node("Neg", ["x"], ["z"])],
        [X],
        [info("y", 3), info("z", "n", 3)],
    ),
    "two equal constants": make(
        [
            helper.make_node("Constant", [], ["y"], value_float=2.0),
            helper.make_node("Constant", [], ["z"], value_float=2.0),
        ],
        [X],
        [info("y"), info("z")],
    ),
    "one value twice through Identity": make(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Identity", ["r"], ["y"]),
            helper.make_node("Identity", ["r"], ["z"]),
        ],
        [X],
        [Y, info("z", "n", 3), info("r", "n", 3)],
    ),
    "two equal nodes": make(
        [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("Exp", ["x"], ["z"])], [X], [Y, info("z", "n", 3)]
    ),
    "equal chains": make(
        [
            helper.make_node("Exp", ["x"], ["a"]),
            helper.make_node("Exp", ["x"], ["b"]),
            helper.make_node("Neg", ["a"], ["y"]),
            helper.make_node("Neg", ["b"], ["z"]),
        ],
        [X],
        [info("z", "n", 3), Y, info("b", "n", 3)],
    ),
    "neutral nodes between outputs": make(
        [
            helper.make_node("Mul", ["x", "one"], ["y"]),
            helper.make_node("Div", ["y", "one"], ["z"]),
            helper.make_node("Cast", ["z"], ["u"], to=F),
        ],
        [X],
        [Y, info("z", "n", 3), info("u", "n", 3)],
        [tensor("one", np.float32(1))],
    ),
    "outputs in another order": make(
        [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"])],
        [X, info("unused", 1)],
        [info("b", "n", 3), info("a", "n", 3)],
    ),
    "output without shape": make(
        [helper.make_node("Identity", ["x"], ["y"])], [X], [helper.make_tensor_value_info("y", F, None)]
    ),
    "other names for dimensions": make(
        [helper.make_node("Identity", ["x"], ["y"])], [info("x", "batch", "width")], [info("y", "rows", "columns")]
    ),
    "unused output of a node": make(
        [
            helper.make_node("MaxPool", ["x"], ["p", ""], kernel_shape=[2]),
            helper.make_node("MaxPool", ["x"], ["q", "i"], kernel_shape=[2]),
            helper.make_node("Add", ["p", "q"], ["y"]),
        ],
        [info("x", 1, 1, 4)],
        [info("y", 1, 1, 3)],
    ),
    "mask of Dropout": make(
        [helper.make_node("Dropout", ["x"], ["y", "m"])], [X], [Y, info("m", "n", 3, dtype=TensorProto.BOOL)]
    ),
    "doc strings of the interface": make(
        [helper.make_node("Identity", ["x"], ["y"])],
        [helper.make_tensor_value_info("x", F, ["n", 3], "pixels")],
        [helper.make_tensor_value_info("y", F, ["n", 3], "logits")],
    ),
    "names with slashes and spaces": make(
        [helper.make_node("Relu", ["a/b:0"], ["c d"]), helper.make_node("Identity", ["c d"], ["ü/1"])],
        [info("a/b:0", 3)],
        [info("ü/1", 3), info("c d", 3)],
    ),
    "scalar": make(
        [helper.make_node("Mul", ["x", "w"], ["y"])], [info("x")], [info("y")], [tensor("w", np.float32(1))]
    ),
}


@pytest.mark.parametrize("model", INTERFACES.values(), ids=INTERFACES.keys())
def test_unusual_interface(model):
    """An unused graph input; an input that is directly an output; an initializer that is an output; one value
    exported twice: the interface (names, order, dtypes, shapes) is unchanged."""
    trap(model, exact=True)


def test_one_value_listed_twice():
    """One value exported twice, under the same name: ONNX Runtime refuses that; here, kept or refused in one line."""
    model = make([helper.make_node("Relu", ["x"], ["y"])], [X], [Y, Y])
    try:
        result = onnxrewrite.apply(model, check="off")
    except onnxrewrite.OnnxRewriteError as error:
        assert "\n" not in str(error)
    else:
        assert list(result.to_proto().graph.output) == [Y, Y]


# -- needed elsewhere --------------------------------------------------------------------------------------------

NORM = (
    "m = ReduceMean<axes=[-1]>(x)  d = Sub(x, m)  q = Mul(d, d)  v = ReduceMean<axes=[-1]>(q)  e = Add(v, 1e-5)"
    "  s = Sqrt(e)  y = Div(d, s)"
)
SCORES = "float[n,2,3,4] q; float[n,2,4,5] kt; float[n,2,5,4] v; s = MatMul(q, kt)  a = Mul(s, 0.5)  p = Softmax(a)  y = MatMul(p, v)"
BATCHNORM = CONV.format(**CONV_PARTS)
FUSIONS = {
    "gelu": (f"float[n,3] x; {gelu()}", "deam"),
    "gelu-tanh": (
        "float[n,3] x; c = Pow(x, 3.0)  k = Mul(c, 0.044715)  s = Add(x, k)  u = Mul(s, 0.79788456)  t = Tanh(u)"
        "  a = Add(t, 1.0)  h = Mul(x, 0.5)  y = Mul(h, a)",
        "ckuth",
    ),
    "swish": ("float[n,3] x; s = Sigmoid(x)  y = Mul(x, s)", "s"),
    "mish": ("float[n,3] x; s = Softplus(x)  t = Tanh(s)  y = Mul(x, t)", "st"),
    "hard swish": ("float[n,3] x; a = Add(x, 3.0)  c = Clip(a, 0.0, 6.0)  m = Mul(x, c)  y = Div(m, 6.0)", "acm"),
    "conv": (BATCHNORM, "c"),
    "gemm": ("float[n,3] x; c = Gemm(x, float[3,2] ~)  y = Mul(c, {2.0, 3.0})", "c"),
    "matmul": ("float[n,3] x; c = MatMul(x, float[3,2] ~)  a = Add(c, {2.0, 3.0})  y = Mul(a, {2.0, 3.0})", "ca"),
    "norm": (f"float[n,3] x; {NORM}", "mdqves"),
    "attention": (SCORES, "sap"),
    "transposes": ("float[n,3] x; t = Transpose<perm=[1,0]>(x)  y = Transpose<perm=[1,0]>(t)", "t"),
    "moving transposes": (
        "float[n,3] x; t = Transpose<perm=[1,0]>(x)  r = Exp(t)  y = Transpose<perm=[1,0]>(r)",
        "tr",
    ),
    "reshapes": ("float[n,4] x; r = Reshape(x, {0, 2, 2})  y = Reshape(r, {0, 4})", "r"),
    "slices": ("float[n,4] x; r = Slice(x, {0}, {3}, {1})  y = Slice(r, {1}, {3}, {1})", "r"),
    "clips": ("float[n,4] x; r = Relu(x)  y = Clip(r, -1.0, 6.0)", "r"),
    "neutral": ("float[n,4] x; r = Mul(x, 1.0)  y = Div(r, 1.0)", "r"),
    "casts": ("float[n,4] x; r = Cast<to=11>(x)  y = Cast<to=1>(r)", "r"),
    "negations": ("float[n,4] x; r = Neg(x)  y = Neg(r)", "r"),
    "pads": ("float[n,4] x; r = Pad(x, {0, 1, 0, 1})  y = Pad(r, {0, 1, 0, 1})", "r"),
    "concats": ("float[n,4] x; r = Concat<axis=1>(x, x)  y = Concat<axis=1>(r, x)", "r"),
    "equal nodes": ("float[n,4] x; r = Exp(x)  s = Exp(x)  t = Neg(r)  u = Neg(s)  y = Add(t, u)", "rstu"),
}
PLACES = [(name, value) for name, (_, values) in FUSIONS.items() for value in values]


@pytest.mark.parametrize(("name", "value"), PLACES)
def test_intermediate_is_an_output(name, value):
    """The intermediate of a fusion is a graph output: the value is still produced, correct."""
    model = proto(FUSIONS[name][0])
    kind = onnx.shape_inference.infer_shapes(model)
    model.graph.output.extend(v for v in kind.graph.value_info if v.name == value)
    assert len(model.graph.output) == 2
    trap(model, tolerance=8)


@pytest.mark.parametrize("last", [True, False], ids=["listed last", "listed first"])
@pytest.mark.parametrize(("name", "value"), [(name, values[0]) for name, (_, values) in FUSIONS.items()])
def test_intermediate_has_a_second_consumer(name, value, last):
    """The intermediate of a fusion has a second consumer: the value is still produced, correct."""
    text = FUSIONS[name][0]
    statement = f"second = Neg({value})"
    head, _, tail = text.partition(f"{value} = ")
    statements = f"{text}  {statement}"
    if not last:  # directly behind its producer
        first, close, rest = tail.partition(")  ")
        statements = f"{head}{value} = {first}{close}{statement}  {rest}"
    trap(statements, tolerance=8)


@pytest.mark.parametrize("body", ["If", "Loop", "Scan", "If in If"])
@pytest.mark.parametrize(("name", "value"), [(name, values[-1]) for name, (_, values) in FUSIONS.items()])
def test_intermediate_is_read_inside_a_body(name, value, body):
    """The intermediate of a fusion has a second consumer inside an `If`/`Loop` body: still produced, correct."""
    text, plain = FUSIONS[name][0], "() => (o1) { o1 = Identity(2.0) }"
    reads = f"() => (o2) {{ o10 = Cast<to=1>({value})  o2 = ReduceSum<keepdims=0>(o10) }}"
    match body:
        case "If":
            extra = f"z = If (g) <then_branch = b1 {plain}, else_branch = b2 {reads}>"
        case "Loop":
            extra = (
                "z = Loop(3, true, 1.0) <body = b1 (int64 o3, bool o4, float[] o5) => (bool o6, float[] o7)"
                f" {{ o6 = Identity(o4)  o9 = Cast<to=1>({value})  o8 = ReduceMax<keepdims=0>(o9)  o7 = Add(o5, o8) }}>"
            )
        case "Scan":
            extra = (
                "z = Scan<num_scan_inputs=1, body = b1 (float[] o3) => (float[] o4)"
                f" {{ o6 = Cast<to=1>({value})  o5 = ReduceMax<keepdims=0>(o6)  o4 = Add(o3, o5) }}>({{1.0, 2.0}})"
            )
        case _:
            inner = plain.replace("o1", "o9")
            extra = (
                "z = If (g) <then_branch = b1 () => (o3) { o3 = If (g) <then_branch = b2"
                f" {reads}, else_branch = b3 {inner}> }}, else_branch = b4 {plain}>"
            )
    trap(f"bool g; {text}  {extra}", tolerance=8)


IN_BODIES = {
    "gelu, output of the branch": f"float[n,3] x; bool g; y, z = If (g) <then_branch = b () => (f, e) {{ {gelu('x', 'f')} }},"
    " else_branch = c () => (h, i) { h = Relu(x)  i = Neg(x) }>",
    "conv, output of the branch": "float[n,2,5,5] x; bool g; y, z = If (g) <then_branch = b () => (f, c) { "
    + CONV.format(**CONV_PARTS).partition(";")[2].replace("y =", "f =")
    + " }, else_branch = d () => (h, i) { h = Relu(x)  i = Neg(x) }>",
    "gelu carried by a loop": "float[3] x; y, z = Loop(3, true, x) <body = b (int64 i, bool k, float[3] c)"
    f" => (bool l, float[3] f, float[3] e) {{ l = Identity(k)  {gelu('c', 'f')} }}>",
    "transposes scanned out": "float[3,2] x; y, z = Loop(3, true, x) <body = b (int64 i, bool k, float[3,2] c)"
    " => (bool l, float[3,2] f, float[2,3] t) { l = Identity(k)  t = Transpose(c)  r = Neg(t)  f = Transpose(r) }>",
    "branch gives an outer value": "float[n,3] x; bool g; r = Relu(x)  y = If (g) <then_branch = b () => (f) { f = Identity(r) },"
    " else_branch = d () => (h) { h = Mul(r, 1.0) }>",
    "branch gives an outer value twice": "float[n,3] x; bool g; r = Relu(x)  y, z = If (g) <then_branch = b () => (f, f2) {"
    " f = Identity(r)  f2 = Identity(r) }, else_branch = d () => (h, h2) { h = Mul(r, 1.0)  h2 = Exp(h) }>",
    "branch gives a constant": "float[3] x; bool g; y = If (g) <then_branch = b () => (f) { f = Sqrt({1.0, 4.0, 9.0}) },"
    " else_branch = d () => (h) { h = Exp({1.0, 4.0, 9.0}) }>",
    "loop gives what it is given": "float[3] x; y, z = Loop(3, true, x) <body = b (int64 i, bool k, float[3] c)"
    " => (bool l, float[3] f, float[3] e) { l = Identity(k)  f = Mul(c, 1.0)  e = Identity(c) }>",
    "loop gives an outer value": "float[3] x; r = Exp(x)  y, z = Loop(3, true, x) <body = b (int64 i, bool k, float[3] c)"
    " => (bool l, float[3] f, float[3] e) { l = Identity(k)  f = Add(c, r)  e = Div(r, 1.0) }>",
    "the same in and out of the branch": f"float[n,3] x; bool g; {gelu()}  z = If (g) <then_branch = b () => (f) {{"
    f" {gelu('x', 'f', '2')} }}, else_branch = c () => (h) {{ h = Add(e, m) }}>",
    "equal nodes in both branches": "float[n,3] x; bool g; y = If (g) <then_branch = b () => (f) { p = Exp(x)  f = Neg(p) },"
    " else_branch = d () => (h) { q = Exp(x)  h = Add(q, q) }>",
    "equal nodes inside and outside": "float[n,3] x; bool g; o = Exp(x)  y = If (g) <then_branch = b () => (f) {"
    " p = Exp(x)  f = Neg(p) }, else_branch = d () => (h) { q = Exp(x)  h = Add(q, q) }>  z = Neg(o)",
    "fusion across the border": "float[n,3] x; bool g; s = Sigmoid(x)  y = If (g) <then_branch = b () => (f) { f = Mul(x, s) },"
    " else_branch = d () => (h) { h = Add(x, s) }>",
    "transposes across the border": "float[n,3] x; bool g; t = Transpose<perm=[1,0]>(x)  y = If (g) <then_branch = b () => (f) {"
    " f = Transpose<perm=[1,0]>(t) }, else_branch = d () => (h) { h = Transpose<perm=[1,0]>(t) }>",
}


@pytest.mark.parametrize("graph", IN_BODIES.values(), ids=IN_BODIES.keys())
def test_fusion_inside_a_body(graph):
    """The intermediate of a fusion inside an `If`/`Loop` body is an output of the body: still produced, correct."""
    model = proto(graph)
    feeds = [
        {
            **({"g": np.array(g)} if "bool g" in graph else {}),
            "x": np.random.default_rng(g).standard_normal(shape).astype("f"),
        }
        for g in (True, False)
        for shape in [
            [d.dim_value or 2 for d in next(i for i in model.graph.input if i.name == "x").type.tensor_type.shape.dim]
        ]
    ]
    trap(model, feeds=feeds, tolerance=8)


# -- what is written beside the graph ----------------------------------------------------------------------------


def documented() -> onnx.ModelProto:
    one = tensor("one", np.float32(1))
    one.doc_string = "the one"
    model = make(
        [
            helper.make_node("Mul", ["x", "one"], ["a"], name="first", doc_string="multiplies"),
            helper.make_node("Relu", ["a"], ["b"], name="second", doc_string="rectifies"),
            helper.make_node("Exp", ["b"], ["y"], name="third"),
        ],
        [X],
        [Y],
        [one],
        domains=["com.example", "com.microsoft"],
        producer_name="exporter",
        producer_version="7",
        doc_string="a model",
    )
    model.domain, model.model_version = "org.example", 12
    model.graph.doc_string, model.graph.name = "a graph", "main graph"
    helper.set_model_props(model, {"author": "me", "labels": "a,b"})
    model.graph.node[1].metadata_props.add(key="scope", value="encoder/0")
    model.graph.metadata_props.add(key="graph", value="yes")
    return model


def test_what_is_said_of_the_model():
    """Model metadata, doc strings, node names, opset imports: kept; valid afterwards."""
    model = documented()
    new = trap(model).has(Mul=0, Relu=1, Exp=1).model
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string", "ir_version"):
        assert getattr(new, field) == getattr(model, field), field
    assert {p.key: p.value for p in new.metadata_props}.items() >= {"author": "me", "labels": "a,b"}.items()
    assert (new.graph.name, new.graph.doc_string) == ("main graph", "a graph")
    assert [(p.key, p.value) for p in new.graph.metadata_props] == [("graph", "yes")]
    assert {o.domain: o.version for o in new.opset_import} == {"": 17, "com.example": 1, "com.microsoft": 1}
    assert [(n.name, n.doc_string) for n in new.graph.node] == [("second", "rectifies"), ("third", "")]
    assert [(p.key, p.value) for p in new.graph.node[0].metadata_props] == [("scope", "encoder/0")]


def test_nodes_that_stay_keep_their_names():
    """Node names: kept; a new node has the name of the one whose value it computes."""
    model = proto(f"float[n,3] x; r = Relu(x)  {gelu('r', 'f')}  y = Neg(f)")
    for node, name in zip(model.graph.node, "relu div erf add mul half neg".split(), strict=True):
        node.name = f"/layer/{name}"
    new = trap(model).model
    assert [n.name for n in new.graph.node] == ["/layer/relu", "/layer/half", "/layer/neg"]


@pytest.mark.parametrize("ir_version", [3, 4, 6, 7, 8, 9, 10, 11])
def test_ir_versions(ir_version):
    """IR version 3 with initializers as inputs: kept; valid afterwards; constant there, for it cannot be overridden."""
    weight = np.random.default_rng(0).standard_normal((2, 2, 3, 3)).astype("f")
    parameters = {"s": [1.5, 0.5], "b": [0.25, -1.0], "m": [0.5, 0.0], "v": [1.0, 2.0]}
    named = [tensor("w", weight), *(tensor(k, np.array(v, np.float32)) for k, v in parameters.items())]
    model = make(
        [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node(BN, ["c", "s", "b", "m", "v"], ["y"])],
        [info("x", 1, 2, 5, 5), info("w", 2, 2, 3, 3), *(info(k, 2) for k in parameters)],
        [info("y", 1, 2, 3, 3)],
        named,
        opset=8 if ir_version == 3 else 12,
        ir_version=ir_version,
    )
    overrides = [{"w": weight * 2}] if ir_version > 3 else []
    seen = trap(model, overrides=overrides, tolerance=8)
    assert seen.model.ir_version == ir_version
    if ir_version > 3:
        seen.keeps("Conv", BN)
    else:
        seen.has(**{"Conv": 1, BN: 0})
        inputs = {i.name for i in seen.model.graph.input}
        assert all(t.name in inputs for t in seen.model.graph.initializer), "IR version 3 lists every initializer"


@pytest.mark.parametrize(
    "graph",
    [
        "float[2,3] x; a = Sqrt({1.0, 4.0, 9.0})  y = Mul(x, a)",
        "float[2,3] x; c = MatMul(x, float[3,2] ~)  a = Add(c, {1.0, 2.0})  y = Mul(a, {2.0, 3.0})",
        "float[2,3] x; r = Reshape(x, {3, 2})  y = Reshape(r, {6})",
        "float[2,3] x; y = Identity(x)",
    ],
)
def test_old_ir_version_gets_new_constants(graph):
    """IR version 3: an initializer that is made has to be an input as well, or it is not valid; the inputs stay."""
    trap(proto_of_old(graph))


def proto_of_old(graph: str) -> onnx.ModelProto:
    model = proto(graph, opset=8, ir_version=3)
    model.graph.input.extend(info_of(t) for t in model.graph.initializer)
    return model


def info_of(initializer: TensorProto) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(initializer.name, initializer.data_type, list(initializer.dims))


# -- names and order ---------------------------------------------------------------------------------------------


def untidy(names: list[str], order: list[int]) -> onnx.ModelProto:
    """GELU whose nodes are called ``names`` and come in ``order``."""
    model = proto(f"float[n,3] x; {gelu()}")
    ordered = list(model.graph.node)
    for node, name in zip(ordered, names, strict=True):
        node.name = name
    del model.graph.node[:]
    model.graph.node.extend(ordered[i] for i in order)
    return model


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["a"] * 5, [0, 1, 2, 3, 4]),
        ([""] * 5, [0, 1, 2, 3, 4]),
        (["a", "", "a", "", "a"], [0, 1, 2, 3, 4]),
        (["a", "a_1", "a", "a_1", "a_2"], [0, 1, 2, 3, 4]),
        (["x", "y", "d", "e", "x"], [0, 1, 2, 3, 4]),
        (list("abcde"), [4, 3, 2, 1, 0]),
        (list("abcde"), [1, 0, 2, 4, 3]),
        (["a", "a", "", "", "b"], [4, 0, 2, 1, 3]),
    ],
)
def test_duplicate_names_and_unsorted_nodes(names, order):
    """Duplicate or missing node names; unsorted nodes: repaired (sorted, renamed) and reported."""
    model, tidy = untidy(names, order), untidy(list("abcde"), [0, 1, 2, 3, 4])
    feeds = [{"x": np.ones((2, 3), np.float32)}]  # ONNX Runtime refuses many of these models
    for level in ("full", "off"):
        result = onnxrewrite.apply(model, check=level)
        new = result.to_proto()
        onnx.checker.check_model(new)
        np.testing.assert_allclose(run(new, feeds)[0], run(tidy, feeds)[0], rtol=1e-6)
        assert [n.op_type for n in new.graph.node] == ["Gelu"]
        assert result.notes
        assert all(one_line(note) for note in result.notes)


@pytest.mark.parametrize(("names", "order"), [(["a"] * 5, [0, 1, 2, 3, 4]), ([""] * 5, [4, 2, 3, 1, 0])])
def test_names_become_unique(names, order):
    """Duplicate or missing node names: repaired, whether a rule applies or not."""
    for level in ("full", "off"):
        new = onnxrewrite.apply(untidy(names, order), check=level, without=["gelu"]).to_proto()
        found = [n.name for n in new.graph.node]
        assert len(set(found)) == 5
        assert all(found)
        assert [n.op_type for n in new.graph.node] == ["Div", "Erf", "Add", "Mul", "Mul"]


def test_unsorted_nodes_inside_a_branch():
    """Unsorted nodes inside a body: repaired and reported."""
    text = (
        "float[n,3] x; bool g; y = If (g) <then_branch = b () => (f) { p = Exp(x)  f = Neg(p) },"
        " else_branch = d () => (h) { h = Identity(x) }>"
    )
    model, sorted_model = proto(text), proto(text)
    branch = model.graph.node[0].attribute[0].g
    swapped = list(branch.node)[::-1]
    del branch.node[:]
    branch.node.extend(swapped)
    feeds = [{"x": np.ones((2, 3), np.float32), "g": np.array(g)} for g in (True, False)]
    for level in ("full", "off"):
        result = onnxrewrite.apply(model, check=level)
        assert result.notes
        np.testing.assert_equal(run(result.to_proto(), feeds), run(sorted_model, feeds))


ONE, TWO, THREE = np.float32(1), np.float32(2), np.float32(3)
ROW = np.array([2, 3, 4], np.float32)
SHADOWS = {
    "one initializer name in both branches": ("w", TWO, "w", THREE),
    "of other shapes": ("w", ROW, "w", THREE),
    "one of them is neutral": ("w", ONE, "w", THREE),
    "both are neutral": ("w", ONE, "w", ONE),
    "equal values, one name": ("w", TWO, "w", TWO),
    "a name that new values would take": ("f/const", TWO, "f/const", THREE),
    "the name of an outer initializer": ("outer", TWO, "w", THREE),
    "the name of an outer initializer, twice": ("outer", ROW, "outer", TWO),
    "the name of an outer node's value": ("r", TWO, "w", THREE),
    "the name of a later outer value": ("z", TWO, "z", ROW),
    "the name of the input": ("x", ROW, "w", THREE),
}


def branches(then: str, then_value: np.ndarray, other: str, other_value: np.ndarray) -> onnx.ModelProto:
    """If whose branches have one initializer each, and values of one name."""

    def branch(tag: str, constant: str, value: np.ndarray) -> onnx.GraphProto:
        return helper.make_graph(
            [
                helper.make_node("Mul", ["u", constant], [f"inner{tag}"]),
                helper.make_node("Sqrt", [constant], [f"root{tag}"]),
                helper.make_node("Add", [f"inner{tag}", f"root{tag}"], [f"f{tag}"]),
            ],
            "branch",
            [],
            [info(f"f{tag}", 2, 3)],
            initializer=[tensor(constant, value)],
        )

    tags = ("1", "2") if then != other else ("", "")
    return make(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Exp", ["r"], ["u"]),
            helper.make_node(
                "If",
                ["g"],
                ["y"],
                then_branch=branch(tags[0], then, then_value),
                else_branch=branch(tags[1], other, other_value),
            ),
            helper.make_node("Mul", ["r", "outer"], ["z"]),
        ],
        [info("g", dtype=TensorProto.BOOL), info("x", 2, 3)],
        [info("y", 2, 3), info("z", 2, 3)],
        [tensor("outer", np.float32(7))],
    )


@pytest.mark.parametrize(("then", "value", "other", "other_value"), SHADOWS.values(), ids=SHADOWS.keys())
def test_inner_names(then, value, other, other_value):
    """The same initializer name inside both branches of an `If`; inner names that shadow outer ones: no collision."""
    x = np.random.default_rng(0).standard_normal((2, 3)).astype("f")
    feeds = [{"g": np.array(g), "x": x} for g in (True, False)]
    seen = trap(branches(then, value, other, other_value), feeds=feeds, twin=branches("c1", value, "c2", other_value))
    onnx.checker.check_model(seen.model)


def nested(*names: str) -> onnx.ModelProto:
    """A Loop inside an If; the outer initializer, the branch's and the body's have these names."""
    outer, middle, inner = names
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["k"], ["l"]),
            helper.make_node("Sqrt", [inner], ["r"]),
            helper.make_node("Mul", ["c", "r"], ["o"]),
        ],
        "body",
        [info("i", dtype=TensorProto.INT64), info("k", dtype=TensorProto.BOOL), info("c", 3)],
        [info("l", dtype=TensorProto.BOOL), info("o", 3)],
        initializer=[tensor(inner, np.float32(4))],
    )
    branch = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "x"], ["t"], body=body), helper.make_node("Add", ["t", middle], ["f"])],
        "then",
        [],
        [info("f", 3)],
        initializer=[tensor(middle, ROW)],
    )
    otherwise = helper.make_graph(
        [helper.make_node("Add", ["x", outer], ["s"]), helper.make_node("Mul", ["s", "s"], ["h"])],
        "else",
        [],
        [info("h", 3)],
    )
    return make(
        [helper.make_node("If", ["g"], ["y"], then_branch=branch, else_branch=otherwise)],
        [info("g", dtype=TensorProto.BOOL), info("x", 3)],
        [info("y", 3)],
        [tensor(outer, np.float32(9)), tensor("trips", np.int64(2))],
    )


@pytest.mark.parametrize("names", ["www", "wvw", "wwv", "vww", "abd"])
def test_shadowing_in_nested_bodies(names):
    """Inner names that shadow outer ones, in a Loop inside an If: no collision."""
    feeds = [{"g": np.array(g), "x": np.float32([1, 2, 3])} for g in (True, False)]
    seen = trap(nested(*names), feeds=feeds, twin=nested("w1", "w2", "w3"))
    onnx.checker.check_model(seen.model)


# -- what nobody knows -------------------------------------------------------------------------------------------


def untouched(model: onnx.ModelProto, op_type: str) -> None:
    """A model that ONNX Runtime cannot run: what is unknown must come out as it went in, what is known is rewritten."""
    wanted = [n for n in nodes(model) if n.op_type == op_type]
    for level in ("full", "off"):
        new = onnxrewrite.apply(model, check=level).to_proto()
        found = [n for n in nodes(new) if n.op_type == op_type]
        for old, kept in zip(wanted, found, strict=True):
            assert (kept.domain, list(kept.attribute)) == (old.domain, list(old.attribute))
            assert len(kept.input) == len(old.input)
            assert len(kept.output) == len(old.output)
        assert list(new.graph.input) == list(model.graph.input)
        assert list(new.graph.output) == list(model.graph.output)
        imports = {o.domain: o.version for o in model.opset_import}
        assert {o.domain: o.version for o in new.opset_import} == {"com.microsoft": 1, **imports}
        assert "Erf" not in operators(new), "a GELU beside it is still fused"


def unknown(op_type: str, domain: str, inputs=("x",), outputs=("u",), **attributes) -> onnx.ModelProto:
    model = proto(f"float[n,3] x; {gelu()}")
    model.graph.node.insert(0, helper.make_node(op_type, inputs, outputs, domain=domain, **attributes))
    model.graph.output.append(helper.make_tensor_value_info("u", F, None))
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 3))
    return model


UNKNOWN = {
    "unknown operator of an unknown domain": unknown("Magic", "com.acme", strength=3, name="m", mode="hard"),
    "an unknown operator that is called like a known one": unknown("Relu", "com.acme"),
    "an unknown Identity": unknown("Identity", "com.acme"),
    "an unknown operator without inputs": unknown("Source", "com.acme", inputs=()),
    "several outputs, some unused": unknown("Magic", "com.acme", inputs=("x", "", "x"), outputs=("u", "", "v")),
    "an unknown operator of ONNX Runtime's domain": unknown("NoSuchOperator", "com.microsoft"),
    "a training operator": unknown("Gradient", "ai.onnx.preview.training", xs=["x"], y="y"),
}
UNKNOWN["a training operator"].opset_import[-1].version = 1
UNKNOWN["an unknown operator of ONNX Runtime's domain"].opset_import[-1].version = 1


@pytest.mark.parametrize("model", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_unknown_operator_or_domain(model):
    """Unknown operator or domain: passed through untouched."""
    untouched(model, model.graph.node[0].op_type)


def test_unknown_operators_are_not_merged():
    """Unknown operators may be random: two of them with equal inputs stay two."""
    model = unknown("Magic", "com.acme", outputs=("u",))
    model.graph.node.insert(0, helper.make_node("Magic", ["x"], ["u2"], domain="com.acme"))
    model.graph.output.append(helper.make_tensor_value_info("u2", F, None))
    untouched(model, "Magic")


def test_unknown_operators_of_constants_are_not_folded():
    """Unknown operators of constants cannot be folded, nor can what lies behind them."""
    model = unknown("Magic", "com.acme", inputs=("c1",))
    untouched(model, "Magic")


def test_twice_called_like_the_pattern():
    """com.acme.Erf is not Erf: no fusion."""
    model = proto(f"float[n,3] x; {gelu()}")
    model.graph.node[1].domain = "com.acme"
    model.opset_import.append(helper.make_opsetid("com.acme", 1))
    for level in ("full", "off"):
        new = onnxrewrite.apply(model, check=level).to_proto()
        assert [n.op_type for n in new.graph.node] == ["Div", "Erf", "Add", "Mul", "Mul"]


def function(body: str, name: str = "Block", *, attributes=(), opset: int = 17) -> onnx.FunctionProto:
    parsed = proto(body, opset)
    constants = [helper.make_node("Constant", [], [t.name], value=t) for t in parsed.graph.initializer]
    return helper.make_function(
        "local",
        name,
        [i.name for i in parsed.graph.input],
        [o.name for o in parsed.graph.output],
        [*constants, *parsed.graph.node],
        [helper.make_opsetid("", opset)],
        attributes=list(attributes),
    )


def calling(
    functions: list[onnx.FunctionProto], calls: list[onnx.NodeProto], outputs=(Y,), initializers=()
) -> onnx.ModelProto:
    return make(calls, [X], list(outputs), initializers, domains=["local"], functions=functions)


def call(name: str, inputs: list[str], outputs: list[str], **attributes) -> onnx.NodeProto:
    return helper.make_node(name, inputs, outputs, domain="local", **attributes)


def referring(op_type: str, inputs: list[str], outputs: list[str], name: str, of: str, kind: int) -> onnx.NodeProto:
    """A node whose attribute ``name`` is the attribute ``of`` of the function that it is in."""
    node = helper.make_node(op_type, inputs, outputs)
    node.attribute.append(onnx.AttributeProto(name=name, type=kind, ref_attr_name=of))
    return node


def function_of(made: list[onnx.NodeProto], *attributes: str, name: str = "Block") -> onnx.FunctionProto:
    """A function from x to y."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["x"], ["y"], made, imports, attributes=list(attributes))


INTS, FLOAT, INT = onnx.AttributeProto.INTS, onnx.AttributeProto.FLOAT, onnx.AttributeProto.INT
ONE_CALL = [call("Block", ["x"], ["y"])]
FUNCTIONS = {
    "gelu": calling([function(gelu())], ONE_CALL),
    "called twice": calling([function(gelu())], [call("Block", ["x"], ["h"]), call("Block", ["h"], ["y"])]),
    "called with equal inputs": calling(
        [function(gelu())],
        [call("Block", ["x"], ["a"]), call("Block", ["x"], ["b"]), helper.make_node("Mul", ["a", "b"], ["y"])],
    ),
    "never called": calling([function(gelu())], [helper.make_node("Relu", ["x"], ["y"])]),
    "called by another": calling([function(gelu(), "Inner"), function_of([call("Inner", ["x"], ["y"])])], ONE_CALL),
    "named like an operator": calling([function("y = Neg(x)", "Relu")], [call("Relu", ["x"], ["y"])]),
    "identity": calling([function("y = Identity(x)")], ONE_CALL),
    "result is its input": calling([function_of([helper.make_node("Mul", ["x", "x"], ["y"])])], ONE_CALL),
    "names of the graph used inside": calling(
        [function("h = Exp(x)  y = Mul(h, 1.0)")], [helper.make_node("Neg", ["x"], ["h"]), call("Block", ["h"], ["y"])]
    ),
    "equal results": calling(
        [function("y = Exp(x)  z = Exp(x)")], [call("Block", ["x"], ["y", "z"])], [Y, info("z", "n", 3)]
    ),
    "interior is a result": calling(
        [function(f"{gelu()}  w = Neg(e)  z = Identity(e)")],
        [call("Block", ["x"], ["y", "w", "z"])],
        [Y, info("w", "n", 3), info("z", "n", 3)],
    ),
    "of constants": calling(
        [function("y = Exp(x)")],
        [call("Block", ["w"], ["h"]), helper.make_node("Mul", ["x", "h"], ["y"])],
        initializers=[WEIGHT],
    ),
    "with an attribute": calling(
        [
            function_of(
                [
                    referring("Constant", [], ["s"], "value_float", "slope", FLOAT),
                    helper.make_node("Mul", ["x", "s"], ["y"]),
                ],
                "slope",
            )
        ],
        [call("Block", ["x"], ["h"], slope=1.0), call("Block", ["h"], ["y"], slope=2.0)],
    ),
    "an attribute of the pattern": calling(
        [
            function_of(
                [
                    referring("Transpose", ["x"], ["t"], "perm", "order", INTS),
                    referring("Transpose", ["t"], ["y"], "perm", "order", INTS),
                ],
                "order",
            )
        ],
        [call("Block", ["x"], ["y"], order=[1, 0])],
    ),
    "an attribute that decides": calling(
        [
            function_of(
                [
                    referring("Softmax", ["x"], ["s"], "axis", "axis", INT),
                    referring("Cast", ["s"], ["c"], "to", "to", INT),
                    helper.make_node("Cast", ["c"], ["y"], to=F),
                ],
                "axis",
                "to",
            )
        ],
        [
            call("Block", ["x"], ["h"], axis=0, to=TensorProto.FLOAT16),
            call("Block", ["h"], ["y"], axis=1, to=TensorProto.FLOAT),
        ],
    ),
    "called with several ranks": calling(
        [function("t = Transpose(x)  y = Exp(t)")],
        [
            call("Block", ["x"], ["a"]),
            call("Block", ["w"], ["b"]),
            helper.make_node("Transpose", ["a"], ["c"]),
            helper.make_node("Mul", ["c", "b"], ["y"]),
        ],
        initializers=[WEIGHT],
    ),
}


@pytest.mark.parametrize("model", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_model_local_functions(model):
    """Model-local functions: written out where they are called, and rewritten with what is around."""
    seen = trap(model, tolerance=4)
    assert "Block" not in [f.name for f in seen.model.functions] or "Block" not in seen.before


OTHER_TYPES = {
    "sequence": "float[2,3] x; s = SequenceConstruct(x, x)  z = Identity(s)  i = Identity(int64 0)  y = SequenceAt(z, i)",
    "sequence that grows": "float[2,3] x; a = SequenceEmpty()  b = SequenceInsert(a, x)  c = SequenceInsert(b, x)"
    "  y = ConcatFromSequence<axis=0>(c)",
    "sequence carried by a loop": "float[2,3] x; s = SequenceEmpty<dtype=1>()  z = Loop(3, true, s) <body = b (int64 i, bool k,"
    " seq(float[2,3]) c) => (bool l, seq(float[2,3]) r) { l = Identity(k)  r = SequenceInsert(c, x) }>"
    "  y = ConcatFromSequence<axis=1>(z)",
    "split into a sequence": "float[2,3] x; s = SplitToSequence<axis=1>(x, 1)  n = SequenceLength(s)  y = SequenceAt(s, 1)",
    "optional": "float[2,3] x; o = Optional(x)  h = OptionalHasElement(o)  y = OptionalGetElement(o)",
    "sequence of equal parts": "float[2,3] x; a = Exp(x)  b = Exp(x)  s = SequenceConstruct(a, b)  y = ConcatFromSequence<axis=0>(s)",
    "strings": 'string[3] x; e = Equal(x, {"s0", "s1", "b"})  y = Cast<to=1>(e)',
    "strings through Identity": "string[3] x; i = Identity(x)  r = Reshape(i, {3, 1})  y = Reshape(r, {3})",
    "constant strings": 'int64[2] x; y = Gather({"a", "b", "c"}, x)',
    "folded strings": "float[2,3] x; c = Cast<to=8>({1.0, 2.0})  y = Gather(c, 1)  z = Neg(x)",
    "gathered constant strings": 'c = Concat<axis=0>({"ä", ""}, {"b"})  y = Identity(c)',
    "complex numbers": "float[2,4,1] x; d = DFT<axis=1>(x)  y = Mul(d, 1.0)",
}


@pytest.mark.parametrize("graph", OTHER_TYPES.values(), ids=OTHER_TYPES.keys())
def test_other_types(graph):
    """Sequences, optionals, strings: passed through untouched."""
    inputs = {"x": i64(0, 2)} if "int64[2] x" in graph else {}
    trap(graph, inputs=inputs, exact=True, opset=19)


def test_sequence_and_optional_inputs():
    """Sequences and optionals as inputs and outputs: the interface is unchanged."""
    element = helper.make_tensor_type_proto(F, [2])
    for kind in (helper.make_sequence_type_proto(element), helper.make_optional_type_proto(element)):
        is_sequence = kind.HasField("sequence_type")
        node = ("SequenceAt", ["x", "i"]) if is_sequence else ("OptionalGetElement", ["x"])
        model = make(
            [
                helper.make_node("Identity", ["x"], ["z"]),
                helper.make_node("Identity", ["z"], ["u"]),
                helper.make_node(*node, ["e"]),
                helper.make_node("Mul", ["e", "one"], ["y"]),
            ],
            [helper.make_value_info("x", kind)],
            [info("y", 2), helper.make_value_info("u", kind)],
            [tensor("i", np.int64(1)), tensor("one", np.float32(1))],
            opset=18,
        )
        value = np.float32([3, 4])
        trap(model, feeds=[{"x": [value, value + 1] if is_sequence else value}])


def sparse(values, indices, dims, name="w") -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        tensor(name, np.asarray(values, np.float32)), tensor("", np.asarray(indices, np.int64)), dims
    )


@pytest.mark.parametrize("kind", ["initializer", "read twice", "constant", "all ones", "beside a gelu"])
def test_sparse_initializers(kind):
    """Sparse initializers: passed through untouched."""
    model = proto(f"float[n,3] x; float[3,2] w; {gelu('x', 'h')}  y = MatMul(h, w)")
    del model.graph.input[1:]
    weight = sparse([1, 1, 1] if kind == "all ones" else [2, 3, -1], [0, 3, 4], [3, 2])
    if kind == "constant":
        model.graph.node.insert(
            0, helper.make_node("Constant", [], ["w"], sparse_value=sparse([2, 3], [0, 3], [3, 2], ""))
        )
    else:
        model.graph.sparse_initializer.append(weight)
    if kind == "read twice":
        model.graph.node.append(helper.make_node("Add", ["w", "w"], ["z"]))
        model.graph.output.append(info("z", 3, 2))
    seen = trap(model, tolerance=4).has(Gelu=1, MatMul=1)
    if kind != "constant":
        assert list(seen.model.graph.sparse_initializer) == [weight]
