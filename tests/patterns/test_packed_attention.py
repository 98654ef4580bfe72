"""What ``torch.nn.MultiheadAttention`` becomes, which packs queries, keys and values and puts the sequence first."""

from __future__ import annotations

from collections import Counter

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.ir import text

BY_DYNAMO = """
float[b,s,16] x;
val_0 = Shape <end = 1, start = 0> (x)
sym_size_int_2 = Squeeze(val_0)
val_1 = Shape <end = 2, start = 1> (x)
transpose = Transpose <perm = [1, 0, 2]> (x)
val_4 = MatMul(transpose, float[16,48] ~)
linear = Add(val_4, float[48] ~)
val_10 = Concat <axis = 0> (val_1, val_0, int64[1] {3}, int64[1] {16})
view = Reshape <allowzero = 1> (linear, val_10)
unsqueeze = Unsqueeze(view, {0})
transpose_1 = Transpose <perm = [3, 1, 2, 0, 4]> (unsqueeze)
squeeze = Squeeze(transpose_1, {-2})
select = Gather <axis = 0> (squeeze, 0)
select_1 = Gather <axis = 0> (squeeze, 1)
select_2 = Gather <axis = 0> (squeeze, 2)
mul_39 = Mul(sym_size_int_2, int64 2)
val_17 = Reshape <allowzero = 0> (mul_39, {-1})
val_19 = Concat <axis = 0> (val_1, val_17, int64[1] {8})
view_1 = Reshape <allowzero = 1> (select, val_19)
transpose_2 = Transpose <perm = [1, 0, 2]> (view_1)
view_2 = Reshape <allowzero = 1> (select_1, val_19)
transpose_3 = Transpose <perm = [1, 0, 2]> (view_2)
view_3 = Reshape <allowzero = 1> (select_2, val_19)
transpose_4 = Transpose <perm = [1, 0, 2]> (view_3)
val_35 = Concat <axis = 0> (val_0, int64[1] {2}, val_1, int64[1] {8})
view_4 = Reshape <allowzero = 1> (transpose_2, val_35)
view_5 = Reshape <allowzero = 1> (transpose_3, val_35)
view_6 = Reshape <allowzero = 1> (transpose_4, val_35)
val_57 = Shape <start = 0> (view_5)
val_60 = Slice(val_57, {-1}, {9223372036854775807})
val_61 = Slice(val_57, {-2}, {-1})
val_63 = Slice(val_57, {-9223372036854775808}, {-2})
val_65 = Concat <axis = 0> (int64[1] {-1}, val_61, val_60)
val_66 = Reshape <allowzero = 0> (view_5, val_65)
val_67 = Transpose <perm = [0, 2, 1]> (val_66)
val_68 = Concat <axis = 0> (val_63, val_60, val_61)
val_69 = Reshape <allowzero = 0> (val_67, val_68)
val_71 = Mul(view_4, {0.59460354})
val_74 = Mul(val_69, {0.59460354})
val_75 = MatMul(val_71, val_74)
val_76 = Softmax <axis = -1> (val_75)
attended = MatMul(val_76, view_6)
permute = Transpose <perm = [2, 0, 1, 3]> (attended)
view_7 = Reshape <allowzero = 1> (permute, {-1, 16})
linear_1 = Gemm <alpha = 1.0, beta = 1.0, transA = 0, transB = 1> (view_7, float[16,16] ~)
val_85 = Concat <axis = 0> (val_1, val_0, int64[1] {16})
view_8 = Reshape <allowzero = 1> (linear_1, val_85)
y = Transpose <perm = [1, 0, 2]> (view_8)
"""
"""``MultiheadAttention(16, 2, batch_first=True)`` of one input, exported with dynamic sizes."""


def test_packed_attention_is_one_operator() -> None:
    model = text.parse(BY_DYNAMO, opset=20)
    result = rw.apply(io.to_proto(model), lower="fused")
    assert [(n.domain, n.op_type) for n in result.model.graph] == [("com.microsoft", "Attention"), ("", "MatMul")]
    assert result.checks.model is not None
    assert result.checks.model.ok
    assert result.checks.undone == {}


def _layer(number: int, source: str) -> str:
    """A layer that normalizes first, of rows [S, B, 16] in two heads."""
    heads = "  ".join(
        f"{n}{number} = MatMul(n{number}, float[16,16] ~)  {n}h{number} = Reshape({n}{number}, {{0, 0, 2, 8}})"
        f"  {n}t{number} = Transpose<perm=[1,2,0,3]>({n}h{number})"
        for n in "qkv"
    )
    return (
        f"n{number} = LayerNormalization({source}, float[16] ~, float[16] ~)  {heads}"
        f"  t{number} = Attention(qt{number}, kt{number}, vt{number})"
        f"  r{number} = Transpose<perm=[2,0,1,3]>(t{number})  m{number} = Reshape(r{number}, {{0, 0, 16}})"
        f"  o{number} = MatMul(m{number}, float[16,16] ~)  a{number} = Add({source}, o{number})"
    )


def test_a_network_with_the_sequence_first_has_it_second_inside() -> None:
    layers = [_layer(number, f"a{number - 1}" if number else "x") for number in range(6)]
    model = text.parse("\n".join(["float[s,b,16] x;", *layers, "y = Relu(a5)"]), opset=23)
    result = rw.apply(io.to_proto(model), lower="fused")
    counts = Counter(n.op_type for n in result.model.graph)
    assert counts["Transpose"] == 2  # at the input, and at the output
    assert counts["Reshape"] == 0
    assert counts["Attention"] == 6
    assert result.checks.model is not None
    assert result.checks.model.ok
    assert result.checks.undone == {}
