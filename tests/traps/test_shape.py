"""TRAPS.md, "Shape": what is right for the shapes of the example only."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

import onnxrewrite

from .helpers import beside, gelu, proto, run, trap

# -- dynamic and degenerate sizes --------------------------------------------------------------------------------

BATCHES = [{"n": size} for size in (0, 1, 2, 3)]
CONV = "c = Conv(x, float[3,2,3,3] ~)  y = BatchNormalization(c, {1.5, 0.5, 2.0}, {0.25, -1.0, 0.0}, {0.5, 0.0, 1.0}, {1.0, 2.0, 3.0})"
DYNAMIC = {
    "gelu": f"float[n,4] x; {gelu()}",
    "swish": "float[n,4] x; s = Sigmoid(x)  y = Mul(x, s)",
    "conv": f"float[n,2,5,5] x; {CONV}",
    "conv of dynamic size": f"float[n,2,h,w] x; {CONV}",
    "gemm": "float[n,4] x; g = Gemm(x, float[4,3] ~)  y = Add(g, {1.0, 2.0, 3.0})",
    "matmul": "float[n,4] x; g = MatMul(x, float[4,3] ~)  a = Add(g, {1.0, 2.0, 3.0})  y = Mul(a, {4.0, 5.0, 6.0})",
    "attention": "float[n,2,3,4] q; float[n,2,4,5] k; float[n,2,5,4] v; s = MatMul(q, k)  a = Mul(s, 0.5)  p = Softmax(a)"
    "  y = MatMul(p, v)",
    "attention with heads split": "float[n,s,8] q; float[n,s,8] k; float[n,s,8] v; r = Reshape(q, {0, -1, 2, 4})"
    "  a = Transpose<perm=[0,2,1,3]>(r)  t = Reshape(k, {0, -1, 2, 4})  b = Transpose<perm=[0,2,3,1]>(t)"
    "  u = Reshape(v, {0, -1, 2, 4})  c = Transpose<perm=[0,2,1,3]>(u)  e = MatMul(a, b)  f = Mul(e, 0.5)  p = Softmax(f)"
    "  z = MatMul(p, c)  w = Transpose<perm=[0,2,1,3]>(z)  y = Reshape(w, {0, -1, 8})",
    "layer norm": "float[n,4] x; m = ReduceMean<axes=[-1]>(x)  d = Sub(x, m)  q = Mul(d, d)  v = ReduceMean<axes=[-1]>(q)"
    "  e = Add(v, 1e-5)  s = Sqrt(e)  y = Div(d, s)",
    "reshapes with the batch": "float[n,4] x; r = Reshape(x, {-1, 2, 2})  y = Reshape(r, {-1, 4})",
    "reshape to shape": "float[n,4] x; s = Shape(x)  r = Neg(x)  y = Reshape(r, s)",
    "reshape by pieces": "float[n,c,4] x; s = Shape(x)  a = Gather(s, {0})  b = Concat<axis=0>(a, {-1})  y = Reshape(x, b)",
    "flatten": "float[n,c,2] x; f = Flatten(x)  y = Flatten(f)",
    "expand": "float[n,1] x; s = Shape(x)  g = Gather(s, {0})  c = Concat<axis=0>(g, {3})  e = Expand(x, c)  y = Relu(e)",
    "transposes": "float[n,c,4] x; t = Transpose<perm=[1,0,2]>(x)  r = Relu(t)  y = Transpose<perm=[1,0,2]>(r)",
    "transpose of ones": "float[n,1,4] x; t = Transpose<perm=[0,2,1]>(x)  r = Relu(t)  y = Transpose<perm=[1,0,2]>(r)",
    "concat": "float[n,c] x; a = Concat<axis=0>(x, x)  y = Concat<axis=0>(a, x)",
    "softmax": "float[n,c] x; y = Softmax<axis=0>(x)",
    "equal dimensions by chance": "float[n,c] x; float[m,c] z; y = Add(x, z)",
    "reduced": "float[n,c] x; a = ReduceSum<keepdims=0>(x, {0})  b = Unsqueeze(a, {0})  y = Squeeze(b, {0})",
    "slices": "float[n,5] x; a = Slice(x, {0}, {9223372036854775807}, {0})  y = Slice(a, {1}, {4}, {1})",
    "gather all": "float[n,4] x; s = Shape(x)  g = Gather(s, 0)  r = Range(0, g, 1)  y = Gather(x, r)",
    "where": "float[n,4] x; g = Greater(x, 0.0)  a = Where(g, x, 0.0)  y = Mul(a, 1.0)",
    "tile": "float[n,4] x; t = Tile(x, {1, 1})  y = Tile(t, {2, 1})",
    "pads": "float[n,4] x; p = Pad(x, {0, 1, 0, 1})  y = Pad(p, {0, 0, 1, 0})",
}


@pytest.mark.parametrize("graph", DYNAMIC.values(), ids=DYNAMIC.keys())
def test_dynamic_batch(graph):
    """Dynamic batch of 0, 1, 2, 3: same results, same output shapes."""
    if "float[m,c]" in graph:
        sizes = [{"n": a, "m": b, "c": 2} for a, b in ((2, 2), (1, 3), (3, 1), (0, 1), (1, 0))]
    else:
        sizes = [{"n": b["n"], "c": c, "h": 4 + c, "w": 6 - c, "s": c} for b in BATCHES for c in (1, 3)]
        sizes += [{"n": 2, "c": 0, "h": 5, "w": 5, "s": 2}]
        if "Conv" in graph or "attention" in graph or "MatMul(a, b)" in graph:
            sizes = [s for s in sizes if s["c"] > 0]
    if "-1" in graph:  # ONNX Runtime itself refuses -1 beside a size of zero
        sizes = [s for s in sizes if s["n"] > 0 and s["c"] > 0]
    trap(graph, dims=sizes, tolerance=16)


ZERO = {
    "input": "float[0,4] x; r = Relu(x)  y = Mul(r, 1.0)",
    "inner dimension of a product": "float[3,0] x; y = MatMul(x, float[0,2] {})",
    "gemm with bias": "float[3,0] x; g = Gemm(x, float[0,2] {}, {1.0, 2.0})  y = Mul(g, {3.0, 4.0})",
    "concat with nothing": "float[0,4] x; float[2,4] z; y = Concat<axis=0>(x, z)",
    "concat with an empty constant": "float[2,4] x; c = Concat<axis=0>(x, float[0,4] {})  y = Relu(c)",
    "folded": "float[2,4] x; s = Slice(float[2,4] ~, {0}, {0}, {0})  y = Concat<axis=0>(x, s)",
    "sum of nothing": "float[0,4] x; r = ReduceSum<keepdims=0>(x, {0})  y = Add(r, {1.0, 2.0, 3.0, 4.0})",
    "mul by an empty constant": "float[1,4] x; y = Mul(x, float[0,4] {})",
    "add of an empty constant": "float[1,1] x; y = Add(x, float[0,1] {})",
    "expand to nothing": "float[1,4] x; e = Expand(x, {0, 4})  y = Relu(e)",
    "expand of one to nothing": "float[1] x; e = Expand(x, {0})  y = Add(e, 1.0)",
    "sliced to nothing": "float[3,4] x; s = Slice(x, {2}, {1}, {0})  y = Relu(s)",
    "slice of a slice of nothing": "float[3,4] x; s = Slice(x, {2}, {1}, {0})  y = Slice(s, {0}, {5}, {0})",
    "gathered by nothing": "float[3,4] x; g = Gather(x, int64[0] {})  y = Relu(g)",
    "transposed": "float[0,3,4] x; t = Transpose<perm=[2,0,1]>(x)  y = Transpose<perm=[1,2,0]>(t)",
    "shape of nothing": "float[0,3] x; s = Shape(x)  p = ReduceProd<keepdims=0>(s)  y = Cast<to=1>(p)",
    "gelu": f"float[0,3] x; {gelu()}",
    "conv of an empty batch": f"float[0,2,5,5] x; {CONV}",
    "tiled zero times": "float[2,4] x; t = Tile(x, {0, 1})  y = Relu(t)",
}


@pytest.mark.parametrize("graph", ZERO.values(), ids=ZERO.keys())
def test_zero_size(graph):
    """Zero-size dimensions: same results, same output shapes."""
    trap(graph)


SCALARS = {
    "gelu": gelu(),
    "swish": "s = Sigmoid(x)  y = Mul(x, s)",
    "neutral": "m = Mul(x, 1.0)  y = Neg(m)",
    "neutral, by a vector": "m = Mul(x, float[1] {1})  y = Neg(m)",
    "neutral, by a matrix": "m = Add(x, float[1,1] {-0.0})  y = Neg(m)",
    "reshaped": "r = Reshape(x, {1})  y = Squeeze(r)",
    "reshaped to nothing": "r = Reshape(x, {1, 1})  y = Reshape(r, int64[0] {})",
    "unsqueezed": "r = Unsqueeze(x, {0})  y = Reshape(r, {-1})",
    "expanded": "e = Expand(x, {2, 3})  y = Relu(e)",
    "expanded to itself": "e = Expand(x, int64[0] {})  y = Relu(e)",
    "transposed": "t = Transpose(x)  y = Relu(t)",
    "transposed, no perm": "t = Transpose<perm=[]>(x)  y = Relu(t)",
    "flattened": "f = Flatten<axis=0>(x)  y = Relu(f)",
    "shape": "s = Shape(x)  y = ConstantOfShape(s)",
    "clips": "a = Clip(x, 0.0, 6.0)  y = Clip(a, 1.0, 3.0)",
    "min of max of rank one": "a = Max(x, float[1] {0})  y = Min(a, 6.0)",
    "reduced": "y = ReduceSum(x)",
    "concatenated": "u = Unsqueeze(x, {0})  y = Concat<axis=0>(u, u)",
}


@pytest.mark.parametrize("graph", SCALARS.values(), ids=SCALARS.keys())
def test_scalars(graph):
    """Scalars: same results, same output shapes."""
    model = proto(f"float x; {graph}")
    model.graph.input[0].type.tensor_type.shape.SetInParent()
    trap(model, feeds=[{"x": np.array(v, np.float32)} for v in (-1.5, 0.0, 2.5)], tolerance=4)


UNKNOWN_RANK = {
    "gelu": gelu(),
    "gelu with constants of rank one": gelu()
    .replace("1.41421356", "float[1] {1.41421356}")
    .replace("0.5)", "float[1] {0.5})"),
    "mul by one of rank one": "m = Mul(x, float[1] {1})  y = Neg(m)",
    "mul by ones": "m = Mul(x, {1.0, 1.0, 1.0})  y = Neg(m)",
    "add minus zero of rank two": "m = Add(x, float[1,1] {-0.0})  y = Neg(m)",
    "mul by one of rank zero": "m = Mul(x, 1.0)  y = Neg(m)",
    "transposes without perm": "t = Transpose(x)  y = Transpose(t)",
    "one transpose without perm": "t = Transpose(x)  y = Relu(t)",
    "flatten": "f = Flatten(x)  y = Flatten(f)",
    "reshapes": "r = Reshape(x, {-1})  y = Reshape(r, {-1})",
    "reshapes with zero": "r = Reshape(x, {0, -1})  y = Reshape(r, {-1})",
    "to its own shape": "s = Shape(x)  r = Reshape(x, s)  y = Neg(r)",
    "squeezed": "s = Squeeze(x)  y = Neg(s)",
    "unsqueezed and squeezed": "u = Unsqueeze(x, {0})  y = Squeeze(u, {0})",
    "squeezed all": "u = Unsqueeze(x, {0})  y = Squeeze(u)",
    "softmax": "y = Softmax(x)",
    "size": "s = Shape(x)  z = Size(s)  y = Cast<to=1>(z)",
    "min and max": "a = Max(x, 0.0)  y = Min(a, {6.0})",
    "clips": "a = Clip(x, 0.0, 3.0)  y = Clip(a, 1.0, 6.0)",
    "swish": "s = Sigmoid(x)  y = Mul(s, x)",
    "layer norm": "m = ReduceMean<axes=[-1]>(x)  d = Sub(x, m)  q = Mul(d, d)  v = ReduceMean<axes=[-1]>(q)"
    "  e = Add(v, 1e-5)  s = Sqrt(e)  n = Div(d, s)  g = Mul(n, float[3] {1, 2, 3})  y = Add(g, float[3] {1, 2, 3})",
    "matmul": "g = MatMul(x, float[3,3] ~)  y = Add(g, {1.0, 2.0, 3.0})",
    "matmul, scale of rank 3": "g = MatMul(x, float[3,3] ~)  y = Mul(g, float[2,1,3] {1, 2, 3, 4, 5, 6})",
    "slice": "s = Slice(x, {0}, {9223372036854775807}, {-1})  y = Neg(s)",
    "concat": "c = Concat<axis=-1>(x, x)  y = Concat<axis=-1>(c, x)",
    "where": "w = Where(true, x, 0.0)  y = Neg(w)",
    "sum of one": "s = Sum(x)  y = Neg(s)",
}


@pytest.mark.parametrize("graph", UNKNOWN_RANK.values(), ids=UNKNOWN_RANK.keys())
def test_rank_unknown(graph):
    """Rank unknown: same results, same output shapes, whatever the rank is."""
    generator = np.random.default_rng(0)
    shapes = [(2, 3), (1, 3), (2, 2, 3), (3, 1, 2, 3)]
    if "axes" not in graph and "MatMul" not in graph and "Softmax" not in graph and "axis" not in graph:
        shapes += [(3,)]
        if not any(each in graph for each in ("Slice", "0, -1", "Flatten")):
            shapes += [()]
    trap(graph, feeds=[{"x": np.asarray(generator.standard_normal(s), np.float32)} for s in shapes], tolerance=8)


# -- broadcasting ------------------------------------------------------------------------------------------------

BROADCASTS = {
    "add zeros that repeat": (
        "float[1,3] x; a = Add(x, float[4,3] {-0.0, -0.0, -0.0, -0.0, -0.0, -0.0, -0.0, -0.0, -0.0, -0.0, -0.0, -0.0})  y = Neg(a)",
        "Add",
    ),
    "sub zeros that repeat": ("float[1,3] x; a = Sub(x, float[2,1] {0, 0})  y = Neg(a)", "Sub"),
    "mul ones that repeat": ("float[1,3] x; a = Mul(x, float[2,1] {1, 1})  y = Neg(a)", "Mul"),
    "mul ones, rank raised": ("float[2,3] x; a = Mul(x, float[1,1,1] {1})  y = Neg(a)", "Mul"),
    "mul ones, rank raised and repeated": (
        "float[2,3] x; a = Mul(x, float[2,1,3] {1, 1, 1, 1, 1, 1})  y = Neg(a)",
        "Mul",
    ),
    "mul ones over a dynamic size": ("float[n,3] x; a = Mul(x, float[2,3] {1, 1, 1, 1, 1, 1})  y = Neg(a)", "Mul"),
    "div ones over a dynamic size": ("float[n,c] x; a = Div(x, {1.0, 1.0, 1.0})  y = Neg(a)", "Div"),
    "pow ones": ("float[n,1] x; a = Pow(x, {1.0, 1.0})  y = Neg(a)", "Pow"),
    "ones over ones": (
        "float[n,1] x; a = Mul({{1, 1}}, x)  y = Neg(a)".replace("{{1, 1}}", "float[1,2] {1, 1}"),
        "Mul",
    ),
    "and true": ("bool[n,1] x; a = And(x, bool[2] {true, true})  y = Not(a)", "And"),
    "or false": ("bool[1] x; a = Or(x, bool[3,1] {false, false, false})  y = Not(a)", "Or"),
    "integers": ("int64[1,3] x; a = Add(x, int64[2,1] {0, 0})  y = Neg(a)", "Add"),
    "expand": ("float[1,3] x; a = Expand(x, {2, 3})  y = Neg(a)", "Expand"),
    "expand over a dynamic size": ("float[n,3] x; a = Expand(x, {1, 3})  y = Neg(a)", None),
    "expand over a dynamic size, 2": ("float[n,3] x; a = Expand(x, {2, 1})  y = Neg(a)", "Expand"),
    "expand that raises the rank": ("float[2,3] x; a = Expand(x, {1, 2, 3})  y = Neg(a)", "Expand"),
    "expand to an input's shape": ("float[n,3] x; float[m,3] z; s = Shape(z)  a = Expand(x, s)  y = Neg(a)", "Expand"),
    "tile": ("float[n,3] x; a = Tile(x, {2, 1})  y = Neg(a)", "Tile"),
    "max with minus infinity": ("float[1,3] x; a = Max(x, float[2,1] {-3e38, -3e38})  y = Neg(a)", "Max"),
    "sum of two": ("float[n,1] x; a = Sum(x, {-0.0, -0.0})  y = Neg(a)", "Add"),
}


@pytest.mark.parametrize(("graph", "op_type"), BROADCASTS.values(), ids=BROADCASTS.keys())
def test_neutral_that_broadcasts(graph, op_type):
    """Add of zeros or Mul by ones that broadcasts the result; Expand: keep unless the shape is provably unchanged."""
    sizes = [{"n": n, "c": 3, "m": m} for n, m in ((1, 1), (2, 1), (1, 2), (2, 2))]
    if op_type is None:
        sizes.append({"n": 3, "c": 3, "m": 1})
    trap(graph, dims=sizes, exact=True)
    assert op_type is None or trap(graph, dims=sizes).has(**{op_type: 1})


WHERES = {
    "true that repeats": "float[1,3] x; float[1,3] z; w = Where(bool[2,1] {true, true}, x, z)  y = Neg(w)",
    "the other repeats": "float[1,3] x; float[2,3] z; w = Where(true, x, z)  y = Neg(w)",
    "the other raises the rank": "float[2,3] x; w = Where(true, x, float[1,1,1] {0})  y = Neg(w)",
    "the other has a dynamic size": "float[n,3] x; float[m,3] z; w = Where(true, x, z)  y = Neg(w)",
    "false": "float[n,3] x; float[n,1] z; w = Where(false, x, z)  y = Neg(w)",
    "both the same": "bool[2,3] g; float[1,3] x; w = Where(g, x, x)  y = Neg(w)",
    "both the same, dynamic": "bool[n,3] g; float[m,3] x; w = Where(g, x, x)  y = Neg(w)",
    "of Not": "bool[2,3] g; float[1,3] x; float[2,1] z; n = Not(g)  w = Where(n, x, z)  y = Neg(w)",
    "in a Where": "bool[2,3] g; float[1,3] x; float[2,1] z; a = Where(g, x, z)  w = Where(g, a, 1.0)  y = Neg(w)",
    "shape only": "float[n,3] x; z = ConstantOfShape<value=float[1] {1}>({2, 1})  g = Greater(z, 0.0)  w = Where(g, x, z)  y = Neg(w)",
}


@pytest.mark.parametrize("graph", WHERES.values(), ids=WHERES.keys())
def test_where_that_broadcasts(graph):
    """Where: keep unless the shape is provably unchanged."""
    trap(graph, dims=[{"n": n, "m": m} for n, m in ((1, 1), (2, 1), (1, 2), (2, 2))], exact=True, signs=False)


# -- Reshape -----------------------------------------------------------------------------------------------------

RESHAPES = {
    "0 then -1": "float[n,2,6] x; r = Reshape(x, {0, 3, 4})  y = Reshape(r, {0, -1})",
    "0 in the second, of what the first made": "float[2,6] x; r = Reshape(x, {3, 4})  y = Reshape(r, {0, 2, 2})",
    "0 at another place": "float[n,2,6] x; r = Reshape(x, {0, 6, 2})  y = Reshape(r, {0, 0, 1, -1})",
    "0 in both": "float[n,m,6] x; r = Reshape(x, {0, 0, 2, 3})  y = Reshape(r, {0, 0, -1})",
    "-1 twice": "float[n,2,6] x; r = Reshape(x, {-1, 4})  y = Reshape(r, {-1, 6})",
    "-1 at the same place": "float[n,4] x; r = Reshape(x, {-1, 2, 2})  y = Reshape(r, {-1, 4})",
    "-1 of a multiple": "float[n,4] x; r = Reshape(x, {-1, 2})  y = Reshape(r, {-1, 4})",
    "-1 and 0": "float[n,m,4] x; r = Reshape(x, {0, -1})  y = Reshape(r, {0, -1, 2})",
    "0 behind -1": "float[n,m,4] x; r = Reshape(x, {-1, 0, 4})  y = Reshape(r, {-1, 0, 2, 2})",
    "three": "float[n,2,6] x; r = Reshape(x, {0, 12})  s = Reshape(r, {-1, 2, 3})  y = Reshape(s, {0, -1})",
    "back to the start": "float[2,6] x; r = Reshape(x, {3, 4})  y = Reshape(r, {2, 6})",
    "back to the start, dynamic": "float[n,m] x; s = Shape(x)  r = Reshape(x, {-1})  y = Reshape(r, s)",
    "to a scalar and back": "float[1,1] x; r = Reshape(x, int64[0] {})  y = Reshape(r, {1, 1})",
    "by a shape that is computed": "float[n,m] x; s = Shape(x)  g = Gather(s, {1, 0})  r = Reshape(x, {-1})  y = Reshape(r, g)",
    "and flatten": "float[n,2,6] x; r = Reshape(x, {0, 3, 4})  y = Flatten<axis=2>(r)",
    "flatten and reshape": "float[n,2,6] x; f = Flatten<axis=2>(x)  y = Reshape(f, {-1, 12})",
    "flatten, negative axis": "float[n,2,6] x; f = Flatten<axis=-1>(x)  y = Flatten<axis=0>(f)",
    "flatten to columns": "float[n,2,6] x; f = Flatten<axis=0>(x)  y = Flatten<axis=2>(f)",
    "flatten past the end": "float[n,2] x; f = Flatten<axis=2>(x)  y = Relu(f)",
    "and unsqueeze": "float[n,6] x; u = Unsqueeze(x, {1, 3})  r = Reshape(u, {0, 6})  y = Squeeze(r, {1})".replace(
        "  y = Squeeze(r, {1})", "  y = Relu(r)"
    ),
    "unsqueeze at the end": "float[n,6] x; u = Unsqueeze(x, {-1})  s = Unsqueeze(u, {0})  y = Squeeze(s, {0, 3})",
    "squeeze and unsqueeze elsewhere": "float[n,1,6] x; s = Squeeze(x, {1})  y = Unsqueeze(s, {2})",
    "squeeze and unsqueeze": "float[n,1,6] x; s = Squeeze(x, {1})  y = Unsqueeze(s, {1})",
    "squeeze without axes": "float[1,n,6] x; s = Squeeze(x)  y = Relu(s)",
    "with a use in between": "float[n,2,6] x; r = Reshape(x, {0, 12})  a = Relu(r)  y = Reshape(a, {0, 2, 6})",
    "with a bias in between": "float[n,2,6] x; r = Reshape(x, {0, 12})  a = Add(r, float[12] ~)  y = Reshape(a, {0, 2, 6})",
    "and transpose": "float[n,2,6] x; t = Transpose<perm=[1,0,2]>(x)  r = Reshape(t, {2, -1})  y = Reshape(r, {2, -1, 6})",
    "of a constant": "float[n,6] x; r = Reshape(float[2,3] ~, {6})  y = Add(x, r)",
    "of a shape": "float[n,6] x; s = Shape(x)  r = Reshape(s, {2, 1})  y = Reshape(r, {-1})",
}
ALLOW_ZERO = {
    "allowzero, static": "float[0,3] x; r = Reshape<allowzero=1>(x, {3, 0})  y = Reshape<allowzero=1>(r, {0, 5})",
    "allowzero behind 0": "float[0,3] x; r = Reshape(x, {0, 3, 1})  y = Reshape<allowzero=1>(r, {0, 7})",
    "0 behind allowzero": "float[0,3] x; r = Reshape<allowzero=1>(x, {0, 3})  y = Reshape(r, {0, 0})",
    "allowzero without zeros": "float[n,4] x; r = Reshape<allowzero=1>(x, {-1, 2, 2})  y = Reshape<allowzero=1>(r, {-1, 4})",
    "allowzero on a shape that is computed": "float[n,4] x; s = Shape(x)  r = Reshape(x, {-1})  y = Reshape<allowzero=1>(r, s)",
    "flatten of empty": "float[0,3,4] x; f = Flatten(x)  y = Relu(f)",
    "flatten of empty, in the middle": "float[2,0,4] x; f = Flatten<axis=2>(x)  y = Flatten<axis=1>(f)",
    "flatten of empty, at the end": "float[2,3,0] x; f = Flatten<axis=2>(x)  y = Flatten<axis=0>(f)",
    "reshapes of empty": "float[0,4] x; r = Reshape(x, {0, 2, 2})  y = Reshape(r, {0, 4})",
    "empty to its own shape": "float[0,4] x; s = Shape(x)  y = Reshape<allowzero=1>(x, s)",
}


@pytest.mark.parametrize("graph", [*RESHAPES.values(), *ALLOW_ZERO.values()], ids=[*RESHAPES, *ALLOW_ZERO])
def test_reshapes(graph):
    """Reshape∘Reshape with 0 or `allowzero=1`; −1 twice; Flatten of empty: right or kept."""
    sizes = [{"n": n, "m": m} for n, m in ((1, 1), (2, 3), (4, 2))]
    if "-1" not in graph:
        sizes.append({"n": 0, "m": 2})
    trap(graph, dims=sizes, exact=True)


@pytest.mark.parametrize(
    ("graph", "batch"),
    [
        ("float[n,4] x; r = Reshape(x, {0, 2, 2})  y = Reshape(r, {0, 4})", 0),
        ("float[n,4] x; f = Flatten(x)  y = Relu(f)", 0),
        ("float[n,2,2] x; f = Flatten(x)  y = Flatten(f)", 0),
        ("float[n,4] x; s = Shape(x)  r = Reshape(x, s)  y = Relu(r)", 0),
        ("float[n,2,2] x; f = Flatten(x)  r = Reshape(f, {0, 4})  y = Relu(r)", 0),
        ("float[n,2,2] x; u = Unsqueeze(x, {1})  r = Reshape(u, {0, 4})  y = Relu(r)", 0),
        ("float[n,1,4] x; t = Transpose<perm=[1,0,2]>(x)  r = Reshape(t, {1, 0, 4})  y = Relu(t)", 0),
    ],
)
def test_reshapes_of_an_empty_batch(graph, batch):
    """Reshape∘Reshape and Flatten of an empty batch: a -1 that was not there would fail."""
    if "{1, 0, 4}" in graph:
        graph = graph.replace("r = Reshape(t, {1, 0, 4})  ", "")
    trap(graph, dims=[{"n": batch}, {"n": 1}, {"n": 3}], exact=True)


# -- Slice -------------------------------------------------------------------------------------------------------

MAX = 9223372036854775807
SLICES = {
    "of a slice": "s = Slice(x, {1}, {6}, {1})  y = Slice(s, {1}, {3}, {1})",
    "negative ends": "s = Slice(x, {1}, {-1}, {1})  y = Slice(s, {-3}, {-1}, {1})",
    "negative steps": "s = Slice(x, {-1}, {-8}, {1}, {-1})  y = Slice(s, {1}, {5}, {1})",
    "negative steps twice": "s = Slice(x, {-1}, {-8}, {1}, {-1})  y = Slice(s, {-1}, {-8}, {1}, {-1})",
    "reversed to the very start": f"s = Slice(x, {{{MAX}}}, {{-{MAX}}}, {{1}}, {{-1}})  y = Slice(s, {{0}}, {{2}}, {{1}})",
    "steps": "s = Slice(x, {0}, {7}, {1}, {2})  y = Slice(s, {1}, {4}, {1}, {2})",
    "step and offset": "s = Slice(x, {1}, {7}, {1}, {3})  y = Slice(s, {1}, {2}, {1})",
    "negative of a step": "s = Slice(x, {0}, {7}, {1}, {3})  y = Slice(s, {-1}, {-4}, {1}, {-1})",
    "clamped ends": "s = Slice(x, {2}, {100}, {1})  y = Slice(s, {1}, {100}, {1})",
    "clamped below": "s = Slice(x, {-100}, {5}, {1})  y = Slice(s, {-100}, {3}, {1})",
    "second longer than the first": "s = Slice(x, {2}, {4}, {1})  y = Slice(s, {0}, {5}, {1})",
    "second outside the first": "s = Slice(x, {2}, {4}, {1})  y = Slice(s, {3}, {5}, {1})",
    "second from the end of the first": "s = Slice(x, {0}, {4}, {1})  y = Slice(s, {-2}, {100}, {1})",
    "empty": "s = Slice(x, {4}, {2}, {1})  y = Slice(s, {0}, {1}, {1})",
    "other axes": "s = Slice(x, {1}, {6}, {1})  y = Slice(s, {0}, {1}, {0})",
    "other axes, the other way": "s = Slice(x, {0}, {1}, {0})  y = Slice(s, {1}, {6}, {-1})",
    "one axis of two": "s = Slice(x, {0, 1}, {2, 6}, {0, 1})  y = Slice(s, {1}, {3}, {1})",
    "axes in another order": "s = Slice(x, {1, 0}, {6, 2}, {1, 0})  y = Slice(s, {0, 1}, {1, 3}, {0, 1})",
    "negative axes": "s = Slice(x, {1}, {6}, {-1})  y = Slice(s, {1}, {3}, {1})",
    "no axes": "s = Slice(x, {0, 1}, {2, 6})  y = Slice(s, {0, 1}, {1, 3})",
    "fewer starts than axes": "s = Slice(x, {0}, {2})  y = Slice(s, {1}, {3}, {1})",
    "over the dynamic axis": "s = Slice(x, {1}, {100}, {0})  y = Slice(s, {1}, {2}, {0})",
    "over the dynamic axis, from the end": "s = Slice(x, {-2}, {100}, {0})  y = Slice(s, {-1}, {100}, {0})",
    "over the dynamic axis, to the end": "s = Slice(x, {0}, {-1}, {0})  y = Slice(s, {0}, {-1}, {0})",
    "everything": f"s = Slice(x, {{0}}, {{{MAX}}}, {{1}})  y = Slice(s, {{0}}, {{7}}, {{1}})",
    "reversed everything": f"y = Slice(x, {{-1}}, {{-{MAX}}}, {{1}}, {{-1}})",
    "all but the last, dynamic": "s = Slice(x, {0}, {-1}, {0})  y = Neg(s)",
    "from an input": "int64[1] e; s = Slice(x, {1}, e, {1})  y = Slice(s, {0}, {2}, {1})",
    "to the shape": "h = Shape(x)  e = Gather(h, {1})  s = Slice(x, {0}, e, {1})  y = Neg(s)",
    "three": "r = Slice(x, {1}, {7}, {1})  s = Slice(r, {1}, {6}, {1})  y = Slice(s, {1}, {5}, {1})",
    "int32 starts": "s = Slice(x, int32[1] {1}, int32[1] {6}, int32[1] {1})  y = Slice(s, {1}, {3}, {1})",
}


@pytest.mark.parametrize("graph", SLICES.values(), ids=SLICES.keys())
def test_slices(graph):
    """Slice∘Slice with negative steps, clamped ends, other axes: right or kept."""
    inputs = {"e": np.array([6], np.int64)} if "int64[1] e" in graph else {}
    trap(f"float[n,7] x; {graph}", dims=[{"n": n} for n in (1, 2, 3, 0)], inputs=inputs, exact=True)


PIECES = {
    "halves": "a = Slice(x, {0}, {4}, {1})  b = Slice(x, {4}, {8}, {1})  y = Mul(a, b)",
    "thirds that do not fit": "a = Slice(x, {0}, {3}, {1})  b = Slice(x, {3}, {6}, {1})  c = Slice(x, {6}, {8}, {1})"
    "  d = Slice(a, {0}, {2}, {1})  y = Mul(d, c)  z = Neg(b)",
    "unequal": "a = Slice(x, {0}, {3}, {1})  b = Slice(x, {3}, {8}, {1})  y = Neg(a)  z = Exp(b)",
    "a gap": "a = Slice(x, {0}, {3}, {1})  b = Slice(x, {5}, {8}, {1})  y = Mul(a, b)",
    "overlapping": "a = Slice(x, {0}, {5}, {1})  b = Slice(x, {3}, {8}, {1})  y = Mul(a, b)",
    "in another order": "b = Slice(x, {4}, {8}, {1})  a = Slice(x, {0}, {4}, {1})  y = Mul(a, b)",
    "a consumer in between": "a = Slice(x, {0}, {4}, {1})  e = Exp(a)  f = Neg(e)  b = Slice(x, {4}, {8}, {1})  y = Mul(f, b)",
    "the second depends on the first": "a = Slice(x, {0}, {4}, {1})  s = Shape(a)  g = Gather(s, {1})"
    "  b = Slice(x, g, {8}, {1})  y = Mul(a, b)",
    "to the end": f"a = Slice(x, {{0}}, {{4}}, {{1}})  b = Slice(x, {{4}}, {{{MAX}}}, {{1}})  y = Mul(a, b)",
    "from the end": "a = Slice(x, {0}, {-4}, {1})  b = Slice(x, {-4}, {8}, {1})  y = Mul(a, b)",
    "steps": "a = Slice(x, {0}, {8}, {1}, {2})  b = Slice(x, {1}, {8}, {1}, {2})  y = Mul(a, b)",
    "other axes": "a = Slice(x, {0}, {4}, {1})  b = Slice(x, {0}, {1}, {0})  y = Neg(a)  z = Neg(b)",
    "of the dynamic axis": "a = Slice(x, {0}, {1}, {0})  b = Slice(x, {1}, {100}, {0})  y = Neg(a)  z = Neg(b)",
    "one is an output": "a = Slice(x, {0}, {4}, {1})  y = Slice(x, {4}, {8}, {1})  z = Neg(a)",
    "both twice": "a = Slice(x, {0}, {4}, {1})  b = Slice(x, {4}, {8}, {1})  c = Slice(x, {0}, {4}, {1})  y = Sum(a, b, c)",
    "split again": "a, b = Split<axis=1>(x, {4, 4})  c, d = Split<axis=1>(a, {2, 2})  e = Mul(c, d)  y = Neg(b)  z = Exp(e)",
    "split and concat": "a, b = Split<axis=1>(x, {3, 5})  y = Concat<axis=1>(a, b)",
    "split and concat, other order": "a, b = Split<axis=1>(x, {4, 4})  y = Concat<axis=1>(b, a)",
    "split and concat, other axis": "a, b = Split<axis=1>(x, {4, 4})  y = Concat<axis=0>(a, b)",
    "split and concat, one twice": "a, b = Split<axis=1>(x, {4, 4})  y = Concat<axis=1>(a, a, b)",
    "split and concat, one changed": "a, b = Split<axis=1>(x, {4, 4})  n = Neg(b)  y = Concat<axis=1>(a, n)",
    "concat and split": "c = Concat<axis=1>(x, x)  y, z = Split<axis=1>(c, {8, 8})",
    "concat and split elsewhere": "c = Concat<axis=1>(x, x)  y, z = Split<axis=1>(c, {6, 10})",
    "concat and slice": "n = Neg(x)  c = Concat<axis=1>(x, n)  y = Slice(c, {8}, {16}, {1})",
    "concat and slice across": "n = Neg(x)  c = Concat<axis=1>(x, n)  y = Slice(c, {6}, {10}, {1})",
    "concat and gather": "n = Neg(x)  c = Concat<axis=0>(x, n)  y = Gather<axis=1>(c, 3)",
    "gathers": "a = Gather<axis=1>(x, 0)  b = Gather<axis=1>(x, 1)  y = Mul(a, b)",
    "gathers and concat": "a = Gather<axis=1>(x, {0})  b = Gather<axis=1>(x, {1})  y = Concat<axis=1>(a, b)",
}


@pytest.mark.parametrize("graph", PIECES.values(), ids=PIECES.keys())
def test_slices_and_splits(graph):
    """Slice pairs into Split with odd sizes, or with a consumer in between: right or kept, order valid."""
    trap(f"float[n,8] x; {graph}", dims=[{"n": n} for n in (1, 2, 3)], exact=True)


@pytest.mark.parametrize("opset", [11, 12, 13, 17, 18])
@pytest.mark.parametrize(
    "graph",
    [
        "a = Slice(x, {0}, {4}, {1})  b = Slice(x, {4}, {7}, {1})  y = Neg(a)  z = Neg(b)",
        "a = Slice(x, {0}, {3}, {1})  b = Slice(x, {3}, {6}, {1})  c = Slice(x, {6}, {7}, {1})  m = Mul(a, b)  y = Add(m, c)",
    ],
)
def test_split_in_every_opset(graph, opset):
    """Slice pairs into Split with odd sizes: in the form that the opset has, or not at all."""
    trap(f"float[n,7] x; {graph}", opset=opset, exact=True)


# -- other semantics before opset 13 and 14 ----------------------------------------------------------------------

OLD_SOFTMAX = [
    f"float[n,2,3] x; y = {op_type}{axis}(x)"
    for op_type in ("Softmax", "LogSoftmax", "Hardmax")
    for axis in ("", "<axis=0>", "<axis=1>", "<axis=2>")
]


@pytest.mark.parametrize("opset", [7, 11, 12, 13])
@pytest.mark.parametrize("graph", OLD_SOFTMAX)
def test_old_softmax(graph, opset):
    """Softmax/LogSoftmax/Hardmax before opset 13: that opset's semantics, in folding too."""
    folded = graph.replace("float[n,2,3] x; y =", "s =").replace("(x)", "(float[2,2,3] ~)") + "  y = Add(x, s)"
    around = graph.replace("y =", "s =").replace("(x)", "(t)").replace("; s", "; t = Transpose<perm=[1,0,2]>(x)  s")
    around += "  y = Transpose<perm=[1,0,2]>(s)"
    for text in (graph, f"float[2,2,3] x; {folded}", around):
        trap(text, opset=opset, dims=[{"n": 2}, {"n": 1}], exact="Add" not in text)


