"""Products as Einsum, a Transpose before or after them in the equation."""

from __future__ import annotations

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


@spelling("MatMul")
def product_as_einsum(s: Script) -> bool:
    """A MatMul as an Einsum; a Transpose that makes the second operand goes into the equation."""
    a, b = s.place.inputs
    left, right = s.rank(a), s.rank(b)
    if left is None or right is None or min(left, right) < 2 or s.is_constant(a):
        return False
    if right != 2 and (left != right or not _equal_front(s)):
        return False
    rows = "bhtuvw"[: left - 2] + "i"
    columns = (rows[:-1] if right == left else "") + "kj"
    if right == 2:
        columns = "kj"
    above = s.made_by(b, "Transpose") if right > 2 and s.rng.random() < 0.7 else None
    perm = above.attributes.get_ints("perm", ()) if above is not None else ()
    if above is not None and len(perm) == right:
        letters = [""] * right
        for place, axis in enumerate(perm):
            letters[axis] = columns[place]
        b, columns = above.inputs[0], "".join(letters)
    return s.put(s.new("Einsum", a, b, equation=f"{rows}k,{columns}->{rows}j"))


def _equal_front(s: Script) -> bool:
    """True if no axis in front of the matrices is broadcast."""
    a, b = (s.shape(v) or () for v in s.place.inputs)
    return all(x == y for x, y in zip(a[:-2], b[:-2], strict=True))


@spelling("Transpose")
def transpose_as_einsum(s: Script) -> bool:
    """A Transpose of a product of two in one Einsum with it."""
    perm = s.place.attributes.get_ints("perm", ())
    product = s.made_by(s.place.inputs[0], "MatMul")
    if product is None or not perm or len(product.outputs[0].uses()) > 1 or product.outputs[0].is_graph_output():
        return False
    a, b = product.inputs
    shapes = s.shape(a), s.shape(b)
    if (
        None in shapes
        or len(shapes[0] or ()) != len(shapes[1] or ())
        or (shapes[0] or ())[:-2] != (shapes[1] or ())[:-2]
    ):
        return False
    front = "bhtuvw"[: len(perm) - 2]
    result = front + "ij"
    return s.put(s.new("Einsum", a, b, equation=f"{front}ik,{front}kj->{''.join(result[p] for p in perm)}"))
