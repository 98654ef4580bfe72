"""Models in segments: they compute what the whole computes, and a fault is in the segment that differs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from corpus import GOLDEN_FILES, few
from hypothesis import given
from hypothesis import strategies as st

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.checks import model as model_check
from onnxrewrite.checks import segments
from onnxrewrite.checks.model import Baseline
from onnxrewrite.checks.rewrites import SiteChecker
from onnxrewrite.checks.segments import SegmentRunner, again, side_by_side
from onnxrewrite.compiler.loop import RewriteLoop
from onnxrewrite.inputs.sample import Sampler, usable
from onnxrewrite.ir import text
from onnxrewrite.reference.evaluation import quantized_ops
from onnxrewrite.reference.runs import Run
from onnxrewrite.report.table import apply_facts
from onnxrewrite.rules import AnyNode, Rule, Stage
from onnxrewrite.runtime.session import Session, open_session

LAYERS = 12


def chain(layers: int = LAYERS, *, change: str = "", at: int = -1) -> onnx.ModelProto:
    """Layers of twelve nodes with a residual connection, and a mask that all of them read; one of them may differ."""
    body = ["m = Mul(mask, -9.0)"]
    for i in range(layers):
        steps = ["Tanh", "Erf", "Sigmoid", "Neg", "Abs", "Exp", "Softplus", "Atan", "Tanh"]
        steps[4] = change if i == at and change else steps[4]
        body.append(f"a{i}_0 = Add(x{i}, m)")
        body += [f"a{i}_{n + 1} = {op_type}(a{i}_{n})" for n, op_type in enumerate(steps)]
        body.append(f"x{i + 1} = Add(x{i}, a{i}_{len(steps)})")
    source = f"(float[n,4] x0, float[n,4] mask) => (float[n,4] x{layers}) {{ {'  '.join(body)} }}"
    return ir.to_proto(text.parse(source))


def runs_of(model: onnx.ModelProto) -> list[Run]:
    session = open_session(model)
    assert isinstance(session, Session)
    trials, _ = usable(Sampler(model), session)
    return [Run(t.binding, "sample 0", t.feeds, t.outputs) for t in trials]


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda p: p.parent.name)
def test_in_segments_a_model_computes_what_it_computes(path: Path) -> None:
    model = onnx.load(path)
    session = open_session(model, threads=1)
    assert isinstance(session, Session)
    trials, _ = usable(Sampler(model), session)
    runner = SegmentRunner(model, threads=1)
    for trial in trials:
        made = runner.run(trial.feeds)
        assert not isinstance(made, str), made
        assert made.keys() == trial.outputs.keys()
        assert all(np.array_equal(made[n], v, equal_nan=True) for n, v in trial.outputs.items())  # type: ignore[arg-type]


@pytest.mark.parametrize("path", few(GOLDEN_FILES))
def test_a_right_result_is_right_in_segments(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rewritten = onnx.load(path), rw.apply(path, lower="fused", check="off").model
    monkeypatch.setattr(model_check, "LARGE", -1)
    found = Baseline(model, samples=1).check(io.to_proto(rewritten))
    assert found.ok, found.failures
    assert found.skipped is None
    assert found.segments > 0 or quantized_ops(model)


def test_a_fault_is_in_the_segment_that_differs() -> None:
    original = chain()
    for at in (0, 5, LAYERS - 1):
        steps = list(side_by_side(original, chain(change="Identity", at=at), runs_of(original)))
        assert len(steps) > 3
        faulty = [
            step
            for step in steps
            if any(not np.array_equal(r.outputs[n], m[n]) for r, m in zip(step.runs, step.made, strict=True) for n in m)  # type: ignore[arg-type]
        ]
        assert len(faulty) == 1, "what the original computed feeds both sides: a fault does not spread"
        assert f"a{at}_5" in faulty[0].segment.made
        assert len(faulty[0].segment.made) < 3 * segments.FEWEST + segments.CHEAP


def test_a_segment_runs_again_by_itself() -> None:
    original = chain()
    first, second, *_ = side_by_side(original, original, runs_of(original))
    made = again(chain(change="Identity", at=LAYERS - 1), second.runs)
    assert isinstance(made, list)
    for run, outputs in zip(second.runs, made, strict=True):
        assert outputs.keys() == run.outputs.keys()
        assert all(np.array_equal(np.asarray(outputs[n]), np.asarray(run.outputs[n])) for n in outputs)
    assert again(original, [replace(r, feeds={}) for r in second.runs]) is None, "it reads what the first one computes"
    assert again(first.segment.model, second.runs) is None, "it does not compute what the second one does"


def test_segments_are_computed_once() -> None:
    original = chain()
    steps = list(side_by_side(original, original, runs_of(original)))
    assert sum(len(step.segment.model.graph.node) for step in steps) <= 1.1 * len(original.graph.node)


def test_a_fault_is_found_by_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a model that is compared as a whole, too: rewrites elsewhere are not suspected."""
    monkeypatch.setattr(SiteChecker, "__call__", lambda self, site: None)
    rounds: list[set[Any]] = []
    rewrite = RewriteLoop.rewrite

    def counted(self: Any, quarantine: set[Any]) -> Any:
        rounds.append(set(quarantine))
        return rewrite(self, quarantine)

    checked: list[Any] = []
    check = Baseline.check
    monkeypatch.setattr(Baseline, "check", lambda *args: checked.append(args) or check(*args))
    monkeypatch.setattr(RewriteLoop, "rewrite", counted)

    def wrong(m: Any, b: Any) -> Any:
        m.require(m.node(node).outputs[0].name == "a7_5", "elsewhere")
        return b.Sin(m.node(node).inputs[0])

    def right(m: Any, b: Any) -> Any:
        m.require(m.node(other).inputs[0].producer().op_type != "Neg", "done already")
        return b.Neg(b.Atan(b.Neg(m.node(other).inputs[0])))

    node, other = AnyNode(op_types=("Abs",)), AnyNode(op_types=("Atan",))
    rules = [Rule("wrong", Stage.RAISE, node, wrong), Rule("right", Stage.RAISE, other, right)]
    for limit, line in ((model_check.LARGE, "output x12"), (-1, "segment ")):
        rounds.clear()
        checked.clear()
        monkeypatch.setattr(model_check, "LARGE", limit)
        result = rw.apply(chain(), rules=rules, only=["wrong", "right"], check="fast")
        assert result.checks.undone.keys() == {("wrong", "a7_5")}
        assert result.checks.undone["wrong", "a7_5"].startswith(line)
        assert result.trace.counts() == {"right": LAYERS}
        assert len(rounds) <= 5, "all, those of the segment, halves of few, all but one"
        assert len(checked) == 2, "the wrong result and the right one: the segment alone is tried again in between"


