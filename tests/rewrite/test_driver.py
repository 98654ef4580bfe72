"""The driver: stages, the fixpoint, loops, failing rules and checks; and random rules on random graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from driving import drive, printed, reason, renaming, rule, valid, x
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxrewrite import io
from onnxrewrite.ir import text
from onnxrewrite.ir.target import target
from onnxrewrite.pattern.finder import Matcher
from onnxrewrite.pattern.match import Match
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.index import RuleIndex
from onnxrewrite.rules import AnyNode, Builder, Const, Rule, Stage, Var, any_of, op

z = Var("z")


# -- stages -------------------------------------------------------------------------------------------------------


def test_stages_run_in_order_and_canonicalization_stays_active() -> None:
    rules = [
        renaming("Exp", "Sin", stage=Stage.LOWER),
        renaming("Abs", "Exp", stage=Stage.RAISE),
        renaming("Relu", "Abs"),
        renaming("Sin", "Cos"),
    ]
    driver = drive("float[2] x; y = Relu(x)", rules)
    assert [(a.stage, a.rule) for a in driver.trace.applied] == [
        ("canonicalize", "relu-to-abs"),
        ("raise", "abs-to-exp"),
        ("lower", "exp-to-sin"),
        ("canonicalize", "sin-to-cos"),
    ]


def test_a_later_stage_does_not_go_back() -> None:
    rules = [renaming("Exp", "Sin", stage=Stage.LOWER), renaming("Sin", "Cos", stage=Stage.RAISE)]
    assert printed(drive("float[2] x; y = Exp(x)", rules)) == "[Exp] y = Sin(x)"


def test_the_largest_benefit_goes_first_and_names_decide_between_equals() -> None:
    rules = [renaming("Relu", "Abs"), renaming("Relu", "Exp", benefit=1), renaming("Relu", "Cos")]
    assert printed(drive("float[2] x; y = Relu(x)", rules)) == "[Relu] y = Exp(x)"
    assert printed(drive("float[2] x; y = Relu(x)", [rules[2], rules[0]])) == "[Relu] y = Abs(x)"


def test_the_next_match_is_tried_where_one_is_refused() -> None:
    pattern = any_of(op.Neg(z), op.Neg(op.Relu(x)))
    seen = []

    def second(m: Any, b: Any) -> Any:
        seen.append(len(m.nodes))
        m.require(x in m, "not this one")
        return b.Sin(m[x])

    driver = drive("float[2] x; a = Relu(x)  y = Neg(a)", [rule("r", pattern, second)])
    assert seen == [1, 2]
    assert printed(driver) == "[Neg] y = Sin(x)"


def test_progress_is_told() -> None:
    told = []
    chain = "  ".join(f"v{i} = Neg(v{i - 1})" for i in range(1, 200))
    model = text.parse(f"(float[2] x) => (y) {{ v0 = Abs(x)  {chain}  y = Relu(v199) }}")
    driver = Driver(model, [renaming("Relu", "Exp")], target("onnx"), progress=lambda *a: told.append(a))
    driver.run()
    assert [(stage, visited) for stage, visited, _ in told] == [(Stage.CANONICALIZE, n) for n in (64, 128, 192)]


# -- the fixpoint -------------------------------------------------------------------------------------------------

NEG_NEG = rule("neg-neg", op.Neg(op.Neg(x)), lambda m, b: m[x])
RELU_RELU = rule("relu-relu", op.Relu(op.Relu(x)), lambda m, b: b.Relu(m[x]))
IDENTITY = AnyNode(op_types=("Identity",))
DROP_IDENTITY = rule("identity", IDENTITY, lambda m, b: m.node(IDENTITY).inputs[0])


@pytest.mark.parametrize("length", [2, 3, 40, 41])
def test_the_same_rule_all_along_a_chain(length: int) -> None:
    chain = "  ".join(f"v{i} = Neg(v{i - 1})" for i in range(1, length))
    driver = drive(f"(float[2] x) => (y) {{ v0 = Neg(x)  {chain}  y = Relu(v{length - 1}) }}", [NEG_NEG])
    ops = [n.op_type for n in driver.model.graph]
    assert ops == ["Neg"] * (length % 2) + ["Relu"]
    assert drive(driver.model, [NEG_NEG]).trace.applied == []


def test_a_match_becomes_possible_far_above() -> None:
    """What was between the two is gone only after the lower one was visited."""
    graph = "float[2] x; a = Neg(x)  i = Identity(a)  j = Identity(i)  k = Identity(j)  b = Neg(k)  y = Relu(b)"
    assert printed(drive(graph, [NEG_NEG, DROP_IDENTITY])) == "[Relu] y = Relu(x)"


def test_a_match_becomes_possible_when_a_use_disappears() -> None:
    """The other reader of ``a`` stands behind the match, and is removed later."""
    graph = "(float[2] x) => (y, v) { a = Relu(x)  y = Neg(a)  b = Exp(a)  c = Mul(b, 0.0)  v = Abs(x) }"
    dead = drive(graph, [rule("fuse", op.Neg(op.Relu(x)), lambda m, b: b.Sin(m[x]))])
    assert "Sin(x)" in printed(dead)
    graph = graph.replace("v = Abs(x)", "v = Max(c, x)")
    fuse = rule("fuse", op.Neg(op.Relu(x)), lambda m, b: b.Sin(m[x]))
    drop = rule("drop", op.Max(z, x), lambda m, b: b.Abs(m[x]) if m[x].is_graph_input() else m.refuse("no"))
    driver = drive(graph, [fuse, drop])
    assert [a.rule for a in driver.trace.applied] == ["drop", "fuse"]


def test_a_match_becomes_possible_when_a_shape_becomes_known() -> None:
    """Nothing near the match changes but what is known of it."""
    graph = "float[2,3] x; int64[2] s; a = Reshape(x, s)  b = Relu(a)  c = Exp(b)  y = Neg(c)"
    known = rule("known", op.Reshape(x, z), lambda m, b: b.Reshape(m[x], (3, 2)))

    def sized(m: Any, b: Any) -> Any:
        m.require(m.shape(x) == (3, 2), "unknown")
        return b.Abs(m[x])

    rules = [known, rule("sized", op.Neg(x), sized, benefit=9)]
    driver = drive(graph, rules)
    assert [a.rule for a in driver.trace.applied][-1:] == ["sized"] or reason(driver, "known")


def test_siblings_are_visited_again() -> None:
    """A pattern of two outputs is anchored at one; the other one comes into being later."""
    pair = rule("pair", (op.Neg(x), op.Sin(x)), lambda m, b: [b.Cos(m[x]), b.Abs(m[x])])
    driver = drive("float[2] x; a = Neg(x)  b = Exp(x)  y = Add(a, b)", [pair, renaming("Exp", "Sin")])
    assert [a.rule for a in driver.trace.applied] == ["exp-to-sin", "pair"]


def test_long_chains_are_visited_again() -> None:
    """A chain may be longer than its pattern; what changes at its far end counts too."""
    factors = "  ".join(f"m{i} = Mul(m{i - 1}, w{i})" for i in range(1, 12))
    declared = ", ".join(f"float[2] {n}" for n in ("x", *(f"w{i}" for i in range(1, 12))))
    fuse = rule("fuse", 2.0 * op.Exp(z), lambda m, b: b.Sin(m[z]), Stage.RAISE)
    # Exp has another reader, which goes away only after the end of the chain was visited.
    graph = f"({declared}) => (y, v) {{ m0 = Exp(x)  {factors}  y = Mul(m11, 2.0)  o = Neg(m0)  v = Max(o, x) }}"
    drop = rule(
        "drop", op.Max(z, x), lambda m, b: b.Abs(m[x]) if m[x].is_graph_input() else m.refuse("no"), Stage.RAISE
    )
    driver = drive(graph, [fuse, drop])
    assert [a.rule for a in driver.trace.applied] == ["drop", "fuse"]


FAR = "  ".join(f"v{i} = Neg(v{i - 1})" for i in range(1, 60))


def sees(sight: Callable[[ir.Node], Iterable[ir.Node]], wanted: str, from_: ir.Node) -> bool:
    """True if a walk along ``sight`` comes to an operator."""
    seen, stack = set[ir.Node](), [from_]
    while stack:
        node = stack.pop()
        if node.op_type == wanted:
            return True
        fresh = [n for n in sight(node) if n not in seen]
        seen.update(fresh)
        stack += fresh
    return False


def producers(node: ir.Node) -> Iterator[ir.Node]:
    return (p for i in node.inputs if i is not None and (p := i.producer()) is not None)


def consumers(node: ir.Node) -> Iterator[ir.Node]:
    return (c for o in node.outputs for c in o.consumers())


def looking(sight: Callable[[ir.Node], Iterable[ir.Node]], wanted: str, old: str = "Exp", new: str = "Cos") -> Rule:
    """``old(x) ⟶ new(x)`` where its guard sees an operator."""

    def guarded(m: Any, build: Any) -> Any:
        m.require(sees(sight, wanted, m.nodes[0]), f"sees no {wanted}")
        return getattr(build, new)(m[x])

    return rule("looking", op[old](x), guarded, benefit=9)


@pytest.mark.parametrize(
    ("graph", "sight"),
    [
        (f"float[2] x; v0 = Relu(x)  {FAR}  y = Exp(v59)", producers),
        (f"float[2] x; v0 = Exp(x)  {FAR}  y = Relu(v59)", consumers),
    ],
)
def test_a_guard_that_waits_for_something_far_away_is_asked_again(graph: str, sight: Any) -> None:
    driver = drive(graph, [looking(sight, "Abs"), renaming("Relu", "Abs")])
    assert [a.rule for a in driver.trace.applied] == ["relu-to-abs", "looking"]


def test_a_guard_of_an_earlier_stage_is_asked_again_if_that_is_active() -> None:
    graph = f"float[2] x; v0 = Relu(x)  {FAR}  y = Exp(v59)"
    driver = drive(graph, [looking(producers, "Abs"), renaming("Relu", "Abs", stage=Stage.RAISE)])
    assert [a.rule for a in driver.trace.applied] == ["relu-to-abs", "looking"]
    raised = dataclasses.replace(looking(producers, "Abs"), stage=Stage.RAISE)
    driver = drive(graph, [raised, renaming("Relu", "Abs", stage=Stage.LOWER)])
    assert [a.rule for a in driver.trace.applied] == ["relu-to-abs"], "raising is over"


@pytest.mark.parametrize("sight", [producers, consumers])
def test_guards_that_wait_for_one_another_are_served_in_a_few_passes(sight: Any) -> None:
    """Each of 200 waits for its neighbour, which is further away than the pattern spans."""
    many, operators = 200, [*(["Exp", "Neg", "Neg", "Neg"] * 200), "Relu"]
    if sight is producers:
        operators.reverse()
    line = "  ".join(f"v{i} = {each}(v{i - 1})" for i, each in enumerate(operators)).replace("v-1", "x")
    asked = 0

    def neighbour_is_done(m: Any, build: Any) -> Any:
        nonlocal asked
        asked += 1
        near = m.nodes[0]
        for _ in range(4):
            (near,) = sight(near)
        m.require(near.op_type in ("Cos", "Abs"), "the neighbour is not done")
        return build.Cos(m[x])

    first = renaming("Relu", "Abs", stage=Stage.RAISE)
    driver = drive(f"float[2] x; {line}", [rule("chained", op.Exp(x), neighbour_is_done), first])
    assert driver.trace.counts() == {"relu-to-abs": 1, "chained": many}
    assert asked <= 4 * many


def test_a_rewrite_that_its_check_turned_down_is_not_asked_again() -> None:
    asked = []

    def check(site: Any) -> str | None:
        asked.append(site.key)
        return "wrong" if site.key[0] == "exp-to-cos" else None

    graph = f"float[2] x; v0 = Relu(x)  {FAR}  y = Exp(v59)"
    drive(graph, [renaming("Exp", "Cos", benefit=9), renaming("Relu", "Abs", stage=Stage.RAISE)], check=check)
    assert asked == [("exp-to-cos", "y"), ("relu-to-abs", "v0")]


# -- one match inside another ------------------------------------------------------------------------------------

SMALL = rule("small", op.Neg(op.Exp(x)), lambda m, b: b.Sin(m[x]), Stage.RAISE)
LARGE = rule("large", op.Abs(op.Neg(op.Exp(x))), lambda m, b: b.Cos(m[x]), Stage.RAISE)
CROSSING = rule("crossing", op.Relu(op.Neg(x)), lambda m, b: b.Tan(m[x]), Stage.RAISE)
INSIDE = "float[2] x; a = Exp(x)  b = Neg(a)  y = Abs(b)"


@pytest.mark.parametrize("stage", [Stage.RAISE, Stage.LOWER])
def test_the_rule_that_covers_more_goes_first(stage: Stage) -> None:
    small, large = (dataclasses.replace(each, stage=stage) for each in (SMALL, LARGE))
    assert printed(drive(INSIDE, [dataclasses.replace(small, benefit=99), large])) == "[Abs] y = Cos(x)"


def test_canonicalizations_do_not_ask_what_covers_more() -> None:
    rules = [dataclasses.replace(each, stage=Stage.CANONICALIZE) for each in (SMALL, LARGE)]
    assert [a.rule for a in drive(INSIDE, rules).trace.applied] == ["small"]
    rules[1] = dataclasses.replace(rules[1], before=("small",))
    assert [a.rule for a in drive(INSIDE, rules).trace.applied] == ["large"], "unless they are told to"


def test_a_large_rule_that_does_not_apply_leaves_it_to_the_small_one() -> None:
    refusing = dataclasses.replace(LARGE, rewrite=lambda m, b: m.refuse("no"))
    assert [a.rule for a in drive(INSIDE, [SMALL, refusing]).trace.applied] == ["small"]
    driver = drive(INSIDE, [SMALL, LARGE], check=lambda site: "wrong" if site.rule == "large" else None)
    assert [a.rule for a in driver.trace.applied] == ["small"]
    assert list(driver.trace.failed) == [("large", "y")]
    shared = "(float[2] x) => (y, z) { a = Exp(x)  b = Neg(a)  y = Abs(b)  z = Sin(b) }"
    assert [a.rule for a in drive(shared, [SMALL, LARGE]).trace.applied] == ["small"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rules whose matches were looked for."""
    found: list[str] = []
    matches = Driver._matches

    def noted(self: Driver, matcher: Matcher, rule: Rule, output: ir.Value) -> Iterator[Match]:
        found.append(rule.name)
        return matches(self, matcher, rule, output)

    monkeypatch.setattr(Driver, "_matches", noted)
    return found


