"""TRAPS.md, "Engine": many rewrites at once, and rules that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxrewrite
from onnxrewrite.checks.rewrites import SiteChecker
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rules import AnyNode, Const, Rule, Stage, Var, microsoft, op

from .helpers import LEVELS, Seen, beside, gelu, one_line, operators, proto, run, trap

# -- the same rule again and again -------------------------------------------------------------------------------

AGAIN = {
    "two Flattens": ("float[n,2,3] x; a = Flatten(x)  b = Flatten(x)  y = Neg(a)  z = Exp(b)", None),
    "two Flattens, other axes": ("float[n,2,3] x; y = Flatten(x)  z = Flatten<axis=2>(x)", None),
    "two Flattens in a row": ("float[n,2,3] x; a = Flatten<axis=2>(x)  y = Flatten<axis=1>(a)", None),
    "two Min(Max)": ("float[n,4] x; a = Max(x, 0.0)  y = Min(a, 6.0)  b = Max(x, 1.0)  z = Min(b, 5.0)", None),
    "two Min of one Max": ("float[n,4] x; a = Max(x, 0.0)  y = Min(a, 6.0)  z = Min(a, 5.0)", None),
    "three Min(Max) with equal constants": (
        "float[n,4] x; float[n,4] u; a = Max(x, 0.0)  y = Min(a, 6.0)  b = Max(u, 0.0)  z = Min(b, 6.0)  c = Max(0.0, x)  w = Min(6.0, c)",
        None,
    ),
    "two GELUs of one value": (f"float[n,4] x; {gelu('x', 'y')}  {gelu('x', 'z', '2')}", {"Gelu": 1, "Identity": 1}),
    "GELU of GELU": (f"float[n,4] x; {gelu('x', 'h')}  {gelu('h', 'y', '2')}", {"Gelu": 2}),
    "two Convs of one value": (
        "float[n,2,5,5] x; a = Conv(x, float[3,2,3,3] ~)  y = Mul(a, float[3,1,1] {1, 2, 3})  b = Conv(x, float[3,2,3,3] ~)"
        "  z = Mul(b, float[3,1,1] {4, 5, 6})",
        {"Conv": 2, "Mul": 0},
    ),
    "eight multiplications": (
        "float[n,2,5,5] x; a = Conv(x, float[3,2,3,3] ~)  "
        + "  ".join(
            f"{'y' if i == 7 else f'm{i}'} = Mul({'a' if i == 0 else f'm{i - 1}'}, float[3,1,1] {{1, 0.5, 2}})"
            for i in range(8)
        ),
        {"Conv": 1, "Mul": 0},
    ),
    "one Transpose, many readers": (
        "float[n,3,2] x; t = Transpose<perm=[0,2,1]>(x)  "
        + "  ".join(f"y{i} = Transpose<perm=[0,2,1]>(t)" for i in range(5)),
        {"Transpose": 0},
    ),
    "ten casts": (
        "float[n,3] x; "
        + "  ".join(
            f"{'y' if i == 9 else f'c{i}'} = Cast<to={11 if i % 2 == 0 else 1}>({'x' if i == 0 else f'c{i - 1}'})"
            for i in range(10)
        ),
        {"Cast": 0},
    ),
    "chain of Identities": (
        "float[n,3] x; "
        + "  ".join(f"{'y' if i == 30 else f'i{i}'} = Identity({'x' if i == 0 else f'i{i - 1}'})" for i in range(31)),
        {"Identity": 1},
    ),
    "tree of equal nodes": (
        "float[n,3] x; a = Exp(x)  b = Exp(x)  c = Neg(a)  d = Neg(b)  e = Neg(a)  f = Add(c, d)  g = Add(d, e)  y = Mul(f, g)",
        {"Exp": 1, "Neg": 1, "Add": 1, "Mul": 1},
    ),
    "in both branches": (
        f"bool q; float[n,3] x; z = If (q) <then_branch = b1 () => (y1) {{ {gelu('x', 'y1', '1')} }},"
        f" else_branch = b2 () => (y2) {{ {gelu('x', 'y2', '2')} }}>",
        {"Gelu": 2},
    ),
}


@pytest.mark.parametrize(("graph", "counts"), AGAIN.values(), ids=AGAIN.keys())
def test_the_same_rule_twice(graph, counts):
    """The same rule twice on one value (two Flattens, two Min(Max)): no clobbered names; one run reaches the fixpoint."""
    seen = trap(graph, tolerance=8).has(**(counts or {}))
    assert_fixpoint(seen)


def assert_fixpoint(seen: Seen) -> None:
    """Names are unique, and a second run changes nothing."""
    names = [o for n in seen.model.graph.node for o in n.output if o]
    names += [i.name for i in seen.model.graph.initializer]
    assert len(set(names)) == len(names)
    again = onnxrewrite.apply(seen.model, check="off")
    assert not again.trace.applied, again.trace.applied
    assert operators(again.to_proto()) == seen.ops


@pytest.mark.parametrize(
    ("link", "shape", "left"),
    [
        ("t{i} = Transpose<perm=[1,0]>({a})  {b} = Mul(t{i}, 1.0)", "n,3", {"Identity": 1}),
        ("t{i} = Mul({a}, 1.0)  {b} = Transpose<perm=[1,0]>(t{i})", "n,3", {"Identity": 1}),
        ("t{i} = Transpose<perm=[1,2,0]>({a})  {b} = Div(t{i}, {{1.0}})", "n,3,2", {"Transpose": 1}),
        ("t{i} = Transpose({a})  {b} = Sub(t{i}, 0.0)", "n,3,2", {"Identity": 1}),
        ("t{i} = Transpose<perm=[1,0]>({a})  {b} = Neg(t{i})", "n,3", {"Identity": 1}),
        ("t{i} = Unsqueeze({a}, {{0}})  {b} = Squeeze(t{i}, {{0}})", "n,3", {"Identity": 1}),
        ("t{i} = Cast<to=11>({a})  {b} = Cast<to=1>(t{i})", "n,3", {"Identity": 1}),
        ("t{i} = Dropout({a})  {b} = Identity(t{i})", "n,3", {"Identity": 1}),
        ("t{i} = Relu({a})  {b} = Relu(t{i})", "n,3", {"Relu": 1}),
    ],
)
def test_forty_in_a_row(link, shape, left):
    """40 × (Transpose, Mul 1) in a row: no clobbered names; one run reaches the fixpoint."""
    count = 40
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    graph = "  ".join(link.format(i=i, a=names[i], b=names[i + 1]) for i in range(count))
    seen = trap(f"float[{shape}] x; {graph}", exact=True)
    assert seen.ops == left, seen.text()
    assert_fixpoint(seen)


def test_many_at_once():
    """Forty fusions side by side: each has names of its own."""
    seen = trap(beside(*[f"float[n,4] x; {gelu()}"] * 40), dims=[{"n": 2}], tolerance=8).has(Gelu=40)
    assert_fixpoint(seen)


def test_same_input_same_bytes():
    """The same model gives the same bytes, run after run."""
    model = beside(*(g for g, _ in AGAIN.values() if "bool" not in g))
    first, second = (
        onnxrewrite.apply(model, check="off").to_proto().SerializeToString(deterministic=True) for _ in "ab"
    )
    assert first == second


# -- rules that undo each other ----------------------------------------------------------------------------------

x, z = Var("x"), Var("z")


def rule(
    name: str, pattern: Any, rewrite: Callable[..., Any], stage: Stage = Stage.CANONICALIZE, **options: Any
) -> Rule:
    return Rule(name=name, stage=stage, pattern=pattern, rewrite=rewrite, **options)


LESS = rule("less-to-greater", op.Less(x, z), lambda m, b: b.Greater(m[z], m[x]))
GREATER = rule("greater-to-less", op.Greater(x, z), lambda m, b: b.Less(m[z], m[x]))
SWAP = rule("swap", op.Mod(x, z), lambda m, b: b.Mod(m[x], m[z]))
CYCLE = tuple(
    rule(f"{a}-to-{b}".lower(), op[a](x), lambda m, build, b=b: getattr(build, b)(m[x]))
    for a, b in (("Ceil", "Floor"), ("Floor", "Round"), ("Round", "Ceil"))
)
GROWING = rule("growing", op.Sin(x), lambda m, b: b.Atan(b.Tan(b.Sin(m[x]))))
AROUND = (
    rule("split-tan", op.Tan(x), lambda m, b: b.Div(b.Sin(m[x]), b.Cos(m[x]))),
    rule("join-tan", op.Div(op.Sin(x), op.Cos(x)), lambda m, b: b.Tan(m[x])),
)
STAGES = (
    rule("up", op.Less(x, z), lambda m, b: b.Greater(m[z], m[x]), Stage.RAISE),
    rule("down", op.Greater(x, z), lambda m, b: b.Less(m[z], m[x]), Stage.CANONICALIZE),
)
LOOPS = {
    "two": ("float[n,3] x; float[n,3] u; y = Less(x, u)", (LESS, GREATER)),
    "two, at several places": (
        "float[n,3] x; float[n,3] u; y = Less(x, u)  z = Greater(u, x)  w = Less(u, x)",
        (LESS, GREATER),
    ),
    "two, inside": ("float[n,3] x; float[n,3] u; a = Exp(x)  b = Less(a, u)  y = Not(b)", (LESS, GREATER)),
    "two that grow and shrink": ("float[n,3] x; y = Tan(x)", AROUND),
    "of two stages": ("float[n,3] x; float[n,3] u; y = Less(x, u)", STAGES),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("graph", "rules"), LOOPS.values(), ids=LOOPS.keys())
def test_rules_that_undo_each_other(graph, rules, level):
    """Two rules that undo each other: stopped by the budget, both named."""
    seen = trap(graph, rules=rules, levels=(level,), undone=True, tolerance=8)
    notes = [n for n in seen.results[level].notes if all(r.name in n for r in rules)]
    assert notes, seen.results[level].notes
    assert all(one_line(n) for n in notes)
    assert sum(seen.results[level].trace.counts().values()) < 1000


@pytest.mark.parametrize("level", LEVELS)
def test_three_rules_in_a_circle(level):
    """Three rules that undo each other: stopped, all named."""
    seen = trap("float[n,3] x; a = Mul(x, 0.0)  y = Ceil(a)", rules=CYCLE, levels=(level,), undone=True)
    if level == "off":
        assert any(all(r.name in n for r in CYCLE) for n in seen.results[level].notes), seen.results[level].notes


@pytest.mark.parametrize("level", LEVELS)
def test_a_rule_that_undoes_itself(level):
    """A rule that applies to what it made: stopped by the budget, and named."""
    seen = trap("int64[n,3] x; y = Mod(x, 3)  z = Mod(x, 5)", rules=(SWAP,), levels=(level,))
    assert any("swap" in n for n in seen.results[level].notes)


def test_a_rule_that_grows():
    """A rule that makes the graph larger each time: stopped by the budget, and named."""
    seen = trap("float[n,3] x; a = Sin(x)  y = Exp(a)", rules=(GROWING,), levels=("off",), tolerance=64)
    assert any("growing" in n for n in seen.results["off"].notes)
    assert sum(seen.ops.values()) < 1000


# -- rules that are wrong ----------------------------------------------------------------------------------------

tanh = op.Tanh(x)
GRAPH = f"float[n,4] x; a = Tanh(x)  b = Exp(a)  {gelu('b', 'h', '2')}  y = Tanh(h)  c = Mul(y, 1.0)  z = Neg(c)"


def stop(m: Any, build: Any) -> Any:
    raise RuntimeError("nobody expected this")


def deep(m: Any, build: Any) -> Any:
    return deep(m, build)


def cycle(m: Any, build: Any) -> Any:
    """What it returns reads what it replaces."""
    return build.Neg(build.Exp(m[tanh]))


def longer_cycle(m: Any, build: Any) -> Any:
    """What it returns reads what is computed from what it replaces."""
    reader = next((c for c in m[tanh].consumers()), None)
    return build.Tanh(build.Mul(m[x], reader.outputs[0])) if reader is not None else build.Tanh(m[tanh])


def its_own(m: Any, build: Any) -> Any:
    """A value that nothing computes."""
    return ir.Value(name="nowhere", type=ir.TensorType(ir.DataType.FLOAT), shape=m[tanh].shape)


def stolen_name(m: Any, build: Any) -> Any:
    """A value that has the name of a graph output."""
    made = build.Tanh(m[x])
    made.name = "z"
    return made


def used_node_name(m: Any, build: Any) -> Any:
    made = build.Tanh(m[x])
    made.producer().name = m.node(tanh).name
    made.name = m[tanh].name
    return made


def constant_named_like_an_output(m: Any, build: Any) -> Any:
    constant = build.const(np.float32(1))
    constant.name = "y"
    return build.Mul(build.Tanh(m[x]), constant)


def half(m: Any, build: Any) -> Any:
    return build.Cast(build.Tanh(build.Cast(m[x], to=10)), to=10)


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "raises": stop,
    "raises KeyError": lambda m, b: m[z],
    "raises without a message": lambda m, b: (_ for _ in ()).throw(AssertionError),
    "raises a message of several lines": lambda m, b: (_ for _ in ()).throw(ValueError("one\ntwo\n\nthree")),
    "raises StopIteration": lambda m, b: next(iter(())),
    "recurses without end": deep,
    "builds, then raises": lambda m, b: [b.Tanh(m[x]), stop(m, b)],
    "returns None": lambda m, b: None,
    "returns a number": lambda m, b: 3.0,
    "returns an array": lambda m, b: np.zeros(3),
    "returns a node": lambda m, b: b.Tanh(m[x]).producer(),
    "returns nothing of what it built": lambda m, b: b.Tanh(m[x]) and None,
    "returns too few": lambda m, b: (),
    "returns too many": lambda m, b: (b.Tanh(m[x]), b.Neg(m[x])),
    "another dtype": lambda m, b: b.Cast(b.Tanh(m[x]), to=11),
    "an integer": lambda m, b: b.Cast(b.Tanh(m[x]), to=7),
    "a truth value": lambda m, b: b.Greater(m[x], 0.0),
    "half the precision": half,
    "another rank": lambda m, b: b.Unsqueeze(b.Tanh(m[x]), axes=(0,)),
    "fewer dimensions": lambda m, b: b.ReduceMax(b.Tanh(m[x]), axes=(-1,), keepdims=0),
    "another size": lambda m, b: b.Concat(b.Tanh(m[x]), m[x], axis=-1),
    "another order of dimensions": lambda m, b: b.Transpose(b.Tanh(m[x]), perm=(1, 0)),
    "a flat one": lambda m, b: b.Reshape(b.Tanh(m[x]), np.array([-1])),
    "a size of one": lambda m, b: b.ReduceMax(b.Tanh(m[x]), axes=(-1,), keepdims=1),
    "a cycle": cycle,
    "a longer cycle": longer_cycle,
    "an unknown operator": lambda m, b: b.Tangens(m[x]),
    "an operator of an unknown domain": lambda m, b: b.domain("com.acme").Tanh(m[x]),
    "an unknown operator of ONNX Runtime's": lambda m, b: b.microsoft.NoSuchOperator(m[x]),
    "too many inputs": lambda m, b: b.Tanh(m[x], m[x]),
    "no inputs": lambda m, b: b.Tanh(),
    "an attribute that does not exist": lambda m, b: b.Tanh(m[x], speed=3),
    "an attribute of another type": lambda m, b: b.Clip(b.LeakyRelu(m[x], alpha="much")),
    "without an attribute that it needs": lambda m, b: b.Cast(m[x]),
    "an operator that is too new": lambda m, b: b.TensorScatter(m[x], m[x]),
    "operands of two dtypes": lambda m, b: b.Add(b.Tanh(m[x]), b.Cast(m[x], to=11)),
    "a dtype without a kernel": lambda m, b: b.Cast(b.Erf(b.Cast(m[x], to=16)), to=1),
    "a value that nothing computes": its_own,
    "indices that are no integers": lambda m, b: b.Gather(m[x], m[x], axis=0),
}


def apply_bad(bad: Rule | Sequence[Rule], level: str, graph: str = GRAPH, **options: Any) -> Seen:
    rules = [bad] if isinstance(bad, Rule) else list(bad)
    return trap(graph, rules=rules, levels=(level,), undone=True, tolerance=16, **options)


def assert_reported(seen: Seen, name: str = "bad") -> None:
    """The rule is in the report, in lines, and everything else went on."""
    result = next(iter(seen.results.values()))
    assert name not in result.trace.counts()
    reasons = [
        *result.trace.refused.get(name, {}).values(),
        *(r for (n, _), r in result.checks.undone.items() if n == name),
    ]
    assert reasons
    assert all("\n" not in n for n in result.notes), result.notes
    json.dumps(result.to_json())
    seen.has(Tanh=2, Gelu=1, Mul=0, Erf=0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rewrite", REFUSED.values(), ids=REFUSED.keys())
def test_bad_rule(rewrite, level):
    """A rule that raises, that returns the wrong dtype or shape, that makes a cycle: that rewrite undone and reported;
    the run goes on; the output is right."""
    assert_reported(apply_bad(rule("bad", tanh, rewrite), level))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rewrite", [stolen_name, used_node_name, constant_named_like_an_output])
def test_rule_that_takes_names(rewrite, level):
    """A rule that gives a value the name of a graph output: no clobbered names, the output is right."""
    once = rule(
        "bad", op.Tanh(x), lambda m, b: rewrite(m, b) if "onnxrewrite.rule" not in m.node(tanh).metadata_props else None
    )
    named = Rule(name="bad", stage=Stage.CANONICALIZE, pattern=tanh, rewrite=once.rewrite)
    seen = apply_bad(named, level)
    names = [o for n in seen.models[level].graph.node for o in n.output] + [
        i.name for i in seen.models[level].graph.initializer
    ]
    assert len(names) == len(set(names))


def raising_where(found: Any, facts: Any) -> bool:
    raise ZeroDivisionError("in the pattern")


@pytest.mark.parametrize("level", LEVELS)
def test_pattern_that_raises(level):
    """A rule that raises while it looks: reported, the run goes on."""
    seen = apply_bad(rule("bad", AnyNode(where=raising_where), lambda m, b: m[x]), level)
    seen.has(Tanh=2, Gelu=1, Mul=0, Erf=0)
    assert any("bad" in n and "in the pattern" in n for n in seen.results[level].notes)


WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "the sign": lambda m, b: b.Neg(b.Tanh(m[x])),
    "another function": lambda m, b: b.Sin(m[x]),
    "one thousandth": lambda m, b: b.Mul(b.Tanh(m[x]), 1.001),
    "one in a hundred thousand": lambda m, b: b.Mul(b.Tanh(m[x]), 1.00002),
    "an offset": lambda m, b: b.Add(b.Tanh(m[x]), 1e-4),
    "a constant": lambda m, b: b.Mul(m[x], 0.0),
    "rounded": lambda m, b: b.Div(b.Round(b.Mul(b.Tanh(m[x]), 1000.0)), 1000.0),
    "NaN": lambda m, b: b.Mul(b.Tanh(m[x]), b.Div(m[x], m[x])),
    "saturated too early": lambda m, b: b.Clip(m[x], -1.0, 1.0),
    "right at one place only": lambda m, b: b.Where(b.Greater(m[x], 1.0), b.Sin(m[x]), b.Tanh(m[x])),
    "sorted": lambda m, b: b.TopK(b.Tanh(m[x]), np.array([4]), outputs=2)[0],
    "rolled": lambda m, b: b.Gather(b.Tanh(m[x]), np.array([1, 2, 3, 0]), axis=1),
    "the mean over the batch": lambda m, b: b.Add(b.Mul(b.Tanh(m[x]), 0.0), b.ReduceMean(b.Tanh(m[x]), axes=(0,))),
}


@pytest.mark.parametrize("rewrite", WRONG.values(), ids=WRONG.keys())
def test_numerically_wrong(rewrite):
    """A rule that is numerically wrong: caught at the site, undone and reported; the output is right."""
    seen = apply_bad(once("bad", rewrite), "full")
    assert_reported(seen)
    assert any(name == "bad" for name, _ in seen.result.checks.undone)
    assert all(one_line(r) for r in seen.result.checks.undone.values())


def once(name: str, rewrite: Callable[[Any, Any], Any], pattern: Any = tanh) -> Rule:
    """A rule that does not apply to what it made itself."""

    def guarded(m: Any, build: Any) -> Any:
        own = m.node(tanh).metadata_props.get("onnxrewrite.rule", "")
        m.require(name not in own, "made by the rule itself")
        return rewrite(m, build)

    return rule(name, pattern, guarded)


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites cannot be run by themselves."""

    def not_run(self: SiteChecker, site: Any) -> None:
        self.not_run["blind for a test"] += 1

    monkeypatch.setattr(SiteChecker, "__call__", not_run)


