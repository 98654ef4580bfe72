"""Rules that are wrong, each in one way, and what the ladder says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.terms import microsoft
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rewrite.rule import Assumption
from onnxrewrite.rules import (
    FLOATS,
    INTS,
    AnyNode,
    Attr,
    Const,
    Match,
    Rewrites,
    Rule,
    Scalar,
    Stage,
    Value,
    Var,
    op,
    same_shape,
)
from onnxrewrite.ruletest.fuzz import Verdict, fuzz, judge, starts
from onnxrewrite.ruletest.fuzz.counterexample import save
from onnxrewrite.ruletest.fuzz.generation import grown
from onnxrewrite.ruletest.fuzz.instances import instances
from onnxrewrite.ruletest.metamorphic import seeds
from onnxrewrite.testing import check_counterexample

x, y, w, c = Var("x", dtype=FLOATS), Var("y", dtype=FLOATS), Const("w"), Scalar("c")


def rule(pattern: object, rewrite: object, *examples: str, **settings: object) -> Rule:
    made = tuple(Rewrites(e, to="") for e in examples)
    return Rule("tried", Stage.CANONICALIZE, pattern, rewrite, made, **settings)  # type: ignore[arg-type]


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
"""Graphs of one are enough for the quick tests."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few graphs are grown: of a rule that never fires, all of them are."""
    monkeypatch.setattr(starts, "MANY", 3)


def verdict(tried: Rule, count: int = 40, *, thorough: bool = True) -> Verdict:
    return fuzz(tried, [tried], count=count, thorough=thorough)


# -- wrong rules ---------------------------------------------------------------------------------------------

axis = Attr[int]("axis", -1)
centred = x - op.ReduceMean(x, axes=(axes := Attr("axes")))
variance = op.ReduceMean(centred * centred, axes=axes)


def last_axis(m: Match, build: Builder) -> Value:
    """(x - mean)/√(var + ε) ⟶ LayerNormalization(x), whatever the axes."""
    ones = np.ones((m.shape(x) or [1])[-1], np.float32)
    return build.LayerNormalization(m[x], build.const(ones, like=x), axis=-1, epsilon=m[c])


def other_eps(m: Match, build: Builder) -> Value:
    """(x - mean)/√(var + ε) ⟶ the same with another ε."""
    return build.Div(m.value(centred), build.Sqrt(build.Add(m.value(variance), np.float32(1e-5))))


some_slice, along = AnyNode(op_types=("Slice",)), Attr[tuple[int, ...]]("axes")