BESIDE = rule("beside", op.Abs(op.Exp(op.Neg(x))), lambda m, b: m.refuse("no"), Stage.RAISE)
LONG = "float[2] x; a = Exp(x)  b = Neg(a)  c = Exp(b)  y = Abs(c)"


def test_what_a_larger_rule_covers_is_found_once(asked: list[str]) -> None:
    small = [dataclasses.replace(SMALL, name=f"small-{i}") for i in range(9)]
    driver = drive(LONG, [*small, BESIDE], check=lambda site: "no")
    assert not driver.trace.applied
    assert asked.count("beside") == 2, "before the first small one, and at its own value"


def test_a_rule_that_is_refused_is_in_nobodys_way(asked: list[str]) -> None:
    refusing = [rule(f"small-{i}", SMALL.outputs[0], lambda m, b: m.refuse("no"), Stage.RAISE) for i in range(9)]
    driver = drive(LONG, [*refusing, BESIDE])
    assert not driver.trace.applied
    assert asked.count("beside") == 1, "at its own value"


def test_a_rule_that_cannot_cover_a_match_is_not_asked() -> None:
    graph = drive("float[2] x; a = Exp(x)  b = Neg(a)  y = Abs(b)  u = Sin(y)  w = Abs(u)", []).model.graph
    exp, neg, *_ = list(graph)
    anchor = neg.outputs[0]

    def asked(large: Rule, *nodes: ir.Node) -> set[tuple[str, str]]:
        match: Any = SimpleNamespace(anchor=anchor, nodes=nodes)
        return {(n.op_type, r.name) for n, rules in RuleIndex([SMALL, large]).preceding(SMALL, match) for r in rules}

    assert asked(LARGE, exp, neg) == {("Neg", "large"), ("Abs", "large")}, "and at no Abs behind the Sin"
    identity, tan = (ir.node(op_type, [exp.outputs[0]]) for op_type in ("Identity", "Tan"))
    identity.outputs[0].type = exp.outputs[0].type
    assert asked(LARGE, exp, neg, identity) == asked(LARGE, exp, neg)
    assert asked(LARGE, exp, neg, tan) == set()
    assert ("Abs", "large") in asked(dataclasses.replace(LARGE, before=("small",)), tan)


