"""Why a rule does not apply: the first thing that is in the way, where, how often, and what would be without it."""

from __future__ import annotations

import dataclasses

import pytest
from library import LIBRARY, RULES

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.explanation.near_miss import Explanation
from onnxrewrite.explanation.ranking import ranking
from onnxrewrite.explanation.why_not import Explainer
from onnxrewrite.ir import schema, text
from onnxrewrite.rules import Rejects, Repeat, Rule, Stage, Var, op

NOTHING = "no operator"
"""Why a rule rejects a graph that has nothing to do with it."""


def explained(
    graph: str, rule: str, *, opset: int = 17, target: str = "onnxruntime-cpu", at: str | None = None
) -> Explanation:
    model = text.parse(graph, opset=opset)
    schema.date(model)
    (subject,) = [r for r in LIBRARY if r.name == rule]
    return Explainer(model, LIBRARY, target).explain(subject, at)


def layer(number: int, half: float, root: float = 1.41421356) -> str:
    n = number
    return (
        f"d{n} = Div(x{n}, {root})  e{n} = Erf(d{n})  a{n} = Add(e{n}, 1.0)  m{n} = Mul(x{n}, a{n})"
        f"  x{n + 1} = Mul(m{n}, {half})"
    )


def test_the_number_that_is_off_is_named_with_what_would_come_of_it() -> None:
    found = explained(f"float[n,8] x0; {layer(0, 0.5001)}", "gelu-erf")
    first = found.groups[0].first
    assert first.reason == "expected constant 0.5, found 0.5001 (at `Mul_1`)"
    assert (first.matched, first.operators) == (4, 4)
    assert first.otherwise.startswith("it would be wrong: output y0")
    assert not found.applied


@pytest.mark.parametrize("inside", [False, True])
def test_a_number_far_above_is_near_all_the_same(inside: bool) -> None:
    graph = f"float[n,8] x0; {layer(0, 0.5, 1.5)}"
    if inside:
        branches = f"then_branch = () => (x1) {{ x0 = Neg(w)  {layer(0, 0.5, 1.5)} }}, else_branch = () => (z) {{ z = Relu(w) }}"
        graph = f"float[n,8] w; bool c; y = If<{branches}>(c)"
    found = explained(graph, "gelu-erf")
    assert found.groups[0].first.reason == "expected constant 1.41421, found 1.5 (at `Div`)"
    assert (found.groups[0].first.matched, found.groups[0].first.operators) == (4, 4)


@pytest.mark.slow
def test_equal_layers_are_one_group_and_those_that_apply_are_none() -> None:
    layers = "  ".join(layer(n, 0.6 if n % 2 else 0.5) for n in range(8))
    found = explained(f"float[n,8] x0; {layers}", "gelu-erf")
    assert len(found.applied) == 4
    group = found.groups[0]
    assert [p.value for p in group.places] == ["x2", "x4", "x6", "x8"]
    assert group.first.reason == "expected constant 0.5, found 0.6 (at `Mul_3`)"


def test_a_value_that_is_read_elsewhere_is_named_with_its_reader() -> None:
    found = explained(f"float[n,8] x0; {layer(0, 0.5)}  z = Relu(e0)", "gelu-erf")
    first = found.groups[0].first
    assert first.is_guard
    assert "`e0` inside the match is also used by Relu" in first.reason


