"""Layers that are alike: what is done again comes out as if everything had been searched."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import graphs
from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import driver, registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.layers import Marks, Place, Repetition
from onnxrewrite.rewrite.trace import Trace

LAYERS = 9


def rewritten(model: ir.Model, **options: Any) -> tuple[str, Trace]:
    """The result of all rules but those that only pay where it is measured."""
    copy = ir.from_proto(ir.to_proto(model))
    rules = [r for r in registry.load(plugins=False).select() if not r.needs_speedup]
    made = Driver(copy, rules, target("onnxruntime-cpu"), **options)
    trace = made.run()
    return text.print_model(made.model), trace


def stack(layers: list[str], *, weights: Mapping[str, str] = MappingProxyType({})) -> ir.Model:
    """A model of layers, each of which reads ``{x}`` and has one of its own ``{w}`` and ``{b}``, and computes ``{y}``."""
    rng = np.random.default_rng(0)
    consts, body = [], []
    for number, layer in enumerate(layers):
        kinds = {"w": rng.random(4).tolist(), "b": rng.random(4).tolist()}
        for name, kind in kinds.items():
            told = weights.get(f"{name}{number}", ", ".join(map(str, kind)))
            consts.append(f"float[4] {name}{number} = {{{told}}}")
        names = {name: f"{name}{number}" for name in ("w", "b", "t", "u", "v", "s")}
        body.append(layer.format(**names, x=f"x{number}", y=f"x{number + 1}"))
    source = f"(float[n, 4] x0) => (float[n, 4] x{len(layers)}) <{', '.join(consts)}> {{ {'  '.join(body)} }}"
    return text.parse(source, opset=18)


GELU = (
    "{t} = Mul({x}, {w})  {u} = Add({t}, {b})  {v} = Sigmoid({u})  {s} = Mul({u}, {v})  {t}a = Transpose<perm=[1,0]>({s})  "
    "{t}b = Relu({t}a)  {u}c = Transpose<perm=[1,0]>({t}b)  {u}d = Identity({u}c)  {u}e = Neg({u}d)  {y} = Neg({u}e)"
)
OTHERS = [
    GELU.replace("Sigmoid", "Tanh"),
    GELU.replace("{t}b = Relu({t}a)", "{t}b = Exp({t}a)"),
    GELU.replace("{u}e = Neg({u}d)", "{u}e = Neg({x})"),
]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """How many visits were made, and how many were only believed."""
    count: Counter[bool] = Counter()
    note = Repetition.note

    def counting(self: Repetition, *given: Any, believed: bool) -> None:
        count[believed] += 1
        note(self, *given, believed=believed)

    monkeypatch.setattr(Repetition, "note", counting)
    return count


def both(model: ir.Model, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Trace:
    """The trace of a run, which is that of a run that searches every layer."""
    monkeypatch.setattr(driver, "_MANY", 1)
    result, trace = rewritten(model, **options)
    monkeypatch.setattr(driver, "_MANY", 10**9)
    expected, searched = rewritten(model, **options)
    assert result == expected
    assert [a.key for a in trace.applied] == [a.key for a in searched.applied]
    assert {rule: set(values) for rule, values in trace.refused.items()} == {
        rule: set(values) for rule, values in searched.refused.items()
    }
    return trace


def test_equal_layers_are_searched_once(monkeypatch: pytest.MonkeyPatch, counted: Counter[bool]) -> None:
    trace = both(stack([GELU] * 40), monkeypatch)
    assert counted[True] > 200
    assert trace.counts()["transpose-transpose"] or trace.counts()["transpose-motion"]


@pytest.mark.slow
@settings(max_examples=25, deadline=None, database=None)
@given(st.integers(0, 2**32))
def test_other_layers_among_equal_ones(number: int) -> None:
    """Other layers, other constants, and values that are read once more: wherever they are."""
    dice = random.Random(number)
    layers, weights = [GELU] * dice.randint(6, 14), {}
    for _ in range(dice.randint(0, 3)):
        layers[dice.randrange(len(layers))] = dice.choice(OTHERS)
    for _ in range(dice.randint(0, 2)):
        weights[f"{dice.choice('wb')}{dice.randrange(len(layers))}"] = dice.choice(["0, 0, 0, 0", "1, 1, 1, 1"])
    with pytest.MonkeyPatch.context() as patch:
        both(stack(layers, weights=weights), patch)


@pytest.mark.slow
def test_a_transformer(monkeypatch: pytest.MonkeyPatch, counted: Counter[bool]) -> None:
    both(graphs.transformer(64 * LAYERS), monkeypatch)
    assert counted[True] > 300


@pytest.mark.parametrize("layer", [0, 3, 5, LAYERS - 1])
def test_a_site_that_is_left_alone_in_one_layer(layer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = stack([GELU] * LAYERS)
    _, trace = rewritten(model)
    for key in [a.key for a in trace.applied][layer :: len(trace.applied) // 3]:
        both(model, monkeypatch, quarantine={key})


def test_a_check_that_turns_down_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter[str]()

    def check(site: Any) -> str | None:
        asked[site.rule] += 1
        return "no" if site.value.endswith("5") else None

    both(stack([GELU] * LAYERS), monkeypatch, review=driver.Review(check))
    assert asked, "every layer is checked"


def test_the_places_of_nodes() -> None:
    model = stack([GELU] * LAYERS)
    seen = Repetition(1)
    seen.find(list(model.graph), Marks(Facts(model.graph, dict(model.opset_imports))))
    places = [seen._places[node] for node in model.graph if node in seen._places]
    size = len(model.graph) // LAYERS
    assert {p.layer for p in places} >= set(range(LAYERS - 1))
    assert all(isinstance(p, Place) and p.role == places[i % size].role for i, p in enumerate(places))


def test_few_layers_are_no_stack() -> None:
    model = stack([GELU] * 3)
    seen = Repetition(1)
    seen.find(list(model.graph), Marks(Facts(model.graph, dict(model.opset_imports))))
    assert not seen._places
