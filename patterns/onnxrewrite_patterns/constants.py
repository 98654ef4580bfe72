"""Computing ahead what does not depend on the inputs, and only once what is computed twice."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

_SIZES = 64
"""Outputs of a node that may be sizes of a shape, which has no more."""

QUANTIZED = frozenset({"DequantizeLinear", "DequantizeBFP", "MatMulNBits"})
"""Operators whose constant operands are small on purpose."""


def of_constants(found: ir.Node, facts: Facts) -> bool | str:
    """True, or the reason why not: all inputs of a node are constant, or its result is known without them."""
    if found.op_type == "Constant":
        return False
    constant = all(facts.tensor(v) is not None for v in inputs_of(found))
    return constant or any(_all_known(facts, o) for o in found.outputs[:_SIZES]) or "not all that it reads is constant"


def _all_known(facts: Facts, value: Value) -> bool:
    elements = facts.elements(value)
    return elements is not None and all(isinstance(e, int) for e in elements)


node = AnyNode(where=of_constants)


@rule(
    "fold-constants",
    CANONICALIZE,
    node,
    benefit=100,
    allow_shared=True,
    examples=(
        Rewrites("a = Add({1.0, 2.0}, 3.0)  y = Mul(x, a)", to="y = Mul(x, {4.0, 5.0})"),
        Rewrites(
            "a, b = Split({1.0, 2.0, 3.0, 4.0})  c = Mul(x, a)  y = Add(c, b)",
            to="c = Mul(x, {1.0, 2.0})  y = Add(c, {3.0, 4.0})",
        ),
        Rewrites(
            "float[2,n] x; s = Shape(x)  d = Gather(s, 0)  y = Cast<to=1>(d)", to="float[2,n] x; y = Identity(2.0)"
        ),
        Rejects("r = RandomNormal<shape=[2]>()  y = Mul(x, r)", because="random"),
        Rejects(
            "w = DequantizeLinear(int8[2] {1, 2}, 0.5, int8 0)  y = Mul(x, w)",
            because="a quantized constant stays quantized",
        ),
        Rejects(
            "w = ConstantOfShape<value=float[1] {0.5}>({256, 128})  y = MatMul(x, w)", because="would take 131072 bytes"
        ),
        Rejects("e = Expand(1.0, {4096, 4096})  y = Mul(x, e)", because="would take 67108864 bytes"),
    ),
)
def fold_constants(m: Match, build: Builder) -> Value:
    """f(constants) ⟶ constant."""
    found = m.node(node)
    rank = m.rank(node)
    if rank is not None and _all_known(m.facts, m[node]):
        data = np.array(m.facts.elements(m[node]), dtype=np.int64)
        return build.const(data.reshape([-1] if rank else []), like=node)
    m.require(m.facts.is_deterministic(found), f"{found.op_type} is random, or nobody knows that it is not")
    m.require(found.op_type not in QUANTIZED, "a quantized constant stays quantized")
    m.require(all(m.dtype(v) != ir.DataType.STRING for v in (*inputs_of(found), m[node])), "strings are left alone")
    m.require(all(m.facts.tensor(v) is not None for v in inputs_of(found)), "not all inputs are constant")
    return build.const(build.evaluate(found)[m[node].index() or 0], like=node)


double = AnyNode(where=lambda found, facts: facts.twin(found) is not None or "no other node computes the same")


@rule(
    "merge-equal-nodes",
    CANONICALIZE,
    double,
    benefit=90,
    allow_shared=True,
    examples=(
        Rewrites("a = Relu(x)  b = Relu(x)  y = Add(a, b)", to="a = Relu(x)  y = Add(a, a)"),
        Rewrites(
            "v = DequantizeLinear(int8[2] {1, 2}, 0.5)  w = DequantizeLinear(int8[2] {1, 2}, 0.5)"
            "  a = Mul(x, v)  y = Add(a, w)",
            to="v = DequantizeLinear(int8[2] {1, 2}, 0.5)  a = Mul(x, v)  y = Add(a, v)",
        ),
        Rejects("a = RandomNormalLike(x)  b = RandomNormalLike(x)  y = Add(a, b)", because="random"),
    ),
)
def merge_equal_nodes(m: Match, build: Builder) -> Value:
    """f(x), f(x) ⟶ f(x), used twice."""
    found = m.node(double)
    m.require(m.facts.is_deterministic(found), f"{found.op_type} is random, or nobody knows that it is not")
    twin = m.facts.twin(found)
    assert twin is not None
    return twin.outputs[m[double].index() or 0]