def test_a_rule_says_which_it_precedes() -> None:
    small = dataclasses.replace(SMALL, before=("large",))
    assert [a.rule for a in drive(INSIDE, [small, LARGE]).trace.applied] == ["small"]
    crossed = "float[2] x; a = Exp(x)  b = Neg(a)  y = Relu(b)"
    assert [a.rule for a in drive(crossed, [SMALL, CROSSING]).trace.applied] == ["small"]
    crossing = dataclasses.replace(CROSSING, before=("small",))
    assert [a.rule for a in drive(crossed, [SMALL, crossing]).trace.applied] == ["crossing"]
    same = [renaming("Exp", "Sin"), dataclasses.replace(renaming("Exp", "Tan"), before=("exp-to-sin",))]
    assert [a.rule for a in drive("float[2] x; y = Exp(x)", same).trace.applied] == ["exp-to-tan"]


def test_two_rules_that_precede_each_other_do_not_hang() -> None:
    rules = [dataclasses.replace(SMALL, before=("large",)), dataclasses.replace(LARGE, before=("small",))]
    assert len(drive(INSIDE, rules).trace.applied) == 1


# -- loops --------------------------------------------------------------------------------------------------------


def test_a_rule_whose_pattern_takes_what_it_makes_is_applied_once() -> None:
    w = Var("w")
    summed = rule("summed", x + z + w, lambda m, build: build.Sum(m[x], m[z], m[w]))
    driver = drive("float[2] a; float[2] b; float[2] c; s = Add(a, b)  y = Add(c, s)", [summed])
    assert [a.rule for a in driver.trace.applied] == ["summed"]
    assert not driver.trace.warnings
    assert reason(driver, "summed") == "it makes what is there"