WRONG = {
    "drops what it does not know": rule(op.Relu(op.Relu(x)), lambda m, b: m[x]),
    "takes a default for granted": rule(
        op.Softmax(x, axis=axis), lambda m, b: b.Softmax(m[x]), "float[2,3,4] x; y = Softmax(x, axis=-1)"
    ),
    "loses a scale": rule(op.Tanh(x * c), lambda m, b: b.Tanh(m[x]), "float[2,3] x; m = Mul(x, 0.5) y = Tanh(m)"),
    "swaps operands": rule(
        op.MatMul(x, w), lambda m, b: b.MatMul(m.value(w), m[x]), "float[2,2] x; y = MatMul(x, float[2,2] {1, 2, 3, 4})"
    ),
    "loses a bias": rule(
        op.Gemm(x, w, Var("bias", default=None)),
        lambda m, b: b.MatMul(m[x], m[w]),
        "float[2,2] x; y = Gemm(x, float[2,2] {1, 2, 3, 4})",
    ),
    "knows one axis only": rule(
        centred / op.Sqrt(variance + c),
        last_axis,
        "float[2,3,4] x; m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes=[-1]>(q)"
        " a = Add(v, 0.00001) s = Sqrt(a) y = Div(d, s)",
    ),
    "forgets to ask for the sign": rule(op.Sqrt(x * x), lambda m, b: m[x], "float[3] x; m = Mul(x, x) y = Sqrt(m)"),
    "reads an overridable constant": rule(
        op.Add(x, Var("k")),
        lambda m, b: b.Add(m[x], np.float32(0.5)),
        "float[3] x; y = Add(x, 0.5)",
    ),
    "is right where the engine knows the shape": rule(
        some_slice,
        lambda m, b: m.node(some_slice).inputs[0],
        "float[4,5] z; r = Relu(z)  s = Slice(r, {0}, {5}, {1})  y = Abs(s)",
        "float[4,5] z; r = Relu(z)  s = Slice(r, {0}, {3}, {1})  y = Abs(s)",
    ),
    "asks for sizes that are alike where they are": rule(
        x - op.ReduceMax(x, axes=along, keepdims=Attr[int]("keepdims", 1)),
        lambda m, b: b.Sub(m[x], b.ReduceMax(m[x], axes=m[along], keepdims=1)),
        "float[2,3] x; m = ReduceMax<axes=[1], keepdims=1>(x)  y = Sub(x, m)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_refuted(name: str) -> None:
    found = verdict(WRONG[name], 100, thorough=False)  # that it is made small is asked below
    assert found.refuted, found
    assert found.counterexample is not None
    assert found.counterexample.reason
    assert "\n" not in found.counterexample.reason


def test_an_eps_that_is_too_large_is_refuted() -> None:
    """It differs at tiny inputs only."""
    eps = rule(
        op.ReduceMean(x, axes=(1,), keepdims=1) / op.Sqrt(op.ReduceMean(x * x, axes=(1,), keepdims=1) + 1e-12),
        lambda m, b: b.Div(
            b.ReduceMean(m[x], axes=[1], keepdims=1),
            b.Sqrt(b.Add(b.ReduceMean(b.Mul(m[x], m[x]), axes=[1], keepdims=1), np.float32(1e-6))),
        ),
        "float[2,4] x; m = ReduceMean<axes=[1], keepdims=1>(x) q = Mul(x, x) v = ReduceMean<axes=[1], keepdims=1>(q)"
        " a = Add(v, 1e-12) s = Sqrt(a) y = Div(m, s)",
    )
    assert verdict(eps, thorough=False).refuted


# -- right rules ---------------------------------------------------------------------------------------------

RIGHT = {
    "the same operator twice": rule(op.Relu(op.Relu(x)), lambda m, b: b.Relu(m[x])),
    "a scale that is kept": rule(
        op.Tanh(x * c),
        lambda m, b: b.Tanh(b.Mul(m[x], b.const(np.array(m[c]), like=x))),
        "float[2,3] x; m = Mul(x, 0.5) y = Tanh(m)",
    ),
    "an axis that is kept": rule(
        op.Softmax(op.Relu(op.Relu(x)), axis=axis),
        lambda m, b: b.Softmax(b.Relu(m[x]), axis=m[axis]),
        "float[2,3,4] x; r = Relu(x) s = Relu(r) y = Softmax(s, axis=1)",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_rule_passes(name: str) -> None:
    found = verdict(RIGHT[name])
    assert found.passed, found.counterexample
    assert found.instances >= 10


@pytest.mark.usefixtures("impatient")
def test_what_never_fires_is_not_called_tested() -> None:
    found = verdict(rule(op.Relu(op.Relu(x)), lambda m, b: m.refuse("never")))
    assert found.status == "not tried"
    assert not found.passed


REFUSING = {
    "refuses": (lambda m, b: m.refuse("never"), "never"),
    "raises": (lambda m, b: 1 / 0, "the rule raised ZeroDivisionError: division by zero at test_fuzzer.py:"),
    "returns nothing": (lambda m, b: None, "the rule must return 1 values, it returned None"),
}


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", REFUSING)
def test_what_never_fires_says_why(name: str) -> None:
    rewrite, reason = REFUSING[name]
    for example in ((), ("float[3] x; r = Relu(x) y = Relu(r)",)):
        (told,) = verdict(rule(op.Relu(op.Relu(x)), rewrite, *example), 5).refusals
        assert told.startswith(reason)


def is_relu(node: ir.Node, facts: Facts) -> bool:
    return node.op_type == "Relu"


UNGROWN = {
    "any node": (rule(AnyNode(), lambda m, b: m.anchor), "no graph can be made of its pattern: any node may stand"),
    "no kernel": (rule(microsoft.Foo(x), lambda m, b: m[x]), "ONNX Runtime does not run the graph: "),
    "an example without a kernel": (
        rule(
            AnyNode(where=is_relu),
            lambda m, b: b.Abs(m.nodes[0].inputs[0]),
            "float[3] x; s = Relu(x) y = com.microsoft.Foo(s)",
        ),
        "ONNX Runtime does not run the graph: ",
    ),
    "an example that does not match": (
        rule(AnyNode(["Relu"], where=lambda n, f: 1 / 0), lambda m, b: m.anchor, "float[3] x; y = Relu(x)"),
        "its pattern raised ZeroDivisionError: division by zero at test_fuzzer.py:",
    ),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", UNGROWN)
def test_a_pattern_of_which_nothing_is_made_says_why(name: str) -> None:
    tried, reason = UNGROWN[name]
    found = verdict(tried, 5)
    assert found.status == "not tried"
    assert any(told.startswith(reason) for told in found.refusals), found.refusals


@pytest.mark.slow
def test_refusals_are_counted_by_what_they_say() -> None:
    def even(m: Match, build: Builder) -> Value:
        """relu(relu(x)) ⟶ relu(x), for ranks that are no matrix."""
        m.require(m.rank(x) != 2, f"rank {m.rank(x)}", at=x)
        return build.Relu(m[x])

    found = verdict(rule(op.Relu(op.Relu(x)), even), 100)
    assert found.passed
    assert 0 < found.refusals["rank 2 (at `x_0`)"] <= found.refused


def tampering(m: Match, build: Builder) -> Value:
    """relu(relu(x)) ⟶ x, by hand."""
    producer = m.anchor.producer()
    assert producer is not None
    producer.replace_input_with(0, m[x])
    return m[x]


def test_a_graph_that_takes_too_much_memory_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(judge, "check_site", out_of_memory)
    found = verdict(rule(op.Relu(op.Relu(x)), lambda m, b: b.Relu(m[x])), 5)
    assert found.status == "not tried"
    assert list(found.not_run) == ["it takes more memory than there is"]


def test_a_rule_that_changes_the_graph_by_itself_is_refuted() -> None:
    found = verdict(rule(op.Relu(op.Relu(x)), tampering))
    assert found.refuted
    assert (found.reason, found.counterexample) == ("the rule itself changed the inputs of a node", None)


@pytest.mark.slow
def test_a_rule_that_only_known_ranks_keep_right_is_refuted() -> None:
    """Where both ranks are known, the engine sees that the result would lose an axis."""
    pattern = op.Mul(op.Unsqueeze(x, axes=(0,)), y)
    example = "float[4] x; float[3,4] y; u = Unsqueeze(x, {0}) z = Mul(u, y)"
    found = verdict(rule(pattern, lambda m, b: b.Mul(m[x], m[y]), example), 60)
    assert found.refuted
    assert "shape" in found.reason

    def ranked(m: Match, build: Builder) -> Value:
        """unsqueeze(x)·y ⟶ x·y, where the engine can see to it."""
        m.require(m.rank(m.outputs[0]) is not None, "the rank of the result must be known")
        return build.Mul(m[x], m[y])

    assert verdict(rule(pattern, ranked, example), 60).passed


@pytest.mark.slow
def test_so_is_one_that_only_known_sizes_keep_right() -> None:
    """Numbers are the same for any y, and sizes where y is not larger."""
    i, j, k = (Var(name, dtype=INTS) for name in "ijk")
    pattern = op.Max(op.Max(i, j), op.Min(op.Min(i, j), k))

    def ranked(m: Match, build: Builder) -> Value:
        """max(max(i, j), min(min(i, j), k)) ⟶ max(i, j), of known rank."""
        m.require(m.rank(m.outputs[0]) is not None, "the rank of the result must be known")
        return build.Max(m[i], m[j])

    example = "int64[2,3] i; int64[2,3] j; int64[2,3] k; a = Max(i, j) b = Min(i, j) c = Min(b, k) y = Max(a, c)"
    found = verdict(rule(pattern, ranked, example, allow_shared=True), 60)
    assert found.refuted
    assert "shape" in found.reason


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_so_is_one_that_is_wrong_where_the_axis_of_its_weights_is_empty(seed: int) -> None:
    """ONNX Runtime normalizes no row of nothing; beside the weights of the example, and along the first two of three
    axes, none is."""
    scale = Var("scale", dtype=FLOATS)
    last = x - op.ReduceMean(x, axes=(-1,))
    pattern = last / op.Sqrt(op.ReduceMean(last * last, axes=(-1,)) + c) * scale

    def fused(m: Match, build: Builder) -> Value:
        """(x - mean)/√(var + ε)·scale ⟶ LayerNormalization(x, scale)."""
        m.require(m[c] > 0, "epsilon must be positive")
        last = (m.shape(x) or [None])[-1:]
        m.require(same_shape(m.shape(scale), last), "scale must be as long as the last axis")
        return build.LayerNormalization(m[x], m[scale], axis=-1, epsilon=m[c])

    example = (
        "float[b,s,4] x; m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes=[-1]>(q)"
        " a = Add(v, 0.00001) r = Sqrt(a) n = Div(d, r) y = Mul(n, {1.0, 1.2, 0.75, 0.78})"
    )
    tried = rule(pattern, fused, example)
    found = fuzz(tried, [tried], seed=seed, count=30, thorough=False)
    assert found.refuted
    assert "must be at least 1, got 0" in found.reason


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("has_matrix", [False, True])
def test_so_is_one_that_is_wrong_where_a_weight_of_one_number_is_broadcast(has_matrix: bool, seed: int) -> None:
    """Beside a weight of one number the last axis may be empty, also where a matrix tells its size, which is no number
    to be broadcast; and of a weight that is an input the rule is not sure."""
    scale, matrix = Var("scale", dtype=FLOATS), Var("matrix")
    row = op.MatMul(x, matrix) if has_matrix else x

    def fused(m: Match, build: Builder) -> Value:
        """x/√(mean(x²) + ε)·scale ⟶ SimplifiedLayerNormalization(x, scale)."""
        m.require(m[c] > 0, "epsilon must be positive")
        m.require(m.facts.tensor(m.value(scale)) is not None, "scale must be constant")
        return build.SimplifiedLayerNormalization(m[row], m[scale], epsilon=m[c])

    example = (
        "h = MatMul(x, float[3,4] {1, -2, 3, 0, 2, -1, 1, 4, -3, 2, 0, 1})" if has_matrix else "h = Identity(x)"
    ) + (
        " q = Pow(h, 2.0) v = ReduceMean<axes=[-1]>(q) a = Add(v, 0.00001) r = Sqrt(a)"
        " n = Div(h, r) y = Mul(n, {1.0, 1.2, 0.75, 0.78})"
    )
    tried = rule(
        row / op.Sqrt(op.ReduceMean(row**2, axes=(-1,)) + c) * scale,
        fused,
        f"float[b,s,{3 if has_matrix else 4}] x; {example}",
    )
    found = fuzz(tried, [tried], seed=seed, count=30, thorough=False)
    assert found.refuted
    assert "must be at least 1, got 0" in found.reason


@pytest.mark.slow
def test_a_rule_of_a_kernel_that_dies_of_what_is_empty_is_tried() -> None:
    """ONNX Runtime's Einsum ends the process where there are no heads, and broadcasts a size of one."""
    q, k = Var("q", dtype=FLOATS), Var("k", dtype=FLOATS)

    def product(m: Match, build: Builder) -> Value:
        """Einsum(q, k) ⟶ MatMul(q, kᵀ)."""
        sizes, others = m.shape(q) or [], m.shape(k) or []
        m.require(same_shape([*sizes[:2], sizes[-1]], [*others[:2], others[-1]]), "sizes may be broadcast")
        return build.MatMul(m[q], build.Transpose(m[k], perm=(0, 1, 3, 2)))

    example = 'float[b,h,i,d] q; float[b,h,j,d] k; y = Einsum<equation="bhid,bhjd->bhij">(q, k)'
    found = verdict(rule(op.Einsum(q, k, equation="bhid,bhjd->bhij"), product, example), 20)
    assert found.passed, found.reason


def test_so_is_one_that_does_it_now_and_then() -> None:
    def sometimes(m: Match, build: Builder) -> Value:
        """relu(relu(x)) ⟶ relu(x), by hand for other ranks than that of the example."""
        return build.Relu(m[x]) if m.rank(x) == 3 else tampering(m, build)

    found = verdict(rule(op.Relu(op.Relu(x)), sometimes, "float[2,3,4] x; r = Relu(x) y = Relu(r)"))
    assert found.reason == "the rule itself changed the inputs of a node"


def test_what_another_rule_does_is_not_its_fault() -> None:
    def renaming(m: Match, build: Builder) -> Value:
        """relu(x) ⟶ abs(x), by hand."""
        m.nodes[0].op_type = "Abs"
        return m[x]

    right = rule(op.Relu(op.Relu(x)), lambda m, b: b.Relu(m[x]))
    bad = Rule("bad", Stage.LOWER, op.Relu(x), renaming)
    assert fuzz(right, [right, bad], count=10).passed
    assert fuzz(bad, [right, bad], count=10).reason == "the rule itself changed an operator"


@pytest.mark.slow
def test_an_assumption_is_told_and_not_tested() -> None:
    """max(x, -inf) is x unless x is NaN and the runtime's Max forgets it."""
    forgets = rule(op.Sub(x, x), lambda m, b: b.Mul(m[x], np.float32(0.0)), "float[3] x; y = Sub(x, x)")
    assert verdict(forgets).passed  # NaN and infinities give NaN on both sides
    zero = rule(op.Sub(x, x), lambda m, b: b.Mul(b.Abs(b.Sign(m[x])), np.float32(0.0)), "float[3] x; y = Sub(x, x)")
    assert verdict(zero).refuted
    assumes = rule(
        op.Sub(x, x),
        lambda m, b: b.Mul(b.Abs(b.Sign(m[x])), np.float32(0.0)),
        "float[3] x; y = Sub(x, x)",
        assumes=(Assumption.FINITE,),
    )
    found = verdict(assumes)
    assert found.passed
    assert found.assumes == ("inputs are finite",)
    assert "not finite" not in found.classes


def test_the_same_seed_gives_the_same_verdict() -> None:
    first, second = (verdict(WRONG["loses a scale"]) for _ in range(2))
    assert first.counterexample is not None
    assert second.counterexample is not None
    assert text.print_model(first.counterexample.before) == text.print_model(second.counterexample.before)
    assert first.counterexample.reason == second.counterexample.reason


# -- guards --------------------------------------------------------------------------------------------------


def test_a_guard_that_is_never_needed_is_told() -> None:
    def careful(m: Match, build: Builder) -> Value:
        """relu(relu(x)) ⟶ relu(x), for matrices only, for no reason."""
        m.require(m.rank(x) == 2, "it is no matrix")
        return build.Relu(m[x])

    strict = rule(op.Relu(op.Relu(x)), careful, "float[2,3] x; r = Relu(x) y = Relu(r)")
    found = verdict(strict, 100)
    assert found.passed
    assert any("it is no matrix" in warning for warning in found.warnings), found.warnings


@pytest.mark.slow
def test_a_guard_that_is_needed_is_not_told() -> None:
    def careful(m: Match, build: Builder) -> Value:
        """tanh(c·x) ⟶ tanh(x) for c = 1."""
        m.require(m[c] == 1, "the factor is not one")
        return build.Tanh(m[x])

    found = verdict(rule(op.Tanh(x * c), careful, "float[2,3] x; m = Mul(x, 1.0) y = Tanh(m)"), 100)
    assert found.passed
    assert not any("the factor is not one" in warning for warning in found.warnings)


# -- counterexamples -----------------------------------------------------------------------------------------


def test_a_counterexample_is_small() -> None:
    wide = "float[2,3,5,7] x; e = Exp(x) m = Mul(e, 0.5) t = Tanh(m) y = Neg(t)"
    found = verdict(rule(op.Tanh(x * c), lambda m, b: b.Tanh(m[x]), wide)).counterexample
    assert found is not None
    assert [n.op_type for n in found.before.graph] == ["Mul", "Tanh"]
    assert all(d == 1 for v in found.before.graph.inputs for d in v.shape or ())
    assert found.feeds is not None


def test_a_saved_counterexample_fails_until_the_rule_is_right(tmp_path: Path) -> None:
    source, mended = tmp_path / "mine.py", tmp_path / "mended.py"
    wrong = (
        "from onnxrewrite.rules import FLOATS, Rule, Stage, Var, op\n"
        "x = Var('x', dtype=FLOATS)\n"
        "def rewrite(m, build):\n    return {}\n"
        "MINE = Rule('mine', Stage.CANONICALIZE, op.Relu(op.Relu(x)), rewrite)\n"
    )
    source.write_text(wrong.format("m[x]"), encoding="utf-8")
    tried = rule(op.Relu(op.Relu(x)), lambda m, b: m[x])
    found = verdict(tried).counterexample
    assert found is not None
    test = save(found, Rule("mine", tried.stage, tried.pattern, tried.rewrite), tmp_path / "saved", (str(source),))
    assert "check_counterexample" in test.read_text(encoding="utf-8")
    assert {p.name for p in test.parent.iterdir()} == {"model.onnx", "inputs.npz", "test_mine.py"}
    with pytest.raises(AssertionError, match="mine: output"):
        check_counterexample(test.parent, "mine", rules=(str(source),), target=found.target)
    mended.write_text(wrong.format("build.Relu(m[x])"), encoding="utf-8")
    check_counterexample(test.parent, "mine", rules=(str(mended),), target=found.target)


# -- instances -----------------------------------------------------------------------------------------------


def test_instances_grow_from_a_pattern_without_examples() -> None:
    conv, shift = op.Conv(x, w, Const("b", default=None)), Const("shift")
    mine = rule(conv + shift, lambda m, b: b.Sub(m.value(conv), b.Neg(m.value(shift))), allow_shared=True)
    assert list(grown(mine, [mine], 3))


def test_instances_vary_all_that_is_promised() -> None:
    kept = RIGHT["an axis that is kept"]
    changed = " ".join(v for i in instances(seeds(kept, [kept]), 300) for v in i.variations)
    for said in ("axis of Softmax", "has any size", "opset", "is an output", "is read by another", "is 0", "is 1"):
        assert said in changed, said
