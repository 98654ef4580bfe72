"""What is hidden from a rule, and what it computes all the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import pytest

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.rewrite import registry
from onnxrewrite.ruletest.fuzz.instances import instances
from onnxrewrite.ruletest.fuzz.starts import starts
from onnxrewrite.ruletest.fuzz.variations import (
    hidden,
    is_veil,
    raised,
    told,
    unranked,
    unveiled,
    without_sizes,
)
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.ruletest.metamorphic.mutants import with_facts
from onnxrewrite.ruletest.metamorphic.running import feeder, is_same

GRAPH = "float[2,3] x; a = Relu(x)  y = Unsqueeze(a, {0})"

LIBRARY = list(registry.load(plugins=False))


def varied(variation: Callable[..., str | None], seed: int = 0) -> tuple[ir.Model, ir.Model]:
    """A model, and the same after one variation."""
    model = with_facts(text.parse(GRAPH, opset=17))
    draft = Draft(model)
    assert variation(draft, list(draft.graph), random.Random(seed)) is not None
    return model, draft.done()


def unsized(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str:
    """The sizes of the input, hidden."""
    node, value = nodes[0], draft.graph.inputs[0]
    node.replace_input_with(0, without_sizes(draft, node, value))
    return "its sizes are unknown"


@pytest.mark.parametrize("variation", [unranked, hidden, unsized])
def test_what_hides_something_changes_nothing(variation: Callable[..., str | None]) -> None:
    before, after = varied(variation)
    old, new = feeder(before), feeder(after)
    assert old is not None
    assert new is not None
    feeds = new.feeds()
    assert is_same(old.run({"x": feeds["x"]}), new.run(feeds))
    assert any(map(is_veil, after.graph))


def test_a_hidden_rank_is_not_known() -> None:
    _, after = varied(unranked)
    facts = Facts(after.graph, after.opset_imports)
    veiled = next(n for n in after.graph if is_veil(n) and n.op_type == "Reshape")
    assert facts.rank(veiled.outputs[0]) is None
    assert facts.rank(after.graph.inputs[0]) == 2


def test_of_hidden_sizes_the_rank_is_known_and_nothing_else() -> None:
    _, after = varied(unsized)
    facts = Facts(after.graph, after.opset_imports)
    veiled = next(n for n in after.graph if is_veil(n) and n.op_type == "Reshape")
    shape = facts.shape(veiled.outputs[0])
    assert shape is not None
    assert len(shape) == 2
    assert not any(isinstance(d, int) for d in shape)


def test_a_hidden_list_is_not_constant() -> None:
    _, after = varied(hidden)
    facts = Facts(after.graph, after.opset_imports)
    node = next(n for n in after.graph if n.op_type == "Unsqueeze")
    assert node.inputs[1] is not None
    assert facts.constant(node.inputs[1]) is None


def test_nothing_is_hidden_in_an_unveiled_copy() -> None:
    before, after = varied(unranked)
    node = next(n for n in unveiled(after).graph if n.op_type == "Relu")
    assert node.inputs[0] is not None
    assert node.inputs[0].name == before.graph.inputs[0].name


def test_an_axis_more_comes_first_last_and_between() -> None:
    shapes = {tuple(map(str, varied(raised, seed)[1].graph.inputs[0].shape or ())) for seed in range(40)}
    assert {len(s) for s in shapes} == {3}
    assert {s.index("more") for s in shapes if "more" in s} == {0, 1, 2}


def named(name: str) -> list[ir.Model]:
    rule = next(r for r in LIBRARY if r.name == name)
    return [s.model for s in starts(rule, LIBRARY)]


@pytest.mark.slow
def test_every_operator_that_a_pattern_takes_has_its_turn() -> None:
    operators = {n.op_type for m in named("pad-into-max-pool") for n in m.graph}
    assert {"Relu", "Sigmoid", "Abs", "Exp", "Clip"} <= operators


@pytest.mark.slow
def test_examples_are_also_in_other_dtypes_and_sizes() -> None:
    inputs = [v for m in named("transpose-transpose") for v in m.graph.inputs]
    assert {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64, ir.DataType.BOOL} <= {v.dtype for v in inputs}
    assert any("last" in map(str, v.shape or ()) for m in named("slice-of-slice") for v in m.graph.inputs)


@pytest.mark.slow
def test_every_attribute_is_off_its_default_once() -> None:
    rule = next(r for r in LIBRARY if r.name == "pad-into-average-pool")
    changes = [c for i in instances(starts(rule, LIBRARY), 120) for c in i.variations[:1]]
    for name in ("strides", "ceil_mode", "count_include_pad", "auto_pad", "mode"):
        assert any(c.startswith(f"{name} of ") for c in changes), name


@pytest.mark.slow
def test_an_instance_depends_on_the_seed_alone() -> None:
    rule = next(r for r in LIBRARY if r.name == "swish")
    first, again, other = (
        [text.print_model(i.before) for i in instances(starts(rule, LIBRARY, seed), 40, seed)] for seed in (0, 0, 1)
    )
    assert first == again
    assert np.any([a != b for a, b in zip(first, other, strict=False)])


def test_lists_that_can_be_told_are_constants_and_others_are_not() -> None:
    graph = "float[2,3] x; int64[1] k; a = Identity({1})  b = Cast<to=7>(a)  y = Slice(x, {0}, k, b)"
    slicing = told(text.parse(graph, opset=17)).graph[-1]
    assert [node.op_type for node in told(text.parse(graph, opset=17)).graph] == ["Slice"]
    assert [v is not None and v.is_initializer() for v in slicing.inputs] == [False, True, False, True]
    assert slicing.inputs[3] is not None
    assert slicing.inputs[3].const_value is not None
    assert slicing.inputs[3].const_value.numpy().tolist() == [1]
