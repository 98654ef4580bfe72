"""Queries, keys and values by one product of weights in few bits, which GroupQueryAttention takes as they come.

Why: the kernel of MatMulNBits rounds what it multiplies to 8 bits, once for each product, and a step of one token has
little more to do.  Products of floats have nothing to gain, and are left as they are: their weights would be copied.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.views import input_of
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.paths import leaks
from onnxrewrite.pattern.terms import FLOATS, Attr, Call, Each, Var, microsoft
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rewrite.rule import LOWER, Rejects, Rewrites, rule

_ORDER = 4
"""The place of ``g_idx`` among the inputs of MatMulNBits."""

x = Var("x", dtype=FLOATS)


class Projection:
    """A product by weights in few bits.

    Attributes:
        columns: The number of its columns.
        out: It.
    """

    def __init__(self, name: str):
        self.columns = Attr[int](f"columns of {name}")
        self.out: Call = microsoft.MatMulNBits(x, Each(f"weights of {name}", at_least=2), N=self.columns)

    def form(self, m: Match) -> dict[str, object]:
        """Its attributes, but for the number of columns."""
        return {name: value for name, value in m.attrs(self.out).items() if name != "N"}


parts = tuple(Projection(name) for name in ("queries", "keys", "values"))
attention = microsoft.GroupQueryAttention(*(part.out for part in parts), Each("the rest", at_least=4))

_START = "float[b,s,32] x; float[b,2,p,8] pk; float[b,2,p,8] pv; int32[b] l; int32 t;"
_GROUPED = "y, nk, nv = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>"


def _product(name: str, first: int, columns: int) -> str:
    """A product by 4 bits, those of some columns, in the text of an example."""
    numbers = ", ".join(str(i % 251) for i in range(16 * first, 16 * (first + columns)))
    scales = ", ".join(str((1 + i % 5) / 8) for i in range(first, first + columns))
    operands = f"x, uint8[{columns},1,16] {{{numbers}}}, float[{columns}] {{{scales}}}"
    return f"{name} = com.microsoft.MatMulNBits<K=32, N={columns}, bits=4, block_size=32>({operands})  "


_APART = f"{_product('q', 0, 32)}{_product('k', 32, 16)}{_product('v', 48, 16)}{_GROUPED}(q, k, v, pk, pv, l, t)"
_EXAMPLES = (
    Rewrites(f"{_START} {_APART}", to=f"{_START} {_product('p', 0, 64)}{_GROUPED}(p, , , pk, pv, l, t)"),
    Rejects(f"{_START} {_APART.replace('bits=4', 'bits=4, accuracy_level=4', 1)}", because="stored in other ways"),
    Rejects(f"{_START} {_APART}  z = Neg(k)", because="also used by Neg"),
)


@rule("packed-projections", LOWER, attention, allow_shared=True, examples=_EXAMPLES)
def packed_projections(m: Match, build: Builder) -> tuple[ir.Value, ...]:
    """GroupQueryAttention(x·Wq, x·Wk, x·Wv, …) ⟶ GroupQueryAttention(x·[Wq Wk Wv], …)"""
    first, *others = forms = [part.form(m) for part in parts]
    m.require(all(form == first for form in others), f"they are stored in other ways: {forms}")
    nodes = [m.node(part.out) for part in parts]
    need = next((need for _, need in leaks(nodes, m.nodes)), "")
    m.require(not need, f"a product is {need}")
    operands = [[input_of(n, i) for n in nodes] for i in range(6)]
    m.require(not any(operands[_ORDER]), "columns are multiplied in an order of their own")
    joined = [_joined(m, build, given) for given in operands[1:]]
    columns = sum(m[part.columns] for part in parts)
    product = build.microsoft.node("MatMulNBits", [m[x], *joined], {**first, "N": columns})[0]
    node = m.node(attention)
    m.widen(m.nodes, list(node.outputs))
    return build.again(node, product, None, None)


def _joined(m: Match, build: Builder, operands: list[ir.Value | None]) -> ir.Value | None:
    """Operands of the products one behind the other; None where none has it."""
    given = [each for each in operands if each is not None]
    if not given:
        return None
    m.require(len(given) == len(operands), "not all have zero points, or a bias")
    arrays = [m.known(m.facts.constant(each), "the weights are computed", at=each) for each in given]
    m.require(len({a.ndim for a in arrays}) == 1, "they are stored in shapes of other ranks", at=given[0])
    return build.const(np.concatenate(arrays), like=given[0])