OLD_NORM = [
    "float[n,2,3] x; y = Softmax(x)  z = Softmax<axis=-1>(x)",
    "float[n,2,3,4] q; float[n,2,4,3] k; float[n,2,3,4] v; s = MatMul(q, k)  a = Mul(s, 0.5)  p = Softmax<axis=3>(a)  y = MatMul(p, v)",
    "float[n,2,3,4] q; float[n,2,4,3] k; float[n,2,3,4] v; s = MatMul(q, k)  a = Mul(s, 0.5)  p = Softmax(a)  y = MatMul(p, v)",
    "float[n,2,3,4] q; float[n,2,4,3] k; float[n,2,3,4] v; s = MatMul(q, k)  p = Softmax<axis=2>(s)  y = MatMul(p, v)",
    "float[2,3,4] q; float[2,4,3] k; float[2,3,4] v; s = MatMul(q, k)  p = Softmax<axis=1>(s)  y = MatMul(p, v)",
    "float[3,4] q; float[4,3] k; float[3,4] v; s = MatMul(q, k)  p = Softmax(s)  y = MatMul(p, v)",
    "float[n,2,3] x; s = Softmax(x)  y = Log(s)",
]


@pytest.mark.parametrize("opset", [11, 12, 13])
@pytest.mark.parametrize("graph", OLD_NORM)
def test_old_softmax_in_patterns(graph, opset):
    """Softmax before opset 13 inside attention: another function, unless it runs along the last axis."""
    trap(graph, opset=opset, tolerance=8)


