"""Small models that ask for everything: every operator that can grow, sizes that no machine has, work that never ends.

Each is a graph in ONNX's text syntax of a few hundred bytes, once computed of constants, which whoever optimizes is
tempted to compute, and once of inputs; or a file with too much of one thing: calls, nesting, names, outputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, onnx_cpp2py_export, parser

SIZES = (300_000_000, 5_000_000_000, 10**12, 2**62)
"""Elements: what a large machine has, what none has, what overflows when it is multiplied."""

GROWING: tuple[tuple[str, str], ...] = (
    ("ConstantOfShape", "y = ConstantOfShape<value=float[1] {1.5}>(n)"),
    ("Expand", "y = Expand(c, n)"),
    ("Tile", "y = Tile(c, n)"),
    ("Pad", "p = Concat<axis=0>(z, n) y = Pad(c, p)"),
    ("Pad in front", "p = Concat<axis=0>(n, z) y = Pad<mode=\"edge\">(c, p)"),
    ("Range", "o = Constant<value=int64 {0}>() s = Squeeze(n) d = Constant<value=int64 {1}>() y = Range(o, s, d)"),
    ("Range of fractions", "o = Constant<value_float=0.0>() s = Squeeze(n) l = Cast<to=1>(s) "
     "d = Constant<value_float=1.0>() y = Range(o, l, d)"),
    ("OneHot", "i = Constant<value=int64[2] {0, 1}>() s = Squeeze(n) v = Constant<value=float[2] {0.0, 1.0}>() "
     "y = OneHot(i, s, v)"),
    ("Resize", "t = Concat<axis=0>(k, k, k, n) e = Constant<value=float[0] {}>() y = Resize<mode=\"nearest\">(b, e, e, t)"),
    ("Resize cubic", "t = Concat<axis=0>(k, k, n, k) e = Constant<value=float[0] {}>() y = Resize<mode=\"cubic\">(b, e, e, t)"),
    ("EyeLike", "t = Concat<axis=0>(k, n) f = ConstantOfShape(t) y = EyeLike(f)"),
    ("Gather", "i = ConstantOfShape<value=int64[1] {0}>(n) y = Gather(c, i)"),
    ("GatherND", "t = Concat<axis=0>(n, k) i = ConstantOfShape<value=int64[1] {0}>(t) y = GatherND(c, i)"),
    ("GatherElements", "i = ConstantOfShape<value=int64[1] {0}>(n) y = GatherElements(c, i)"),
    ("outer sum", "f = ConstantOfShape(n) t = Unsqueeze(f, z) u = Transpose(t) y = Add(t, u)"),
    ("outer product", "f = ConstantOfShape(n) t = Unsqueeze(f, z) u = Transpose(t) y = MatMul(u, t)"),
    ("Gemm", "f = ConstantOfShape(n) t = Unsqueeze(f, z) y = Gemm<transA=1>(t, t)"),
    ("Einsum", "f = ConstantOfShape(n) y = Einsum<equation=\"i,j->ij\">(f, f)"),
    ("Einsum that sums", "f = ConstantOfShape(n) y = Einsum<equation=\"i,j,k->\">(f, f, f)"),
    ("Where", "f = ConstantOfShape<value=bool[1] {1}>(n) t = Unsqueeze(f, z) u = Transpose(t) y = Where(t, c, c) w = And(t, u)"),
    ("Conv", "t = Concat<axis=0>(k, k, n) f = ConstantOfShape(t) y = Conv(f, f)"),
    ("ConvTranspose", "t = Concat<axis=0>(k, k, n) f = ConstantOfShape(t) y = ConvTranspose(f, f)"),
    ("ConvTranspose of strides", "y = ConvTranspose<strides=[2000000000, 1], output_padding=[1999999999, 0]>(b, b)"),
    ("MaxPool", "t = Concat<axis=0>(k, k, n) f = ConstantOfShape(t) y = MaxPool<kernel_shape=[1000000]>(f)"),
    ("AveragePool", "y = AveragePool<kernel_shape=[1, 1], pads=[1000000000, 0, 1000000000, 0]>(b)"),
    ("MaxUnpool", "i = Constant<value=int64[1,1,1,1] {0}>() t = Concat<axis=0>(k, k, k, n) y = MaxUnpool<kernel_shape=[1,1]>(b, i, t)"),
    ("RandomNormal", "y = RandomNormal<shape=[100000, 100000, 100000]>()"),
    ("RandomUniform", "y = RandomUniform<shape=[3000000000]>()"),
    ("RandomNormalLike", "f = ConstantOfShape(n) y = RandomNormalLike(f)"),
    ("Bernoulli", "f = ConstantOfShape(n) y = Bernoulli(f)"),
    ("Multinomial", "t = Constant<value=float[1,2] {0.5, 0.5}>() y = Multinomial<sample_size=2000000000>(t)"),
    ("NonZero", "f = ConstantOfShape<value=float[1] {1.0}>(n) y = NonZero(f)"),
    ("Compress", "f = ConstantOfShape<value=float[1] {1.0}>(n) t = Cast<to=9>(f) y = Compress<axis=0>(f, t)"),
    ("Unique", "f = ConstantOfShape<value=float[1] {1.0}>(n) y = Unique(f)"),
    ("TopK", "f = ConstantOfShape<value=float[1] {1.0}>(n) y, i = TopK(f, n)"),
    ("CumSum", "f = ConstantOfShape<value=float[1] {1.0}>(n) o = Constant<value=int64 {0}>() y = CumSum(f, o)"),
    ("HannWindow", "s = Squeeze(n) y = HannWindow(s)"),
    ("HammingWindow", "s = Squeeze(n) y = HammingWindow(s)"),
    ("BlackmanWindow", "s = Squeeze(n) y = BlackmanWindow(s)"),
    ("MelWeightMatrix", "s = Squeeze(n) r = Constant<value=int64 {16000}>() l = Constant<value_float=0.0>() h = Constant<value_float=8000.0>() "
     "y = MelWeightMatrix(s, s, r, l, h)"),
    ("DFT", "s = Squeeze(n) t = Constant<value=float[1,4,1] {1.0, 2.0, 3.0, 4.0}>() y = DFT<axis=1>(t, s)"),
    ("STFT", "f = ConstantOfShape(n) t = Unsqueeze(f, z) d = Constant<value=int64 {1}>() l = Constant<value=int64 {400}>() y = STFT(t, d, , l)"),
    ("Split", "f = ConstantOfShape(n) y = SplitToSequence(f)"),
    ("Col2Im", "t = Concat<axis=0>(k, n) f = Constant<value=float[1,1,1] {1.0}>() y = Col2Im(f, t, w)"),
    ("CenterCropPad", "y = CenterCropPad<axes=[0]>(c, n)"),
    ("AffineGrid", "f = Constant<value=float[1,2,3] {1.0,0.0,0.0,0.0,1.0,0.0}>() t = Concat<axis=0>(k, k, k, n) y = AffineGrid(f, t)"),
    ("RoiAlign", "r = Constant<value=float[1,4] {0.0, 0.0, 1.0, 1.0}>() i = Constant<value=int64[1] {0}>() "
     "y = RoiAlign<output_height=30000, output_width=30000, sampling_ratio=30000>(b, r, i)"),
    ("Upsample", "y = DepthToSpace<blocksize=1000000>(b)"),
    ("SpaceToDepth", "y = SpaceToDepth<blocksize=1000000>(b)"),
    ("Reshape", "f = ConstantOfShape(n) t = Concat<axis=0>(n, k, k, k) y = Reshape(f, t)"),
    ("Softmax", "t = Concat<axis=0>(k, n) f = ConstantOfShape(t) y = Softmax(f)"),
    ("LayerNormalization", "t = Concat<axis=0>(k, n) f = ConstantOfShape(t) g = ConstantOfShape(n) y = LayerNormalization(f, g)"),
    ("ReverseSequence", "t = Concat<axis=0>(k, n) f = ConstantOfShape(t) y = Cast<to=8>(f)"),
    ("ScatterND", "f = ConstantOfShape(n) i = Constant<value=int64[1,1] {0}>() u = Constant<value=float[1] {1.0}>() y = ScatterND(f, i, u)"),
    ("attention", "t = Concat<axis=0>(k, n, k) q = ConstantOfShape(t) r = Transpose<perm=[0,2,1]>(q) s = MatMul(q, r) p = Softmax(s) y = MatMul(p, q)"),
    ("Shape", "f = ConstantOfShape<value=int64[1] {3}>(n) y = Shape(f)"),
    ("shape arithmetic", "m = Mul(n, n) o = Mul(m, m) q = Add(o, n) f = ConstantOfShape<value=int64[1] {3}>(q) g = Add(f, k) y = Gather(g, k)"),
    ("QuantizeLinear", "f = ConstantOfShape(n) s = Constant<value_float=0.5>() q = QuantizeLinear(f, s) y = DequantizeLinear(q, s)"),
    ("MatMulInteger", "t = Concat<axis=0>(n, k) f = ConstantOfShape<value=uint8[1] {1}>(t) g = Transpose(f) y = MatMulInteger(f, g)"),
)  # fmt: skip
"""Name and nodes: ``n`` says how many, ``c`` is [1], ``b`` is [1,1,1,1], ``k`` is {1}, ``z`` {0}."""

LOOPS: tuple[tuple[str, str], ...] = (
    ("Loop that counts", "y = Loop<body = l (int64 i, bool g, float[1] a) => (bool h, float[1] d) "
     "{ h = Identity(g) d = Add(a, a) }>(s, t, c)"),
    ("Loop that scans", "v, y = Loop<body = l (int64 i, bool g, float[1] a) => (bool h, float[1] d, float[1] e) "
     "{ h = Identity(g) d = Add(a, a) e = Identity(d) }>(s, t, c)"),
    ("Loop that doubles", "y = Loop<body = l (int64 i, bool g, float[q] a) => (bool h, float[r] d) "
     "{ h = Identity(g) d = Concat<axis=0>(a, a) }>(s, t, c)"),
    ("Loop without an end", "y = Loop<body = l (int64 i, bool g, float[1] a) => (bool h, float[1] d) "
     "{ h = Identity(g) d = Identity(a) }>( , t, c)"),
    ("Loop in a Loop", "y = Loop<body = l (int64 i, bool g, float[1] a) => (bool h, float[1] d) { h = Identity(g) "
     "d = Loop<body = m (int64 i2, bool g2, float[1] a2) => (bool h2, float[1] d2) { h2 = Identity(g2) d2 = Add(a2, a2) }>(s, g, a) }>(s, t, c)"),
    ("Loop with a sequence", "e = SequenceEmpty<dtype=1>() w = Loop<body = l (int64 i, bool g, seq(float[1]) a) => (bool h, seq(float[1]) d) "
     "{ h = Identity(g) d = SequenceInsert(a, c) }>(s, t, e) y = ConcatFromSequence<axis=0>(w)"),
    ("Scan", "f = ConstantOfShape(n) u = Unsqueeze(f, k) v, y = Scan<num_scan_inputs=1, body = l (float[1] a, float[1] e) => (float[1] d, float[1] o) "
     "{ d = Add(a, e) o = Mul(d, e) }>(c, u)"),
)  # fmt: skip


def bombs() -> Iterator[tuple[str, bytes]]:
    """Names and files."""
    for size in SIZES:
        for name, nodes in GROWING:
            for of_constants in (True, False):
                made = _model(nodes, size, of_constants=of_constants)
                if made is not None:
                    yield f"{name} of {size:.0e}, {'constant' if of_constants else 'fed'}", made
        for name, nodes in LOOPS:
            for of_constants in (True, False):
                made = _model(nodes, size, of_constants=of_constants)
                if made is not None:
                    yield f"{name}, {size:.0e}, {'constant' if of_constants else 'fed'}", made
    yield from _chains()
    yield from _crowds()


_CONSTANTS = (
    "k = Constant<value=int64[1] {1}>() z = Constant<value=int64[1] {0}>() w = Constant<value=int64[2] {1, 1}>() "
    "s = Squeeze(n) t = Constant<value=bool {1}>() "
)


def _model(nodes: str, size: int, *, of_constants: bool) -> bytes | None:
    """The graph with its counts as constants, or as an input whose shape alone is declared; None if it is no graph."""
    given = "float[1] c, float[1,1,1,1] b" if of_constants else "float[1] c, float[1,1,1,1] b, int64[1] n"
    count = f"n = Constant<value=int64[1] {{{size}}}>() " if of_constants else ""
    text = f'<ir_version: 8, opset_import: ["": 20]> g ({given}) => (float y) {{ {count}{_CONSTANTS}{nodes} }}'
    try:
        model = parser.parse_model(text)
    except Exception as error:
        raise ValueError(f"{error}: {text}") from None
    del model.graph.output[:]
    model.graph.output.append(onnx.ValueInfoProto(name="y"))
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
        kind = next((v.type for v in (*inferred.graph.output, *inferred.graph.value_info) if v.name == "y"), None)
        if kind is not None and kind.WhichOneof("value"):
            model.graph.output[0].type.CopyFrom(kind)
    except Exception:
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    if of_constants:  # the small operands as well
        for name, shape in (("c", [1]), ("b", [1, 1, 1, 1])):
            model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
        del model.graph.input[:]
        model.graph.input.append(helper.make_tensor_value_info("unread", TensorProto.FLOAT, [1]))
    return bytes(model.SerializeToString())


def _chains() -> Iterator[tuple[str, bytes]]:
    """Chains of one operator, whose result grows at every step."""
    for count in (12, 40, 300):
        for kind, step in (
            ("Concat", "a{0} = Concat<axis=0>(a{1}, a{1})"),
            ("outer", "u{0} = Unsqueeze(a{1}, z) a{0} = Concat<axis=-1>(u{0}, u{0})"),
            ("Mul", "a{0} = Mul(a{1}, a{1})"),
            ("Tile", "a{0} = Tile(a{1}, w)"),
            ("Pad", "a{0} = Pad(a{1}, w)"),
        ):
            for dtype in ("float", "int64"):
                steps = " ".join(step.format(i + 1, i) for i in range(count))
                start = f"a0 = Constant<value={dtype}[1] {{3}}>()"
                for first in (start, f"a0 = Cast<to={1 if dtype == 'float' else 7}>(c)"):
                    text = (
                        f'<ir_version: 8, opset_import: ["": 18]> g (float[1] c) => ({dtype} y) '
                        f"{{ z = Constant<value=int64[1] {{0}}>() w = Constant<value=int64[{2 if kind == 'Pad' else 1}] {{{'9, 9' if kind == 'Pad' else '2'}}}>() {first} {steps} y = Identity(a{count}) }}"
                    )
                    fed = "constant" if first == start else "fed"
                    yield f"{count} times {kind} of {dtype}, {fed}", _without_shape(text)


def _without_shape(text: str) -> bytes:
    model = parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return bytes(model.SerializeToString())


def _crowds() -> Iterator[tuple[str, bytes]]:
    """Too much of one thing."""
    header = '<ir_version: 8, opset_import: ["": 17, "f": 1]>'
    for depth in (8, 20, 33, 90):
        inner = "y0 = Neg(x)"
        for level in range(1, depth):
            inner = (
                f"y{level} = If(t)<then_branch = a{level} () => (float[1] y{level - 1}) {{ {inner} }}, "
                f"else_branch = b{level} () => (float[1] z{level}) {{ z{level} = Abs(x) }}>"
            )
        text = f"{header} g (float[1] x, bool t) => (float[1] y{depth - 1}) {{ {inner} }}"
        _, _, data = onnx_cpp2py_export.parser.parse_model(text)  # deeper than Python's protobuf reads
        yield f"{depth} branches inside one another", bytes(data)
    for count in (16, 30, 60):
        bodies = ['<domain: "f", opset_import: ["": 17]> f0 (x) => (y) { y = Neg(x) }']
        bodies += [
            f'<domain: "f", opset_import: ["": 17, "f": 1]> f{i} (x) => (y) {{ a = f.f{i - 1}(x) y = f.f{i - 1}(a) }}'
            for i in range(1, count)
        ]
        text = f"{header} g (float[1] x) => (float[1] y) {{ y = f.f{count - 1}(x) }} {' '.join(bodies)}"
        yield f"{count} functions that call one another twice", bytes(parser.parse_model(text).SerializeToString())
    for count in (2000, 20000):
        yield f"{count} nodes in a chain", _chain(count, "Neg", named=True)
        yield f"{count} nodes without a name", _chain(count, "Neg", named=False)
        yield f"{count} Identities", _chain(count, "Identity", named=False)
    for length in (10**5, 10**6):
        yield f"names of {length}", _long_names(length)
    for shape in ([10**6, 10**6], [2**40], [2**31, 2**31, 2**31], [0] * 70, [1] * 500):
        yield f"an input of {str(shape)[:40]}", _wide(shape)
    yield "a thousand inputs and outputs", _broad(1000)


def _chain(count: int, op_type: str, *, named: bool) -> bytes:
    nodes = [
        helper.make_node(op_type, [f"v{i}" if i else "x"], [f"v{i + 1}"], name=f"n{i}" if named else "")
        for i in range(count)
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", f"v{count}"))
    graph = helper.make_graph(nodes, "chain", [x], [y])
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


def _long_names(length: int) -> bytes:
    names = [f"{c}{'/(a.*)+$[' * (length // 9)}" for c in "xabcdy"]
    nodes = [helper.make_node("Relu", [a], [b], name=b) for a, b in itertools.pairwise(names)]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in (names[0], names[-1]))
    graph = helper.make_graph(nodes, names[2], [x], [y])
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


def _wide(shape: list[int]) -> bytes:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy")
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    graph = helper.make_graph(nodes, "wide", [x], [y])
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


def _broad(count: int) -> bytes:
    inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, ["n"]) for i in range(count)]
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, ["n"]) for i in range(count)]
    nodes = [helper.make_node("Relu", [f"x{i}"], [f"y{i}"]) for i in range(count)]
    graph = helper.make_graph(nodes, "broad", inputs, outputs)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
