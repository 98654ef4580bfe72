"""Every rule in equal spellings and on near misses; and that the generator would find a rule that is deaf or wrong."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest
from library import RULES, seeds_of

from onnxrewrite.ir import text
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rules import FLOATS, AnyNode, Builder, Match, Rewrites, Scalar, Stage, Var, op
from onnxrewrite.ruletest.metamorphic import near_misses, seeds, spellings
from onnxrewrite.ruletest.metamorphic.running import difference, small_sizes
from onnxrewrite.runtime.session import as_proto

COUNT = 8

x = Var("x", dtype=FLOATS)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_matches_every_spelling(rule: Rule) -> None:
    found = list(spellings(seeds_of(rule.name), COUNT))
    assert len(found) == COUNT
    missed = [s for s in found if not s.matched()]
    assert not missed, text.print_model(missed[0].model)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_makes_nothing_wrong_of_a_near_miss(rule: Rule) -> None:
    for each in near_misses(seeds_of(rule.name), COUNT):
        assert each.wrong is None, (each.mistake, each.wrong, text.print_model(each.model))


# -- the generator itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gelu-tanh", "swish", "hard-sigmoid", "scale-into-layer", "where-decided"])
def test_spellings_compute_the_same(name: str) -> None:
    for each in spellings([s for s in seeds_of(name) if s.feeder is not None], COUNT, seed=1):
        assert difference(each.seed.model, each.model) is None, text.print_model(each.model)


@pytest.mark.parametrize(("opset", "is_empty"), [(9, False), (13, True)])
def test_zeros_are_tried_where_shapes_are_known_to_fit(opset: int, is_empty: bool) -> None:
    """Before opset 11 shape inference says nothing of an axis from the end."""
    model = text.parse("float[n,1] x; y = Concat<axis=-1>(x, x)", opset=opset)
    assert ({"n": 0} in small_sizes(as_proto(model), edges=True)) == is_empty


def test_the_same_seed_gives_the_same_spellings() -> None:
    def texts(seed: int) -> list[str]:
        return [text.print_model(s.model) for s in spellings(seeds_of("gelu-erf"), 8, seed)]

    assert texts(5) == texts(5) != texts(6)


def test_spellings_vary_all_that_is_promised() -> None:
    seen: Counter[str] = Counter()
    for each in spellings([*seeds_of("gelu-tanh"), *seeds_of("gelu-erf")], 200):
        seen.update(n.op_type for n in each.model.graph)
        constants = [v.const_value for v in each.model.graph.initializers.values()]
        seen.update(f"rank {len(c.shape)}" for c in constants if c is not None)
        seen.update(str(v.dtype) for v in each.model.graph.inputs)
    wanted = {"Mul", "Div", "Add", "Sub", "Sum", "Neg", "Reciprocal", "Pow", "Identity", "Cast", "Constant"}
    assert wanted | {"rank 0", "rank 1", "rank 2", "FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"} <= set(seen)
    assert min(seen[w] for w in wanted) >= 10, seen


def to_swish(m: Match, build: Builder) -> ir.Value:
    """Stands for any rewrite."""
    return build.Relu(m[x])


def third_partys(pattern: object, *examples: str, rewrite: object = to_swish) -> Rule:
    given = tuple(Rewrites(e, to="") for e in examples)
    return Rule("tried", Stage.CANONICALIZE, pattern, rewrite, given)  # type: ignore[arg-type]


def missed(rule: Rule, count: int = 100) -> list[str]:
    return [text.print_model(s.model) for s in spellings(seeds(rule, [rule]), count) if not s.matched()]


def test_a_rule_of_somebody_else_with_a_power() -> None:
    rule = third_partys(
        op.Tanh(x / op.Sqrt(op.Exp(x) + 0.1)), "e = Exp(x) a = Add(e, 0.1) r = Sqrt(a) d = Div(x, r) y = Tanh(d)"
    )
    assert not missed(rule)
    written = [s.model for s in spellings(seeds(rule, [rule]), 100)]
    assert {"Sqrt", "Pow"} <= {n.op_type for m in written for n in m.graph}


def test_an_explicit_operator_keeps_its_spelling() -> None:
    rule = third_partys(op.Tanh(op.Div(x, 4.0)), "d = Div(x, 4.0) y = Tanh(d)")
    assert not missed(rule)
    assert all("Div" in {n.op_type for n in s.model.graph} for s in spellings(seeds(rule, [rule]), 50))


def deaf(node: ir.Node, facts: object) -> bool:
    """Whether the operand is written by a Div, right before and on the left."""
    above = node.inputs[0].producer() if node.inputs[0] is not None else None
    return node.op_type == "Mul" and above is not None and above.op_type == "Div"


def test_a_deaf_rule_is_found() -> None:
    def rewrite(m: Match, build: Builder) -> ir.Value:
        m.cover(m.node(anchor).inputs[0].producer())
        return build.Relu(m[anchor].producer().inputs[1])

    anchor = AnyNode(where=deaf)
    found = missed(third_partys(anchor, "float[3] x; float[3] z; d = Div(z, 4.0) y = Mul(d, x)", rewrite=rewrite))
    assert found
    assert any("Mul(x, d)" in m for m in found)
    assert any("Identity" in m or "Cast" in m for m in found)


FACTOR = Scalar("factor")


def careless(m: Match, build: Builder) -> ir.Value:
    """tanh(c·x) ⟶ Tanh(x·½), whatever c."""
    return build.Tanh(build.Mul(m[x], 0.5))


def careful(m: Match, build: Builder) -> ir.Value:
    """tanh(c·x) ⟶ Tanh(x·c)."""
    return build.Tanh(build.Mul(m[x], build.const(np.asarray(m[FACTOR]), like=x)))


@pytest.mark.parametrize(("rewrite", "is_wrong"), [(careless, True), (careful, False)])
def test_a_wrong_rule_is_found(rewrite: object, is_wrong: bool) -> None:
    rule = third_partys(op.Tanh(FACTOR * x), "float[3] x; m = Mul(x, 0.5) y = Tanh(m)", rewrite=rewrite)
    drawn = list(near_misses(seeds(rule, [rule]), 20))
    assert any(m.wrong for m in drawn) == is_wrong


@pytest.mark.slow
def test_a_value_that_is_needed_elsewhere_is_asked_for() -> None:
    kinds = Counter(m.mistake.split("`")[-1] for m in near_misses(seeds_of("gelu-erf"), 100))
    assert {" is an output", " is read by another node", " can be overridden"} <= set(kinds)


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ("float[2] x; input w = float[2] {1, 2}  y = Mul(w, x)", ""),
        ("float[2] x; input w = float[2] {1, 2}  y = Mul(x, {1.0, 2.0})", "error"),
        ("float[2] x; float[2] w; y = Mul(x, w)", "has lost its default"),
        ("float[2] x; input w = float[2] {1, 3}  y = Mul(x, w)", "has lost its default"),
    ],
)
def test_what_can_be_overridden_is(after: str, reason: str) -> None:
    before = text.parse("float[2] x; input w = float[2] {1, 2}  y = Mul(x, w)")
    assert reason in (difference(before, text.parse(after)) or "")
    assert bool(reason) == bool(difference(before, text.parse(after)))