OLD_BATCHNORM = {
    "opset 7": (7, "BatchNormalization(c, {s})"),
    "opset 7, spatial": (7, "BatchNormalization<spatial=1>(c, {s})"),
    "opset 8": (8, "BatchNormalization(c, {s})"),
    "opset 9": (9, "BatchNormalization(c, {s})"),
    "opset 13": (13, "BatchNormalization(c, {s})"),
    "opset 14": (14, "BatchNormalization(c, {s})"),
    "opset 15": (15, "BatchNormalization(c, {s})"),
}


@pytest.mark.parametrize(("opset", "norm"), OLD_BATCHNORM.values(), ids=OLD_BATCHNORM.keys())
def test_old_batchnorm(opset, norm):
    """BatchNormalization before opset 14: that opset's semantics."""
    statistics = "{1.5, 0.5, 2.0}, {0.25, -1.0, 0.0}, {0.5, 0.0, 1.0}, {1.0, 2.0, 3.0}"
    trap(f"float[n,2,5,5] x; c = Conv(x, float[3,2,3,3] ~)  y = {norm.format(s=statistics)}", opset=opset, tolerance=16)
    trap(f"float[n,3,5,5] c; y = {norm.format(s=statistics)}  z = Relu(y)", opset=opset, tolerance=16)


