"""The rules that are written: they load, match where they were found, and hold what the fuzzer taught them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from discovery_models import ATTENTION, HEADS, NORM, SCALED, TARGET, driver_of, hits, saved

import onnxrewrite as rw
from onnxrewrite.authoring.capture_checks import load_rule
from onnxrewrite.measure.timing import Interval
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Rejects, Rewrites, Stage
from onnxrewrite.ruletest.fuzz.verdict import PROVED
from onnxrewrite.ruletest.metamorphic.firing import Trial
from onnxrewrite.suite.discovery import candidate_trial
from onnxrewrite.suite.discovery.candidate_trial import DIED
from onnxrewrite.suite.discovery.corpus_search import JOURNALS, discover, merged
from onnxrewrite.suite.discovery.finding import FOUND, KNOWN, NOT_TRIED, TOO_SLOW, Finding, Journal, Searched
from onnxrewrite.suite.discovery.model_search import search
from onnxrewrite.suite.discovery.rule_timing import SiteTime
from onnxrewrite.suite.discovery.rule_trial import RuleTrial
from onnxrewrite.suite.discovery.rule_writing import RuleWriter
from onnxrewrite.suite.discovery.search_request import Part, Request
from onnxrewrite.testing import check_example

LOWER = frozenset(r.name for r in registry.load() if r.stage is Stage.LOWER)


def writer(graph: str, *kernels: str, nodes: int = 12) -> RuleWriter:
    driver, found = hits(graph, nodes=nodes)
    those = [h for h in found if tuple(n.op_type for n in h.substitute.nodes) == kernels]
    hit = max(those, key=lambda h: len(h.region.region.nodes))
    return RuleWriter(driver, hit, Stage.LOWER, "m.onnx")


@pytest.mark.slow
def test_the_text_is_that_of_a_person():
    text, rule = writer(SCALED, "FusedMatMul").finished()
    assert rule.name == "fused-mat-mul-of-mat-mul-mul"
    assert "op.MatMul(a, b) * " in text
    assert "return build.microsoft.FusedMatMul(m[a], m[b], alpha=m[" in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.slow
def test_a_counterexample_teaches_a_precondition():
    found = RuleTrial(writer(NORM, "SkipLayerNormalization"), [], is_cautious=True).run(60)
    assert found.verdict.passed
    assert any("same_shape" in g.condition for g in found.guards)
    kinds = [type(e) for e in found.rule.examples]
    assert kinds[0] is Rewrites
    assert Rejects in kinds
    for example in found.rule.examples:
        check_example(found.rule, example)


@pytest.mark.slow
def test_what_is_computed_ahead_is_computed_of_constants():
    _, rule = writer("float[b,3,4] x; w = float[4,20] ~; s = Mul(x, 0.3)  y = MatMul(s, w)", "Mul", "MatMul").finished()
    check_example(rule, Rejects("float[3,4] x; float[4,5] w; s = Mul(x, 0.3)  y = MatMul(s, w)", "must be constant"))


QUANTIZED = """uint8[b,2,6,6] x; w = int8[3,2,3,3] ~; c = int32[3] ~;
dx = DequantizeLinear(x, 0.037, uint8 3)  dw = DequantizeLinear<axis=0>(w, {0.0213, 0.0357, 0.0111}, int8[3] {0, 0, 0})
dc = DequantizeLinear<axis=0>(c, {0.0007881, 0.0013209, 0.0004107}, int32[3] {0, 0, 0})
f = Conv(dx, dw, dc)  y = QuantizeLinear(f, 0.051, uint8 7)"""
"""A layer whose bias has the product of the scales of its input and its weights."""


@pytest.mark.slow
def test_a_product_of_constants_is_a_precondition_and_stays_one_in_the_example():
    found = RuleTrial(writer(QUANTIZED, "QLinearConv", nodes=5), []).run(20)
    assert found.verdict.passed
    assert [g.reason for g in found.guards] == ["dc_x_scale must be the product of x_scale and w_scale"]
    kinds = [type(e) for e in found.rule.examples]
    assert kinds == [Rewrites, Rejects]
    for example in found.rule.examples:
        check_example(found.rule, example)


@pytest.mark.slow
def test_a_view_before_a_broadcast_learns_that_ranks_must_be_known():
    graph = "float[n] x; float[m,1] z; u = Unsqueeze(x, {0})  y = Mul(u, z)"
    found = RuleTrial(writer(graph, "Mul", nodes=2), []).run(40)
    assert found.verdict.passed
    assert [g.condition for g in found.guards] == ["m.rank(m.outputs[0]) is not None"]


@pytest.mark.slow
def test_a_transposition_of_axes_of_one_is_a_view():
    graph = f"float[b,1,6,s] x; float[b,3,6,s] z; t = {HEADS}(x)  r = Relu(t)  u = {HEADS}(z)  y = Add(r, u)"
    driver, found = hits(graph)
    (hit,) = [h for h in found if h.is_view]
    made = RuleWriter(driver, hit, Stage.LOWER, "m.onnx")
    assert made.source.places == ("t",)
    learnt = RuleTrial(made, []).run(60)
    assert learnt.verdict.passed
    assert [g.condition for g in learnt.guards] == ["m.dim(x, 1) == 1"]
    assert learnt.rule.needs_speedup


@pytest.mark.slow
def test_an_epsilon_is_positive_from_the_start():
    graph = """float[b,s,8] x; w = float[8] ~; q = Pow(x, 2.0)  m = ReduceMean<axes=[-1]>(q)  a = Add(m, 1e-6)
        r = Sqrt(a)  d = Div(x, r)  y = Mul(d, w)"""
    text, rule = writer(graph, "SimplifiedLayerNormalization").finished()
    assert 'm.require(m[epsilon] > 0, "epsilon must be positive")' in text
    below = graph.replace("1e-6", "-0.5")
    assert not Trial(rule, (), TARGET).drive(driver_of(below).model).trace.applied
    assert Trial(rule, (), TARGET).drive(driver_of(graph).model).trace.applied


def test_attributes_that_a_kernel_does_not_take_over_stay_as_they_were():
    graph = f"""float[b,4,5,8] x; float[b,4,6,8] y; float[b,5,3,8] v; float[b,8,5,6] w;
        t = Transpose<perm=[0,1,3,2]>(y)  p = MatMul(x, t)  u = {HEADS}(w)  q = MatMul(v, u)"""
    text, _ = writer(graph, "FusedMatMul", nodes=2).finished()
    assert "perm=(0, 1, 3, 2)" in text


def test_an_attention_is_written_as_a_person_would():
    text, _ = writer(ATTENTION, "MultiHeadAttention", nodes=1).finished()
    assert "num_heads=m.dim(reshape, 2), scale=m[scale]" in text
    assert 'm.require(isinstance(m.dim(reshape, 2), int), "axis 2 of reshape must be of known size")' in text


@pytest.mark.slow
def test_an_attention_learns_what_its_views_must_keep():
    found = RuleTrial(writer(ATTENTION, "MultiHeadAttention", nodes=1), []).run(60)
    assert found.verdict.passed
    assert any("must keep the first two axes" in g.reason for g in found.guards)


@pytest.mark.slow
def test_rows_of_a_matrix_are_a_rule_that_has_to_be_faster():
    graph = "float[b,3,4] x; w = float[4,20] ~; c = float[20] ~; p = MatMul(x, w)  y = Add(p, c)"
    found = RuleTrial(writer(graph, "Flatten", "Gemm"), []).run(60)
    assert found.verdict.passed
    assert found.rule.needs_speedup


def test_no_guard_contradicts_the_place_where_it_was_found():
    written = writer(NORM, "SkipLayerNormalization")
    for guard in written.guards():
        _, rule = written.finished([guard])
        assert Trial(rule, (), TARGET).drive(written.writing.driver.model).trace.applied, guard.condition


@pytest.mark.slow
def test_what_a_first_trial_taught_stays_in_a_second():
    trial = RuleTrial(writer(NORM, "SkipLayerNormalization"), [])
    first, second = trial.run(20), trial.run(100)
    assert set(first.guards) <= set(second.guards)
    assert second.verdict.passed
    assert second.verdict.instances > first.verdict.instances


# -- a run -------------------------------------------------------------------------------------------------------


def request(**given: object) -> Request:
    return Request(**{"without": LOWER, "nodes": 2, "count": 12, **given})  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_model_searched(tmp_path: Path):
    model = saved(SCALED, tmp_path / "m.onnx")
    searched, found = search(request(), tmp_path / "j", Part.of_model(model))
    assert searched.is_complete
    assert searched.regions == 3
    (fused,) = [f for f in found if f.substitute == ("com.microsoft.FusedMatMul",)]
    assert fused.status in (FOUND, TOO_SLOW)
    assert fused.places == {str(model): ["y"]}
    assert fused.times
    again, known = search(request(), tmp_path / "j", Part.of_model(model))
    assert (again, known) == (searched, found)  # of the journal, the times too


@pytest.mark.slow
def test_what_is_faster_is_tried_on_more_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    faster = SiteTime("y", {}, Interval(0.5, 0.4, 0.6), 1.0)
    monkeypatch.setattr(candidate_trial, "times", lambda *_, **__: [faster])
    model = saved(SCALED, tmp_path / "m.onnx")
    tries = [search(request(deepens=n), tmp_path / str(n), Part.of_model(model))[1] for n in (1, 5)]
    (few,), (many,) = tries
    assert few.status == many.status == FOUND
    assert many.instances > 3 * few.instances


@pytest.mark.slow
def test_what_is_right_and_faster_is_proved_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("z3")
    faster = SiteTime("y", {}, Interval(0.5, 0.4, 0.6), 1.0)
    monkeypatch.setattr(candidate_trial, "times", lambda *_, **__: [faster])
    model = saved(SCALED, tmp_path / "m.onnx")
    (found,) = search(request(proves=True), tmp_path / "j", Part.of_model(model))[1]
    assert (found.status, found.verdict) == (FOUND, PROVED)
    assert "over the reals" in found.proof


@pytest.mark.slow
def test_a_rule_of_the_library_makes_the_same(tmp_path: Path):
    model = saved(SCALED, tmp_path / "m.onnx")
    _, found = search(request(without=frozenset()), tmp_path / "j", Part.of_model(model))
    assert {(f.substitute, f.status, f.reason) for f in found} == {
        (("com.microsoft.FusedMatMul",), KNOWN, "scale-of-matmul")
    }


def test_so_does_one_of_an_operator_that_the_opset_lacks(tmp_path: Path):
    gelu = "float[b,4] x; d = Div(x, 1.4142135)  e = Erf(d)  p = Add(e, 1.0)  m = Mul(x, p)  y = Mul(m, 0.5)"
    _, found = search(request(without=frozenset()), tmp_path / "j", Part.of_model(saved(gelu, tmp_path / "m.onnx")))
    assert {(f.operators, f.status, f.reason) for f in found} == {(("Gelu",), KNOWN, "gelu-lower")}


@pytest.mark.slow
def test_a_run_goes_on_after_a_process_died(tmp_path: Path):
    model = saved(SCALED, tmp_path / "m.onnx")
    whole = request().journal(tmp_path / "a", Part.of_model(model))
    search(request(), tmp_path / "a", Part.of_model(model))
    line, *_ = Journal(whole._file).findings
    began = request().journal(tmp_path / "b", Part.of_model(model))
    finding = Journal(whole._file).findings[line]
    began.add(Finding(line, finding.name, NOT_TRIED, str(model), finding.operators, finding.substitute, {}, DIED))
    _, found = search(request(), tmp_path / "b", Part.of_model(model))
    assert [f.key for f in found] == [line]
    assert found[0].status in (FOUND, TOO_SLOW)  # it is tried again


@pytest.mark.slow
def test_a_region_whose_process_died_is_left_out(tmp_path: Path):
    model = saved(SCALED, tmp_path / "m.onnx")
    journal = request().journal(tmp_path / "j", Part.of_model(model))
    search(request(), tmp_path / "k", Part.of_model(model))
    done = [json.loads(line) for line in next((tmp_path / "k").iterdir()).read_text().splitlines()]
    largest = [each["at"] for each in done if "at" in each][-1]
    journal.at(largest)
    searched, found = search(request(), tmp_path / "j", Part.of_model(model))
    assert searched.died == 1
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "graph",
    [
        f"float[b,1,6,s] x; r = Relu(x)  t = {HEADS}(r)  y = Relu(t)",
        f"float[b,6,s] x; r = Relu(x)  v = Reshape(r, {{0, 1, 6, -1}})  t = {HEADS}(v)  y = Relu(t)",
    ],
)
def test_a_view_that_the_library_makes_is_known(tmp_path: Path, graph: str):
    _, found = search(request(without=frozenset()), tmp_path / "j", Part.of_model(saved(graph, tmp_path / "m.onnx")))
    views = [f for f in found if f.substitute == ("Reshape",)]
    assert views
    assert {f.status for f in views} == {KNOWN}


def test_a_torn_line_is_none(tmp_path: Path):
    journal = Journal(tmp_path / "j.jsonl")
    journal.add(Searched("m.onnx", 3))
    text = (tmp_path / "j.jsonl").read_text()
    (tmp_path / "j.jsonl").write_text(text + text[:20])
    assert Journal(tmp_path / "j.jsonl").searched == Searched("m.onnx", 3)


@pytest.mark.slow
def test_no_time_is_left(tmp_path: Path):
    model = saved(SCALED, tmp_path / "m.onnx")
    searched, found = search(request(deadline=0.0), tmp_path / "j", Part.of_model(model))
    assert not searched.is_complete
    assert found == []
    assert search(request(nodes=1), tmp_path / "j", Part.of_model(model))[0].is_complete


def finding(key: str, name: str, model: str, text: str = "") -> Finding:
    return Finding(key, name, FOUND, model, ("Mul",), ("Gelu",), {model: ["y"]}, text=text)


def test_one_rule_of_several_models_is_one():
    text = '"gelu-of-mul"\ndef to_gelu_of_mul(m): pass'
    found = merged(
        [
            finding("1", "gelu-of-mul", "a", text),
            finding("1", "gelu-of-mul", "b"),
            finding("2", "gelu-of-mul", "b", text),
        ]
    )
    assert [f.name for f in found] == ["gelu-of-mul", "gelu-of-mul-2"]
    assert found[0].places == {"a": ["y"], "b": ["y"]}
    assert found[1].text == '"gelu-of-mul-2"\ndef to_gelu_of_mul_2(m): pass'


@pytest.mark.slow
def test_what_is_found_runs_as_a_plugin(tmp_path: Path):
    gelu = "float[b,s,512] x; d = Div(x, 1.41421354)  e = Erf(d)  a = Add(e, 1.0)  y = Mul(x, a)"
    saved(gelu, tmp_path / "m.onnx")
    steps: list[tuple[str, int, int]] = []
    asked = request(nodes=4, count=40)
    found = discover([tmp_path / "m.onnx"], tmp_path / "rules", asked, progress=lambda *step: steps.append(step))
    assert found.is_complete
    assert steps == [("search", 0, 1), ("search", 1, 0)]  # the first before a search that may take minutes
    (name, file), *_ = found.files.items()
    rule = load_rule(tmp_path / "rules" / file, name)
    for example in rule.examples:
        check_example(rule, example)
    made = rw.apply(tmp_path / "m.onnx", rules=[str(tmp_path / "rules" / file)], only=[name], lower="fused")
    assert [n.op_type for n in made.model.graph] == ["Gelu", "Mul"]
    assert made.checks.undone == {}
    assert list((tmp_path / "rules" / JOURNALS).iterdir())