def test_what_a_guard_refuses_is_tried_without_it() -> None:
    x = Var("x")

    def refuse(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
        """relu(x) ⟶ max(x, 0)."""
        m.require(m.rank(x) == 3, "x must be of rank 3", at=x)
        return build.Max(m[x], 0.0)

    rule = Rule("careful", Stage.RAISE, op.Relu(x), refuse)
    model = text.parse("float[n,8] x; y = Relu(x)", opset=17)
    found = rw.explain(model, rule)
    assert found.groups[0].first.reason == "x must be of rank 3 (at `x`), in Relu `Relu`(`x`)"
    assert found.groups[0].first.otherwise == "it would be equal"


def test_a_rule_that_cannot_go_on_without_what_it_requires() -> None:
    x = Var("x")

    def refuse(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
        """relu(x) ⟶ max(x, 0)."""
        rank = {"x": 3}.get(str(m.rank(x)))
        if rank is None:
            m.refuse("nobody knows the rank", at=x)
        return build.Max(m[x], float(rank + 1))

    found = rw.explain(
        text.parse("float[n,8] x; y = Relu(x)", opset=17), Rule("careful", Stage.RAISE, op.Relu(x), refuse)
    )
    assert found.groups[0].first.reason.startswith("nobody knows the rank")
    assert found.groups[0].first.otherwise == "the rule cannot go on"


def test_the_target_and_the_opset_are_told() -> None:
    found = explained(f"float[n,8] x0; {layer(0, 0.5)}", "gelu-erf", target="onnx")
    assert "Gelu needs opset 20, model has 17" in found.groups[0].first.reason
    assert found.newer == {}, "that target gets no newer opset"


def test_the_opset_that_the_model_may_be_brought_to_is_told() -> None:
    norm = "q = Mul(x, x)  m = ReduceMean<axes=[-1]>(q)  a = Add(m, 1e-5)  s = Sqrt(a)  d = Div(x, s)  y = Mul(d, w)"
    found = explained(f"float[n,8] x; float[8] w; {norm}", "norm-before-transpose")
    assert found.newer == {"RMSNormalization": 23}
    assert explained(f"float[n,8] x; float[8] w; {norm}", "norm-before-transpose", opset=23).newer == {}
    assert explained(f"float[n,8] x; float[8] w; {norm}", "transpose-motion").newer == {}, "it comes before"


def test_a_weight_that_can_be_overridden_is_no_constant() -> None:
    model = text.parse(f"float[n,8] x0; float half; {layer(0, 0.5)}", opset=17)
    last = model.graph.node(-1)
    last.replace_input_with(1, model.graph.inputs[1])
    found = rw.explain(model, "gelu-erf", check=False)
    assert "expected constant 0.5, found graph input `half`" in found.groups[0].first.reason


def test_one_place_can_be_asked_for_however_far_it_is() -> None:
    graph = f"float[n,8] x0; {layer(0, 0.6)}  y = Mul(x1, x1)"
    near = explained(graph, "gelu-erf", at="x1")
    assert near.groups[0].first.reason == "expected constant 0.5, found 0.6 (at `Mul_1`)"
    far = explained(graph, "gelu-erf", at="y")
    assert far.groups[0].first.value == "y"
    with pytest.raises(UsageError, match="no node and no value is called 'nowhere'"):
        explained(graph, "gelu-erf", at="nowhere")


def test_what_has_nothing_of_a_rule_is_not_near() -> None:
    assert explained("float[n,8] x; y = Mul(x, x)", "gelu-erf").groups == ()


def test_rules_are_ranked_by_how_near_they_come() -> None:
    model = text.parse(f"float[n,8] x0; {layer(0, 0.6)}  z = Relu(x1)", opset=17)
    rows = [r.to_json() for r in ranking(model, LIBRARY, "onnxruntime-cpu")]
    (gelu,) = [r for r in rows if r["rule"] == "gelu-erf"]
    assert (gelu["applied"], gelu["near"], gelu["gain"]) == (0, 1, None)


def test_rules_are_ranked_by_what_they_would_save() -> None:
    model = io.load(text.parse(f"float[256,256] x0; {layer(0, 0.6)}  z = Relu(x1)", opset=17))
    found = ranking(model, LIBRARY, "onnxruntime-cpu", profile=True)
    gains = [r.gain for r in found]
    assert all(g is not None for g in gains)
    assert gains == sorted(gains, key=lambda g: -(g or 0.0))
    assert next(r.gain for r in found if r.explanation.rule == "gelu-erf")


@pytest.mark.parametrize("rule", RULES)
def test_what_an_example_is_rejected_for_is_told_at_some_value(rule: Rule) -> None:
    lowering = [r for r in LIBRARY if r.stage is Stage.LOWER > rule.stage]
    for example in (e for e in rule.examples if isinstance(e, Rejects) and e.because != NOTHING):
        model = text.parse(example.graph, opset=example.opset)
        schema.date(model)
        explainer = Explainer(model, [rule, *lowering], example.target, check=False)
        values = [o.name for n in reversed(list(model.graph)) for o in n.outputs]  # roots first: most have the reason
        reasons = (g.first.reason for v in values for g in explainer.explain(rule, v).groups)
        assert any(example.because in reason for reason in reasons), example.because


def test_what_is_missing_below_a_sum_is_nearer_than_the_sum() -> None:
    graph = "float[n,8] x; d = Div(x, 1.41421356)  e = Tanh(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)"
    first = explained(graph, "gelu-erf").groups[0].first
    assert first.reason == "expected Erf, found Tanh `Tanh` (at `Add`)"
    assert not explained("float[n,8] x; y = Mul(x, 0.5)", "gelu-erf").groups, "any product is not near"


# -- from any part of the pattern that is right --------------------------------------------------------------------------

GELU = "float[n,8] x; d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)  z = Neg(y)"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("y = Mul(m, 0.5)", "y = Max(m, 0.5)", "expected a product, found Max `Max` (at `Neg`)"),
        ("m = Mul(x, a)", "m = Max(x, a)", "expected a product, found Max `Max` (at `Mul`)"),
        ("a = Add(e, 1.0)", "a = Sub(e, 1.0)", "expected constant 1, found -1 (at `Sub`)"),
        ("e = Erf(d)", "e = Tanh(d)", "expected Erf, found Tanh `Tanh` (at `Add`)"),
        ("e = Erf(d)", "c = Relu(d)  e = Erf(c)", "expected a product, found Relu `Relu` (at `Erf`) before it"),
        ("e = Erf(d)", "c = Erf(d)  e = Relu(c)", "expected Erf, found Relu `Relu` (at `Add`) before it"),
        ("m = Mul(x, a)", "w = Sin(x)  m = Mul(w, a)", "x must be the same value in both places, here it is `"),
    ],
)
def test_what_is_right_below_or_above_what_is_wrong_is_found(old: str, new: str, reason: str) -> None:
    found = explained(GELU.replace(old, new), "gelu-erf")
    assert found.groups, "nothing comes near"
    assert found.groups[0].first.reason.startswith(reason)
    assert 2 * found.groups[0].first.matched >= found.groups[0].first.operators