@pytest.mark.parametrize(
    ("opset", "norm"),
    [
        (7, "BatchNormalization<spatial=0>(c, float[3,3,3] ~, float[3,3,3] ~, float[3,3,3] ~, float[3,3,3] ~)"),
        (8, "BatchNormalization<spatial=0>(c, float[3,3,3] ~, float[3,3,3] ~, float[3,3,3] ~, float[3,3,3] ~)"),
    ],
)
def test_batchnorm_by_position(opset, norm):
    """BatchNormalization with spatial=0, before opset 9: statistics for each position, so kept."""
    model = proto(f"float[n,2,5,5] x; c = Conv(x, float[3,2,3,3] ~)  y = {norm}", opset)
    for level in ("full", "off"):
        result = onnxrewrite.apply(model, check=level)
        assert [n.op_type for n in result.model.graph] == ["Conv", "BatchNormalization"]


@pytest.mark.parametrize(
    ("opset", "outputs"), [(6, "y"), (6, "y, m, v, sm, sv"), (9, "y, m, v, sm, sv"), (14, "y, m, v")]
)
def test_training_batchnorm(opset, outputs):
    """BatchNormalization in the training mode of each opset, by outputs, is_test or training_mode: kept."""
    mode = "<training_mode=1>" if opset >= 14 else "<is_test=0>" if opset < 7 else ""
    text = (
        f"float[n,2,5,5] x; c = Conv(x, float[3,2,3,3] ~)  {outputs} = BatchNormalization{mode}"
        "(c, {1.5, 0.5, 2.0}, {0.25, -1.0, 0.0}, {0.5, 0.0, 1.0}, {1.0, 2.0, 3.0})"
    )
    model = proto(text, opset)
    for level in ("full", "off"):
        result = onnxrewrite.apply(model, check=level)
        assert [n.op_type for n in result.model.graph] == ["Conv", "BatchNormalization"]