def test_a_rule_that_changes_nothing_is_told() -> None:
    driver = drive("float[2] x; y = Exp(x)  w = Exp(y)", [rule("vain", op.Exp(x), lambda m, build: build.Exp(m[x]))])
    assert [a.value for a in driver.trace.applied] == ["y", "w"]
    assert driver.trace.warnings == ["vain: it makes what is there (at `y`)"]


def test_a_rule_may_change_the_order_of_terms() -> None:
    def in_order(m: Match, build: Builder) -> ir.Value:
        m.require(m.node(product).inputs[0] is m.value(number), "the number is the second")
        made: ir.Value = build.Mul(m[x], m.value(number))
        return made

    number = Const("number")
    product = op.Mul(x, number)
    driver = drive("float[2] x; y = Mul(2.0, x)", [rule("in-order", product, in_order)])
    assert [a.rule for a in driver.trace.applied] == ["in-order"]
    assert not driver.trace.warnings


def test_rules_that_undo_each_other_are_stopped_and_named() -> None:
    driver = drive("float[2] x; y = Relu(x)", [renaming("Relu", "Abs"), renaming("Abs", "Relu")])
    (warning,) = driver.trace.warnings
    assert warning == "abs-to-relu and relu-to-abs undo each other at `y`: stopped after 32 rounds"
    valid(driver)