@pytest.mark.parametrize("rewrite", [f for k, f in WRONG.items() if k != "NaN"], ids=[k for k in WRONG if k != "NaN"])
def test_numerically_wrong_where_sites_cannot_be_run(blind, rewrite):
    """A rule that is numerically wrong, at a site that cannot be run: the whole model's check finds it by bisection."""
    seen = apply_bad(once("bad", rewrite), "full")
    assert_reported(seen)
    assert any(name == "bad" for name, _ in seen.result.checks.undone)


@pytest.mark.parametrize("count", [1, 2, 5, 12, 40])
def test_many_wrong_sites(blind, count):
    """A rule that is numerically wrong at many sites that cannot be run: all undone, the output is right."""
    graph = "float[n,4] x; " + "  ".join(
        f"m{i} = Mul(x, {float(i + 2) / 8})  t{i} = Tanh(m{i})  y{i} = Exp(t{i})" for i in range(count)
    )
    graph += f"  {gelu()}"
    seen = apply_bad(once("bad", WRONG["the sign"]), "full", graph=graph)
    seen.has(Tanh=count, Gelu=1)
    assert len(seen.result.trace.refused["bad"]) == count


def test_two_wrong_rules(blind):
    """Two rules that are numerically wrong: both found, the right one stays."""
    rules = [
        once("bad", WRONG["the sign"]),
        rule("worse", op.Exp(x), lambda m, b: b.Add(b.Cos(m[x]), 1.0)),
        rule("good", op.Sqrt(x), lambda m, b: b.Pow(m[x], 0.5)),
    ]
    graph = "float[n,4] x; a = Tanh(x)  b = Exp(a)  c = Sqrt(b)  y = Add(c, a)"
    seen = apply_bad(rules, "full", graph=graph)
    assert {name for name, _ in seen.result.checks.undone} == {"bad", "worse"}
    seen.has(Tanh=1, Exp=1, Sqrt=0, Pow=1)