OLD_BROADCAST = [
    (6, "float[2,3,4] x; a = Add<broadcast=1, axis=1>(x, {1.0, 2.0, 3.0})  y = Relu(a)"),
    (6, "float[2,3,4] x; a = Mul<broadcast=1, axis=1>(x, {1.0, 1.0, 1.0})  y = Relu(a)"),
    (6, "float[2,3,4] x; a = Mul<broadcast=1>(x, {1.0})  y = Relu(a)"),
    (6, "float[2,3] x; g = Gemm<broadcast=1>(x, float[3,4] ~, {1.0, 2.0, 3.0, 4.0})  y = Mul<broadcast=1>(g, {2.0})"),
    (6, "float[2,2,5,5] x; c = Conv(x, float[3,2,3,3] ~)  y = Add<broadcast=1, axis=1>(c, {1.0, 2.0, 3.0})"),
    (6, "float[2,3,4] x; d = Div<broadcast=1>(x, {1.41421356})  e = Erf(d)  y = Neg(e)"),
]


@pytest.mark.parametrize(("opset", "graph"), OLD_BROADCAST[:5])
def test_old_broadcasting(opset, graph):
    """Add/Mul/Gemm before opset 7 broadcast by an attribute along another axis: right or kept; ONNX Runtime has no
    kernels, so the result is compared with onnx's own account of it."""
    model = proto(graph, opset)
    for level in ("full", "off"):
        result = onnxrewrite.apply(model, check=level)
        assert not result.checks.undone
        for node in result.to_proto().graph.node:
            if node.op_type in ("Add", "Mul", "Gemm"):
                assert any(a.name == "broadcast" and a.i == 1 for a in node.attribute), onnx.printer.to_text(
                    result.to_proto()
                )


