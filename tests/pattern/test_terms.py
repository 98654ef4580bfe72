"""The pattern language: what Python's operators build, and how it prints."""

from __future__ import annotations

import math

import pytest

from onnxrewrite.pattern.terms import (
    FLOATS,
    SQRT2,
    AnyOf,
    Attr,
    Call,
    Const,
    Each,
    Literal,
    Output,
    Power,
    Product,
    Scalar,
    Sum,
    Term,
    Var,
    any_of,
    children,
    flipped,
    microsoft,
    notation,
    op,
    power,
    term,
    walk,
)

x, y, z = Var("x"), Var("y"), Var("z")


def signed(item: Term) -> list[tuple[str, int]]:
    assert isinstance(item, Sum | Product)
    return [(repr(t), s) for t, s in item.operands]


@pytest.mark.parametrize(
    ("item", "kind", "operands"),
    [
        (x + y + z, Sum, [("x", 1), ("y", 1), ("z", 1)]),
        (x + (y + z), Sum, [("x", 1), ("y", 1), ("z", 1)]),
        (x - y, Sum, [("x", 1), ("y", -1)]),
        (x - (y - z), Sum, [("x", 1), ("y", -1), ("z", 1)]),
        (1 - x, Sum, [("1", 1), ("x", -1)]),
        (x * y * z, Product, [("x", 1), ("y", 1), ("z", 1)]),
        (x * (y / z), Product, [("x", 1), ("y", 1), ("z", -1)]),
        (x / (y / z), Product, [("x", 1), ("y", -1), ("z", 1)]),
        (2 / x, Product, [("2", 1), ("x", -1)]),
        (-x, Product, [("-1", 1), ("x", 1)]),
        (x * (y + z), Product, [("x", 1), ("(y + z)", 1)]),
        (x**2, Product, [("x", 1), ("x", 1)]),
        (x**-1, Product, [("x", -1)]),
        (2 * x**3, Product, [("2", 1), ("x", 1), ("x", 1), ("x", 1)]),
        (y / x**2, Product, [("y", 1), ("x", -1), ("x", -1)]),
        (y * x**-0.5, Product, [("y", 1), ("x**0.5", -1)]),
    ],
)
def test_operators_flatten(item: Term, kind: type[Term], operands: list[tuple[str, int]]) -> None:
    assert isinstance(item, kind)
    assert signed(item) == operands


def test_a_sum_inside_a_product_stays_one_operand() -> None:
    total = x + y
    assert (2 * total).operands[1][0] is total
    assert (total * 2 + z).operands[0][0].operands[0][0] is total


@pytest.mark.parametrize("exponent", [0.5, 1.5, 5, 2.5])
def test_other_powers_are_powers(exponent: float) -> None:
    item = x**exponent
    assert isinstance(item, Power)
    assert (item.base, item.exponent) == (x, exponent)


def test_a_root_is_a_power_however_it_is_spelled() -> None:
    for item in (op.Sqrt(x), x**0.5, power(x, 0.5)):
        assert isinstance(item, Power)
        assert item.exponent == 0.5
    assert x**1 is x
    assert isinstance(x**y, Call)


def test_flipped() -> None:
    half = 0.5 * x
    opposite = flipped(half, False)
    assert signed(opposite) == [("-1", 1), ("0.5", 1), ("x", 1)]
    assert flipped(half, False) is opposite, "one term is flipped into one term"
    inverse = flipped(x**0.5, True)
    assert isinstance(inverse, Power)
    assert inverse.exponent == -0.5
    assert flipped(half, True) is None
    assert flipped(x, False) is None


def test_calls() -> None:
    call = op.Conv(x, y, None, group=Attr[int]("group"))
    assert isinstance(call, Call)
    assert (call.op_types, call.domain, call.inputs) == (("Conv",), "", (x, y, None))
    assert repr(call) == "Conv(x, y, , group=group)"
    assert repr(microsoft.FastGelu(x)) == "com.microsoft.FastGelu(x)"
    assert op["Relu", "Clip"](x).op_types == ("Relu", "Clip")
    assert repr(op.Add(x, 1)) == "Add(x, 1)"
    assert isinstance(op.Add(x, 1).inputs[1], Literal)
    second = call[1]
    assert isinstance(second, Output)
    assert repr(second) == "Conv(x, y, , group=group)[1]"
    with pytest.raises(TypeError, match="index it"):
        _, _ = call
    with pytest.raises(AttributeError):
        op._private  # noqa: B018
    with pytest.raises(TypeError, match="not a term"):
        op.Add(x, "1")


def test_captures() -> None:
    assert not x.optional
    assert Const("b", default=0.0).optional
    assert Const("b", default=None).optional
    assert Var("x", dtype=FLOATS).dtypes == FLOATS
    (only,) = Var("x", dtype=next(iter(FLOATS))).dtypes or ()
    assert only in FLOATS
    assert repr(Each("xs")) == "*xs"
    assert repr(Attr("axis")) == "axis"


def test_numbers_become_literals() -> None:
    assert isinstance(term(2), Literal)
    assert term(x) is x
    assert repr(0.5 * x * (1 + op.Erf(x / SQRT2))) == "(0.5 * x * (1 + Erf((x / 1.41421))))"
    assert math.isclose(SQRT2, 2**0.5)


def test_alternatives() -> None:
    item = any_of(x, 1.0, x + y)
    assert isinstance(item, AnyOf)
    assert repr(item) == "any_of(x, 1, (x + y))"
    assert children(item) == item.alternatives


def test_children_and_walk() -> None:
    inner = Scalar("s")
    each = Each("xs", op.Relu(y))
    call = op.Concat(x, each, axis=inner)
    assert [repr(c) for c in children(call)] == ["x", "Relu(y)", "s"]
    root = call[0] * x + any_of(z, x)
    assert [repr(t) for t in walk(root)].count("x") == 1, "each term once"
    assert {x, y, z, inner, call} <= set(walk(root))
    assert next(iter(walk(root))) is root
    assert children(x) == ()


def test_what_a_pattern_has_in_several_places_is_written_once() -> None:
    root: Term = op.Exp(x)
    for _ in range(60):
        root = any_of(op.Relu(root), root)
    lines = notation([op.Sub(root, y)])
    assert lines[:2] == ["Sub(any_of(Relu(p1), p1), y)", "p1 = any_of(Relu(p2), p2)"]
    assert len(lines) == 61
    assert lines[-1] == "p60 = Exp(x)"
