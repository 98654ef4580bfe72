"""Graphs of one operator or a few, on which the prover's semantics are compared with ONNX Runtime, by operator.

The name of an input says what it is fed: ``index`` numbers from 0 to 2, ``positive`` numbers above zero.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# ruff: noqa: E501  (graphs, one or two a line)


class Case(NamedTuple):
    """A graph, the domain in which it is read, and its opset."""

    graph: str
    domain: str = "uninterpreted"
    opset: int = 21


def _moves(*graphs: str, opset: int = 21) -> list[Case]:
    return [Case(g, "uninterpreted", opset) for g in graphs]


def _real(*graphs: str, opset: int = 21) -> list[Case]:
    return [Case(g, "reals", opset) for g in graphs]


def _bits(*graphs: str, opset: int = 21) -> list[Case]:
    return [Case(g, "bitwise", opset) for g in graphs]


def _unary(op_type: str, *, positive: bool = False, attributes: str = "") -> list[Case]:
    name = "positive" if positive else "x"
    return _real(f"float[n,m] {name}; y = {op_type}{attributes}({name})")


def _binary(op_type: str) -> list[Case]:
    return _real(f"float[n,1,m] x; float[k,m] positive; y = {op_type}(x, positive)")


def _sizes(op_type: str, others: str = "") -> list[Case]:
    """Of sizes, which are exact integers to the prover."""
    return _moves(f"float[n,m,3] x; s = Shape(x)  y = {op_type}(s{others})")


_OTHERS = ", {2, -1, 4}"
_REDUCED = ("ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax")

CASES: Final[dict[str, list[Case]]] = {
    "Transpose": _moves("float[n,m,k] x; y = Transpose<perm=[2,0,1]>(x)", "float[n,m] x; y = Transpose(x)"),
    "Reshape": _moves(
        "float[n,m,4] x; y = Reshape(x, {0, -1})", "float[n,m,4] x; y = Reshape(x, {0, 0, 2, 2})",
        "float[2,6,n] x; y = Reshape(x, {4, 3, -1})", "float[n,m,4] x; s = Shape(x)  y = Reshape(x, s)",
        "float[n,m,k] x; r = Reshape(x, {0, -1})  s = Shape(x)  y = Reshape(r, s)",
    ),
    "Flatten": _moves("float[n,m,3] x; y = Flatten<axis=2>(x)", "float[n,m,3] x; y = Flatten<axis=-1>(x)"),
    "Squeeze": _moves("float[n,1,m] x; y = Squeeze(x, {-2})", "float[3,1,2] x; y = Squeeze(x)"),
    "Unsqueeze": _moves("float[n,m] x; y = Unsqueeze(x, {0, -1})"),
    "Expand": _moves("float[n,1,m] x; y = Expand(x, {2, 1, 3, 1})"),
    "Tile": _moves("float[n,m] x; y = Tile(x, {2, 3})"),
    "Concat": _moves("float[n,m] x; float[n,k] z; y = Concat<axis=-1>(x, z, x)"),
    "Split": _moves("float[n,6] x; a, b = Split<axis=1>(x, {2, 4})", "float[7,n] x; a, b, c = Split<num_outputs=3>(x)"),
    "Slice": _moves(
        "float[n,m] x; y = Slice(x, {1, -3}, {-1, 9223372036854775807}, {0, 1})",
        "float[n,m] x; y = Slice(x, {-1}, {-1000}, {1}, {-1})", "float[n,m] x; y = Slice(x, {4, 0}, {0, 100}, {0, 1}, {-2, 3})",
    ),
    "Gather": _moves(
        "float[3,n] x; int64[m,2] index; y = Gather<axis=0>(x, index)",
        "float[n,4] x; y = Gather<axis=1>(x, {-1, 0, 2})", "float[n,5] x; y = Gather<axis=1>(x, {1, 2, 3})",
    ),
    "GatherElements": _moves("float[3,n] x; int64[2,n] index; y = GatherElements<axis=0>(x, index)"),
    "GatherND": _moves("float[3,3,n] x; int64[m,2] index; y = GatherND(x, index)"),
    "Pad": _moves(
        "float[n,m] x; y = Pad(x, {1, 0, 2, 3}, 0.5)", 'float[n,m] x; y = Pad<mode="edge">(x, {1, 0, 2, 3})',
        'float[5,n] x; y = Pad<mode="reflect">(x, {2, 0, 1, 0})', "float[5,n] x; y = Pad(x, {-1, 1, 2, 0}, 0.5)",
    ),
    "Shape": _moves("float[n,m,3] x; y = Shape<start=1>(x)"),
    "Size": _moves("float[n,m,3] x; y = Size(x)"),
    "ConstantOfShape": _moves("float[n,m] x; s = Shape(x)  y = ConstantOfShape<value=int64[1] {7}>(s)"),
    "Range": _moves("float[n,m] x; s = Size(x)  y = Range(1, s, 3)"),
    "Where": _moves("bool[n,1] c; float[n,m] x; float[m] z; y = Where(c, x, z)", "bool[n,1] c; int32[n,m] x; int32[m] z; y = Where(c, x, z)")
    + _bits("bool[n,1] c; float[n,m] x; float[m] z; y = Where(c, x, z)", "bool c; float16[n,m] x; float16[m] z; y = Where(c, x, z)")
    + _real("bool[n,1] c; float[n,m] x; float[m] z; y = Where(c, x, z)"),
    "DepthToSpace": _moves(
        "float[n,8,m,3] x; y = DepthToSpace<blocksize=2>(x)", 'float[n,8,m,3] x; y = DepthToSpace<blocksize=2, mode="CRD">(x)'
    ),
    "SpaceToDepth": _moves("float[n,m,4,6] x; y = SpaceToDepth<blocksize=2>(x)"),
    "Trilu": _moves("float[n,m] x; y = Trilu<upper=0>(x, 1)"),
    "Identity": _moves("float[n,m] x; y = Identity(x)")
    + _unary("Identity") + _sizes("Identity") + _bits("float[n,m] x; y = Identity(x)", "int32[n,m] x; y = Identity(x)", "bool[n] x; y = Identity(x)"),
    "And": _moves("bool[n,1] x; bool[m] z; y = And(x, z)"),
    "Or": _moves("bool[n,1] x; bool[m] z; y = Or(x, z)"),
    "Xor": _moves("bool[n,1] x; bool[m] z; y = Xor(x, z)"),
    "Not": _moves("bool[n,1] x; y = Not(x)"),
    "Max": _bits(*(f"{d}[n,m] x; {d}[m] z; y = Max(x, z)" for d in ("float", "float16", "double", "int64", "uint8")))
    + _binary("Max") + _sizes("Max", _OTHERS),
    "Min": _bits(*(f"{d}[n,m] x; {d}[m] z; y = Min(x, z)" for d in ("float", "float16", "double", "int64", "uint8")))
    + _binary("Min") + _sizes("Min", _OTHERS),
    "Clip": _bits("float[n,m] x; y = Clip(x, -1.0, 2.0)", "int64[n,m] x; y = Clip(x, -1, 5)", "uint8[n,m] x; y = Clip(x, uint8 3)")
    + _bits("float[n,m] x; y = Clip(x)", "float[n,m] x; y = Clip(x, -1.0)", "float[n,m] x; y = Clip(x, , 2.0)", "float16[n,m] x; y = Clip(x, float16 -1.0)")
    + _bits("float[n,m] x; y = Clip<min=-1.0, max=2.0>(x)", opset=10) + _real("float[n,m] x; y = Clip(x, -1.0, 2.0)") + _sizes("Clip", ", 2, 3"),
    "Relu": _bits("float[n,m] x; y = Relu(x)") + _unary("Relu") + _bits("float16[n,m] x; y = Relu(x)"),
    "Neg": _bits("float[n,m] x; y = Neg(x)", "int64[n,m] x; y = Neg(x)") + _unary("Neg") + _sizes("Neg"),
    "Abs": _bits("float[n,m] x; y = Abs(x)", "int64[n,m] x; y = Abs(x)") + _unary("Abs") + _sizes("Abs"),
    "Add": _bits("float[n,m] x; float[m] z; y = Add(x, z)", "int32[n,m] x; int32[m] z; y = Add(x, z)") + _binary("Add") + _sizes("Add", _OTHERS),
    "Sub": _bits("float[n,m] x; float[m] z; y = Sub(x, z)", "int32[n,m] x; int32[m] z; y = Sub(x, z)") + _binary("Sub") + _sizes("Sub", _OTHERS),
    "Mul": _bits("float[n,m] x; float[m] z; y = Mul(x, z)", "int32[n,m] x; int32[m] z; y = Mul(x, z)") + _binary("Mul") + _sizes("Mul", _OTHERS),
    "Div": _bits("float[n,m] x; float[m] z; y = Div(x, z)") + _binary("Div"),
    "Equal": _moves("bool[n,m] x; bool[m] z; y = Equal(x, z)")
    + _bits("float[n,m] x; float[m] z; y = Equal(x, z)", "int32[n,m] x; int32[m] z; y = Equal(x, z)") + _sizes("Equal", _OTHERS),
    "Less": _bits(*(f"{d}[n,m] x; {d}[m] z; y = Less(x, z)" for d in ("float", "double", "int32", "uint8", "uint64"))) + _sizes("Less", _OTHERS),
    "LessOrEqual": _bits("float[n,m] x; float[m] z; y = LessOrEqual(x, z)") + _sizes("LessOrEqual", _OTHERS),
    "Greater": _bits("float[n,m] x; float[m] z; y = Greater(x, z)", "int64[n,m] x; int64[m] z; y = Greater(x, z)") + _sizes("Greater", _OTHERS),
    "GreaterOrEqual": _bits("float[n,m] x; float[m] z; y = GreaterOrEqual(x, z)") + _sizes("GreaterOrEqual", _OTHERS),
    "IsNaN": _bits("float[n,m] x; y = IsNaN(x)"),
    "ThresholdedRelu": _bits("float[n,m] x; y = ThresholdedRelu<alpha=0.5>(x)"),
    "LeakyRelu": _bits("float[n,m] x; y = LeakyRelu<alpha=0.5>(x)") + _unary("LeakyRelu", attributes="<alpha=1.5>"),
    "Cast": _bits(
        "int32[n,m] x; y = Cast<to=1>(x)", "float[n,m] x; y = Cast<to=9>(x)", "int32[n,m] x; y = Cast<to=3>(x)",
        "bool[n,m] x; y = Cast<to=1>(x)", "float16[n,m] x; y = Cast<to=1>(x)", "float[n,m] x; y = Cast<to=10>(x)",
        "int8[n,m] x; y = Cast<to=7>(x)", "float[n,m] x; y = Cast<to=11>(x)", "int64[n,m] x; y = Cast<to=2>(x)",
        "uint8[n,m] x; y = Cast<to=3>(x)", "uint64[n,m] x; y = Cast<to=1>(x)", "int64[n,m] x; y = Cast<to=10>(x)",
        "double[n,m] x; y = Cast<to=1>(x)", "double[n,m] x; y = Cast<to=10>(x)", "int64[n,m] x; y = Cast<to=9>(x)",
        "float[n,m] x; y = Cast<to=16>(x)",
    ),
    "PRelu": _real("float[n,m] x; float[m] z; y = PRelu(x, z)") + _bits("float[n,m] x; float[m] z; y = PRelu(x, z)"),
    **{op: _bits(f"float[n,m] x; y = {op}(x)") for op in ("Floor", "Ceil", "Round")},
    "CastLike": _bits("float[n,m] x; int32[k] z; y = CastLike(z, x)"),
    "BitwiseNot": _bits("int32[n,m] x; y = BitwiseNot(x)"),
    **{op: _bits(f"int32[n,m] x; int32[m] z; y = {op}(x, z)") for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "Sign": _sizes("Sign"),
    "Dropout": _moves("float[n,m] x; y = Dropout(x)"),
    "Swish": _real("float[n,m] x; y = Swish<alpha=1.5>(x)", opset=24),
    **{op: _unary(op) for op in (
        "Exp", "Tanh", "Erf", "Sin", "Cos", "Sigmoid", "Softplus", "Softsign", "Gelu", "Mish", "HardSwish", "HardSigmoid",
        "Elu", "Selu",
    )},
    "Gelu (tanh)": _unary("Gelu", attributes='<approximate="tanh">'),
    "Sqrt": _unary("Sqrt", positive=True),
    "Log": _unary("Log", positive=True),
    "Reciprocal": _unary("Reciprocal", positive=True),
    "Pow": _real("float[n,m] positive; y = Pow(positive, -1.5)", "float[n,m] x; y = Pow(x, 3.0)"),
    "Sum": _binary("Sum"),
    "Mean": _binary("Mean"),
    **{op: _real(f"float[n,m,k] x; y = {op}<keepdims=0>(x, {{0, -1}})", f"float[n,m] x; y = {op}(x)") for op in _REDUCED},
    "ReduceMin": _real("float[n,m,k] x; y = ReduceMin<keepdims=0>(x, {0, -1})") + _bits("int64[n,m] x; y = ReduceMin(x, {-1})"),
    "ReduceProd": _moves("float[n,m,3] x; s = Shape(x)  y = ReduceProd<keepdims=0>(s, {0})"),
    "ReduceLogSum": _real("float[n,m,k] positive; y = ReduceLogSum<keepdims=0>(positive, {0, -1})"),
    "GlobalMaxPool": _real("float[n,2,m,k] x; y = GlobalMaxPool(x)"),
    "GlobalAveragePool": _real("float[n,2,m,k] x; y = GlobalAveragePool(x)"),
    "MatMul": _real("float[b,1,n,m] x; float[c,m,k] z; y = MatMul(x, z)", "float[m] x; float[b,m,k] z; y = MatMul(x, z)"),
    "Gemm": _real(
        "float[m,n] x; float[k,m] z; float[k] c; y = Gemm<transA=1, transB=1, alpha=0.5, beta=2.0>(x, z, c)",
        "float[n,m] x; float[m,k] z; y = Gemm(x, z)",
    ),
    "FusedMatMul": _real("float[b,m,n] x; float[b,k,m] z; y = com.microsoft.FusedMatMul<transA=1, transB=1, alpha=0.5>(x, z)"),
    "Einsum": _real('float[b,n,m] x; float[b,k,m] z; y = Einsum<equation="bnm,bkm->nbk">(x, z)'),
    "Conv": _real(
        "float[b,4,n,5] x; float[6,2,1,3] w; float[6] c; y = Conv<group=2, strides=[1,2], pads=[0,1,0,2]>(x, w, c)",
        "float[b,2,9] x; float[3,2,3] w; y = Conv<dilations=[2]>(x, w)",
    ),
    "Softmax": _real("float[n,m,k] x; y = Softmax<axis=1>(x)") + _real("float[n,m,k] x; y = Softmax<axis=1>(x)", opset=11),
    "LogSoftmax": _real("float[n,m,k] x; y = LogSoftmax<axis=-1>(x)"),
    "LayerNormalization": _real(
        "float[n,m,4] x; float[4] s; float[4] c; y = LayerNormalization<epsilon=0.01>(x, s, c)",
        "float[n,m,k] x; float[m,k] s; y = LayerNormalization<axis=1, epsilon=0.01>(x, s)",
    ),
    "RMSNormalization": _real(
        "float[n,m,4] x; float[4] s; y = RMSNormalization<epsilon=0.01>(x, s)",
        "float[n,m] x; float[m] s; y = RMSNormalization<epsilon=0.01>(x, s)", opset=23,
    ),
    "InstanceNormalization": _real("float[n,2,m,k] x; float[2] s; float[2] c; y = InstanceNormalization<epsilon=0.01>(x, s, c)"),
    "BatchNormalization": _real(
        "float[n,2,m] x; float[2] s; float[2] c; float[2] mu; float[2] positive; y = BatchNormalization(x, s, c, mu, positive)"
    ),
}  # fmt: skip
"""Operator to graphs."""
