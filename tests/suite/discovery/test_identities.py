"""Identities of small graphs are found from nothing, and those that hold of ordinary numbers only are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxrewrite.authoring.capture_checks import load_rule
from onnxrewrite.ir import text
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.ruletest.metamorphic.firing import Trial
from onnxrewrite.suite.discovery.finding import KNOWN, NOT_WRITTEN, Finding
from onnxrewrite.suite.discovery.graph_families import FAMILIES, Family, Form
from onnxrewrite.suite.discovery.identity_search import PART, equations, search
from onnxrewrite.suite.discovery.search_request import Request
from onnxrewrite.suite.discovery.small_graphs import Pool, composed
from onnxrewrite.suite.discovery.substitute import HANDED_ON, Inner, Substitute
from onnxrewrite.testing import check_example

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


# -- small graphs ------------------------------------------------------------------------------------------------


def test_identities_of_two_operators():
    assert pairs(family("Neg Sub")) == {
        ("Neg(Neg(x))", "x"),
        ("Neg(Sub(x, y))", "Sub(y, x)"),
        ("Sub(Sub(x, y), x)", "Neg(y)"),
        ("Sub(x, Sub(x, y))", "y"),
    }


def test_what_holds_of_a_part_is_not_found_again_in_the_whole():
    those = {dear for dear, _ in pairs(family("Abs Relu"), nodes=3)}
    assert ("Relu(Abs(x))" in those, "Abs(Relu(x))" in those) == (True, True)
    assert not {dear for dear in those if dear.count("(") == 3}


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


def found(tmp_path: Path, of: Family, graphs: int, without: frozenset[str] = NO_RULES) -> list[Finding]:
    request = Request(without=without, count=8, graphs=graphs)
    return search(request, tmp_path, PART, [of])[1]


@pytest.mark.usefixtures("untimed")
def test_a_rule_from_nothing(tmp_path: Path):
    rules = {(f.operators, f.substitute): f for f in found(tmp_path, family("Neg Sub"), graphs=15)}
    swapped = rules[("Sub", "Neg"), ("Sub",)]
    assert swapped.is_right
    assert swapped.verdict == "ring-checked"
    assert "CANONICALIZE,\n    -(b - a)," in swapped.text
    assert "return build.Sub(m[a], m[b])" in swapped.text
    handed_on = rules[("Neg", "Neg"), (HANDED_ON,)]
    assert handed_on.is_right
    assert "return m[x]" in handed_on.text


@pytest.mark.usefixtures("untimed")
def test_a_written_rule_applies(tmp_path: Path):
    (doubled,) = found(tmp_path, family("Neg"), graphs=5)
    file = tmp_path / "rule.py"
    file.write_text(doubled.text, encoding="utf-8")
    rule = load_rule(file, doubled.name)
    assert rule.stage is Stage.CANONICALIZE
    (example,) = rule.examples
    check_example(rule, example)
    driver = Trial(rule, (), "onnxruntime-cpu").drive(text.parse("float[4] x; a = Neg(x)  b = Neg(a)  y = Relu(b)"))
    assert [n.op_type for n in driver.model.graph] == ["Relu"]


def test_what_the_library_does_is_known(tmp_path: Path):
    known = found(tmp_path, family("Neg"), graphs=5, without=frozenset())
    assert [(f.status, f.operators) for f in known] == [(KNOWN, ("Neg", "Neg"))]


@pytest.mark.usefixtures("untimed")
def test_what_fails_for_infinite_numbers_is_assumed_not_to_be_fed(tmp_path: Path):
    """x + y - x is y, but where x is infinite."""
    rules = {f.operators: f for f in found(tmp_path, family("Add Sub"), graphs=12)}
    assert "assumes=(Assumption.FINITE,)" in rules["Add", "Sub"].text


@pytest.mark.slow
@pytest.mark.usefixtures("untimed")
def test_a_pattern_that_matches_what_it_becomes_is_no_rule(tmp_path: Path):
    """To the matcher, 1 / x and Reciprocal(x) are one."""
    rules = {(f.operators, f.substitute): f for f in found(tmp_path, family("Div Reciprocal", (1.0,)), graphs=10)}
    assert rules[("Div",), ("Reciprocal",)].status == NOT_WRITTEN


@pytest.mark.usefixtures("untimed")
def test_a_run_goes_on(tmp_path: Path):
    of, asked = family("Neg"), Request(without=NO_RULES, count=8, graphs=5)
    assert not search(replace(asked, deadline=0.0), tmp_path, PART, [of])[0].is_complete
    first = search(asked, tmp_path, PART, [of])
    assert first[0].is_complete
    assert [f.is_right for f in first[1]] == [True]
    assert search(asked, tmp_path, PART, [of]) == first
