"""The text form: every short form reads as documented, and what is printed reads back as what it was."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import onnx.printer
import onnx_ir as ir
import onnxruntime as ort
import pytest
from corpus import SHARED_FILES, few
from hypothesis import given
from hypothesis import strategies as st

from onnxrewrite.errors import ModelError
from onnxrewrite.ir import text as text_module
from onnxrewrite.ir.text import diff, parse, print_graph, print_model, print_node
from onnxrewrite.ir.text.literals import tensor_hash
from onnxrewrite.ir.text.syntax import DTYPES

GELU = "d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)"


def constant(model: ir.Model, node: int = 0, operand: int = 1) -> np.ndarray:
    value = model.graph[node].inputs[operand]
    return value.const_value.numpy()


def dtype_of(text: str, node: int = -1, operand: int = 1, **options) -> ir.DataType:
    return parse(text, **options).graph[node].inputs[operand].dtype


def names(values) -> list[str]:
    return [value.name for value in values]


def assert_round_trip(model: ir.Model) -> None:
    printed = print_model(model)
    again = parse(printed, weights=large_constants(model))
    assert print_model(again) == printed
    assert print_model(again, canonical_names=True) == print_model(model, canonical_names=True)


def large_constants(model: ir.Model) -> dict[str, np.ndarray]:
    """By hash, as ``parse`` takes them."""
    nodes = [node for graph in (model.graph, *model.functions.values()) for node in graph.all_nodes()]
    graphs = {node.graph for node in nodes if isinstance(node.graph, ir.Graph)} | {model.graph}
    tensors = [value.const_value for graph in graphs for value in graph.initializers.values()]
    tensors += [a.value for n in nodes for a in n.attributes.values() if a.type is ir.AttributeType.TENSOR]
    return {tensor_hash(tensor): tensor.numpy() for tensor in tensors if tensor.size > 8}


def run(model: ir.Model, **feeds: np.ndarray) -> list[np.ndarray]:
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


class TestSnippets:
    def test_statements_on_one_line(self):
        graph = parse(GELU).graph
        assert [node.op_type for node in graph] == ["Div", "Erf", "Add", "Mul", "Mul"]
        assert names(graph.inputs) == ["x"]
        assert names(graph.outputs) == ["y"]
        assert graph.inputs[0].dtype is ir.DataType.FLOAT
        assert graph.inputs[0].shape is None
        assert [float(v.const_value.numpy()) for v in graph.initializers.values()] == [
            np.float32(1.41421356),
            1,
            0.5,
        ]
        assert list(graph.initializers) == ["c0", "c1", "c2"]

    @pytest.mark.parametrize("separator", [" ", "\n", ";", " ;\n", "  # a remark\n"])
    def test_separators(self, separator):
        model = parse(GELU.replace("  ", separator))
        assert print_model(model) == print_model(parse(GELU))

    def test_it_runs(self):
        (found,) = run(parse("float[N] x " + GELU), x=np.array([-1, 0, 2], np.float32))
        np.testing.assert_allclose(found, [-0.158655, 0, 1.9545], rtol=1e-4)

    @pytest.mark.parametrize("text", ["y = Clip(x, , 6.0)", 'y = Clip(x, "", 6.0)'])
    def test_missing_operand(self, text):
        model = parse(text)
        assert model.graph[0].inputs[1] is None
        assert float(constant(model, 0, 2)) == 6

    def test_missing_operand_at_the_end(self):
        assert parse('y = Conv(x, w, "")').graph[0].inputs[2] is None
        assert len(parse("y = Conv(x, w,)").graph[0].inputs) == 2

    @pytest.mark.parametrize(
        "text",
        [
            "y = Conv <group = 2, pads = [1, 1, 1, 1]> (x, w)",
            "y = Conv(x, w) <group = 2, pads = [1, 1, 1, 1]>",
            "y = Conv(x, w, group=2, pads=[1,1,1,1])",
            "y = Conv <group: int = 2> (x, w, pads: ints = [1,1,1,1])",
        ],
    )
    def test_places_of_attributes(self, text):
        node = parse(text).graph[0]
        assert node.attributes["group"].as_int() == 2
        assert list(node.attributes["pads"].as_ints()) == [1, 1, 1, 1]

    def test_kinds_of_attributes(self):
        node = parse(
            'y = F(x, i=-1, f=1e-5, inf=-inf, s="a \\"b\\"", is: ints = [], fs=[1.0, 2], ss=["a"],'
            " t=float[2] {1, 2}, tp=float[N,?], g=() => (z) { z = Relu(x) })"
        ).graph[0]
        values = {name: attribute.value for name, attribute in node.attributes.items()}
        assert values["i"] == -1
        assert values["f"] == np.float32(1e-5)
        assert values["inf"] == -np.inf
        assert values["s"] == 'a "b"'
        assert list(values["is"]) == []
        assert list(values["fs"]) == [1, 2]
        assert list(values["ss"]) == ["a"]
        assert values["t"].numpy().tolist() == [1, 2]
        assert values["tp"].shape == ir.Shape(["N", None])
        assert values["g"].name == "g"

    def test_a_whole_number_serves_as_a_float_attribute(self):
        attribute = parse("y = LeakyRelu(x, alpha=1)").graph[0].attributes["alpha"]
        assert attribute.type is ir.AttributeType.FLOAT

    def test_empty_list_takes_its_type_from_the_schema(self):
        attribute = parse("y = Transpose(x, perm=[])").graph[0].attributes["perm"]
        assert attribute.type is ir.AttributeType.INTS

    def test_graph_attributes(self):
        model = parse(
            "bool c; float[2] x; y = If (c) <then_branch = g1 () => (t) { t = Add(x, 1.0) },"
            " else_branch = () => (t) { t = Neg(x) }>"
        )
        branch = model.graph[0].attributes["then_branch"].as_graph()
        assert branch.name == "g1"
        assert branch[0].inputs[0] is model.graph.inputs[1]
        (found,) = run(model, c=np.array(True), x=np.ones(2, np.float32))
        assert found.tolist() == [2, 2]

    def test_names_of_inner_graphs_become_inputs(self):
        branches = "then_branch = () => (t) { t = Add(x, w) }, else_branch = () => (t) { t = Neg(x) }"
        assert names(parse(f"y = If (c) <{branches}>").graph.inputs) == ["c", "x", "w"]
        assert names(parse(f"y = If <{branches}> (c)").graph.inputs) == ["x", "w", "c"]

    def test_inner_name_that_shadows(self):
        branches = "<then_branch = () => (x) { x = Relu(a) }, else_branch = () => (t) { t = Neg(x) }>"
        model = parse(f"x = Abs(a) y = If (c) {branches}")
        assert model.graph[1].attributes["then_branch"].as_graph().outputs[0] is not model.graph[0].outputs[0]
        assert names(model.graph.outputs) == ["y"]
        assert_round_trip(model)

    def test_domains(self):
        model = parse("a = com.microsoft.Gelu(x) y = my.own.Op:over(a)", domains={"my.own": 3})
        assert dict(model.opset_imports) == {"": 17, "com.microsoft": 1, "my.own": 3}
        assert model.graph[1].overload == "over"

    def test_several_outputs(self):
        model = parse("a, b = Split(x, axis=1, num_outputs=2)", opset=18)
        assert names(model.graph.outputs) == ["a", "b"]
        assert names(parse('y, "", z = F(x)').graph.outputs) == ["y", "z"]

    def test_node_name(self):
        assert parse("[n] y = Relu(x)").graph[0].name == "n"

    def test_declarations(self):
        graph = parse("float16[B,8] x; seq(float) s int64 unused  y = Relu(x) z = SequenceLength(s)").graph
        assert names(graph.inputs) == ["x", "s", "unused"]
        assert graph.inputs[0].shape == ir.Shape(["B", 8])
        assert graph.outputs[0].dtype is ir.DataType.FLOAT16

    def test_declaration_of_an_output(self):
        graph = parse("float16[B,8] y; y = my.Op(x)").graph
        assert names(graph.inputs) == ["x"]
        assert graph.outputs[0].dtype is ir.DataType.FLOAT16

    @pytest.mark.parametrize(
        "text",
        [
            "(float16[B,8] x, int64[2] s) => (y) { y = Reshape(x, s) }",
            "g (float16[B,8] x, int64[2] s) => (float16[?,?] y) { y = Reshape(x, s) }",
            "float16[B,8] x int64[2] s y = Reshape(x, s)",
        ],
    )
    def test_header(self, text):
        graph = parse(text).graph
        assert names(graph.inputs) == ["x", "s"]
        assert graph.outputs[0].dtype is ir.DataType.FLOAT16
        onnx.checker.check_model(ir.to_proto(parse(text)), full_check=True)

    def test_header_that_only_gives_outputs(self):
        graph = parse("=> (y, d, x, y) { d = Abs(x) y = Relu(d) }").graph
        assert names(graph.inputs) == ["x"]
        assert names(graph.outputs) == ["y", "d", "x", "y"]

    def test_an_input_that_is_an_output_keeps_its_type(self):
        text = "y = F(x, body = (bool c, int64[N] n) => (c, n) { })"
        body = parse(text).graph[0].attributes["body"].as_graph()
        assert [value.dtype for value in body.outputs] == [ir.DataType.BOOL, ir.DataType.INT64]

    def test_inputs_are_in_order_of_first_mention(self):
        assert names(parse("y = Add(b, a) float[2] z  w = Mul(a, c)").graph.inputs) == ["b", "a", "z", "c"]

    def test_names_may_be_used_before_their_line(self):
        graph = parse("y = Relu(b) b = Abs(x)").graph
        assert names(graph.inputs) == ["x"]
        assert graph[0].inputs[0] is graph[1].outputs[0]

    @pytest.mark.parametrize(
        "text",
        [
            "w = float[2] {1, 2} y = Add(x, w)",
            "float[2] w = {1, 2} y = Add(x, w)",
            "w = {1.0, 2.0} y = Add(x, w)",
        ],
    )
    def test_initializer(self, text):
        graph = parse(text).graph
        assert names(graph.inputs) == ["x"]
        assert graph.initializers["w"].const_value.numpy().tolist() == [1, 2]

    @pytest.mark.parametrize(
        "text",
        [
            "input w = float[2] {1, 2} y = Add(x, w)",
            "(float[2] w, float[2] x) => (y) <float[2] w = {1, 2}> { y = Add(x, w) }",
            "(float[2] w = {1, 2}, float[2] x) => (y) { y = Add(x, w) }",
        ],
    )
    def test_overridable_initializer(self, text):
        model = parse(text)
        assert names(model.graph.inputs) == ["w", "x"]
        assert model.graph.inputs[0].is_initializer()
        assert model.graph.inputs[0].shape == ir.Shape([2])
        assert "Add(x, w)" in print_model(model)
        assert_round_trip(model)

    def test_dummy_weights_depend_on_the_name_alone(self):
        one, two = (
            parse("w = float[64,64] ~ y = MatMul(x, w)"),
            parse("z = Abs(x) w = float[64,64] ~ y = MatMul(z, w)"),
        )
        weight = one.graph.initializers["w"].const_value.numpy()
        np.testing.assert_array_equal(weight, two.graph.initializers["w"].const_value.numpy())
        assert abs(weight.std() - 1) < 0.1
        assert constant(parse("y = MatMul(x, float16[8,8] ~)")).dtype == np.float16
        assert constant(parse("y = Add(x, int64[100] ~)")).max() == 7


class TestLiteralTypes:
    @pytest.mark.parametrize(
        ("text", "values", "dtype"),
        [
            ("1.0", 1.0, np.float32),
            ("-3", -3.0, np.float32),
            ("1e-5", 1e-5, np.float32),
            ("inf", np.inf, np.float32),
            ("-inf", -np.inf, np.float32),
            ("{1.0, 2.0}", [1, 2], np.float32),
            ("float16 1.5", 1.5, np.float16),
            ("float16[2,2] {1,2,3,4}", [[1, 2], [3, 4]], np.float16),
            ("int64[0] {}", [], np.int64),
            ("float[] 0.5", 0.5, np.float32),
            ("bool[2] {true,false}", [True, False], np.bool_),
            ("{true, false}", [True, False], np.bool_),
            ("complex64 {1.0, 2.0}", 1 + 2j, np.complex64),
            ('string[2] {"a","b"}', [b"a", b"b"], np.dtype("S1")),
        ],
    )
    def test_forms(self, text, values, dtype):
        found = constant(parse(f"y = Add(x, {text})"))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.array(values, dtype=dtype))

    @pytest.mark.parametrize(
        ("text", "dtype"),
        [
            ("y = Reshape(x, {0, -1})", "INT64"),
            ("y = Unsqueeze(x, {0})", "INT64"),
            ("y = Gather(x, 0)", "INT64"),
            ("float16 x y = Add(x, 1)", "FLOAT16"),
            ("double x a = Relu(x) y = Add(a, 1.0)", "DOUBLE"),
            ("x = Shape(a) y = Mul(x, 2)", "INT64"),
            ("x = Cast(a, to=10) y = Mul(x, 2)", "FLOAT16"),
            ("float16 x a = com.microsoft.Gelu(x) y = Mul(a, 2)", "FLOAT16"),
            ("float16 x a = my.Op(x) y = my.Op(x, 2.0)", "FLOAT16"),
            ("int64 x y = my.Op(x, 2.0)", "FLOAT"),
            ("y = my.Op(x, 2)", "FLOAT"),
            ("y = Add(x, 1)", "FLOAT"),
            ("y = Pow(x, 2)", "FLOAT"),
            ("float16 x y = Where(c, 0, x)", "FLOAT16"),
            ("float16 x y = Concat(x, {1}, axis=0)", "FLOAT16"),
            ("y = Add(double 1, 1)", "DOUBLE"),
        ],
    )
    def test_dtype_follows_the_schema(self, text, dtype):
        assert dtype_of(text).name == dtype

    def test_loop_carries_operands_of_any_type(self):
        body = "g (int64 i, bool k, int64 n, float[] v) => (k, n, v) { }"
        assert dtype_of(f"int64 n; a, b = Loop(10, true, n, 1.0, body = {body})", operand=3).name == "FLOAT"

    def test_names_of_literals_skip_taken_ones(self):
        assert list(parse("c0 = Abs(x) y = Add(c0, 1.0)").graph.initializers) == ["c1"]

    def test_an_integer_in_onnx_text_is_the_bit_pattern_of_a_half(self):
        header = '<ir_version: 8, opset_import: ["" : 17]>'
        text = "g (float16[1] x) => (float16[1] y) <float16[1] w = {15872}> { y = Add(x, w) }"
        assert constant(parse(header + text)).tolist() == [1.5]
        assert constant(parse(text)).tolist() == [15872]


FULL = r"""
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1], producer_name: "p\"q",
 metadata_props: ["k" : "v"], model_version: 3, doc_string: "d">