def test_wrong_in_a_branch():
    """A rule that is numerically wrong inside a branch: undone, the output is right."""
    graph = (
        "bool g; float[n,4] x; y = If (g) <then_branch = b1 () => (f) { t = Tanh(x)  f = Exp(t) },"
        " else_branch = b2 () => (h) { u = Exp(x)  h = Tanh(u) }>"
    )
    seen = apply_bad(once("bad", WRONG["the sign"]), "full", graph=graph)
    seen.has(Tanh=2, Neg=0)


def test_wrong_in_a_branch_where_sites_cannot_be_run(blind):
    """A rule that is wrong in the branch that a sample may not take: both branches are tried."""
    graph = (
        "bool g; float[n,4] x; y = If (g) <then_branch = b1 () => (f) { t = Tanh(x)  f = Exp(t) },"
        " else_branch = b2 () => (h) { u = Exp(x)  h = Neg(u) }>"
    )
    seen = apply_bad(once("bad", WRONG["the sign"]), "full", graph=graph)
    seen.has(Tanh=1)


# -- rules that touch the graph ----------------------------------------------------------------------------------


def _rename(m: Any, build: Any) -> Any:
    m[tanh].name = "renamed"
    return build.Tanh(m[x])


def _detach(m: Any, build: Any) -> Any:
    m.node(tanh).replace_input_with(0, None)
    return build.Neg(m[x])