def test_a_rule_that_grows_forever_is_stopped() -> None:
    grow = rule("grow", op.Relu(x), lambda m, b: b.Relu(b.Relu(m[x])))
    driver = drive("float[2] x; y = Relu(x)", [grow])
    assert any("grow" in w for w in driver.trace.warnings)
    assert len(driver.trace.applied) <= 1010
    valid(driver)


def test_a_loop_in_one_place_does_not_stop_the_rest() -> None:
    loop = [renaming("Relu", "Abs"), renaming("Abs", "Relu")]
    driver = drive(
        "float[2] x; a = Relu(x)  b = Neg(a)  c = Neg(b)  y = Exp(c)", [*loop, NEG_NEG, renaming("Exp", "Cos")]
    )
    assert {a.rule for a in driver.trace.applied} >= {"neg-neg", "exp-to-cos"}


def test_the_budget_of_one_stage_is_not_that_of_the_next() -> None:
    """What one stage wastes must not keep the lower stage from making the model runnable."""
    grow = rule("grow", op.Relu(x), lambda m, b: b.Relu(b.Relu(m[x])))
    driver = drive("float[2] x; a = Relu(x)  y = Exp(a)", [grow, renaming("Exp", "Cos", stage=Stage.LOWER)])
    assert driver.trace.counts()["exp-to-cos"] == 1


def test_a_dead_output_is_not_rewritten_again_and_again() -> None:
    graph = "(float[2] x) => (y, z) { d, k = Dropout(x)  y = Relu(d)  z = Not(k) }"
    dropout = AnyNode(op_types=("Dropout",))

    def drop(m: Any, b: Any) -> Any:
        m.require(m[dropout].index() == 0, "this is the mask")
        return m.node(dropout).inputs[0]

    driver = drive(graph, [rule("drop", dropout, drop, allow_shared=True)])
    assert len(driver.trace.applied) == 1
    assert driver.trace.warnings == []


# -- what goes wrong ----------------------------------------------------------------------------------------------


def explode(*_: Any) -> Any:
    raise KeyError("boom")


