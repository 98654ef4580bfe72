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