def _rewire(m: Any, build: Any) -> Any:
    node = m.node(tanh)
    node.replace_input_with(0, build.Neg(m[x]))
    return None


def _attribute(m: Any, build: Any) -> Any:
    m.node(tanh).attributes["slope"] = ir.AttrFloat32("slope", 1.0)
    raise ValueError("after the deed")


def _operator(m: Any, build: Any) -> Any:
    m.node(tanh).op_type = "Sin"
    return None


def _remove(m: Any, build: Any) -> Any:
    node = m.node(tanh)
    m[tanh].replace_all_uses_with(m[x], replace_graph_outputs=True)
    node.graph.remove(node, safe=True)
    return build.Tanh(m[x])


def _append(m: Any, build: Any) -> Any:
    made = build.Neg(m[x])
    m.node(tanh).graph.append(made.producer())
    return made


def _outputs(m: Any, build: Any) -> Any:
    m.node(tanh).graph.outputs.append(m[x])
    return None


def _outputs_swapped(m: Any, build: Any) -> Any:
    outputs = m.node(tanh).graph.outputs
    outputs[0] = m[x]
    return build.Tanh(m[x])


def _inputs(m: Any, build: Any) -> Any:
    m.node(tanh).graph.inputs.append(ir.Value(name="more"))
    return None