def test_a_rule_that_raises_is_reported_and_the_run_goes_on() -> None:
    driver = drive("float[2] x; a = Relu(x)  y = Exp(a)", [rule("bad", op.Relu(x), explode), renaming("Exp", "Cos")])
    assert printed(driver) == "[Relu] a = Relu(x)\n[Exp] y = Cos(a)"
    line = explode.__code__.co_firstlineno + 1
    assert set(driver.trace.warnings) == {f"bad: the rule raised KeyError: 'boom' at test_driver.py:{line} (at `a`)"}


def test_a_pattern_that_raises_is_reported_and_the_run_goes_on() -> None:
    bad = rule("bad", AnyNode(where=explode), lambda m, b: m.anchor)
    driver = drive("float[2] x; a = Relu(x)  y = Exp(a)", [bad, renaming("Exp", "Cos")])
    assert printed(driver) == "[Relu] a = Relu(x)\n[Exp] y = Cos(a)"
    line = explode.__code__.co_firstlineno + 1
    assert driver.trace.warnings[0] == f"bad: its pattern raised KeyError: 'boom' at test_driver.py:{line} (at `a`)"


def test_a_check_that_fails_refuses_the_rewrite() -> None:
    driver = drive(
        "float[2] x; a = Relu(x)  y = Relu(a)",
        [renaming("Relu", "Abs")],
        check=lambda site: "off by one" if site.value == "a" else None,
    )
    assert printed(driver) == "[Relu] a = Relu(x)\n[Relu_1] y = Abs(a)"
    assert driver.trace.failed == {("relu-to-abs", "a"): "off by one"}
    assert reason(driver, "relu-to-abs") == "check failed: off by one"


def test_a_site_as_its_check_sees_it() -> None:
    sites = []
    fuse = rule("fuse", op.Neg(op.Relu(x)), lambda m, b: b.Sin(b.Exp(m[x])))
    drive("float[2] x; a = Relu(x)  y = Neg(a)", [fuse], check=sites.append)
    (site,) = sites
    assert site.key == ("fuse", "y")
    assert [n.op_type for n in site.before] == ["Relu", "Neg"]
    assert [n.op_type for n in site.after] == ["Exp", "Sin"]
    assert site.opset_imports == {"": 17}


def test_quarantine() -> None:
    graph = "float[2] x; a = Relu(x)  y = Relu(a)"
    driver = drive(graph, [renaming("Relu", "Abs")], quarantine=[("relu-to-abs", "a"), ("other", "y")])
    assert [a.key for a in driver.trace.applied] == [("relu-to-abs", "y")]


# -- random rules on random graphs --------------------------------------------------------------------------------

SAFE: list[Rule] = [
    NEG_NEG,
    RELU_RELU,
    DROP_IDENTITY,
    rule("abs-neg", op.Abs(op.Neg(x)), lambda m, b: b.Abs(m[x])),
    rule("abs-relu", op.Abs(op.Relu(x)), lambda m, b: b.Relu(m[x])),
    rule("add-twice", op.Add(x, x), lambda m, b: b.Mul(m[x], 2.0)),
    rule("max-twice", op.Max(x, x), lambda m, b: m[x]),
    rule("sub-self", op.Sub(x, x), lambda m, b: b.Mul(m[x], 0.0)),
    rule("sub", op.Sub(x, z), lambda m, b: b.Add(m[x], b.Neg(m[z])), Stage.RAISE),
    rule("neg-sub", op.Neg(op.Sub(x, z)), lambda m, b: b.Sub(m[z], m[x]), allow_shared=True),
    rule("half", 0.5 * op.Abs(x), lambda m, b: b.Abs(b.Mul(m[x], 0.5)), Stage.RAISE),
    rule("sum", 1.0 + op.Relu(x), lambda m, b: b.Max(b.Add(m[x], 1.0), 1.0), Stage.RAISE),
    rule("pair", (op.Neg(x), op.Abs(x)), lambda m, b: [made := b.Mul(m[x], -1.0), b.Max(made, m[x])], Stage.LOWER),
    rule("relu", op.Relu(x), lambda m, b: b.Max(m[x], 0.0), Stage.LOWER),
]  # fmt: skip
"""Rules that keep the numbers to the bit, or nearly, and that come to an end."""

UNARY = ("Neg", "Abs", "Relu", "Identity")
BINARY = ("Add", "Sub", "Max", "Mul")


