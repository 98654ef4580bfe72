"""Two spellings in a corpus become one: the cheaper one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from discovery_models import driver_of, regions, saved

from onnxrewrite.authoring.capture_checks import load_rule
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.suite.discovery.corpus_search import discover
from onnxrewrite.suite.discovery.enumeration import enumerate_regions
from onnxrewrite.suite.discovery.finding import KERNELS, KNOWN, REGIONS
from onnxrewrite.suite.discovery.joining import Hit
from onnxrewrite.suite.discovery.region_cost import cost_of
from onnxrewrite.suite.discovery.region_spelling import hits, orders, spelling
from onnxrewrite.suite.discovery.rule_writing import RuleWriter
from onnxrewrite.suite.discovery.sampled_region import SampledRegion, sampled
from onnxrewrite.suite.discovery.search_request import Request
from onnxrewrite.suite.discovery.spelling_search import part_of, search
from onnxrewrite.suite.discovery.substitute import Given, model_of, results_of
from onnxrewrite.testing import check_example

NO_RULES = frozenset(r.name for r in registry.load())

DEAR = "float[b,8] x; float[b,8] z;  d = Sub(x, z)  n = Neg(d)  y = Relu(n)"
CHEAP = "float[b,8] x; float[b,8] z;  d = Sub(z, x)  y = Relu(d)"


def whole(graph: str) -> SampledRegion:
    """The largest region of a model."""
    return max(regions(graph)[1], key=lambda r: len(r.region.nodes))


def as_another(dear: str, cheap: str) -> list[Hit]:
    """The ways to put the one in the place of the other, operands in the order in which both read them."""
    left, right = whole(dear), whole(cheap)
    graph = spelling(right.region, right.facts)
    assert graph is not None
    fed = [[i for i, o in enumerate(r.operands) if not o.is_constant] for r in (right, left)]
    return list(hits(left, graph, dict(zip(*fed, strict=True))))


# -- spellings ---------------------------------------------------------------------------------------------------


def test_a_region_is_a_small_graph_that_computes_the_same():
    region = whole("float[b,4,6] x; s = ReduceSum<keepdims=0>(x, {1})  m = Mul(s, 0.5)  y = Softmax<axis=1>(m)")
    graph = spelling(region.region, region.facts)
    assert graph is not None
    assert [n.op_type for n in graph.graph.nodes] == ["ReduceSum", "Mul", "Softmax"]
    assert dict(graph.graph.nodes[0].parameters)["axes"].value == (1,)
    (found,) = results_of(graph.graph, region) or ()
    assert found == pytest.approx(region.results[0])


def test_what_both_have_in_common_is_captured():
    general, exact = as_another(
        "float[b,8] x; n = Neg(x)  p = Mul(n, 0.3)  y = Neg(p)", "float[b,8] x; y = Mul(x, 0.3)"
    )
    assert isinstance(general.substitute.nodes[0].inputs[1], int)
    assert exact.substitute.nodes[0].inputs[1] == Given(0.30000001192092896, exact.region.operands[1].value.dtype)


@pytest.mark.parametrize(
    ("dear", "cheap"),
    [
        ("float[b,8] x; m = Max(x, 1.0)  y = Relu(m)", "float[b,8] x; y = Max(x, 1.0)"),
        (
            "float[b,8] x; s = ReduceSum(x, {0})  y = Slice(s, {1}, {3}, {1})",
            "float[b,8] x; s = Slice(x, {1}, {3}, {1})  y = ReduceSum(s, {0})",
        ),
    ],
    ids=["a constant of another sign", "an axis that is the other one's"],
)
def test_what_holds_of_one_constant_only_is_not_captured(dear: str, cheap: str):
    (exact,) = as_another(dear, cheap)
    assert all(p.origin.kind == "literal" for n in exact.substitute.nodes for _, p in n.parameters)
    assert all(exact.region.operands[i].is_required for i in exact.substitute.read())


@pytest.mark.parametrize(
    ("dear", "cheap", "wanted"),
    [
        (
            "float[b,8] x; float[b,8] z;  c = Concat<axis=0>(x, z)  y = ReduceSum(c, {0})",
            "float[b,8] x; float[b,8] z;  a = Add(x, z)  y = ReduceSum(a, {0})",
            ["a and b must have one shape"],
        ),
        (
            "float[b,8] x; float[b,8] z;  a = Sub(x, z)  b = Sub(a, x)  y = Relu(b)",
            "float[b,8] x; float[b,8] z;  b = Neg(z)  y = Relu(b)",
            ["x must have the shape of the result"],
        ),
        (
            "float[b,8] x; float[b,8] z;  d = Sub(x, z)  n = Neg(d)  y = Neg(n)",
            "float[b,8] x; float[b,8] z;  y = Sub(x, z)",
            [],
        ),
    ],
    ids=["a sum over both", "a result of one", "all that is read is broadcast"],
)
def test_what_is_wrong_of_operands_of_size_one_is_required(dear: str, cheap: str, wanted: list[str]):
    left, right = whole(dear), whole(cheap)
    graph = spelling(right.region, right.facts)
    assert graph is not None
    names = {o.value.name: i for i, o in enumerate(left.operands)}
    fed = {i: names[o.value.name] for i, o in enumerate(right.operands) if not o.is_constant}
    hit, *_ = hits(left, graph, fed)
    driver = driver_of(dear)
    region = next(r for r in enumerate_regions(driver).regions.values() if len(r.nodes) == len(left.region.nodes))
    sample = sampled(region, driver.facts(region.graph))
    assert sample is not None
    writer = RuleWriter(driver, replace(hit, region=sample), Stage.CANONICALIZE, "m.onnx")
    assert [g.reason for g in writer.fitting(writer.guards())] == wanted


@pytest.mark.parametrize(
    ("dear", "cheap"),
    [
        ("float[b,8] x; n = Neg(x)  y = Relu(n)", "float[b,8] x; y = Relu(x)"),
        ("float[b,8] x; a = Abs(x)  y = Mul(a, 2.0)", "float[b,8] x; y = Abs(x)"),
        ("float[b,8] x; y = Mul(x, 2.0)", "float[b,8] x; n = Neg(x)  y = Mul(n, -2.0)"),
    ],
    ids=["another sign", "another scale", "the dearer one"],
)
def test_what_is_no_cheaper_spelling(dear: str, cheap: str):
    assert as_another(dear, cheap) == []


def test_the_last_operator_is_returned_as_it_is_built():
    hit, *_ = as_another("float[b,8] x; r = Relu(x)  y = ReduceMax(r)", "float[b,8] x; m = ReduceMax(x)  y = Relu(m)")
    driver = driver_of("float[b,8] x; r = Relu(x)  y = ReduceMax(r)")
    (region,) = (r for r in enumerate_regions(driver).regions.values() if len(r.nodes) == 2)
    sample = sampled(region, driver.facts(region.graph))
    assert sample is not None
    writer = RuleWriter(driver, replace(hit, region=sample), Stage.CANONICALIZE, "m.onnx")
    assert "result_1 = build.ReduceMax(m[data])\n    return build.Relu(result_1)\n" in writer.finished()[0]


def test_equal_constants_are_one():
    region = whole("float[b,8] x; p = Mul(x, 0.3)  q = Sub(p, 0.3)  y = Relu(q)")
    again = SampledRegion(region.region, region.facts, (*region.operands, region.operands[-1]), (), ())
    graph = spelling(region.region, region.facts)
    assert graph is not None
    doubled = graph.over({0: 0, 1: 1, 2: len(region.operands)})
    assert [t.name for t in model_of(doubled, again.operands, 17).graph.initializer] == [region.operands[1].name]


def test_orders_of_operands():
    assert list(orders(["f", "f"], 6)) == [{0: 0, 1: 1}, {0: 1, 1: 0}]
    assert list(orders(["f", "b", "f"], 6)) == [{0: 0, 1: 1, 2: 2}, {0: 2, 1: 1, 2: 0}]
    assert len(list(orders(["f"] * 5, 6))) == 6


def test_operators_count_before_bytes():
    def cost(graph: str):
        region = whole(graph)
        made = spelling(region.region, region.facts)
        assert made is not None
        return cost_of(model_of(made.graph, region.operands, region.opset))

    late = cost("float[b,8] x; s = ReduceMax(x)  y = Relu(s)")
    early = cost("float[b,8] x; r = Relu(x)  y = ReduceMax(r)")
    assert late < early < cost("float[b,1] x; a = Abs(x)  n = Neg(a)  y = Relu(n)")


# -- a corpus ----------------------------------------------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path: Path, untimed: None) -> list[Path]:
    """Two exports of one module; what passes is not timed."""
    return [saved(DEAR, tmp_path / "dear.onnx"), saved(CHEAP, tmp_path / "cheap.onnx")]


def test_two_spellings_give_a_canonicalization(tmp_path: Path, corpus: list[Path]):
    request = Request(by=(REGIONS,), without=NO_RULES, nodes=2, count=8)
    searched, found = search(request, tmp_path / "j", part_of(corpus))
    assert searched.is_complete
    (swapped,) = [f for f in found if f.operators == ("Sub", "Neg")]
    assert (swapped.substitute, swapped.by, swapped.is_right) == (("Sub",), REGIONS, True)
    assert swapped.places == {str(corpus[0]): ["n"]}
    (tmp_path / "rule.py").write_text(swapped.text, encoding="utf-8")
    rule = load_rule(tmp_path / "rule.py", swapped.name)
    assert rule.stage is Stage.CANONICALIZE
    for example in rule.examples:
        check_example(rule, example)
    assert search(request, tmp_path / "j", part_of(corpus)) == (searched, found)  # of the journal


def test_what_follows_from_a_rule_is_not_found(tmp_path: Path, corpus: list[Path]):
    request = Request(by=(REGIONS,), without=NO_RULES, nodes=3, count=8)
    _, found = search(request, tmp_path / "j", part_of(corpus))
    assert [f.operators for f in found] == [("Sub", "Neg")]  # and not of Sub, Neg and Relu


def test_what_the_library_does_is_not_found(tmp_path: Path, corpus: list[Path]):
    double = saved("float[b,8] x; a = Sqrt(x)  c = Reciprocal(a)  y = Relu(c)", tmp_path / "double.onnx")
    searched, found = search(Request(by=(REGIONS,), nodes=2, count=8), tmp_path / "j", part_of([double]))
    assert searched.regions
    assert [f for f in found if f.status != KNOWN] == []


@pytest.mark.slow
def test_several_modes_in_one_run(tmp_path: Path, corpus: list[Path]):
    request = Request(by=(KERNELS, REGIONS), without=NO_RULES, nodes=2, count=8)
    made = discover([corpus[0]], tmp_path / "rules", request, slow=True)
    assert [m.by for m in made.models] == [KERNELS, REGIONS]
    assert made.is_complete
