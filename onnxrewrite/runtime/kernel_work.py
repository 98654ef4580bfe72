"""The minimum work of a kernel: floating-point operations and bytes moved, from its operator and shapes alone.

An operation is one of arithmetic, of whatever kind: a multiply-add is two, a root or an exponential one, and a composed
operator has those of its definition in the ONNX operator specification.  Bytes are those that have to pass between
memory and processor once, if everything that is used again stays in the cache: the inputs that are read and the
outputs (the "compulsory traffic" of Williams, Waterman and Patterson, *Roofline*, CACM 52(4), 2009).  Attributes are
not needed: shapes imply groups, heads and transpositions.  This module knows neither models nor sessions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onnxrewrite.ir.operators import operators

_BITS: Mapping[str, int] = {
    "double": 64,
    "int64": 64,
    "uint64": 64,
    "float": 32,
    "int32": 32,
    "uint32": 32,
    "float16": 16,
    "bfloat16": 16,
    "int16": 16,
    "uint16": 16,
    "int4": 4,
    "uint4": 4,
    "float4e2m1": 4,
    "int2": 2,
    "uint2": 2,
    "complex64": 64,
    "complex128": 128,
}
"""Bits of an element by ONNX Runtime's name of the dtype; all others have eight."""


@dataclass(frozen=True)
class Tensor:
    """A dtype, by ONNX Runtime's name such as ``float``, and a shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes that the elements take."""
        return -(-self.size * _BITS.get(self.dtype, 8) // 8)


@dataclass(frozen=True)
class Work:
    """Operations, and bytes read and written; ``flops`` is None where the operator's are not known."""

    flops: int | None
    bytes: int

    def __add__(self, other: Work) -> Work:
        flops = None if self.flops is None or other.flops is None else self.flops + other.flops
        return Work(flops, self.bytes + other.bytes)


FREE = Work(0, 0)

Tensors: TypeAlias = Sequence[Tensor]


def work(op_type: str, inputs: Tensors, outputs: Tensors) -> Work:
    """The work of one call of an operator, of the standard's or ONNX Runtime's.

    Args:
        op_type: Its name; ``Attention`` of either domain is told apart by its inputs.
        inputs: Those that are there, in order.
        outputs: Those that are there, in order.
    """
    if op_type in VIEWS or not outputs:
        return FREE
    return Work(flops(op_type, inputs, outputs), _moved(op_type, inputs, outputs))


def flops(op_type: str, inputs: Tensors, outputs: Tensors) -> int | None:
    """Operations of one call; None for an operator that is not known, or whose inputs are not what is expected."""
    if op_type in MOVEMENTS or op_type in VIEWS:
        return 0
    if op_type in ELEMENTWISE:
        return ELEMENTWISE[op_type] * outputs[0].size
    if op_type in REDUCTIONS:
        return REDUCTIONS[op_type] * inputs[0].size if inputs else None
    formula = _FORMULAE.get(op_type)
    try:
        return formula(inputs, outputs) if formula is not None else None
    except (IndexError, ValueError, ZeroDivisionError):  # fewer inputs or dimensions than the operator has
        return None


def _moved(op_type: str, inputs: Tensors, outputs: Tensors) -> int:
    """Bytes read and written.  Of a table, only what is taken from it; likewise of what a Slice leaves out."""
    written = sum(t.nbytes for t in outputs)
    if op_type in _TAKES_PART and inputs:
        return written + min(written, inputs[0].nbytes) + sum(t.nbytes for t in inputs[1:])
    return written + sum(t.nbytes for t in inputs)


# ------------------------------------------------------------------------------------------------- operators

VIEWS = frozenset(operators(marks="free"))
"""Their result is their input's memory under another shape, or does not depend on its elements."""

MOVEMENTS = frozenset(
    """Transpose Concat Split Slice Gather GatherElements GatherND Expand Tile Pad Cast CastLike ScatterND
    ScatterElements DepthToSpace SpaceToDepth ConstantOfShape Range Where Compress Trilu EyeLike OneHot NonZero
    ReverseSequence ReorderInput ReorderOutput MemcpyFromHost MemcpyToHost Upsample""".split()
)
"""They move elements and compute none."""

_TAKES_PART = frozenset(operators("select repeat gather"))


def _table(text: str) -> dict[str, int]:
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


ELEMENTWISE: Mapping[str, int] = _table(
    """Add 1 Sub 1 Mul 1 Div 1 Pow 1 Mod 1 Neg 1 Abs 1 Sign 1 Reciprocal 1 Sqrt 1 Exp 1 Log 1 Erf 1 Floor 1 Ceil 1
    Round 1 Sin 1 Cos 1 Tan 1 Asin 1 Acos 1 Atan 1 Sinh 1 Cosh 1 Tanh 1 Asinh 1 Acosh 1 Atanh 1 Equal 1 Less 1
    LessOrEqual 1 Greater 1 GreaterOrEqual 1 And 1 Or 1 Xor 1 Not 1 IsNaN 1 IsInf 1 BitwiseAnd 1 BitwiseOr 1
    BitwiseXor 1 BitwiseNot 1 BitShift 1 Max 1 Min 1 Sum 1 Mean 1 Relu 1 LeakyRelu 2 PRelu 2 ThresholdedRelu 1
    Clip 2 Elu 3 Celu 4 Selu 4 Sigmoid 3 HardSigmoid 4 HardSwish 5 Softplus 3 Softsign 3 Mish 5 Swish 5 QuickGelu 5
    Gelu 5 BiasGelu 6 FastGelu 8 QuantizeLinear 4 DequantizeLinear 2 QLinearAdd 5 QLinearMul 5 QLinearSigmoid 7"""
)
"""Operations for each element of the output, by the operator's definition: ``Sigmoid`` is a negation left out, an
exponential, a sum and a quotient."""

REDUCTIONS: Mapping[str, int] = _table(
    """ReduceSum 1 ReduceMean 1 ReduceMax 1 ReduceMin 1 ReduceProd 1 ReduceL1 2 ReduceL2 2 ReduceSumSquare 2
    ReduceLogSum 1 ReduceLogSumExp 2 ArgMax 1 ArgMin 1 CumSum 1 GlobalAveragePool 1 GlobalMaxPool 1
    QLinearGlobalAveragePool 1 Softmax 5 LogSoftmax 5 Hardmax 1 LayerNormalization 8 SkipLayerNormalization 9
    EmbedLayerNormalization 10 RMSNormalization 5 SimplifiedLayerNormalization 5 SkipSimplifiedLayerNormalization 6
    BatchNormalization 4 InstanceNormalization 8 GroupNormalization 8 LpNormalization 4 MeanVarianceNormalization 7
    BiasSoftmax 6 RotaryEmbedding 3 DynamicQuantizeLinear 6"""
)
"""Operations for each element of the first input.  Softmax: maximum, difference, exponential, sum, quotient.
LayerNormalization: mean, difference, square, mean, sum with epsilon and root (as one), quotient, scale, shift."""


def _matmul(inputs: Tensors, outputs: Tensors) -> int:
    """2·M·N·K for each matrix of the batch; K from the number of elements, whatever is transposed.  Golub and Van Loan,
    *Matrix Computations*, 4th ed., §1.1."""
    a, result = inputs[0], outputs[0]
    vector = next((t for t in inputs[:2] if len(t.shape) == 1), None)
    if vector is not None:
        return 2 * vector.size * result.size
    rows, columns = a.shape[-2:]
    return 2 * (rows * columns // result.shape[-2]) * result.size


def _gemm(inputs: Tensors, outputs: Tensors) -> int:
    """A product, and the sum with C."""
    return _matmul(inputs, outputs) + outputs[0].size * (len(inputs) > 2)


def _conv(inputs: Tensors, outputs: Tensors) -> int:
    """2·(C/group)·kh·kw for each element of the output, and the bias; the weights are the first later input of the same
    rank, past scales and zero points.  Dumoulin and Visin, *A guide to convolution
    arithmetic for deep learning*, 2016.  Weights are [M, C/group, kh, kw]."""
    weights = next((t for t in inputs[1:] if len(t.shape) == len(inputs[0].shape)), None)
    if weights is None:
        raise ValueError("no weights")
    bias = outputs[0].size if any(len(t.shape) == 1 for t in inputs[2:]) else 0
    return 2 * math.prod(weights.shape[1:]) * outputs[0].size + bias


def _conv_transpose(inputs: Tensors, outputs: Tensors) -> int:
    """2·(M/group)·kh·kw for each element of the input, and the bias.  Weights are [C, M/group, kh, kw]."""
    return 2 * math.prod(inputs[1].shape[1:]) * inputs[0].size + outputs[0].size * (len(inputs) > 2)


def _attention(inputs: Tensors, outputs: Tensors) -> int:
    """Two products, 2·S·T·(D + Dv) for each of the batch: Vaswani et al., *Attention is all you need*, 2017.

    S and T are the numbers of queries and keys, D and Dv the sizes of queries and values over all heads; the softmax is
    small beside it.  ONNX Runtime's own ``Attention``, whose second input are weights [D, 3·D], projects first.
    """
    query = inputs[0]
    if len(inputs) > 1 and len(inputs[1].shape) == 2:
        batch, length, _ = query.shape
        projected = batch * length * inputs[1].shape[1]
        return 2 * query.shape[-1] * projected + 4 * length * outputs[0].size
    if len(query.shape) == 5:  # packed as [batch, length, heads, 3, size]
        return 4 * query.shape[1] * outputs[0].size
    keys = _present_length(inputs, outputs)
    return 2 * keys * query.size + 2 * keys * outputs[0].size


def _present_length(inputs: Tensors, outputs: Tensors) -> int:
    """The number of keys: of those carried on to the next step, if there are any, else of those given."""
    carried = [t.shape[2] for t in outputs[1:3] if len(t.shape) == 4]
    if carried:
        return max(carried)
    if len(inputs) < 2:
        raise ValueError("no keys")
    key = inputs[1]
    return key.shape[-2] if len(key.shape) != 5 else key.shape[1]


def _recurrent(inputs: Tensors, outputs: Tensors) -> int:
    """2·T·B·(I + H)·G·H in each direction: X is [T, B, I], W [directions, G·H, I], R [directions, G·H, H]."""
    steps, batch, _ = inputs[0].shape
    return 2 * steps * batch * (math.prod(inputs[1].shape) + math.prod(inputs[2].shape))


def _quantized_product(inputs: Tensors, outputs: Tensors) -> int:
    """A product with weights that lie in blocks [N, K / block, ...]: K is that of A."""
    return 2 * inputs[0].shape[-1] * outputs[0].size


_FORMULAE: Mapping[str, Callable[[Tensors, Tensors], int]] = {
    **dict.fromkeys("MatMul FusedMatMul MatMulInteger QLinearMatMul TransposeMatMul".split(), _matmul),
    **dict.fromkeys("DynamicQuantizeMatMul MatMulIntegerToFloat".split(), _matmul),
    **dict.fromkeys("Gemm FusedGemm QGemm".split(), _gemm),
    **dict.fromkeys("Conv FusedConv ConvInteger QLinearConv NhwcFusedConv".split(), _conv),
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys("Attention MultiHeadAttention GroupQueryAttention QAttention".split(), _attention),
    **dict.fromkeys(operators("recurrent"), _recurrent),
    "MatMulNBits": _quantized_product,
}