@st.composite
def graphs(draw: st.DrawFn) -> str:
    """A graph of float[2] values, perhaps with a branch that reads from outside."""
    names, statements = ["x", "w"], []

    def node(name: str, known: list[str]) -> str:
        binary = draw(st.booleans())
        operands = [draw(st.sampled_from(known[-5:] + known[:1])) for _ in range(1 + binary)]
        if binary and draw(st.integers(0, 3)) == 0:
            operands[draw(st.integers(0, 1))] = draw(st.sampled_from(["0.5", "1.0", "2.0"]))
        return f"float[2] {name}; {name} = {draw(st.sampled_from(BINARY if binary else UNARY))}({', '.join(operands)})"

    def strip(statement: str) -> str:
        return statement.partition("; ")[2]

    for i in range(draw(st.integers(1, 12))):
        statements.append(strip(node(f"v{i}", names)))
        names.append(f"v{i}")
    if draw(st.booleans()):
        branches = []
        for letter in "pq":
            inner = [strip(node(f"{letter}0", names))]
            inner.append(strip(node(f"{letter}1", [*names, f"{letter}0"])))
            branches.append(f"() => (float[2] {letter}1) {{ {'  '.join(inner)} }}")
        statements.append(f"u = If<then_branch = {branches[0]}, else_branch = {branches[1]}>(c)")
        names.append("u")
    exported = draw(st.lists(st.sampled_from(names[2:]), min_size=1, max_size=3, unique=True))
    exported = list(dict.fromkeys([*exported, names[-1]]))
    declared = ", ".join(f"float[2] {n}" for n in exported)
    return f"(float[2] x, float[2] w, bool c) => ({declared}) {{ {'  '.join(statements)} }}"


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, feeds))