def test_the_other_value_is_named() -> None:
    found = explained("float[n,8] x; float[n,8] other; s = Sigmoid(x)  y = Mul(other, s)", "swish")
    reason = found.groups[0].first.reason
    assert "`other`" in reason
    assert "`x`" in reason


def test_a_place_that_is_asked_for_may_be_any_part_of_it() -> None:
    found = explained(GELU.replace("0.5", "0.6"), "gelu-erf", at="e")
    assert found.groups[0].first.reason == "expected constant 0.5, found 0.6 (at `Mul_1`)"


def rule_of(name: str, pattern: rw.rules.Term, benefit: int = 0) -> Rule:
    def keep(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
        """f(x) ⟶ Relu(x)."""
        return build.Relu(m[value])

    value = (
        next(t for t in [pattern.inputs[0]] if isinstance(t, Var)) if isinstance(pattern, rw.rules.Call) else Var("x")
    )
    return Rule(name, Stage.RAISE, pattern, keep, benefit=benefit)


def test_what_another_rule_took_first_is_said() -> None:
    a, b = Var("a"), Var("b")
    first, second = rule_of("first", op.Softsign(a), benefit=5), rule_of("second", op.Softsign(b))
    model = text.parse("float[n,8] x; s = Softsign(x)  y = Neg(s)", opset=17)
    found = Explainer(io.load(model), [first, second], "onnxruntime-cpu", check=False).explain(second)
    assert not found.applied
    assert [p.reason for g in found.groups for p in g.places] == [
        'first has taken `Softsign` first, at `s`; before=("first",) lets second go first'
    ]
    second = dataclasses.replace(second, before=("first",))
    found = Explainer(io.load(model), [first, second], "onnxruntime-cpu", check=False).explain(second)
    assert found.applied == ("s",)


def test_a_node_that_was_just_built_is_named_without_a_name() -> None:
    model = text.parse("float[n,8] x; y = Softsign(x)", opset=17)
    x = Var("x")

    def refuse(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
        """Softsign(x) ⟶ Relu(Abs(x))."""
        inner = build.Abs(m[x])
        m.require(False, "never", at=inner)
        return build.Relu(inner)

    found = rw.explain(model, Rule("built", Stage.RAISE, op.Softsign(x), refuse), check=False)
    assert "None" not in found.groups[0].first.reason
    assert found.groups[0].first.reason == "never, in Softsign `Softsign`(`x`)"


def test_half_of_every_pattern_of_two_operators_is_near() -> None:
    found = explained("float[2,3] x; t = Transpose(x, perm=[1, 0])  r = Abs(t)  y = Neg(r)", "transpose-transpose")
    assert found.groups
    assert found.groups[0].first.matched == 1


def test_the_step_of_a_recurrence_that_is_another_one_is_told_with_its_node() -> None:
    (rule,) = [r for r in LIBRARY if r.name == "unrolled-recurrence"]
    spelled = rule.examples[0].graph.replace("h1 = Add(p1, u1)", "h1 = Sub(p1, u1)")
    found = explained(spelled, "unrolled-recurrence")
    assert found.groups[0].first.reason.startswith("expected Add, found Sub `Sub`")
    assert found.groups[0].first.reason.endswith("in layer 2 from the last")


def test_a_row_of_layers_is_explained() -> None:
    x, w = Var("x"), Var("w")
    rows = Rule("rows", Stage.RAISE, Repeat(op.Relu(op.MatMul(x, w)), x, times=3), lambda m, b: b.Neg(m[x]))
    graph = "float[2,2] x; float[2,2] w; a = MatMul(x, w)  b = Tanh(a)  c = MatMul(b, w)  d = Relu(c)  e = MatMul(d, w)  f = Relu(e)"
    model = text.parse(graph, opset=17)
    schema.date(model)
    found = Explainer(model, [rows], "onnxruntime-cpu").explain(rows, "f")
    assert found.groups[0].first.reason == "expected Relu, found Tanh `Tanh` (at `MatMul_1`), in layer 3 from the last"


def test_the_layer_that_is_another_one_is_told() -> None:
    x, w = Var("x"), Var("w")
    layers = Repeat(op.Relu(op.MatMul(x, w)), x, shared=[w])
    rows = Rule("rows", Stage.RAISE, layers, lambda m, b: m[x])
    given = "float[n,4] h; float[4,4] w; float[4,4] v"
    above = {
        "a = MatMul(h, w)  b = Sin(a)": "expected Relu, found Sin",
        "a = MatMul(h, v)  b = Relu(a)": "w must be the same value in both places, here it is `v`, there `w`",
    }
    for spelled, reason in above.items():
        model = text.parse(f"{given}; {spelled}  c = MatMul(b, w)  y = Relu(c)")
        found = Explainer(model, [rows], "onnxruntime-cpu").explain(rows, "y")
        assert reason in found.groups[0].first.reason


def test_what_is_wrong_with_one_output_of_several_is_told_at_that_one() -> None:
    x = Var("x")
    top = op.TopK(x, Var("k"), largest=1)
    both = Rule("both", Stage.RAISE, op.Equal(top[1], op.Cast(top[0], to=7)), lambda m, b: m[x])
    model = text.parse("float[n,4] h; int64[1] k; a, i = TopK<largest=0>(h, k)  c = Cast<to=7>(a)  y = Equal(i, c)")
    reason = Explainer(model, [both], "onnxruntime-cpu").explain(both, "y").groups[0].first.reason
    assert reason == "expected largest=1, found 0 at TopK `TopK`"