"a/b" (float[N,"M+1",?,3] x, float[2] w, bool c, seq(float[N]) s, sparse_tensor(float[2]) sp, float[] q,
 optional(float) o) => (float[N,8] y, z, float last)
  <float[2] w = {1, 2.5}, float16[2] h = {15360, 16384}, string[1] ss = {"a\"b"}, double d = {1e300},
   uint64[1] u = {18446744073709551615}, bool[2] bb = {1, 0}, float[N] a>
{
   # a remark
   [n1] a = Clip (x, , w)
   b = local.f:ov <p : float = 1.0, r : floats = [1.0, 2.0], e : ints = []> (a, "")
   y = If (c) <then_branch = g1 () => (float t) { t = Add(a, b) },
               else_branch = g2 () => (t) <float k = {1}> { t = Add(a, k) }>
   z = Constant <value = float[2] {1, 2}> ()
   "la st" = Optional <type = float[N]> ()
   last = Identity("la st")
}
<domain: "local", opset_import: ["" : 17], overload: "ov">
f <p, r: floats = [0.5]> (v, m) => (r)
{
   t = Elu <alpha : float = @p> (v)
   r = Identity(t)
}
"""


class TestOnnxText:
    @pytest.mark.parametrize("text", [FULL])
    def test_reads_what_onnx_reads(self, text):
        expected = ir.from_proto(onnx.parser.parse_model(text))
        found = parse(text)
        assert print_model(found) == print_model(expected)
        assert found.doc_string == "d"
        for name, value in expected.graph.initializers.items():
            actual = found.graph.initializers[name].const_value.numpy()
            np.testing.assert_array_equal(actual, value.const_value.numpy())

    def test_reads_what_onnx_prints(self):
        proto = ir.to_proto(
            parse(f"float16[2] h {GELU}; z = Add(h, float16[2] {{1.5, -2}}); q = Transpose(x, perm=[0])")
        )
        assert print_model(parse(onnx.printer.to_text(proto))) == print_model(ir.from_proto(proto))

    def test_round_trip(self):
        assert_round_trip(parse(FULL))

    def test_function(self):
        model = parse(
            "(float[N] x) => (float[N] y) { y = l.f(x, alpha=2.0) }"
            ' <domain: "l", opset_import: ["" : 17]> f <alpha, b: int = 3> (x) => (y)'
            " { a = Mul(x, 0.5) y = Elu <alpha: float = @alpha> (a) }"
        )
        (function,) = model.functions.values()
        assert [node.op_type for node in function] == ["Constant", "Mul", "Elu"]
        assert_round_trip(model)
        (found,) = run(model, x=np.array([4.0], np.float32))
        assert found.tolist() == [2]


@pytest.mark.slow
def test_the_work_is_linear_in_nodes() -> None:
    """Reading 10 times the nodes takes no more than 20 times as long; it took 30 when names were looked up in a list."""

    def seconds(nodes: int) -> float:
        source = "float[n] x0  " + "  ".join(f"x{i + 1} = Relu(x{i})" for i in range(nodes))
        start = time.process_time()
        assert len(list(parse(source).graph)) == nodes
        return time.process_time() - start

    assert min(seconds(5000) for _ in range(3)) < 20 * min(seconds(500) for _ in range(3))


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("y = Add(x, 12abc)", "expected ',' or ')' at 1:14: 'abc'"),
            ("y = Add(x", "expected ',' or ')' at 1:10: the end of the text"),
            ("y = Relu(x)\n  z = ", "expected an operator at 2:7: the end of the text"),
            ("y = Reshape(x, 1.5)", "not a value of int64 at 1:16: '1.5'"),
            ("", "expected a statement at 1:1: the end of the text"),
            ("y = Relu(x) y = Abs(x)", "a second definition of this name at 1:13: 'y'"),
            ("(x) => (y) { y = Add(x, z) }", "a name that nothing defines and that is no input at 1:25: 'z'"),
            ("(x) => (z) { y = Relu(x) }", "a name that nothing defines and that is no input at 1:9: 'z'"),
            ("(x) => (x) { x = Relu(x) }", "a second definition of this name at 1:14: 'x'"),
            ('y = "abc', "a string without its end at 1:5: '\"'"),
            ("y = Add(x, float[3] {1,2})", "2 values for a shape of 3 at 1:12: 'float'"),
            (
                "y = Add(x, float[N] {1,2})",
                "a constant needs a tensor type with numbers for dimensions at 1:12: 'float'",
            ),
            ("y = Add(x, $)", "unexpected character at 1:12: '$'"),
            ("y = F(a=1, x)", "an operand after an attribute at 1:12: 'x'"),
            ("map(int64, float) x", "no support for values of this type at 1:1: 'map'"),
            ("y = F<a: int = 1.0>(x)", "an attribute said to be int that is float at 1:7: 'a'"),
            ("y = F<a: whole = 1>(x)", "unknown attribute type at 1:10: 'whole'"),
            ("y = F<a = []>(x)", "an empty list needs a type, as in 'a: ints = []' at 1:7: 'a'"),
            ('y = F<a = [1, "b"]>(x)', "a list of values of different kinds at 1:7: 'a'"),
            ("y = F<a = b>(x)", "expected an attribute's value at 1:11: 'b'"),
            (
                "y = F<a = @b>(x)",
                "a reference to an attribute needs a type, as in 'a: float = @b' at 1:7: 'a'",
            ),
            ("y = F<a = 99999999999999999999>(x)", "not a value of int64 at 1:11: '99999999999999999999'"),
            ("y = Add(x, int8 300)", "not a value of int8 at 1:17: '300'"),
            ("y = Mul(x, float16 1e6)", "not a value of float16 at 1:20: '1e6'"),
            ("y = Mul(x, string 1)", "not a string at 1:19: '1'"),
            ("y = Mul(x, bool 2)", "not a bool at 1:17: '2'"),
            ("y = Mul(x, string[2] ~)", "no dummy values of string at 1:12: 'string'"),
            ("=> (y) {", "expected '}' at 1:9: the end of the text"),
            ("<ir: 8> y = Relu(x)", "unknown header field at 1:2: 'ir'"),
            (
                "y = Add(x, float[9] sha256:0123456789ab)",
                "a hash is no value; pass weights={'c0': array} at 1:21: ",
            ),
        ],
    )
    def test_one_line_with_the_place(self, text, message):
        with pytest.raises(ModelError) as caught:
            parse(text)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)

    @given(st.text(alphabet='xy=(){}<>[],;:.@~?"#- \n1e+float', max_size=40))
    def test_no_other_error_for_any_text(self, text):
        with contextlib.suppress(ModelError):
            parse(text)


_WIDE = ("-0.0", "0.1", "inf", "-inf", "nan", "1e-5", "3.0")
_NARROW = ("0.5", "1.0", "-2.0")
_SIGNED = ("-128", "127", "0")
_UNSIGNED = ("0", "255", "7")
NUMBERS = {
    **dict.fromkeys(("float", "double", "float16", "bfloat16"), _WIDE),
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float4e2m1"), _NARROW),
    "float8e8m0": ["0.5", "1.0", "4.0"],
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _SIGNED),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), _UNSIGNED),
    "int4": ["-8", "7"],
    "uint4": ["0", "15"],
    "int2": ["-2", "1"],
    "uint2": ["0", "3"],
    "bool": ["true", "false"],
    "string": ['"a"', '"\\"\\\\ é"'],
    "complex64": ["1.0", "-2.5"],
    "complex128": ["1.0", "-2.5"],
}


class TestPrint:
    @pytest.mark.parametrize("dtype", NUMBERS)
    def test_every_dtype_round_trips(self, dtype):
        numbers = NUMBERS[dtype]
        count = len(numbers) // 2 if dtype.startswith("complex") else len(numbers)
        scalar = "{1.0, 2.0}" if dtype.startswith("complex") else numbers[0]
        values = f"{dtype}[{count}] {{{', '.join(numbers)}}}"
        one_by_n = f"{dtype}[1,{count}] {{{', '.join(numbers)}}}"
        model = parse(f"y = my.F({values}, {dtype} {scalar}, {one_by_n}, {dtype}[0] {{}}, t = {values}) w = {values}")
        assert_round_trip(model)
        again = parse(print_model(model))
        for old, new in zip(model.graph[0].inputs, again.graph[0].inputs, strict=True):
            assert new.dtype is old.dtype
            assert new.const_value.shape == old.const_value.shape
            if dtype != "string":
                assert new.const_value.tobytes() == old.const_value.tobytes()

    @given(st.data())
    def test_floating_point_is_exact(self, data):
        name = data.draw(st.sampled_from(["float", "double", "float16", "bfloat16", "float8e5m2", "float8e4m3fn"]))
        dtype = DTYPES[name]
        bits = data.draw(st.lists(st.integers(0, 2**dtype.bitwidth - 1), min_size=1, max_size=8))
        array = np.array(bits, f"uint{dtype.bitwidth}").view(dtype.numpy())
        model = parse(f"y = my.F({name} 1)")
        model.graph[0].inputs[0].const_value = ir.Tensor(array, dtype=dtype)
        again = constant(parse(print_model(model)), 0, 0)
        is_nan = np.isnan(array.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(again.astype(np.float64)), is_nan)
        assert again[~is_nan].tobytes() == array[~is_nan].tobytes()

    @given(st.data())
    def test_constants_of_any_operator_keep_their_dtype(self, data):
        op = data.draw(st.sampled_from(["Add", "Reshape", "Pow", "Gather", "Where", "Clip", "com.microsoft.BiasGelu"]))
        types = [data.draw(st.sampled_from(["float", "float16", "int64", "int32", "bool"])) for _ in range(3)]
        literals = [f"{t} {'true' if t == 'bool' else '1'}" for t in types]
        operands = [data.draw(st.sampled_from([literal, "x"])) for literal in literals]
        model = parse(f"{data.draw(st.sampled_from(types))} x; y = {op}({', '.join(operands)})")
        again = parse(print_model(model))
        assert [v.dtype for v in again.graph[0].inputs] == [v.dtype for v in model.graph[0].inputs]

    def test_shortest_numbers(self):
        printed = print_model(parse("y = Sum(x, 1e-5, 0.1, 1e10, 123456789, double 0.1, float16 0.1, bfloat16 0.1)"))
        assert "Sum(x, 1e-5, 0.1, 1e10, 1.2345679e8, double 0.1, float16 0.1, bfloat16 0.1)" in printed

    def test_snapshot(self):
        model = parse(
            "(float16[N,?,8] x, bool c) => (y) { w = float[4,4] ~ [n0] a = Cast(x, to=1) m = MatMul(a, w)"
            " r = Reshape(m, {0, -1}) k = Constant <value = float 1.0> () s = Add(r, k)"
            " y = If (c) <then_branch = g () => (t) { t = Mul(s, {2.0}) },"
            " else_branch = () => (t) { t = Neg(s) }> }"
        )
        assert print_model(model) == (
            '<ir_version: 10, opset_import: ["" : 17]>\n'
            "graph (float16[N,?,8] x, bool c) => (float[?,?] y)\n"
            "<\n"
            "  float[4,4] w = sha256:623e8d474a2c\n"
            ">\n"
            "{\n"
            "  [n0] a = Cast <to = 1> (x)\n"
            "  m = MatMul(a, w)\n"
            "  r = Reshape(m, {0, -1})\n"
            "  k = Constant <value = float 1.0> ()\n"
            "  s = Add(r, k)\n"
            "  y = If (c) <\n"
            "    else_branch = else_branch () => (t) {\n"
            "      t = Neg(s)\n"
            "    },\n"
            "    then_branch = g () => (t) {\n"
            "      t = Mul(s, {2.0})\n"
            "    }\n"
            "  >\n"
            "}\n"
        )
        assert print_node(model.graph[0]) == "[n0] a = Cast <to = 1> (x)"
        assert print_graph(model.graph) in print_model(model)
        assert_round_trip(model)

    def test_names_that_are_no_identifiers(self):
        model = parse('float["N + 1"] "/a.1" "float" = Relu("/a.1") "nan" = Abs("float") y = Neg("nan") input = Abs(y)')
        assert_round_trip(model)

    def test_bytes_of_strings_are_exact(self):
        tensor = ir.StringTensor([b"a\x00", b"\xff", "é".encode()], shape=ir.Shape([3]))
        model = parse('y = my.F(string[3] {"", "", ""})')
        model.graph[0].inputs[0].const_value = tensor
        again = parse(print_model(model)).graph[0].inputs[0].const_value
        assert list(again.string_data()) == [b"a\x00", b"\xff", "é".encode()]

    def test_hash_of_strings(self):
        words = ", ".join(f'"{number}"' for number in range(9))
        assert_round_trip(parse(f"w = string[9] {{{words}}} y = Identity(w)"))

    def test_hash_needs_the_value(self):
        model = parse("w = float[4,4] ~ y = MatMul(x, w)")
        printed, weight = print_model(model), model.graph.initializers["w"].const_value.numpy()
        assert print_model(parse(printed, weights={"w": weight})) == printed
        for wrong, message in ((weight + 1, "has sha256:"), (weight[:2], "is float32[2, 4]")):
            with pytest.raises(ModelError, match=message.replace("[", r"\[")):
                parse(printed, weights={"w": wrong})

    def test_large_external_data_is_not_loaded(self, tmp_path):
        model = parse("w = float[4,4] ~ y = MatMul(x, w)")
        shape = ir.Shape([4096, 4096 + 1])
        tensor = ir.ExternalTensor("gone.bin", 0, None, ir.DataType.FLOAT, shape=shape, name="w", base_dir=tmp_path)
        model.graph.initializers["w"].const_value = tensor
        printed = print_model(model)
        assert 'float[4096,4097] w = external ["location": "gone.bin", "offset": "0"]' in printed
        assert print_model(parse(printed)) == printed

    def test_canonical_names_see_structure_only(self):
        one = parse("a = Abs(x) b = Neg(z) [n] y = Add(a, b)")
        two = parse("float[] p float[] q v = Neg(q) u = Abs(p) r = Add(u, v)")
        other = parse("a = Abs(x) b = Neg(z) y = Add(b, a)")
        assert print_model(one, canonical_names=True) == print_model(two, canonical_names=True)
        assert print_model(one, canonical_names=True) != print_model(other, canonical_names=True)
        assert "v4 = Add(v2, v3)" in print_model(one, canonical_names=True)

    @pytest.mark.slow
    def test_same_text_under_any_hash_seed(self):
        code = (
            f"from onnxrewrite.ir.text import parse, print_model; m = parse({FULL!r});"
            "print(print_model(m), print_model(m, canonical_names=True))"
        )
        root = Path(text_module.__file__).parents[2]
        texts = {
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONHASHSEED": seed},
                cwd=root,
                capture_output=True,
                check=True,
            ).stdout
            for seed in ("0", "1", "2")
        }
        assert len(texts) == 1

    @pytest.mark.skipif(not SHARED_FILES, reason="no models on this machine")
    @pytest.mark.parametrize("path", few(SHARED_FILES))
    def test_real_models(self, path):
        model = ir.load(path)
        start = time.perf_counter()
        print_model(model)
        assert time.perf_counter() - start < 2
        assert_round_trip(model)


class TestDiff:
    def test_nothing_changed(self):
        assert diff(parse(GELU), parse(GELU)) == ""

    def test_changed_line_with_context(self):
        text = diff(parse(GELU).graph, parse(GELU.replace("a = Add(e, 1.0)", "a = Sub(e, 1.0)")).graph, context=1)
        assert text == (
            "--- before\n+++ after\n@@ -3,3 +3,3 @@\n"
            "   e = Erf(d)\n-  a = Add(e, 1.0)\n+  a = Sub(e, 1.0)\n   m = Mul(x, a)\n"
        )

    def test_canonical_names_forgive_renaming(self):
        one, two = parse("d = Div(x, 2.0) y = Erf(d)"), parse("q = Div(x, 2.0) y = Erf(q)")
        assert diff(one, two) != ""
        assert diff(one, two, canonical_names=True) == ""
