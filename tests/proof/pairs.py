"""Pairs of graphs that compute the same, and pairs that do not, by what tells them apart."""

from __future__ import annotations

TRUE = {
    "transposes compose": (
        "float[n,m,k] x; t = Transpose<perm=[1,2,0]>(x)  y = Transpose<perm=[1,2,0]>(t)",
        "float[n,m,k] x; y = Transpose<perm=[2,0,1]>(x)",
    ),
    "an activation moves across a view": (
        "float[n,m,k] x; r = Reshape(x, {0, -1})  y = Relu(r)",
        "float[n,m,k] x; r = Relu(x)  y = Reshape(r, {0, -1})",
    ),
    "views compose at any sizes": (
        "float[n,m,k] x; r = Reshape(x, {0, -1})  s = Shape(x)  y = Reshape(r, s)",
        "float[n,m,k] x; y = Identity(x)",
    ),
    "slices compose": (
        "float[n,m] x; a = Slice(x, {2}, {9}, {1})  y = Slice(a, {1}, {100}, {1})",
        "float[n,m] x; y = Slice(x, {3}, {9}, {1})",
    ),
    "a sum is taken apart and joined": (
        "float[n,6] x; a, b = Split<axis=1>(x, {2, 4})  y = Concat<axis=1>(a, b)",
        "float[n,6] x; y = Identity(x)",
    ),
    "no sizes at all": (
        "float[n,m] x; y = Shape<start=100>(x)",
        "float[n,m] x; y = Shape<end=0>(x)",
    ),
    "clamps nest": (
        "float[n] x; a = Clip(x, 0.0, 5.0)  y = Clip(a, 1.0, 3.0)",
        "float[n] x; y = Clip(x, 1.0, 3.0)",
    ),
    "integers wrap around alike": (
        "int32[n] x; int32[n] z; a = Add(x, z)  y = Sub(a, z)",
        "int32[n] x; int32[n] z; y = Identity(x)",
    ),
    "Less and its operands turned round": (
        "float[n] x; float[n] z; y = Less(x, z)",
        "float[n] x; float[n] z; y = Greater(z, x)",
    ),
    "a factor comes out of a product of matrices": (
        "float[b,n,m] x; float[m,k] w; s = Mul(x, 0.5)  y = MatMul(s, w)",
        "float[b,n,m] x; float[m,k] w; p = MatMul(x, w)  y = Mul(p, 0.5)",
    ),
    "a product of matrices is transposed": (
        "float[n,m] x; float[m,k] w; p = MatMul(x, w)  y = Transpose(p)",
        "float[n,m] x; float[m,k] w; a = Transpose(x)  b = Transpose(w)  y = MatMul(b, a)",
    ),
    "a mean is a sum divided": (
        "float[n,m] x; y = ReduceMean(x, {1})",
        "float[n,m] x; s = ReduceSum(x, {1})  z = Shape<start=1>(x)  c = Cast<to=1>(z)  y = Div(s, c)",
    ),
    "GELU by its parts": (
        "float[n,m] x; d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
        "float[n,m] x; y = Gelu(x)",
    ),
    "the softmax of what is shifted": (
        "float[n,m] x; float[n,1] z; d = Sub(x, z)  y = Softmax<axis=1>(d)",
        "float[n,m] x; float[n,1] z; e = Exp(x)  f = Exp(z)  q = Div(e, f)  s = ReduceSum(q, {1})  y = Div(q, s)",
    ),
}  # fmt: skip