# -- Transpose ---------------------------------------------------------------------------------------------------

TRANSPOSES = {
    "without perm": "float[n,3] x; y = Transpose(x)",
    "twice without perm": "float[n,3] x; t = Transpose(x)  y = Transpose(t)",
    "twice without perm, rank 3": "float[n,3,2] x; t = Transpose(x)  y = Transpose(t)",
    "without, then with perm": "float[n,3,2] x; t = Transpose(x)  y = Transpose<perm=[2,1,0]>(t)",
    "with, then without perm": "float[n,3,2] x; t = Transpose<perm=[2,1,0]>(x)  y = Transpose(t)",
    "without perm, other order": "float[n,3,2] x; t = Transpose(x)  y = Transpose<perm=[1,2,0]>(t)",
    "identity perm": "float[n,3,2] x; y = Transpose<perm=[0,1,2]>(x)",
    "cyclic, twice": "float[n,3,2] x; t = Transpose<perm=[1,2,0]>(x)  y = Transpose<perm=[1,2,0]>(t)",
    "cyclic, and back": "float[n,3,2] x; t = Transpose<perm=[1,2,0]>(x)  y = Transpose<perm=[2,0,1]>(t)",
    "cyclic, three times": "float[n,3,2] x; t = Transpose<perm=[1,2,0]>(x)  u = Transpose<perm=[1,2,0]>(t)"
    "  y = Transpose<perm=[1,2,0]>(u)",
    "through an operator": "float[n,3,2] x; t = Transpose<perm=[1,2,0]>(x)  r = Relu(t)  y = Transpose<perm=[2,0,1]>(r)",
    "to two outputs": "float[n,3] x; t = Transpose(x)  y = Transpose(t)  z = Transpose(t)",
    "from one input to all outputs": "float[n,3] x; t = Transpose(x)  y = Transpose(t)  z = Neg(t)",
    "rank 1": "float[n] x; t = Transpose(x)  y = Transpose<perm=[0]>(t)",
    "negative zero size": "float[0,3] x; t = Transpose(x)  y = Transpose(t)",
    "into reshape": "float[n,3,1] x; t = Transpose<perm=[0,2,1]>(x)  y = Reshape(t, {0, 3})",
    "of an initializer": "float[n,3] x; t = Transpose(float[3,3] ~)  u = Transpose(t)  y = MatMul(x, u)",
    "reduction in between": "float[n,3,2] x; t = Transpose<perm=[0,2,1]>(x)  r = ReduceMean<axes=[1], keepdims=0>(t)  y = Relu(r)",
    "softmax in between": "float[n,3,2] x; t = Transpose<perm=[0,2,1]>(x)  s = Softmax<axis=1>(t)  y = Transpose<perm=[0,2,1]>(s)",
    "concat in between": "float[n,3,2] x; float[n,3,2] z; t = Transpose<perm=[0,2,1]>(x)  u = Transpose<perm=[0,2,1]>(z)"
    "  c = Concat<axis=1>(t, u)  y = Transpose<perm=[0,2,1]>(c)",
    "bias in between": "float[n,3,2] x; t = Transpose<perm=[0,2,1]>(x)  a = Add(t, {1.0, 2.0, 3.0})  y = Transpose<perm=[0,2,1]>(a)",
    "bias of full rank": "float[n,3,2] x; t = Transpose<perm=[0,2,1]>(x)  a = Add(t, float[1,2,1] {1, 2})  y = Transpose<perm=[0,2,1]>(a)",
    "matmul": "float[4,3] x; float[4,2] z; t = Transpose(x)  y = MatMul(t, z)",
    "matmul, rank 3": "float[n,4,3] x; float[n,4,2] z; t = Transpose<perm=[0,2,1]>(x)  y = MatMul(t, z)",
    "gemm, transposed already": "float[4,3] x; t = Transpose(x)  y = Gemm<transA=1>(t, float[3,2] ~)",
    "argmax in between": "float[n,3,2] x; t = Transpose<perm=[0,2,1]>(x)  a = ArgMax<axis=1, keepdims=0>(t)  y = Cast<to=1>(a)",
    "pad in between": "float[n,3,2] x; t = Transpose<perm=[0,2,1]>(x)  p = Pad(t, {0, 1, 0, 0, 0, 2})  y = Transpose<perm=[0,2,1]>(p)",
    "slice in between": "float[n,3,2] x; t = Transpose<perm=[0,2,1]>(x)  s = Slice(t, {1}, {3}, {2})  y = Transpose<perm=[0,2,1]>(s)",
    "resize in between": "float[n,3,4,4] x; t = Transpose<perm=[0,2,3,1]>(x)  u = Transpose<perm=[0,3,1,2]>(t)"
    '  y = Resize<mode="nearest">(u, , {1.0, 1.0, 2.0, 2.0})',
}


@pytest.mark.parametrize("graph", TRANSPOSES.values(), ids=TRANSPOSES.keys())
def test_transposes(graph):
    """Transpose without `perm`; Transpose pairs that compose to identity from graph input to graph output: right."""
    trap(graph, dims=[{"n": 2}, {"n": 1}, {"n": 4}], tolerance=4)


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_pair_from_input_to_output(pairs):
    """Transpose pairs that compose to identity from graph input to graph output: one Identity is left for the name."""
    names = ["x", *(f"t{i}" for i in range(2 * pairs - 1)), "y"]
    text = "  ".join(f"{b} = Transpose<perm=[1,0]>({a})" for a, b in itertools.pairwise(names))
    trap(f"float[n,3] x; {text}", exact=True).only("Identity")


def test_side_by_side():
    """All of a table in one model: what holds for each graph alone, holds for them together."""
    graphs = [g for g in TRANSPOSES.values() if "n," in g or "n]" in g]
    trap(beside(*graphs), dims=[{"n": 2}], tolerance=4)
    assert run(beside(*graphs), []) == []