def test_the_report_says_how_it_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_check, "LARGE", -1)
    result = rw.apply(chain(), check="fast")
    assert result.checks.model is not None
    count = result.checks.model.segments
    assert count > 1
    (told,) = (fact for _, fact in apply_facts(result.to_json(), verbose=False) if "whole model" in fact)
    assert told.endswith(f"in {count} segments, each fed by the original")
    assert result.to_json()["checks"]["model"]["segments"] == count


def test_what_is_no_tensor_is_computed_again() -> None:
    """A sequence crosses all cuts."""
    body = "s = SequenceConstruct(x0, x0)  " + "  ".join(f"x{i + 1} = Tanh(x{i})" for i in range(100))
    last = "{0}  t = SequenceAt(s, 1)  y = Add(x100, t)"
    model = ir.to_proto(text.parse(f"(float[n] x0) => (float[n] y) {{ {last.format(body)} }}"))
    (run, *_) = runs_of(model)
    made = SegmentRunner(model).run(run.feeds)
    assert not isinstance(made, str)
    np.testing.assert_array_equal(made["y"], run.outputs["y"])  # type: ignore[arg-type]


def test_what_is_random_is_compared_in_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_check, "LARGE", -1)
    body = "  ".join(f"x{i + 1} = Tanh(x{i})" for i in range(60))
    source = (
        "(float[n] x0) => (float[n] y, float[n] z) { %s  r = RandomUniformLike(x60)  y = Add(x60, r)  z = Neg(x60) }"
    )
    model = ir.to_proto(text.parse(source % body))
    found = Baseline(model).check(model)
    assert found.ok
    assert found.skipped is not None
    assert "RandomUniformLike" in found.skipped


def test_a_model_that_does_not_run_is_skipped_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_check, "LARGE", -1)
    model = ir.to_proto(text.parse("(float[n,2] x) => (float[k] y) { y = Reshape(x, {1, 77777}) }"))
    found = Baseline(model).check(model)
    assert found.skipped is not None
    assert "no inputs found" in found.skipped


def test_a_segment_that_does_not_open_by_itself_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_check, "LARGE", -1)
    original = chain(4)
    baseline = Baseline(original)
    assert baseline.runs
    monkeypatch.setattr(segments, "_opened", lambda model, threads: "no kernel")
    found = baseline.check(original)
    assert found.ok
    assert found.skipped == "segment 1, up to x4, does not open by itself: no kernel"
    assert baseline.fault(original) is None


