"""A rewrite cut out at its place: what both sides read, what cannot be run, what is remembered."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
from driving import drive, rule, x

from onnxrewrite.checks import site as site_module
from onnxrewrite.checks.rewrites import SiteChecker, _widened, cut
from onnxrewrite.ir import text
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.trace import Site
from onnxrewrite.rules import AnyNode, Rule, Stage, Var, op

z = Var("z")


def checker(**options: Any) -> SiteChecker:
    return SiteChecker(lower=lambda model: None, **options)


def sites(graph: str, *rules: Rule) -> list[Site]:
    found: list[Site] = []
    drive(graph, rules, check=lambda site: found.append(site))
    return found


def cut_out(graph: str, *rules: Rule) -> tuple[str, str]:
    """Both sides as text, at the moment when they are checked."""
    found = []

    def look(site: Site) -> str | None:
        found.append(tuple(statements(m) for m in cut(_widened(site))))
        return "seen enough"

    drive(graph, rules, check=look)
    return found[0]


def statements(model: ir.Model) -> str:
    lines = text.print_model(model, canonical_names=True).splitlines()
    return "  ".join(line.strip() for line in lines if line.startswith(" "))


@pytest.fixture(autouse=True)
def forget() -> None:
    site_module.clear_cache()


def test_both_sides_have_one_interface() -> None:
    fuse = rule("fuse", op.Neg(op.Sub(x, z)), lambda m, b: b.Sub(m[z], m[x]))
    before, after = cut_out("float[2] x; float[2] w; a = Sub(x, w)  y = Neg(a)", fuse)
    assert before == "v2 = Sub(v0, v1)  v3 = Neg(v2)  v4 = Identity(v3)"
    assert after == "v2 = Sub(v1, v0)  v3 = Identity(v2)"


def test_equal_inputs_are_not_fed_apart() -> None:
    """A pattern looks through the Identity, so both operands are one value to it."""
    double = rule("double", op.Add(x, x), lambda m, b: b.Mul(m[x], 2.0))
    before, after = cut_out("float[2] x; i = Identity(x)  y = Add(x, i)", double)
    assert before == "v1 = Identity(v0)  v2 = Add(v0, v1)  v3 = Identity(v2)"
    assert after == "v1 = Mul(v0, 2.0)  v2 = Identity(v1)"


def test_what_the_replacement_takes_from_elsewhere_is_computed_in_it() -> None:
    """``b`` is an equal node, and what it reads is at hand."""

    def twin(m: Any, b: Any) -> Any:
        other = next(n for n in m[x].consumers() if n is not m.anchor.producer())
        return b.Abs(other.outputs[0])

    graph = "float[2] x; a = Relu(x)  b = Neg(x)  y = Add(a, b)"
    before, after = cut_out(graph, rule("twin", op.Relu(x), twin))
    assert before == "v1 = Relu(v0)  v2 = Identity(v1)"
    assert after == "v1 = Neg(v0)  v2 = Abs(v1)  v3 = Identity(v2)"
    check = checker()
    drive(graph, [rule("twin", op.Relu(x), twin)], check=check)
    assert check.ok == 0
    assert check.not_run == {}


def test_where_a_rewrite_looks_behind_an_input_both_sides_compute_that_input() -> None:
    behind = rule("behind", op.Neg(x), lambda m, b: b.Sin(m[x].producer().inputs[0]))
    before, after = cut_out("float[2] x; a = Exp(x)  y = Neg(a)", behind)
    assert before == "v1 = Exp(v0)  v2 = Neg(v1)  v3 = Identity(v2)"
    assert after == "v1 = Sin(v0)  v2 = Identity(v1)"


def test_identities_that_were_looked_through_are_computed_too() -> None:
    graph = "float[2] x; i = Identity(x)  j = Identity(i)  y = Neg(j)"
    before, after = cut_out(graph, rule("neg", op.Neg(x), lambda m, b: b.Sin(m[x])))
    assert before == "v1 = Identity(v0)  v2 = Identity(v1)  v3 = Neg(v2)  v4 = Identity(v3)"
    assert after == "v1 = Sin(v0)  v2 = Identity(v1)"


def test_constants_are_no_inputs() -> None:
    fold = rule("fold", op.Mul(x, z), lambda m, b: b.Add(m[x], 1.0))
    before, after = cut_out("float[2] x; y = Mul(x, {2.0, 3.0})", fold)
    assert before == "v2 = Mul(v0, {2.0, 3.0})  v3 = Identity(v2)".replace("v2", "v1").replace("v3", "v2")
    assert after == "v1 = Add(v0, 1.0)  v2 = Identity(v1)"


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        ("y = Relu(x)", "the rank of an input is unknown"),
        ("float[2] x; a = my.own.Op(x)  y = Relu(a)", "an input is no tensor, or its type is unknown"),
        ("float[2] x; y = Relu(x)", ""),
    ],
)
def test_what_cannot_be_run(graph: str, reason: str) -> None:
    check = checker()
    same = rule("same", op.Relu(x), lambda m, b: b.Max(m[x], 0.0))
    drive(graph, [same], check=check)
    assert dict(check.not_run) == ({reason: 1} if reason and "own" not in graph else {})
    assert check.ok == (not reason)


def test_subgraphs_and_regions_that_are_too_large() -> None:
    graph = (
        "float[2] x; bool c; y = If<then_branch = () => (float[2] p) { p = Abs(x) }, "
        "else_branch = () => (float[2] q) { q = Neg(x) }>(c)"
    )
    branching = AnyNode(op_types=("If",))
    check = checker()
    drive(graph, [rule("drop", branching, lambda m, b: b.Abs(m.node(branching).graph.inputs[0]))], check=check)
    assert check.not_run == {"it contains a subgraph": 1}

    chain = "  ".join(f"v{i} = Neg(v{i - 1})" for i in range(1, 402))

    def everything(m: Any, b: Any) -> Any:
        m.cover(*(n for n in m.anchor.producer().graph if n is not m.anchor.producer()))
        return b.Relu(m.anchor.producer().graph.inputs[0])

    check = checker()
    source = f"(float[2] x) => (float[2] y) {{ v0 = Neg(x)  {chain}  y = Relu(v401) }}"
    drive(source, [rule("all", op.Relu(x), everything)], check=check)
    assert check.not_run == {"it is too large": 1}


def test_what_lies_too_far_away_cannot_be_run() -> None:
    chain = "  ".join(f"v{i} = Sin(v{i - 1})" for i in range(1, 1200))
    graph = (
        f"(float[2] x, float[2] w) => (float[2] y, float[2] z) {{ v0 = Sin(w)  {chain}  z = Exp(v1199)  y = Relu(x) }}"
    )

    def far(m: Any, b: Any) -> Any:
        last = next(n for n in m.anchor.producer().graph if n.op_type == "Exp")
        return b.Neg(last.outputs[0])

    check = checker()
    drive(graph, [rule("far", op.Relu(x), far)], check=check)
    assert check.not_run == {"the replacement reads what the original does not": 1}


def test_a_wrong_site_is_told_and_equal_ones_are_run_once() -> None:
    graph = "float[2] x; a = Relu(x)  b = Exp(a)  c = Relu(b)  y = Neg(c)"
    check = checker()
    driver = drive(graph, [rule("wrong", op.Relu(x), lambda m, b: b.Sin(m[x]))], check=check)
    assert driver.trace.applied == []
    assert set(driver.trace.failed) == {("wrong", "a"), ("wrong", "c")}
    check = checker()
    drive(graph, [rule("right", op.Relu(x), lambda m, b: b.Max(m[x], 0.0))], check=check)
    assert (check.ok, len(check.distinct)) == (2, 1)


def test_sites_that_differ_in_what_is_known_of_a_shape_tensor_are_not_the_same() -> None:
    """Two sites of one structure: with these elements the rewrite is right, with those it is wrong."""
    graph = (
        "(float[2,3] x, float[n,6] u, float[n,3] v) => (a, b) { su = Shape(u)  sv = Shape(v)"
        "  gu = Gather(su, 1)  gv = Gather(sv, 1)  ru = Mul(gu, gu)  rv = Mul(gv, gv)  a = Add(ru, gu)  b = Add(rv, gv) }"
    )
    known = rule("six", op.Mul(z, z), lambda m, b: b.Add(m[z], b.const(30, like=z)))
    check = checker()
    driver = drive(graph, [known], check=check)
    assert [a.value for a in driver.trace.applied] == ["ru"]
    assert set(driver.trace.failed) == {("six", "rv")}


def test_another_seed_is_another_check() -> None:
    (found,) = sites("float[2] x; y = Relu(x)", rule("right", op.Relu(x), lambda m, b: b.Max(m[x], 0.0)))
    keys = {checker(seed=seed)._key(*cut(found), ()) for seed in (0, 1)}
    assert len(keys) == 2


def test_a_replacement_that_is_too_new_is_lowered_first() -> None:
    raising = rule("raise", op.Mul(x, op.Sigmoid(x)), lambda m, b: b.Swish(m[x]), Stage.RAISE)
    lower = rule("lower", op.Swish(x), lambda m, b: b.Mul(m[x], b.Sigmoid(m[x])), Stage.LOWER)

    def make_runnable(model: ir.Model) -> None:
        from onnxrewrite.ir.target import target

        Driver(model, [lower], target("onnxruntime-cpu")).run_stage(Stage.LOWER, [lower])

    check = SiteChecker(lower=make_runnable)
    driver = drive("float[2] x; a = Sigmoid(x)  y = Mul(x, a)", [raising, lower], check=check)
    assert [a.rule for a in driver.trace.applied] == ["raise", "lower"]
    assert check.ok == 2
    assert check.not_run == {}
