"""Kernels are chosen for the whole model: what competes is weighed, not taken in the order in which it is met."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.compiler.loop import RewriteLoop
from onnxrewrite.rules import Assumption, Builder, Match, Rule, Stage, Term, Value, Var, op

pytestmark = pytest.mark.usefixtures("quick_timing")

SIZE = 160
FINITE = (Assumption.FINITE,)
x = Var("x")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two detours, each of which begins and ends with an Atan."""
    products = " ".join(f"p{i} = MatMul({'a' if i == 0 else f'p{i - 1}'}, w)" for i in range(12))
    more = " ".join(f"q{i} = MatMul({'b' if i == 0 else f'q{i - 1}'}, w)" for i in range(12))
    text = f"a = Atan(x) {products} b = Atan(p11) {more} y = Atan(q11)"
    given = f"float[4,{SIZE}] x, float[{SIZE},{SIZE}] w"
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({given}) => (float[4,{SIZE}] y) {{ {text} }}'
    )
    del proto.graph.input[1]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(SIZE, dtype=np.float32), "w"))
    onnx.save(proto, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def chain(length: int) -> Term:
    """A product of so many, each of the one before."""
    found: Term = x
    for _ in range(length):
        found = op.MatMul(found, Var("w"))
    return found


def same(m: Match, build: Builder, count: int) -> Value:
    """x·I·I·… of ``count`` factors, which is x."""
    value, eye = m[x], build.const(np.eye(SIZE, dtype=np.float32))
    for _ in range(count):
        value = build.MatMul(value, eye)
    return value


def shorter(name: str, count: int, **settings: object) -> Rule:
    """atan(x·I¹²) ⟶ atan(x·I·…)."""
    return Rule(
        name,
        Stage.LOWER,
        op.Atan(chain(12)),
        lambda m, build: build.Atan(build.Sum(same(m, build, count), 0.0)),
        assumes=FINITE,
        **settings,  # type: ignore[arg-type]
    )


def apply(model: Path, *rules: Rule) -> rw.Result:
    return rw.apply(model, rules=rules, only=[r.name for r in rules], lower="fastest", threads=1, dims={})


def products(result: rw.Result) -> int:
    return sum(n.op_type == "MatMul" for n in result.model.graph)


def test_of_two_that_compete_the_faster_is_taken_and_not_the_first(model: Path) -> None:
    result = apply(model, shorter("first", 8, benefit=1), shorter("second", 2))
    assert (result.trace.counts()["first"], result.trace.counts()["second"]) == (0, 2)
    assert products(result) <= 4
    assert {key[0]: why for key, why in result.trace.declined.items()} == {"first": "another choice is faster"}
    assert [(raced.rewrites, raced.greedy) for raced in result.speed.raced if raced.taken] == [(2, False)]
    assert [raced.rewrites for raced in result.speed.raced if raced.greedy] == [2]


def test_a_step_that_is_slower_is_taken_for_the_next_one(model: Path) -> None:
    step = Rule(
        "step",
        Stage.LOWER,
        op.Atan(chain(12)),
        lambda m, b: b.Neg(b.Atan(b.Neg(same(m, b, 15)))),
        assumes=FINITE,
    )
    leap = Rule("leap", Stage.LOWER, op.Neg(op.Atan(op.Neg(chain(15)))), lambda m, b: b.Atan(m[x]), assumes=FINITE)
    result = apply(model, step, leap)
    assert result.trace.counts() == {"step": 2, "leap": 2}
    assert products(result) == 0
    assert products(apply(model, step)) == 24


def test_the_same_run_makes_the_same_choice_without_measuring(model: Path) -> None:
    rules = shorter("first", 8, benefit=1), shorter("second", 2)
    one, two = apply(model, *rules), apply(model, *rules)
    assert one.to_proto().SerializeToString() == two.to_proto().SerializeToString()
    assert one.speed.raced == two.speed.raced
    assert all(each.remembered for each in two.speed.weighed)


def test_what_was_chosen_is_chosen_again_without_trying(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (shorter("first", 8, benefit=1), shorter("second", 2))
    first = apply(model, *rules)
    tried: list[object] = []
    monkeypatch.setattr(RewriteLoop, "_copy_lowered", lambda *asked: tried.append(asked))
    again = apply(model, *rules)
    assert not tried
    assert io.to_proto(again.model).SerializeToString() == io.to_proto(first.model).SerializeToString()
    assert again.trace.declined == first.trace.declined
    assert again.speed.raced == first.speed.raced
    assert [replace(w, remembered=True) for w in first.speed.weighed] == again.speed.weighed


@pytest.mark.slow
def test_other_rules_are_another_choice(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply(model, shorter("first", 8, benefit=1), shorter("second", 2))
    tried: list[object] = []
    monkeypatch.setattr(RewriteLoop, "_copy_lowered", lambda *asked: tried.append(asked))
    apply(model, shorter("first", 8, benefit=1), shorter("second", 3))
    assert tried