def _initializer(m: Any, build: Any) -> Any:
    graph = m.node(tanh).graph
    for value in graph.initializers.values():
        value.const_value = ir.tensor(value.const_value.numpy() * 0 + 7)
    return None


def _reader(m: Any, build: Any) -> Any:
    for reader in list(m[tanh].consumers()):
        reader.op_type = "Sin"
    return build.Tanh(m[x])


IN_PLACE = Const("weight")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["float", "double", "int64"])
@pytest.mark.parametrize("facts", [True, False])
def test_rule_that_changes_a_constant_in_place(dtype, facts, level):
    """A rule that computes in the array that it was given: the model's constant stays as it was."""

    def spoil(m: Any, build: Any) -> Any:
        array = m.facts.constant(m.value(IN_PLACE)) if facts else m[IN_PLACE]
        array *= 3
        m.refuse("after the deed")

    bad = rule("bad", op.Mul(x, IN_PLACE), spoil)
    trap(
        f"{dtype}[n,3] x; w = {dtype}[3] {{2, 4, 8}}  m = Mul(x, w)  y = Mul(m, w)",  # whose squares round nothing
        rules=[bad],
        levels=(level,),
        exact=True,
    )


def _used_output(m: Any, build: Any) -> Any:
    for user, index in list(m[tanh].uses()):
        user.replace_input_with(index, m[x])
    return build.Tanh(m[x])