def test_an_original_that_runs_up_to_a_segment_only_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs of a check need not be those at which the baseline ran: here those of a later segment are gone."""
    monkeypatch.setattr(model_check, "LARGE", -1)
    body = "  ".join(f"x{i + 1} = Tanh(x{i})" for i in range(80))
    model = ir.to_proto(text.parse(f"(float[n] x0, int64[m] s) => (float[m] y) {{ {body}  y = Expand(x80, s) }}"))
    baseline = Baseline(model, inputs={"x0": np.zeros(3, np.float32), "s": np.array([3], np.int64)})
    baseline.runs[:] = [replace(run, feeds={**run.feeds, "s": np.array([2], np.int64)}) for run in baseline.runs]
    found = baseline.check(model)
    assert found.skipped is not None
    assert "runs at no inputs of the original" in found.skipped


def test_behind_the_last_output_there_is_no_segment() -> None:
    body = "  ".join(f"x{i + 1} = Tanh(x{i})" for i in range(150))
    model = ir.to_proto(text.parse(f"(float[n] x0) => (float[n] x60) {{ {body} }}"))
    steps = list(side_by_side(model, model, runs_of(model)))
    assert any("x60" in step.segment.outputs for step in steps)
    assert all(step.segment.outputs and step.runs for step in steps)
    assert "x150" not in {name for step in steps for name in step.segment.made}


@pytest.mark.slow
def test_the_work_is_linear_in_nodes() -> None:
    """Opening aside: cutting 10 times the nodes takes no more than 25 times as long."""

    def seconds(model: onnx.ModelProto) -> float:
        start = time.process_time()
        graph = segments._Graph(model)
        assert len(list(graph.cuts(set(graph.producers)))) >= len(graph.nodes) // segments.MOST
        return time.process_time() - start

    few, many = chain(100), chain(1000)
    assert min(seconds(many) for _ in range(3)) < 25 * min(seconds(few) for _ in range(3))


UNARY = ("Tanh", "Neg", "Abs", "Sigmoid", "Erf")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[str, list[int]]], int, str]:
    """Nodes that read earlier ones, most of them recent; one of them, and another operator for it."""
    nodes: list[tuple[str, list[int]]] = []
    for place in range(draw(st.integers(60, 200))):
        reach = place if draw(st.integers(0, 9)) == 0 else min(place, 3)
        reads = [place - draw(st.integers(0, reach)) for _ in range(draw(st.integers(1, 2)))]
        nodes.append(
            (draw(st.sampled_from(UNARY)) if len(reads) == 1 else draw(st.sampled_from(["Add", "Max"])), reads)
        )
    changed = draw(st.integers(0, len(nodes) - 1))
    others = UNARY if len(nodes[changed][1]) == 1 else ("Add", "Max")
    return nodes, changed, draw(st.sampled_from([o for o in others if o != nodes[changed][0]]))


def _built(nodes: list[tuple[str, list[int]]]) -> onnx.ModelProto:
    lines = [f"v{i + 1} = {op_type}({', '.join(f'v{r}' for r in reads)})" for i, (op_type, reads) in enumerate(nodes)]
    source = f"(float[n,3] v0) => (float[n,3] v{len(nodes)}) {{ {'  '.join(lines)} }}"
    return ir.to_proto(text.parse(source))


@pytest.mark.slow
@given(graphs())
def test_whatever_the_graph(drawn: tuple[list[tuple[str, list[int]]], int, str]) -> None:
    """Segments compute what the whole computes; and where they are equal, so are the wholes."""
    nodes, changed, other = drawn
    original = _built(nodes)
    mutant = _built([(other if i == changed else n, r) for i, (n, r) in enumerate(nodes)])
    runs = runs_of(original)
    (name,) = runs[0].outputs
    result = SegmentRunner(original).run(runs[0].feeds)
    assert not isinstance(result, str)
    np.testing.assert_array_equal(result[name], runs[0].outputs[name])  # type: ignore[arg-type]
    differs = [
        step
        for step in side_by_side(original, mutant, runs)
        for run, made in zip(step.runs, step.made, strict=True)
        if any(not np.array_equal(run.outputs[n], made[n]) for n in made)  # type: ignore[arg-type]
    ]
    session = open_session(mutant)
    assert isinstance(session, Session)
    whole = [session.run(run.feeds) for run in runs]
    if any(not np.array_equal(w[name], r.outputs[name]) for w, r in zip(whole, runs, strict=True)):  # type: ignore[index, arg-type]
        assert differs


def test_a_model_without_a_run_has_no_fault_that_could_be_told() -> None:
    model = ir.to_proto(text.parse("(float[n,2] x) => (float[k] y) { y = Reshape(x, {1, 77777}) }"))
    assert Baseline(model).fault(model) is None