@pytest.mark.slow
@given(graphs(), st.lists(st.sampled_from(SAFE), unique=True, max_size=len(SAFE)), st.booleans())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_rules_on_random_graphs(graph: str, rules: list[Rule], condition: bool) -> None:
    original = io.load(text.parse(graph))
    driver = drive(original, rules)
    assert driver.trace.warnings == []
    proto = valid(driver)
    before = io.to_proto(original)
    assert [v.name for v in proto.graph.input] == [v.name for v in before.graph.input]
    assert [v.name for v in proto.graph.output] == [v.name for v in before.graph.output]
    feeds = {"x": np.array([-1.5, 3.0], np.float32), "w": np.array([0.5, -2.0], np.float32), "c": np.array(condition)}
    for old, new in zip(run(before, feeds), run(proto, feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)
    again = drive(original, rules[::-1])  # the order in which rules are given does not matter
    valid(again)
    assert io.to_bytes(again.model) == io.to_bytes(driver.model)


@pytest.mark.slow
@given(graphs(), st.lists(st.sampled_from(SAFE), unique=True, min_size=1, max_size=len(SAFE)))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_one_stage_leaves_nothing_for_a_second_round(graph: str, rules: list[Rule]) -> None:
    """The worklist reaches the fixpoint without looking at everything again."""
    model = io.load(text.parse(graph))
    for stage in Stage:
        active = [r for r in rules if r.stage in (Stage.CANONICALIZE, stage)]
        driver = Driver(model, rules, target("onnxruntime-cpu"))
        driver.run_stage(stage, active)
        again = Driver(model, rules, target("onnxruntime-cpu"))
        again.run_stage(stage, active)
        assert again.trace.applied == []


# -- conflicts ----------------------------------------------------------------------------------------------------


def refusing(old: str, new: str, **options: Any) -> Rule:
    """A rule whose guard never holds."""

    def refuse(m: Any, build: Any) -> Any:
        m.refuse("never")

    return rule(f"{old}-to-{new}-never".lower(), op[old](x), refuse, **options)


def conflicts(source: str, rules: list[Rule], **options: Any) -> dict[tuple[str, str], int]:
    assert drive(source, rules, **options).trace.conflicts == {}, "they are found where that is asked for"
    return dict(drive(source, rules, conflicts=True, **options).trace.conflicts)


def test_conflicts_are_counted() -> None:
    rules = [
        renaming("Relu", "Abs"),
        renaming("Relu", "Exp", benefit=10),
        renaming("Relu", "Cos"),
        renaming("Neg", "Sin"),
    ]
    found = conflicts("float[2] x; a = Relu(x)  b = Neg(a)  y = Relu(b)", rules)
    assert found == {("relu-to-exp", "relu-to-abs"): 2, ("relu-to-exp", "relu-to-cos"): 2}
    assert conflicts("float[2] x; y = Relu(x)", rules[::2]) == {("relu-to-abs", "relu-to-cos"): 1}


def test_what_could_not_have_been_applied_is_no_conflict() -> None:
    winner = renaming("Relu", "Abs", benefit=1)
    shared = rule("shared", op.Relu(op.Neg(x)), lambda m, b: b.Sin(m[x]))
    others = [
        refusing("Relu", "Cos"),  # its guard
        rule("illegal", op.Relu(x), lambda m, b: b.MatMul(m[x])),  # its result
        rule("raises", op.Relu(x), lambda m, b: 1 / 0),
        rule("elsewhere", op.Relu(op.Exp(x)), lambda m, b: b.Sin(m[x])),  # its pattern
        renaming("Relu", "Exp", stage=Stage.LOWER),  # its stage
        renaming("Relu", "Ceil"),  # is in quarantine
        refusing("Relu", "Sin", benefit=2),  # it comes first
        shared,
    ]
    graph = "(float[2] x) => (float[2] y, float[2] n) { n = Neg(x)  y = Relu(n) }"
    assert conflicts(graph, [winner, *others], quarantine=[("relu-to-ceil", "y")]) == {}
    assert conflicts("float[2] x; n = Neg(x)  y = Relu(n)", [winner, shared]) == {("relu-to-abs", "shared"): 1}
    driver = drive(graph, [winner, *others], conflicts=True)
    assert not [w for w in driver.trace.warnings if "raises" in w], "nobody has asked it to apply"
    assert {*driver.trace.refused} == {"relu-to-sin-never"}


def test_the_tape_of_the_winner_does_not_stand_in_the_way() -> None:
    """Its node reads ``n``, an inner value of the loser's match."""
    shallow = rule("shallow", op.Floor(x), lambda m, b: b.Ceil(m[x]), benefit=1)
    deep = rule("deep", op.Floor(op.Neg(x)), lambda m, b: b.Round(m[x]))
    driver = drive("float[2] x; n = Neg(x)  y = Floor(n)", [shallow, deep], conflicts=True)
    assert driver.trace.conflicts == {("shallow", "deep"): 1}
    assert [n.op_type for n in driver.model.graph] == ["Neg", "Ceil"]
    assert len(driver.model.graph.node(0).outputs[0].uses()) == 1


def test_a_winner_that_a_check_turns_down_has_not_won() -> None:
    rules = [renaming("Relu", "Abs", benefit=1), renaming("Relu", "Exp"), renaming("Relu", "Cos", benefit=-1)]
    driver = drive(
        "float[2] x; y = Relu(x)",
        rules,
        check=lambda site: "no" if site.rule == "relu-to-abs" else None,
        conflicts=True,
    )
    assert dict(driver.trace.conflicts) == {("relu-to-exp", "relu-to-cos"): 1}


def test_a_rewrite_that_covers_more_is_tried_as_if_for_the_first_time() -> None:
    seen = []

    def covering(m: Any, b: Any) -> Any:
        seen.append(len(m.nodes))
        m.cover(m[x].producer())
        return b.Sin(m[x].producer().inputs[0])

    rules = [rule("covering", op.Relu(x), covering, benefit=1), renaming("Relu", "Abs")]
    driver = drive("float[2] x; n = Neg(x)  y = Relu(n)", rules, conflicts=True)
    assert seen == [1, 1]
    assert dict(driver.trace.conflicts) == {("covering", "relu-to-abs"): 1}


@given(graphs(), st.lists(st.sampled_from(SAFE), unique=True, min_size=2, max_size=len(SAFE)))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_looking_for_conflicts_changes_nothing(graph: str, rules: list[Rule]) -> None:
    original = io.load(text.parse(graph))
    plain, asked = (drive(original, rules, conflicts=c) for c in (False, True))
    assert io.to_bytes(asked.model) == io.to_bytes(plain.model)
    assert (asked.trace.applied, asked.trace.refused) == (plain.trace.applied, plain.trace.refused)


def test_the_budget_stops_what_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule that used it up does not run in the stages that follow."""
    from onnxrewrite.rewrite import driver as module

    monkeypatch.setattr(module.LoopGuard, "count", lambda self, key, growth: None)
    loop = [renaming("Relu", "Abs"), renaming("Abs", "Relu")]
    lowering = renaming("Exp", "Cos", stage=Stage.LOWER)
    driver = drive("float[2] x; a = Relu(x)  y = Exp(a)", [*loop, lowering])
    (warning,) = driver.trace.warnings
    assert warning == (
        "stopped after 1020 rewrites of the canonicalize stage; most often applied: "
        "relu-to-abs (510×), abs-to-relu (510×)"
    )
    assert driver.trace.counts()["exp-to-cos"] == 1
    valid(driver)