MUTATIONS = (
    _rename,
    _detach,
    _rewire,
    _attribute,
    _operator,
    _remove,
    _append,
    _outputs,
    _outputs_swapped,
    _inputs,
    _initializer,
    _reader,
    _used_output,
)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rewrite", MUTATIONS, ids=[f.__name__.strip("_") for f in MUTATIONS])
def test_rule_that_touches_the_graph(rewrite, level):
    """A rule that changes the graph itself, and not by what it returns: undone and reported; the output is right."""
    seen = apply_bad(once("bad", rewrite), level)
    assert_reported(seen)
    assert any("bad" in n for n in seen.results[level].notes)


def test_driver_alone_survives():
    """The driver by itself, without the pipeline's net, survives a rule that raises."""
    from onnxrewrite import io
    from onnxrewrite.ir.target import target

    driver = Driver(io.load(proto(GRAPH)), [rule("bad", tanh, stop)], target("onnxruntime-cpu"))
    trace = driver.run()
    (reason,) = set(trace.refused["bad"].values())
    assert reason.startswith("the rule raised RuntimeError: nobody expected this at test_engine.py:")


TWO: dict[str, Callable[[Any, Any], Any]] = {
    "one value": lambda m, b: b.Neg(m[x]),
    "one of two": lambda m, b: (b.Neg(m[x]),),
    "one and None": lambda m, b: (b.Tanh(m[x]), None),
    "three": lambda m, b: (b.Tanh(m[x]), b.Sigmoid(m[x]), b.Neg(m[x])),
    "one of another shape": lambda m, b: (b.Tanh(m[x]), b.ReduceMax(m[x], axes=(0,), keepdims=0)),
    "one of another dtype": lambda m, b: (b.Tanh(m[x]), b.Cast(m[x], to=11)),
    "one that reads the other": lambda m, b: (b.Neg(m[sigmoid]), b.Neg(m[tanh])),
}
EXCHANGED: dict[str, Callable[[Any, Any], Any]] = {
    "in the wrong order": lambda m, b: (b.Sigmoid(m[x]), b.Tanh(m[x])),
    "the same twice": lambda m, b: [b.Tanh(m[x])] * 2,
    "one wrong": lambda m, b: (b.Tanh(m[x]), b.Neg(m[x])),
}
sigmoid = op.Sigmoid(x)
BOTH = f"float[n,4] x; a = Tanh(x)  b = Sigmoid(x)  {gelu(tag='2')}  u = Add(a, b)  w = Sub(a, b)"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rewrite", TWO.values(), ids=TWO.keys())
def test_pattern_of_two_values(rewrite, level):
    """A rule of two values that returns too few, too many, or what does not fit: undone and reported."""
    bad = Rule(name="bad", stage=Stage.CANONICALIZE, pattern=(tanh, sigmoid), rewrite=rewrite)
    seen = apply_bad(bad, level, graph=BOTH).has(Tanh=1, Sigmoid=1, Gelu=1)
    assert seen.result.trace.refused["bad"]


