"""Linear layers as MatMul, Gemm, Conv, with the weight one way round or the other."""

from __future__ import annotations

import onnx_ir as ir

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


def _layer(s: Script) -> tuple[ir.Value, ir.Value, ir.Value | None, ir.Value] | None:
    """The operand, the weight, the bias and the result of a MatMul with a constant, and the Add after it."""
    node = s.place
    product = node if node.op_type == "MatMul" else None
    bias: ir.Value | None = None
    if node.op_type == "Add":
        found = [i for i, v in enumerate(node.inputs) if s.made_by(v, "MatMul")]
        if len(found) != 1:
            return None
        product, bias = s.made_by(node.inputs[found[0]], "MatMul"), node.inputs[1 - found[0]]
        if s.rank(bias) != 1 or not s.is_constant(bias):
            return None
    assert product is not None
    x, w = product.inputs
    if x is None or w is None or not s.is_constant(w) or s.rank(w) != 2:
        return None
    width = s.size(w, 1)
    return None if bias is not None and s.size(bias, 0) != width else (x, w, bias, node.outputs[0])


@spelling("MatMul", "Add")
def as_gemm(s: Script) -> bool:
    """A linear layer as a Gemm, with Reshapes around it where the operand is no matrix."""
    found = _layer(s)
    rank = s.rank(found[0]) if found is not None else None
    if found is None or rank is None or rank < 2:
        return False
    x, w, bias, result = found
    shape = s.shape(result) or ()
    sizes = [d if isinstance(d, int) else -1 for d in shape]
    if rank > 2 and ((sizes.count(-1) > 1 and s.rng.random() < 0) or 0 in sizes):
        return False
    weight, turned = w, s.rng.random() < 0.5
    if turned:
        array = s.array(w)
        assert array is not None
        weight = s.constant(array.T, w)
    matrix = x if rank == 2 else s.new("Reshape", x, s.integers(-1, s.size(w, 0) or 0))
    made = s.new("Gemm", matrix, weight, *([bias] if bias is not None else []), transB=int(turned))
    return s.put(made if rank == 2 else s.new("Reshape", made, _shape_of(s, x, sizes)))


def _shape_of(s: Script, x: ir.Value, sizes: list[int]) -> ir.Value:
    """The shape of a result: constant where one size at most is unknown, else computed from the operand's."""
    if sizes.count(-1) <= 1:
        return s.integers(*sizes)
    front = s.new("Slice", s.new("Shape", x), s.integers(0), s.integers(-1))
    return s.new("Concat", front, s.integers(sizes[-1]), axis=0)


@spelling("MatMul", "Add")
def as_convolution(s: Script) -> bool:
    """A linear layer over a sequence as a convolution of width one between Transposes."""
    found = _layer(s)
    if found is None or s.rank(found[0]) != 3 or s.size(found[1], 0) is None:
        return False
    x, w, bias, _ = found
    array = s.array(w)
    if array is None:
        return False
    kernel = s.constant(array.T[:, :, None], w)
    turned = s.new("Transpose", x, perm=[0, 2, 1])
    made = s.new("Conv", turned, kernel, *([bias] if bias is not None else []))
    return s.put(s.new("Transpose", made, perm=[0, 2, 1]))


@spelling("Gemm")
def as_product_and_sum(s: Script) -> bool:
    """A Gemm as a MatMul and an Add."""
    node = s.place
    x, w, *rest = node.inputs
    settings = node.attributes
    plain = settings.get_float("alpha", 1.0) == settings.get_float("beta", 1.0) == 1 and not settings.get_int(
        "transA", 0
    )
    array = s.array(w)
    if not plain or w is None or array is None:
        return False
    if settings.get_int("transB", 0):
        w = s.new("Transpose", w, perm=[1, 0]) if s.rng.random() < 0.5 else s.constant(array.T, w)
    made = s.new("MatMul", x, w)
    return s.put(s.new("Add", made, rest[0]) if rest and rest[0] is not None else made)


@spelling("MatMul")
def weight_transposed(s: Script) -> bool:
    """A weight the other way round, and the Transpose of it."""
    w = s.place.inputs[1]
    array = s.array(w)
    if w is None or array is None or array.ndim != 2:
        return False
    return s.operand(1, s.new("Transpose", s.constant(array.T, w), perm=[1, 0]))