FALSE = {
    "sums of sums of integers, which are rounded in between": (
        "int64[n,m,k] x; a = ReduceSum(x, {2})  y = ReduceSum(a, {1})",
        "int64[n,m,k] x; y = ReduceSum(x, {1, 2})",
    ),
    "a wrong permutation": (
        "float[n,m,k] x; t = Transpose<perm=[1,2,0]>(x)  y = Transpose<perm=[1,2,0]>(t)",
        "float[n,m,k] x; y = Identity(x)",
    ),
    "an axis of size one is broadcast": (
        "float[n,m] x; float[n,m] z; y = Add(x, z)",
        "float[n,m] x; float[n,m] z; a = Slice(z, {0}, {1}, {0})  y = Add(x, a)",
    ),
    "a clamp of a slice": (
        "float[n,m] x; a = Slice(x, {2}, {9}, {1})  y = Slice(a, {1}, {100}, {1})",
        "float[n,m] x; y = Slice(x, {3}, {100}, {1})",
    ),
    "a negative place": (
        "float[n,3] x; y = Gather<axis=1>(x, {-1})",
        "float[n,3] x; y = Gather<axis=1>(x, {1})",
    ),
    "NaN in a comparison": (
        "float[n] x; float[n] z; l = Less(x, z)  y = Not(l)",
        "float[n] x; float[n] z; y = GreaterOrEqual(x, z)",
    ),
    "NaN in a maximum": (
        "float[n] x; g = Greater(x, 0.5)  y = Where(g, x, 0.5)",
        "float[n] x; y = Max(x, 0.5)",
    ),
    "a difference that wraps around": (
        "int32[n] x; int32[n] z; d = Sub(z, x)  r = Max(d, 0)  y = Add(x, r)",
        "int32[n] x; int32[n] z; y = Max(x, z)",
    ),
    "bits that are cut off": (
        "int32[n] x; a = Cast<to=3>(x)  y = Cast<to=6>(a)",
        "int32[n] x; y = Identity(x)",
    ),
    "ranges that do not meet": (
        "float[n] x; a = Clip(x, 0.0, 1.0)  y = Clip(a, 2.0, 3.0)",
        "float[n] x; y = Clip(x, 2.0, 1.0)",
    ),
    "a vector along what is summed": (
        "float[n,m] x; float[m] s; float[m,k] w; a = Mul(x, s)  y = MatMul(a, w)",
        "float[n,m] x; float[m] s; float[m,k] w; a = MatMul(x, w)  y = Mul(a, 0.5)",
    ),
    "a root of a square": (
        "float[n] x; s = Sqrt(x)  y = Mul(s, s)",
        "float[n] x; y = Identity(x)",
    ),
    "infinity times zero": (
        "float[n] x; float[n] z; p = Mul(z, 0.0)  y = Add(x, p)",
        "float[n] x; float[n] z; y = Identity(x)",
    ),
    "a sum that cancels": (
        "float[n] x; float[n] z; y = Identity(x)",
        "float[n] x; float[n] z; a = Add(x, z)  y = Sub(a, z)",
    ),
    "another constant": (
        "float[n,m] x; d = Div(x, 1.4142)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
        "float[n,m] x; y = Gelu(x)",
    ),
    "a mean over another axis": (
        "float[n,m] x; y = ReduceMean(x, {1})",
        "float[n,m] x; s = ReduceSum(x, {1})  z = Shape<start=0,end=1>(x)  c = Cast<to=1>(z)  y = Div(s, c)",
    ),
    "sizes beside -1 that may be zero": (
        "float[n,m] x; y = Identity(x)",
        "float[n,m] x; y = Reshape(x, {0, -1})",
    ),
    "an index outside": (
        "float[n,m] x; y = Slice(x, {0}, {1}, {1})",
        "float[n,m] x; y = Gather<axis=1>(x, {0})",
    ),
}  # fmt: skip
FALSE["a mask by a product"] = (
    "bool[n] c; float[n] x; y = Where(c, x, 0.0)",
    "bool[n] c; float[n] x; f = Cast<to=1>(c)  y = Mul(x, f)",
)
TRUE["an odd function"] = ("float[n] x; m = Neg(x)  e = Erf(m)  y = Neg(e)", "float[n] x; y = Erf(x)")
FALSE["a clamp from below, which cuts off infinity"] = (
    "float[n] x; y = Clip(x, 0.0)",
    "float[n] x; y = Relu(x)",
)
FALSE["a clamp without bounds"] = ("float16[n] x; y = Clip(x)", "float16[n] x; y = Identity(x)")
FALSE["a product of nothing by Einsum"] = (
    "float[b,n,m] x; float[b,k,m] z; t = Transpose<perm=[0,2,1]>(z)  y = MatMul(x, t)",
    'float[b,n,m] x; float[b,k,m] z; y = Einsum<equation="bnm,bkm->bnk">(x, z)',
)
FALSE["absorbed, but for NaN"] = (
    "float[n] x; float[n] z; l = Min(x, z)  y = Max(l, x)",
    "float[n] x; float[n] z; y = Identity(x)",
)
FALSE["a zero of another sign divides"] = (
    "float[n] x; a = Add(x, 0.0)  y = Reciprocal(a)",
    "float[n] x; y = Reciprocal(x)",
)
FALSE["a sum in half precision"] = (
    "float16[n,m] x; w = Cast<to=1>(x)  s = ReduceSum(w, {1})  y = Cast<to=10>(s)",
    "float16[n,m] x; y = ReduceSum(x, {1})",
)
FALSE["a factor in half precision"] = (
    "float16[n] x; float16[n] z; a = Cast<to=1>(x)  b = Cast<to=1>(z)  y = Mul(a, b)",
    "float16[n] x; float16[n] z; p = Mul(x, z)  y = Cast<to=1>(p)",
)
FALSE["each addend cast before the sum"] = (
    "float[n,3] x; s = ReduceSum(x, {1})  y = Cast<to=10>(s)",
    "float[n,3] x; c = Cast<to=10>(x)  y = ReduceSum(c, {1})",
)

