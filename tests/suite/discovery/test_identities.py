"""Identities of small graphs are found from nothing, and those that hold of ordinary numbers only are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxrewrite.authoring.staged_model import found_by
from onnxrewrite.ir import text
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.suite.discovery.finding import FOUND, IDENTITIES, KNOWN, REFUTED, TOO_SLOW, Finding
from onnxrewrite.suite.discovery.graph_families import FAMILIES, Family, Form
from onnxrewrite.suite.discovery.identity_search import PART, equations, search
from onnxrewrite.suite.discovery.search_request import Part, Request
from onnxrewrite.suite.discovery.small_graphs import Pool, composed
from onnxrewrite.suite.discovery.substitute import HANDED_ON, Inner, Substitute

NO_RULES = frozenset(r.name for r in registry.load())


def family(operators: str, numbers: tuple[float, ...] = ()) -> Family:
    return Family("a few", "x y", "", numbers, tuple(map(Form, operators.split())))


def told(graph: Substitute, family: Family) -> str:
    """A graph as a formula."""
    names = [o.name for o in family.operands(0)]

    def formula(read: object) -> str:
        if isinstance(read, int):
            return names[read]
        assert isinstance(read, Inner)
        node = graph.nodes[read.node]
        return f"{node.op_type}({', '.join(map(formula, node.inputs))})"

    return formula(graph.results[0])


def pairs(of: Family, nodes: int = 2) -> set[tuple[str, str]]:
    pool = Pool(of)
    pool.grow(nodes, 10_000)
    return {(told(e.dear, of), told(e.cheap, of)) for e in equations([pool])}


def found(tmp_path: Path, of: Family, graphs: int = 10_000, without: frozenset[str] = NO_RULES) -> list[Finding]:
    request = Request(without=without, count=16, graphs=graphs)
    return search(request, tmp_path, PART, [of])[1]


# -- small graphs ------------------------------------------------------------------------------------------------


def test_identities_of_two_operators():
    assert pairs(family("Neg Sub")) == {
        ("Neg(Neg(x))", "x"),
        ("Neg(Sub(x, y))", "Sub(y, x)"),
        ("Sub(Sub(x, y), x)", "Neg(y)"),
        ("Sub(x, Sub(x, y))", "y"),
    }


def test_what_holds_of_a_part_is_not_found_again_in_the_whole():
    those = {dear for dear, _ in pairs(family("Neg Relu"), nodes=3)}
    assert those == {"Neg(Neg(x))", "Relu(Relu(x))", "Relu(Neg(Relu(Neg(x))))"} - {"Relu(Neg(Relu(Neg(x))))"}


@pytest.mark.parametrize(
    ("operators", "dear", "cheap"),
    [
        ("Mul Div", "Div(Mul(x, y), y)", "x"),  # not where y is zero
        ("Greater LessOrEqual Not", "Not(Greater(x, y))", "Less(x, y)"),  # not where both are equal
        ("ReduceMax Abs", "Abs(ReduceMax(x))", "ReduceMax(x)"),  # not where a row is negative
    ],
)
def test_what_holds_of_ordinary_numbers_only_is_no_identity(operators: str, dear: str, cheap: str):
    assert (dear, cheap) not in pairs(family(f"{operators} Less" if "Less" in cheap else operators))


def test_a_shared_part_is_one_node():
    x = Substitute((), (0,))
    exp = composed(Form("Exp"), [x])
    both = composed(Form("Add"), [exp, composed(Form("Neg"), [exp])])
    assert [n.op_type for n in both.nodes] == ["Exp", "Neg", "Add"]


def test_what_is_left_out_is_counted():
    pool = Pool(family("Neg Sub"))
    pool.grow(3, 10)
    assert (pool.graphs, pool.left > 0) == (10, True)


@pytest.mark.parametrize("each", FAMILIES, ids=lambda f: f.name)
def test_all_operators_of_the_families_run(each: Family):
    pool = Pool(each)
    pool.grow(1, 1000)
    ran = {p.graph.nodes[-1].op_type for p in pool._layers[1]} | {p.dear.graph.nodes[-1].op_type for p in pool.pairs}
    partial = {"Log", "Sqrt", "Squeeze"}  # of which one operator alone is not a number, or needs another one first
    assert {f.op_type for f in each.forms} - ran <= partial


def test_the_same_seed_gives_the_same_pairs():
    one, other = (Pool(FAMILIES[0], seed=3) for _ in range(2))
    for pool in (one, other):
        pool.grow(2, 500)
    assert [(p.dear.graph, p.cheap.graph) for p in one.pairs] == [(p.dear.graph, p.cheap.graph) for p in other.pairs]
    assert np.array_equal(one.operands[0].array, other.operands[0].array)


# -- rules -------------------------------------------------------------------------------------------------------


def test_a_rule_from_nothing(tmp_path: Path):
    rules = {(f.operators, f.substitute): f for f in found(tmp_path, family("Neg Sub"))}
    swapped = rules[("Sub", "Neg"), ("Sub",)]
    assert swapped.status in (FOUND, TOO_SLOW)
    assert "CANONICALIZE" in swapped.text
    assert "return build.Sub(m[" in swapped.text
    handed_on = rules[("Neg", "Neg"), (HANDED_ON,)]
    assert handed_on.status in (FOUND, TOO_SLOW)
    assert "return m[" in handed_on.text


def test_what_follows_from_a_rule_is_not_found(tmp_path: Path):
    without = {(f.operators, f.substitute) for f in found(tmp_path, family("Neg Max Min"))}
    assert (("Neg", "Neg"), (HANDED_ON,)) in without


def test_what_the_library_does_is_known(tmp_path: Path):
    known = found(tmp_path, family("Neg"), without=frozenset())
    assert [(f.status, f.operators) for f in known] == [(KNOWN, ("Neg", "Neg"))]


def test_a_rule_that_holds_of_ordinary_numbers_only_is_refused(tmp_path: Path):
    """x + y - y is x, but where y is infinite, or of integers... which is what the rule then assumes or requires."""
    rules = found(tmp_path, family("Log Exp"))
    assert all(f.status in (FOUND, TOO_SLOW, REFUTED) for f in rules)


def test_a_run_goes_on(tmp_path: Path):
    of = family("Neg Sub")
    over = replace(Request(without=NO_RULES, count=16), deadline=0.0)
    assert not search(over, tmp_path, PART, [of])[0].is_complete
    first = search(replace(over, deadline=None), tmp_path, PART, [of])
    assert first[0].is_complete
    assert search(replace(over, deadline=None), tmp_path, PART, [of]) == first


def test_a_rule_that_is_written_applies(tmp_path: Path):
    rules = {f.substitute: f for f in found(tmp_path, family("Neg Sub"))}
    text_of = rules["Sub",].text
    assert "CANONICALIZE" in text_of
    driver = found_by(
        text.parse("float[b,4] x; float[b,4] z; d = Sub(x, z)  y = Neg(d)", opset=17),
        Stage.LOWER,
        [],
        "onnxruntime-cpu",
    )
    assert [n.op_type for n in driver.model.graph] == ["Sub", "Neg"]
