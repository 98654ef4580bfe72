"""Nodes that compute the same: everything that may be different, and what may not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.value_numbering import ValueNumbering, same_tensor, same_work


def is_twin(a: str, b: str, before: str = "float[2] x; float[2] w;") -> bool:
    """Whether the last two nodes are twins; it is always the later one that finds the earlier."""
    model = text.parse(f"{before} {a}  {b}")
    Facts(model.graph, dict(model.opset_imports))
    *_, left, right = model.graph
    twins = ValueNumbering()
    assert twins.find(left) is None
    found = twins.find(right)
    assert found in (left, None)
    assert twins.find(left) is None
    return found is left


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("a = Relu(x)", "b = Relu(x)", True),
        ("a = Relu(x)", "b = Relu(w)", False),
        ("a = ReduceSum(x, {-1})", "b = ReduceSum(x, {0})", True),
        ("a = ReduceSum(x, {-1})", "b = ReduceSum<keepdims=0>(x, {0})", False),
        ("a = ReduceMean<axes=[0]>(x)", "b = ReduceMean<axes=[-1]>(x)", True),
        ("a = ArgMax<axis=0>(x)", "b = ArgMax<axis=-1>(x)", True),
        ("a = ReduceSum(x, {0})", "b = ReduceSum<keepdims=1>(x, {0})", True),
        ("a = LeakyRelu<alpha=0.01>(x)", "b = LeakyRelu(x)", True),
        ("a = LeakyRelu<alpha=0.1>(x)", "b = LeakyRelu(x)", False),
        ("a = Gemm<beta=1.0, transA=0>(z, z)", "b = Gemm<alpha=1.0>(z, z)", True),
        ("a = Softmax<axis=1>(z)", "b = Softmax(z)", False),
        ("u = Unsqueeze(x, {0}) a = ReduceSum(u, {-1})", "b = ReduceSum(u, {0})", False),
        ("a = Relu(x)", "b = Neg(x)", False),
        ("i = Identity(x) a = Relu(i)", "b = Relu(x)", True),
        ("i = Identity(x) j = Cast<to=1>(i) a = Add(i, 1.0)", "b = Add(j, 1.0)", True),
        ("i = Cast<to=7>(x) j = Cast<to=1>(i) a = Relu(j)", "b = Relu(x)", False),
        ("a = Add(x, w)", "b = Add(x, w)", True),
        ("a = Add(x, w)", "b = Add(w, x)", True),
        ("a = Sub(x, w)", "b = Sub(w, x)", False),
        ("a = Add(x, 1.0)", "b = Add(x, 1.0)", True),
        ("a = Add(x, 1.0)", "b = Add(x, {1.0})", True),
        ("a = Add(x, 1.0)", "b = Add(x, {2.0})", False),
        ("a = Add(x, {1.0, 2.0})", "b = Add(float[1,2] {1.0, 2.0}, x)", False),
        ("u = Unsqueeze(x, {0}) a = Add(u, {1.0, 2.0})", "b = Add(float[1,2] {1.0, 2.0}, u)", True),
        ("u = Unsqueeze(x, {0}) a = Add(u, {1.0, 2.0})", "b = Add(u, float[2,1] {1.0, 2.0})", False),
        ("a = Unsqueeze(x, {1})", "b = Reshape(x, {0, 1})", True),
        ("a = Unsqueeze(x, {1})", "b = Unsqueeze(x, {-1})", True),
        ("a = Unsqueeze(x, {1})", "b = Unsqueeze(x, {0})", False),
        ("a = Unsqueeze(x, {1})", "b = Unsqueeze(w, {1})", False),
        ("u = Unsqueeze(x, {1})  s = Shape(u)  a = Reshape(x, s)", "b = Unsqueeze(x, {1})", False),
        ("a = Reshape(z, {-1, 2})", "b = Reshape(z, {-1, 2})", True),
        ("a = MatMul({1.0, 2.0}, x)", "b = MatMul(x, {1.0, 2.0})", False),
        ("a = Add(x, 0.0)", "b = Add(x, -0.0)", False),
        ("a = Gelu(x)", "b = com.microsoft.Gelu(x)", False),
        ("a = Clip(x, 1.0)", "b = Clip(x, 1.0)", True),
        ("a = Clip(x, 1.0)", "b = Clip(x, , 1.0)", False),
        ("a = Clip(x, , 1.0)", "b = Clip(x, , 1.0)", True),
        ("a = Softmax<axis=0>(x)", "b = Softmax<axis=0>(x)", True),
        ("a = Softmax<axis=0>(x)", "b = Softmax<axis=1>(x)", False),
        ("a = Softmax<axis=-1>(x)", "b = Softmax(x)", False),
        ("a = LeakyRelu<alpha=0.0>(x)", "b = LeakyRelu<alpha=-0.0>(x)", False),
        ("a = LeakyRelu<alpha=0.1>(x)", "b = LeakyRelu<alpha=0.1>(x)", True),
        ("a = Transpose<perm=[1,0]>(x)", "b = Transpose<perm=[1,0]>(x)", True),
        ("a = Transpose<perm=[1,0]>(x)", "b = Transpose<perm=[0,1]>(x)", False),
        ("a, c = Split(x)", "b, d = Split(x)", True),
        ("a, c = Split(x)", "b, d, e = Split(x)", False),
        ("s = ConstantOfShape<value = float[1] {0.0}>(n)", "t = ConstantOfShape<value = float[1] {0.0}>(n)", True),
        ("s = ConstantOfShape<value = float[1] {0.0}>(n)", "t = ConstantOfShape<value = float[1] {1.0}>(n)", False),
        ('a = Equal(s, string[1] {"p"})', 'b = Equal(s, string[1] {"p"})', True),
        ('a = Equal(s, string[1] {"p"})', 'b = Equal(s, string[1] {"q"})', False),
    ],
)  # fmt: skip
def test_twins(a: str, b: str, expected: bool) -> None:
    assert is_twin(a, b, "float[2] x; float[2] w; int64[1] n; string[1] s;") == expected


def test_references_to_different_attributes_of_a_function_are_no_twins() -> None:
    def body(first: str, second: str) -> list[ir.Node]:
        x = ir.Value(name="x")
        nodes = [
            ir.Node("", "LeakyRelu", [x], [ir.RefAttr("alpha", name, ir.AttributeType.FLOAT)])
            for name in (first, second)
        ]
        return list(ir.Graph([x], [n.outputs[0] for n in nodes], nodes=nodes))

    twins = ValueNumbering()
    a, b = body("slope", "slope")
    assert [twins.find(a), twins.find(b)] == [None, a]
    a, b = body("slope", "other")
    assert [twins.find(a), twins.find(b)] == [None, None]
    fixed = ir.Node("", "LeakyRelu", [a.inputs[0]], [ir.AttrFloat32("alpha", 0.1)], graph=a.graph)
    assert twins.find(fixed) is None


def test_quantized_constants_have_twins() -> None:
    assert is_twin("a = DequantizeLinear(int8[2] {1, 2}, 0.5)", "b = DequantizeLinear(int8[2] {1, 2}, 0.5)")
    assert not is_twin("a = DequantizeLinear(int8[2] {1, 2}, 0.5)", "b = DequantizeLinear(int8[2] {1, 3}, 0.5)")


def test_nodes_with_subgraphs_or_no_inputs_have_no_twins() -> None:
    assert not is_twin("a = RandomNormal<shape=[2]>()", "b = RandomNormal<shape=[2]>()")
    branch = "If<then_branch = () => (p{0}) {{ p{0} = Neg(x) }}, else_branch = () => (q{0}) {{ q{0} = Abs(x) }}>(c)"
    assert not is_twin(f"a = {branch.format(0)}", f"b = {branch.format(1)}", "float[2] x; bool c;")


def test_nodes_of_different_graphs_are_no_twins() -> None:
    model = text.parse(
        "float[2] x; bool c; a = Neg(x)  y = If<then_branch = () => (p) { p = Neg(x) }, else_branch = () => (q) { q = Abs(x) }>(c)"
    )
    twins = ValueNumbering()
    assert not any(twins.find(n) for n in model.graph.all_nodes())


def test_nodes_of_different_versions_are_no_twins() -> None:
    model = text.parse("float[2] x; a = Neg(x)  b = Neg(x)")
    left, right = model.graph
    left.version = 20
    twins = ValueNumbering()
    assert [twins.find(n) for n in (left, right)] == [None, None]
    right.version = 20
    twins = ValueNumbering()
    assert [twins.find(n) for n in (left, right)] == [None, left]


def test_a_node_that_left_or_changed_is_no_twin() -> None:
    model = text.parse("float[2] x; float[2] w; a = Neg(x)  b = Neg(x)  c = Neg(x)")
    a, b, c = model.graph
    twins = ValueNumbering()
    assert [twins.find(n) for n in (a, b)] == [None, a]
    a.replace_input_with(0, model.graph.inputs[1])
    assert [twins.find(n) for n in (b, c, a)] == [None, b, None]
    model.graph.outputs.clear()
    model.graph.remove(b)
    assert [twins.find(n) for n in (c, a)] == [None, None]


def test_a_crowd_is_searched_as_fast_as_a_pair() -> None:
    readers = "  ".join(f"v{i} = Neg(x)" for i in range(300))
    model = text.parse(f"float[2] x; {readers}")
    twins = ValueNumbering()
    first, *others = model.graph
    assert twins.find(first) is None
    assert {twins.find(n) for n in others} == {first}


def test_large_constants_are_compared_by_content() -> None:
    model = text.parse("float[2] x; float[2] w; a = Mul(x, w)  b = Mul(x, w)  c = Mul(x, w)")
    numbers = np.arange(5000, dtype=np.float32)
    other = numbers.copy()
    other[2] = 7  # between the places that are sampled
    for node, content in zip(model.graph, (numbers, numbers.copy(), other), strict=True):
        node.replace_input_with(1, ir.Value(const_value=ir.tensor(content)))
    a, b, c = model.graph
    twins = ValueNumbering()
    assert [twins.find(n) for n in (a, b, c)] == [None, a, None]


def test_same_tensor() -> None:
    def tensor(numbers: list[float], dtype: ir.DataType = ir.DataType.FLOAT) -> ir.TensorProtocol:
        return ir.tensor(numbers, dtype=dtype)

    assert same_tensor(tensor([1.0, 2.0]), tensor([1.0, 2.0]))
    assert same_tensor(tensor([float("nan")]), tensor([float("nan")]))
    assert not same_tensor(tensor([0.0]), tensor([-0.0]))
    assert not same_tensor(tensor([1.0]), tensor([1.0], ir.DataType.DOUBLE))
    assert not same_tensor(tensor([1.0] * 5000), tensor([1.0] * 5000)), "large ones are not compared"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("c = Add(x, w)  d = LeakyRelu<alpha=0.1>(c)  z = Concat<axis=0>(d, {1.})", True),
        ("c = Add(w, x)  d = LeakyRelu<alpha=0.1>(c)  z = Concat<axis=0>(d, {1.})", False),
        ("c = Add(x, w)  d = LeakyRelu<alpha=0.2>(c)  z = Concat<axis=0>(d, {1.})", False),
        ("c = Sub(x, w)  d = LeakyRelu<alpha=0.1>(c)  z = Concat<axis=0>(d, {1.})", False),
        ("c = Add(x, w)  d = LeakyRelu<alpha=0.1>(c)  z = Concat<axis=0>(d, {2.})", False),
        ("c = Add(x, w)  d = LeakyRelu<alpha=0.1>(x)  z = Concat<axis=0>(d, {1.})", False),
        ("d = LeakyRelu<alpha=0.1>(x)  z = Concat<axis=0>(d, {1.})", False),
    ],
)
def test_the_same_work_is_the_same_to_the_order_of_operands(other: str, expected: bool) -> None:
    one = "a = Add(x, w)  b = LeakyRelu<alpha=0.1>(a)  y = Concat<axis=0>(b, {1.})"
    nodes = list(text.parse(f"float[2] x; float[2] w; {one}  {other}  v = Add(y, z)").graph)
    before, after = nodes[:3], nodes[3:-1]
    assert same_work(before, after, before[-1].outputs, after[-1].outputs) is expected
    assert same_work(before, before, before[-1].outputs, before[-1].outputs)


def test_results_of_one_node_in_another_order_are_not_the_same() -> None:
    *nodes, _ = text.parse("float[2] x; a, b = Split(x, {1, 1})  c, d = Split(x, {1, 1})  y = Sum(a, b, c, d)").graph
    (one,), (other,) = nodes[:1], nodes[1:]
    assert same_work([one], [other], one.outputs, other.outputs)
    assert not same_work([one], [other], one.outputs, other.outputs[::-1])
    assert not same_work([one], [], one.outputs[:1], one.inputs[:1])