SUBTLE = {
    "the sum of three floats in another order": (
        "float[n] a; float[n] b; float[n] c; y = Sum(a, b, c)",
        "float[n] a; float[n] b; float[n] c; y = Sum(c, b, a)",
    ),
    "the larger of two zeros divides": (
        "float[n] a; float[n] b; m = Max(a, b)  y = Reciprocal(m)",
        "float[n] a; float[n] b; m = Max(b, a)  y = Reciprocal(m)",
    ),
    "a magnitude that is zero divides": (
        "float[n] x; a = Neg(x)  m = Max(x, a)  y = Reciprocal(m)",
        "float[n] x; a = Abs(x)  y = Reciprocal(a)",
    ),
    "a zero of Relu and of Max divides": (
        "float[n] x; r = Relu(x)  y = Reciprocal(r)",
        "float[n] x; r = Max(x, 0.0)  y = Reciprocal(r)",
    ),
    "a zero that Where makes positive divides": (
        "bool[n] c; float[n] x; w = Where(c, x, x)  y = Reciprocal(w)",
        "bool[n] c; float[n] x; y = Reciprocal(x)",
    ),
    "a threshold that NaN is not above": (
        "float[n] x; c = Clip(x, 2.0, 0.0)  t = ThresholdedRelu<alpha=1.0>(x)  y = Sub(t, c)",
        "float[n] x; y = ThresholdedRelu<alpha=1.0>(x)",
    ),
    "NaN to the power of zero": (
        "float[n] x; float[n] z; p = Pow(x, z)  y = Sub(p, p)",
        "float[n] x; float[n] z; p = Add(x, z)  y = Sub(p, p)",
    ),
    "a zero of a Where beside another number": (
        "float[n] x; w = Where(bool 1, x, -1.0)  y = Reciprocal(w)",
        "float[n] x; w = Where(bool 1, x, x)  y = Reciprocal(w)",
    ),
    "an index of what is empty, of which nothing is read": (
        "float[n,m] x; s = ReduceSum<keepdims=0>(x, {0})  y = Slice(s, {0}, {0})",
        "float[n,m] x; s = Slice(x, {0}, {0}, {1})  y = Gather<axis=0>(s, int64 0)",
    ),
    "rows of nothing": (
        "float[n,m] x; float[m] s; float[m] b; m = ReduceMean(x, {1})  d = Sub(x, m)  q = Mul(d, d)"
        "  v = ReduceMean(q, {1})  a = Add(v, 0.00001)  r = Sqrt(a)  f = Div(d, r)  g = Mul(f, s)  y = Add(g, b)",
        "float[n,m] x; float[m] s; float[m] b; y = LayerNormalization<epsilon=0.00001>(x, s, b)",
    ),
    "rows of nothing, of which a body says nothing": (
        "float[n,m] x; float[m] s; q = Mul(x, x)  v = ReduceMean(q, {1})  a = Add(v, 0.00001)  r = Sqrt(a)  f = Div(x, r)"
        "  y = Mul(f, s)",
        "float[n,m] x; float[m] s; y = SimplifiedLayerNormalization<axis=-1, epsilon=0.00001>(x, s)",
    ),
    "a slope of zero that is NaN": (
        "float[n] x; y = Sub(x, x)",
        "float[n] x; s = Sum(x, x)  y = PRelu(0.0, s)",
    ),
    "NaN where a condition holds, or where it does not": (
        "bool[n] c; float[n] x; float[n] z; a = Sub(x, x)  b = Sub(z, z)  y = Where(c, a, b)",
        "bool[n] c; float[n] x; float[n] z; a = Sub(x, x)  b = Sub(z, z)  y = Where(c, b, a)",
    ),
    "a root that is zero divides": (
        "float[n] x; r = Pow(x, 0.5)  y = Reciprocal(r)",
        "float[n] x; r = Sqrt(x)  y = Reciprocal(r)",
    ),
    "a reduction that loses NaN": (
        "float[n,2] x; y = ReduceMax(x, {1})",
        "float[n,2] x; a, b = Split<axis=1>(x, {1, 1})  y = Max(a, b)",
    ),
    "a reduction along another axis in memory": (
        "float[n,m] x; y = ReduceMax<keepdims=0>(x, {1})",
        "float[n,m] x; t = Transpose(x)  y = ReduceMax<keepdims=0>(t, {0})",
    ),
    "a bound of Clip that is NaN": (
        "float[n] x; float z; y = Clip(x, z)",
        "float[n] x; float z; y = Max(x, z)",
    ),
    "an edge of nothing": (
        "float[n] x; y = Identity(x)",
        'float[n] x; p = Pad<mode="edge">(x, {1, 0})  y = Slice(p, {1}, {1000000000000}, {0})',
    ),
    "a node that may not run, of which the shape is read": (
        "float[n,m] x; float[k,p] w; y = Shape<start=0,end=1>(x)",
        "float[n,m] x; float[k,p] w; a = MatMul(x, w)  y = Shape<start=0,end=1>(a)",
    ),
    "a division by zero, taken off again": (
        "int32[n] x; int32[n] z; y = Sub(x, x)",
        "int32[n] x; int32[n] z; d = Div(x, z)  y = Sub(d, d)",
    ),
    "a bias of Conv that is too long": (
        "float[n,3,h] x; float[2,3,1] w; float[5] s; t = Slice(s, {0}, {2})  y = Conv(x, w, t)",
        "float[n,3,h] x; float[2,3,1] w; float[5] s; y = Conv(x, w, s)",
    ),
    "a scale of a normalization that is too long": (
        "float[n,3,h] x; float[5] s; float[3] b; t = Slice(s, {0}, {3})  y = InstanceNormalization(x, t, b)",
        "float[n,3,h] x; float[5] s; float[3] b; y = InstanceNormalization(x, s, b)",
    ),
    "an Einsum that broadcasts": (
        'float[n,m] x; float[k,p] w; y = Einsum<equation="ij,jk->ik">(x, w)',
        "float[n,m] x; float[k,p] w; y = MatMul(x, w)",
    ),
    "a Reshape to a size that is -1": (
        "float[k] x; float[n] z; s = Shape(z)  t = Sub(s, {1})  r = Reshape(x, t)  y = Shape(r)",
        "float[k] x; float[n] z; s = Shape(z)  y = Sub(s, {1})",
    ),
    "a multiple of a size that wraps around": (
        "float[n] x; s = Shape(x)  y = Identity(s)",
        "float[n] x; s = Shape(x)  p = Mul(s, {1099511627776})  y = Div(p, {1099511627776})",
    ),
    "a term that cancels inside of a function": (
        "float[n] x; float[n] z; y = Exp(x)",
        "float[n] x; float[n] z; a = Add(x, z)  b = Sub(a, z)  y = Exp(b)",
    ),
    "a term that cancels inside of a function, and is read": (
        "float[n] x; float[n] z; e = Exp(x)  y = Add(e, z)",
        "float[n] x; float[n] z; a = Add(x, z)  b = Sub(a, z)  e = Exp(b)  y = Add(e, z)",
    ),
    "a variance that may be negative": (
        "float[n,m] x; m = ReduceMean(x, {1})  d = Sub(x, m)  s = Mul(d, d)  v = ReduceMean(s, {1})  y = Sqrt(v)",
        "float[n,m] x; m = ReduceMean(x, {1})  s = Mul(x, x)  q = ReduceMean(s, {1})  p = Mul(m, m)  v = Sub(q, p)"
        "  y = Sqrt(v)",
    ),
    "a square that is multiplied out": (
        "float[n] x; float[n] z; d = Sub(x, z)  y = Mul(d, d)",
        "float[n] x; float[n] z; a = Mul(x, x)  b = Mul(z, z)  c = Mul(x, z)  e = Mul(c, 2.0)  f = Sub(a, e)"
        "  y = Add(f, b)",
    ),
    "a tanh that cancels near zero": (
        "float[n] x; y = Tanh(x)",
        "float[n] x; d = Mul(x, -2.0)  e = Exp(d)  a = Sub(1.0, e)  b = Add(e, 1.0)  y = Div(a, b)",
    ),
    "0/0 where another condition holds": (
        "bool[n] c; bool[n] d; float[n] x; q = Div(x, x)  y = Where(c, q, 1.0)",
        "bool[n] c; bool[n] d; float[n] x; q = Div(x, x)  y = Where(d, q, 1.0)",
    ),
    "0/0 where one condition or the other holds": (
        "bool[n] c; bool[n] d; float[n] x; q = Div(x, x)  a = Where(c, q, 1.0)  b = Where(d, 1.0, 1.0)  y = Mul(a, b)",
        "bool[n] c; bool[n] d; float[n] x; q = Div(x, x)  a = Where(c, 1.0, 1.0)  b = Where(d, q, 1.0)  y = Mul(a, b)",
    ),
    "a divisor inside of a sum": (
        "bool[m] c; bool[m] d; float[n,m] x; float[n,m] z; q = Div(x, x)  a = Where(c, q, 1.0)  y = ReduceSum(a, {1})",
        "bool[m] c; bool[m] d; float[n,m] x; float[n,m] z; q = Div(x, x)  a = Where(d, q, 1.0)  y = ReduceSum(a, {1})",
    ),
    "a root inside of a sum": (
        "float[n,m] x; r = Sqrt(x)  q = Mul(r, r)  y = ReduceSum(q, {1})",
        "float[n,m] x; y = ReduceSum(x, {1})",
    ),
    "NaN that a quotient loses": (
        "float[n] x; e = Exp(x)  y = Div(e, e)",
        "float[n] x; s = Shape(x)  y = Expand(1.0, s)",
    ),
    "a divisor of a sum of nothing": (
        "float[n,m] x; float[n,1] z; q = Div(x, z)  y = ReduceSum(q, {1})",
        "float[n,m] x; float[n,1] z; s = ReduceSum(x, {1})  y = Div(s, z)",
    ),
}  # fmt: skip
"""Pairs that are equal but for NaN, a zero, sizes of zero or one, what wraps around, or what rounding makes of it."""