@pytest.mark.parametrize("rewrite", EXCHANGED.values(), ids=EXCHANGED.keys())
def test_pattern_of_two_values_that_are_wrong(rewrite):
    """A rule of two values that exchanges them: numerically wrong, so undone and reported."""
    bad = Rule(name="bad", stage=Stage.CANONICALIZE, pattern=(tanh, sigmoid), rewrite=rewrite)
    seen = apply_bad(bad, "full", graph=BOTH).has(Tanh=1, Sigmoid=1, Gelu=1)
    assert [key[0] for key in seen.result.checks.undone] == ["bad"]


@pytest.mark.parametrize("level", LEVELS)
def test_lowering_that_fails(level):
    """A rule that raises an operator which no rule lowers, or whose lowering is wrong: not left in the result."""
    raise_only = rule("bad", tanh, lambda m, b: b.domain("com.acme").Tanh(m[x]), Stage.RAISE)
    assert_reported(apply_bad(raise_only, level))
    broken = [
        rule("raise-swish", tanh, lambda m, b: b.Swish(m[x]), Stage.RAISE),
        rule("lower-swish", microsoft.QuickGelu(x), stop, Stage.LOWER),
    ]
    if level == "full":
        apply_bad(broken, level).has(Tanh=2, Gelu=1)


def test_results_are_right_by_themselves():
    """The graph that the rules above are tried on has what they look for, and what goes on beside them."""
    model = proto(GRAPH)
    assert operators(model) == {"Tanh": 2, "Exp": 1, "Div": 1, "Erf": 1, "Add": 1, "Mul": 3, "Neg": 1}
    assert np.isfinite(run(model, [{"x": np.zeros((1, 4), np.float32)}])[0][0]).all()
    onnx.checker.check_model(model, full_check=True)
